/* SPDX-License-Identifier: Apache-2.0 */
/* The lists for people: namespaces, and a page of one. */
#include "kv.h"

#include "arena.h"
#include "ctx.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "kv_call.h"
#include "kv_ops.h"
#include "kv_reply.h"
#include "kv_value.h"
#include "ops_body.h"
#include "pgbin.h"
#include "pgpool.h"
#include "settings.h"

/* Of a key, as the database has it. */
enum { TEXT_MAX_BYTES = 512 };

/* clang-format off */
static const struct pgstmt STMT_NAMESPACES = { "kv_namespaces",
	"select namespace, keys from queen.kv_namespaces_v1($1)" };
static const struct pgstmt STMT_LIST = { "kv_list",
	"select row_no, verdict, key, value, version, expires_at, updated_at,"
	" expired from queen.kv_list_v1($1, $2, $3, $4, $5, $6, $7, $8)" };
/* clang-format on */

struct listing {
	struct kv_call call;
	struct span ns, prefix, after;
	int64_t limit;
	bool keys_only, expired;
};

/* ---- namespaces ---- */

static void
on_namespaces(struct kv_call *c, const PGresult *res)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(c->r));
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
	hsrv_reply(c->r, 200);
}

void
kv_namespaces(struct hsrv_req *r)
{
	struct kv_call *c;

	if (!kv_no_query(r))
		return;
	c = arena_zalloc(hsrv_arena(r), sizeof(*c));
	c->r = r;
	c->stmt = &STMT_NAMESPACES;
	c->answer = on_namespaces;
	kv_call_start(c);
}

/* ---- a page of one ---- */

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
write_page(struct jwrite *w, const PGresult *res, int own, bool keys_only)
{
	int64_t bytes = 0;

	jwrite_object(w);
	jwrite_key(w, "rows");
	jwrite_array(w);
	for (int i = 0; i < own; i++) {
		write_listed(w, res, i, keys_only);
		if (!keys_only)
			bytes += (int64_t)pgbin_bytes(res, i, 3).n;
	}
	jwrite_end(w);
	jwrite_kv_bool(w, "truncated", pgbin_i32(res, own, 1) != 0);
	jwrite_key(w, "nextAfter");
	if (pgbin_null(res, own, 2))
		jwrite_null(w);
	else
		jwrite_str(w, pgbin_bytes(res, own, 2));
	jwrite_kv_i64(w, "bytes", bytes);
	jwrite_end(w);
}

static void
on_listed(struct kv_call *c, const PGresult *res)
{
	int own = PQntuples(res) - 1;
	struct jwrite w;

	if (own < 0 || pgbin_i32(res, own, 0) != 0) {
		kv_reply_missing(c->r);
		return;
	}
	jwrite_init(&w, hsrv_out(c->r));
	write_page(&w, res, own, ((struct listing *)c)->keys_only);
	hsrv_reply(c->r, 200);
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
	if (flag && v->type != JSPAN_BOOL)
		return "keysOnly and includeExpired are booleans";
	if (flag)
		*flag = v->truth;
	if (span_is(key, "limit") &&
		(v->type != JSPAN_NUMBER ||
			!kv_value_clamped(v->raw, &l->limit)))
		return "limit is an integer";
	return NULL;
}

/* False after having replied. */
static bool
read_listing(struct hsrv_req *r, struct listing *l)
{
	struct jspan_val v;
	struct jspan j;
	struct span key;
	const char *wrong = NULL;

	jspan_open(&j, hsrv_body(r));
	if (jspan_enter_object(&j))
		while (!wrong && jspan_next_key(&j, hsrv_arena(r), &key) &&
			jspan_take(&j, &v)) {
			if (ops_body_names_tenant(key)) {
				kv_reply_tenant(r);
				return false;
			}
			wrong = list_member(r, l, key, &v);
		}
	if (wrong)
		kv_reply_bad(r, "kv_bad_request", wrong);
	else if (j.error || !jspan_end(&j))
		kv_reply_bad_body(r, &j);
	else if (!kv_ops_is_namespace(l->ns))
		kv_reply_bad(r, "kv_bad_namespace",
			"ns must match [a-z0-9][a-z0-9._-]{0,63}");
	else if (l->prefix.n > TEXT_MAX_BYTES || l->after.n > TEXT_MAX_BYTES)
		kv_reply_large(r, "kv_key_too_large",
			"prefix and after have at most 512 bytes");
	else
		return true;
	return false;
}

static void
add_args(struct kv_call *c, struct pgargs *a)
{
	const struct settings *conf = ctx_of(c->r)->conf;
	const struct listing *l = (struct listing *)c;
	int64_t limit = l->limit > conf->kv_prefix_limit ? conf->kv_prefix_limit
							 : l->limit;

	pgargs_text(a, l->ns);
	pgargs_text(a, l->prefix);
	pgargs_text(a, l->after);
	pgargs_i32(a, limit < 1 ? 1 : (int32_t)limit);
	pgargs_bool(a, l->keys_only);
	pgargs_bool(a, l->expired);
	pgargs_i64(a, conf->kv_max_read_bytes);
}

void
kv_list(struct hsrv_req *r)
{
	struct listing *l = arena_zalloc(hsrv_arena(r), sizeof(*l));

	l->limit = 100;
	if (!kv_no_query(r) || !read_listing(r, l))
		return;
	l->call = (struct kv_call){ .r = r,
		.stmt = &STMT_LIST,
		.args = add_args,
		.answer = on_listed };
	kv_call_start(&l->call);
}
