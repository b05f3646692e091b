/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which node runs which queue: presence rows, fair shares,
 * when to claim and when to give back.  One per sink.  The arithmetic is pure
 * (place_share, place_wait_ms), the rest beats.
 */
#ifndef QUEEN_S3_PLACE_H
#define QUEEN_S3_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "lease.h"

struct place;
struct sink_ctx;

struct place_stats {
	int nodes, queues, share, held;
	const char *giving_back; /* NULL: none */
};

/* give_back: the queue to give back now is for the sink to choose. */
struct place *
place_new(const struct sink_ctx *x, void (*give_back)(void *arg), void *arg);
void place_free(struct place *p);
/* Queues this sink runs, on whatever node; tells the share. */
void place_queues(struct place *p, int n);
/* A queue of this node is held, or not any more. */
void place_held(struct place *p, int delta);
/* The sink gave one back: none other until it is held again, or a TTL later. */
void place_gave(struct place *p, const char *queue);
void place_taken(struct place *p, const char *queue);
void place_stats(const struct place *p, struct place_stats *out);
/* Deletes the presence row and ends the beat; then fn, whatever came of it. */
void place_leave(struct place *p, void (*fn)(void *arg), void *arg);

/* ---- when to claim ---- */
struct place_claim {
	enum lease_seen seen;
	int running; /* queues this process runs or is claiming */
	int held, share; /* of this sink here */
	bool was_mine; /* the row names this instance */
	int64_t gave_back_ms; /* since this node gave this queue back; -1 */
	int64_t ttl_ms;
};
/*
 * How long to wait before claiming a queue that is free or ours; for one that
 * is held, before looking again.  jitter: 0..200.
 */
int64_t place_wait_ms(const struct place_claim *c, int64_t jitter_ms);
int place_share(int queues, int nodes);

/*
 * Queues this process runs or is about to claim, all sinks: a slot is taken
 * before the comparison, so that two tasks never pass on one count.
 */
int place_slot_take(void);
void place_slot_give(void);

#endif
