/* SPDX-License-Identifier: Apache-2.0 */
/* Limits, the lane and its counters around one call; see kv_call.h. */
#include "kv_call.h"

#include "count.h"
#include "ctx.h"
#include "err.h"
#include "fault.h"
#include "kv_ops.h"
#include "pgbin.h"
#include "pgpool.h"

enum { WAIT_MS = 1000, FAULTS_MAX = 3 };

static void send_call(struct kv_call *c);

static void
on_failed(struct kv_call *c, const struct err *e)
{
	struct ctx *x = ctx_of(c->r);
	struct fault f;

	if (pgpool_was_victim(e) && c->faults++ < FAULTS_MAX) {
		send_call(c);
		return;
	}
	if (e->kind == ERR_LIMIT || pgpool_had_none(e)) {
		kvlimit_lane(x, false);
		if (!c->ask.kv_write)
			kvlimit_read_refused(x, KVLIMIT_POOL);
	} else {
		kvlimit_lane(x, true);
		count_db_error(x);
	}
	if (e->kind != ERR_DB_UNKNOWN)
		kv_call_refund(c);
	if (c->failed)
		c->failed(c);
	kv_ops_fault(e, &f);
	fault_reply(c->r, &f);
}

static void
on_answer(void *arg, const PGresult *res, const struct err *e)
{
	struct kv_call *c = arg;

	if (e) {
		on_failed(c, e);
		return;
	}
	kvlimit_lane(ctx_of(c->r), true);
	c->answer(c, res);
}

static bool
on_decide(void *arg, const PGresult *res)
{
	struct kv_call *c = arg;

	return c->decide(c, res);
}

static void
send_call(struct kv_call *c)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(c->r));
	if (c->args)
		c->args(c, &a);
	pgpool_within(ctx_of(c->r)->pool, LANE_REST, WAIT_MS, c->stmt, &a,
		c->decide ? on_decide : NULL, on_answer, c);
}

void
kv_call_refund(struct kv_call *c)
{
	kvlimit_refund(ctx_of(c->r), ctx_tenant(c->r), &c->ask);
}

void
kv_call_start(struct kv_call *c)
{
	struct kvlimit_no no;
	struct fault f;

	c->ask.kv = true;
	if (kvlimit_admit(ctx_of(c->r), ctx_tenant(c->r), &c->ask, &no)) {
		send_call(c);
		return;
	}
	fault_of_limit(&no, &f);
	fault_reply(c->r, &f);
}
