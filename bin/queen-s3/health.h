/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far behind the queues of a sink are.  Between two reports
 * the last lag grows with the clock: who is stuck in one upload goes red.
 */
#ifndef QUEEN_S3_HEALTH_H
#define QUEEN_S3_HEALTH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "map.h"
#include "span.h"

struct health_queue;
TAILQ_HEAD(health_list, health_queue);
struct health {
	struct health_list list; /* in the order of names */
	struct map by_name; /* every queue is reported every second */
	int64_t limit_ms;
	int n;
};
/* 3 windows, at least 30 s. */
void health_init(struct health *h, int64_t max_window_ms);
void health_fini(struct health *h);
/* It runs here; one that did already keeps its history. */
void health_runs(struct health *h, struct span queue, int64_t now_ms);
/*
 * What its engine tells; lag_us -1: not known.  stamp_us: of the log, an older
 * one than the last and an equal one say nothing new.
 */
void health_report(struct health *h, struct span queue, int64_t lag_us,
	int64_t stamp_us, int64_t now_ms);
void health_forget(struct health *h, struct span queue);

struct health_behind {
	struct span queue;
	int64_t stale_ms, limit_ms;
};
/* The first by name that is beyond the limit; false: none is. */
bool health_behind(
	const struct health *h, int64_t now_ms, struct health_behind *out);

#endif
