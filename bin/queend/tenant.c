/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The purge of a tenant in bounded calls, each its own commit, for as long as
 * a request may take; `done` comes with the pass that found nothing.
 */
#include "tenant.h"

#include <string.h>

#include "admin.h"
#include "arena.h"
#include "catalog.h"
#include "clk.h"
#include "ctx.h"
#include "hsrv.h"
#include "stats.h"

enum { BUDGET_MS = 5000 };

struct purge {
	int64_t until_ms;
};

static const struct pgstmt STMT_PURGE = { "tenant_purge",
	"select 200, p::text, (p->>'done')::boolean "
	"from queen.tenant_purge_v1($1) p" };

static void
on_step(struct hsrv_req *r, const PGresult *res)
{
	struct purge *p = hsrv_user(r);
	struct pgargs a;

	if (!pgbin_bool(res, 0, 2) && clk_mono_ms() < p->until_ms) {
		admin_args(r, &a);
		admin_call(r, &STMT_PURGE, &a, "purge", on_step);
		return;
	}
	catalog_refresh(ctx_of(r)->catalog);
	stats_forget(ctx_of(r));
	admin_reply(r, res);
}

/* The default tenant is everyone's who sends no header: not in this way. */
void
tenant_purge(struct hsrv_req *r)
{
	static const struct qid dflt = { .b = { [15] = 1 } };
	struct purge *p = arena_zalloc(hsrv_arena(r), sizeof(*p));
	struct pgargs a;

	if (memcmp(ctx_tenant(r), &dflt, sizeof(dflt)) == 0) {
		hsrv_reply_error(r, 403, "the default tenant is not purged");
		return;
	}
	p->until_ms = clk_mono_ms() + BUDGET_MS;
	hsrv_set_user(r, p);
	admin_args(r, &a);
	admin_call(r, &STMT_PURGE, &a, "purge", on_step);
}
