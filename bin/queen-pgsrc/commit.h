/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bundles into the cell: messages and pointer in one transaction, the pointer
 * by compare-and-set.  It takes units from the front of a queue, keeps the
 * bytes of what is in flight and sends the same bytes until bundle.h says that
 * they are in, or that they never will be.
 */
#ifndef QUEEN_PGSRC_COMMIT_H
#define QUEEN_PGSRC_COMMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bundle_limits;
struct commit;
struct connfault;
struct ctx;
struct pointer;
struct unit_queue;

/* Any of them may free the commit, but not on_trouble with NULL. */
struct commit_events {
	/* The units in flight are in; settled already (unit_queue_settle). */
	void (*on_settled)(void *arg);
	/*
	 * fenced, or queen_refused, or a fault of the cell that stays: nothing
	 * more comes.
	 */
	void (*on_fault)(void *arg, const struct connfault *f);
	/* The cell cannot be reached or asks to wait; NULL: it answers again. */
	void (*on_trouble)(void *arg, const struct connfault *f);
	void *arg;
};

/*
 * pointer: identity and place the run began with; version of its row.  Both
 * queue and limits are borrowed.
 */
struct commit *commit_new(struct ctx *x, struct unit_queue *q,
	const struct bundle_limits *limits, const struct pointer *pointer,
	int64_t version, const struct commit_events *ev);
/* What is in flight may commit or not: the next start finds out. */
void commit_free(struct commit *c);
bool commit_is_busy(const struct commit *c);
/* Takes a bundle and sends it; not while busy, not from an empty queue. */
void commit_send(struct commit *c);
/* How far the cell has it for certain. */
uint64_t commit_lsn(const struct commit *c);

#endif
