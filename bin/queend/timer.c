/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules and cancels.  A call is one statement and one commit.  Schedules
 * pass the limits; a cancel by its own route passes none, so that what was
 * promised can be taken back whatever has become of the quota.
 */
#include "timer.h"

#include "arena.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "fault.h"
#include "hsrv.h"
#include "jwrite.h"
#include "kvlimit.h"
#include "ops_body.h"
#include "pgbin.h"
#include "pgpool.h"
#include "timer_fire.h"
#include "timer_int.h"

enum { FAULTS_MAX = 3 };

/* clang-format off */
static const struct pgstmt STMT_APPLY = { "timer_apply",
	"select ord, status, txn, message_id, deliver_at from"
	" queen.timer_apply_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)" };
/* clang-format on */
static const struct timer_cols COLS = { 0, 1, 2, 3, 4 };

struct call {
	struct hsrv_req *r;
	struct timer_ops ops;
	struct kvlimit_ask ask;
	bool bare; /* the path route: the element alone */
	int faults;
};

void
timer_refuse(struct hsrv_req *r, const char *reason, const char *detail)
{
	struct fault f;

	fault_set(&f, 400, "timers_bad_request", reason, "%s", detail);
	fault_reply(r, &f);
}

void
timer_failed(struct hsrv_req *r, const struct err *e)
{
	struct fault f;

	if (e->kind != ERR_LIMIT && !pgpool_had_none(e))
		count_db_error(ctx_of(r));
	timer_ops_fault(e, &f);
	fault_reply(r, &f);
}

/* ---- schedule and cancel ---- */

static void
reply_results(struct call *c, const PGresult *res)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(c->r));
	if (!c->bare) {
		jwrite_object(&w);
		jwrite_key(&w, "results");
		jwrite_array(&w);
	}
	for (size_t i = 0; i < c->ops.n; i++) {
		jwrite_object(&w);
		timer_ops_write(&w, &c->ops, i, res, &COLS);
		jwrite_end(&w);
	}
	if (!c->bare) {
		jwrite_end(&w);
		jwrite_end(&w);
	}
	hsrv_reply(c->r, 200);
}

static void send_call(struct call *c);

static void
on_failed(struct call *c, const struct err *e)
{
	struct ctx *x = ctx_of(c->r);
	struct fault f;

	if ((pgpool_was_victim(e) && c->faults++ < FAULTS_MAX) ||
		timer_ops_seal(
			&c->ops, x, ctx_tenant(c->r), hsrv_arena(c->r), e)) {
		send_call(c);
		return;
	}
	if (c->ops.schedules) {
		kvlimit_lane(x, e->kind != ERR_LIMIT && !pgpool_had_none(e));
		if (e->kind != ERR_DB_UNKNOWN)
			kvlimit_refund(x, ctx_tenant(c->r), &c->ask);
		/* it may be there */
		if (e->kind == ERR_DB_UNKNOWN)
			timer_fire_wake(x, c->ops.soonest_ms);
		timer_ops_fault(e, &f);
		timer_ops_count(x, &f);
	}
	timer_failed(c->r, e);
}

static void
on_applied(void *arg, const PGresult *res, const struct err *e)
{
	struct call *c = arg;
	struct ctx *x = ctx_of(c->r);
	struct fault f;

	if (e) {
		on_failed(c, e);
		return;
	}
	if (c->ops.schedules) {
		kvlimit_lane(x, true);
		timer_fire_wake(x, c->ops.soonest_ms);
	}
	if (timer_ops_index(&c->ops, res, &COLS, 0, PQntuples(res))) {
		reply_results(c, res);
		return;
	}
	fault_set(&f, 500, "timers_error", "timers_result_missing",
		"the database gave no result for an operation");
	fault_reply(c->r, &f);
}

static void
send_call(struct call *c)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(c->r));
	timer_ops_args(&a, &c->ops, ctx_of(c->r));
	pgpool_within(ctx_of(c->r)->pool, LANE_REST, TIMER_WAIT_MS, &STMT_APPLY,
		&a, NULL, on_applied, c);
}

/* False after having replied. */
static bool
admit(struct call *c)
{
	struct kvlimit_no no;
	struct fault f;

	if (!c->ops.schedules)
		return true;
	c->ask = (struct kvlimit_ask){ .schedule = true,
		.timers = c->ops.schedules,
		.horizon_ms = c->ops.horizon_ms };
	if (kvlimit_admit(ctx_of(c->r), ctx_tenant(c->r), &c->ask, &no))
		return true;
	if ((int64_t)c->ops.n > c->ops.schedules)
		hsrv_add_header(c->r, "x-queen-timers-hint",
			"DELETE /api/v1/timers/:queue/*timerKey");
	fault_of_limit(&no, &f);
	fault_reply(c->r, &f);
	return false;
}

static void
start(struct hsrv_req *r, struct span ops)
{
	struct call *c = arena_zalloc(hsrv_arena(r), sizeof(*c));
	struct fault f;

	c->r = r;
	if (timer_ops_parse(ops, ctx_of(r), ctx_tenant(r), ctx_subject(r),
		    hsrv_arena(r), &c->ops, &f) < 0) {
		timer_ops_count(ctx_of(r), &f);
		fault_reply(r, &f);
		return;
	}
	if (c->ops.n == 0) {
		buf_puts(hsrv_out(r), "{\"results\":[]}");
		hsrv_reply(r, 200);
	} else if (admit(c)) {
		send_call(c);
	}
}

void
timer_post(struct hsrv_req *r)
{
	struct span ops;
	const char *why;
	enum ops_body found = ops_body_read(r, &ops, &why);

	if (found == OPS_BODY_GOOD) {
		start(r, ops);
		return;
	}
	kvlimit_schedule_refused(ctx_of(r), KVLIMIT_SHAPE);
	timer_refuse(r,
		found == OPS_BODY_TENANT ? "timers_server_owned_field"
					 : "timers_bad_body",
		why);
}

void
timer_delete(struct hsrv_req *r)
{
	struct call *c = arena_zalloc(hsrv_arena(r), sizeof(*c));
	struct span txn = SPAN_ZERO;
	struct fault f;

	c->r = r;
	c->bare = true;
	hsrv_query(r, "txn", &txn);
	if (timer_ops_cancel(hsrv_param(r, 0), hsrv_param(r, 1), txn,
		    hsrv_arena(r), &c->ops, &f) < 0)
		fault_reply(r, &f);
	else
		send_call(c);
}
