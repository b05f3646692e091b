/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every column but those of queen-ojs.  They name the fields of our own routes; their headers are
 * stable, scripts cut by them.
 */
#include "cmd_view.h"

#include "cmd_col.h"

/* clang-format off */

static const struct out_col queue_cols[] = {
	COL("NAME", "name"),
	COL("NAMESPACE", "namespace"),
	COL("TASK", "task"),
	COUNT("PARTITIONS", "partitions"),
	COL("PRIORITY", "options.priority"),
	COL("LEASE", "options.leaseTime"),
	WIDE("RETRY", "options.retryLimit"),
	COUNT_WIDE("MAXSIZE", "options.maxSize"),
	WIDE("ENCRYPTED", "options.encryptionEnabled"),
	COUNT_WIDE("MESSAGES", "messages.total"),
	COUNT_WIDE("PENDING", "messages.pending"),
};
const struct out_view cmd_view_queue = VIEW(queue_cols, "queues");

static const struct out_col depth_cols[] = {
	COUNT("PENDING", "pending"),
	COUNT("PARTITIONS", "partitions"),
	COUNT("PARTITIONSPENDING", "partitionsPending"),
	COUNT("EFFECTIVE", "effectivePending"),
};

static const struct out_col partition_cols[] = {
	COL("PARTITION", "name"),
	COUNT("PENDING", "stats.pending"),
	COUNT("PROCESSING", "stats.processing"),
	COUNT_WIDE("COMPLETED", "stats.completed"),
	COUNT_WIDE("FAILED", "stats.failed"),
	COUNT_WIDE("DLQ", "stats.deadLetter"),
	COUNT_WIDE("TOTAL", "stats.total"),
	COUNT_WIDE("MESSAGES", "messages.total"),
};

static const struct out_col namespace_cols[] = {
	COL("NAMESPACE", "namespace"),
	COUNT("QUEUES", "queues"),
	COUNT_WIDE("TASKS", "tasks"),
};
const struct out_view cmd_view_namespace =
	VIEW(namespace_cols, "namespaces");

static const struct out_col task_cols[] = {
	COL("TASK", "task"),
	COUNT("QUEUES", "queues"),
	COUNT_WIDE("NAMESPACES", "namespaces"),
};
const struct out_view cmd_view_task = VIEW(task_cols, "tasks");

static const struct out_col lag_cols[] = {
	COL("CG", "name|consumer_group"),
	COL("QUEUE", "queueName|queue_name"),
	COUNT("MESSAGES", "totalLag|offset_lag"),
	SECONDS("LAG", "maxTimeLag|time_lag_seconds"),
	COUNT_WIDE("PARTITIONS", "partitionCursors|partition_name"),
	WIDE("SUBSCRIBED", "subscriptionTimestamp"),
};
const struct out_view cmd_view_lag = VIEW(lag_cols, ".");

static const struct out_col message_cols[] = {
	COL("TX", "transactionId"),
	COL("QUEUE", "queue"),
	COL("PARTITION", "partition"),
	COL("STATUS", "status"),
	COL("RETRIES", "retryCount"),
	COL("CREATED", "createdAt"),
	WIDE("PARTITIONID", "partitionId"),
	WIDE("PRODUCER", "producerSub"),
};
const struct out_view cmd_view_message = VIEW(message_cols, "messages");

static const struct out_col trace_cols[] = {
	COL("AT", "created_at"),
	COL("EVENT", "event_type"),
	LIST("TRACE", "trace_names"),
	COL("DATA", "data"),
};
const struct out_view cmd_view_trace = VIEW(trace_cols, "traces");

static const struct out_col trace_name_cols[] = {
	COL("NAME", "trace_name"),
	COUNT("EVENTS", "trace_count"),
	COL("FIRST", "first_seen"),
	COL("LAST", "last_seen"),
};
const struct out_view cmd_view_trace_name =
	VIEW(trace_name_cols, "trace_names");

static const struct out_col trace_by_name_cols[] = {
	COL("AT", "created_at"),
	COL("EVENT", "event_type"),
	COL("TX", "transaction_id"),
	COL("PARTITION", "partition_name"),
	COL("DATA", "data"),
};
const struct out_view cmd_view_trace_by_name =
	VIEW(trace_by_name_cols, "traces");

static const struct out_col dlq_cols[] = {
	COL("TX", "transactionId"),
	COL("QUEUE", "queue"),
	COL("PARTITION", "partition"),
	COL("CG", "consumerGroup"),
	COL("RETRIES", "retryCount"),
	COL("ERROR", "errorMessage"),
	WIDE("FAILED-AT", "failedAt"),
	WIDE("PARTITIONID", "partitionId"),
};
const struct out_view cmd_view_dlq = VIEW(dlq_cols, "messages");

static const struct out_col status_cols[] = {
	COL("QUEUE", "name"),
	COL("NAMESPACE", "namespace"),
	WIDE("TASK", "task"),
	COUNT("PENDING", "messages.pending"),
	COUNT("PROCESSING", "messages.processing"),
	COUNT("COMPLETED", "messages.completed"),
	COUNT("FAILED", "messages.failed"),
	COUNT("DLQ", "messages.deadLetter"),
	SECONDS("LAG", "lagSeconds"),
};
const struct out_view cmd_view_status = VIEW(status_cols, "queues");

static const struct out_col one_status_cols[] = {
	COL("QUEUE", "queue"),
	COUNT("PENDING", "pending"),
	COUNT("PROCESSING", "processing"),
	COUNT("COMPLETED", "completed"),
	COUNT("FAILED", "failed"),
	COUNT("DLQ", "deadLetter"),
	COUNT("PARTITIONS", "partitions"),
	SECONDS("LAG", "lagSeconds"),
};

static const struct out_col ping_cols[] = {
	COL("STATUS", "status"),
	COL("DATABASE", "database"),
	COL("VERSION", "version"),
	COL("LATENCY", "latency"),
};
const struct out_view cmd_view_ping = VIEW(ping_cols, ".");

static const struct out_col context_cols[] = {
	COL("CURRENT", "current"),
	COL("NAME", "name"),
	COL("SERVER", "server"),
	COL("AUTH", "auth"),
	WIDE("INSECURE", "insecure"),
	WIDE("OJS", "ojsUrl"),
};
const struct out_view cmd_view_context = VIEW(context_cols, ".");

static const struct out_col kv_cols[] = {
	COL("KEY", "key"),
	COL("VALUE", "value"),
	COL("VERSION", "version"),
	COL("EXPIRES", "expiresAt"),
	WIDE("UPDATED", "updatedAt"),
	WIDE("EXPIRED", "expired"),
};
const struct out_view cmd_view_kv = VIEW(kv_cols, "rows");
const struct out_view cmd_view_kv_one = VIEW(kv_cols, ".");

static const struct out_col kv_result_cols[] = {
	COL("OP", "op"),
	COL("KEY", "key"),
	COL("APPLIED", "applied|found"),
	COL("REASON", "reason"),
	COL("VALUE", "value|rows"),
	COL("VERSION", "version"),
};
const struct out_view cmd_view_kv_result = VIEW(kv_result_cols, "results");

static const struct out_col kv_namespace_cols[] = {
	COL("NAMESPACE", "namespace"),
	COUNT("KEYS", "keys"),
};
const struct out_view cmd_view_kv_namespace =
	VIEW(kv_namespace_cols, "namespaces");

static const struct out_col timer_cols[] = {
	COL("TIMER", "timerKey"),
	COL("PARTITION", "partition"),
	COL("DUE", "deliverAt"),
	COL("TX", "txn"),
	COL("ATTEMPTS", "attempts"),
	COL("ERROR", "lastError"),
	WIDE("MESSAGEID", "messageId"),
	WIDE("PRODUCER", "producerSub"),
};
const struct out_view cmd_view_timer = VIEW(timer_cols, "rows");

static const struct out_col connector_cols[] = {
	COL("NAME", "name"),
	COL("KIND", "kind"),
	COL("ENABLED", "enabled"),
	COL("PHASE", "status.phase"),
	COL("HOST", "connection.host"),
	COL("DATABASE", "connection.database"),
	WIDE("USER", "connection.user"),
	WIDE("UPDATED", "updatedAt"),
};
const struct out_view cmd_view_connector =
	VIEW(connector_cols, "connectors");

static const struct out_col connector_status_cols[] = {
	COL("NAME", "name"),
	COL("KIND", "kind"),
	COL("PHASE", "status.phase"),
	COL("SINCE", "status.since"),
	COUNT("MESSAGES", "status.messages|status.applied"),
	COUNT("LAGBYTES", "status.slotLagBytes"),
	COL("ERROR", "status.error.code"),
	COUNT_WIDE("DLQ", "status.dlq"),
	COUNT_WIDE("RESTARTS", "status.restarts"),
	WIDE("OWNER", "state.lease.node"),
	WIDE("LSN", "state.pointer.lsn"),
	WIDE("MESSAGE", "status.error.message|status.doing|status.hint"),
};
const struct out_view cmd_view_connector_statuses =
	VIEW(connector_status_cols, "connectors");
const struct out_view cmd_view_connector_status =
	VIEW(connector_status_cols, ".");

static const struct out_col s3_status_cols[] = {
	COL("TENANT", "tenant"),
	COL("QUEUE", "queue"),
	COL("STATE", "state"),
	COL("OWNER", "owner"),
	COL("K", "k"),
	SECONDS("LAG", "lagSeconds"),
	COUNT("RECORDS", "records"),
	COL("ERROR", "error"),
	COL("AT", "errorAt"),
	WIDE("SINK", "sink"),
	WIDE("BUCKET", "bucket"),
	COUNT_WIDE("LOST", "recordsLost"),
	COUNT_WIDE("BUFFERED", "bufferedBytes"),
	WIDE("COMPLETE", "completeThrough"),
};
const struct out_view cmd_view_s3_status = VIEW(s3_status_cols, ".");

/* The ones that other files pick; table and answer differ there. */
const struct out_view cmd_view_depth = { .rows = ".", .cols = depth_cols,
	.cols_n = 3, .whole = true };
/* only a conflating group has another number of what is left to do */
const struct out_view cmd_view_depth_conflating = { .rows = ".",
	.cols = depth_cols, .cols_n = 4, .whole = true };
const struct out_view cmd_view_partitions = VIEW(partition_cols, "partitions");
const struct out_view cmd_view_one_status = VIEW(one_status_cols, ".");
