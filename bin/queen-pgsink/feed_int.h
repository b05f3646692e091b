/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside feed.  feed.c keeps waits, faults and calls in flight, feed_find.c
 * follows queue and group and fills the ring, feed_pop.c claims, feed_read.c
 * makes batches of what came back, feed_lease.c extends leases and gives them
 * back, feed_ack.c acknowledges.
 */
#ifndef QUEEN_PGSINK_FEED_INT_H
#define QUEEN_PGSINK_FEED_INT_H

#include <sys/queue.h>

#include <libpq-fe.h>

#include "connfault.h"
#include "ctx.h"
#include "feed.h"
#include "hash.h"
#include "log.h"
#include "loop.h"
#include "map.h"

struct conndoc_sink;
struct err;
struct hot;
struct pgargs;
struct pgconn;
struct pgstmt;

enum { FEED_CANDIDATES = 64, FEED_BLOCKS = 8, FEED_DIAL_LOOK_MS = 50 };

/* Something whose answer is to come; dropped with the feed. */
struct feed_flight {
	TAILQ_ENTRY(feed_flight) link;
	struct feed *feed;
	void (*drop)(struct feed_flight *fl); /* frees it */
};

struct feed_wait {
	TAILQ_ENTRY(feed_wait) link;
	struct feed *feed;
	struct feed_call *call; /* NULL: in line */
	feed_fn fn;
	void *arg;
	uint64_t told; /* fault_no it knows of; 0 = none */
};

struct feed_name {
	int64_t id; /* first: map_is_i64 */
	struct span name;
	char text[];
};

/* Two links, two ways to fail. */
enum feed_side { FEED_FIND, FEED_POP, FEED_SIDES };

/* Complained about a moment ago. */
struct feed_block {
	int key;
	int64_t until_ms;
};

struct feed {
	struct ctx *x;
	struct feed_face face;
	const struct conndoc_sink *doc;
	struct arena arena;
	struct span group; /* name */
	struct hot *hot;
	TAILQ_HEAD(, feed_wait) waits; /* oldest first */
	TAILQ_HEAD(, feed_flight) flights;
	/* finding */
	int64_t queue_id, group_id; /* 0 = not there, or not known yet */
	uint8_t hash_key[HASH_KEY_BYTES];
	int64_t missing_us; /* database time; since when there is no queue */
	bool finding, find_again;
	int dial_looks[FEED_SIDES]; /* since it last answered */
	bool walking, walk_again;
	int64_t walk_group, walk_after;
	struct loop_timer find_timer;
	/* popping */
	struct feed_call *call; /* at most one is in flight */
	int width; /* candidates of the next one */
	int64_t retry_at_ms, retry_ms;
	struct loop_timer pop_timer;
	struct map names;
	struct feed_block blocks[FEED_BLOCKS];
	int block_next;
	/* faults */
	struct connfault why[FEED_SIDES]; /* code NULL = well */
	uint64_t fault_no;
	struct loop_timer tell_timer;
	/* settling */
	int loose; /* cancelled calls, leases that go back */
	void (*settled)(void *arg);
	void *settled_arg;
	struct loop_timer settle_timer;
	struct log_sampler failures;
};

/* ---- feed.c ---- */
void feed_flight_begin(struct feed *f, struct feed_flight *fl,
	void (*drop)(struct feed_flight *fl));
void feed_flight_end(struct feed_flight *fl);
/* A link works (why NULL) or does not; whoever waits is told. */
void feed_fault(
	struct feed *f, enum feed_side side, const struct connfault *why);
bool feed_is_failing(const struct feed *f);
/* A link that is down for a moment is no fault yet: look again. */
bool feed_is_dialling(struct feed *f, enum feed_side side);
/* The wait is over with this batch. */
void feed_deliver(struct feed_wait *w, struct feed_batch *b);
void feed_settle_check(struct feed *f);
/* One prepared call; args are freed. */
void feed_call_sql(struct pgconn *c, const struct pgstmt *s, struct pgargs *a,
	void (*fn)(void *arg, const PGresult *res, const struct err *e),
	void *arg);
/* Complains at most every half minute about one key; key -1: of damage. */
bool feed_may_complain(struct feed *f, int key);

/* ---- feed_find.c ---- */
void feed_find(struct feed *f);

/* ---- feed_pop.c ---- */
struct feed_cand {
	int64_t part;
	int verdict;
	int64_t until_us, now_us; /* database time */
	int64_t base;
	int key;
	int row, rows; /* of what was taken */
};

struct feed_call {
	struct feed_flight flight; /* first */
	struct feed_wait *wait; /* NULL: cancelled */
	int64_t group_id, lease_no, sent_ms;
	struct feed_batch *batch;
	int n;
	struct feed_cand cands[FEED_CANDIDATES];
};

enum {
	FEED_COL_CAND,
	FEED_COL_VERDICT,
	FEED_COL_UNTIL,
	FEED_COL_NOW,
	FEED_COL_LEASE_AT,
	FEED_COL_LEASE_GROUP,
	FEED_COL_BASE,
	FEED_COL_SKIP,
	FEED_COL_TAKE,
	FEED_COL_AT,
	FEED_COL_EXPIRES,
	FEED_COL_KEY,
	FEED_COL_BLOB
};

enum feed_verdict {
	FEED_TOOK,
	FEED_LEASED,
	FEED_HIDDEN,
	FEED_LOCKED,
	FEED_BLOCKED,
	FEED_EMPTY,
	FEED_GONE,
	FEED_UNREACHED
};

/* When there may be something to claim, and somebody waits for it. */
void feed_pop_arm(struct feed *f);
void feed_pop_fire(void *arg);
/* Its batch goes to who waits, or back; ends the call. */
void feed_call_end(struct feed_call *c, bool good);

/* ---- feed_read.c ---- */
/* The batch of what was taken, names still to come; n = 0: nothing is whole. */
struct feed_batch *feed_read(struct feed_call *c, const PGresult *res);
/* Names of its parts; feed_call_end when they are there. */
void feed_read_names(struct feed_call *c);
/* Tells the operator that a message cannot be opened. */
void feed_file_block(struct feed *f, int64_t part, int key, int64_t offset,
	bool damaged);

#endif
