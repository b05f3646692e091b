/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /metrics of the sinks.  Counters outlive the queue that counted
 * them, and the sink; they end with the tenant's configuration.
 */
#ifndef QUEEN_S3_METRICS_H
#define QUEEN_S3_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "queue.h"
#include "s3conf.h"

struct buf;
struct s3_counts;

enum { METRICS_BUCKETS = 8 };
struct metrics_histogram {
	uint64_t bucket[METRICS_BUCKETS], count, sum;
};

struct metrics_ended;
TAILQ_HEAD(metrics_ended_list, metrics_ended);

/* The counters of one tenant. */
struct metrics_tenant {
	struct span tenant; /* empty: the default one, no label */
	struct metrics_ended_list ended;
	struct metrics_histogram records, bytes;
	struct s3_counts *requests;
};
void metrics_tenant_init(struct metrics_tenant *t, struct span tenant);
void metrics_tenant_fini(struct metrics_tenant *t);
void metrics_window(struct metrics_tenant *t, int64_t records, int64_t bytes);
/* The counts of a queue that is not there any more. */
void metrics_keep(struct metrics_tenant *t, struct span queue,
	const struct queue_counts *c);

/* What one sink shows now. */
struct metrics_sink {
	const struct metrics_tenant *tenant;
	const struct queue_status *queues; /* in the order of names */
	size_t queues_n;
	enum s3_format format;
};
struct metrics_node {
	int64_t buffer_bytes;
	bool cell_up;
	int64_t started_ms;
};
void metrics_write(struct buf *b, const struct metrics_sink *s, size_t n,
	const struct metrics_node *node);

#endif
