/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pop: three routes, parked requests, and calls that carry what several
 * requests want.  Which partitions may have work is known by rings in memory;
 * a parked pop never asks the database.  SQL decides every claim.
 */
#ifndef QUEEND_POP_H
#define QUEEND_POP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cat_queue;
struct ctx;
struct hsrv_req;
struct pops;

/* Handlers. */
void pop_queue(struct hsrv_req *r);
void pop_partition(struct hsrv_req *r);
void pop_discover(struct hsrv_req *r);

struct pops *pops_new(struct ctx *x);
void pops_free(struct pops *p);
/* Answers what is parked with 204; from now on nothing parks (ctx.stopping). */
void pops_drain(struct pops *p);

/* ---- what changed; see announce.h for the meaning, 0 = every ---- */
void pops_mark(struct pops *p, int64_t queue_id, int64_t part_id);
void pops_released(
	struct pops *p, int64_t queue_id, int64_t group_id, int64_t part_id);
void pops_done(struct pops *p, int64_t queue_id, int64_t group_id,
	int64_t part_id, int64_t lease_no);
void
pops_moved(struct pops *p, int64_t queue_id, int64_t group_id, int64_t part_id);
/* A queue appeared, changed or went; 0 = look at all. */
void pops_catalog(struct pops *p, int64_t queue_id);
/* Hints were missed: every ring is filled again. */
void pops_resync(struct pops *p);
/* Once a second, from the change scan. */
void pops_tick(struct pops *p);
/* Database clock minus the local one. */
void pops_set_clock(struct pops *p, int64_t offset_us);
/* Is a change of this queue of any interest here? */
bool pops_wants(const struct pops *p, const struct cat_queue *q);
/* Work came by a way nobody announced: looks for it now. */
void pops_wake_queue(struct pops *p, int64_t queue_id);

/* ---- others that wait for messages (fetch) ---- */
typedef void (*pops_watch_fn)(void *arg);
/* One queue watched by one waiter; embedded, zeroed before use. */
struct pops_watch {
	struct pops_watch *next, **prev;
	int64_t queue_id;
	pops_watch_fn fn; /* called from within pops_mark: only defer */
	void *arg;
};
void pops_watch(struct pops *p, struct pops_watch *w);
void pops_unwatch(struct pops *p, struct pops_watch *w);

/* ---- figures ---- */
int pops_parked(const struct pops *p);
void pops_each_parked(const struct pops *p,
	void (*fn)(void *arg, struct cat_queue *q, int parked), void *arg);
struct pops_stats {
	size_t rings, entries, ready, inflight;
	int parked, calls_inflight;
	uint64_t calls, candidates, took, empty, leased, hidden, locked;
	uint64_t blocked, damaged, gone, unreached, walks;
};
void pops_stats(const struct pops *p, struct pops_stats *out);

#endif
