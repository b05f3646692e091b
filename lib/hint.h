/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hints between the processes of a cell: LISTEN/NOTIFY on channel queen_hint
 * over a connection of its own, never inside a data transaction.  A hint may
 * be lost without harm; a sender that had to drop some says so with
 * HINT_RESYNC as soon as it can.
 *
 * Payload, at most 7900 bytes: the sender's name (bytes outside 0x21-0x7e and
 * '%' as %XX), then per hint a space, a letter of kind, and queue id, group
 * id and partition ids in base 36, e.g. `node-1 m2s..1a,1b ck`.  The group is
 * set off by a dot, the partitions by another; what is missing is 0, or all.
 */
#ifndef QUEEN_HINT_H
#define QUEEN_HINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct buf;
struct err;
struct hint;
struct loop;

enum hint_kind {
	HINT_MESSAGES, /* m: messages landed */
	HINT_RELEASED, /* r: a lease ended and left work */
	HINT_DONE, /* d: a lease ended and left nothing */
	HINT_MOVED, /* v: a cursor moved back, a start changed */
	HINT_CATALOG, /* c: a queue was created, changed or deleted */
	HINT_FLAGS, /* f: a flag changed */
	HINT_JOBS, /* j: jobs became available in a queue of queen-ojs */
	HINT_EVENTS, /* e: events were appended to one */
	HINT_QUEUES, /* q: one was made, dropped, paused or resumed */
	HINT_RESYNC, /* x: hints were dropped, anything may have changed */
	HINT_KINDS
};

struct hint_item {
	enum hint_kind kind;
	int64_t queue_id, group_id, part_id; /* 0 = every */
};

enum { HINT_PAYLOAD_MAX = 7900, HINT_NAME_MAX = 200 };

struct hint_events {
	/* One hint of another process. */
	void (*on_hint)(void *arg, const struct hint_item *i);
	/* LISTEN is in force (again); what came before may have been missed. */
	void (*on_up)(void *arg);
	void *arg;
};

/* Dials at once and for ever; instance: name of this process, copied. */
struct hint *
hint_new(struct loop *l, const char *conninfo, const char *application_name,
	const char *instance, const struct hint_events *ev);
void hint_free(struct hint *h);
/* Leaves within about 5 ms, together with what else waits; never twice. */
void hint_send(struct hint *h, enum hint_kind kind, int64_t queue_id,
	int64_t group_id, int64_t part_id);

struct hint_stats {
	uint64_t sent, received, dropped, payloads;
	bool deaf;	/* it is connected and does not hear itself */
	bool up;	/* connected, and not known to be deaf */
};
void hint_stats(const struct hint *h, struct hint_stats *out);

/* ---- the payload, pure ---- */

/* Appends a name in the form it has in a payload. */
void hint_write_name(struct buf *b, struct span name);
/*
 * Appends one payload with as many items as fit; sorted input (hint_item_cmp)
 * packs best.  Returns how many went in, at least 1 when n > 0.
 */
size_t hint_write(struct buf *b, struct span wire_name,
	const struct hint_item *items, size_t n);
int hint_item_cmp(const void *a, const void *b);
/*
 * Calls fn for each hint of a payload.  Hints of our own name are skipped;
 * at the first byte that does not parse the rest is ignored and -1 returned.
 */
int hint_parse(struct span payload, struct span own_wire_name,
	void (*fn)(void *arg, const struct hint_item *i), void *arg,
	struct err *e) __attribute__((warn_unused_result));

#endif
