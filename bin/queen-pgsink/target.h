/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker's session with the target: applies a batch in transactions with
 * its progress rows, isolates what the data of one message breaks, tells what
 * became of each partition.
 */
#ifndef QUEEN_PGSINK_TARGET_H
#define QUEEN_PGSINK_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connfault;
struct ctx;
struct feed_batch;
struct feed_result;
struct target;

enum target_end {
	TARGET_DONE,	/* results, one per part, until target_forget */
	TARGET_AGAIN,	/* rolled back: same batch, after a back-off */
	TARGET_OVER,	/* a fault an operator must mend */
};
typedef void (*target_fn)(void *arg, enum target_end end,
	const struct feed_result *results, const struct connfault *why);

/* Connects by itself when there is something to apply. */
struct target *target_new(struct ctx *x, int worker_no);
void target_free(struct target *t);
/*
 * Applies it; one at a time.  After TARGET_AGAIN the same batch is to be given
 * again: what of it was committed is known and stays.
 */
void target_apply(struct target *t, struct feed_batch *b, target_fn fn,
	void *arg);
/*
 * The batch is given back: its results are over, and another one that happens
 * to lie at the same place is not taken for it.  Not while it is applied.
 */
void target_forget(struct target *t);
/*
 * No more tries: what is in flight may end, the rest is left alone; the answer
 * is TARGET_DONE with what has been committed.
 */
void target_stop(struct target *t);

#endif
