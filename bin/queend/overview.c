/* SPDX-License-Identifier: Apache-2.0 */
/* The status pages that are computed from the tables; see stats.h. */
#include "status.h"

#include "admin.h"
#include "ctx.h"
#include "hsrv.h"
#include "settings.h"
#include "stats.h"
#include "window.h"

enum { STATUS_LIMIT = 100 };

static const struct pgstmt STMT_STATUS = { "status",
	"select status, body from queen.status_v2($1, $2, $3, $4, $5, $6)" };
static const struct pgstmt STMT_QUEUES = { "status_queues",
	"select status, body "
	"from queen.status_queues_v1($1, $2, $3, $4, $5, $6)" };
static const struct pgstmt STMT_QUEUE = { "status_queue",
	"select status, body from queen.status_queue_v1($1, $2)" };
static const struct pgstmt STMT_ANALYTICS = { "status_analytics",
	"select status, body "
	"from queen.status_analytics_v1($1, $2, $3, $4, $5, $6, $7)" };

/* Who names a tenant sees that one; the operator, who names none, the cell. */
static void
put_tenant(struct hsrv_req *r, struct pgargs *a)
{
	struct span s;

	if (ctx_of(r)->conf->tenancy_header &&
		hsrv_header(r, "x-queen-tenant", &s) && s.n)
		pgargs_uuid(a, ctx_tenant(r));
	else
		pgargs_null(a);
}

void
status_overview(struct hsrv_req *r)
{
	struct window w;
	struct pgargs a;

	if (!window_read(r, WINDOW_HOUR_S, &w))
		return;
	pgargs_init(&a);
	put_tenant(r, &a);
	window_times(&a, &w);
	window_filters(&a, &w);
	stats_pass(r, STATS_SUMMARY, &STMT_STATUS, &a, "status");
}

void
status_queues(struct hsrv_req *r)
{
	struct window w;
	struct pgargs a;
	int32_t limit, offset;

	if (!window_read(r, WINDOW_HOUR_S, &w) ||
		!admin_query_int(
			r, "limit", STATUS_LIMIT, ADMIN_PAGE_MAX, &limit) ||
		!admin_query_int(r, "offset", 0, INT32_MAX, &offset))
		return;
	admin_args(r, &a);
	window_filters(&a, &w);
	pgargs_i32(&a, limit);
	pgargs_i32(&a, offset);
	stats_pass(r, STATS_LIVE, &STMT_QUEUES, &a, "status");
}

void
status_queue(struct hsrv_req *r)
{
	struct pgargs a;

	if (!admin_name(r, "queue", hsrv_param(r, 0)))
		return;
	admin_args(r, &a);
	pgargs_text(&a, hsrv_param(r, 0));
	stats_pass(r, STATS_LIVE, &STMT_QUEUE, &a, "status");
}

void
status_analytics(struct hsrv_req *r)
{
	struct window w;
	struct span interval = SPAN_ZERO;
	struct pgargs a;

	if (!window_read(r, WINDOW_DAY_S, &w) ||
		!admin_query_name(r, "interval", &interval))
		return;
	admin_args(r, &a);
	window_times(&a, &w);
	pgargs_text(&a, interval);
	window_filters(&a, &w);
	stats_pass(r, STATS_SUMMARY, &STMT_ANALYTICS, &a, "analytics");
}
