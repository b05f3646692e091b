/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop: look, sleep until the next is due, fire, look again.  A fire that
 * fails rolls back as a whole; unless all is well again by itself, the due
 * timers go one at a time (timer_alone.c).
 */
#include "timer_fire_int.h"

#include <inttypes.h>
#include <stdlib.h>

#include "announce.h"
#include "arena.h"
#include "catalog.h"
#include "clk.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "pgpool.h"
#include "settings.h"

enum {
	FIRE_ROWS = 1000, /* a lock is held for the time of so many */
	ERROR_EVERY_MS = 30000,
	HELD_MS = 25, /* what is due is in other hands: not sooner again */
};

/* clang-format off */
static const struct pgstmt STMT_DUE = { "timer_due",
	"select next_us, due, late_ms from queen.timer_due_v1($1)" };
static const struct pgstmt STMT_FIRE = { "timer_fire",
	"select verdict, queue_id, part_id, n, lag_ms, queue_new, part_new from"
	" queen.timer_fire_v1($1, $2)" };
/* clang-format on */
enum { C_VERDICT, C_QUEUE, C_PART, C_N, C_LAG, C_QUEUE_NEW, C_PART_NEW };
/* Verdicts of a fire. */
enum { FIRED, LEFT };

void
timer_fire_call(struct timer_fire *t, const struct pgstmt *s, struct pgargs *a,
	pgpool_fn fn)
{
	pgpool_call(t->x->pool, LANE_REST, s, a, fn, t);
}

void
timer_fire_sleep(struct timer_fire *t, int64_t ms)
{
	int64_t now_ms = clk_mono_ms();

	if (t->soonest_ms < now_ms + ms)
		ms = t->soonest_ms - now_ms;
	if (ms < t->x->conf->sweeper_min_sleep_ms)
		ms = t->x->conf->sweeper_min_sleep_ms;
	t->soonest_ms = INT64_MAX;
	t->cycle_rows = 0;
	t->state = TIMER_IDLE;
	t->wake_at_ms = now_ms + ms;
	loop_timer_start(&t->timer, ms);
}

bool
timer_fire_stuck(const struct err *e)
{
	return strcmp(e->sqlstate, "55P03") == 0 ||
	       strcmp(e->sqlstate, "57014") == 0;
}

bool
timer_fire_passes(const struct err *e)
{
	static const char *const classes[] = { "08", "53", "57", "58" };

	if (!e->sqlstate[0] || timer_fire_stuck(e) ||
		strcmp(e->sqlstate, "40001") == 0 ||
		strcmp(e->sqlstate, "40P01") == 0)
		return true;
	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++)
		if (strncmp(e->sqlstate, classes[i], 2) == 0)
			return true;
	return false;
}

void
timer_fire_log(struct timer_fire *t, const char *what, const struct err *e)
{
	uint64_t suppressed;

	t->errors.every_ms = ERROR_EVERY_MS;
	if (log_sample(&t->errors, clk_mono_ms(), &suppressed))
		log_line(LOG_WARN, "timers", what,
			"error=%s suppressed=%" PRIu64, log_quote(e->text),
			suppressed);
}

void
timer_fire_wait_out(struct timer_fire *t, const struct err *e)
{
	t->stats.retried++;
	timer_fire_log(t, "a call failed and is repeated", e);
	timer_fire_sleep(t, t->x->conf->sweeper_transient_backoff_ms);
}

/* ---- look ---- */

/* Others schedule as well, and may be gone when theirs is due. */
static void
sleep_until_due(struct timer_fire *t, bool any, int64_t next_us)
{
	int64_t ms = t->x->conf->sweeper_max_sleep_ms;

	if (any && next_us / 1000 < ms)
		ms = (next_us + 999) / 1000;
	timer_fire_sleep(t, ms);
}

static void
on_due(void *arg, const PGresult *res, const struct err *e)
{
	struct timer_fire *t = arg;
	bool any, fires = t->x->timers_fire_enabled && !t->x->stopping;

	if (e) {
		timer_fire_wait_out(t, e);
		return;
	}
	any = !pgbin_null(res, 0, 0);
	t->stats.due = pgbin_i32(res, 0, 1);
	t->stats.late_ms = pgbin_i64(res, 0, 2);
	if (!fires)
		timer_fire_sleep(t, t->x->conf->sweeper_max_sleep_ms);
	else if (t->stats.due > 0)
		timer_fire_step(t, TIMER_FIRE);
	else
		sleep_until_due(t, any, any ? pgbin_i64(res, 0, 0) : 0);
}

static void
look(struct timer_fire *t)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_i32(&a, (int32_t)t->x->conf->sweeper_due_cap);
	timer_fire_call(t, &STMT_DUE, &a, on_due);
}

/* ---- fire ---- */

static void
take_segment(struct timer_fire *t, const PGresult *res, int i)
{
	int64_t queue = pgbin_i64(res, i, C_QUEUE);
	int64_t part = pgbin_i64(res, i, C_PART);
	int n = pgbin_i32(res, i, C_N);
	int64_t lag_ms = pgbin_i64(res, i, C_LAG);

	t->stats.fired += (uint64_t)n;
	t->cycle_rows += n;
	if (lag_ms > t->stats.lag_ms)
		t->stats.lag_ms = lag_ms;
	if (pgbin_bool(res, i, C_QUEUE_NEW)) {
		catalog_refresh(t->x->catalog);
		announce_catalog(t->x, queue);
	}
	if (pgbin_bool(res, i, C_PART_NEW))
		count_partitions(t->x, queue, 1, 0);
	count_push(t->x, queue, 0, n);
	announce_messages(t->x, queue, part);
}

bool
timer_fire_take(struct timer_fire *t, const PGresult *res)
{
	bool fired = false;

	for (int i = 0; i < PQntuples(res); i++) {
		if (pgbin_i32(res, i, C_VERDICT) != FIRED)
			continue;
		if (!fired)
			t->stats.lag_ms = 0;
		fired = true;
		take_segment(t, res, i);
	}
	return fired;
}

static void
on_fired(void *arg, const PGresult *res, const struct err *e)
{
	struct timer_fire *t = arg;

	if (e && timer_fire_passes(e) &&
		!(timer_fire_stuck(e) && t->x->conf->sweeper_isolate)) {
		timer_fire_wait_out(t, e);
	} else if (e) {
		timer_fire_log(t, "a fire failed; its timers go one by one", e);
		timer_fire_step(t, TIMER_NEXT);
	} else if (!timer_fire_take(t, res)) {
		timer_fire_sleep(t, HELD_MS);
	} else if (t->x->stopping ||
		   t->cycle_rows >= t->x->conf->sweeper_cycle_max_rows) {
		timer_fire_sleep(t, 0);
	} else {
		timer_fire_step(t, TIMER_LOOK);
	}
}

static void
fire(struct timer_fire *t)
{
	int64_t rows = t->x->conf->sweeper_cycle_max_rows - t->cycle_rows;
	struct pgargs a;

	pgargs_init(&a);
	pgargs_i32(&a, (int32_t)(rows < FIRE_ROWS ? rows : FIRE_ROWS));
	pgargs_i64(&a, t->x->conf->sweeper_max_fire_bytes);
	timer_fire_call(t, &STMT_FIRE, &a, on_fired);
}

/* ---- the loop ---- */

void
timer_fire_step(struct timer_fire *t, enum timer_state next)
{
	t->state = next;
	switch (next) {
	case TIMER_LOOK:
		look(t);
		break;
	case TIMER_FIRE:
		fire(t);
		break;
	case TIMER_NEXT:
		timer_alone_ask(t);
		break;
	case TIMER_ALONE:
		timer_alone_fire(t);
		break;
	case TIMER_PUT_BACK:
		timer_alone_put_back(t);
		break;
	case TIMER_IDLE:
		BUG(true);
	}
}

static void
on_timer(void *arg)
{
	struct timer_fire *t = arg;

	if (t->x->stopping)
		return;
	/* also while nothing may fire: what waits is measured */
	if (pgpool_is_up(t->x->pool))
		timer_fire_step(t, TIMER_LOOK);
	else
		timer_fire_sleep(t, t->x->conf->sweeper_max_sleep_ms);
}

void
timer_fire_wake(struct ctx *x, int64_t delay_ms)
{
	struct timer_fire *t = x->timer_fire;
	int64_t at_ms = clk_mono_ms() + (delay_ms > 0 ? delay_ms : 0);

	if (!x->conf->sweeper || x->stopping)
		return;
	if (t->state != TIMER_IDLE) {
		if (at_ms < t->soonest_ms)
			t->soonest_ms = at_ms;
	} else if (at_ms < t->wake_at_ms) {
		t->wake_at_ms = at_ms;
		loop_timer_start(&t->timer, at_ms - clk_mono_ms());
	}
}

void
timer_fire_stats(const struct timer_fire *t, struct timer_fire_stats *out)
{
	*out = t->stats;
}

struct timer_fire *
timer_fire_new(struct ctx *x)
{
	struct timer_fire *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	t->x = x;
	t->soonest_ms = t->wake_at_ms = INT64_MAX;
	loop_timer_init(&t->timer, x->loop, on_timer, t);
	if (x->conf->sweeper)
		timer_fire_sleep(t, x->conf->sweeper_min_sleep_ms);
	return t;
}

void
timer_fire_free(struct timer_fire *t)
{
	if (!t)
		return;
	loop_timer_fini(&t->timer);
	arena_fini(&t->names_arena);
	free(t);
}
