/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The switches of queen.flags as this process sees them (ctx: push_ and
 * pop_maintenance, kv_, timers_schedule_ and timers_fire_enabled).  The row is
 * the truth; a hint or the minute's re-read brings it here.
 */
#ifndef QUEEND_FLAGS_H
#define QUEEND_FLAGS_H

#include <libpq-fe.h>
#include <stdbool.h>

struct ctx;
struct err;

enum flag {
	FLAG_PUSH_MAINTENANCE,
	FLAG_POP_MAINTENANCE,
	FLAG_KV,		/* these three are on unless a row says no */
	FLAG_TIMERS_SCHEDULE,
	FLAG_TIMERS_FIRE,
	FLAGS
};

typedef void (*flags_fn)(void *arg, const struct err *e);

/* Boot only. */
int flags_load_sync(struct ctx *x, PGconn *pg, struct err *e)
	__attribute__((warn_unused_result));
/* Reads the rows into ctx; done may be NULL. */
void flags_refresh(struct ctx *x, flags_fn done, void *arg);
/* Sets the mirror at once, writes the row, announces it. */
void flags_set(struct ctx *x, enum flag flag, bool enabled, flags_fn done,
	void *arg);

#endif
