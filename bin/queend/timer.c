/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /api/v1/timers.  A call is one statement and one commit.  Schedules pass
 * the limits; a cancel by its own route and reads pass none, so that what was
 * promised can be taken back whatever has become of the quota.
 */
#include "timer.h"

#include <stdio.h>
#include <stdlib.h>

#include <sodium.h>

#include "arena.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "frame.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "kv_ops.h"
#include "kv_reply.h"
#include "kvlimit.h"
#include "pgbin.h"
#include "pgpool.h"
#include "timer_fire.h"
#include "timer_ops.h"

enum {
	WAIT_MS = 1000,
	FAULTS_MAX = 3,
	PAGE_DEFAULT = 100,
	PAGE_MAX = 1000,
	PREFIX_MAX = 128
};

/* clang-format off */
static const struct pgstmt STMT_APPLY = { "timer_apply",
	"select ord, status, txn, message_id, deliver_at from"
	" queen.timer_apply_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)" };
static const struct pgstmt STMT_PEEK = { "timer_peek",
	"select partition, deliver_at, attempts, last_error, created_at,"
	" updated_at, frame from queen.timer_peek_v1($1, $2, $3)" };
static const struct pgstmt STMT_LIST = { "timer_list",
	"select partition, deliver_at, attempts, last_error, created_at,"
	" updated_at, timer_key, txn, message_id, sealed, producer_sub from"
	" queen.timer_list_v1($1, $2, $3, $4)" };
static const struct pgstmt STMT_COUNT = { "timer_count",
	"select queen.timer_count_v1($1, $2, $3)" };
/* clang-format on */
static const struct timer_cols COLS = { 0, 1, 2, 3, 4 };

/* What peek and list have first. */
enum { C_PARTITION, C_DELIVER, C_ATTEMPTS, C_ERROR, C_CREATED, C_UPDATED };
enum { C_FRAME = C_UPDATED + 1 };
enum { C_KEY = C_UPDATED + 1, C_TXN, C_ID, C_SEALED, C_SUB };

struct call {
	struct hsrv_req *r;
	struct timer_ops ops;
	struct kvlimit_ask ask;
	bool bare; /* the path route: the element alone */
	int faults;
};

struct listing {
	struct hsrv_req *r;
	struct span after;
	int32_t limit;
};

static void
refuse(struct hsrv_req *r, const char *reason, const char *detail)
{
	struct kv_fault f = {
		.status = 400, .error = "timers_bad_request", .reason = reason
	};

	snprintf(f.detail, sizeof(f.detail), "%s", detail);
	kv_reply_fault(r, &f);
}

/* A call or read that failed in the database. */
static void
reply_failed(struct hsrv_req *r, const struct err *e)
{
	struct kv_fault f;

	if (e->kind != ERR_LIMIT && !pgpool_had_none(e))
		count_db_error(ctx_of(r));
	timer_ops_fault(e, &f);
	kv_reply_fault(r, &f);
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

	if ((pgpool_was_victim(e) && c->faults++ < FAULTS_MAX) ||
		timer_ops_seal(&c->ops, x, ctx_tenant(c->r), hsrv_arena(c->r),
			e)) {
		send_call(c);
		return;
	}
	if (c->ops.schedules) {
		kvlimit_lane(x, e->kind != ERR_LIMIT && !pgpool_had_none(e));
		if (e->kind != ERR_DB_UNKNOWN)
			kvlimit_refund(x, ctx_tenant(c->r), &c->ask);
		kvlimit_schedule_refused(x, KVLIMIT_POOL);
	}
	reply_failed(c->r, e);
}

static void
on_applied(void *arg, const PGresult *res, const struct err *e)
{
	struct call *c = arg;
	struct ctx *x = ctx_of(c->r);

	if (e) {
		on_failed(c, e);
		return;
	}
	if (c->ops.schedules) {
		kvlimit_lane(x, true);
		timer_fire_wake(x, c->ops.soonest_ms);
	}
	BUG(!timer_ops_index(&c->ops, res, &COLS, 0, PQntuples(res)));
	reply_results(c, res);
}

static void
send_call(struct call *c)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(c->r));
	timer_ops_args(&a, &c->ops, ctx_of(c->r));
	pgpool_within(ctx_of(c->r)->pool, LANE_REST, WAIT_MS, &STMT_APPLY, &a,
		NULL, on_applied, c);
}

/* False after having replied. */
static bool
admit(struct call *c)
{
	struct kvlimit_no no;

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
	struct kv_fault f = { .status = no.status,
		.error = no.error,
		.reason = no.reason,
		.retry_after_s = no.retry_after_s };

	kv_reply_fault(c->r, &f);
	return false;
}

static void
count_refused(struct ctx *x, const struct kv_fault *f)
{
	kvlimit_schedule_refused(x, f->status == 413   ? KVLIMIT_SIZE
				    : f->status == 403 ? KVLIMIT_HORIZON
						       : KVLIMIT_SHAPE);
}

static void
start(struct hsrv_req *r, struct span ops)
{
	struct call *c = arena_zalloc(hsrv_arena(r), sizeof(*c));
	struct kv_fault f;

	c->r = r;
	if (timer_ops_parse(ops, ctx_of(r), ctx_tenant(r), ctx_subject(r),
		    hsrv_arena(r), &c->ops, &f) < 0) {
		count_refused(ctx_of(r), &f);
		kv_reply_fault(r, &f);
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
	struct jspan_val v, ops = { .type = JSPAN_NONE };
	struct jspan j;
	struct span key;
	char text[256];

	jspan_open(&j, hsrv_body(r));
	if (jspan_peek(&j) == JSPAN_ARRAY) {
		start(r, hsrv_body(r));
		return;
	}
	if (jspan_enter_object(&j))
		while (jspan_next_key(&j, hsrv_arena(r), &key) &&
			jspan_take(&j, &v))
			if (span_is(key, "operations"))
				ops = v;
	if (j.error || !jspan_end(&j)) {
		snprintf(text, sizeof(text), "%s at offset %zu",
			j.error ? j.error : "unexpected value", j.error_at);
		refuse(r, "timers_bad_body", text);
	} else if (ops.type != JSPAN_ARRAY) {
		refuse(r, "timers_bad_body",
			"operations must be an array of operations");
	} else {
		start(r, ops.raw);
	}
}

void
timer_delete(struct hsrv_req *r)
{
	struct call *c = arena_zalloc(hsrv_arena(r), sizeof(*c));
	struct span txn = SPAN_ZERO;
	struct kv_fault f;

	c->r = r;
	c->bare = true;
	if (hsrv_query(r, "txn", &txn) && txn.n && !jspan_utf8(txn))
		refuse(r, "timers_txn_required", "txn must be UTF-8");
	else if (timer_ops_cancel(hsrv_param(r, 0), hsrv_param(r, 1), txn,
			 hsrv_arena(r), &c->ops, &f) < 0)
		kv_reply_fault(r, &f);
	else
		send_call(c);
}

/* ---- reads ---- */

static void
write_times(struct jwrite *w, const PGresult *res, int i)
{
	jwrite_kv_i64(w, "attempts", pgbin_i32(res, i, C_ATTEMPTS));
	jwrite_key(w, "lastError");
	if (pgbin_null(res, i, C_ERROR))
		jwrite_null(w);
	else
		jwrite_str(w, pgbin_bytes(res, i, C_ERROR));
	jwrite_kv_bool(w, "claimed", false);
	jwrite_key(w, "createdAt");
	jwrite_iso_us(w, pgbin_time(res, i, C_CREATED));
	jwrite_key(w, "updatedAt");
	jwrite_iso_us(w, pgbin_time(res, i, C_UPDATED));
}

static void
write_head(struct jwrite *w, struct hsrv_req *r, struct span key,
	const PGresult *res, int i, struct span txn, const struct qid *id)
{
	jwrite_kv_str(w, "queue", hsrv_param(r, 0));
	jwrite_kv_str(w, "timerKey", key);
	jwrite_kv_str(w, "partition", pgbin_bytes(res, i, C_PARTITION));
	jwrite_key(w, "deliverAt");
	jwrite_iso_us(w, pgbin_time(res, i, C_DELIVER));
	jwrite_kv_str(w, "txn", txn);
	jwrite_key(w, "messageId");
	jwrite_qid(w, id);
}

static void
write_flags(struct jwrite *w, bool sealed, bool has_sub, struct span sub)
{
	jwrite_kv_bool(w, "payloadZstd", false);
	jwrite_kv_bool(w, "encrypted", sealed);
	jwrite_key(w, "producerSub");
	if (has_sub)
		jwrite_str(w, sub);
	else
		jwrite_null(w);
}

/* The payload as stored: a sealed one stays sealed. */
static void
write_payload(struct jwrite *w, struct arena *a, struct span payload)
{
	size_t cap = sodium_base64_ENCODED_LEN(
		payload.n, sodium_base64_VARIANT_ORIGINAL);
	char *text = arena_alloc(a, cap);

	sodium_bin2base64(text, cap, (const unsigned char *)payload.p,
		payload.n, sodium_base64_VARIANT_ORIGINAL);
	jwrite_kv_str(w, "payload", span_of(text));
}

static void
write_found(struct jwrite *w, struct hsrv_req *r, const PGresult *res)
{
	struct span rest = pgbin_bytes(res, 0, C_FRAME);
	struct frame f;
	struct err e;

	BUG(frame_next(&rest, &f, &e) != 1);
	jwrite_kv_bool(w, "found", true);
	write_head(w, r, hsrv_param(r, 1), res, 0, f.txn, &f.id);
	write_payload(w, hsrv_arena(r), f.payload);
	write_flags(w, f.flags & FRAME_SEALED, f.flags & FRAME_SUB, f.sub);
	write_times(w, res, 0);
}

static void
on_peek(void *arg, const PGresult *res, const struct err *e)
{
	struct hsrv_req *r = arg;
	struct jwrite w;

	if (e) {
		reply_failed(r, e);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	if (PQntuples(res) == 1) {
		write_found(&w, r, res);
	} else {
		jwrite_kv_bool(&w, "found", false);
		jwrite_kv_str(&w, "queue", hsrv_param(r, 0));
		jwrite_kv_str(&w, "timerKey", hsrv_param(r, 1));
	}
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
read_call(struct hsrv_req *r, const struct pgstmt *s, struct pgargs *a,
	pgpool_fn done, void *arg)
{
	pgpool_within(
		ctx_of(r)->pool, LANE_REST, WAIT_MS, s, a, NULL, done, arg);
}

void
timer_get(struct hsrv_req *r)
{
	struct kv_fault f;
	struct pgargs a;

	if (timer_ops_names(hsrv_param(r, 0), hsrv_param(r, 1), &f) < 0) {
		kv_reply_fault(r, &f);
		return;
	}
	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(r));
	pgargs_text(&a, hsrv_param(r, 0));
	pgargs_text(&a, hsrv_param(r, 1));
	read_call(r, &STMT_PEEK, &a, on_peek, r);
}

static void
write_listed(struct jwrite *w, struct hsrv_req *r, const PGresult *res, int i)
{
	struct qid id = pgbin_uuid(res, i, C_ID);
	bool has_sub = !pgbin_null(res, i, C_SUB);

	jwrite_object(w);
	write_head(w, r, pgbin_bytes(res, i, C_KEY), res, i,
		pgbin_bytes(res, i, C_TXN), &id);
	write_flags(w, pgbin_bool(res, i, C_SEALED), has_sub,
		has_sub ? pgbin_bytes(res, i, C_SUB) : (struct span)SPAN_ZERO);
	write_times(w, res, i);
	jwrite_end(w);
}

static void
on_list(void *arg, const PGresult *res, const struct err *e)
{
	struct listing *l = arg;
	struct jwrite w;
	int n;

	if (e) {
		reply_failed(l->r, e);
		return;
	}
	n = PQntuples(res) > l->limit ? l->limit : PQntuples(res);
	jwrite_init(&w, hsrv_out(l->r));
	jwrite_object(&w);
	jwrite_key(&w, "rows");
	jwrite_array(&w);
	for (int i = 0; i < n; i++)
		write_listed(&w, l->r, res, i);
	jwrite_end(&w);
	jwrite_kv_bool(&w, "truncated", n < PQntuples(res));
	jwrite_key(&w, "nextAfter");
	if (n < PQntuples(res))
		jwrite_str(&w, pgbin_bytes(res, n - 1, C_KEY));
	else
		jwrite_null(&w);
	jwrite_end(&w);
	hsrv_reply(l->r, 200);
}

static void
list_page(struct hsrv_req *r)
{
	struct listing *l = arena_zalloc(hsrv_arena(r), sizeof(*l));
	struct span text;
	struct pgargs a;
	int64_t n;

	l->r = r;
	l->limit = PAGE_DEFAULT;
	if (hsrv_query(r, "limit", &text) && span_i64(text, &n))
		l->limit = n < 1 ? 1 : n > PAGE_MAX ? PAGE_MAX : (int32_t)n;
	hsrv_query(r, "after", &l->after);
	if (l->after.n &&
		(!jspan_utf8(l->after) || memchr(l->after.p, 0, l->after.n))) {
		refuse(r, "timers_bad_request",
			"after must be UTF-8 without NUL");
		return;
	}
	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(r));
	pgargs_text(&a, hsrv_param(r, 0));
	pgargs_text(&a, l->after);
	pgargs_i32(&a, l->limit);
	read_call(r, &STMT_LIST, &a, on_list, l);
}

static void
on_count(void *arg, const PGresult *res, const struct err *e)
{
	struct hsrv_req *r = arg;
	struct jwrite w;

	if (e) {
		reply_failed(r, e);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_i64(&w, "count", pgbin_i64(res, 0, 0));
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
count_prefix(struct hsrv_req *r)
{
	struct span prefix = SPAN_ZERO, other;
	struct pgargs a;

	if (hsrv_query(r, "after", &other) || hsrv_query(r, "limit", &other)) {
		refuse(r, "timers_count_page_parameters",
			"a count takes neither after nor limit");
		return;
	}
	if (!hsrv_query(r, "prefix", &prefix) || !prefix.n) {
		refuse(r, "timers_count_prefix_required",
			"a count takes a prefix that is not empty");
		return;
	}
	if (prefix.n > PREFIX_MAX) {
		refuse(r, "timers_count_prefix_too_long",
			"prefix has at most 128 bytes");
		return;
	}
	if (memchr(prefix.p, 0, prefix.n) || !jspan_utf8(prefix)) {
		refuse(r, "timers_count_prefix_invalid",
			"prefix must be UTF-8 without NUL");
		return;
	}
	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(r));
	pgargs_text(&a, hsrv_param(r, 0));
	pgargs_text(&a, prefix);
	read_call(r, &STMT_COUNT, &a, on_count, r);
}

void
timer_list(struct hsrv_req *r)
{
	struct span mode = SPAN_ZERO;
	struct kv_fault f;

	hsrv_query(r, "mode", &mode);
	if (timer_ops_names(hsrv_param(r, 0), SPAN_LIT("-"), &f) < 0)
		kv_reply_fault(r, &f);
	else if (mode.n == 0 || span_is(mode, "list"))
		list_page(r);
	else if (span_is(mode, "count"))
		count_prefix(r);
	else
		refuse(r, "timers_read_mode_unknown", "mode is list or count");
}
