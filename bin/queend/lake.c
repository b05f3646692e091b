/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sinks of tenants: whose they are, shown and removed.  No answer, log line or
 * error holds a secret.
 */
#include "lake_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "gate.h"
#include "hsrv.h"
#include "jwrite.h"
#include "pgpool.h"
#include "settings.h"

static const struct pgstmt STMT_GET = { "lake_sink_get",
	"select cluster, enabled, config, updated_at"
	" from queen.lake_sink_get_v1($1)" };
static const struct pgstmt STMT_DELETE = { "lake_sink_delete",
	"select queen.lake_sink_delete_v1($1)" };

void
lake_refuse(
	struct hsrv_req *r, int status, const char *code, const char *fmt, ...)
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

struct lake *
lake_begin(struct hsrv_req *r)
{
	struct lake *l = arena_zalloc(hsrv_arena(r), sizeof(*l));
	struct span name = hsrv_param(r, 0);
	const struct qid *own = ctx_tenant(r);

	l->r = r;
	l->too_large = "the settings are too large";
	hsrv_set_user(r, l);
	if (span_is(name, "default"))
		name = SPAN_LIT(GATE_TENANT_DEFAULT);
	if (!qid_parse(name, &l->tenant) ||
		(!gate_is_default(own) &&
			memcmp(own, &l->tenant, sizeof(*own)) != 0)) {
		lake_refuse(r, 404, "cluster_unknown",
			"a cluster is named by the UUID of its tenant, or "
			"`default`");
		return NULL;
	}
	if (is_nil(&l->tenant) || (!ctx_of(r)->conf->tenancy_header &&
					  !gate_is_default(&l->tenant))) {
		lake_refuse(r, 409, "system_tenant", "%s",
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
		lake_refuse(l->r, 400, "invalid", "%s", l->too_large);
		return;
	}
	count_db_error(ctx_of(l->r));
	lake_refuse(l->r, 503, "unavailable", "%s",
		e->kind == ERR_DB_UNKNOWN
			? "the answer of the database was lost; read the sink "
			  "again to see what is stored"
			: e->text);
}

void
lake_call(
	struct lake *l, const struct pgstmt *s, struct pgargs *a, lake_fn done)
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
		lake_refuse(r, 404, "s3_unset", "this cluster has no S3 sink");
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

void
lake_show(struct lake *l)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &l->tenant);
	lake_call(l, &STMT_GET, &a, on_get);
}

void
lake_get(struct hsrv_req *r)
{
	struct lake *l = lake_begin(r);

	if (l)
		lake_show(l);
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
	struct lake *l = lake_begin(r);
	struct pgargs a;

	if (!l)
		return;
	pgargs_init(&a);
	pgargs_uuid(&a, &l->tenant);
	lake_call(l, &STMT_DELETE, &a, on_delete);
}
