/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call at a time, each a transaction of its own: the kinds of work in
 * turn, a kind again while it says there is more, at most so often in a
 * pass that the others get their turn.
 */
#include "sweep.h"

#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "ctx.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "pgpool.h"
#include "settings.h"
#include "ticks.h"
#include "wait.h"

enum {
	LIMIT = 1000, /* rows of one call */
	REPEATS_MAX = 20, /* calls of one kind in a pass */
	STREAMS_MAX = 64, /* claims of one pass */
	PRUNE_MS = 1000,
	LOG_EVERY_MS = 5000,
};

enum kind { JOBS, CRONS, STREAMS, PRUNE, PURGE, CLOCK, KINDS };

struct sweep {
	struct ctx *x;
	struct loop_timer timer;
	enum kind kind;
	int repeats;
	int64_t pass_ms, prune_ms;
	/* steps of streams that were claimed, and where we are in them */
	PGresult *steps;
	int step;
	struct log_sampler failures;
	struct sweep_stats stats;
};

static const struct pgstmt STMT_JOBS = { "jobs_sweep",
	"select queue_id, became, steps, more from queen.jobs_sweep_v1($1)" };
static const struct pgstmt STMT_CRONS = { "crons_fire",
	"select queue_id, became, more from queen.crons_fire_v1($1)" };
static const struct pgstmt STMT_STREAMS = { "stream_work",
	"select queue_id, fence, step from queen.stream_work_v1($1, $2)" };
static const struct pgstmt STMT_STEP = { "stream_step",
	"select more, events, note, bytes from queen.stream_step_v1($1, $2)" };
static const struct pgstmt STMT_WORKED = { "stream_worked",
	"select queen.stream_worked_v1($1, $2)" };
static const struct pgstmt STMT_PRUNE = { "jobs_prune",
	"select queen.jobs_prune_v1($1)" };
static const struct pgstmt STMT_PURGE = { "ojs_purge",
	"select queen.ojs_purge_v1($1)" };
static const struct pgstmt STMT_CLOCK = { "clock", "select queen.clock_v1()" };

static void go_on(struct sweep *s);

/* True: the kind may have another call. */
static bool
again(struct sweep *s, bool more)
{
	return more && ++s->repeats < REPEATS_MAX && !s->x->stopping;
}

static void
next_kind(struct sweep *s)
{
	s->kind++;
	s->repeats = 0;
	go_on(s);
}

static void
failed(struct sweep *s, const struct err *e)
{
	uint64_t suppressed;

	s->stats.failures++;
	s->failures.every_ms = LOG_EVERY_MS;
	if (!pgpool_had_none(e) &&
		log_sample(&s->failures, loop_now_ms(s->x->loop), &suppressed))
		log_line(LOG_WARN, "sweep", "due work failed",
			"sqlstate=%s error=%s suppressed=%llu", e->sqlstate,
			log_quote(e->text), (unsigned long long)suppressed);
}

/* ---- jobs, crons ---- */

static void
on_jobs(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep *s = arg;
	bool crons = s->kind == CRONS, more = false;

	if (e)
		failed(s, e);
	for (int i = 0; !e && i < PQntuples(res); i++) {
		int became = pgbin_i32(res, i, 1);

		more |= pgbin_bool(res, i, crons ? 2 : 3);
		if (crons)
			s->stats.crons += (uint64_t)became;
		else
			s->stats.jobs += (uint64_t)pgbin_i32(res, i, 2);
		if (!became)
			continue;
		/* A cron may have made the queue of its first job. */
		if (crons)
			waits_tell_queue(s->x->waits, pgbin_i64(res, i, 0));
		waits_tell(s->x->waits, WAIT_JOBS, pgbin_i64(res, i, 0));
	}
	if (again(s, more))
		go_on(s);
	else
		next_kind(s);
}

/* ---- streams ---- */

static void step_on(struct sweep *s);

static void
on_worked(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep *s = arg;

	(void)res;
	if (e)
		failed(s, e);
	step_on(s);
}

/* The last step of a queue hands its claim back. */
static void
step_done(struct sweep *s)
{
	int64_t queue_id = pgbin_i64(s->steps, s->step, 0);
	int64_t fence = pgbin_i64(s->steps, s->step, 1);
	struct pgargs a;

	s->step++;
	s->repeats = 0;
	if (s->step < PQntuples(s->steps) &&
		pgbin_i64(s->steps, s->step, 0) == queue_id) {
		step_on(s);
		return;
	}
	pgargs_init(&a);
	pgargs_i64(&a, queue_id);
	pgargs_i64(&a, fence);
	pgpool_call(s->x->pool, LANE_REST, &STMT_WORKED, &a, on_worked, s);
}

static void
on_step(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep *s = arg;
	int64_t queue_id = pgbin_i64(s->steps, s->step, 0);
	bool more = false;

	if (e)
		failed(s, e);
	if (!e && PQntuples(res)) {
		s->stats.stream_steps++;
		more = pgbin_bool(res, 0, 0);
		if (pgbin_i32(res, 0, 1))
			waits_tell(s->x->waits, WAIT_EVENTS, queue_id);
		if (pgbin_i64(res, 0, 3))
			ticks_grew(s->x->ticks, queue_id, pgbin_i64(res, 0, 3),
				false);
		if (!pgbin_null(res, 0, 2))
			log_line(LOG_INFO, "stream", "due work",
				"queue=%lld %.*s", (long long)queue_id,
				SPAN_ARG(pgbin_bytes(res, 0, 2)));
	}
	if (again(s, more))
		step_on(s);
	else
		step_done(s);
}

static void
step_on(struct sweep *s)
{
	struct pgargs a;

	if (s->step >= PQntuples(s->steps)) {
		PQclear(s->steps);
		s->steps = NULL;
		next_kind(s);
		return;
	}
	pgargs_init(&a);
	pgargs_i64(&a, pgbin_i64(s->steps, s->step, 0));
	pgargs_i16(&a, pgbin_i16(s->steps, s->step, 2));
	pgpool_call(s->x->pool, LANE_REST, &STMT_STEP, &a, on_step, s);
}

static void
on_streams(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep *s = arg;

	(void)res;
	if (e) {
		failed(s, e);
		next_kind(s);
		return;
	}
	s->steps = pgpool_take_result(s->x->pool);
	s->step = 0;
	step_on(s);
}

/* ---- removal, clock ---- */

static void
on_removed(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep *s = arg;
	int64_t n = 0;

	if (e)
		failed(s, e);
	else if (PQntuples(res) && !pgbin_null(res, 0, 0))
		n = pgbin_i64(res, 0, 0);
	s->stats.rows_removed += (uint64_t)n;
	if (again(s, n >= LIMIT))
		go_on(s);
	else
		next_kind(s);
}

static void
on_clock(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep *s = arg;

	if (e)
		failed(s, e);
	else
		s->x->clock_offset_us = pgbin_time(res, 0, 0) - clk_wall_us();
	next_kind(s);
}

/* ---- the pass ---- */

static void
end_pass(struct sweep *s)
{
	s->stats.passes++;
	s->stats.last_ms = clk_mono_ms() - s->pass_ms;
	loop_timer_start(&s->timer, s->x->conf->sweep_ms);
}

/* Removal is for once a second; the rest each time. */
static bool
is_due(struct sweep *s)
{
	if (s->kind == CLOCK)
		return true;
	if (!s->x->conf->sweeper)
		return false;
	if (s->kind != PRUNE && s->kind != PURGE)
		return true;
	return s->pass_ms >= s->prune_ms;
}

static void
go_on(struct sweep *s)
{
	static const struct {
		const struct pgstmt *stmt;
		pgpool_fn fn;
	} work[KINDS] = {
		[JOBS] = { &STMT_JOBS, on_jobs },
		[CRONS] = { &STMT_CRONS, on_jobs },
		[STREAMS] = { &STMT_STREAMS, on_streams },
		[PRUNE] = { &STMT_PRUNE, on_removed },
		[PURGE] = { &STMT_PURGE, on_removed },
		[CLOCK] = { &STMT_CLOCK, on_clock },
	};
	struct pgargs a;

	while (s->kind < KINDS && !is_due(s))
		s->kind++;
	if (s->kind == KINDS) {
		end_pass(s);
		return;
	}
	pgargs_init(&a);
	if (s->kind == STREAMS)
		pgargs_text(&a, span_of(s->x->instance));
	if (s->kind != CLOCK)
		pgargs_i32(&a, s->kind == STREAMS ? STREAMS_MAX : LIMIT);
	pgpool_call(s->x->pool, LANE_REST, work[s->kind].stmt, &a,
		work[s->kind].fn, s);
}

static void
on_timer(void *arg)
{
	struct sweep *s = arg;

	if (s->x->stopping)
		return;
	if (s->pass_ms >= s->prune_ms)
		s->prune_ms = s->pass_ms + PRUNE_MS;
	s->pass_ms = clk_mono_ms();
	s->kind = JOBS;
	s->repeats = 0;
	go_on(s);
}

struct sweep *
sweep_new(struct ctx *x)
{
	struct sweep *s = calloc(1, sizeof(*s));

	BUG(!s);
	s->x = x;
	loop_timer_init(&s->timer, x->loop, on_timer, s);
	loop_timer_start(&s->timer, 1);
	return s;
}

void
sweep_free(struct sweep *s)
{
	if (!s)
		return;
	PQclear(s->steps);
	loop_timer_fini(&s->timer);
	free(s);
}

void
sweep_stats(const struct sweep *s, struct sweep_stats *out)
{
	*out = s->stats;
}
