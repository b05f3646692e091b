/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay of one dead letter: a move in one transaction.  The message lands
 * at the tail of its destination with a new id and the transaction id
 * `dlq:<row id>`, payload and producer kept byte for byte, and the row goes;
 * or nothing changes at all.
 */
#ifndef QUEEND_REPLAY_H
#define QUEEND_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "qid.h"
#include "span.h"

struct ctx;

enum replay_outcome {
	REPLAY_MOVED, /* 200: written, row gone */
	REPLAY_DUPLICATE, /* 200: destination holds the id, row kept */
	REPLAY_GONE, /* 404: no such row */
	REPLAY_MAINTENANCE, /* 503: push maintenance is on, untouched */
	REPLAY_REFUSED, /* 409: of a reserved group, untouched */
	REPLAY_FAILED, /* 500: rolled back, or unknown (see below) */
};

/* Borrowed until the callback returns; spans empty when not known. */
struct replay_result {
	enum replay_outcome outcome;
	const char *word; /* "moved", "duplicate", "gone", ... */
	struct qid dead_id;
	struct span queue, partition; /* destination */
	struct span group; /* of the dead letter */
	struct span original_txn;
	struct span txn; /* dlq:<row id> */
	struct qid message_id; /* nil unless moved */
	int64_t offset, at_us; /* of the new message; -1 unless moved */
	bool unknown; /* failed, and the answer of the commit was lost:
			 * dlqRowRemoved is null, not false */
	struct span text; /* not moved, no duplicate: what to say */
};

typedef void (*replay_fn)(void *arg, const struct replay_result *r);

/*
 * Empty queue or partition = where the dead letter came from; a destination
 * that does not exist is created.  Spans are copied.  done is called once,
 * always later.
 */
void
replay_start(struct ctx *x, const struct qid *tenant, const struct qid *dead_id,
	struct span queue, struct span partition, replay_fn done, void *arg);

#endif
