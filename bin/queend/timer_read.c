/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of pending timers: peek, list, count.  They pass no limits and show
 * payloads as they are stored: a sealed one stays sealed.  What comes from a
 * path or query is UTF-8 without NUL: others get no further than hsrv.
 */
#include <sodium.h>
#include <stdlib.h>

#include "arena.h"
#include "ctx.h"
#include "err.h"
#include "fault.h"
#include "frame.h"
#include "hsrv.h"
#include "jwrite.h"
#include "pgbin.h"
#include "pgpool.h"
#include "timer.h"
#include "timer_int.h"

enum { PAGE_DEFAULT = 100, PAGE_MAX = 1000, PREFIX_MAX = 128 };

/* clang-format off */
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

/* What peek and list have first. */
enum { C_PARTITION, C_DELIVER, C_ATTEMPTS, C_ERROR, C_CREATED, C_UPDATED };
enum { C_FRAME = C_UPDATED + 1 };
enum { C_KEY = C_UPDATED + 1, C_TXN, C_ID, C_SEALED, C_SUB };

struct listing {
	struct hsrv_req *r;
	struct span after;
	int32_t limit;
};

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
write_found(struct jwrite *w, struct hsrv_req *r, const PGresult *res,
	const struct frame *f)
{
	jwrite_kv_bool(w, "found", true);
	write_head(w, r, hsrv_param(r, 1), res, 0, f->txn, &f->id);
	write_payload(w, hsrv_arena(r), f->payload);
	write_flags(w, f->flags & FRAME_SEALED, f->flags & FRAME_SUB, f->sub);
	write_times(w, res, 0);
}

static void
on_peek(void *arg, const PGresult *res, const struct err *e)
{
	struct hsrv_req *r = arg;
	bool found = !e && PQntuples(res) == 1;
	struct span rest =
		found ? pgbin_bytes(res, 0, C_FRAME) : (struct span)SPAN_ZERO;
	struct frame f;
	struct jwrite w;
	struct err bad;

	if (e) {
		timer_failed(r, e);
		return;
	}
	if (found && frame_next(&rest, &f, &bad) != 1) {
		struct fault no;

		fault_set(&no, 500, "timers_error", "timers_frame_unreadable",
			"the stored frame cannot be read");
		fault_reply(r, &no);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	if (found) {
		write_found(&w, r, res, &f);
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
	pgpool_within(ctx_of(r)->pool, LANE_REST, TIMER_WAIT_MS, s, a, NULL,
		done, arg);
}

void
timer_get(struct hsrv_req *r)
{
	struct fault f;
	struct pgargs a;

	if (timer_ops_names(hsrv_param(r, 0), hsrv_param(r, 1), &f) < 0) {
		fault_reply(r, &f);
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
		timer_failed(l->r, e);
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
		timer_failed(r, e);
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
		timer_refuse(r, "timers_count_page_parameters",
			"a count takes neither after nor limit");
		return;
	}
	if (!hsrv_query(r, "prefix", &prefix) || !prefix.n) {
		timer_refuse(r, "timers_count_prefix_required",
			"a count takes a prefix that is not empty");
		return;
	}
	if (prefix.n > PREFIX_MAX) {
		timer_refuse(r, "timers_count_prefix_too_long",
			"prefix has at most 128 bytes");
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
	struct fault f;

	hsrv_query(r, "mode", &mode);
	if (timer_ops_names(hsrv_param(r, 0), SPAN_LIT("-"), &f) < 0)
		fault_reply(r, &f);
	else if (mode.n == 0 || span_is(mode, "list"))
		list_page(r);
	else if (span_is(mode, "count"))
		count_prefix(r);
	else
		timer_refuse(
			r, "timers_read_mode_unknown", "mode is list or count");
}
