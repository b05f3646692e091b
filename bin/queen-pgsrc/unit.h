/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units: runs of messages that commit whole, each with its cover, the place
 * that holds once it has committed.  A unit is a source transaction, a piece
 * of a split one, a part of a snapshot chunk, or a step of the position
 * without messages.  The queue keeps them in order; the front ones may be in
 * flight, and stay until they are settled.
 */
#ifndef QUEEN_PGSRC_UNIT_H
#define QUEEN_PGSRC_UNIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "buf.h"
#include "pointer.h"
#include "span.h"

struct message {
	struct span queue, partition, id, payload;
};

struct unit_entry;

struct unit {
	TAILQ_ENTRY(unit) link;
	struct buf data;		/* partitions, ids, payloads, `after` */
	struct unit_entry *entries;
	size_t n, cap;
	size_t bytes;			/* by the rule of limits */
	struct pointer_place cover;
	bool forced;			/* may not wait for company */
	bool ends_txn;			/* counts as one transaction */
	int64_t commit_at_us;		/* of it, at the source */
	int64_t at_ms;			/* monotonic, of its first message */
};

TAILQ_HEAD(unit_list, unit);

struct unit_queue {
	struct unit_list list;
	size_t units, in_flight;	/* in_flight of them, at the front */
	size_t messages, bytes;		/* of all units */
	size_t forced;			/* units not in flight */
};

/* Bytes of a message by the rule of limits. */
size_t unit_message_bytes(const struct message *m);

struct unit *unit_new(void);
void unit_free(struct unit *u);
/* Copies the message; the queue's name stays borrowed. */
void unit_add(struct unit *u, const struct message *m, int64_t now_ms);
/* Valid until the next unit_add. */
struct message unit_message(const struct unit *u, size_t i);
/* Copies the place, its key code too. */
void unit_cover(struct unit *u, const struct pointer_place *place);

void unit_queue_init(struct unit_queue *q);
void unit_queue_fini(struct unit_queue *q);
/* Takes the unit over; an unforced step of the position may merge. */
void unit_queue_put(struct unit_queue *q, struct unit *u);
/* Drops the units in flight: they have committed. */
void unit_queue_settle(struct unit_queue *q);

#endif
