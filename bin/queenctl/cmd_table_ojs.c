/* SPDX-License-Identifier: Apache-2.0 */
/* Every phrase and flag of queen-ojs. */
#include "cmd_flag.h"
#include "cmd_view.h"
#include "cmds.h"

/* clang-format off */

#define API "/ojs/v1"
#define Q API "/queues/{0}"

/* ---- flags that come again ---- */

#define PAGE \
	SENT("limit", 0, CMD_INT, NULL, "N", "rows at most, else 50", \
	  "limit"), \
	SENT("offset", 0, CMD_INT, NULL, "N", "rows to skip", "offset"), \
	SENT("cursor", 0, CMD_STR, NULL, "TEXT", \
	  "go on where a page ended", "cursor")
#define WORKER \
	SENT("worker", 0, CMD_STR, NULL, "NAME", "the worker that holds it", \
	  "worker_id"), \
	SENT("attempt", 0, CMD_INT, NULL, "N", "only if this attempt runs", \
	  "attempt")
#define LEASE(h) \
	SENT("lease", 0, CMD_DURATION, NULL, "TIME", h, \
	  "visibility_timeout_ms")
#define LINES \
	FLAG("batch", 0, CMD_INT, "100", "N", "lines per request"), \
	FLAG("file", 'f', CMD_STR, NULL, "FILE", \
	  "one per line, - = stdin; stdin without an argument"), \
	SWITCH("dry-run", 0, "count the lines, send nothing")

/* ---- job ---- */

static const struct cmd_flag job_push_flags[] = {
	SENT("queue", 0, CMD_STR, NULL, "QUEUE", "else default", "queue"),
	SENT("priority", 0, CMD_INT, NULL, "N", "-100 to 100, higher first",
	  "priority"),
	FLAG("delay", 0, CMD_DURATION, NULL, "TIME",
	  "can be fetched so long from now"),
	FLAG("expires", 0, CMD_DURATION, NULL, "TIME",
	  "discarded unless started so long from now"),
	SENT("timeout", 0, CMD_DURATION, NULL, "TIME", "of one attempt",
	  "timeout_ms"),
	LEASE("lease of a fetch that names none"),
	FLAG("max-attempts", 0, CMD_INT, NULL, "N",
	  "attempts in all; instead of --retry"),
	FLAG("retry", 0, CMD_STR, NULL, "JSON", "retry policy"),
	FLAG("unique", 0, CMD_STR, NULL, "JSON", "unique policy"),
	FLAG("rate-limit", 0, CMD_STR, NULL, "JSON", "rate limit"),
	FLAG("meta", 0, CMD_STR, NULL, "JSON", "kept and shown"),
	FLAG("id", 0, CMD_STR, NULL, "UUID", "of the job, a UUIDv7"),
	SENT("pending", 0, CMD_BOOL, NULL, NULL, "waits for activate",
	  "pending"),
	LINES, END
};
static const struct cmd_flag job_fetch_flags[] = {
	FLAG("limit", 'n', CMD_INT, "1", "N", "jobs to claim at most"),
	SENT("worker", 0, CMD_STR, NULL, "NAME", "who fetches", "worker_id"),
	LEASE("lease, else the job's or the queue's"),
	FLAG("wait", 0, CMD_DURATION, "0s", "TIME", "wait so long for a job"),
	END
};
static const struct cmd_flag job_ack_flags[] = {
	WORKER,
	FLAG("file", 'f', CMD_STR, NULL, "FILE", "the result, - = stdin"),
	END
};
static const struct cmd_flag job_nack_flags[] = {
	WORKER,
	FLAG("type", 0, CMD_STR, NULL, "NAME", "type of the error"),
	FLAG("code", 0, CMD_STR, NULL, "WORD",
	  "of the error; RETRY, DISCARD, DEAD_LETTER and FAIL decide"),
	FLAG("details", 0, CMD_STR, NULL, "JSON", "details of the error"),
	SWITCH("final", 0, "not to be tried again"),
	SENT("requeue", 0, CMD_BOOL, NULL, NULL,
	  "give it back: no error, no delay", "requeue"),
	END
};
static const struct cmd_flag job_heartbeat_flags[] = {
	LEASE("from now on, else as long as before"), END
};
static const struct cmd_flag job_events_flags[] = {
	SENT("after", 0, CMD_STR, NULL, "TEXT", "go on where a page ended",
	  "after"),
	SENT("types", 0, CMD_STR, NULL, "LIST", "as job.completed,job.failed",
	  "types"),
	SENT("queues", 0, CMD_STR, NULL, "LIST", "only these queues",
	  "queues"),
	SENT("job-types", 0, CMD_STR, NULL, "LIST", "only these types of jobs",
	  "job_types"),
	SENT("limit", 0, CMD_INT, NULL, "N", "rows at most, else 100",
	  "limit"),
	END
};
static const struct cmd_flag job_dead_flags[] = {
	SENT("queue", 0, CMD_STR, NULL, "QUEUE", "only this queue", "queue"),
	SENT("type", 0, CMD_STR, NULL, "TYPE", "only this type", "type"),
	PAGE, END
};
static const struct cmd_flag page_flags[] = { PAGE, END };
static const struct cmd_flag yes_flags[] = { YES, END };
static const struct cmd_flag document_flags[] = {
	FLAG("file", 'f', CMD_STR, NULL, "FILE", "YAML or JSON, - = stdin"),
	DRY, END
};
#define QUEUE_OPTIONS \
	SENT("lease", 0, CMD_DURATION, NULL, "TIME", \
	  "of a job that names none", "visibility_timeout_ms"), \
	SENT("job-retention", 0, CMD_DURATION, NULL, "TIME", \
	  "how long jobs that ended are kept", "job_retention_ms"), \
	SENT("dead-letter-retention", 0, CMD_DURATION, NULL, "TIME", \
	  "how long dead letters are kept", "dead_letter_retention_ms"), \
	SENT("dead-letter-max", 0, CMD_INT, NULL, "N", \
	  "dead letters kept at most", "dead_letter_max"), \
	SENT("max-jobs", 0, CMD_INT, NULL, "N", \
	  "jobs that have not ended, at most", "max_jobs"), \
	SENT("max-events", 0, CMD_INT, NULL, "N", \
	  "events in the stream, at most", "max_events"), \
	SENT("max-retries", 0, CMD_INT, NULL, "N", \
	  "nacks of an event before the dead letter", "max_retries"), \
	SENT("retention", 0, CMD_DURATION, NULL, "TIME", \
	  "how long events are kept at least", "retention_ms"), \
	FLAG("default", 0, CMD_STR, NULL, "LIST", \
	  "options that get their default again, as max-jobs,lease")
static const struct cmd_flag queue_backup_flags[] = {
	CONNINFO, DIR,
	FLAG("out", 0, CMD_STR, NULL, "FILE", "write there; else to stdout"),
	END
};
static const struct cmd_flag queue_restore_flags[] = {
	CONNINFO, DIR,
	FLAG("as", 0, CMD_STR, NULL, "NAME", "name of the queue, else its own"),
	END
};
static const struct cmd_flag queue_config_flags[] = { QUEUE_OPTIONS, END };

/* ---- stream ---- */

static const struct cmd_flag append_flags[] = {
	FLAG("id", 0, CMD_STR, NULL, "ID", "of the event"),
	FLAG("headers", 0, CMD_STR, NULL, "JSON", "an object beside it"),
	LINES, END
};
static const struct cmd_flag subscribe_flags[] = {
	WORDS("from", 0, CMD_STR, NULL, "TICK",
	  "now, 0 for all that is there, or a tick; else the latest one",
	  "now 0"),
	END
};
static const struct cmd_flag receive_flags[] = {
	SENT("max", 'n', CMD_INT, NULL, "N", "refuse a larger batch", "max"),
	SENT("member", 0, CMD_STR, NULL, "NAME", "share the batches",
	  "member"),
	SENT("dead-interval", 0, CMD_DURATION, NULL, "TIME",
	  "take over from members that were silent so long",
	  "dead_interval_ms"),
	FLAG("wait", 0, CMD_DURATION, "0s", "TIME", "wait so long for one"),
	SWITCH("ack", 0, "acknowledge the batch once it is printed"),
	END
};
static const struct cmd_flag stream_ack_flags[] = {
	SENT("consumer", 0, CMD_STR, NULL, "NAME", "only if it is this one's",
	  "consumer"),
	SENT("member", 0, CMD_STR, NULL, "NAME", "only if it is this one's",
	  "member"),
	END
};
static const struct cmd_flag stream_nack_flags[] = {
	SENT("seq", 0, CMD_INT, NULL, "N", "its number, beside or for its id",
	  "seq"),
	FLAG("retry-after", 0, CMD_DURATION, NULL, "TIME",
	  "deliver it again so long from now"),
	SENT("reason", 0, CMD_STR, NULL, "TEXT", "kept with a dead letter",
	  "reason"),
	END
};
static const struct cmd_flag batch_flags[] = {
	SENT("payload", 0, CMD_BOOL, NULL, NULL, "with payloads and headers",
	  "payload"),
	END
};
static const struct cmd_flag stream_dead_flags[] = {
	SENT("consumer", 0, CMD_STR, NULL, "NAME", "only of this consumer",
	  "consumer"),
	PAGE, END
};
static const struct cmd_flag purge_flags[] = {
	SENT("older-than", 0, CMD_STR, "720h", "TIME", "dead for so long",
	  "older_than"),
	YES, END
};

const struct cmd_phrase cmd_table_ojs[] = {
	{ "job", "push", "enqueue", "[type] [args]", job_push_flags,
	  cmd_job_push, &cmd_view_job_rows, NULL,
	  "push a job, or one per line of stdin" },
	{ "job", "fetch", "claim", "[queues]", job_fetch_flags, cmd_job_fetch,
	  NULL, API "/workers/fetch", "claim jobs, one JSON object per line" },
	{ "job", "ack", "complete", "<job> [result]", job_ack_flags,
	  cmd_job_ack, NULL, API "/workers/ack", "a claimed job is done" },
	{ "job", "nack", "fail", "<job> [message]", job_nack_flags,
	  cmd_job_nack, NULL, API "/workers/nack", "a claimed job failed" },
	{ "job", "get", "describe show", "<job>", NULL, cmd_ojs_get,
	  &cmd_view_job, API "/jobs/{0}", "one job" },
	{ "job", "cancel", NULL, "<job>", NULL, cmd_job_cancel, &cmd_view_job,
	  API "/jobs/{0}", "cancel a job that has not ended" },
	{ "job", "activate", NULL, "<job>", NULL, cmd_job_activate,
	  &cmd_view_job, API "/jobs/{0}/activate", "let a pending job run" },
	{ "job", "heartbeat", "beat", "<worker> [jobs]", job_heartbeat_flags,
	  cmd_job_heartbeat, NULL, API "/workers/heartbeat",
	  "hold claimed jobs longer" },
	{ "job", "events", NULL, NULL, job_events_flags, cmd_ojs_get,
	  &cmd_view_job_events, API "/events", "what happened to jobs" },
	{ "job", "dead-list", "dead-ls", NULL, job_dead_flags, cmd_ojs_get,
	  &cmd_view_job_dead, API "/dead-letter",
	  "dead letters, newest first" },
	{ "job", "dead-retry", "dead-requeue", "<job>", yes_flags,
	  cmd_job_dead_retry, &cmd_view_job, API "/dead-letter/{0}/retry",
	  "make a dead letter available again" },
	{ "job", "dead-delete", "dead-rm", "<job>", yes_flags,
	  cmd_job_dead_delete, NULL, API "/dead-letter/{0}",
	  "delete a dead letter for good" },
	{ "job", "cron-list", "cron-ls", NULL, page_flags, cmd_ojs_get,
	  &cmd_view_cron, API "/cron", "recurring jobs" },
	{ "job", "cron-get", "cron-show", "<name>", NULL, cmd_ojs_get,
	  &cmd_view_cron_one, API "/cron/{0}", "one recurring job" },
	{ "job", "cron-apply", "cron-put", NULL, document_flags,
	  cmd_cron_apply, NULL, API "/cron", "write recurring jobs" },
	{ "job", "cron-delete", "cron-rm", "<name>", yes_flags,
	  cmd_cron_delete, NULL, API "/cron/{0}", "delete a recurring job" },
	{ "job", "workflow-list", "workflow-ls", NULL, page_flags, cmd_ojs_get,
	  &cmd_view_workflow, API "/workflows", "workflows" },
	{ "job", "workflow-get", "workflow-show", "<workflow>", NULL,
	  cmd_ojs_get, &cmd_view_workflow_one, API "/workflows/{0}",
	  "one workflow" },
	{ "job", "workflow-apply", "workflow-create", NULL, document_flags,
	  cmd_workflow_apply, NULL, API "/workflows", "start workflows" },
	{ "job", "workflow-cancel", NULL, "<workflow>", NULL,
	  cmd_workflow_cancel, NULL, API "/workflows/{0}",
	  "cancel what of it has not begun" },
	{ "job", "queue-list", "queue-ls status", NULL, page_flags, cmd_ojs_get,
	  &cmd_view_ojs_queue, API "/queues", "queues of jobs and streams" },
	{ "job", "queue-stats", NULL, "<queue>", NULL, cmd_ojs_get,
	  &cmd_view_ojs_stats, Q "/stats", "how many jobs in each state" },
	{ "job", "queue-create", NULL, "<queue>", queue_config_flags,
	  cmd_ojs_queue_create, NULL, API "/queues", "make a queue" },
	{ "job", "queue-config", "queue-configure", "<queue>",
	  queue_config_flags, cmd_ojs_queue_config, &cmd_view_ojs_config,
	  Q "/config", "show the options, or change those given" },
	{ "job", "queue-pause", NULL, "<queue>", NULL, cmd_ojs_queue_pause,
	  NULL, Q "/pause", "stop giving out jobs" },
	{ "job", "queue-resume", NULL, "<queue>", NULL, cmd_ojs_queue_resume,
	  NULL, Q "/resume", "give out jobs again" },
	{ "job", "queue-drop", "queue-delete queue-rm", "<queue>", yes_flags,
	  cmd_ojs_queue_drop, NULL, Q,
	  "drop a queue, its jobs, recurring jobs and stream" },
	{ "job", "queue-backup", NULL, "<queue>", queue_backup_flags,
	  cmd_ojs_queue_backup, NULL, NULL,
	  "write a queue, its jobs and stream as lines" },
	{ "job", "queue-restore", NULL, "[file]", queue_restore_flags,
	  cmd_ojs_queue_restore, NULL, NULL, "make a queue of its backup" },

	{ "stream", "append", "push", "<queue> [type] [payload]", append_flags,
	  cmd_stream_append, &cmd_view_appended, NULL,
	  "append an event, or one per line of stdin" },
	{ "stream", "subscribe", NULL, "<queue> <consumer>", subscribe_flags,
	  cmd_stream_subscribe, NULL, Q "/consumers",
	  "make a consumer, or move one" },
	{ "stream", "unsubscribe", NULL, "<queue> <consumer>", yes_flags,
	  cmd_stream_unsubscribe, NULL, Q "/consumers/{1}",
	  "delete a consumer and its position" },
	{ "stream", "consumers", NULL, "<queue>", NULL, cmd_ojs_get,
	  &cmd_view_consumer, Q "/consumers", "consumers and their lag" },
	{ "stream", "receive", "pop", "<queue> <consumer>", receive_flags,
	  cmd_stream_receive, NULL, Q "/receive",
	  "get a batch, one JSON object per line" },
	{ "stream", "ack", NULL, "<queue> <batch>", stream_ack_flags,
	  cmd_stream_ack, NULL, API "/streams/ack", "a batch is done" },
	{ "stream", "nack", NULL, "<queue> <batch> [message]",
	  stream_nack_flags, cmd_stream_nack, NULL, API "/streams/nack",
	  "deliver one event of a batch again" },
	{ "stream", "info", "describe show", "<queue>", NULL, cmd_ojs_get,
	  NULL, Q "/info", "the log, its segments and who holds it" },
	{ "stream", "batch", NULL, "<queue> <batch>", batch_flags, cmd_ojs_get,
	  &cmd_view_batch, Q "/batches/{1}", "events of an active batch" },
	{ "stream", "dead-list", "dead-ls", "<queue>", stream_dead_flags,
	  cmd_ojs_get, &cmd_view_stream_dead, Q "/dlq",
	  "dead letters of a stream" },
	{ "stream", "dead-replay", "dead-retry", "<queue> [id]", yes_flags,
	  cmd_stream_replay, NULL, Q "/dlq", "deliver one again, or all" },
	{ "stream", "dead-purge", NULL, "<queue>", purge_flags,
	  cmd_stream_purge, NULL, Q "/dlq", "delete old dead letters" },
};
const size_t cmd_table_ojs_n =
	sizeof(cmd_table_ojs) / sizeof(cmd_table_ojs[0]);
