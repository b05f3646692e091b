/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The purge of a tenant in bounded calls, each its own commit, for as long as
 * a request may take; `done` comes with the pass that found nothing.  A pass
 * that removed nothing and is not done met rows that others hold: the caller
 * comes again instead of us asking in a circle.
 */
#include "tenant.h"

#include <string.h>

#include "admin.h"
#include "arena.h"
#include "catalog.h"
#include "clk.h"
#include "ctx.h"
#include "gate.h"
#include "hsrv.h"
#include "settings.h"
#include "stats.h"

enum { BUDGET_MS = 5000, BUDGET_MAX_MS = 20000 };

struct purge {
	int64_t until_ms;
	bool allow_default;
};

static const struct pgstmt STMT_PURGE = { "tenant_purge",
	"select status, body, done, removed "
	"from queen.tenant_purge_pass_v1($1, $2::text::jsonb, $3)" };

static void on_pass(struct hsrv_req *r, const PGresult *res);

/* before: the answer so far, n = 0: none. */
static void
pass(struct hsrv_req *r, struct span before)
{
	struct purge *p = hsrv_user(r);
	struct pgargs a;

	admin_args(r, &a);
	admin_arg_name(&a, before);
	pgargs_bool(&a, p->allow_default);
	admin_call(r, &STMT_PURGE, &a, "purge", on_pass);
}

static void
on_pass(struct hsrv_req *r, const PGresult *res)
{
	struct purge *p = hsrv_user(r);
	bool ends = pgbin_bool(res, 0, 2) || pgbin_i64(res, 0, 3) == 0;

	if (!ends && clk_mono_ms() < p->until_ms) {
		pass(r, arena_dup(hsrv_arena(r), pgbin_bytes(res, 0, 1)));
		return;
	}
	catalog_refresh(ctx_of(r)->catalog);
	stats_forget(ctx_of(r));
	admin_reply(r, res);
}

/* The default tenant is everyone's who sends no header: not by mistake. */
static bool
check_default(struct hsrv_req *r, const struct purge *p)
{
	if (p->allow_default || !gate_is_default(ctx_tenant(r)))
		return true;
	hsrv_reply_error(r, 400,
		"%s purging the default tenant needs allowDefaultTenant=true",
		ctx_of(r)->conf->tenancy_header
			? "no x-queen-tenant header names another tenant:"
			: "this server reads no x-queen-tenant header:");
	return false;
}

void
tenant_purge(struct hsrv_req *r)
{
	struct purge *p = arena_zalloc(hsrv_arena(r), sizeof(*p));
	int32_t budget_ms;

	if (!admin_query_bool(
		    r, "allowDefaultTenant", false, &p->allow_default) ||
		!admin_query_int(
			r, "budgetMs", BUDGET_MS, BUDGET_MAX_MS, &budget_ms) ||
		!check_default(r, p))
		return;
	p->until_ms = clk_mono_ms() + budget_ms;
	hsrv_set_user(r, p);
	pass(r, (struct span)SPAN_ZERO);
}
