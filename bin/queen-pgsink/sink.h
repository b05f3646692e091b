/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a sink: cell connections, setup against the target, workers
 * with work from the feed, the ladder after a failure, the stop, and what of
 * all that is shown.
 */
#ifndef QUEEN_PGSINK_SINK_H
#define QUEEN_PGSINK_SINK_H

#include <stddef.h>
#include <stdint.h>

struct ctx;
struct jwrite;
struct sink;

/*
 * ctx: loop, conf, child, task and seal are set; sink, work, side, cell_tag,
 * feed, plan and counts are filled here.  Begins in a later turn of the loop.
 */
struct sink *sink_new(struct ctx *x);
/*
 * No new work; what is in hand may end within grace_ms, then
 * connchild_leave, which ends the loop.
 */
void sink_stop(struct sink *s, int64_t grace_ms);
void sink_free(struct sink *s);

/* For connchild_face; arg is the sink. */
void sink_write_detail(void *arg, struct jwrite *w);
void sink_write_metrics(void *arg, struct jwrite *w);
void sink_on_marks(void *arg, const int64_t *parts, size_t n);

#endif
