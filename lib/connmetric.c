/* SPDX-License-Identifier: Apache-2.0 */
/* One table for those who count and those who show. */
#include "connmetric.h"

const struct connmetric connmetric_table[CONNMETRIC_N] = {
	{ "queen_pg_source_transactions_total", "counter",
		"Transactions of the source that are in the queue." },
	{ "queen_pg_source_messages_total", "counter",
		"Messages of stream and snapshot." },
	{ "queen_pg_source_bundles_total", "counter",
		"Queue transactions committed." },
	{ "queen_pg_source_snapshot_rows_total", "counter",
		"Rows read by snapshots." },
	{ "queen_pg_source_slot_lag_bytes", "gauge",
		"WAL of the source behind what it may discard." },
	{ "queen_pg_source_pointer_lsn", "gauge",
		"Position up to which the queue holds the source." },
	{ "queen_pg_sink_applied_total", "counter",
		"Messages applied to the target." },
	{ "queen_pg_sink_skipped_total", "counter",
		"Messages that had been applied before." },
	{ "queen_pg_sink_dlq_total", "counter",
		"Messages sent to the dead letters." },
	{ "queen_pg_sink_batches_total", "counter",
		"Target transactions committed." },
	{ "queen_pg_connector_errors_total", "counter",
		"Errors of connectors." },
	{ "queen_pg_connector_owner", "gauge",
		"1 while a node does the work of the connector." },
};

int
connmetric_find(struct span name)
{
	for (int i = 0; i < CONNMETRIC_N; i++)
		if (span_is(name, connmetric_table[i].name))
			return i;
	return -1;
}

bool
connmetric_is_counter(int i)
{
	return connmetric_table[i].type[0] == 'c';
}
