/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tools report about connectors, in /status and in the metrics, and
 * the guard of consumer groups that belong to a sink.
 */
#include <stdlib.h>

#include "admin.h"
#include "arena.h"
#include "buf.h"
#include "connector_int.h"
#include "connmetric.h"
#include "ctx.h"
#include "err.h"
#include "gate.h"
#include "hsrv.h"
#include "jwrite.h"
#include "metric.h"
#include "pgpool.h"

static const struct pgstmt STMT_STATUS = { "connector_status",
	"select name, kind, status from queen.connector_status_list_v1($1)" };
static const struct pgstmt STMT_GROUP = { "connector_group",
	"select queen.connector_group_v1($1, $2, $3)" };
const struct pgstmt connector_metrics_stmt = {
	"connector_metrics",
	"select family, tenant, name, value from queen.connector_metrics_v1()"
};

/* ---- /status ---- */

struct show {
	struct hsrv_req *r;
	connector_pg_fn done;
};

static void
write_block(struct jwrite *w, struct hsrv_req *r, const PGresult *res, int i)
{
	if (!pgbin_null(res, i, 2)) {
		jwrite_raw(w, pgbin_bytes(res, i, 2));
		return;
	}
	jwrite_object(w);
	jwrite_key(w, "tenant");
	jwrite_qid(w, ctx_tenant(r));
	jwrite_kv_str(w, "name", pgbin_bytes(res, i, 0));
	if (pgbin_null(res, i, 1))
		jwrite_kv_null(w, "kind");
	else
		jwrite_kv_str(w, "kind", pgbin_bytes(res, i, 1));
	jwrite_kv_cstr(w, "phase", "unknown");
	jwrite_end(w);
}

static void
on_status(void *arg, const PGresult *res, const struct err *e)
{
	struct show *s = arg;
	struct buf b = BUF_ZERO;
	struct jwrite w;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "mode", "process");
	jwrite_key(&w, "connectors");
	if (e) {
		jwrite_null(&w);
	} else {
		jwrite_array(&w);
		for (int i = 0; i < PQntuples(res); i++)
			write_block(&w, s->r, res, i);
		jwrite_end(&w);
	}
	jwrite_end(&w);
	s->done(s->r, buf_span(&b));
	buf_fini(&b);
}

void
connector_status(struct hsrv_req *r, connector_pg_fn done)
{
	struct show *s = arena_alloc(hsrv_arena(r), sizeof(*s));
	struct pgargs a;

	*s = (struct show){ .r = r, .done = done };
	admin_args(r, &a);
	pgpool_call(ctx_of(r)->pool, LANE_REST, &STMT_STATUS, &a, on_status, s);
}

/* ---- metrics ---- */

static void
write_one(struct buf *b, const char *name, const PGresult *res, int i)
{
	struct qid tenant = pgbin_uuid(res, i, 1), dflt;
	struct metric_label l[2];
	char text[QID_TEXT_MAX];
	struct span value = pgbin_bytes(res, i, 3);
	int n = 0;

	if (!qid_parse(SPAN_LIT(GATE_TENANT_DEFAULT), &dflt) ||
		memcmp(&dflt, &tenant, sizeof(dflt)) != 0)
		l[n++] = (struct metric_label){ "tenant",
			span_of(qid_text(&tenant, text)) };
	l[n++] = (struct metric_label){ "connector", pgbin_bytes(res, i, 2) };
	metric_u64(b, name, l, n,
		value.n && value.p[0] != '-' && value.n < 21
			? strtoull(value.p, NULL, 10)
			: 0);
}

/* What a tool reports beside the known families is left out. */
void
connector_metrics_write(struct buf *b, const PGresult *res)
{
	for (int f = 0; f < CONNMETRIC_N; f++) {
		const struct connmetric *m = &connmetric_table[f];
		bool told = false;

		for (int i = 0; i < PQntuples(res); i++) {
			if (!span_is(pgbin_bytes(res, i, 0), m->name) ||
				pgbin_null(res, i, 3))
				continue;
			if (!told)
				metric_head(b, m->name, m->type, m->help);
			told = true;
			write_one(b, m->name, res, i);
		}
	}
}

/* ---- groups ---- */

struct guard {
	struct hsrv_req *r;
	void (*go)(struct hsrv_req *r);
};

static void
on_group(void *arg, const PGresult *res, const struct err *e)
{
	struct guard *g = arg;

	if (e)
		admin_fail(g->r, "connector group", e);
	else if (pgbin_null(res, 0, 0))
		g->go(g->r);
	else
		connector_refuse(g->r, 409, "connector_group",
			"the sink %.*s reads with this group and would apply "
			"messages twice or never; use POST "
			"/api/v1/connectors/%.*s/resync, or delete the sink",
			SPAN_ARG(pgbin_bytes(res, 0, 0)),
			SPAN_ARG(pgbin_bytes(res, 0, 0)));
}

void
connector_guard(struct hsrv_req *r, struct span group, struct span queue,
	void (*go)(struct hsrv_req *r))
{
	struct guard *g = arena_alloc(hsrv_arena(r), sizeof(*g));
	struct pgargs a;

	*g = (struct guard){ .r = r, .go = go };
	admin_args(r, &a);
	pgargs_text(&a, group);
	admin_arg_name(&a, queue);
	pgpool_call(ctx_of(r)->pool, LANE_REST, &STMT_GROUP, &a, on_group, g);
}
