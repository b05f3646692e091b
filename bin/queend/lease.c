/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /api/v1/lease/:leaseId/extend.  The id holds the key of its row, so
 * any process can renew it; one that is no lease id renews nothing.
 */
#include "lease.h"

#include "admin.h"
#include "ctx.h"
#include "err.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "pgpool.h"

enum { LEASE_DEFAULT_S = 60 };

static const struct pgstmt STMT_EXTEND = { "lease_extend",
	"select renewed, expires_at "
	"from queen.lease_extend_v1($1, $2, $3, $4, $5)" };

/* Whatever cannot be read counts as not said. */
static int32_t
read_seconds(struct hsrv_req *r)
{
	struct jspan j;
	struct jspan_val v;
	struct span key;
	int64_t s = LEASE_DEFAULT_S;

	jspan_open(&j, hsrv_body(r));
	if (jspan_peek(&j) != JSPAN_OBJECT || !jspan_enter_object(&j))
		return LEASE_DEFAULT_S;
	while (jspan_next_key(&j, hsrv_arena(r), &key)) {
		if (!jspan_take(&j, &v))
			break;
		if (!span_is(key, "seconds"))
			continue;
		if (v.type != JSPAN_NUMBER || !jspan_i64(&v, &s))
			s = LEASE_DEFAULT_S;
	}
	if (j.error || !jspan_end(&j))
		return LEASE_DEFAULT_S;
	return s < 1 ? 1 : s > INT32_MAX ? INT32_MAX : (int32_t)s;
}

/* at_us is read only when something was renewed. */
static void
answer(struct hsrv_req *r, int32_t renewed, int64_t at_us)
{
	static const char *const keys[] = { "newExpiresAt", "expiresAt",
		"lease_expires_at" };
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_str(&w, "leaseId", hsrv_param(r, 0));
	jwrite_kv_bool(&w, "success", renewed > 0);
	jwrite_kv_i64(&w, "renewed", renewed);
	for (int i = 0; i < 3; i++) {
		jwrite_key(&w, keys[i]);
		if (renewed > 0)
			jwrite_iso_us(&w, at_us);
		else
			jwrite_null(&w);
	}
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
on_extended(void *arg, const PGresult *res, const struct err *e)
{
	struct hsrv_req *r = arg;

	if (e) {
		admin_fail(r, "renew", e);
	} else {
		int32_t n = PQntuples(res) ? pgbin_i32(res, 0, 0) : 0;

		answer(r, n, n > 0 ? pgbin_time(res, 0, 1) : 0);
	}
}

void
lease_extend(struct hsrv_req *r)
{
	struct qid id;
	struct qid_lease l;
	struct pgargs a;

	if (!qid_parse(hsrv_param(r, 0), &id) || !qid_is_lease(&id, &l)) {
		answer(r, 0, 0);
		return;
	}
	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(r));
	pgargs_i64(&a, l.partition_id);
	pgargs_i64(&a, l.group_id);
	pgargs_i64(&a, l.number);
	pgargs_i32(&a, read_seconds(r));
	pgpool_call(
		ctx_of(r)->pool, LANE_ACK, &STMT_EXTEND, &a, on_extended, r);
}
