/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by timer_fire.c, the loop, and timer_alone.c, its way out of a failure. */
#ifndef QUEEND_TIMER_FIRE_INT_H
#define QUEEND_TIMER_FIRE_INT_H

#include "arena.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "pgpool.h"
#include "qid.h"
#include "span.h"
#include "timer_fire.h"

struct settings;

enum timer_state {
	TIMER_IDLE,
	TIMER_LOOK,
	TIMER_FIRE,
	TIMER_NEXT, /* names of the due ones */
	TIMER_ALONE, /* one of them */
	TIMER_PUT_BACK,
};

/* One to be fired alone. */
struct timer_name {
	struct qid tenant, message_id;
	struct span queue, key, partition;
	bool held; /* others hold its destination: not tried again */
};

struct timer_fire {
	struct ctx *x;
	enum timer_state state;
	struct loop_timer timer;
	int64_t wake_at_ms; /* while idle: when; INT64_MAX = never */
	int64_t soonest_ms; /* a schedule since the last look is due then */
	int64_t cycle_rows; /* fired since the last sleep */
	struct arena names_arena;
	struct timer_name *names;
	int names_n, at;
	int64_t pause_ms; /* after them: one could not even be put back */
	bool buried_badly; /* filing a dead letter failed: put back */
	struct err why; /* of the one being put back */
	struct log_sampler errors;
	struct timer_fire_stats stats;
};

/* Begins what belongs to the state. */
void timer_fire_step(struct timer_fire *t, enum timer_state next);
void timer_fire_call(struct timer_fire *t, const struct pgstmt *s,
	struct pgargs *a, pgpool_fn fn);
/* Until then, or until something scheduled here is due. */
void timer_fire_sleep(struct timer_fire *t, int64_t ms);
/* Is something it needs held by others for too long? */
bool timer_fire_stuck(const struct err *e);
/* Will the same work without our doing anything about it? */
bool timer_fire_passes(const struct err *e);
/* Then everything waits a little, and no attempt is counted. */
void timer_fire_wait_out(struct timer_fire *t, const struct err *e);
void timer_fire_log(
	struct timer_fire *t, const char *what, const struct err *e);
/* Rows of a fire; true when something moved: fired, put back or filed. */
bool timer_fire_take(struct timer_fire *t, const PGresult *res);

/* timer_alone.c: asks for names, fires one, puts one back. */
void timer_alone_ask(struct timer_fire *t);
void timer_alone_fire(struct timer_fire *t);
void timer_alone_put_back(struct timer_fire *t);

#endif
