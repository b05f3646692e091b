/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sinks of tenants: checked by the sink's own rules before anything is stored,
 * the secret sealed; no answer, log line or error holds it.
 */
#include "lake.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin.h"
#include "arena.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "keyring.h"
#include "pgbin.h"
#include "pgpool.h"
#include "s3conf.h"
#include "seal.h"
#include "settings.h"

enum { BODY_MAX_BYTES = 65536 };

static const struct pgstmt STMT_GET = { "lake_sink_get",
	"select cluster, enabled, config, updated_at"
	" from queen.lake_sink_get_v1($1)" };
static const struct pgstmt STMT_PUT = { "lake_sink_put",
	"select queen.lake_sink_put_v1($1, $2, $3, $4, $5)" };
static const struct pgstmt STMT_DELETE = { "lake_sink_delete",
	"select queen.lake_sink_delete_v1($1)" };
static const struct pgstmt STMT_RESUME = { "lake_resume",
	"select queen.lake_resume_v1($1, $2, $3, $4)" };

typedef void (*lake_fn)(struct hsrv_req *r, const PGresult *res);

/* What a request names and brings. */
struct lake {
	struct hsrv_req *r;
	struct qid tenant;
	char text[QID_TEXT_MAX];
	lake_fn done;
	/* PUT */
	struct span config, secret; /* secret: p NULL = none came */
	bool enabled;
};

static void __attribute__((format(printf, 4, 5)))
refuse(struct hsrv_req *r, int status, const char *code, const char *fmt, ...)
{
	char detail[1024];
	struct jwrite w;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "error", code);
	jwrite_kv_cstr(&w, "detail", detail);
	jwrite_end(&w);
	hsrv_reply(r, status);
}

/* ---- whose ---- */

static bool
is_nil(const struct qid *q)
{
	static const struct qid nil = { .b = { 0 } };

	return memcmp(q, &nil, sizeof(nil)) == 0;
}

/* NULL after having refused.  Who speaks for a tenant names no other one. */
static struct lake *
begin(struct hsrv_req *r)
{
	struct lake *l = arena_zalloc(hsrv_arena(r), sizeof(*l));
	struct span name = hsrv_param(r, 0);
	const struct qid *own = ctx_tenant(r);

	l->r = r;
	hsrv_set_user(r, l);
	if (span_is(name, "default"))
		name = SPAN_LIT(CTX_TENANT_DEFAULT);
	if (!qid_parse(name, &l->tenant) ||
		(!ctx_is_default_tenant(own) &&
			memcmp(own, &l->tenant, sizeof(*own)) != 0)) {
		refuse(r, 404, "cluster_unknown",
			"a cluster is named by the UUID of its tenant, or "
			"`default`");
		return NULL;
	}
	if (is_nil(&l->tenant) || (!ctx_of(r)->conf->tenancy_header &&
					  !ctx_is_default_tenant(&l->tenant))) {
		refuse(r, 409, "system_tenant", "%s",
			is_nil(&l->tenant)
				? "this tenant is the cell's own"
				: "QUEEN_TENANCY_HEADER is off: there are no "
				  "tenants but `default`");
		return NULL;
	}
	qid_text(&l->tenant, l->text);
	return l;
}

static void
on_done(void *arg, const PGresult *res, const struct err *e)
{
	struct lake *l = arg;

	if (!e) {
		l->done(l->r, res);
		return;
	}
	if (strcmp(e->sqlstate, "22001") == 0) {
		refuse(l->r, 413, "invalid", "the settings are too large");
		return;
	}
	count_db_error(ctx_of(l->r));
	refuse(l->r, 503, "unavailable", "%s",
		e->kind == ERR_DB_UNKNOWN
			? "the answer of the database was lost; read the sink "
			  "again to see what is stored"
			: e->text);
}

static void
call(struct lake *l, const struct pgstmt *s, struct pgargs *a, lake_fn done)
{
	l->done = done;
	pgpool_call(ctx_of(l->r)->pool, LANE_REST, s, a, on_done, l);
}

/* ---- GET ---- */

static void
on_get(struct hsrv_req *r, const PGresult *res)
{
	struct lake *l = hsrv_user(r);
	struct jwrite w;

	if (PQntuples(res) == 0) {
		refuse(r, 404, "s3_unset", "this cluster has no S3 sink");
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_str(&w, "cluster", pgbin_bytes(res, 0, 0));
	jwrite_kv_cstr(&w, "tenant", l->text);
	jwrite_kv_bool(&w, "enabled", pgbin_bool(res, 0, 1));
	jwrite_kv_raw(&w, "config", pgbin_bytes(res, 0, 2));
	jwrite_kv_bool(&w, "secretKeySet", true);
	jwrite_key(&w, "updatedAt");
	jwrite_iso_us(&w, pgbin_time(res, 0, 3));
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
show(struct lake *l)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &l->tenant);
	call(l, &STMT_GET, &a, on_get);
}

void
lake_get(struct hsrv_req *r)
{
	struct lake *l = begin(r);

	if (l)
		show(l);
}

/* ---- PUT ---- */

static void
on_put(struct hsrv_req *r, const PGresult *res)
{
	if (pgbin_i32(res, 0, 0) != 0)
		refuse(r, 400, "invalid",
			"secretKey: must come with the first write of a sink");
	else
		show(hsrv_user(r));
}

static void
store(struct lake *l)
{
	struct seal *seal = ctx_of(l->r)->seal;
	struct buf sealed = BUF_ZERO;
	char place[64];
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &l->tenant);
	pgargs_text(&a, hsrv_param(l->r, 0));
	pgargs_bool(&a, l->enabled);
	pgargs_text(&a, l->config);
	if (l->secret.p) {
		snprintf(place, sizeof(place), S3CONF_PLACE, l->text);
		seal_secret(seal, span_of(place), l->secret, &sealed);
		pgargs_text(&a, buf_span(&sealed));
	} else {
		pgargs_null(&a);
	}
	call(l, &STMT_PUT, &a, on_put);
	buf_fini(&sealed);
	/* it lies in the body or the arena, which are ours to write */
	if (l->secret.n)
		sodium_memzero((char *)(uintptr_t)l->secret.p, l->secret.n);
}

/* The two members that are not of the sink's settings. */
static bool
take_own(struct lake *l, struct span key, const struct jspan_val *v,
	const char **why)
{
	if (span_is(key, "enabled")) {
		*why = v->type == JSPAN_BOOL ? NULL
					     : "enabled: is not a boolean";
		l->enabled = v->truth;
		return true;
	}
	if (!span_is(key, "secretKey"))
		return false;
	*why = NULL;
	if (v->type == JSPAN_NULL)
		return true;
	if (v->type != JSPAN_STRING ||
		!jspan_text(v, hsrv_arena(l->r), &l->secret) ||
		l->secret.n == 0 || l->secret.n > S3CONF_SECRET_MAX ||
		memchr(l->secret.p, '\0', l->secret.n))
		*why = "secretKey: is not a string of 1 to 4096 bytes";
	return true;
}

/* False after having refused. */
static bool
read_body(struct lake *l)
{
	struct hsrv_req *r = l->r;
	struct buf config = BUF_ZERO;
	const char *why = NULL;
	struct jspan_val v;
	struct span key;
	struct jwrite w;
	struct jspan j;

	l->enabled = true;
	jspan_open(&j, hsrv_body(r));
	if (!jspan_enter_object(&j)) {
		refuse(r, 400, "invalid",
			"the body is not an object of settings");
		return false;
	}
	jwrite_init(&w, &config);
	jwrite_object(&w);
	while (!why && jspan_next_key(&j, hsrv_arena(r), &key) &&
		jspan_take(&j, &v)) {
		if (take_own(l, key, &v, &why))
			continue;
		jwrite_key_span(&w, key);
		jwrite_raw(&w, v.raw);
	}
	jwrite_end(&w);
	l->config = arena_dup(hsrv_arena(r), buf_span(&config));
	buf_fini(&config);
	if (!why && (j.error || !jspan_end(&j)))
		refuse(r, 400, "invalid",
			"the body is not JSON: %s at offset %zu", j.error,
			j.error_at);
	else if (why)
		refuse(r, 400, "invalid", "%s", why);
	return !why && !j.error;
}

/* The sink's own sentence when it is refused. */
static bool
check_config(struct lake *l)
{
	struct s3conf c;
	struct err e = ERR_ZERO;

	if (l->config.n > S3CONF_DOC_MAX) {
		refuse(l->r, 400, "invalid",
			"the settings have more than %d bytes", S3CONF_DOC_MAX);
		return false;
	}
	if (s3conf_from_doc(&c, l->config, &e) != 0) {
		refuse(l->r, 400, "invalid", "%s", e.text);
		return false;
	}
	s3conf_fini(&c);
	return true;
}

void
lake_put(struct hsrv_req *r)
{
	struct lake *l = begin(r);

	if (!l)
		return;
	if (hsrv_body(r).n > BODY_MAX_BYTES) {
		refuse(r, 413, "invalid", "a sink has at most %d bytes",
			BODY_MAX_BYTES);
		return;
	}
	if (!read_body(l) || !check_config(l))
		return;
	if (l->secret.p && !keyring_seals(ctx_of(r))) {
		refuse(r, 409, "encryption_required",
			"secretKey: this node cannot seal it; set "
			"QUEEN_ENCRYPTION_KEY, the same on every node");
		return;
	}
	store(l);
}

/* ---- DELETE ---- */

static void
on_delete(struct hsrv_req *r, const PGresult *res)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_str(&w, "cluster", hsrv_param(r, 0));
	jwrite_kv_bool(&w, "removed", pgbin_bool(res, 0, 0));
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
lake_delete(struct hsrv_req *r)
{
	struct lake *l = begin(r);
	struct pgargs a;

	if (!l)
		return;
	pgargs_init(&a);
	pgargs_uuid(&a, &l->tenant);
	call(l, &STMT_DELETE, &a, on_delete);
}

/* ---- resume ---- */

static void
on_resume(struct hsrv_req *r, const PGresult *res)
{
	struct jwrite w;

	if (!pgbin_bool(res, 0, 0)) {
		refuse(r, 404, "queue_unknown",
			"this cluster has no such queue, or that is no name "
			"of a sink");
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_str(&w, "cluster", hsrv_param(r, 0));
	jwrite_kv_bool(&w, "requested", true);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

struct resume {
	struct span queue, sink, prefix;
};

/* One member; false: another type, or none that is known. */
static bool
take_member(struct resume *x, struct span key, const struct jspan_val *v,
	struct arena *a)
{
	struct span *to = span_is(key, "queue")    ? &x->queue
			  : span_is(key, "sink")   ? &x->sink
			  : span_is(key, "prefix") ? &x->prefix
						   : NULL;

	if (to && v->type == JSPAN_NULL)
		return true;
	return to && v->type == JSPAN_STRING && jspan_text(v, a, to) &&
	       !memchr(to->p, '\0', to->n);
}

/* False after having refused. */
static bool
read_resume(struct hsrv_req *r, struct resume *x)
{
	struct jspan_val v;
	struct span key = SPAN_ZERO;
	struct jspan j;

	jspan_open(&j, hsrv_body(r));
	if (!jspan_enter_object(&j)) {
		refuse(r, 400, "invalid", "the body is not an object");
		return false;
	}
	while (jspan_next_key(&j, hsrv_arena(r), &key) && jspan_take(&j, &v))
		if (!take_member(x, key, &v, hsrv_arena(r))) {
			refuse(r, 400, "invalid",
				"%.*s: is not one of the texts queue, sink "
				"and prefix",
				SPAN_ARG(span_clip(key, 64)));
			return false;
		}
	if (j.error || !jspan_end(&j)) {
		refuse(r, 400, "invalid",
			"the body is not JSON: %s at offset %zu", j.error,
			j.error_at);
		return false;
	}
	return true;
}

void
lake_resume(struct hsrv_req *r)
{
	struct resume x = { .sink = SPAN_LIT("default") };
	struct lake *l = begin(r);
	struct pgargs a;

	if (!l || !read_resume(r, &x) || !admin_name(r, "queue", x.queue))
		return;
	if (x.prefix.p && !s3conf_prefix_ok(x.prefix)) {
		refuse(r, 400, "invalid",
			"prefix: is no path without empty, `.` and `..` "
			"segments");
		return;
	}
	pgargs_init(&a);
	pgargs_uuid(&a, &l->tenant);
	pgargs_text(&a, x.sink);
	pgargs_text(&a, x.queue);
	if (x.prefix.p)
		pgargs_text(&a, x.prefix);
	else
		pgargs_null(&a);
	call(l, &STMT_RESUME, &a, on_resume);
}
