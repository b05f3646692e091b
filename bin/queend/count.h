/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters: totals of the process for /metrics, and per queue and minute for
 * queen.queue_minutes (flushed every METRICS_FLUSH_MS, active queues only).
 */
#ifndef QUEEND_COUNT_H
#define QUEEND_COUNT_H

#include <stdbool.h>
#include <stdint.h>

struct ctx;
struct counts;

struct counts *counts_new(struct ctx *x);
void counts_free(struct counts *c);

/* requests: HTTP requests that named the queue. */
void count_push(struct ctx *x, int64_t queue_id, int requests, int messages);
/* lag_ms: age of the oldest message delivered; < 0 = nothing delivered. */
void count_pop(struct ctx *x, int64_t queue_id, int messages, int64_t lag_ms,
	bool wildcard);
void count_pop_fill_wait(struct ctx *x, int64_t waited_us);
void count_ack(struct ctx *x, int64_t queue_id, int requests, int success,
	int failed, int dead, int64_t conflated);
void count_transaction(struct ctx *x, int64_t queue_id);
void count_partitions(struct ctx *x, int64_t queue_id, int created,
	int deleted);
void count_db_error(struct ctx *x);

enum count_op { COUNT_PUSH, COUNT_POP, COUNT_ACK, COUNT_OPS };
/* A coalesced call came back: its inputs (segments, claims, acks), messages
 * and round trip. */
void count_batch(struct ctx *x, enum count_op op, int items, int messages,
	int64_t rtt_us);
/* A request was answered; for the rates line. */
void count_latency(struct ctx *x, enum count_op op, int64_t us);

/* Totals since the process started, for /metrics. */
struct count_totals {
	uint64_t requests[COUNT_OPS], messages[COUNT_OPS];
	uint64_t pops_wildcard, pops_targeted;
	uint64_t fill_waits, fill_wait_us;
	uint64_t batches[COUNT_OPS], batch_items[COUNT_OPS];
	uint64_t batch_messages[COUNT_OPS];
	uint64_t db_errors, ack_failed, dead_letters, transactions;
	/* of the last finished rates window */
	double rtt_p50_ms[COUNT_OPS], rtt_p99_ms[COUNT_OPS];
	double items_per_batch[COUNT_OPS];
	int64_t loop_lag_avg_us, loop_lag_max_us;
};
void counts_totals(const struct counts *c, struct count_totals *out);

#endif
