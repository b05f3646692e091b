/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a source in its process: lease, start, run, and again after a
 * failure, until it is stopped or its deletion is done.  It tells the parent
 * the phase, and leaves by connchild_leave.
 */
#ifndef QUEEN_PGSRC_SOURCE_H
#define QUEEN_PGSRC_SOURCE_H

#include <stdint.h>

struct ctx;
struct jwrite;
struct source;

/*
 * Begins by itself, in the loop.  Fills in what the ctx lacks: links to the
 * cell, its tag, the keys.
 */
struct source *source_new(struct ctx *x);
/*
 * Lets the bundle in flight settle, frees the slot, gives the lease back, then
 * connchild_leave; within grace_ms, bounded to 1 s to 60 s.
 */
void source_stop(struct source *s, int64_t grace_ms);
void source_free(struct source *s);

/* For connchild_face; arg is a struct source. */
void source_write_detail(void *arg, struct jwrite *w);
void source_write_metrics(void *arg, struct jwrite *w);

#endif
