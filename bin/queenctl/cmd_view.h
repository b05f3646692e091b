/* SPDX-License-Identifier: Apache-2.0 */
/* What the tables of the commands show. */
#ifndef QUEENCTL_CMD_VIEW_H
#define QUEENCTL_CMD_VIEW_H

struct out_view;

extern const struct out_view cmd_view_queue, cmd_view_namespace,
	cmd_view_task, cmd_view_lag, cmd_view_message, cmd_view_trace,
	cmd_view_trace_name, cmd_view_trace_by_name, cmd_view_dlq,
	cmd_view_status, cmd_view_ping, cmd_view_context, cmd_view_kv,
	cmd_view_kv_one, cmd_view_kv_result, cmd_view_kv_namespace,
	cmd_view_timer, cmd_view_connector, cmd_view_connector_statuses,
	cmd_view_connector_status, cmd_view_depth, cmd_view_depth_conflating,
	cmd_view_partitions, cmd_view_one_status, cmd_view_s3_status;
/* cmd_view_ojs.c */
extern const struct out_view cmd_view_job, cmd_view_job_rows,
	cmd_view_job_events, cmd_view_job_dead, cmd_view_cron,
	cmd_view_cron_one, cmd_view_workflow, cmd_view_workflow_one,
	cmd_view_ojs_queue, cmd_view_ojs_config, cmd_view_ojs_stats,
	cmd_view_appended, cmd_view_consumer, cmd_view_batch,
	cmd_view_stream_dead;

#endif
