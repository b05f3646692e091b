/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every path queend serves.  Order matters where a literal and a parameter
 * could both match: the literal comes first.
 */
#include "route.h"

#include "ack.h"
#include "analytics.h"
#include "changed.h"
#include "connector.h"
#include "dead.h"
#include "fetch.h"
#include "group.h"
#include "identity.h"
#include "jwrite.h"
#include "kv.h"
#include "lake.h"
#include "lease.h"
#include "message.h"
#include "pop.h"
#include "push.h"
#include "queue.h"
#include "status.h"
#include "system.h"
#include "tenant.h"
#include "timer.h"
#include "trace.h"
#include "txn.h"

#define API "/api/v1"
#define CG API "/consumer-groups"
#define RES API "/resources"
#define LAKE "/api/cp/clusters/:cluster/s3"

/* clang-format off */
const struct hsrv_route route_table[] = {
	{ HSRV_POST, API "/push", push_post, ROUTE_WRITE },
	{ HSRV_GET, API "/pop/queue/:queue", pop_queue, ROUTE_READ_WRITE },
	{ HSRV_GET, API "/pop/queue/:queue/partition/:partition",
	  pop_partition, ROUTE_READ_WRITE },
	{ HSRV_GET, API "/pop", pop_discover, ROUTE_READ_WRITE },
	{ HSRV_POST, API "/ack", ack_one, ROUTE_READ_WRITE },
	{ HSRV_POST, API "/ack/batch", ack_batch, ROUTE_READ_WRITE },
	{ HSRV_POST, API "/lease/:leaseId/extend", lease_extend,
	  ROUTE_READ_WRITE },
	{ HSRV_POST, API "/transaction", txn_post, ROUTE_READ_WRITE },
	{ HSRV_POST, API "/fetch", fetch_post, ROUTE_READ },
	{ HSRV_POST, API "/partitions/changed", changed_post, ROUTE_READ },

	{ HSRV_POST, API "/kv", kv_post, ROUTE_READ_WRITE },
	{ HSRV_GET, API "/kv/:ns/*key", kv_get, ROUTE_READ },
	{ HSRV_PUT, API "/kv/:ns/*key", kv_put, ROUTE_READ_WRITE },
	{ HSRV_DELETE, API "/kv/:ns/*key", kv_delete, ROUTE_READ_WRITE },
	{ HSRV_GET, RES "/kv/namespaces", kv_namespaces, ROUTE_READ },
	{ HSRV_POST, RES "/kv/list", kv_list, ROUTE_READ },

	{ HSRV_POST, API "/timers", timer_post, ROUTE_WRITE },
	{ HSRV_GET, API "/timers/:queue", timer_list, ROUTE_READ },
	{ HSRV_GET, API "/timers/:queue/*timerKey", timer_get, ROUTE_READ },
	{ HSRV_DELETE, API "/timers/:queue/*timerKey", timer_delete,
	  ROUTE_READ_WRITE },

	{ HSRV_POST, API "/configure", queue_configure, ROUTE_READ_WRITE },
	{ HSRV_GET, RES "/queues", queue_list, ROUTE_READ },
	{ HSRV_GET, RES "/queues/:queue", queue_get, ROUTE_READ },
	{ HSRV_GET, RES "/queues/:queue/depth", queue_depth, ROUTE_READ },
	{ HSRV_DELETE, RES "/queues/:queue", queue_delete, ROUTE_ADMIN },
	{ HSRV_DELETE, RES "/tenant", tenant_purge, ROUTE_ADMIN },
	{ HSRV_GET, RES "/overview", queue_overview, ROUTE_READ },
	{ HSRV_GET, RES "/namespaces", queue_namespaces, ROUTE_READ },
	{ HSRV_GET, RES "/tasks", queue_tasks, ROUTE_READ },

	{ HSRV_GET, API "/connectors", connector_list, ROUTE_READ },
	{ HSRV_GET, API "/connectors/:name", connector_get, ROUTE_READ },
	{ HSRV_PUT, API "/connectors/:name", connector_put, ROUTE_ADMIN },
	{ HSRV_DELETE, API "/connectors/:name", connector_delete, ROUTE_ADMIN },
	{ HSRV_POST, API "/connectors/:name/resync", connector_resync,
	  ROUTE_ADMIN },
	{ HSRV_POST, API "/connectors/:name/adopt", connector_adopt,
	  ROUTE_ADMIN },
	{ HSRV_POST, API "/connectors/:name/reset", connector_reset,
	  ROUTE_ADMIN },

	{ HSRV_GET, LAKE, lake_get, ROUTE_ADMIN },
	{ HSRV_PUT, LAKE, lake_put, ROUTE_ADMIN },
	{ HSRV_DELETE, LAKE, lake_delete, ROUTE_ADMIN },
	{ HSRV_POST, LAKE "/resume", lake_resume, ROUTE_ADMIN },

	{ HSRV_GET, CG, group_list, ROUTE_READ },
	{ HSRV_GET, CG "/lagging", group_lagging, ROUTE_READ },
	{ HSRV_GET, CG "/:group", group_get, ROUTE_READ },
	{ HSRV_POST, CG "/:group/subscription", group_subscription,
	  ROUTE_READ_WRITE },
	{ HSRV_POST, CG "/:group/queues/:queue/seek", group_seek,
	  ROUTE_READ_WRITE },
	{ HSRV_POST, CG "/:group/queues/:queue/partitions/:partition/seek",
	  group_seek_partition, ROUTE_READ_WRITE },
	{ HSRV_DELETE, CG "/:group", group_delete, ROUTE_ADMIN },
	{ HSRV_DELETE, CG "/:group/queues/:queue", group_delete_queue,
	  ROUTE_ADMIN },

	{ HSRV_GET, API "/messages", message_list, ROUTE_READ },
	{ HSRV_GET, API "/messages/:partitionId/:transactionId", message_get,
	  ROUTE_READ },
	{ HSRV_DELETE, API "/messages/:partitionId/:transactionId",
	  message_delete, ROUTE_READ_WRITE },
	{ HSRV_POST, API "/messages/:partitionId/:transactionId/retry",
	  dead_retry, ROUTE_READ_WRITE },
	{ HSRV_GET, API "/dlq", dead_list, ROUTE_READ },
	{ HSRV_POST, API "/dlq/:id/replay", dead_replay, ROUTE_READ_WRITE },
	{ HSRV_DELETE, API "/dlq", dead_purge, ROUTE_ADMIN },

	{ HSRV_POST, API "/traces", trace_post, ROUTE_READ_WRITE },
	{ HSRV_GET, API "/traces/names", trace_names, ROUTE_READ },
	{ HSRV_GET, API "/traces/by-name/:traceName", trace_by_name,
	  ROUTE_READ },
	{ HSRV_GET, API "/traces/:partitionId/:transactionId", trace_get,
	  ROUTE_READ },

	{ HSRV_GET, "/auth/me", identity_me, ROUTE_PUBLIC },
	{ HSRV_GET, "/auth/login", identity_login, ROUTE_PUBLIC },
	{ HSRV_POST, "/auth/logout", identity_logout, ROUTE_PUBLIC },

	{ HSRV_GET, "/health", status_health, ROUTE_PUBLIC },
	{ HSRV_GET, "/healthz", status_health, ROUTE_PUBLIC },
	{ HSRV_GET, "/status", status_process, ROUTE_READ },
	{ HSRV_GET, API "/status", status_overview, ROUTE_READ },
	{ HSRV_GET, API "/status/queues", status_queues, ROUTE_READ },
	{ HSRV_GET, API "/status/queues/:queue", status_queue, ROUTE_READ },
	{ HSRV_GET, API "/status/analytics", status_analytics, ROUTE_READ },
	{ HSRV_GET, API "/status/buffers", status_buffers, ROUTE_READ },
	{ HSRV_GET, "/metrics", status_metrics, ROUTE_PUBLIC },
	{ HSRV_GET, "/metrics/prometheus", status_prometheus, ROUTE_PUBLIC },

	{ HSRV_GET, API "/analytics/queue-lag", analytics_queue_lag,
	  ROUTE_READ },
	{ HSRV_GET, API "/analytics/queue-ops", analytics_queue_ops,
	  ROUTE_READ },
	{ HSRV_GET, API "/analytics/retention", analytics_retention,
	  ROUTE_READ },
	{ HSRV_GET, API "/analytics/postgres-stats", analytics_postgres,
	  ROUTE_READ },

	{ HSRV_GET, API "/system/maintenance", system_maintenance_get,
	  ROUTE_ADMIN },
	{ HSRV_POST, API "/system/maintenance", system_maintenance_post,
	  ROUTE_ADMIN },
	{ HSRV_GET, API "/system/maintenance/pop", system_pop_get,
	  ROUTE_ADMIN },
	{ HSRV_POST, API "/system/maintenance/pop", system_pop_post,
	  ROUTE_ADMIN },
	{ HSRV_GET, API "/system/kv-timers", system_kv_timers_get,
	  ROUTE_ADMIN },
	{ HSRV_POST, API "/system/kv-timers", system_kv_timers_post,
	  ROUTE_ADMIN },
	{ HSRV_GET, API "/system/shared-state", system_shared_state,
	  ROUTE_ADMIN },
	{ HSRV_POST, API "/stats/refresh", system_stats_refresh, ROUTE_ADMIN },
	{ HSRV_POST, "/internal/api/notify", system_notify, ROUTE_ADMIN },
	{ HSRV_GET, "/internal/api/shared-state/stats", system_peers,
	  ROUTE_ADMIN },
	{ HSRV_GET, "/internal/api/inter-instance/stats", system_peers,
	  ROUTE_ADMIN },
};

const struct hsrv_route route_metrics_table[] = {
	{ HSRV_GET, "/health", status_health, ROUTE_PUBLIC },
	{ HSRV_GET, "/healthz", status_health, ROUTE_PUBLIC },
	{ HSRV_GET, "/metrics", status_metrics, ROUTE_PUBLIC },
	{ HSRV_GET, "/metrics/prometheus", status_prometheus, ROUTE_PUBLIC },
};
/* clang-format on */

const size_t route_table_n = sizeof(route_table) / sizeof(route_table[0]);
const size_t route_metrics_table_n =
	sizeof(route_metrics_table) / sizeof(route_metrics_table[0]);

void
route_unmatched(struct hsrv_req *r)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "error", "Not Found");
	jwrite_kv_cstr(&w, "code", "no_such_route");
	jwrite_end(&w);
	hsrv_reply(r, 404);
}
