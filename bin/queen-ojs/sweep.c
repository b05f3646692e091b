/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three chains, so that none waits for another: jobs and crons, streams, and
 * what has time (removal, whether logs are whole).  In a chain one call at a
 * time, each a transaction of its own; a kind again while it says there is
 * more, at most so often in a pass that the others get their turn.
 */
#include "sweep.h"

#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "err.h"
#include "pgpool.h"
#include "settings.h"
#include "sweep_int.h"
#include "wait.h"

enum {
	LIMIT = 1000, /* rows of one call */
	REPEATS_MAX = 20, /* calls of one kind in a pass */
	CARE_MS = 1000,
	CHECK_MS = 60000, /* and at once again while something is wrong */
	LOG_EVERY_MS = 5000,
};

/* In the order of their chains. */
enum sweep_kind { JOBS, CRONS, CLOCK, PRUNE, PURGE, CHECK, KINDS };

static const struct pgstmt STMT_JOBS = { "jobs_sweep",
	"select queue_id, became, steps, more from queen.jobs_sweep_v1($1)" };
static const struct pgstmt STMT_CRONS = { "crons_fire",
	"select queue_id, became, more from queen.crons_fire_v1($1)" };
static const struct pgstmt STMT_PRUNE = { "jobs_prune",
	"select queen.jobs_prune_v1($1)" };
static const struct pgstmt STMT_PURGE = { "ojs_purge",
	"select queen.ojs_purge_v1($1)" };
static const struct pgstmt STMT_CLOCK = { "clock", "select queen.clock_v1()" };
static const struct pgstmt STMT_CHECK = { "stream_check",
	"select queue_id, why from queen.stream_check_v1() limit 1" };

static void go_on(struct sweep_chain *c);

void
sweep_failed(struct sweep *s, const struct err *e)
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

static void
next(struct sweep_chain *c, bool more)
{
	if (more && ++c->repeats < REPEATS_MAX && !c->sweep->x->stopping) {
		go_on(c);
		return;
	}
	c->kind++;
	c->repeats = 0;
	go_on(c);
}

/* ---- what came back ---- */

static void
on_jobs(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep_chain *c = arg;
	struct sweep *s = c->sweep;
	bool crons = c->kind == CRONS, more = false;

	if (e)
		sweep_failed(s, e);
	for (int i = 0; !e && i < PQntuples(res); i++) {
		int became = pgbin_i32(res, i, 1);

		more |= pgbin_bool(res, i, crons ? 2 : 3);
		if (crons)
			s->stats.crons += (uint64_t)became;
		else
			s->stats.jobs += (uint64_t)pgbin_i32(res, i, 2);
		if (!became)
			continue;
		/* a cron may have made the queue of its first job */
		if (crons)
			waits_tell_queue(s->x->waits, pgbin_i64(res, i, 0));
		waits_tell(s->x->waits, WAIT_JOBS, pgbin_i64(res, i, 0));
	}
	next(c, more);
}

static void
on_removed(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep_chain *c = arg;
	int64_t n = 0;

	if (e)
		sweep_failed(c->sweep, e);
	else if (PQntuples(res) && !pgbin_null(res, 0, 0))
		n = pgbin_i64(res, 0, 0);
	c->sweep->stats.rows_removed += (uint64_t)n;
	next(c, n >= LIMIT);
}

static void
on_clock(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep_chain *c = arg;

	if (e)
		sweep_failed(c->sweep, e);
	else
		c->sweep->x->clock_offset_us =
			pgbin_time(res, 0, 0) - clk_wall_us();
	next(c, false);
}

static void
on_check(void *arg, const PGresult *res, const struct err *e)
{
	struct sweep_chain *c = arg;
	struct sweep *s = c->sweep;
	struct ctx *x = s->x;
	bool was = x->stream_fault[0] != '\0';

	if (e) {
		sweep_failed(s, e);
	} else if (PQntuples(res)) {
		snprintf(x->stream_fault, sizeof(x->stream_fault),
			"a stream waits for `queenctl schema rebase-streams`: "
			"%.*s",
			SPAN_ARG(span_clip(pgbin_bytes(res, 0, 1), 100)));
		if (!was)
			log_line(LOG_ERROR, "stream",
				"a stream is refused until its rebase",
				"queue_id=%lld why=%s",
				(long long)pgbin_i64(res, 0, 0),
				log_quote(x->stream_fault));
	} else {
		x->stream_fault[0] = '\0';
	}
	s->check_ms = clk_mono_ms() + (x->stream_fault[0] ? 0 : CHECK_MS);
	next(c, false);
}

/* ---- the passes ---- */

static bool
is_due(const struct sweep_chain *c)
{
	if (c->kind == CLOCK)
		return true;
	if (c->kind == CHECK)
		return clk_mono_ms() >= c->sweep->check_ms;
	return c->sweep->x->conf->sweeper;
}

static void
end_pass(struct sweep_chain *c)
{
	struct sweep *s = c->sweep;

	if (c == &s->jobs) {
		s->stats.passes++;
		s->stats.last_ms = clk_mono_ms() - c->pass_ms;
	}
	loop_timer_start(&c->timer, c->every_ms);
}

static void
go_on(struct sweep_chain *c)
{
	static const struct {
		const struct pgstmt *stmt;
		pgpool_fn fn;
		bool limited;
	} work[KINDS] = {
		[JOBS] = { &STMT_JOBS, on_jobs, true },
		[CRONS] = { &STMT_CRONS, on_jobs, true },
		[CLOCK] = { &STMT_CLOCK, on_clock, false },
		[PRUNE] = { &STMT_PRUNE, on_removed, true },
		[PURGE] = { &STMT_PURGE, on_removed, true },
		[CHECK] = { &STMT_CHECK, on_check, false },
	};
	struct pgargs a;

	while (c->kind <= c->last && !is_due(c))
		c->kind++;
	if (c->kind > c->last) {
		end_pass(c);
		return;
	}
	pgargs_init(&a);
	if (work[c->kind].limited)
		pgargs_i32(&a, LIMIT);
	pgpool_call(c->sweep->x->pool, LANE_REST, work[c->kind].stmt, &a,
		work[c->kind].fn, c);
}

static void
on_timer(void *arg)
{
	struct sweep_chain *c = arg;

	if (c->sweep->x->stopping)
		return;
	c->pass_ms = clk_mono_ms();
	c->kind = c->first;
	c->repeats = 0;
	go_on(c);
}

static void
start(struct sweep *s, struct sweep_chain *c, enum sweep_kind first,
	enum sweep_kind last, int64_t every_ms)
{
	c->sweep = s;
	c->first = (int)first;
	c->last = (int)last;
	c->every_ms = every_ms;
	loop_timer_init(&c->timer, s->x->loop, on_timer, c);
	loop_timer_start(&c->timer, 1);
}

struct sweep *
sweep_new(struct ctx *x)
{
	struct sweep *s = calloc(1, sizeof(*s));

	BUG(!s);
	s->x = x;
	start(s, &s->jobs, JOBS, CLOCK, x->conf->sweep_ms);
	start(s, &s->care, PRUNE, CHECK, CARE_MS);
	sweep_streams_start(s);
	return s;
}

void
sweep_free(struct sweep *s)
{
	if (!s)
		return;
	sweep_streams_stop(s);
	loop_timer_fini(&s->jobs.timer);
	loop_timer_fini(&s->care.timer);
	free(s);
}

void
sweep_stats(const struct sweep *s, struct sweep_stats *out)
{
	*out = s->stats;
}
