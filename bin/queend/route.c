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
#include "gate.h"
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
	{ HSRV_POST, API "/push", push_post, GATE_WRITE },
	{ HSRV_GET, API "/pop/queue/:queue", pop_queue, GATE_READ_WRITE },
	{ HSRV_GET, API "/pop/queue/:queue/partition/:partition",
	  pop_partition, GATE_READ_WRITE },
	{ HSRV_GET, API "/pop", pop_discover, GATE_READ_WRITE },
	{ HSRV_POST, API "/ack", ack_one, GATE_READ_WRITE },
	{ HSRV_POST, API "/ack/batch", ack_batch, GATE_READ_WRITE },
	{ HSRV_POST, API "/lease/:leaseId/extend", lease_extend,
	  GATE_READ_WRITE },
	{ HSRV_POST, API "/transaction", txn_post, GATE_READ_WRITE },
	{ HSRV_POST, API "/fetch", fetch_post, GATE_READ },
	{ HSRV_POST, API "/partitions/changed", changed_post, GATE_READ },

	{ HSRV_POST, API "/kv", kv_post, GATE_READ_WRITE },
	{ HSRV_GET, API "/kv/:ns/*key", kv_get, GATE_READ },
	{ HSRV_PUT, API "/kv/:ns/*key", kv_put, GATE_READ_WRITE },
	{ HSRV_DELETE, API "/kv/:ns/*key", kv_delete, GATE_READ_WRITE },
	{ HSRV_GET, RES "/kv/namespaces", kv_namespaces, GATE_READ },
	{ HSRV_POST, RES "/kv/list", kv_list, GATE_READ },

	{ HSRV_POST, API "/timers", timer_post, GATE_WRITE },
	{ HSRV_GET, API "/timers/:queue", timer_list, GATE_READ },
	{ HSRV_GET, API "/timers/:queue/*timerKey", timer_get, GATE_READ },
	{ HSRV_DELETE, API "/timers/:queue/*timerKey", timer_delete,
	  GATE_READ_WRITE },

	{ HSRV_POST, API "/configure", queue_configure, GATE_READ_WRITE },
	{ HSRV_GET, RES "/queues", queue_list, GATE_READ },
	{ HSRV_GET, RES "/queues/:queue", queue_get, GATE_READ },
	{ HSRV_GET, RES "/queues/:queue/depth", queue_depth, GATE_READ },
	{ HSRV_DELETE, RES "/queues/:queue", queue_delete, GATE_ADMIN },
	{ HSRV_DELETE, RES "/tenant", tenant_purge, GATE_ADMIN },
	{ HSRV_GET, RES "/overview", queue_overview, GATE_READ },
	{ HSRV_GET, RES "/namespaces", queue_namespaces, GATE_READ },
	{ HSRV_GET, RES "/tasks", queue_tasks, GATE_READ },

	{ HSRV_GET, API "/connectors", connector_list, GATE_READ },
	{ HSRV_GET, API "/connectors/:name", connector_get, GATE_READ },
	{ HSRV_PUT, API "/connectors/:name", connector_put, GATE_ADMIN },
	{ HSRV_DELETE, API "/connectors/:name", connector_delete, GATE_ADMIN },
	{ HSRV_POST, API "/connectors/:name/resync", connector_resync,
	  GATE_ADMIN },
	{ HSRV_POST, API "/connectors/:name/adopt", connector_adopt,
	  GATE_ADMIN },
	{ HSRV_POST, API "/connectors/:name/reset", connector_reset,
	  GATE_ADMIN },

	{ HSRV_GET, LAKE, lake_get, GATE_ADMIN },
	{ HSRV_PUT, LAKE, lake_put, GATE_ADMIN },
	{ HSRV_DELETE, LAKE, lake_delete, GATE_ADMIN },
	{ HSRV_POST, LAKE "/resume", lake_resume, GATE_ADMIN },

	{ HSRV_GET, CG, group_list, GATE_READ },
	{ HSRV_GET, CG "/lagging", group_lagging, GATE_READ },
	{ HSRV_GET, CG "/:group", group_get, GATE_READ },
	{ HSRV_POST, CG "/:group/subscription", group_subscription,
	  GATE_READ_WRITE },
	{ HSRV_POST, CG "/:group/queues/:queue/seek", group_seek,
	  GATE_READ_WRITE },
	{ HSRV_POST, CG "/:group/queues/:queue/partitions/:partition/seek",
	  group_seek_partition, GATE_READ_WRITE },
	{ HSRV_DELETE, CG "/:group", group_delete, GATE_ADMIN },
	{ HSRV_DELETE, CG "/:group/queues/:queue", group_delete_queue,
	  GATE_ADMIN },

	{ HSRV_GET, API "/messages", message_list, GATE_READ },
	{ HSRV_GET, API "/messages/:partitionId/:transactionId", message_get,
	  GATE_READ },
	{ HSRV_DELETE, API "/messages/:partitionId/:transactionId",
	  message_delete, GATE_READ_WRITE },
	{ HSRV_POST, API "/messages/:partitionId/:transactionId/retry",
	  dead_retry, GATE_READ_WRITE },
	{ HSRV_GET, API "/dlq", dead_list, GATE_READ },
	{ HSRV_POST, API "/dlq/:id/replay", dead_replay, GATE_READ_WRITE },
	{ HSRV_DELETE, API "/dlq", dead_purge, GATE_ADMIN },

	{ HSRV_POST, API "/traces", trace_post, GATE_READ_WRITE },
	{ HSRV_GET, API "/traces/names", trace_names, GATE_READ },
	{ HSRV_GET, API "/traces/by-name/:traceName", trace_by_name,
	  GATE_READ },
	{ HSRV_GET, API "/traces/:partitionId/:transactionId", trace_get,
	  GATE_READ },

	{ HSRV_GET, "/auth/me", identity_me, GATE_PUBLIC },
	{ HSRV_GET, "/auth/login", identity_login, GATE_PUBLIC },
	{ HSRV_POST, "/auth/logout", identity_logout, GATE_PUBLIC },

	{ HSRV_GET, "/health", status_health, GATE_PUBLIC },
	{ HSRV_GET, "/healthz", status_health, GATE_PUBLIC },
	{ HSRV_GET, "/status", status_process, GATE_READ },
	{ HSRV_GET, API "/status", status_overview, GATE_READ },
	{ HSRV_GET, API "/status/queues", status_queues, GATE_READ },
	{ HSRV_GET, API "/status/queues/:queue", status_queue, GATE_READ },
	{ HSRV_GET, API "/status/analytics", status_analytics, GATE_READ },
	{ HSRV_GET, API "/status/buffers", status_buffers, GATE_READ },
	{ HSRV_GET, "/metrics", status_metrics, GATE_PUBLIC },
	{ HSRV_GET, "/metrics/prometheus", status_prometheus, GATE_PUBLIC },

	{ HSRV_GET, API "/analytics/queue-lag", analytics_queue_lag,
	  GATE_READ },
	{ HSRV_GET, API "/analytics/queue-ops", analytics_queue_ops,
	  GATE_READ },
	{ HSRV_GET, API "/analytics/retention", analytics_retention,
	  GATE_READ },
	{ HSRV_GET, API "/analytics/postgres-stats", analytics_postgres,
	  GATE_READ },

	{ HSRV_GET, API "/system/maintenance", system_maintenance_get,
	  GATE_ADMIN },
	{ HSRV_POST, API "/system/maintenance", system_maintenance_post,
	  GATE_ADMIN },
	{ HSRV_GET, API "/system/maintenance/pop", system_pop_get,
	  GATE_ADMIN },
	{ HSRV_POST, API "/system/maintenance/pop", system_pop_post,
	  GATE_ADMIN },
	{ HSRV_GET, API "/system/kv-timers", system_kv_timers_get,
	  GATE_ADMIN },
	{ HSRV_POST, API "/system/kv-timers", system_kv_timers_post,
	  GATE_ADMIN },
	{ HSRV_GET, API "/system/shared-state", system_shared_state,
	  GATE_ADMIN },
	{ HSRV_POST, API "/stats/refresh", system_stats_refresh, GATE_ADMIN },
	{ HSRV_POST, "/internal/api/notify", system_notify, GATE_ADMIN },
	{ HSRV_GET, "/internal/api/shared-state/stats", system_peers,
	  GATE_ADMIN },
	{ HSRV_GET, "/internal/api/inter-instance/stats", system_peers,
	  GATE_ADMIN },
};

const struct hsrv_route route_metrics_table[] = {
	{ HSRV_GET, "/health", status_health, GATE_PUBLIC },
	{ HSRV_GET, "/healthz", status_health, GATE_PUBLIC },
	{ HSRV_GET, "/metrics", status_metrics, GATE_PUBLIC },
	{ HSRV_GET, "/metrics/prometheus", status_prometheus, GATE_PUBLIC },
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
