/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop: look, sleep until the next is due, fire, look again.  A fire that
 * fails for good rolls back as a whole; then the due timers are fired one at
 * a time, and the one that fails is put back with an attempt more or, after
 * the last, filed as a dead letter.
 */
#include "timer_fire.h"

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
	ALONE_ROWS = 200, /* fired one by one before the next look */
	ERROR_EVERY_MS = 30000,
	NEVER_BURY = INT32_MAX,
};

enum state {
	IDLE,
	LOOK,
	FIRE,
	NEXT, /* names of the due ones */
	ALONE, /* one of them */
	PUT_BACK,
};

/* One to be fired alone. */
struct name {
	struct qid tenant, message_id;
	struct span queue, key;
};

struct timer_fire {
	struct ctx *x;
	enum state state;
	struct loop_timer timer;
	int64_t wake_at_ms; /* while idle: when; INT64_MAX = never */
	int64_t soonest_ms; /* a schedule since the last look is due then */
	int64_t cycle_rows; /* fired since the last sleep */
	int empty_looks; /* that found no timers at all, in a row */
	struct arena names_arena;
	struct name *names;
	int names_n, at;
	bool buried_badly; /* filing a dead letter failed: put back */
	struct err why; /* of the one being put back */
	struct log_sampler errors;
	struct timer_fire_stats stats;
};

/* clang-format off */
static const struct pgstmt STMT_DUE = { "timer_due",
	"select next_us, due, late_ms from queen.timer_due_v1($1)" };
static const struct pgstmt STMT_FIRE = { "timer_fire",
	"select verdict, queue_id, part_id, n, lag_ms, queue_new, part_new from"
	" queen.timer_fire_v1($1, $2, $3, $4, $5)" };
static const struct pgstmt STMT_ONE = { "timer_fire_one",
	"select verdict, queue_id, part_id, n, lag_ms, queue_new, part_new from"
	" queen.timer_fire_one_v1($1, $2, $3, $4, $5, $6, $7)" };
static const struct pgstmt STMT_NEXT = { "timer_next",
	"select tenant, queue, timer_key, message_id from"
	" queen.timer_next_v1($1)" };
static const struct pgstmt STMT_FAIL = { "timer_fail",
	"select queen.timer_fail_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)" };
/* clang-format on */
enum { C_VERDICT, C_QUEUE, C_PART, C_N, C_LAG, C_QUEUE_NEW, C_PART_NEW };
/* Verdicts of a fire. */
enum { FIRED, FAILED, BURIED, LEFT };

static void step(struct timer_fire *t, enum state next);

static void
call(struct timer_fire *t, const struct pgstmt *s, struct pgargs *a,
	pgpool_fn fn)
{
	pgpool_call(t->x->pool, LANE_REST, s, a, fn, t);
}

static void
sleep_for(struct timer_fire *t, int64_t ms)
{
	int64_t now_ms = clk_mono_ms();

	if (t->soonest_ms < now_ms + ms)
		ms = t->soonest_ms - now_ms;
	if (ms < t->x->conf->sweeper_min_sleep_ms)
		ms = t->x->conf->sweeper_min_sleep_ms;
	t->soonest_ms = INT64_MAX;
	t->cycle_rows = 0;
	t->state = IDLE;
	t->wake_at_ms = now_ms + ms;
	loop_timer_start(&t->timer, ms);
}

/* Will the same work without our doing anything about it? */
static bool
is_passing(const struct err *e)
{
	static const char *const classes[] = { "08", "53", "57", "58" };

	if (!e->sqlstate[0] || strcmp(e->sqlstate, "40001") == 0 ||
		strcmp(e->sqlstate, "40P01") == 0)
		return true;
	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++)
		if (strncmp(e->sqlstate, classes[i], 2) == 0)
			return true;
	return false;
}

static void
log_failure(struct timer_fire *t, const char *what, const struct err *e)
{
	uint64_t suppressed;

	t->errors.every_ms = ERROR_EVERY_MS;
	if (log_sample(&t->errors, clk_mono_ms(), &suppressed))
		log_line(LOG_WARN, "timers", what,
			"error=%s suppressed=%" PRIu64, log_quote(e->text),
			suppressed);
}

/* A fault that passes: everything waits a little, no attempt is counted. */
static void
wait_out(struct timer_fire *t, const struct err *e)
{
	t->stats.retried++;
	log_failure(t, "a call failed and is repeated", e);
	sleep_for(t, t->x->conf->sweeper_transient_backoff_ms);
}

/* ---- look ---- */

static void
sleep_until_due(struct timer_fire *t, bool any, int64_t next_us)
{
	const struct settings *c = t->x->conf;
	int64_t ms = c->sweeper_max_sleep_ms;

	if (any) {
		t->empty_looks = 0;
		if (next_us / 1000 < ms)
			ms = (next_us + 999) / 1000;
	} else {
		if (t->empty_looks < 1000)
			t->empty_looks++;
		for (int i = (int)c->sweeper_idle_after;
			i < t->empty_looks && ms < c->sweeper_idle_max_sleep_ms;
			i++)
			ms *= 2;
		if (ms > c->sweeper_idle_max_sleep_ms)
			ms = c->sweeper_idle_max_sleep_ms;
	}
	sleep_for(t, ms);
}

static void
on_due(void *arg, const PGresult *res, const struct err *e)
{
	struct timer_fire *t = arg;
	bool any;

	if (e) {
		wait_out(t, e);
		return;
	}
	any = !pgbin_null(res, 0, 0);
	t->stats.due = pgbin_i32(res, 0, 1);
	t->stats.late_ms = pgbin_i64(res, 0, 2);
	if (t->stats.due > 0 && !t->x->stopping)
		step(t, FIRE);
	else
		sleep_until_due(t, any, any ? pgbin_i64(res, 0, 0) : 0);
}

static void
look(struct timer_fire *t)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_i32(&a, (int32_t)t->x->conf->sweeper_due_cap);
	call(t, &STMT_DUE, &a, on_due);
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

/* True when something moved: fired, put back or filed. */
static bool
take_result(struct timer_fire *t, const PGresult *res)
{
	bool moved = false;

	t->stats.lag_ms = 0;
	for (int i = 0; i < PQntuples(res); i++) {
		int verdict = pgbin_i32(res, i, C_VERDICT);

		if (verdict == FIRED)
			take_segment(t, res, i);
		else if (verdict == FAILED)
			t->stats.failed++;
		else if (verdict == BURIED)
			t->stats.dead++;
		if (verdict != LEFT)
			moved = true;
	}
	return moved;
}

static void
on_fired(void *arg, const PGresult *res, const struct err *e)
{
	struct timer_fire *t = arg;

	if (e && is_passing(e)) {
		wait_out(t, e);
	} else if (e) {
		log_failure(t, "a fire failed; its timers go one by one", e);
		step(t, NEXT);
	} else if (take_result(t, res) && !t->x->stopping &&
		   t->cycle_rows < t->x->conf->sweeper_cycle_max_rows) {
		step(t, LOOK);
	} else {
		/* all are in other hands, or enough for this turn */
		sleep_for(t, t->x->conf->sweeper_min_sleep_ms);
	}
}

static void
put_limits(struct pgargs *a, const struct settings *c)
{
	pgargs_i32(a, (int32_t)c->sweeper_max_attempts);
	pgargs_i32(a, (int32_t)c->sweeper_backoff_min_ms);
	pgargs_i32(a, (int32_t)c->sweeper_backoff_max_ms);
}

static void
fire(struct timer_fire *t)
{
	int64_t rows = t->x->conf->sweeper_cycle_max_rows - t->cycle_rows;
	struct pgargs a;

	pgargs_init(&a);
	pgargs_i32(&a, (int32_t)(rows < FIRE_ROWS ? rows : FIRE_ROWS));
	pgargs_i64(&a, t->x->conf->sweeper_max_fire_bytes);
	put_limits(&a, t->x->conf);
	call(t, &STMT_FIRE, &a, on_fired);
}

/* ---- one by one ---- */

static void
on_next(void *arg, const PGresult *res, const struct err *e)
{
	struct timer_fire *t = arg;

	if (e) {
		wait_out(t, e);
		return;
	}
	arena_reset(&t->names_arena);
	t->names_n = PQntuples(res);
	t->names = arena_alloc(
		&t->names_arena, ((size_t)t->names_n + 1) * sizeof(*t->names));
	for (int i = 0; i < t->names_n; i++)
		t->names[i] = (struct name){
			.tenant = pgbin_uuid(res, i, 0),
			.queue = arena_dup(
				&t->names_arena, pgbin_bytes(res, i, 1)),
			.key = arena_dup(
				&t->names_arena, pgbin_bytes(res, i, 2)),
			.message_id = pgbin_uuid(res, i, 3),
		};
	t->at = 0;
	step(t, ALONE);
}

static void
ask_next(struct timer_fire *t)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_i32(&a, ALONE_ROWS);
	call(t, &STMT_NEXT, &a, on_next);
}

static void
put_name(struct pgargs *a, const struct name *n)
{
	pgargs_uuid(a, &n->tenant);
	pgargs_text(a, n->queue);
	pgargs_text(a, n->key);
	pgargs_uuid(a, &n->message_id);
}

static void
on_one(void *arg, const PGresult *res, const struct err *e)
{
	struct timer_fire *t = arg;

	if (e && e->kind == ERR_DB_UNKNOWN) {
		wait_out(t, e);
		return;
	}
	if (e) {
		t->why = *e;
		t->buried_badly = false;
		step(t, PUT_BACK);
		return;
	}
	take_result(t, res);
	t->at++;
	step(t, ALONE);
}

static void
fire_one(struct timer_fire *t)
{
	struct pgargs a;

	if (t->at == t->names_n || t->x->stopping) {
		sleep_for(t, t->x->conf->sweeper_min_sleep_ms);
		return;
	}
	if (!t->x->conf->sweeper_isolate) {
		t->why = (struct err){ .kind = ERR_DB_DATA,
			.sqlstate = "XX000",
			.text = "the fire it was part of failed" };
		t->buried_badly = false;
		step(t, PUT_BACK);
		return;
	}
	pgargs_init(&a);
	put_name(&a, &t->names[t->at]);
	put_limits(&a, t->x->conf);
	call(t, &STMT_ONE, &a, on_one);
}

static void
on_put_back(void *arg, const PGresult *res, const struct err *e)
{
	struct timer_fire *t = arg;

	if (e && !is_passing(e) && !t->buried_badly) {
		/* its destination cannot be made: it stays a timer */
		t->buried_badly = true;
		log_failure(t, "a timer cannot be filed as a dead letter", e);
		step(t, PUT_BACK);
		return;
	}
	if (e) {
		wait_out(t, e);
		return;
	}
	if (pgbin_i32(res, 0, 0) == 1)
		t->stats.dead++;
	else if (pgbin_i32(res, 0, 0) == 0 && !is_passing(&t->why))
		t->stats.failed++;
	t->at++;
	step(t, ALONE);
}

static void
put_back(struct timer_fire *t)
{
	const struct settings *c = t->x->conf;
	bool counted = !is_passing(&t->why);
	struct pgargs a;

	pgargs_init(&a);
	put_name(&a, &t->names[t->at]);
	pgargs_bool(&a, counted);
	pgargs_text(&a, span_of(t->why.text));
	pgargs_i32(&a, t->buried_badly ? NEVER_BURY
				       : (int32_t)c->sweeper_max_attempts);
	pgargs_i32(&a, (int32_t)(counted ? c->sweeper_backoff_min_ms
					 : c->sweeper_transient_backoff_ms));
	pgargs_i32(&a, (int32_t)c->sweeper_backoff_max_ms);
	call(t, &STMT_FAIL, &a, on_put_back);
}

/* ---- the loop ---- */

static void
step(struct timer_fire *t, enum state next)
{
	t->state = next;
	switch (next) {
	case LOOK:
		look(t);
		break;
	case FIRE:
		fire(t);
		break;
	case NEXT:
		ask_next(t);
		break;
	case ALONE:
		fire_one(t);
		break;
	case PUT_BACK:
		put_back(t);
		break;
	case IDLE:
		BUG(true);
	}
}

static void
on_timer(void *arg)
{
	struct timer_fire *t = arg;

	if (t->x->stopping)
		return;
	if (t->x->timers_fire_enabled && pgpool_is_up(t->x->pool))
		step(t, LOOK);
	else
		sleep_for(t, t->x->conf->sweeper_max_sleep_ms);
}

void
timer_fire_wake(struct ctx *x, int64_t delay_ms)
{
	struct timer_fire *t = x->timer_fire;
	int64_t at_ms = clk_mono_ms() + (delay_ms > 0 ? delay_ms : 0);

	if (!t || !x->conf->sweeper)
		return;
	t->empty_looks = 0;
	if (t->state != IDLE) {
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
		sleep_for(t, x->conf->sweeper_min_sleep_ms);
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
