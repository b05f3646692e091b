/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a log needs a tick: a batch is what lies between two and is read into
 * memory whole, so what this process stores in a log is counted until it has
 * made one.
 */
#ifndef QUEEN_OJS_TICKS_H
#define QUEEN_OJS_TICKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stored in a log without a tick after which it needs a heavy one. */
enum { TICKS_HEAVY_BYTES = 8 << 20 };

struct ticks;
struct ticks_log;
/*
 * Makes a tick, heavy = that is never thinned, later than this call; ends with
 * ticks_asked.  None is asked for a log while one is under way.
 */
typedef void (*ticks_fn)(
	void *arg, struct ticks_log *log, int64_t queue_id, bool heavy);

/*
 * max: logs that are remembered.  Of more, the one that was there for longest
 * is forgotten, with a tick unless there was little.
 */
struct ticks *ticks_new(size_t max, ticks_fn fn, void *arg);
void ticks_free(struct ticks *t);

/* bytes were stored in a log; many: it has so many events that it needs one. */
void ticks_grew(struct ticks *t, int64_t queue_id, int64_t bytes, bool many);
/* made: what was there when it was asked for lies before it. */
void ticks_asked(struct ticks_log *log, bool made);

#endif
