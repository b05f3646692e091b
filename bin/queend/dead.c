/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes over dead letters.  A replay is a move (replay.h): it is reported
 * as done only when the row is gone and the message is in its log.
 */
#include "dead.h"

#include "admin.h"
#include "arena.h"
#include "buf.h"
#include "ctx.h"
#include "frame.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "keyring.h"
#include "message.h"
#include "pgbin.h"
#include "replay.h"

static const struct pgstmt STMT_LIST = { "dead_list",
	"select id, part, queue, partition, group_name, error, retries,"
	" created_at, failed_at, frame"
	" from queen.dead_list_v1($1, $2, $3, $4, $5, $6, $7, $8)" };
static const struct pgstmt STMT_FIND = { "dead_find",
	"select queen.dead_find_v1($1, $2, $3)" };
static const struct pgstmt STMT_PURGE = { "dead_purge",
	"select queen.dead_purge_v1($1, $2, $3, $4)" };

enum { LIMIT_DEFAULT = 100, PURGE_STEP = 5000 };

/* ---- GET /dlq ---- */

/* clang-format off */
enum col {
	C_ID, C_PART, C_QUEUE, C_PARTITION, C_GROUP, C_ERROR, C_RETRIES,
	C_CREATED, C_FAILED, C_FRAME
};
/* clang-format on */

struct page {
	int32_t limit, offset;
};

static void
write_frame(struct jwrite *w, struct hsrv_req *r, const PGresult *res, int i)
{
	struct buf opened = BUF_ZERO;
	struct span rest;
	struct frame f;
	struct err e;
	bool shown;

	rest = pgbin_null(res, i, C_FRAME) ? (struct span)SPAN_ZERO
					   : pgbin_bytes(res, i, C_FRAME);
	if (frame_next(&rest, &f, &e) <= 0) {
		/* retention had removed the message before it was filed */
		jwrite_kv_null(w, "transactionId");
		jwrite_kv_null(w, "data");
		jwrite_kv_null(w, "producerSub");
		return;
	}
	shown = keyring_open(ctx_of(r), &f, &opened, &e) == 0;
	jwrite_kv_str(w, "transactionId", f.txn);
	jwrite_kv_raw(w, "data", shown ? f.payload : SPAN_LIT("null"));
	buf_fini(&opened);
	jwrite_key(w, "producerSub");
	if (f.flags & FRAME_SUB)
		jwrite_str(w, f.sub);
	else
		jwrite_null(w);
	if (f.flags & FRAME_SEALED)
		jwrite_kv_bool(w, "isEncrypted", true);
}

static void
write_row(struct jwrite *w, struct hsrv_req *r, const PGresult *res, int i)
{
	struct qid id = pgbin_uuid(res, i, C_ID);
	struct qid part = qid_entity(
		QID_PARTITION, ctx_of(r)->cell_tag, pgbin_i64(res, i, C_PART));
	int64_t failed_us = pgbin_time(res, i, C_FAILED);

	jwrite_object(w);
	jwrite_key(w, "id");
	jwrite_qid(w, &id);
	write_frame(w, r, res, i);
	jwrite_key(w, "partitionId");
	jwrite_qid(w, &part);
	jwrite_kv_str(w, "queue", pgbin_bytes(res, i, C_QUEUE));
	jwrite_kv_str(w, "partition", pgbin_bytes(res, i, C_PARTITION));
	jwrite_kv_str(w, "consumerGroup", pgbin_bytes(res, i, C_GROUP));
	jwrite_key(w, "errorMessage");
	if (pgbin_null(res, i, C_ERROR))
		jwrite_null(w);
	else
		jwrite_str(w, pgbin_bytes(res, i, C_ERROR));
	jwrite_kv_i64(w, "retryCount", pgbin_i32(res, i, C_RETRIES));
	jwrite_key(w, "createdAt");
	jwrite_iso_ms(w, pgbin_null(res, i, C_CREATED)
				 ? failed_us
				 : pgbin_time(res, i, C_CREATED));
	jwrite_key(w, "failedAt");
	jwrite_iso_ms(w, failed_us);
	jwrite_end(w);
}

static void
on_list(struct hsrv_req *r, const PGresult *res)
{
	const struct page *p = hsrv_user(r);
	struct jwrite w;
	int rows = PQntuples(res);

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "messages");
	jwrite_array(&w);
	for (int i = 0; i < rows; i++)
		write_row(&w, r, res, i);
	jwrite_end(&w);
	jwrite_key(&w, "pagination");
	jwrite_object(&w);
	jwrite_kv_i64(&w, "limit", p->limit);
	jwrite_kv_i64(&w, "offset", p->offset);
	jwrite_end(&w);
	jwrite_kv_i64(&w, "total", rows);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
dead_list(struct hsrv_req *r)
{
	struct page *p = arena_alloc(hsrv_arena(r), sizeof(*p));
	struct span queue, group, partition;
	int64_t from_us = INT64_MIN, to_us = INT64_MIN;
	struct pgargs a;

	if (!admin_query_name(r, "queue", &queue) ||
		!admin_query_name(r, "consumerGroup", &group) ||
		!admin_query_name(r, "partition", &partition) ||
		!admin_query_time(r, "from", &from_us) ||
		!admin_query_time(r, "to", &to_us) ||
		!admin_query_page(r, LIMIT_DEFAULT, &p->limit, &p->offset))
		return;
	hsrv_set_user(r, p);
	admin_args(r, &a);
	admin_arg_name(&a, queue);
	admin_arg_name(&a, group);
	admin_arg_name(&a, partition);
	admin_arg_time(&a, from_us);
	admin_arg_time(&a, to_us);
	pgargs_i32(&a, p->limit);
	pgargs_i32(&a, p->offset);
	admin_call(r, &STMT_LIST, &a, "dlq", on_list);
}

/* ---- replay ---- */

static void
write_replayed(struct jwrite *w, const struct replay_result *p, bool moved)
{
	jwrite_key(w, "replayedAs");
	jwrite_object(w);
	jwrite_kv_i64(w, "index", 0);
	jwrite_key(w, "message_id");
	jwrite_qid(w, &p->message_id);
	jwrite_kv_str(w, "transaction_id", p->txn);
	jwrite_kv_str(w, "queueName", p->queue);
	jwrite_kv_cstr(w, "status", moved ? "queued" : "duplicate");
	if (moved)
		jwrite_kv_i64(w, "offset", p->offset);
	jwrite_end(w);
}

static void
write_success(struct jwrite *w, const struct replay_result *p)
{
	bool moved = p->outcome == REPLAY_MOVED;

	jwrite_kv_bool(w, "success", true);
	jwrite_kv_cstr(w, "result", moved ? "moved" : "duplicate");
	jwrite_kv_str(w, "queue", p->queue);
	jwrite_kv_str(w, "partition", p->partition);
	jwrite_kv_str(w, "consumerGroup", p->group);
	jwrite_key(w, "dlqId");
	jwrite_qid(w, &p->dead_id);
	jwrite_kv_str(w, "originalTransactionId", p->original_txn);
	write_replayed(w, p, moved);
	jwrite_kv_bool(w, "dlqRowRemoved", moved);
}

static void
reply_gone(struct hsrv_req *r, struct span id)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "success", false);
	jwrite_kv_cstr(&w, "result", "gone");
	jwrite_kv_str(
		&w, "dlqId", jspan_utf8(id) ? id : (struct span)SPAN_ZERO);
	jwrite_kv_cstr(&w, "error", "Message not found");
	jwrite_kv_cstr(&w, "message",
		"No dead-letter row with this id. "
		"It was replayed or deleted, or never existed.");
	jwrite_end(&w);
	hsrv_reply(r, 404);
}

/* The row id stands in the path, or the address does. */
struct replay {
	struct hsrv_req *r;
	bool by_id;
};

static void
on_replayed(void *arg, const struct replay_result *p)
{
	struct replay *s = arg;
	struct hsrv_req *r = s->r;
	struct jwrite w;
	int status = 200;

	if (p->outcome == REPLAY_GONE) {
		if (s->by_id)
			reply_gone(r, hsrv_param(r, 0));
		else
			message_reply_gone(r);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	if (p->outcome == REPLAY_MOVED || p->outcome == REPLAY_DUPLICATE) {
		write_success(&w, p);
	} else {
		status = p->outcome == REPLAY_MAINTENANCE ? 503
			 : p->outcome == REPLAY_REFUSED   ? 409
							  : 500;
		jwrite_kv_bool(&w, "success", false);
		jwrite_kv_cstr(&w, "result", p->word);
		jwrite_key(&w, "dlqId");
		jwrite_qid(&w, &p->dead_id);
		if (p->outcome == REPLAY_REFUSED)
			jwrite_kv_str(&w, "consumerGroup", p->group);
		jwrite_kv_str(&w, "error", p->text);
		jwrite_key(&w, "dlqRowRemoved");
		if (p->unknown)
			jwrite_null(&w);
		else
			jwrite_bool(&w, false);
	}
	jwrite_end(&w);
	hsrv_reply(r, status);
}

static void
start(struct hsrv_req *r, bool by_id, const struct qid *id, struct span queue,
	struct span partition)
{
	struct replay *s = arena_alloc(hsrv_arena(r), sizeof(*s));

	*s = (struct replay){ .r = r, .by_id = by_id };
	replay_start(
		ctx_of(r), ctx_tenant(r), id, queue, partition, on_replayed, s);
}

static void
on_found(struct hsrv_req *r, const PGresult *res)
{
	struct qid id;

	if (pgbin_null(res, 0, 0)) {
		message_reply_gone(r);
		return;
	}
	id = pgbin_uuid(res, 0, 0);
	start(r, false, &id, (struct span)SPAN_ZERO, (struct span)SPAN_ZERO);
}

void
dead_retry(struct hsrv_req *r)
{
	struct pgargs a;

	if (message_args(r, &a))
		admin_call(r, &STMT_FIND, &a, "retry", on_found);
	else
		message_reply_gone(r);
}

/* A destination's name: absent stays empty, blank is refused. */
static bool
take_target(struct hsrv_req *r, const char *what, const struct jspan_val *v,
	struct span *out)
{
	if (!admin_text(r, what, v, out))
		return false;
	if (v->type == JSPAN_NULL)
		return true;
	*out = span_trim(*out);
	return admin_name(r, what, *out);
}

void
dead_replay(struct hsrv_req *r)
{
	struct span key, queue = SPAN_ZERO, partition = SPAN_ZERO;
	struct jspan_val v;
	struct jspan j;
	struct qid id;

	jspan_open(&j, hsrv_body(r));
	if (hsrv_body(r).n && jspan_enter_object(&j)) {
		while (jspan_next_key(&j, hsrv_arena(r), &key)) {
			if (!jspan_take(&j, &v))
				break;
			if (span_is(key, "queue") &&
				!take_target(r, "queue", &v, &queue))
				return;
			if (span_is(key, "partition") &&
				!take_target(r, "partition", &v, &partition))
				return;
		}
		if (!j.error)
			jspan_end(&j);
	}
	if (j.error)
		admin_bad_json(r, &j);
	else if (!qid_parse(hsrv_param(r, 0), &id))
		reply_gone(r, hsrv_param(r, 0));
	else
		start(r, true, &id, queue, partition);
}

/* ---- DELETE /dlq ---- */

struct purge {
	struct span queue, group;
	int64_t deleted;
};

static void purge_step(struct hsrv_req *r);

static void
on_purged(struct hsrv_req *r, const PGresult *res)
{
	struct purge *p = hsrv_user(r);
	int64_t n = pgbin_i64(res, 0, 0);
	struct jwrite w;

	p->deleted += n;
	if (n == PURGE_STEP) {
		purge_step(r);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "success", true);
	jwrite_kv_i64(&w, "deleted", p->deleted);
	jwrite_kv_str(&w, "queue", p->queue);
	jwrite_key(&w, "consumerGroup");
	if (p->group.n)
		jwrite_str(&w, p->group);
	else
		jwrite_null(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
purge_step(struct hsrv_req *r)
{
	struct purge *p = hsrv_user(r);
	struct pgargs a;

	admin_args(r, &a);
	pgargs_text(&a, p->queue);
	admin_arg_name(&a, p->group);
	pgargs_i32(&a, PURGE_STEP);
	admin_call(r, &STMT_PURGE, &a, "purge", on_purged);
}

void
dead_purge(struct hsrv_req *r)
{
	struct purge *p = arena_zalloc(hsrv_arena(r), sizeof(*p));

	if (!admin_query_name(r, "queue", &p->queue) ||
		!admin_query_name(r, "consumerGroup", &p->group))
		return;
	if (p->queue.n == 0) {
		hsrv_reply_error(r, 400, "queue is required");
		return;
	}
	hsrv_set_user(r, p);
	purge_step(r);
}
