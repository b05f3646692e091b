/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes over traces.  The event's data is stored and given back as the text
 * that was sent.
 */
#include "trace.h"

#include "admin.h"
#include "arena.h"
#include "ctx.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "pgbin.h"

static const struct pgstmt STMT_ADD = { "trace_add",
	"select queen.trace_add_v1($1, $2, $3, $4, $5, $6, $7, $8)" };
static const struct pgstmt STMT_LIST = { "trace_list",
	"select status, body from queen.trace_list_v1($1, $2, $3)" };
static const struct pgstmt STMT_NAMES = { "trace_names",
	"select status, body from queen.trace_names_v1($1, $2, $3)" };
static const struct pgstmt STMT_BY_NAME = { "trace_by_name",
	"select status, body from queen.trace_by_name_v1($1, $2, $3, $4)" };

enum { NAMES_MAX = 100 };

struct trace {
	struct qid id;
	struct span txn, partition, data, group, type;
	struct span names[NAMES_MAX];
	int names_n;
};

static bool
add_name(struct hsrv_req *r, struct trace *t, const struct jspan_val *v)
{
	struct span s;

	if (v->type != JSPAN_STRING)
		return true;
	if (!admin_text(r, "traceNames", v, &s))
		return false;
	if (s.n == 0)
		return true;
	if (!admin_name(r, "bad body: traceNames", s))
		return false;
	if (t->names_n == NAMES_MAX) {
		hsrv_reply_error(r, 400,
			"bad body: traceNames holds more than %d names",
			NAMES_MAX);
		return false;
	}
	t->names[t->names_n++] = s;
	return true;
}

/* An array of strings, or one string; anything else is passed over. */
static bool
take_names(struct hsrv_req *r, struct jspan *j, struct trace *t)
{
	struct jspan_val v;

	t->names_n = 0;
	if (jspan_peek(j) != JSPAN_ARRAY) {
		if (!jspan_take(j, &v)) {
			admin_bad_json(r, j);
			return false;
		}
		return add_name(r, t, &v);
	}
	if (jspan_enter_array(j))
		while (jspan_next_item(j)) {
			if (!jspan_take(j, &v))
				break;
			if (!add_name(r, t, &v))
				return false;
		}
	if (j->error)
		admin_bad_json(r, j);
	return !j->error;
}

static bool
take_member(
	struct hsrv_req *r, struct jspan *j, struct span key, struct trace *t)
{
	struct jspan_val v;

	if (span_is(key, "traceNames"))
		return take_names(r, j, t);
	if (!jspan_take(j, &v)) {
		admin_bad_json(r, j);
		return false;
	}
	if (span_is(key, "transactionId"))
		return admin_text(r, "transactionId", &v, &t->txn);
	if (span_is(key, "partitionId"))
		return admin_text(r, "partitionId", &v, &t->partition);
	if (span_is(key, "consumerGroup"))
		return admin_text(r, "consumerGroup", &v, &t->group);
	if (span_is(key, "eventType"))
		return admin_text(r, "eventType", &v, &t->type);
	if (span_is(key, "data"))
		t->data = v.type == JSPAN_NULL ? (struct span)SPAN_ZERO : v.raw;
	return true;
}

static void
reply_not_found(struct hsrv_req *r)
{
	buf_puts(hsrv_out(r),
		"{\"success\":false,\"error\":\"Message not found\"}");
	hsrv_reply(r, 404);
}

static void
on_added(struct hsrv_req *r, const PGresult *res)
{
	const struct trace *t = hsrv_user(r);
	struct jwrite w;

	if (!pgbin_bool(res, 0, 0)) {
		reply_not_found(r);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "success", true);
	jwrite_key(&w, "traceId");
	jwrite_qid(&w, &t->id);
	jwrite_end(&w);
	hsrv_reply(r, 201);
}

static void
add(struct hsrv_req *r, struct trace *t, int64_t part)
{
	struct pgargs a;

	t->id = qid_new();
	hsrv_set_user(r, t);
	admin_args(r, &a);
	pgargs_uuid(&a, &t->id);
	pgargs_i64(&a, part);
	pgargs_text(&a, t->txn);
	pgargs_text(&a, t->group);
	pgargs_text(&a, t->type);
	pgargs_text(&a, t->data);
	pgargs_array(&a, PGARGS_TEXT);
	for (int i = 0; i < t->names_n; i++)
		pgargs_item_text(&a, t->names[i]);
	pgargs_close(&a);
	admin_call(r, &STMT_ADD, &a, "trace", on_added);
}

void
trace_post(struct hsrv_req *r)
{
	struct trace *t = arena_zalloc(hsrv_arena(r), sizeof(*t));
	struct jspan j;
	struct span key;
	struct qid q;
	int64_t part;

	jspan_open(&j, hsrv_body(r));
	if (jspan_enter_object(&j))
		while (jspan_next_key(&j, hsrv_arena(r), &key))
			if (!take_member(r, &j, key, t))
				return;
	if (j.error || !jspan_end(&j)) {
		admin_bad_json(r, &j);
		return;
	}
	if (t->txn.n == 0 || t->partition.n == 0) {
		hsrv_reply_error(
			r, 400, "transactionId and partitionId are required");
		return;
	}
	if (t->data.n == 0) {
		hsrv_reply_error(r, 400, "data is required");
		return;
	}
	if (t->group.n == 0)
		t->group = span_of(CTX_QUEUE_MODE);
	if (t->type.n == 0)
		t->type = SPAN_LIT("info");
	if (!admin_name(r, "bad body: transactionId", t->txn) ||
		!admin_name(r, "bad body: consumerGroup", t->group) ||
		!admin_name(r, "bad body: eventType", t->type))
		return;
	if (!qid_parse(t->partition, &q))
		hsrv_reply_error(r, 400, "bad body: partitionId is not a UUID");
	else if (!admin_part(r, t->partition, &part))
		reply_not_found(r);
	else
		add(r, t, part);
}

void
trace_get(struct hsrv_req *r)
{
	struct pgargs a;
	int64_t part;

	if (!admin_name(r, "transactionId", hsrv_param(r, 1)))
		return;
	if (!admin_part(r, hsrv_param(r, 0), &part)) {
		buf_puts(hsrv_out(r), "{\"traces\":[]}");
		hsrv_reply(r, 200);
		return;
	}
	admin_args(r, &a);
	pgargs_i64(&a, part);
	pgargs_text(&a, hsrv_param(r, 1));
	admin_pass(r, &STMT_LIST, &a, "traces");
}

void
trace_names(struct hsrv_req *r)
{
	int32_t limit, offset;
	struct pgargs a;

	if (!admin_query_page(r, 50, &limit, &offset))
		return;
	admin_args(r, &a);
	pgargs_i32(&a, limit);
	pgargs_i32(&a, offset);
	admin_pass(r, &STMT_NAMES, &a, "trace names");
}

void
trace_by_name(struct hsrv_req *r)
{
	int32_t limit, offset;
	struct pgargs a;

	if (!admin_name(r, "traceName", hsrv_param(r, 0)) ||
		!admin_query_page(r, 100, &limit, &offset))
		return;
	admin_args(r, &a);
	pgargs_text(&a, hsrv_param(r, 0));
	pgargs_i32(&a, limit);
	pgargs_i32(&a, offset);
	admin_pass(r, &STMT_BY_NAME, &a, "traces");
}
