/* SPDX-License-Identifier: Apache-2.0 */
/* The list of workflows, the newest first. */
#include "workflow.h"

#include <string.h>

#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "page.h"
#include "workflow_int.h"

static const struct pgstmt list_stmt = { .name = "ojs_workflow_list",
	.sql = "select " WORKFLOW_HEAD_SQL ", overall "
	       "from queen.workflow_list_v1($1, $2, $3, $4, $5)" };

enum { LIST_OVERALL = WORKFLOW_HEAD_COLUMNS };

/* The sort key of a row, as it goes into a cursor. */
struct key {
	int64_t created_us;
	struct qid id;
};

struct list {
	struct page page;
	struct key after;
};

/* Times a client cannot bring about are refused by the database. */
static bool
after_ok(struct list *l)
{
	if (l->page.cursor.n == 0)
		return true;
	if (l->page.cursor.n != sizeof(l->after))
		return false;
	memcpy(&l->after, l->page.cursor.p, sizeof(l->after));
	return page_time_ok(l->after.created_us);
}

static void
fill(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct list *l = arg;
	bool from = l->page.cursor.n > 0;

	pgargs_uuid(a, ctx_tenant(r));
	if (from) {
		pgargs_time(a, l->after.created_us);
		pgargs_uuid(a, &l->after.id);
	} else {
		pgargs_null(a);
		pgargs_null(a);
	}
	pgargs_i64(a, from ? 0 : l->page.offset);
	pgargs_i32(a, l->page.limit + 1);
}

/* Row 0 holds the overall number alone. */
static void
listed(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct list *l = arg;
	int n = PQntuples(res) - 1;
	bool more = n > l->page.limit;
	struct key last = { .created_us = 0 };
	struct jwrite w;

	if (more)
		n = l->page.limit;
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "workflows");
	jwrite_array(&w);
	for (int i = 1; i <= n; i++) {
		struct workflow_head h = workflow_head(res, i);

		jwrite_object(&w);
		workflow_head_write(&w, &h);
		jwrite_end(&w);
		last.created_us = h.created_us;
		last.id = h.id;
	}
	jwrite_end(&w);
	page_write(&w, &l->page, pgbin_i64(res, 0, LIST_OVERALL), more,
		span_make(&last, sizeof(last)));
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
workflow_list(struct hsrv_req *r)
{
	struct list *l = arena_zalloc(hsrv_arena(r), sizeof(*l));
	struct call c = { .stmt = &list_stmt, .lane = LANE_REST };
	struct problem p;

	if (page_parse(r, 0, 0, &l->page, &p) != 0) {
		reply_problem(r, &p);
		return;
	}
	if (!after_ok(l)) {
		reply_no(r, 400, "invalid_request", "\"field\":\"cursor\"",
			"`cursor` is none that this list gave.");
		return;
	}
	c.fill = fill;
	c.done = listed;
	c.arg = l;
	call_run(r, &c);
}
