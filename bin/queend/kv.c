/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /api/v1/kv.  A call is one statement and one commit; with a `required`
 * operation it is a bundle, rolled back when that one is lost.  Path routes
 * become a batch of one, so there is one way through.
 */
#include "kv.h"

#include <stdio.h>

#include "arena.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "kv_ops.h"
#include "kvlimit.h"
#include "pgbin.h"
#include "pgpool.h"
#include "settings.h"

enum { WAIT_MS = 1000, FAULTS_MAX = 3 };

/* clang-format off */
static const struct pgstmt STMT_APPLY = { "kv_apply",
	"select ord, row_no, verdict, reason, key, value, version, expires_at,"
	" updated_at from queen.kv_apply_v1($1, $2, $3, $4, $5, $6, $7, $8, $9,"
	" $10, $11, $12, $13, $14, $15, $16, $17, $18)" };
/* clang-format on */
static const struct kv_cols COLS = { 0, 1, 2, 3, 4, 5, 6, 7, 8 };

struct call {
	struct hsrv_req *r;
	struct kv_ops ops;
	struct kvlimit_ask ask;
	bool bare; /* a path route: the element alone */
	bool lost; /* a required operation */
	bool misaligned;
	int faults;
};

/* ---- answers ---- */

void
kv_reply_fault(struct hsrv_req *r, const struct kv_fault *f)
{
	struct jwrite w;

	if (f->retry_after_s) {
		struct span s =
			arena_printf(hsrv_arena(r), "%d", f->retry_after_s);

		hsrv_add_header(r, "Retry-After", arena_cstr(hsrv_arena(r), s));
	}
	buf_reset(hsrv_out(r));
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "error", f->error);
	if (f->reason)
		jwrite_kv_cstr(&w, "reason", f->reason);
	if (f->detail[0])
		jwrite_kv_cstr(&w, "detail", f->detail);
	jwrite_end(&w);
	hsrv_reply(r, f->status);
}

static void
refuse(struct hsrv_req *r, const char *reason, const char *detail)
{
	struct kv_fault f = {
		.status = 400, .error = "kv_bad_request", .reason = reason
	};

	snprintf(f.detail, sizeof(f.detail), "%s", detail);
	kv_reply_fault(r, &f);
}

static void
reply_missing(struct hsrv_req *r)
{
	struct kv_fault f = { .status = 500,
		.error = "kv_error",
		.reason = "kv_result_missing" };

	kv_reply_fault(r, &f);
}

static void
count_ops(const struct call *c, const PGresult *res)
{
	for (size_t i = 0; i < c->ops.n; i++) {
		const struct kv_op *op = &c->ops.v[i];
		enum kvlimit_result how =
			!res ? KVLIMIT_ERROR
			: c->lost || (op->kind >= KV_PUT &&
					     pgbin_i32(res, op->row,
						     COLS.verdict) != 0)
				? KVLIMIT_REJECTED
				: KVLIMIT_APPLIED;

		kvlimit_count(ctx_of(c->r), (enum kvlimit_op)op->kind, how);
	}
}

static void
reply_lost(struct call *c, const PGresult *res, int row)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(c->r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "ok", false);
	jwrite_kv_cstr(&w, "reason", "kv_precondition");
	kv_ops_write_lost(&w, &c->ops, (int64_t)kv_ops_of_row(res, &COLS, row),
		res, &COLS, row);
	jwrite_end(&w);
	hsrv_reply(c->r, 200);
}

static void
write_element(
	struct jwrite *w, const struct call *c, size_t i, const PGresult *res)
{
	jwrite_object(w);
	jwrite_kv_i64(w, "index", (int64_t)i);
	kv_ops_write(w, &c->ops, i, res, &COLS);
	jwrite_end(w);
}

static void
reply_results(struct call *c, const PGresult *res)
{
	const struct kv_op *op = &c->ops.v[0];
	struct jwrite w;

	jwrite_init(&w, hsrv_out(c->r));
	if (c->bare) {
		if (op->kind == KV_GET &&
			!pgbin_null(res, op->row, COLS.version))
			hsrv_add_header(c->r, "ETag",
				arena_cstr(hsrv_arena(c->r),
					arena_printf(hsrv_arena(c->r),
						"\"%lld\"",
						(long long)pgbin_i64(res,
							op->row,
							COLS.version))));
		write_element(&w, c, 0, res);
	} else {
		jwrite_object(&w);
		jwrite_key(&w, "results");
		jwrite_array(&w);
		for (size_t i = 0; i < c->ops.n; i++)
			write_element(&w, c, i, res);
		jwrite_end(&w);
		jwrite_end(&w);
	}
	hsrv_reply(c->r, 200);
}

/* ---- the call ---- */

static void send_call(struct call *c);

static bool
index_rows(struct call *c, const PGresult *res)
{
	c->lost = kv_ops_lost(res, &COLS, 0, PQntuples(res)) >= 0;
	c->misaligned = !c->lost &&
			!kv_ops_index(&c->ops, res, &COLS, 0, PQntuples(res));
	return !c->lost && !c->misaligned;
}

static bool
decide(void *arg, const PGresult *res)
{
	return index_rows(arg, res);
}

static void
on_failed(struct call *c, const struct err *e)
{
	struct ctx *x = ctx_of(c->r);
	struct kv_fault f;

	if (pgpool_was_victim(e) && c->faults++ < FAULTS_MAX) {
		send_call(c);
		return;
	}
	if (e->kind == ERR_LIMIT || pgpool_had_none(e)) {
		kvlimit_lane(x, false);
		if (c->ops.writes == 0)
			kvlimit_read_refused(x, KVLIMIT_POOL);
	} else {
		kvlimit_lane(x, true);
		count_db_error(x);
	}
	if (e->kind != ERR_DB_UNKNOWN)
		kvlimit_refund(x, ctx_tenant(c->r), &c->ask);
	count_ops(c, NULL);
	kv_ops_fault(e, &f);
	kv_reply_fault(c->r, &f);
}

static void
on_answer(void *arg, const PGresult *res, const struct err *e)
{
	struct call *c = arg;
	struct ctx *x = ctx_of(c->r);

	if (e) {
		on_failed(c, e);
		return;
	}
	kvlimit_lane(x, true);
	if (!c->ops.required)
		index_rows(c, res);
	if (c->lost || c->misaligned)
		kvlimit_refund(x, ctx_tenant(c->r), &c->ask);
	if (!c->misaligned)
		count_ops(c, res);
	if (c->misaligned)
		reply_missing(c->r);
	else if (c->lost)
		reply_lost(c, res, kv_ops_lost(res, &COLS, 0, PQntuples(res)));
	else
		reply_results(c, res);
}

static void
send_call(struct call *c)
{
	struct pgargs a;

	c->lost = c->misaligned = false;
	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(c->r));
	pgargs_bool(&a, false);
	kv_ops_args(&a, &c->ops, ctx_of(c->r));
	pgpool_within(ctx_of(c->r)->pool, LANE_REST, WAIT_MS, &STMT_APPLY, &a,
		c->ops.required ? decide : NULL, on_answer, c);
}

/* Reads the operations, asks whether they may, sends them. */
static void
start(struct hsrv_req *r, struct span ops, bool bare)
{
	struct call *c = arena_zalloc(hsrv_arena(r), sizeof(*c));
	struct kvlimit_no no;
	struct kv_fault f;

	c->r = r;
	c->bare = bare;
	if (kv_ops_parse(ops, false, ctx_of(r), hsrv_arena(r), &c->ops, &f) <
		0) {
		kv_reply_fault(r, &f);
		return;
	}
	if (c->ops.n == 0) {
		buf_puts(hsrv_out(r), "{\"results\":[]}");
		hsrv_reply(r, 200);
		return;
	}
	c->ask = (struct kvlimit_ask){ .kv = true,
		.kv_write = c->ops.writes > 0,
		.rows = c->ops.rows,
		.bytes = c->ops.bytes };
	if (!kvlimit_admit(ctx_of(r), ctx_tenant(r), &c->ask, &no)) {
		f = (struct kv_fault){ .status = no.status,
			.error = no.error,
			.reason = no.reason,
			.retry_after_s = no.retry_after_s };
		kv_reply_fault(r, &f);
		return;
	}
	send_call(c);
}

/* ---- the batch ---- */

static void
bad_body(struct hsrv_req *r, const struct jspan *j)
{
	char text[256];

	snprintf(text, sizeof(text), "%s at offset %zu",
		j->error ? j->error : "unexpected value", j->error_at);
	refuse(r, "kv_bad_body", text);
}

void
kv_post(struct hsrv_req *r)
{
	struct jspan_val v, ops = { .type = JSPAN_NONE };
	struct jspan j;
	struct span key;

	jspan_open(&j, hsrv_body(r));
	if (jspan_peek(&j) == JSPAN_ARRAY) {
		start(r, hsrv_body(r), false);
		return;
	}
	if (jspan_enter_object(&j))
		while (jspan_next_key(&j, hsrv_arena(r), &key) &&
			jspan_take(&j, &v)) {
			if (span_is(key, "tenant") ||
				span_is(key, "tenantId") ||
				span_is(key, "_tenant")) {
				refuse(r, "kv_tenant_not_an_input",
					"the tenant is that of the request");
				return;
			}
			if (span_is(key, "operations"))
				ops = v;
		}
	if (j.error || !jspan_end(&j))
		bad_body(r, &j);
	else if (ops.type != JSPAN_ARRAY)
		refuse(r, "kv_bad_body",
			"operations must be an array of operations");
	else
		start(r, ops.raw, false);
}

/* ---- one key by its path ---- */

/*
 * False (replied) with any query string: names of keys must not reach the
 * logs of what stands before us.
 */
static bool
no_query(struct hsrv_req *r)
{
	if (!hsrv_has_query(r))
		return true;
	refuse(r, "kv_no_query_string",
		"this route takes no query string, in no form");
	return false;
}

/* Copies the members of the body that the operation knows. */
static bool
copy_members(struct hsrv_req *r, struct jwrite *w, const char *const *names)
{
	struct jspan_val v;
	struct jspan j;
	struct span key;

	jspan_open(&j, hsrv_body(r));
	if (jspan_enter_object(&j))
		while (jspan_next_key(&j, hsrv_arena(r), &key) &&
			jspan_take(&j, &v)) {
			if (span_is(key, "op") || span_is(key, "ns") ||
				span_is(key, "namespace") ||
				span_is(key, "key")) {
				refuse(r, "kv_field_in_path",
					"op, ns, namespace and key are not "
					"for the body of this route");
				return false;
			}
			if (span_is(key, "tenant") ||
				span_is(key, "tenantId") ||
				span_is(key, "_tenant")) {
				refuse(r, "kv_tenant_not_an_input",
					"the tenant is that of the request");
				return false;
			}
			for (int i = 0; names[i]; i++)
				if (span_is(key, names[i]))
					jwrite_kv_raw(w, names[i], v.raw);
		}
	if (j.error || !jspan_end(&j)) {
		bad_body(r, &j);
		return false;
	}
	return true;
}

/* A batch of one from path and body; names NULL = no body is read. */
static void
start_path(struct hsrv_req *r, const char *op, const char *const *names)
{
	struct buf b = BUF_ZERO;
	struct jwrite w;
	struct span text;
	bool good;

	if (!no_query(r))
		return;
	jwrite_init(&w, &b);
	jwrite_array(&w);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "op", op);
	jwrite_kv_str(&w, "ns", hsrv_param(r, 0));
	jwrite_kv_str(&w, "key", hsrv_param(r, 1));
	good = !names || copy_members(r, &w, names);
	if (good) {
		jwrite_end(&w);
		jwrite_end(&w);
	}
	text = arena_dup(hsrv_arena(r), buf_span(&b));
	buf_fini(&b);
	if (good)
		start(r, text, true);
}

void
kv_get(struct hsrv_req *r)
{
	start_path(r, "get", NULL);
}

void
kv_put(struct hsrv_req *r)
{
	static const char *const names[] = { "value", "ttlSeconds", "forever",
		"expect", "required", NULL };

	start_path(r, "put", names);
}

void
kv_delete(struct hsrv_req *r)
{
	static const char *const names[] = { "expect", "required", NULL };
	struct jspan j;

	jspan_open(&j, hsrv_body(r));
	start_path(r, "delete",
		hsrv_body(r).n == 0 || jspan_peek(&j) == JSPAN_NULL ? NULL
								    : names);
}

/* ---- lists for people ---- */

struct listing {
	struct hsrv_req *r;
	struct span ns, prefix, after;
	int64_t limit;
	bool keys_only, expired;
};

/* clang-format off */
static const struct pgstmt STMT_NAMESPACES = { "kv_namespaces",
	"select namespace, keys from queen.kv_namespaces_v1($1)" };
static const struct pgstmt STMT_LIST = { "kv_list",
	"select row_no, verdict, key, value, version, expires_at, updated_at,"
	" expired from queen.kv_list_v1($1, $2, $3, $4, $5, $6, $7, $8)" };
/* clang-format on */

static bool
failed(struct hsrv_req *r, const struct err *e)
{
	struct kv_fault f;

	if (!e)
		return false;
	count_db_error(ctx_of(r));
	kv_ops_fault(e, &f);
	kv_reply_fault(r, &f);
	return true;
}

/* A read of one row; false after having replied. */
static bool
admit_read(struct hsrv_req *r)
{
	struct kvlimit_ask ask = { .kv = true };
	struct kvlimit_no no;

	if (kvlimit_admit(ctx_of(r), ctx_tenant(r), &ask, &no))
		return true;
	struct kv_fault f = { .status = no.status,
		.error = no.error,
		.reason = no.reason,
		.retry_after_s = no.retry_after_s };

	kv_reply_fault(r, &f);
	return false;
}

static void
on_namespaces(void *arg, const PGresult *res, const struct err *e)
{
	struct hsrv_req *r = arg;
	struct jwrite w;

	if (failed(r, e))
		return;
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "namespaces");
	jwrite_array(&w);
	for (int i = 0; i < PQntuples(res); i++) {
		jwrite_object(&w);
		jwrite_kv_str(&w, "namespace", pgbin_bytes(res, i, 0));
		jwrite_kv_i64(&w, "keys", pgbin_i64(res, i, 1));
		jwrite_end(&w);
	}
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
kv_namespaces(struct hsrv_req *r)
{
	struct pgargs a;

	if (!no_query(r) || !admit_read(r))
		return;
	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(r));
	pgpool_within(ctx_of(r)->pool, LANE_REST, WAIT_MS, &STMT_NAMESPACES, &a,
		NULL, on_namespaces, r);
}

static void
write_listed(struct jwrite *w, const PGresult *res, int row, bool keys_only)
{
	jwrite_object(w);
	jwrite_kv_str(w, "key", pgbin_bytes(res, row, 2));
	if (!keys_only)
		jwrite_kv_raw(w, "value", pgbin_bytes(res, row, 3));
	jwrite_kv_i64(w, "version", pgbin_i64(res, row, 4));
	jwrite_key(w, "expiresAt");
	if (pgbin_null(res, row, 5))
		jwrite_null(w);
	else
		jwrite_iso_us(w, pgbin_time(res, row, 5));
	jwrite_key(w, "updatedAt");
	jwrite_iso_us(w, pgbin_time(res, row, 6));
	jwrite_kv_bool(w, "expired", pgbin_bool(res, row, 7));
	jwrite_end(w);
}

static void
on_listed(void *arg, const PGresult *res, const struct err *e)
{
	struct listing *l = arg;
	struct hsrv_req *r = l->r;
	int own = e ? -1 : PQntuples(res) - 1;
	int64_t bytes = 0;
	struct jwrite w;

	if (failed(r, e))
		return;
	if (own < 0 || pgbin_i32(res, own, 0) != 0) {
		reply_missing(r);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "rows");
	jwrite_array(&w);
	for (int i = 0; i < own; i++) {
		write_listed(&w, res, i, l->keys_only);
		if (!l->keys_only)
			bytes += (int64_t)pgbin_bytes(res, i, 3).n;
	}
	jwrite_end(&w);
	jwrite_kv_bool(&w, "truncated", pgbin_i32(res, own, 1) != 0);
	jwrite_key(&w, "nextAfter");
	if (pgbin_null(res, own, 2))
		jwrite_null(&w);
	else
		jwrite_str(&w, pgbin_bytes(res, own, 2));
	jwrite_kv_i64(&w, "bytes", bytes);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

/* One member; NULL, or what is wrong with it. */
static const char *
list_member(struct hsrv_req *r, struct listing *l, struct span key,
	const struct jspan_val *v)
{
	struct span *text = span_is(key, "ns") || span_is(key, "namespace")
				    ? &l->ns
			    : span_is(key, "prefix") ? &l->prefix
			    : span_is(key, "after")  ? &l->after
						     : NULL;
	bool *flag = span_is(key, "keysOnly")         ? &l->keys_only
		     : span_is(key, "includeExpired") ? &l->expired
						      : NULL;

	if (v->type == JSPAN_NULL)
		return NULL;
	if (text && (v->type != JSPAN_STRING ||
			    !jspan_text(v, hsrv_arena(r), text) ||
			    (text->n && memchr(text->p, 0, text->n))))
		return "ns, prefix and after are strings without NUL";
	if (text && text->n > 512)
		return "prefix and after have at most 512 bytes";
	if (flag && v->type != JSPAN_BOOL)
		return "keysOnly and includeExpired are booleans";
	if (flag)
		*flag = v->truth;
	if (span_is(key, "limit") && !jspan_i64(v, &l->limit))
		return "limit is an integer";
	return NULL;
}

static void
send_list(struct listing *l)
{
	const struct settings *conf = ctx_of(l->r)->conf;
	struct pgargs a;

	if (l->limit > conf->kv_prefix_limit)
		l->limit = conf->kv_prefix_limit;
	if (l->limit < 1)
		l->limit = 1;
	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(l->r));
	pgargs_text(&a, l->ns);
	pgargs_text(&a, l->prefix);
	pgargs_text(&a, l->after);
	pgargs_i32(&a, (int32_t)l->limit);
	pgargs_bool(&a, l->keys_only);
	pgargs_bool(&a, l->expired);
	pgargs_i64(&a, conf->kv_max_read_bytes);
	pgpool_within(ctx_of(l->r)->pool, LANE_REST, WAIT_MS, &STMT_LIST, &a,
		NULL, on_listed, l);
}

void
kv_list(struct hsrv_req *r)
{
	struct listing *l = arena_zalloc(hsrv_arena(r), sizeof(*l));
	struct jspan_val v;
	struct jspan j;
	struct span key;
	const char *wrong = NULL;

	l->r = r;
	l->limit = 100;
	if (!no_query(r))
		return;
	jspan_open(&j, hsrv_body(r));
	if (jspan_enter_object(&j))
		while (!wrong && jspan_next_key(&j, hsrv_arena(r), &key) &&
			jspan_take(&j, &v))
			wrong = list_member(r, l, key, &v);
	if (wrong)
		refuse(r, "kv_bad_request", wrong);
	else if (j.error || !jspan_end(&j))
		bad_body(r, &j);
	else if (!kv_ops_is_namespace(l->ns))
		refuse(r, "kv_bad_namespace",
			"ns must match [a-z0-9][a-z0-9._-]{0,63}");
	else if (admit_read(r))
		send_list(l);
}
