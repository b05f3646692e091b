/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every path queen-ojs serves.  Order matters where a literal and a parameter
 * could both match: the literal comes first.
 */
#include "route.h"

#include <strings.h>

#include "arena.h"
#include "cron.h"
#include "ctx.h"
#include "gate.h"
#include "job.h"
#include "queue.h"
#include "reply.h"
#include "status.h"
#include "stream.h"
#include "workflow.h"

#define API "/ojs/v1"
#define DEAD API "/dead-letter"
#define CRON API "/cron"
#define FLOW API "/workflows"
#define QUEUE API "/queues/:queue"

/* clang-format off */
const struct hsrv_route route_table[] = {
	{ HSRV_POST, API "/jobs", job_push, GATE_WRITE },
	{ HSRV_POST, API "/jobs/batch", job_push_batch, GATE_WRITE },
	{ HSRV_GET, API "/jobs/:id", job_info, GATE_READ },
	{ HSRV_DELETE, API "/jobs/:id", job_cancel, GATE_READ_WRITE },
	{ HSRV_POST, API "/jobs/:id/activate", job_activate, GATE_READ_WRITE },
	{ HSRV_POST, API "/workers/fetch", job_fetch, GATE_READ_WRITE },
	{ HSRV_POST, API "/workers/ack", job_ack, GATE_READ_WRITE },
	{ HSRV_POST, API "/workers/nack", job_nack, GATE_READ_WRITE },
	{ HSRV_POST, API "/workers/heartbeat", job_heartbeat,
	  GATE_READ_WRITE },
	{ HSRV_GET, API "/events", job_events, GATE_READ },
	{ HSRV_GET, DEAD, job_dead_list, GATE_READ },
	{ HSRV_GET, DEAD "/:id", job_dead_get, GATE_READ },
	{ HSRV_DELETE, DEAD "/:id", job_dead_delete, GATE_READ_WRITE },
	{ HSRV_POST, DEAD "/:id/retry", job_dead_retry, GATE_READ_WRITE },

	{ HSRV_GET, CRON, cron_list, GATE_READ },
	{ HSRV_POST, CRON, cron_put, GATE_READ_WRITE },
	{ HSRV_GET, CRON "/:name", cron_get, GATE_READ },
	{ HSRV_DELETE, CRON "/:name", cron_delete, GATE_READ_WRITE },
	{ HSRV_GET, FLOW, workflow_list, GATE_READ },
	{ HSRV_POST, FLOW, workflow_create, GATE_READ_WRITE },
	{ HSRV_GET, FLOW "/:id", workflow_get, GATE_READ },
	{ HSRV_DELETE, FLOW "/:id", workflow_cancel, GATE_READ_WRITE },

	{ HSRV_GET, API "/queues", queue_list, GATE_READ },
	{ HSRV_POST, API "/queues", queue_create, GATE_READ_WRITE },
	{ HSRV_DELETE, QUEUE, queue_drop, GATE_ADMIN },
	{ HSRV_GET, QUEUE "/stats", queue_stats, GATE_READ },
	{ HSRV_POST, QUEUE "/pause", queue_pause, GATE_READ_WRITE },
	{ HSRV_POST, QUEUE "/resume", queue_resume, GATE_READ_WRITE },
	{ HSRV_GET, QUEUE "/config", queue_config_get, GATE_READ },
	{ HSRV_POST, QUEUE "/config", queue_config_set, GATE_READ_WRITE },

	{ HSRV_POST, QUEUE "/messages", stream_append, GATE_WRITE },
	{ HSRV_POST, QUEUE "/messages/batch", stream_append_batch,
	  GATE_WRITE },
	{ HSRV_GET, QUEUE "/consumers", stream_consumers, GATE_READ },
	{ HSRV_POST, QUEUE "/consumers", stream_subscribe, GATE_READ_WRITE },
	{ HSRV_DELETE, QUEUE "/consumers/:consumer", stream_unsubscribe,
	  GATE_READ_WRITE },
	{ HSRV_POST, QUEUE "/consumers/:consumer/members/:member/touch",
	  stream_touch, GATE_READ_WRITE },
	{ HSRV_POST, QUEUE "/receive", stream_receive, GATE_READ_WRITE },
	{ HSRV_GET, QUEUE "/batches/:id", stream_batch, GATE_READ },
	{ HSRV_GET, QUEUE "/info", stream_info, GATE_READ },
	{ HSRV_GET, QUEUE "/dlq", stream_dead_list, GATE_READ },
	{ HSRV_DELETE, QUEUE "/dlq", stream_dead_purge, GATE_READ_WRITE },
	{ HSRV_POST, QUEUE "/dlq/replay", stream_dead_replay_all,
	  GATE_READ_WRITE },
	{ HSRV_POST, QUEUE "/dlq/:id/replay", stream_dead_replay,
	  GATE_READ_WRITE },
	{ HSRV_POST, API "/streams/ack", stream_ack, GATE_READ_WRITE },
	{ HSRV_POST, API "/streams/nack", stream_nack, GATE_READ_WRITE },

	{ HSRV_GET, "/ojs/manifest", status_manifest, GATE_PUBLIC },
	{ HSRV_GET, API "/health", status_health, GATE_PUBLIC },
	{ HSRV_GET, "/healthz", status_health, GATE_PUBLIC },
	{ HSRV_GET, "/metrics", status_metrics, GATE_PUBLIC },
	{ HSRV_POST, API "/admin/reset", status_reset, GATE_ADMIN },
};
/* clang-format on */

const size_t route_table_n = sizeof(route_table) / sizeof(route_table[0]);

static bool
is_type(struct span s, const char *type)
{
	size_t n = strlen(type);

	return s.n >= n && strncasecmp(s.p, type, n) == 0 &&
	       (s.n == n || s.p[n] == ';' || s.p[n] == ' ');
}

static bool
version_ok(struct span s)
{
	return span_is(s, "1.0") ||
	       (s.n > 4 && memcmp(s.p, "1.0.", 4) == 0 && s.n < 16);
}

static bool
has_body(const struct hsrv_req *r)
{
	struct span s;

	return hsrv_header(r, "transfer-encoding", &s) ||
	       (hsrv_header(r, "content-length", &s) && !span_is(s, "0"));
}

/* False after an answer. */
static bool
speaks(struct hsrv_req *r)
{
	struct span s;

	if (hsrv_header(r, "ojs-version", &s) && !version_ok(s)) {
		reply_no(r, 422, "unsupported", "\"supported\":[\"1.0\"]",
			"This server speaks OJS-Version 1.0.");
		return false;
	}
	if (hsrv_method(r) == HSRV_POST && has_body(r) &&
		hsrv_header(r, "content-type", &s) && s.n &&
		!is_type(s, "application/openjobspec+json") &&
		!is_type(s, "application/json")) {
		reply_no(r, 400, "invalid_request",
			"\"field\":\"Content-Type\"",
			"A body is application/openjobspec+json or "
			"application/json.");
		return false;
	}
	return true;
}

bool
route_gate(struct hsrv_req *r, int level)
{
	return (level == HSRV_NO_ROUTE || speaks(r)) &&
	       gate_ask(ctx_of(r)->gate, r, level);
}

void
route_unmatched(struct hsrv_req *r)
{
	const char *allow = hsrv_allow(r);

	if (!allow && hsrv_method(r) == HSRV_OTHER)
		allow = "GET, HEAD, POST, DELETE";
	if (!allow) {
		reply_no(r, 404, "not_found", "\"resource\":\"path\"",
			"There is nothing under this path.");
		return;
	}
	hsrv_add_header(r, "Allow", allow);
	reply_no(r, 405, "invalid_request", NULL,
		"This path takes other methods: %s.", allow);
}
