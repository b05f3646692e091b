/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The streams' chain: claims what is due of a few queues, takes each step in a
 * transaction of its own, and hands the claim back.  In a lane with the
 * streams' own calls, because a step may wait for them.
 */
#include <string.h>

#include "err.h"
#include "pgpool.h"
#include "settings.h"
#include "sweep_int.h"
#include "ticks.h"
#include "wait.h"

enum {
	CLAIMS_MAX = 8, /* so that a claim's lease is not outlived */
	REPEATS_MAX = 20, /* of one step */
	NOTE_EVERY_MS = 60000,
};

static const struct pgstmt STMT_WORK = { "stream_work",
	"select queue_id, fence, step from queen.stream_work_v1($1, $2)" };
static const struct pgstmt STMT_STEP = { "stream_step",
	"select more, events, note, bytes from queen.stream_step_v1($1, $2)" };
static const struct pgstmt STMT_WORKED = { "stream_worked",
	"select queen.stream_worked_v1($1, $2)" };

static void claim(struct sweep_streams *s);
static void step_on(struct sweep_streams *s);

static void
rest(struct sweep_streams *s)
{
	loop_timer_start(&s->timer, s->sweep->x->conf->sweep_ms);
}

static int64_t
queue_at(const struct sweep_streams *s)
{
	return pgbin_i64(s->steps, s->at, 0);
}

static void
on_worked(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep_streams *s = arg;

	(void)res;
	if (e)
		sweep_failed(s->sweep, e);
	step_on(s);
}

/* The last step of a queue hands its claim back. */
static void
step_done(struct sweep_streams *s)
{
	int64_t queue_id = queue_at(s), fence = pgbin_i64(s->steps, s->at, 1);
	struct pgargs a;

	s->at++;
	s->repeats = 0;
	if (s->at < PQntuples(s->steps) && queue_at(s) == queue_id) {
		step_on(s);
		return;
	}
	pgargs_init(&a);
	pgargs_i64(&a, queue_id);
	pgargs_i64(&a, fence);
	pgpool_call(
		s->sweep->x->pool, LANE_STREAM, &STMT_WORKED, &a, on_worked, s);
}

static void
note(struct sweep_streams *s, int64_t queue_id, struct span text)
{
	uint64_t suppressed;

	s->notes.every_ms = NOTE_EVERY_MS;
	if (log_sample(&s->notes, loop_now_ms(s->sweep->x->loop), &suppressed))
		log_line(LOG_INFO, "stream", "due work",
			"queue_id=%lld %.*s suppressed=%llu",
			(long long)queue_id, SPAN_ARG(text),
			(unsigned long long)suppressed);
}

static void
on_step(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep_streams *s = arg;
	struct ctx *x = s->sweep->x;
	int64_t queue_id = queue_at(s);
	bool more = false;

	if (e)
		sweep_failed(s->sweep, e);
	if (!e && PQntuples(res)) {
		s->sweep->stats.stream_steps++;
		more = pgbin_bool(res, 0, 0);
		if (pgbin_i32(res, 0, 1))
			waits_tell(x->waits, WAIT_EVENTS, queue_id);
		if (pgbin_i64(res, 0, 3))
			ticks_grew(x->ticks, queue_id, pgbin_i64(res, 0, 3),
				false);
		if (!pgbin_null(res, 0, 2))
			note(s, queue_id, pgbin_bytes(res, 0, 2));
	}
	if (more && ++s->repeats < REPEATS_MAX && !x->stopping)
		step_on(s);
	else
		step_done(s);
}

static void
step_on(struct sweep_streams *s)
{
	struct pgargs a;

	if (s->at >= PQntuples(s->steps)) {
		PQclear(s->steps);
		s->steps = NULL;
		if (s->full && !s->sweep->x->stopping)
			claim(s);
		else
			rest(s);
		return;
	}
	pgargs_init(&a);
	pgargs_i64(&a, queue_at(s));
	pgargs_i16(&a, pgbin_i16(s->steps, s->at, 2));
	pgpool_call(s->sweep->x->pool, LANE_STREAM, &STMT_STEP, &a, on_step, s);
}

static void
on_claims(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep_streams *s = arg;
	int queues = 0;

	if (e) {
		sweep_failed(s->sweep, e);
		rest(s);
		return;
	}
	s->steps = pgpool_take_result(s->sweep->x->pool);
	for (int i = 0; i < PQntuples(res); i++)
		queues += i == 0 ||
			  pgbin_i64(res, i, 0) != pgbin_i64(res, i - 1, 0);
	s->full = queues == CLAIMS_MAX;
	s->at = s->repeats = 0;
	step_on(s);
}

static void
claim(struct sweep_streams *s)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_text(&a, span_of(s->sweep->x->instance));
	pgargs_i32(&a, CLAIMS_MAX);
	pgpool_call(
		s->sweep->x->pool, LANE_STREAM, &STMT_WORK, &a, on_claims, s);
}

static void
on_timer(void *arg)
{
	struct sweep_streams *s = arg;

	if (!s->sweep->x->stopping)
		claim(s);
}

void
sweep_streams_start(struct sweep *s)
{
	s->streams.sweep = s;
	loop_timer_init(&s->streams.timer, s->x->loop, on_timer, &s->streams);
	if (s->x->conf->sweeper)
		loop_timer_start(&s->streams.timer, 1);
}

void
sweep_streams_stop(struct sweep *s)
{
	PQclear(s->streams.steps);
	loop_timer_fini(&s->streams.timer);
}
