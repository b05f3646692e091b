/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue's side of a sink: finds partitions with work (candidate ring,
 * marks, change scan), pops batches under leases, opens what is sealed,
 * acknowledges.  Knows nothing of tables.
 */
#ifndef QUEEN_PGSINK_FEED_H
#define QUEEN_PGSINK_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "span.h"

struct connfault;
struct ctx;
struct feed;

struct feed_message {
	size_t part; /* index into the batch's parts */
	int64_t offset, created_at_us;
	struct span txn, payload; /* payload in the clear */
	struct span frame; /* whole, as stored */
};

struct feed_part {
	int64_t id;
	struct span name;
	size_t first, n; /* its messages, offsets ascending */
};

/* Lives until it is given back; parts ascending by id. */
struct feed_batch {
	struct arena arena;
	struct feed_part *parts;
	size_t parts_n;
	struct feed_message *messages;
	size_t n;
	int64_t group_id; /* grows with each life of the group */
	int64_t lease_until_ms; /* monotonic */
	/* the lease, as SQL names it */
	int64_t lease_at, lease_group, lease_no;
};

/*
 * What became of a partition of the batch: the first `done` messages are
 * completed, or with dlq the last of them is filed with text; the rest comes
 * again at once.
 */
struct feed_result {
	size_t done;
	bool dlq;
	struct span text; /* at most 2000 characters */
};

struct feed_face {
	/* Marks of this queue are wanted from now on, of no other. */
	void (*watch)(void *arg, int64_t queue_id);
	/* Some partition cannot be read; the rest goes on. */
	void (*complain)(void *arg, const struct connfault *why);
	void *arg;
};

/*
 * ctx: loop, task, seal, work and side are set.  Begins in a later turn; asks
 * by itself until queue and group are there, and follows them to a new life.
 */
struct feed *feed_new(struct ctx *x, const struct feed_face *face);
/*
 * The links are gone before it, so that no answer is to come.  What waits is
 * dropped without a word.
 */
void feed_free(struct feed *f);
/*
 * The cell was away and may have gone back in time: partition ids it gave after
 * that are given again, to other names.
 */
void feed_forget(struct feed *f);
/* Marks from the parent; n = 0: any partition may have, also of a new queue. */
void feed_mark(struct feed *f, const int64_t *parts, size_t n);

/*
 * The batch ends the wait.  Before it, any number of times, batch NULL: the
 * queue or group cannot be read, why says it (retryable, tried again by
 * itself); why NULL: now it can.  A batch says as much, so every wait begins
 * well and is told when it is not.
 */
typedef void (*feed_fn)(
	void *arg, struct feed_batch *batch, const struct connfault *why);

/* Waits for work, as long as it takes; as many waits at once as wanted. */
struct feed_wait;
struct feed_wait *feed_pop(struct feed *f, feed_fn fn, void *arg);
/* A pop in flight is dropped; what it leased comes back. */
void feed_cancel(struct feed_wait *w);
/* fn, always later: nothing that was dropped is still to be given back. */
void feed_settle(struct feed *f, void (*fn)(void *arg), void *arg);

/* ok false: unknown or over. */
void feed_extend(struct feed *f, struct feed_batch *b,
	void (*fn)(void *arg, bool ok), void *arg);
/*
 * One result per part of the batch, read at once.  An unknown outcome is
 * repeated until the lease ends and at least 5 s; a refusal is none of the
 * caller's business.  filed: dead letters that were filed.  The batch stays
 * the caller's, and must live until fn.
 */
void feed_ack(struct feed *f, struct feed_batch *b,
	const struct feed_result *results, void (*fn)(void *arg, size_t filed),
	void *arg);
/*
 * Gives the lease of a batch back as if it never was; wake: its partitions
 * are claimed again at once.
 */
void feed_return(struct feed *f, const struct feed_batch *b, bool wake);
/* One that was not acked comes again when its lease ends. */
void feed_batch_free(struct feed_batch *b);

#endif
