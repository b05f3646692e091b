/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers the table of phrases names; each returns an exit code. */
#ifndef QUEENCTL_CMDS_H
#define QUEENCTL_CMDS_H

#include "cmd.h"

struct out_view;
struct span;

/* cmd_get.c: a GET printed by the phrase's view, and what it is made of */
int cmd_get(struct ctl *c, const struct cmd_call *a);
/* The path of a->phrase->get with its arguments; caller frees. */
void cmd_get_place(const struct cmd_call *a, struct buf *path);
/* The same with the flags as a query. */
void cmd_get_path(const struct cmd_call *a, struct buf *path);
/* Appends a time flag as RFC 3339; CTL_USER when it does not parse. */
int cmd_get_time(const struct cmd_call *a, const char *flag, struct buf *path);
/* GETs the path and prints it; consumes path. */
int cmd_get_print(struct ctl *c, struct buf *path, const struct out_view *view);
/* True with --yes; else a refusal is printed. */
bool cmd_confirmed(const struct cmd_call *a, const char *what);

/* cmd_data.c, cmd_pop.c, cmd_ack.c */
int cmd_push(struct ctl *c, const struct cmd_call *a);
int cmd_pop(struct ctl *c, const struct cmd_call *a);
int cmd_tail(struct ctl *c, const struct cmd_call *a);
int cmd_ack(struct ctl *c, const struct cmd_call *a);
int cmd_tx(struct ctl *c, const struct cmd_call *a);
int cmd_lease_extend(struct ctl *c, const struct cmd_call *a);

/* cmd_queue.c */
int cmd_queue_list(struct ctl *c, const struct cmd_call *a);
int cmd_queue_depth(struct ctl *c, const struct cmd_call *a);
int cmd_queue_configure(struct ctl *c, const struct cmd_call *a);
int cmd_queue_delete(struct ctl *c, const struct cmd_call *a);

/* cmd_group.c */
int cmd_group_list(struct ctl *c, const struct cmd_call *a);
int cmd_group_seek(struct ctl *c, const struct cmd_call *a);
int cmd_group_delete(struct ctl *c, const struct cmd_call *a);
int cmd_group_refresh(struct ctl *c, const struct cmd_call *a);
int cmd_partition_seek(struct ctl *c, const struct cmd_call *a);
int cmd_replay(struct ctl *c, const struct cmd_call *a);

/* cmd_message.c */
int cmd_message_list(struct ctl *c, const struct cmd_call *a);
int cmd_message_delete(struct ctl *c, const struct cmd_call *a);

/* cmd_dlq.c */
int cmd_dlq_list(struct ctl *c, const struct cmd_call *a);
int cmd_dlq_retry(struct ctl *c, const struct cmd_call *a);
int cmd_dlq_drain(struct ctl *c, const struct cmd_call *a);

/* cmd_admin.c */
int cmd_status(struct ctl *c, const struct cmd_call *a);
int cmd_ping(struct ctl *c, const struct cmd_call *a);
int cmd_version(struct ctl *c, const struct cmd_call *a);
int cmd_metrics(struct ctl *c, const struct cmd_call *a);
int cmd_analytics(struct ctl *c, const struct cmd_call *a);
int cmd_maintenance_get(struct ctl *c, const struct cmd_call *a);
int cmd_maintenance_on(struct ctl *c, const struct cmd_call *a);
int cmd_maintenance_off(struct ctl *c, const struct cmd_call *a);

int cmd_apply(struct ctl *c, const struct cmd_call *a);

/* cmd_kv.c, cmd_timer.c, cmd_lock.c */
int cmd_kv_get(struct ctl *c, const struct cmd_call *a);
int cmd_kv_put(struct ctl *c, const struct cmd_call *a);
int cmd_kv_put_if_absent(struct ctl *c, const struct cmd_call *a);
int cmd_kv_delete(struct ctl *c, const struct cmd_call *a);
int cmd_kv_incr(struct ctl *c, const struct cmd_call *a);
int cmd_kv_batch(struct ctl *c, const struct cmd_call *a);
int cmd_kv_list(struct ctl *c, const struct cmd_call *a);
int cmd_timer_schedule(struct ctl *c, const struct cmd_call *a);
int cmd_timer_cancel(struct ctl *c, const struct cmd_call *a);
int cmd_timer_peek(struct ctl *c, const struct cmd_call *a);
int cmd_timer_list(struct ctl *c, const struct cmd_call *a);
int cmd_timer_count(struct ctl *c, const struct cmd_call *a);
int cmd_system_kv_timers(struct ctl *c, const struct cmd_call *a);
int cmd_lock(struct ctl *c, const struct cmd_call *a);
/* CTL_NOTHING = not found; an error when the answer does not say. */
int cmd_kv_found(struct ctl *c, struct span answer);
/* Says on stderr how a page that was cut goes on. */
void cmd_kv_tell_more(struct ctl *c, struct span answer);

/* cmd_connector.c */
int cmd_connector_apply(struct ctl *c, const struct cmd_call *a);
int cmd_connector_delete(struct ctl *c, const struct cmd_call *a);
int cmd_connector_resync(struct ctl *c, const struct cmd_call *a);
int cmd_connector_adopt(struct ctl *c, const struct cmd_call *a);
int cmd_connector_reset(struct ctl *c, const struct cmd_call *a);
int cmd_connector_pause(struct ctl *c, const struct cmd_call *a);
int cmd_connector_resume(struct ctl *c, const struct cmd_call *a);
int cmd_connector_restart(struct ctl *c, const struct cmd_call *a);
int cmd_connector_status(struct ctl *c, const struct cmd_call *a);

/* cmd_s3.c, cmd_s3_status.c */
int cmd_s3_get(struct ctl *c, const struct cmd_call *a);
int cmd_s3_set(struct ctl *c, const struct cmd_call *a);
int cmd_s3_delete(struct ctl *c, const struct cmd_call *a);
int cmd_s3_enable(struct ctl *c, const struct cmd_call *a);
int cmd_s3_disable(struct ctl *c, const struct cmd_call *a);
int cmd_s3_resume(struct ctl *c, const struct cmd_call *a);
int cmd_s3_status(struct ctl *c, const struct cmd_call *a);

int cmd_tenant_purge(struct ctl *c, const struct cmd_call *a);

/* cmd_ojs.c: a GET of queen-ojs printed by the phrase's view */
int cmd_ojs_get(struct ctl *c, const struct cmd_call *a);

/* cmd_job.c, cmd_job_end.c */
int cmd_job_push(struct ctl *c, const struct cmd_call *a);
int cmd_job_fetch(struct ctl *c, const struct cmd_call *a);
int cmd_job_ack(struct ctl *c, const struct cmd_call *a);
int cmd_job_nack(struct ctl *c, const struct cmd_call *a);
int cmd_job_cancel(struct ctl *c, const struct cmd_call *a);
int cmd_job_activate(struct ctl *c, const struct cmd_call *a);
int cmd_job_heartbeat(struct ctl *c, const struct cmd_call *a);
int cmd_job_dead_retry(struct ctl *c, const struct cmd_call *a);
int cmd_job_dead_delete(struct ctl *c, const struct cmd_call *a);

/* cmd_job_admin.c */
int cmd_cron_apply(struct ctl *c, const struct cmd_call *a);
int cmd_cron_delete(struct ctl *c, const struct cmd_call *a);
int cmd_workflow_apply(struct ctl *c, const struct cmd_call *a);
int cmd_workflow_cancel(struct ctl *c, const struct cmd_call *a);
int cmd_ojs_queue_create(struct ctl *c, const struct cmd_call *a);
int cmd_ojs_queue_config(struct ctl *c, const struct cmd_call *a);
int cmd_ojs_queue_pause(struct ctl *c, const struct cmd_call *a);
int cmd_ojs_queue_resume(struct ctl *c, const struct cmd_call *a);
int cmd_ojs_queue_drop(struct ctl *c, const struct cmd_call *a);

/* cmd_backup.c, cmd_restore.c */
int cmd_ojs_queue_backup(struct ctl *c, const struct cmd_call *a);
int cmd_ojs_queue_restore(struct ctl *c, const struct cmd_call *a);

/* cmd_stream.c */
int cmd_stream_append(struct ctl *c, const struct cmd_call *a);
int cmd_stream_subscribe(struct ctl *c, const struct cmd_call *a);
int cmd_stream_unsubscribe(struct ctl *c, const struct cmd_call *a);
int cmd_stream_receive(struct ctl *c, const struct cmd_call *a);
int cmd_stream_ack(struct ctl *c, const struct cmd_call *a);
int cmd_stream_nack(struct ctl *c, const struct cmd_call *a);
int cmd_stream_replay(struct ctl *c, const struct cmd_call *a);
int cmd_stream_purge(struct ctl *c, const struct cmd_call *a);

/* cmd_config.c */
int cmd_config_view(struct ctl *c, const struct cmd_call *a);
int cmd_config_current(struct ctl *c, const struct cmd_call *a);
int cmd_config_list(struct ctl *c, const struct cmd_call *a);
int cmd_config_set(struct ctl *c, const struct cmd_call *a);
int cmd_config_use(struct ctl *c, const struct cmd_call *a);
int cmd_config_delete(struct ctl *c, const struct cmd_call *a);
int cmd_completion(struct ctl *c, const struct cmd_call *a);

/* cmd_cell.c, cmd_schema.c, cmd_doctor.c */
int cmd_up(struct ctl *c, const struct cmd_call *a);
int cmd_down(struct ctl *c, const struct cmd_call *a);
int cmd_schema_apply(struct ctl *c, const struct cmd_call *a);
int cmd_schema_status(struct ctl *c, const struct cmd_call *a);
int cmd_schema_grant(struct ctl *c, const struct cmd_call *a);
int cmd_schema_rebase(struct ctl *c, const struct cmd_call *a);
int cmd_doctor(struct ctl *c, const struct cmd_call *a);

#endif
