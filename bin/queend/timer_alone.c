/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a fire that failed: the due timers one at a time, so that the one to
 * blame is found.  It is put back with an attempt more or, after the last,
 * filed as a dead letter; one whose destination is held by others for long
 * just waits while the rest goes.
 */
#include <stdlib.h>
#include <string.h>

#include "ctx.h"
#include "settings.h"
#include "timer_fire_int.h"

enum {
	ALONE_ROWS = 200, /* before the next look */
	NEVER_BURY = INT32_MAX,
};

/* clang-format off */
static const struct pgstmt STMT_ONE = { "timer_fire_one",
	"select verdict, queue_id, part_id, n, lag_ms, queue_new, part_new from"
	" queen.timer_fire_one_v1($1, $2, $3, $4)" };
static const struct pgstmt STMT_NEXT = { "timer_next",
	"select tenant, queue, timer_key, message_id, partition from"
	" queen.timer_next_v1($1)" };
static const struct pgstmt STMT_FAIL = { "timer_fail",
	"select queen.timer_fail_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)" };
/* clang-format on */

static void
on_next(void *arg, const PGresult *res, const struct err *e)
{
	struct timer_fire *t = arg;

	if (e) {
		timer_fire_wait_out(t, e);
		return;
	}
	arena_reset(&t->names_arena);
	t->names_n = PQntuples(res);
	t->names = arena_alloc(
		&t->names_arena, ((size_t)t->names_n + 1) * sizeof(*t->names));
	for (int i = 0; i < t->names_n; i++)
		t->names[i] = (struct timer_name){
			.tenant = pgbin_uuid(res, i, 0),
			.queue = arena_dup(
				&t->names_arena, pgbin_bytes(res, i, 1)),
			.key = arena_dup(
				&t->names_arena, pgbin_bytes(res, i, 2)),
			.message_id = pgbin_uuid(res, i, 3),
			.partition = arena_dup(
				&t->names_arena, pgbin_bytes(res, i, 4)),
		};
	t->at = 0;
	t->pause_ms = 0;
	timer_fire_step(t, TIMER_ALONE);
}

void
timer_alone_ask(struct timer_fire *t)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_i32(&a, ALONE_ROWS);
	timer_fire_call(t, &STMT_NEXT, &a, on_next);
}

static void
put_name(struct pgargs *a, const struct timer_name *n)
{
	pgargs_uuid(a, &n->tenant);
	pgargs_text(a, n->queue);
	pgargs_text(a, n->key);
	pgargs_uuid(a, &n->message_id);
}

/* Or each of them would wait for the same lock, and the rest behind them. */
static void
hold_alike(struct timer_fire *t)
{
	const struct timer_name *n = &t->names[t->at];

	for (int i = t->at; i < t->names_n; i++) {
		struct timer_name *o = &t->names[i];

		if (memcmp(&o->tenant, &n->tenant, sizeof(o->tenant)) == 0 &&
			span_eq(o->queue, n->queue) &&
			span_eq(o->partition, n->partition))
			o->held = true;
	}
}

static void
on_one(void *arg, const PGresult *res, const struct err *e)
{
	struct timer_fire *t = arg;

	/* whether it fired is seen at the next look */
	if (e && e->kind == ERR_DB_UNKNOWN) {
		timer_fire_wait_out(t, e);
		return;
	}
	if (e) {
		if (timer_fire_stuck(e))
			hold_alike(t);
		t->why = *e;
		t->buried_badly = false;
		timer_fire_step(t, TIMER_PUT_BACK);
		return;
	}
	timer_fire_take(t, res);
	t->at++;
	timer_fire_step(t, TIMER_ALONE);
}

void
timer_alone_fire(struct timer_fire *t)
{
	struct pgargs a;

	if (t->at == t->names_n || t->x->stopping ||
		!t->x->timers_fire_enabled) {
		timer_fire_sleep(t, t->pause_ms);
		return;
	}
	if (t->names[t->at].held || !t->x->conf->sweeper_isolate) {
		bool held = t->names[t->at].held;

		t->why =
			(struct err){ .kind = held ? ERR_DB_RETRY : ERR_DB_DATA,
				.text = "the fire it was part of failed" };
		memcpy(t->why.sqlstate, held ? "55P03" : "XX000", 6);
		t->buried_badly = false;
		timer_fire_step(t, TIMER_PUT_BACK);
		return;
	}
	pgargs_init(&a);
	put_name(&a, &t->names[t->at]);
	timer_fire_call(t, &STMT_ONE, &a, on_one);
}

static void
on_put_back(void *arg, const PGresult *res, const struct err *e)
{
	struct timer_fire *t = arg;

	if (e && timer_fire_passes(e)) {
		timer_fire_wait_out(t, e);
		return;
	}
	if (e && !t->buried_badly) {
		/* its destination cannot be made: it stays a timer */
		t->buried_badly = true;
		timer_fire_log(
			t, "a timer cannot be filed as a dead letter", e);
		timer_fire_step(t, TIMER_PUT_BACK);
		return;
	}
	if (e) {
		/* it stays due, and the others have their turn */
		timer_fire_log(t, "a timer cannot be put back", e);
		t->pause_ms = t->x->conf->sweeper_transient_backoff_ms;
	} else if (pgbin_i32(res, 0, 0) == 1)
		t->stats.dead++;
	else if (pgbin_i32(res, 0, 0) == 0 && !timer_fire_passes(&t->why))
		t->stats.failed++;
	t->at++;
	timer_fire_step(t, TIMER_ALONE);
}

void
timer_alone_put_back(struct timer_fire *t)
{
	const struct settings *c = t->x->conf;
	bool counted = !timer_fire_passes(&t->why);
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
	timer_fire_call(t, &STMT_FAIL, &a, on_put_back);
}
