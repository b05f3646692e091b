/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside pop.  A request (struct pop) waits in one lot; a lot draws from the
 * rings it is tied to: the one of its group (wildcard), one partition of it
 * (pinned), or those of all queues with its labels (discovery).  pop.c leads a
 * request from its query to its lot, pop_ring.c keeps rings, pop_lot.c lots,
 * pop_call.c claims, pop_answer.c reads what came back, pop_open.c opens what
 * is sealed, pop_reply.c writes the answer, pop_all.c makes and counts the
 * whole.
 */
#ifndef QUEEND_POP_INT_H
#define QUEEND_POP_INT_H

#include <sys/queue.h>

#include "buf.h"
#include "catalog.h"
#include "ctx.h"
#include "hot.h"
#include "log.h"
#include "loop.h"
#include "map.h"
#include "pgbin.h"
#include "pop.h"
#include "pop_query.h"

enum {
	POP_CALL_CANDIDATES = 64,
	POP_CALLS_MAX = 8, /* in flight, above any lane */
	POP_TRIES_MAX = 32, /* calls for a pop that does not wait */
	POP_RESOLVE_MAX = 8, /* rounds of looking names up */
	POP_PROBES_PER_S = 128, /* due entries for parked pops */
	POP_LEASE_PARK_MAX_MS = 10000, /* heals a lost release hint */
	POP_HIDDEN_PARK_MAX_MS = 60000, /* heals a lost change of a delay */
	POP_LOCKED_MS = 100,
	POP_BLOCKED_MS = 30000,
	POP_DAMAGED_MS = 1000, /* others get their turn */
	POP_BLOCKS = 64, /* (queue, key id) whose last filing is known */
	POP_BLOCK_FILED_MS = 30000,
	POP_FAILED_MS = 250,
	POP_RING_IDLE_MS = 300000,
	/* names are the clients' choice: with so many, unused ones go soon */
	POP_RINGS_MANY = 20000,
	POP_RING_IDLE_MANY_MS = 5000,
	POP_DISCS_MAX = 4096,
};

struct call;
struct lot;
struct ring;
struct want;

enum pop_kind { POP_WILDCARD, POP_PINNED, POP_DISCOVERY };
enum pop_state {
	POP_RESOLVING, /* names are being looked up */
	POP_WAITING, /* in a lot */
	POP_WANTING, /* in a want: a name that does not exist */
	POP_FLYING, /* in a call */
};

struct pop {
	TAILQ_ENTRY(pop) all, link;
	struct pops *pops;
	struct hsrv_req *req;
	enum pop_kind kind;
	enum pop_state state;
	struct pop_query q;
	struct qid tenant;
	struct span queue_name, part_name;
	struct cat_queue *queue;
	struct cat_group *group;
	int64_t part_id;
	struct lot *lot;
	struct want *want;
	struct loop_timer deadline;
	int64_t arrived_ms, deadline_ms;
	int64_t arrived_us; /* database clock */
	int64_t held_us; /* minPopWaitTime, monotonic; 0 = not */
	uint64_t joined_seq; /* when it joined its lot, see pops.seq */
	int tries, rounds;
	bool timed; /* deadline is initialised */
	bool parked; /* its first attempt found nothing */
	bool counted; /* in pops.parked */
	bool unsettled; /* in lot.unsettled */
	bool due; /* deadline over: no more holding */
	bool looked; /* at what is doubted */
	bool asked_queue, asked_part;
	/* in a call */
	int64_t lease_no;
	int first_cand, cands;
	struct pop_fault *fault; /* what it claimed cannot be read */
};
TAILQ_HEAD(pop_list, pop);

enum lot_place { LOT_RESTING, LOT_HOT, LOT_SLOW };

struct lot {
	struct pops *pops;
	struct pop_list waiters;
	int waiting, flying;
	int unsettled; /* waiters that may have to be ended */
	enum pop_kind kind;
	enum lot_place place;
	TAILQ_ENTRY(lot) link; /* in the hot or the slow queue */
	struct ring *ring; /* wildcard, pinned */
	int64_t part_id; /* pinned */
	bool known; /* pinned: looked at since it exists */
	TAILQ_HEAD(, tie) ties, hot_ties; /* discovery */
};
TAILQ_HEAD(lot_list, lot);

/* A discovery lot draws from a ring. */
struct tie {
	TAILQ_ENTRY(tie) of_lot, of_ring, link;
	struct lot *lot;
	struct ring *ring;
	bool hot; /* in hot_ties: the ring may have something */
};

/* Discovery: who wants the same labels as the same group. */
struct disc {
	TAILQ_ENTRY(disc) link;
	struct lot lot;
	struct qid tenant;
	struct span namespace_name, task, group; /* owned */
	int64_t used_ms;
	uint64_t generation; /* of the catalogue, when matched */
	char text[];
};

struct ring {
	TAILQ_ENTRY(ring) all;
	struct ring *next_in_queue, **link_in_queue; /* NULL: in none */
	struct pops *pops;
	struct hot *hot;
	struct cat_group *group;
	struct cat_queue *queue;
	int64_t group_id;
	struct lot wild;
	struct map pins; /* struct lot by partition id */
	TAILQ_HEAD(, tie) ties; /* discovery lots drawing from it */
	struct loop_timer timer; /* the next due entry */
	bool timed;
	/* the walk over everything pending */
	bool walked, walking, walk_again, walk_queued, walk_failed;
	bool dead; /* out of the tables, call in flight */
	bool checking;
	bool opens; /* its segments were sealed: autoAck opens, then commits */
	int64_t walk_after;
	TAILQ_ENTRY(ring) walk_link;
	int64_t used_ms, ready_since_ms;
	int refs; /* calls and walks in flight */
};
TAILQ_HEAD(ring_list, ring);

/* Parked for a partition, or (queue_id 0) a queue, that does not exist. */
struct want {
	int64_t queue_id;
	struct pops *pops;
	struct qid tenant;
	struct cat_queue *queue; /* NULL: the queue is what lacks */
	struct span name; /* in text */
	struct pop_list waiters;
	bool looking, look_again;
	char text[];
};

/* Filed in the database a while ago. */
struct pop_block {
	int64_t queue_id, filed_ms;
	int key;
};

struct pops {
	struct ctx *x;
	struct pop_list pops; /* every request in hand */
	struct ring_list rings;
	struct map ring_by_group;
	TAILQ_HEAD(disc_list, disc) discs; /* oldest first */
	struct map disc_by_key;
	struct lot_list hot, slow;
	struct map wants;
	struct map watches; /* struct watch_list by queue id */
	struct ring_list walk_queue;
	int walks;
	bool fire_soon, fire_later;
	int parked, calls;
	uint64_t seq; /* clock: calls sent, pops that joined a lot */
	TAILQ_HEAD(, call) flights; /* oldest first */
	TAILQ_HEAD(, call) naming; /* answered, names are looked up */
	struct buf scratch; /* frames of one segment */
	struct buf opened; /* payload of one message */
	struct call *spare;
	struct log_sampler failures;
	struct loop_timer probe_timer, want_timer;
	struct pop_block blocks[POP_BLOCKS];
	int blocks_n;
	double probe_tokens;
	int64_t probe_ms;
	int64_t clock_offset_us;
	int64_t sweep_ms, rematch_ms;
	uint64_t generation; /* grows when queues may have changed */
	size_t queues_seen;
	int want_backoff_ms;
	struct pops_stats stats;
};

/* ---- pop.c ---- */
/* Takes it out of its lot or want and resolves its names again. */
void pop_again(struct pop *pop);
/* Ends. */
void pop_finish_empty(struct pop *pop);
void pop_finish_error(struct pop *pop, int status, const char *text);
/* After the reply was sent. */
void pop_finish(struct pop *pop);
/* Watches the client and the clock; 204 at once when it does not wait. */
void pop_park(struct pop *pop);
void pop_unpark(struct pop *pop);
/* Watches the client only. */
void pop_watch_client(struct pop *pop);

/* ---- pop_want.c ---- */
void want_join(struct pop *pop, int64_t queue_id, struct span name);
void want_leave(struct pop *pop);
void want_marked(struct pops *p, struct cat_queue *q, int64_t part_id);
void want_check_queues(struct pops *p);
void want_free_all(struct pops *p);

/* ---- pop_ring.c ---- */
struct ring *ring_of(struct pops *p, struct cat_group *g);
/* Reads all that is pending, once; again = anew. */
void ring_walk(struct ring *ring, bool again);
/* Due entries become ready. */
void ring_due(struct ring *ring, int64_t now_ms);
void ring_unref(struct ring *ring);
void ring_arm(struct ring *ring);
/* The partition may have work: wakes those who want it. */
void ring_heat(struct ring *ring, int64_t part_id);
/* SQL said gone: is the group still the one of this name? */
void ring_check(struct ring *ring);
void ring_free_all(struct pops *p);
void ring_sweep(struct pops *p, int64_t now_ms);
/* Milliseconds of the loop's clock for a time of the database. */
int64_t pops_local_ms(const struct pops *p, int64_t at_us);

/* ---- pop_lot.c ---- */
void lot_init(struct lot *l, struct pops *p, enum pop_kind kind);
struct lot *lot_pin(struct ring *ring, int64_t part_id);
void lot_join(struct lot *l, struct pop *pop);
void lot_rejoin(struct lot *l, struct pop *pop); /* at the front */
void lot_leave(struct pop *pop);
/* lot_settle must look at it, or need not any more. */
void lot_unsettle(struct pop *pop, bool unsettled);
void lot_heat(struct lot *l);
void lot_cool(struct lot *l);
void lot_tie(struct lot *l, struct ring *ring);
void lot_untie(struct tie *t);
void tie_heat(struct tie *t);
/* Nothing to hand out: those who do not wait are answered, others park. */
void lot_settle(struct lot *l);
/* Does what it claims have to be opened before it is committed? */
bool lot_opens(const struct lot *l, const struct pop *pop);
/* One candidate; false when there is none for this pop now. */
bool lot_take(struct lot *l, const struct pop *pop, struct ring **ring,
	int64_t *part_id);
/*
 * For a pop that does not wait and finds nothing else: one that was seen leased
 * or locked before it came, and may be free by now.  at: where to go on, NULL
 * at first.
 */
bool lot_take_doubted(struct lot *l, const struct pop *pop, struct tie **at,
	struct ring **ring, int64_t *part_id);
size_t lot_doubted(const struct lot *l);
size_t lot_ready(struct lot *l);
/* minPopWaitTime: until when pop is held back; 0 = not at all. */
int64_t lot_hold_ms(struct lot *l, const struct pop *pop, int64_t now_ms);
struct disc *disc_of(struct pops *p, const struct pop *pop);
void disc_free_all(struct pops *p);
void disc_sweep(struct pops *p, int64_t now_ms);
/* Queues may have come or changed: parked ones look at their labels again. */
void disc_rematch(struct pops *p);

/* ---- pop_call.c ---- */
/* Fires at the end of this turn of the loop. */
void pops_fire_soon(struct pops *p);
/* Sequence number of the oldest call in flight; UINT64_MAX = none. */
uint64_t call_oldest(const struct pops *p);
/* From here on an idle connection of the lane fires. */
void call_start(struct pops *p);
/* Calls in flight are dropped; pgpool tells nobody any more. */
void call_free_all(struct pops *p);

/* ---- pop_open.c ---- */
struct pop_slice;
/*
 * Appends the messages of a sealed slice to out, opened.  -1: the request has
 * its fault.
 */
int pop_open(struct pop *pop, const struct pop_slice *s, struct buf *out)
	__attribute__((warn_unused_result));
/* Is the key of this id here? */
bool pop_has_key(const struct pops *p, int key);
/* A fault that the answer found; key: SEAL_NO_KEY = not sealed. */
void pop_blame(struct pop *pop, const struct pop_slice *s, int64_t offset,
	const struct err *why);
/*
 * Answers 500 and ends.  What it leased (lease: one of its slices, else NULL)
 * is given back before that.
 */
void pop_fail(struct pop *pop, const struct pop_slice *lease);
/* Tells the operator, through the database; now and then. */
void pop_blocked(struct pops *p, const struct qid *tenant, int64_t queue_id,
	int64_t part_id, int key, int64_t offset, bool damaged);

/* ---- pop_watch.c ---- */
void watch_fire(struct pops *p, int64_t queue_id);
bool watch_any(const struct pops *p, int64_t queue_id);
void watch_free_all(struct pops *p);

/* ---- pop_reply.c ---- */
/* A slice of one segment that was claimed for the request. */
struct pop_slice {
	int cand;
	int64_t part_id, base, lease_at, lease_group, at_us, span;
	int32_t skip, take, attempt, raw_bytes;
	int key; /* id, SEAL_NO_KEY = not sealed */
	struct cat_part *part;
	struct cat_group *group;
	struct span blob;
	struct span clear; /* its messages, when they were sealed */
};
/* Does its group deliver last values only? */
bool pop_conflated(const struct pop *pop);
/* Answers and ends the request; slices in the order to be sent. */
void pop_reply(struct pop *pop, struct pop_slice *slices, size_t n);
/* Empty answer that must still speak; false = plain 204. */
bool pop_reply_empty(struct pop *pop);

#endif
