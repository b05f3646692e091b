/* SPDX-License-Identifier: Apache-2.0 */
/* Every phrase and flag but those of queen-ojs, and every group. */
#include "cmd_flag.h"
#include "cmd_view.h"
#include "cmds.h"

/* clang-format off */

#define API "/api/v1"

/* ---- flags that come again ---- */

#define CG FLAG("cg", 0, CMD_STR, NULL, "GROUP", "consumer group")
#define LABELS(q1, q2) \
	SENT("namespace", 0, CMD_STR, NULL, "NAME", "only this namespace", q1), \
	SENT("task", 0, CMD_STR, NULL, "NAME", "only this task", q2)
#define PAGE(n, q1, q2) \
	SENT("limit", 0, CMD_INT, n, "N", "rows at most; 0 = the default", q1), \
	SENT("offset", 0, CMD_INT, "0", "N", "rows to skip", q2)
#define MODES "all new new-only"
#define TIMES "now beginning"

const struct cmd_flag cmd_globals[] = {
	FLAG("context", 0, CMD_STR, NULL, "NAME",
	  "context of the config file"),
	FLAG("server", 0, CMD_STR, NULL, "URL",
	  "the broker, as http://host:6632"),
	FLAG("token", 0, CMD_STR, NULL, "TOKEN",
	  "bearer token; QUEEN_TOKEN hides it from the process list"),
	FLAG("tenant", 0, CMD_STR, NULL, "UUID",
	  "the tenant, for a server that is told by header"),
	WORDS("output", 'o', CMD_STR, NULL, "FORMAT",
	  "table, wide, json, ndjson, yaml, raw, jsonpath=PATH",
	  "table wide json ndjson yaml raw jsonpath="),
	SWITCH("no-color", 0, "no colours"),
	SWITCH("color", 0, "colours also without a terminal"),
	SWITCH("insecure", 0, "do not verify the certificate"),
	SWITCH("quiet", 'q', "no confirmation lines"),
	SWITCH("no-headers", 0, "tables without their header"),
	FLAG("config", 0, CMD_STR, NULL, "PATH",
	  "the config file, else ~/.queen/config.yaml"),
	SWITCH("version", 0, "print the version"),
	END
};

static const struct cmd_flag push_flags[] = {
	FLAG("partition", 0, CMD_STR, NULL, "NAME",
	  "the partition of each item"),
	FLAG("partition-key", 0, CMD_STR, NULL, "PATH",
	  "dotted path in the payload that names the partition"),
	FLAG("batch", 0, CMD_INT, "100", "N", "items per request"),
	FLAG("data", 0, CMD_STR, NULL, "JSON",
	  "one payload, instead of stdin"),
	FLAG("file", 'f', CMD_STR, NULL, "FILE",
	  "one payload per line, - = stdin"),
	FLAG("trace-id", 0, CMD_STR, NULL, "UUID", "trace id of each item"),
	FLAG("transaction-id", 0, CMD_STR, NULL, "ID", "id of the first item"),
	SWITCH("wrapped", 0,
	  "lines are {transactionId, traceId, partition, data}"),
	SWITCH("dry-run", 0, "count the items, send nothing"),
	END
};

static const struct cmd_flag pop_flags[] = {
	CG,
	FLAG("partition", 0, CMD_STR, NULL, "NAME", "only this partition"),
	FLAG("limit", 'n', CMD_INT, "1", "N", "messages to print at most"),
	FLAG("batch", 0, CMD_INT, NULL, "N",
	  "messages to lease, else the limit"),
	FLAG("max-partitions", 0, CMD_INT, "1", "N", "partitions at most"),
	SWITCH("auto-ack", 0, "acknowledge inside the pop"),
	FLAG("wait", 0, CMD_BOOL, "true", NULL, "wait for a message"),
	FLAG("timeout", 0, CMD_DURATION, "10s", "TIME", "how long to wait"),
	LABELS(NULL, NULL),
	WORDS("from-mode", 0, CMD_STR, NULL, "MODE",
	  "where a new group starts: all, new", MODES),
	FLAG("since", 0, CMD_STR, NULL, "TIME", "a new group starts there"),
	SWITCH("conflation", 0,
	  "only the newest message of a partition; needs --cg"),
	END
};

static const struct cmd_flag tail_flags[] = {
	FLAG("cg", 0, CMD_STR, "queenctl-tail", "GROUP", "consumer group"),
	FLAG("partition", 0, CMD_STR, NULL, "NAME", "only this partition"),
	FLAG("max-partitions", 0, CMD_INT, "1", "N", "partitions per pop"),
	FLAG("batch", 0, CMD_INT, "0", "N", "messages per pop; 0 = 100"),
	FLAG("concurrency", 0, CMD_INT, "0", "N",
	  "accepted; one pop is in flight at a time"),
	SWITCH("follow", 'f', "go on until interrupted"),
	FLAG("limit", 'n', CMD_INT, "0", "N", "stop after N; 0 = one batch"),
	SWITCH("auto-ack", 0, "acknowledge inside the pop"),
	WORDS("from", 0, CMD_STR, NULL, "MODE",
	  "where a new group starts: all, new", MODES),
	FLAG("since", 0, CMD_STR, NULL, "TIME", "a new group starts there"),
	FLAG("idle-millis", 0, CMD_INT, "0", "MS",
	  "stop after so long without messages"),
	FLAG("timeout", 0, CMD_DURATION, "30s", "TIME", "of one pop"),
	SWITCH("conflation", 0, "only the newest message of a partition"),
	END
};

static const struct cmd_flag ack_flags[] = {
	FLAG("partition-id", 0, CMD_STR, NULL, "UUID",
	  "partition of the message"),
	FLAG("lease-id", 0, CMD_STR, NULL, "UUID",
	  "lease it was popped under"),
	CG,
	FLAG("error", 0, CMD_STR, NULL, "TEXT", "reason, with --failed"),
	SWITCH("failed", 0, "not completed: deliver it again"),
	FLAG("batch", 0, CMD_STR, NULL, "FILE",
	  "lines as pop prints them, - = stdin"),
	END
};

static const struct cmd_flag tx_flags[] = {
	FLAG("file", 'f', CMD_STR, NULL, "FILE", "the bundle, - = stdin"),
	DRY, END
};

static const struct cmd_flag lease_flags[] = {
	FLAG("seconds", 0, CMD_INT, "60", "N", "from now on"), END
};

static const struct cmd_flag queue_list_flags[] = {
	LABELS(NULL, NULL), PAGE("0", NULL, NULL), END
};
static const struct cmd_flag depth_flags[] = {
	SENT("group", 0, CMD_STR, NULL, "GROUP", "backlog of this group",
	  "group"),
	END
};
static const struct cmd_flag configure_flags[] = {
	SENT("namespace", 0, CMD_STR, NULL, "NAME", "label", "namespace"),
	SENT("task", 0, CMD_STR, NULL, "NAME", "label", "task"),
	SENT("lease-time", 0, CMD_INT, NULL, "S", "seconds of a lease",
	  "leaseTime"),
	SENT("retry-limit", 0, CMD_INT, NULL, "N",
	  "failures before the dead letter", "retryLimit"),
	SENT("delayed-processing", 0, CMD_INT, NULL, "S",
	  "seconds before a message can be popped", "delayedProcessing"),
	SENT("window-buffer", 0, CMD_INT, NULL, "S",
	  "seconds to gather a batch", "windowBuffer"),
	SENT("min-pop-wait", 0, CMD_INT, NULL, "MS",
	  "a waiting pop gathers so long", "minPopWaitTime"),
	SENT("retention", 0, CMD_INT, NULL, "S", "seconds a message is kept",
	  "retentionSeconds"),
	SENT("completed-retention", 0, CMD_INT, NULL, "S",
	  "seconds a consumed message is kept", "completedRetentionSeconds"),
	SENT("max-wait", 0, CMD_INT, NULL, "S",
	  "seconds an unconsumed message is kept", "maxWaitTimeSeconds"),
	SENT("dedup-window", 0, CMD_INT, NULL, "S",
	  "seconds a transaction id is remembered", "dedupWindowSeconds"),
	SENT("sink-hold", 0, CMD_STR, NULL, "NAME",
	  "the sink of queen-s3 that retention waits for",
	  "retentionSinkHold"),
	SENT("sink-hold-max", 0, CMD_INT, NULL, "S",
	  "for so many seconds at most", "retentionSinkHoldMaxSeconds"),
	SENT("priority", 0, CMD_INT, NULL, "N", "kept and shown", "priority"),
	SENT("max-size", 0, CMD_INT, NULL, "N", "kept and shown", "maxSize"),
	SENT("encrypt", 0, CMD_BOOL, NULL, NULL, "seal payloads",
	  "encryptionEnabled"),
	SENT("dlq", 0, CMD_BOOL, "true", NULL,
	  "keep what failed for good as dead letters", "deadLetterQueue"),
	END
};
static const struct cmd_flag delete_flags[] = { YES, END };
static const struct cmd_flag label_flags[] = {
	LABELS("namespace", "task"), END
};

static const struct cmd_flag partition_seek_flags[] = {
	CG,
	WORDS("to", 0, CMD_STR, "end", "WHERE", "end, a time, or offset:N",
	  TIMES),
	END
};
static const struct cmd_flag lag_flags[] = {
	FLAG("min-seconds", 0, CMD_INT, "0", "N",
	  "only partitions so far behind, one row each"),
	END
};
static const struct cmd_flag seek_flags[] = {
	WORDS("to", 0, CMD_STR, NULL, "WHERE", "end, beginning or a time",
	  TIMES),
	DRY, END
};
static const struct cmd_flag cg_delete_flags[] = {
	FLAG("queue", 0, CMD_STR, NULL, "QUEUE", "only on this queue"),
	SENT("metadata", 0, CMD_BOOL, "true", NULL,
	  "forget the subscription too; false: keep it", "deleteMetadata"),
	YES, END
};
static const struct cmd_flag replay_flags[] = {
	CG,
	WORDS("to", 0, CMD_STR, NULL, "WHERE", "end, beginning or a time",
	  TIMES),
	DRY,
	SWITCH("follow", 'f', "wait until the group has caught up"),
	END
};

static const struct cmd_flag message_flags[] = {
	SENT("queue", 0, CMD_STR, NULL, "QUEUE", "only this queue", "queue"),
	SENT("partition", 0, CMD_STR, NULL, "NAME", "only this partition",
	  "partition"),
	WORDS("status", 0, CMD_STR, NULL, "WORD",
	  "pending, processing, completed or failed",
	  "pending processing completed failed"),
	SENT("cg", 0, CMD_STR, NULL, "GROUP", "as this group sees them",
	  "consumerGroup"),
	WORDS("from", 0, CMD_STR, NULL, "TIME", "stored since; else 1h ago",
	  TIMES),
	WORDS("to", 0, CMD_STR, NULL, "TIME", "stored until", TIMES),
	PAGE("100", "limit", "offset"), END
};
static const struct cmd_flag trace_page_flags[] = {
	PAGE("100", "limit", "offset"), END
};

#define DLQ_FILTERS \
	SENT("queue", 0, CMD_STR, NULL, "QUEUE", "only this queue", "queue"), \
	SENT("cg", 0, CMD_STR, NULL, "GROUP", "only this group", \
	  "consumerGroup"), \
	SENT("partition", 0, CMD_STR, NULL, "NAME", "only this partition", \
	  "partition"), \
	WORDS("from", 0, CMD_STR, NULL, "TIME", "failed since", TIMES), \
	WORDS("to", 0, CMD_STR, NULL, "TIME", "failed until", TIMES)
static const struct cmd_flag dlq_list_flags[] = {
	DLQ_FILTERS, PAGE("0", NULL, NULL), END
};
static const struct cmd_flag dlq_drain_flags[] = {
	DLQ_FILTERS,
	FLAG("limit", 0, CMD_INT, "0", "N", "rows per page; 0 = 200"),
	YES, DRY, END
};
static const struct cmd_flag dlq_retry_flags[] = {
	FLAG("id", 0, CMD_STR, NULL, "UUID",
	  "the dead letter's own id, instead of the two arguments"),
	FLAG("to-queue", 0, CMD_STR, NULL, "QUEUE",
	  "with --id: move it there"),
	FLAG("to-partition", 0, CMD_STR, NULL, "NAME",
	  "with --id: move it there"),
	YES, DRY, END
};

static const struct cmd_flag status_flags[] = {
	LABELS("namespace", "task"),
	SWITCH("partitions", 0, "one row per partition"),
	SENT("limit", 0, CMD_INT, "100", "N", "queues at most", "limit"),
	END
};
static const struct cmd_flag ping_flags[] = {
	FLAG("timeout", 0, CMD_DURATION, "5s", "TIME", "how long to wait"), END
};
static const struct cmd_flag version_flags[] = {
	SWITCH("short", 0, "only this program's line"), END
};
static const struct cmd_flag metrics_flags[] = {
	SWITCH("prometheus", 0, "the text for Prometheus"), END
};
static const struct cmd_flag analytics_flags[] = {
	WORDS("from", 0, CMD_STR, NULL, "TIME", "start of the window", TIMES),
	WORDS("to", 0, CMD_STR, NULL, "TIME", "end of the window", TIMES),
	SENT("queue", 0, CMD_STR, NULL, "QUEUE", "only this queue", "queue"),
	END
};
static const struct cmd_flag maintenance_flags[] = {
	SWITCH("pop", 0, "of pops instead of pushes"), END
};
static const struct cmd_flag maintenance_on_flags[] = {
	SWITCH("pop", 0, "of pops instead of pushes"), YES, END
};
static const struct cmd_flag apply_flags[] = {
	FLAG("file", 'f', CMD_STR, NULL, "FILE", "YAML or JSON, - = stdin"),
	DRY, END
};
static const struct cmd_flag connector_delete_flags[] = {
	SWITCH("keep-slot", 0,
	  "remove a source now and leave its slot, which goes on holding WAL"),
	YES, END
};
static const struct cmd_flag connector_resync_flags[] = {
	FLAG("from", 0, CMD_STR, NULL, "TIME",
	  "of a sink: beginning, end, RFC 3339, or 1h for an hour ago"),
	YES, END
};
#define CLUSTER \
	FLAG("cluster", 0, CMD_STR, NULL, "TENANT", \
	  "the tenant by its UUID, or default; else that of --tenant")
#define TEXT(n, a, h) FLAG(n, 0, CMD_STR, NULL, a, h)
#define ONE_OF(n, h, w) WORDS(n, 0, CMD_STR, NULL, "WORD", h, w)
static const struct cmd_flag s3_flags[] = { CLUSTER, END };
static const struct cmd_flag s3_delete_flags[] = { CLUSTER, YES, END };
static const struct cmd_flag s3_set_flags[] = {
	CLUSTER,
	FLAG("file", 'f', CMD_STR, NULL, "FILE",
	  "the whole document, YAML or JSON, - = stdin"),
	TEXT("secret-file", "FILE",
	  "holds the secret key, - = stdin; else QUEEN_S3_SECRET_KEY"),
	TEXT("queues", "LIST", "queues with commas, or * for all"),
	TEXT("endpoint", "URL", "the store, as https://s3.example.com"),
	TEXT("region", "NAME", "region that requests are signed for"),
	TEXT("bucket", "NAME", "the bucket"),
	TEXT("access-key", "ID", "id of the access key"),
	TEXT("prefix", "PATH", "what every key begins with"),
	SWITCH("path-style", 0, "the bucket is in the path, not in the host"),
	ONE_OF("sse", "encryption asked of the store", "AES256 aws:kms"),
	TEXT("sse-kms-key-id", "ID", "key of aws:kms"),
	ONE_OF("format", "jsonl or parquet", "jsonl parquet"),
	ONE_OF("compression", "of JSONL: zstd, gzip or none",
	  "zstd gzip none"),
	ONE_OF("parquet-codec", "of Parquet: zstd or snappy", "zstd snappy"),
	ONE_OF("layout", "merged or per-partition", "merged per-partition"),
	ONE_OF("align", "hour, day or none", "hour day none"),
	ONE_OF("start", "latest, earliest or timestamp:TIME",
	  "latest earliest timestamp:"),
	FLAG("target-mb", 0, CMD_INT, NULL, "N",
	  "size at which a window closes"),
	FLAG("max-window-ms", 0, CMD_INT, NULL, "N",
	  "how long a window stays open"),
	TEXT("sink", "NAME", "name of its rows and of retentionSinkHold"),
	END
};
static const struct cmd_flag s3_resume_flags[] = {
	CLUSTER,
	SWITCH("newest", 0, "go on from the newest window in the bucket"),
	TEXT("prefix", "PATH", "begin anew below this prefix"),
	FLAG("sink", 0, CMD_STR, "default", "NAME", "name of the sink"),
	END
};
static const struct cmd_flag s3_status_flags[] = {
	TEXT("url", "URL",
	  "queen-s3; else QUEEN_S3_URL, http://127.0.0.1:9333"),
	END
};
static const struct cmd_flag set_context_flags[] = {
	FLAG("token-ref", 0, CMD_STR, NULL, "REF",
	  "env, file:///PATH or literal:TOKEN"),
	FLAG("ojs-url", 0, CMD_STR, NULL, "URL",
	  "queen-ojs; else the server's host on port 6634"),
	SWITCH("no-keychain", 0, "accepted; tokens are kept in files anyway"),
	END
};
static const struct cmd_flag up_flags[] = {
	DIR,
	FLAG("port", 0, CMD_INT, "6632", "N", "HTTP port"),
	FLAG("bind", 0, CMD_STR, "127.0.0.1", "ADDR", "address to listen on"),
	WORDS("with", 0, CMD_STR, NULL, "LIST",
	  "tools to run beside queend: pgsrc, pgsink, s3, ojs, with commas",
	  "pgsrc pgsink s3 ojs pgsrc,pgsink pgsrc,pgsink,s3,ojs"),
	SWITCH("detach", 'd', "leave it running"),
	END
};
static const struct cmd_flag down_flags[] = { DIR, END };
static const struct cmd_flag schema_flags[] = { CONNINFO, DIR, END };
static const struct cmd_flag grant_flags[] = { CONNINFO, DIR,
	SWITCH("streams", 0, "and to make schemas, for streams of queen-ojs"),
	SWITCH("dry-run", 0, "print the statements"), END };
static const struct cmd_flag doctor_flags[] = {
	CONNINFO, DIR,
	FLAG("max-lag", 0, CMD_DURATION, "1h", "TIME",
	  "a group further behind is a finding"),
	END
};

#define LIFETIME \
	FLAG("ttl", 0, CMD_DURATION, NULL, "TIME", \
	  "the row is gone after so long"), \
	SWITCH("forever", 0, "the row stays; this or --ttl is needed")
#define EXPECT \
	FLAG("expect", 0, CMD_INT, NULL, "VERSION", \
	  "only if the key has this version; 0 = only if absent")
#define VALUE_FROM \
	FLAG("file", 'f', CMD_STR, NULL, "FILE", \
	  "the value, - = stdin; stdin without an argument"), \
	SWITCH("text", 0, "the value is text, sent as a JSON string")
static const struct cmd_flag kv_get_flags[] = {
	SWITCH("value", 0, "print the value alone, strings bare"), END
};
static const struct cmd_flag kv_put_flags[] = {
	LIFETIME, EXPECT, VALUE_FROM, END
};
static const struct cmd_flag kv_put_if_absent_flags[] = {
	LIFETIME, VALUE_FROM, END
};
static const struct cmd_flag kv_delete_flags[] = { EXPECT, YES, END };
static const struct cmd_flag kv_incr_flags[] = {
	LIFETIME,
	FLAG("min", 0, CMD_STR, NULL, "NUMBER", "not below this"),
	FLAG("max", 0, CMD_STR, NULL, "NUMBER", "not above this"),
	END
};
static const struct cmd_flag kv_batch_flags[] = {
	FLAG("file", 'f', CMD_STR, NULL, "FILE",
	  "the operations, - = stdin"),
	END
};
#define AFTER(q1, q2) \
	SENT("after", 0, CMD_STR, NULL, "KEY", "only keys behind this one", \
	  q1), \
	SENT("limit", 0, CMD_INT, "100", "N", "rows at most, up to 1000", q2)
static const struct cmd_flag kv_list_flags[] = {
	FLAG("prefix", 0, CMD_STR, NULL, "TEXT",
	  "only keys that start with it"),
	AFTER(NULL, NULL),
	SWITCH("keys-only", 0, "without the values"),
	SWITCH("expired", 0, "also rows that have expired"),
	END
};
static const struct cmd_flag timer_schedule_flags[] = {
	FLAG("delay", 0, CMD_DURATION, NULL, "TIME",
	  "due so long from now; 0 = at once"),
	FLAG("txn", 0, CMD_STR, NULL, "ID",
	  "transaction id of the message, else a new one"),
	FLAG("partition", 0, CMD_STR, NULL, "NAME",
	  "partition of the message"),
	FLAG("file", 'f', CMD_STR, NULL, "FILE",
	  "the payload, - = stdin; stdin without an argument"),
	END
};
static const struct cmd_flag timer_cancel_flags[] = {
	FLAG("txn", 0, CMD_STR, NULL, "ID",
	  "comes back when there is no such timer"),
	END
};
static const struct cmd_flag timer_peek_flags[] = {
	SWITCH("payload", 0, "print the payload alone"), END
};
static const struct cmd_flag timer_list_flags[] = {
	AFTER("after", "limit"), END
};
static const struct cmd_flag kv_timers_flags[] = {
	SENT("kv", 0, CMD_BOOL, NULL, NULL, "key/value rows are served",
	  "kv"),
	SENT("timers-schedule", 0, CMD_BOOL, NULL, NULL,
	  "timers can be scheduled", "timersSchedule"),
	SENT("timers-fire", 0, CMD_BOOL, NULL, NULL,
	  "timers become messages", "timersFire"),
	YES, END
};
static const struct cmd_flag tenant_purge_flags[] = {
	SWITCH("allow-default-tenant", 0,
	  "also when it is the tenant of all who name none"),
	YES, END
};
static const struct cmd_flag lock_flags[] = {
	FLAG("ttl", 0, CMD_DURATION, "30s", "TIME",
	  "the lease, renewed every third of it"),
	FLAG("wait", 0, CMD_DURATION, NULL, "TIME",
	  "wait so long for lock and server; else for ever"),
	SWITCH("no-wait", 0, "do not wait when another holds it"),
	FLAG("held-code", 0, CMD_INT, "4", "N",
	  "exit status when another holds it"),
	FLAG("grace", 0, CMD_DURATION, "5s", "TIME",
	  "between SIGTERM and SIGKILL when the lease is lost"),
	FLAG("namespace", 0, CMD_STR, "queen-locks", "NAME",
	  "key/value namespace of the lock"),
	END
};

/* ---- groups and phrases ---- */

const struct cmd_group cmd_groups[] = {
	{ "queue", "queues q", "Queues: list, configure, delete." },
	{ "partition", "partitions p", "Partitions of a queue." },
	{ "namespace", "namespaces ns", "Namespaces of queues." },
	{ "task", "tasks", "Tasks of queues." },
	{ "cg", "consumer-group consumer-groups",
	  "Consumer groups: lag, seek, delete." },
	{ "messages", "message msg msgs", "Single messages." },
	{ "traces", "trace", "Events that applications wrote." },
	{ "dlq", NULL, "Dead letters: list, retry, drain." },
	{ "kv", NULL, "Key/value rows with versions and lifetimes." },
	{ "timer", "timers", "Messages that are due later." },
	{ "connector", "connectors",
	  "Connectors between queues and PostgreSQL tables." },
	{ "s3", "lake", "S3 sinks: queues as files in a bucket." },
	{ "job", "jobs", "Jobs of queen-ojs: push, fetch, ack, cancel." },
	{ "stream", "streams",
	  "Streams of queen-ojs: append, receive, ack." },
	{ "lease", "leases", "Leases of popped messages." },
	{ "analytics", "a an", "Counters over time." },
	{ "maintenance", "maint", "Stop and resume pushes or pops." },
	{ "system", NULL, "Switches of the cell." },
	{ "tenant", "tenants", "Tenants of a shared cell." },
	{ "config", NULL, "Contexts: named servers." },
	{ "schema", NULL, "The schema in the database (no server needed)." },
};
const size_t cmd_groups_n = sizeof(cmd_groups) / sizeof(cmd_groups[0]);

#define ANALYTICS(word, path, text) \
	{ "analytics", word, NULL, NULL, analytics_flags, cmd_analytics, NULL, \
	  path, text }

const struct cmd_phrase cmd_table[] = {
	{ NULL, "up", NULL, NULL, up_flags, cmd_up, NULL, NULL,
	  "start a private cell: PostgreSQL and queend of your own" },
	{ NULL, "down", NULL, NULL, down_flags, cmd_down, NULL, NULL,
	  "stop the private cell" },
	{ NULL, "push", NULL, "<queue>", push_flags, cmd_push, NULL, NULL,
	  "push messages, one JSON payload per line" },
	{ NULL, "pop", NULL, "[queue]", pop_flags, cmd_pop, NULL, NULL,
	  "pop messages, one JSON object per line" },
	{ NULL, "ack", NULL, "[transactionId]", ack_flags, cmd_ack, NULL, NULL,
	  "acknowledge popped messages" },
	{ NULL, "tail", NULL, "<queue>", tail_flags, cmd_tail, NULL, NULL,
	  "print a queue's messages as they come" },
	{ NULL, "tx", NULL, NULL, tx_flags, cmd_tx, NULL, NULL,
	  "commit acks, pushes, key/value operations, timers" },
	{ NULL, "lock", NULL, "<name> -- <command> [argument]...", lock_flags,
	  cmd_lock, NULL, NULL, "run a command while holding a lock" },
	{ NULL, "replay", NULL, "[queue]", replay_flags, cmd_replay, NULL, NULL,
	  "let a group read a queue again" },
	{ NULL, "lag", NULL, NULL, lag_flags, cmd_group_list, &cmd_view_lag,
	  NULL, "how far consumer groups are behind" },
	{ NULL, "status", NULL, "[queue]", status_flags, cmd_status,
	  &cmd_view_status, API "/status/queues", "backlog of the queues" },
	{ NULL, "ping", NULL, NULL, ping_flags, cmd_ping, &cmd_view_ping,
	  "/health", "ask the server and its database for a sign of life" },
	{ NULL, "doctor", NULL, NULL, doctor_flags, cmd_doctor, NULL, NULL,
	  "examine database and cell; each finding names its fix" },
	{ NULL, "apply", NULL, NULL, apply_flags, cmd_apply, NULL, NULL,
	  "make queues and groups as a manifest says" },
	{ NULL, "metrics", NULL, NULL, metrics_flags, cmd_metrics, NULL,
	  "/metrics", "counters of the server" },
	{ NULL, "version", NULL, NULL, version_flags, cmd_version, NULL, NULL,
	  "versions of this program and the server" },
	{ NULL, "completion", NULL, "<shell>", NULL, cmd_completion, NULL, NULL,
	  "print the completion script for bash or zsh" },

	{ "queue", "list", "ls", NULL, queue_list_flags, cmd_queue_list,
	  &cmd_view_queue, API "/resources/queues", "all queues" },
	{ "queue", "describe", "get show", "<queue>", NULL, cmd_get, NULL,
	  API "/resources/queues/{0}", "one queue with its options" },
	{ "queue", "depth", NULL, "<queue>", depth_flags,
	  cmd_queue_depth, NULL, API "/resources/queues/{0}/depth",
	  "backlog, computed now" },
	{ "queue", "configure", "set", "<queue>", configure_flags,
	  cmd_queue_configure, NULL, NULL,
	  "create a queue or change the options given" },
	{ "queue", "delete", "rm", "<queue>", delete_flags, cmd_queue_delete,
	  NULL, NULL, "delete a queue and all it holds" },
	{ "queue", "stats", NULL, NULL, label_flags, cmd_get, NULL,
	  API "/status/queues", "counts of all queues" },

	{ "partition", "list", "ls", "<queue>", NULL, cmd_get,
	  &cmd_view_partitions,
	  API "/status/queues/{0}?includePartitions=true",
	  "partitions of a queue" },
	{ "partition", "describe", "get show", "<queue> <partition>", NULL,
	  cmd_get, &cmd_view_message,
	  API "/messages?queue={0}&partition={1}&limit=50",
	  "recent messages of a partition" },
	{ "partition", "seek", NULL, "<queue> <partition>",
	  partition_seek_flags, cmd_partition_seek, NULL, NULL,
	  "move a group's position on one partition" },

	{ "namespace", "list", "ls", NULL, NULL, cmd_get, &cmd_view_namespace,
	  API "/resources/namespaces", "all namespaces" },
	{ "task", "list", "ls", NULL, NULL, cmd_get, &cmd_view_task,
	  API "/resources/tasks", "all tasks" },

	{ "cg", "list", "ls", NULL, NULL, cmd_get, &cmd_view_lag,
	  API "/consumer-groups", "all groups" },
	{ "cg", "describe", "get show", "<group>", NULL, cmd_get, NULL,
	  API "/consumer-groups/{0}", "one group on all its partitions" },
	{ "cg", "lag", NULL, NULL, lag_flags, cmd_group_list, &cmd_view_lag,
	  NULL, "how far groups are behind" },
	{ "cg", "seek", NULL, "<group> <queue>", seek_flags, cmd_group_seek,
	  NULL, NULL, "move a group's position on a queue" },
	{ "cg", "delete", "rm", "<group>", cg_delete_flags, cmd_group_delete,
	  NULL, NULL, "delete a group's positions" },
	{ "cg", "refresh-stats", NULL, NULL, NULL, cmd_group_refresh, NULL,
	  NULL, "compute statistics now" },

	{ "messages", "list", "ls", NULL, message_flags, cmd_message_list,
	  &cmd_view_message, API "/messages", "stored messages" },
	{ "messages", "get", "describe show", "<partitionId> <transactionId>",
	  NULL, cmd_get, NULL, API "/messages/{0}/{1}", "one message" },
	{ "messages", "delete", "rm", "<partitionId> <transactionId>",
	  delete_flags, cmd_message_delete, NULL, API "/messages/{0}/{1}",
	  "delete the dead letters of a message" },
	{ "messages", "traces", NULL, "<partitionId> <transactionId>", NULL,
	  cmd_get, &cmd_view_trace, API "/traces/{0}/{1}",
	  "events written about a message" },

	{ "traces", "by-message", NULL, "<partitionId> <transactionId>", NULL,
	  cmd_get, &cmd_view_trace, API "/traces/{0}/{1}",
	  "events written about a message" },
	{ "traces", "by-name", NULL, "<name>", trace_page_flags, cmd_get,
	  &cmd_view_trace_by_name, API "/traces/by-name/{0}",
	  "events of a trace name" },
	{ "traces", "names", "list ls", NULL, trace_page_flags, cmd_get,
	  &cmd_view_trace_name, API "/traces/names", "all trace names" },

	{ "dlq", "list", "ls", NULL, dlq_list_flags, cmd_dlq_list,
	  &cmd_view_dlq, API "/dlq", "dead letters, newest first" },
	{ "dlq", "describe", "get show", "<partitionId> <transactionId>", NULL,
	  cmd_get, NULL, API "/messages/{0}/{1}", "one dead message" },
	{ "dlq", "retry", "requeue replay", "[partitionId] [transactionId]",
	  dlq_retry_flags, cmd_dlq_retry, NULL, NULL,
	  "move a dead letter back into its queue" },
	{ "dlq", "drain", NULL, NULL, dlq_drain_flags, cmd_dlq_drain, NULL,
	  API "/dlq", "delete dead letters" },

	{ "kv", "get", "show", "<namespace> <key>", kv_get_flags, cmd_kv_get,
	  &cmd_view_kv_one, NULL, "one row" },
	{ "kv", "put", "set", "<namespace> <key> [value]", kv_put_flags,
	  cmd_kv_put, NULL, NULL, "write a row, or only over a version" },
	{ "kv", "put-if-absent", NULL, "<namespace> <key> [value]",
	  kv_put_if_absent_flags, cmd_kv_put_if_absent, NULL, NULL,
	  "write a row that is not there" },
	{ "kv", "delete", "rm", "<namespace> <key>", kv_delete_flags,
	  cmd_kv_delete, NULL, NULL, "delete a row" },
	{ "kv", "incr", NULL, "<namespace> <key> [delta]", kv_incr_flags,
	  cmd_kv_incr, NULL, NULL, "add to a number and print it" },
	{ "kv", "batch", NULL, NULL, kv_batch_flags, cmd_kv_batch,
	  &cmd_view_kv_result, NULL, "many operations in one transaction" },
	{ "kv", "list", "ls", "<namespace>", kv_list_flags, cmd_kv_list,
	  &cmd_view_kv, NULL, "rows of a namespace, by key" },
	{ "kv", "namespaces", "ns", NULL, NULL, cmd_get, &cmd_view_kv_namespace,
	  API "/resources/kv/namespaces", "all namespaces that have rows" },

	{ "timer", "schedule", "reschedule set", "<queue> <key> [payload]",
	  timer_schedule_flags, cmd_timer_schedule, NULL, NULL,
	  "push a message later, or change when and what" },
	{ "timer", "cancel", "rm", "<queue> <key>", timer_cancel_flags,
	  cmd_timer_cancel, NULL, NULL, "take a timer back" },
	{ "timer", "peek", "get show", "<queue> <key>", timer_peek_flags,
	  cmd_timer_peek, NULL, NULL, "one timer that waits" },
	{ "timer", "list", "ls", "<queue>", timer_list_flags, cmd_timer_list,
	  &cmd_view_timer, API "/timers/{0}", "timers that wait, by key" },
	{ "timer", "count", NULL, "<queue> <prefix>", NULL, cmd_timer_count,
	  NULL, API "/timers/{0}", "how many keys start with the prefix" },

	{ "connector", "list", "ls", NULL, NULL, cmd_get, &cmd_view_connector,
	  API "/connectors", "all connectors" },
	{ "connector", "get", "describe show", "<name>", NULL, cmd_get, NULL,
	  API "/connectors/{0}", "one document, its status and state" },
	{ "connector", "apply", "put", "[name]", apply_flags,
	  cmd_connector_apply, NULL, NULL, "write documents" },
	{ "connector", "delete", "rm", "<name>", connector_delete_flags,
	  cmd_connector_delete, NULL, NULL,
	  "delete one; a source first drops its slot" },
	{ "connector", "resync", NULL, "<name>", connector_resync_flags,
	  cmd_connector_resync, NULL, NULL,
	  "start over: a source with a snapshot, a sink from a place" },
	{ "connector", "adopt", NULL, "<name>", NULL, cmd_connector_adopt,
	  NULL, NULL, "after a restore: go on from what the old cell wrote" },
	{ "connector", "reset", NULL, "<name>", delete_flags,
	  cmd_connector_reset, NULL, NULL,
	  "after a restore: forget what the old cell wrote" },
	{ "connector", "pause", NULL, "<name>", NULL, cmd_connector_pause,
	  NULL, NULL, "stop one, its document and position stay" },
	{ "connector", "resume", NULL, "<name>", NULL, cmd_connector_resume,
	  NULL, NULL, "let a paused one go on" },
	{ "connector", "restart", NULL, "<name>", NULL, cmd_connector_restart,
	  NULL, NULL, "start one anew" },
	{ "connector", "status", NULL, "[name]", NULL, cmd_connector_status,
	  &cmd_view_connector_statuses, API "/connectors", "how they run" },

	{ "s3", "get", "describe show", NULL, s3_flags, cmd_s3_get, NULL,
	  NULL, "the document of a tenant's sink, without its secret" },
	{ "s3", "set", "put", NULL, s3_set_flags, cmd_s3_set, NULL, NULL,
	  "store a sink, or change the settings given" },
	{ "s3", "delete", "rm", NULL, s3_delete_flags, cmd_s3_delete, NULL,
	  NULL, "remove a sink; its bucket stays as it is" },
	{ "s3", "enable", NULL, NULL, s3_flags, cmd_s3_enable, NULL, NULL,
	  "let a sink run" },
	{ "s3", "disable", NULL, NULL, s3_flags, cmd_s3_disable, NULL, NULL,
	  "stop a sink, its document stays" },
	{ "s3", "resume", NULL, "<queue>", s3_resume_flags, cmd_s3_resume,
	  NULL, NULL, "after a restore: how a queue that is held goes on" },
	{ "s3", "status", NULL, NULL, s3_status_flags, cmd_s3_status, NULL,
	  NULL, "queues that a node ships" },

	{ "lease", "extend", NULL, "<leaseId>", lease_flags, cmd_lease_extend,
	  NULL, NULL, "hold popped messages longer" },

	ANALYTICS("overview", API "/status/analytics", "messages over time"),
	ANALYTICS("queue-lag", API "/analytics/queue-lag", "lag over time"),
	ANALYTICS("queue-ops", API "/analytics/queue-ops",
		"pushes, pops and acks over time"),
	ANALYTICS("retention", API "/analytics/retention",
		"what retention removed"),
	ANALYTICS("postgres", API "/analytics/postgres-stats",
		"the database from inside"),

	{ "maintenance", "get", NULL, NULL, maintenance_flags,
	  cmd_maintenance_get, NULL, NULL, "whether it is on" },
	{ "maintenance", "on", NULL, NULL, maintenance_on_flags,
	  cmd_maintenance_on, NULL, NULL, "stop pushes (--pop: pops)" },
	{ "maintenance", "off", NULL, NULL, maintenance_flags,
	  cmd_maintenance_off, NULL, NULL, "resume" },

	{ "system", "kv-timers", NULL, NULL, kv_timers_flags,
	  cmd_system_kv_timers, NULL, NULL,
	  "show or set what key/value rows and timers may do" },

	{ "tenant", "purge", NULL, "<tenant>", tenant_purge_flags,
	  cmd_tenant_purge, NULL, NULL, "remove all that a tenant stored" },

	{ "config", "view", NULL, NULL, NULL, cmd_config_view, NULL, NULL,
	  "the config file, tokens hidden" },
	{ "config", "current-context", "current", NULL, NULL,
	  cmd_config_current, NULL, NULL, "name of the context in use" },
	{ "config", "get-contexts", "list ls get", NULL, NULL, cmd_config_list,
	  &cmd_view_context, NULL, "all contexts" },
	{ "config", "set-context", "set", "<name>", set_context_flags,
	  cmd_config_set, NULL, NULL,
	  "make or change one: --server, --token, --insecure" },
	{ "config", "use-context", "use", "<name>", NULL, cmd_config_use, NULL,
	  NULL, "use this one from now on" },
	{ "config", "delete-context", "delete rm", "<name>", NULL,
	  cmd_config_delete, NULL, NULL, "forget one" },

	{ "schema", "apply", NULL, NULL, schema_flags, cmd_schema_apply, NULL,
	  NULL, "bring the database to this program's schema" },
	{ "schema", "status", NULL, NULL, schema_flags, cmd_schema_status,
	  NULL, NULL, "compare database and program" },
	{ "schema", "rebase-streams", NULL, NULL, schema_flags,
	  cmd_schema_rebase, NULL, NULL,
	  "after a restore: give streams the ids of this server" },
	{ "schema", "grant", NULL, "<role>", grant_flags, cmd_schema_grant,
	  NULL, NULL, "give a role what the tools need" },
};
const size_t cmd_table_n = sizeof(cmd_table) / sizeof(cmd_table[0]);
