/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of queen-ojs. */
#include "cmd_col.h"
#include "cmd_view.h"

/* clang-format off */

static const struct out_col job_cols[] = {
	COL("ID", "id"),
	COL("TYPE", "type"),
	COL("QUEUE", "queue"),
	COL("STATE", "state"),
	COL("ATTEMPT", "attempt"),
	COL("CREATED", "created_at"),
	WIDE("PRIORITY", "priority"),
	WIDE("NEXT", "next_attempt_at|scheduled_at"),
	WIDE("WORKER", "worker_id"),
	WIDE("ERROR", "error.type"),
};
const struct out_view cmd_view_job = VIEW(job_cols, "job");
const struct out_view cmd_view_job_rows = VIEW(job_cols, ".");

static const struct out_col dead_cols[] = {
	COL("ID", "id"),
	COL("TYPE", "type"),
	COL("QUEUE", "queue"),
	COL("ATTEMPT", "attempt"),
	COL("ERROR", "error.type"),
	COL("DISCARDED", "discarded_at"),
	WIDE("MESSAGE", "error.message"),
	WIDE("CREATED", "created_at"),
};
const struct out_view cmd_view_job_dead = VIEW(dead_cols, "jobs");

static const struct out_col event_cols[] = {
	COL("TIME", "time"),
	COL("EVENT", "type"),
	COL("JOB", "subject"),
	COL("TYPE", "data.job_type"),
	COL("QUEUE", "data.queue"),
	COL("ATTEMPT", "data.attempt"),
	WIDE("MS", "data.duration_ms"),
};
const struct out_view cmd_view_job_events = VIEW(event_cols, "events");

static const struct out_col cron_cols[] = {
	COL("NAME", "name"),
	COL("EXPRESSION", "expression"),
	COL("ZONE", "timezone"),
	COL("ENABLED", "enabled"),
	COL("NEXT", "next_run_at"),
	WIDE("OVERLAP", "overlap_policy"),
	WIDE("LAST", "last_run_at"),
};
const struct out_view cmd_view_cron = VIEW(cron_cols, "crons");
/* as it can be applied */
const struct out_view cmd_view_cron_one = { .rows = "cron" };

static const struct out_col workflow_cols[] = {
	COL("ID", "id"),
	COL("TYPE", "type"),
	COL("NAME", "name"),
	COL("STATE", "state"),
	COUNT("JOBS", "steps_total|jobs_total"),
	COUNT("COMPLETED", "steps_completed|jobs_completed"),
	COUNT("FAILED", "jobs_failed"),
	WIDE("CREATED", "created_at"),
};
const struct out_view cmd_view_workflow = VIEW(workflow_cols, "workflows");
const struct out_view cmd_view_workflow_one = { .rows = "workflow" };

static const struct out_col queue_cols[] = {
	COL("NAME", "name"),
	COL("STATUS", "status"),
	COUNT("AVAILABLE", "jobs.available"),
	COUNT("ACTIVE", "jobs.active"),
	COUNT("EVENTS", "stream.events"),
	COUNT("CONSUMERS", "stream.consumers"),
	COUNT("DEADEVENTS", "stream.dead_letters"),
	WIDE("CREATED", "created_at"),
};
const struct out_view cmd_view_ojs_queue = VIEW(queue_cols, "queues");
const struct out_view cmd_view_ojs_config = { .rows = "config" };

static const struct out_col stats_cols[] = {
	COL("QUEUE", "name"),
	COL("PAUSED", "paused"),
	COUNT("SCHEDULED", "scheduled"),
	COUNT("AVAILABLE", "available"),
	COUNT("PENDING", "pending"),
	COUNT("ACTIVE", "active"),
	COUNT("RETRYABLE", "retryable"),
	COUNT("COMPLETED", "completed"),
	COUNT("CANCELLED", "cancelled"),
	COUNT("DISCARDED", "discarded"),
	COUNT("DEADJOBS", "dead_letter"),
};
const struct out_view cmd_view_ojs_stats = { .rows = "queue",
	.cols = stats_cols,
	.cols_n = sizeof(stats_cols) / sizeof(stats_cols[0]), .whole = true };

static const struct out_col appended_cols[] = {
	COL("ID", "id"),
	COL("SEQ", "seq"),
	COL("TYPE", "type"),
	COL("CREATED", "created_at"),
};
const struct out_view cmd_view_appended = VIEW(appended_cols, ".");

static const struct out_col consumer_cols[] = {
	COL("NAME", "name"),
	COL("TICK", "last_tick"),
	COUNT("EVENTS", "lag_events"),
	COL("LAGMS", "lag_ms"),
	COUNT("RETRIES", "retries"),
	COL("ACTIVE", "active_at"),
	WIDE("NEXT", "next_tick"),
	COUNT_WIDE("TICKS", "lag_ticks"),
};
const struct out_view cmd_view_consumer = VIEW(consumer_cols, "consumers");

static const struct out_col batch_cols[] = {
	COL("ID", "id"),
	COL("SEQ", "seq"),
	COL("TYPE", "type"),
	COL("RETRIES", "retry_count"),
	COL("OUTCOME", "outcome"),
	WIDE("PAYLOAD", "payload"),
};
const struct out_view cmd_view_batch = { .rows = "messages",
	.cols = batch_cols,
	.cols_n = sizeof(batch_cols) / sizeof(batch_cols[0]), .whole = true };

static const struct out_col stream_dead_cols[] = {
	COL("ID", "id"),
	COL("CONSUMER", "consumer"),
	COL("MESSAGE", "message_id"),
	COL("TYPE", "type"),
	COL("RETRIES", "retry_count"),
	COL("REASON", "reason"),
	COL("FAILED", "failed_at"),
	WIDE("SEQ", "seq"),
	WIDE("PAYLOAD", "payload"),
};
const struct out_view cmd_view_stream_dead =
	VIEW(stream_dead_cols, "dead_letters");
