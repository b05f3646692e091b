/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one queue in one sink on this node: claim, restore, windows one
 * after the other, hand over; and again, until it is told to stop.
 */
#ifndef QUEEN_S3_QUEUE_H
#define QUEEN_S3_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

struct queue;
struct sink_ctx;

enum queue_state {
	QUEUE_CLAIMING,
	QUEUE_ELSEWHERE, /* held by another node */
	QUEUE_RESTORING,
	QUEUE_FILLING,
	QUEUE_INTENT,
	QUEUE_UPLOAD,
	QUEUE_COMMIT,
	/* ended here; looked at again, but for the first */
	QUEUE_DRAINED,
	QUEUE_FENCED,
	QUEUE_FAILED,
	QUEUE_MISSING,
	QUEUE_RELEASED, /* given back */
	QUEUE_HELD, /* by us, for `queenctl s3 resume` */
	QUEUE_BLOCKED, /* filling, and a frame cannot be opened */
};
const char *queue_state_name(enum queue_state s);

/* Counters since this process started; they outlive ownership. */
struct queue_counts {
	uint64_t windows, records, bytes, lost, given_back;
	uint64_t fetch_ok, fetch_error, precondition_lost;
};

struct queue_status {
	struct span name;
	enum queue_state state;
	bool owned; /* the lease is ours */
	struct span holder; /* QUEUE_ELSEWHERE */
	int64_t k; /* last committed here known; -1 none */
	int64_t end_us, complete_us, safe_us; /* STAMP_NONE: not known */
	int64_t lag_us; /* -1: not known */
	bool degraded, redo;
	int64_t buffered_bytes, partitions, discovered;
	int64_t checkpoint_k; /* -1: none known */
	struct queue_counts counts;
	struct span last_error; /* text; empty: none */
	int64_t last_error_us; /* wall clock */
	/* QUEUE_BLOCKED */
	int blocked_key_id;
	struct span blocked_name;
};

/* The end of all of it: nothing is ours any more; may be freed out of it. */
typedef void (*queue_end_fn)(void *arg, struct queue *q);
/* A window went into the lake: for the histograms. */
typedef void (*queue_window_fn)(
	void *arg, struct queue *q, int64_t records, int64_t bytes);

struct queue *queue_new(const struct sink_ctx *x, const char *name,
	queue_end_fn on_end, queue_window_fn on_window, void *arg);
/* Only after on_end, or to drop it as a crash would. */
void queue_free(struct queue *q);
const char *queue_name(const struct queue *q);
void queue_status(const struct queue *q, struct queue_status *out);
/* Drains and ends. */
void queue_stop(struct queue *q);
/* Drains, releases, and claims again 2 TTLs later. */
void queue_give_back(struct queue *q);
/* The budget of the process is used up: close early. */
void queue_force(struct queue *q);

#endif
