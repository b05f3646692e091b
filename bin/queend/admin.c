/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of management routes; see admin.h.  Every path through a
 * handler ends in exactly one reply.
 */
#include "admin.h"

#include <string.h>

#include "arena.h"
#include "clk.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "hsrv.h"
#include "jspan.h"
#include "name.h"
#include "pgbin.h"

struct admin_call {
	struct hsrv_req *r;
	const char *op;
	admin_fn done;
};

void
admin_args(struct hsrv_req *r, struct pgargs *a)
{
	pgargs_init(a);
	pgargs_uuid(a, ctx_tenant(r));
}

void
admin_arg_name(struct pgargs *a, struct span name)
{
	if (name.n)
		pgargs_text(a, name);
	else
		pgargs_null(a);
}

void
admin_arg_time(struct pgargs *a, int64_t at_us)
{
	if (at_us == INT64_MIN)
		pgargs_null(a);
	else
		pgargs_time(a, at_us);
}

void
admin_fail(struct hsrv_req *r, const char *op, const struct err *e)
{
	if (pgpool_had_none(e))
		hsrv_reply_error(r, 500, "%s", e->text);
	else
		hsrv_reply_error(r, 500, "%s failed: %s", op, e->text);
}

static void
on_done(void *arg, const PGresult *res, const struct err *err)
{
	struct admin_call *c = arg;

	if (!err) {
		c->done(c->r, res);
		return;
	}
	count_db_error(ctx_of(c->r));
	admin_fail(c->r, c->op, err);
}

void
admin_call(struct hsrv_req *r, const struct pgstmt *s, struct pgargs *a,
	const char *op, admin_fn done)
{
	struct admin_call *c = arena_alloc(hsrv_arena(r), sizeof(*c));

	*c = (struct admin_call){ .r = r, .op = op, .done = done };
	pgpool_call(ctx_of(r)->pool, LANE_REST, s, a, on_done, c);
}

void
admin_reply(struct hsrv_req *r, const PGresult *res)
{
	buf_put_span(hsrv_out(r), pgbin_bytes(res, 0, 1));
	hsrv_reply(r, pgbin_i32(res, 0, 0));
}

void
admin_pass(struct hsrv_req *r, const struct pgstmt *s, struct pgargs *a,
	const char *op)
{
	admin_call(r, s, a, op, admin_reply);
}

void
admin_bad_json(struct hsrv_req *r, const struct jspan *j)
{
	hsrv_reply_error(r, 400, "bad body: %s at offset %zu",
		j->error ? j->error : "unexpected value", j->error_at);
}

bool
admin_name(struct hsrv_req *r, const char *what, struct span name)
{
	int control;
	const char *fault = name_fault(name, false, &control);

	if (fault)
		hsrv_reply_error(r, 400, "%s %s", what, fault);
	return !fault;
}

bool
admin_text(struct hsrv_req *r, const char *what, const struct jspan_val *v,
	struct span *out)
{
	*out = (struct span)SPAN_ZERO;
	if (v->type == JSPAN_NULL)
		return true;
	if (v->type != JSPAN_STRING) {
		hsrv_reply_error(r, 400, "bad body: %s must be a string", what);
		return false;
	}
	if (!jspan_text(v, hsrv_arena(r), out)) {
		hsrv_reply_error(r, 400,
			"bad body: %s holds half of a surrogate pair", what);
		return false;
	}
	if (out->n && memchr(out->p, 0, out->n)) {
		hsrv_reply_error(
			r, 400, "bad body: %s holds a control character", what);
		return false;
	}
	return true;
}

static bool
bad_query(
	struct hsrv_req *r, const char *key, const char *what, struct span got)
{
	if (!jspan_utf8(got))
		hsrv_reply_error(r, 400, "%s must be %s", key, what);
	else
		hsrv_reply_error(r, 400, "%s must be %s, got '%.*s'", key, what,
			SPAN_ARG(span_clip(got, 64)));
	return false;
}

bool
admin_query_bool(struct hsrv_req *r, const char *key, bool dflt, bool *out)
{
	struct span s;

	*out = dflt;
	if (!hsrv_query(r, key, &s) || s.n == 0)
		return true;
	if (span_is(s, "true") || span_is(s, "1") || span_is(s, "yes"))
		*out = true;
	else if (span_is(s, "false") || span_is(s, "0") || span_is(s, "no"))
		*out = false;
	else
		return bad_query(r, key, "true or false", s);
	return true;
}

bool
admin_query_int(struct hsrv_req *r, const char *key, int32_t dflt, int32_t max,
	int32_t *out)
{
	struct span s;
	int64_t v;

	*out = dflt;
	if (!hsrv_query(r, key, &s) || s.n == 0)
		return true;
	if (!span_i64(s, &v) || v < 0)
		return bad_query(r, key, "an integer from 0 up", s);
	*out = v > max ? max : (int32_t)v;
	return true;
}

bool
admin_query_page(
	struct hsrv_req *r, int32_t dflt, int32_t *limit, int32_t *offset)
{
	if (!admin_query_int(r, "limit", dflt, ADMIN_PAGE_MAX, limit) ||
		!admin_query_int(
			r, "offset", 0, INT32_MAX - ADMIN_PAGE_MAX, offset))
		return false;
	if (*limit == 0)
		*limit = dflt;
	return true;
}

bool
admin_query_time(struct hsrv_req *r, const char *key, int64_t *at_us)
{
	struct span s;

	if (!hsrv_query(r, key, &s) || s.n == 0)
		return true;
	if (!clk_parse_iso(s, at_us))
		return bad_query(r, key, "an ISO 8601 time", s);
	return true;
}

bool
admin_query_name(struct hsrv_req *r, const char *key, struct span *out)
{
	*out = (struct span)SPAN_ZERO;
	if (!hsrv_query(r, key, out) || out->n == 0)
		return true;
	return admin_name(r, key, *out);
}

bool
admin_part(struct hsrv_req *r, struct span text, int64_t *id)
{
	struct qid q;

	return qid_parse(text, &q) &&
	       qid_is_entity(&q, QID_PARTITION, ctx_of(r)->cell_tag, id);
}
