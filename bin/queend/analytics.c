/* SPDX-License-Identifier: Apache-2.0 */
/* GET /api/v1/analytics/...: each is one function of 670_analytics.sql. */
#include "analytics.h"

#include "admin.h"
#include "hsrv.h"
#include "stats.h"
#include "window.h"

static const struct pgstmt STMT_LAG = { "analytics_lag",
	"select status, body from queen.analytics_lag_v1($1, $2, $3, $4)" };
static const struct pgstmt STMT_OPS = { "analytics_ops",
	"select status, body from queen.analytics_ops_v1($1, $2, $3, $4)" };
static const struct pgstmt STMT_RETENTION = { "analytics_retention",
	"select status, body "
	"from queen.analytics_retention_v1($1, $2, $3, $4, $5)" };
static const struct pgstmt STMT_POSTGRES = { "analytics_postgres",
	"select status, body from queen.analytics_postgres_v1()" };

static void
pass_window(struct hsrv_req *r, const struct pgstmt *s)
{
	struct window w;
	struct pgargs a;

	if (!window_read(r, WINDOW_HOUR_S, &w))
		return;
	admin_args(r, &a);
	window_times(&a, &w);
	admin_arg_name(&a, w.queue);
	stats_pass(r, STATS_SUMMARY, s, &a, "analytics");
}

void
analytics_queue_lag(struct hsrv_req *r)
{
	pass_window(r, &STMT_LAG);
}

void
analytics_queue_ops(struct hsrv_req *r)
{
	pass_window(r, &STMT_OPS);
}

void
analytics_retention(struct hsrv_req *r)
{
	struct window w;
	struct span by = SPAN_ZERO;
	struct pgargs a;

	if (!window_read(r, WINDOW_HOUR_S, &w))
		return;
	hsrv_query(r, "groupBy", &by);
	if (by.n && !span_is(by, "namespace") && !span_is(by, "task") &&
		!span_is(by, "queue")) {
		hsrv_reply_error(r, 400, "bad groupBy");
		return;
	}
	admin_args(r, &a);
	window_times(&a, &w);
	admin_arg_name(&a, w.queue);
	admin_arg_name(&a, by);
	stats_pass(r, STATS_SUMMARY, &STMT_RETENTION, &a, "analytics");
}

void
analytics_postgres(struct hsrv_req *r)
{
	struct pgargs a;

	pgargs_init(&a);
	stats_pass(r, STATS_SUMMARY, &STMT_POSTGRES, &a, "postgres-stats");
}
