/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes over stored messages.  SQL says which and in what state, the blobs
 * are opened here, payloads go out as the bytes that came in.  What cannot
 * be shown (no key opens it, or a page too large) has a null payload.
 */
#include "message.h"

#include "admin.h"
#include "arena.h"
#include "ctx.h"
#include "hash.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "keyring.h"
#include "pgbin.h"
#include "seg.h"

static const struct pgstmt STMT_LIST = {
	"message_list",
	"select part, queue, partition, namespace, task, priority, base, off,"
	" at, status, lease_expires_at, consumed_by, total_groups, blob, mode"
	" from queen.message_list_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
};
static const struct pgstmt STMT_GET = { "message_get",
	"select queue, partition, namespace, task, base, off, at, blob,"
	" dead_frame, error, retries, status, lease_expires_at, config, groups,"
	" mode from queen.message_get_v1($1, $2, $3)" };
static const struct pgstmt STMT_DELETE = { "message_delete",
	"select queen.message_delete_v1($1, $2, $3)" };

enum { LIMIT_DEFAULT = 200 };
static const int64_t minute_us = 60 * INT64_C(1000000);

/* ---- one message in JSON ---- */

/* f NULL = its frame is not there; used up by this. */
static void
write_content(struct jwrite *w, struct hsrv_req *r, struct frame *f)
{
	struct buf opened = BUF_ZERO;
	struct err why = ERR_ZERO;
	bool shown = f && keyring_open(ctx_of(r), f, &opened, &why) == 0;
	struct span data = shown ? f->payload : SPAN_LIT("null");
	char hex[2 * HASH_ID_BYTES + 1];
	struct hash_id h;

	if (f) {
		static const char digit[] = "0123456789abcdef";

		hash_id(ctx_of(r)->hash_key, f->txn, &h);
		for (int i = 0; i < HASH_ID_BYTES; i++) {
			hex[2 * i] = digit[h.b[i] >> 4];
			hex[2 * i + 1] = digit[h.b[i] & 15];
		}
		jwrite_key(w, "id");
		jwrite_qid(w, &f->id);
		jwrite_kv_str(w, "transactionId", f->txn);
		jwrite_kv_str(w, "txnHash", span_make(hex, sizeof(hex) - 1));
	} else {
		jwrite_kv_null(w, "id");
		jwrite_kv_null(w, "transactionId");
		jwrite_kv_null(w, "txnHash");
	}
	jwrite_key(w, "traceId");
	if (f && (f->flags & FRAME_TRACE))
		jwrite_qid(w, &f->trace);
	else
		jwrite_null(w);
	jwrite_key(w, "producerSub");
	if (f && (f->flags & FRAME_SUB))
		jwrite_str(w, f->sub);
	else
		jwrite_null(w);
	jwrite_kv_bool(w, "payloadAvailable", shown);
	jwrite_kv_raw(w, "data", data);
	jwrite_kv_raw(w, "payload", data);
	jwrite_kv_bool(w, "isEncrypted", f && f->flags & FRAME_SEALED);
	buf_fini(&opened);
}

static void
write_place(struct jwrite *w, struct hsrv_req *r, int64_t part,
	struct span queue, struct span partition)
{
	struct qid id = qid_entity(QID_PARTITION, ctx_of(r)->cell_tag, part);
	struct span path = arena_printf(hsrv_arena(r), "%.*s/%.*s",
		SPAN_ARG(queue), SPAN_ARG(partition));

	jwrite_key(w, "partitionId");
	jwrite_qid(w, &id);
	jwrite_kv_str(w, "queuePath", path);
	jwrite_kv_str(w, "queue", queue);
	jwrite_kv_str(w, "partition", partition);
}

static void
write_time(struct jwrite *w, const char *key, const PGresult *res, int row,
	int col)
{
	jwrite_key(w, key);
	if (pgbin_null(res, row, col))
		jwrite_null(w);
	else
		jwrite_iso_ms(w, pgbin_time(res, row, col));
}

/* ---- GET /messages ---- */

/* clang-format off */
enum list_col {
	L_PART, L_QUEUE, L_PARTITION, L_NAMESPACE, L_TASK, L_PRIORITY, L_BASE,
	L_OFF, L_AT, L_STATUS, L_LEASE, L_CONSUMED, L_GROUPS, L_BLOB, L_MODE
};
/* clang-format on */

/* The segment open at the moment: rows of one segment stand together. */
struct opened {
	int64_t part, base;
	struct buf raw;
	struct frame *frames;
	int64_t n;
};

static int
open_segment(struct opened *o, struct arena *a, struct span blob, struct err *e)
{
	struct span rest;
	struct frame f;
	int64_t cap = 0;
	int got;

	o->n = 0;
	o->frames = NULL;
	buf_reset(&o->raw);
	if (seg_unpack(blob, &o->raw, e) != 0)
		return -1;
	rest = buf_span(&o->raw);
	while ((got = frame_next(&rest, &f, e)) > 0)
		cap++;
	if (got < 0)
		return -1;
	o->frames = arena_alloc(a, (size_t)(cap ? cap : 1) * sizeof(f));
	rest = buf_span(&o->raw);
	while (o->n < cap && frame_next(&rest, &o->frames[o->n], e) > 0)
		o->n++;
	return 0;
}

static void
write_row(struct jwrite *w, struct hsrv_req *r, const PGresult *res, int i,
	struct frame *f)
{
	int64_t base = pgbin_i64(res, i, L_BASE);
	int64_t off = pgbin_i64(res, i, L_OFF);

	jwrite_object(w);
	write_content(w, r, f);
	write_place(w, r, pgbin_i64(res, i, L_PART),
		pgbin_bytes(res, i, L_QUEUE), pgbin_bytes(res, i, L_PARTITION));
	jwrite_kv_str(w, "namespace", pgbin_bytes(res, i, L_NAMESPACE));
	jwrite_kv_str(w, "task", pgbin_bytes(res, i, L_TASK));
	jwrite_kv_str(w, "status", pgbin_bytes(res, i, L_STATUS));
	jwrite_kv_str(w, "queueStatus", pgbin_bytes(res, i, L_STATUS));
	jwrite_key(w, "busStatus");
	jwrite_object(w);
	jwrite_kv_i64(w, "consumedBy", pgbin_i64(res, i, L_CONSUMED));
	jwrite_kv_i64(w, "totalGroups", pgbin_i64(res, i, L_GROUPS));
	jwrite_end(w);
	jwrite_kv_i64(w, "offset", off);
	jwrite_key(w, "segment");
	jwrite_object(w);
	jwrite_kv_i64(w, "seq", base);
	jwrite_kv_i64(w, "frameIdx", off - base);
	jwrite_end(w);
	write_time(w, "createdAt", res, i, L_AT);
	write_time(w, "leaseExpiresAt", res, i, L_LEASE);
	jwrite_kv_i64(w, "queuePriority", pgbin_i32(res, i, L_PRIORITY));
	jwrite_end(w);
}

static void
on_list(struct hsrv_req *r, const PGresult *res)
{
	struct opened o = { .part = -1, .raw = BUF_ZERO };
	struct err e = ERR_ZERO;
	struct jwrite w;
	int rows = PQntuples(res);

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "messages");
	jwrite_array(&w);
	for (int i = 1; i < rows; i++) {
		int64_t part = pgbin_i64(res, i, L_PART);
		int64_t base = pgbin_i64(res, i, L_BASE);
		int64_t at = pgbin_i64(res, i, L_OFF) - base;

		if (part != o.part || base != o.base) {
			o.part = part;
			o.base = base;
			o.n = 0;
			if (!pgbin_null(res, i, L_BLOB) &&
				open_segment(&o, hsrv_arena(r),
					pgbin_bytes(res, i, L_BLOB), &e) != 0) {
				buf_reset(hsrv_out(r));
				hsrv_reply_error(
					r, 500, "messages failed: %s", e.text);
				goto out;
			}
		}
		write_row(&w, r, res, i, at < o.n ? &o.frames[at] : NULL);
	}
	jwrite_end(&w);
	jwrite_kv_raw(&w, "mode", pgbin_bytes(res, 0, L_MODE));
	jwrite_kv_i64(&w, "total", rows - 1);
	jwrite_end(&w);
	hsrv_reply(r, 200);
out:
	buf_fini(&o.raw);
}

static bool
status_is_known(struct span s)
{
	return s.n == 0 || span_is(s, "pending") || span_is(s, "processing") ||
	       span_is(s, "completed") || span_is(s, "dead_letter") ||
	       span_is(s, "failed");
}

void
message_list(struct hsrv_req *r)
{
	struct span queue, partition, ns, task, status;
	int64_t from_us = INT64_MIN, to_us = INT64_MIN;
	int32_t limit, offset;
	struct pgargs a;

	if (!admin_query_name(r, "queue", &queue) ||
		!admin_query_name(r, "partition", &partition) ||
		!admin_query_name(r, "namespace", &ns) ||
		(ns.n == 0 && !admin_query_name(r, "ns", &ns)) ||
		!admin_query_name(r, "task", &task) ||
		!admin_query_name(r, "status", &status) ||
		!admin_query_time(r, "from", &from_us) ||
		!admin_query_time(r, "to", &to_us) ||
		!admin_query_page(r, LIMIT_DEFAULT, &limit, &offset))
		return;
	if (!status_is_known(status)) {
		hsrv_reply_error(r, 400,
			"status must be pending, processing, "
			"completed or dead_letter, got '%.*s'",
			SPAN_ARG(span_clip(status, 64)));
		return;
	}
	if (span_is(status, "failed")) /* what command lines call it */
		status = SPAN_LIT("dead_letter");
	/* whole minutes: what `to` names is still in */
	if (to_us != INT64_MIN) {
		to_us -= (to_us % minute_us + minute_us) % minute_us;
		to_us += minute_us;
	}
	admin_args(r, &a);
	admin_arg_name(&a, queue);
	admin_arg_name(&a, partition);
	admin_arg_name(&a, ns);
	admin_arg_name(&a, task);
	admin_arg_name(&a, status);
	admin_arg_time(&a, from_us);
	admin_arg_time(&a, to_us);
	pgargs_i32(&a, limit);
	pgargs_i32(&a, offset);
	admin_call(r, &STMT_LIST, &a, "messages", on_list);
}

/* ---- one address ---- */

/* clang-format off */
enum get_col {
	G_QUEUE, G_PARTITION, G_NAMESPACE, G_TASK, G_BASE, G_OFF, G_AT, G_BLOB,
	G_FRAME, G_ERROR, G_RETRIES, G_STATUS, G_LEASE, G_CONFIG, G_GROUPS,
	G_MODE
};
/* clang-format on */

/* Partition and hash of the path; false = no such thing can exist. */
static bool
address(struct hsrv_req *r, int64_t *part, struct hash_id *h)
{
	hash_id(ctx_of(r)->hash_key, hsrv_param(r, 1), h);
	return admin_part(r, hsrv_param(r, 0), part);
}

bool
message_args(struct hsrv_req *r, struct pgargs *a)
{
	struct hash_id h;
	int64_t part;

	if (!address(r, &part, &h))
		return false;
	admin_args(r, a);
	pgargs_i64(a, part);
	pgargs_bytea(a, span_make(h.b, sizeof(h.b)));
	return true;
}

/* 1 = *f is the message, 0 = its content is gone, -1 = corrupt. */
static int
find_frame(const PGresult *res, struct buf *raw, struct frame *f, struct err *e)
{
	struct span rest;

	if (pgbin_null(res, 0, G_BLOB)) {
		if (pgbin_null(res, 0, G_FRAME))
			return 0;
		rest = pgbin_bytes(res, 0, G_FRAME);
	} else {
		if (seg_unpack(pgbin_bytes(res, 0, G_BLOB), raw, e) != 0)
			return -1;
		rest = buf_span(raw);
		if (seg_skip(&rest,
			    pgbin_i64(res, 0, G_OFF) -
				    pgbin_i64(res, 0, G_BASE),
			    e) != 0)
			return -1;
	}
	return frame_next(&rest, f, e);
}

static void
write_message(struct hsrv_req *r, const PGresult *res, struct frame *f)
{
	int64_t part;
	struct hash_id h;
	struct jwrite w;

	(void)address(r, &part, &h);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	write_content(&w, r, f);
	write_place(&w, r, part, pgbin_bytes(res, 0, G_QUEUE),
		pgbin_bytes(res, 0, G_PARTITION));
	jwrite_kv_str(&w, "namespace", pgbin_bytes(res, 0, G_NAMESPACE));
	jwrite_kv_str(&w, "task", pgbin_bytes(res, 0, G_TASK));
	jwrite_kv_i64(&w, "offset", pgbin_i64(res, 0, G_OFF));
	write_time(&w, "createdAt", res, 0, G_AT);
	jwrite_kv_str(&w, "status", pgbin_bytes(res, 0, G_STATUS));
	jwrite_key(&w, "errorMessage");
	if (pgbin_null(res, 0, G_ERROR))
		jwrite_null(&w);
	else
		jwrite_str(&w, pgbin_bytes(res, 0, G_ERROR));
	jwrite_kv_i64(&w, "retryCount", pgbin_i32(res, 0, G_RETRIES));
	write_time(&w, "leaseExpiresAt", res, 0, G_LEASE);
	jwrite_kv_raw(&w, "queueConfig", pgbin_bytes(res, 0, G_CONFIG));
	jwrite_kv_raw(&w, "consumerGroups", pgbin_bytes(res, 0, G_GROUPS));
	jwrite_kv_raw(&w, "mode", pgbin_bytes(res, 0, G_MODE));
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
on_get(struct hsrv_req *r, const PGresult *res)
{
	struct buf raw = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct frame f;
	int got;

	if (PQntuples(res) == 0) {
		hsrv_reply_error(r, 404, "Message not found");
		return;
	}
	got = find_frame(res, &raw, &f, &e);
	if (got < 0)
		hsrv_reply_error(r, 500, "message failed: %s", e.text);
	else
		write_message(r, res, got > 0 ? &f : NULL);
	buf_fini(&raw);
}

void
message_get(struct hsrv_req *r)
{
	struct pgargs a;

	if (!message_args(r, &a)) {
		hsrv_reply_error(r, 404, "Message not found");
		return;
	}
	admin_call(r, &STMT_GET, &a, "message", on_get);
}

void
message_reply_gone(struct hsrv_req *r)
{
	struct span part = hsrv_param(r, 0), txn = hsrv_param(r, 1);
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "success", false);
	jwrite_kv_str(&w, "partitionId",
		jspan_utf8(part) ? part : (struct span)SPAN_ZERO);
	jwrite_kv_str(&w, "transactionId",
		jspan_utf8(txn) ? txn : (struct span)SPAN_ZERO);
	jwrite_kv_cstr(&w, "error", "Message not found");
	jwrite_kv_cstr(&w, "message",
		"No dead-letter row for this address. "
		"Messages that are not dead-lettered cannot be deleted or "
		"retried.");
	jwrite_end(&w);
	hsrv_reply(r, 404);
}

static void
on_delete(struct hsrv_req *r, const PGresult *res)
{
	struct jwrite w;

	if (pgbin_i64(res, 0, 0) == 0) {
		message_reply_gone(r);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "success", true);
	jwrite_kv_str(&w, "partitionId", hsrv_param(r, 0));
	jwrite_kv_str(&w, "transactionId", hsrv_param(r, 1));
	jwrite_kv_cstr(&w, "message", "Message deleted successfully");
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
message_delete(struct hsrv_req *r)
{
	struct pgargs a;

	if (!message_args(r, &a)) {
		message_reply_gone(r);
		return;
	}
	admin_call(r, &STMT_DELETE, &a, "delete message", on_delete);
}
