/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to the cell in fixed lanes, all asynchronous.  One operation =
 * one prepared call and one sync on one connection; a connection whose
 * outcome is in doubt is closed, not reused.  A statement that passes its
 * deadline is cancelled with pg_cancel_backend from the control connection,
 * and its connection is replaced.  While no connection can be made, waiting
 * operations fail with ERR_DB_RETRY and text "pool".
 */
#ifndef QUEEN_PGPOOL_H
#define QUEEN_PGPOOL_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "pgbin.h"
#include "pgconn.h"		/* struct pgstmt */

struct loop;
struct err;
struct pgpool;

enum { PGPOOL_LANES_MAX = 8 };

struct pgpool_conf {
	const char *conninfo;		/* copied */
	const char *application_name;	/* copied */
	int lanes_n;
	int conns[PGPOOL_LANES_MAX];	/* connections per lane */
	int64_t stmt_timeout_ms;	/* deadline of one operation */
};

/*
 * res: the tuples, borrowed until the callback returns; NULL on failure.
 * err: NULL on success.  ERR_DB_UNKNOWN = sent, and the answer was lost.
 */
typedef void (*pgpool_fn)(void *arg, const PGresult *res,
	const struct err *err);
/*
 * Second half of a bundle: looks at the verdict rows, returns true to commit
 * or false to roll back.  Called once, before the pgpool_fn.
 */
typedef bool (*pgpool_decide_fn)(void *arg, const PGresult *res);
typedef void (*pgpool_idle_fn)(void *arg, int lane);

struct pgpool *pgpool_new(struct loop *l, const struct pgpool_conf *c);
/* Closes everything; operations in hand are dropped without callback. */
void pgpool_free(struct pgpool *p);

/*
 * Queues one call on a lane; takes *args over (init'd again, empty).  The
 * callback always comes later, never from inside this call.
 */
void pgpool_call(struct pgpool *p, int lane, const struct pgstmt *s,
	struct pgargs *args, pgpool_fn done, void *arg);
/*
 * begin + call + sync in one flush; then commit or rollback by decide.  done
 * gets the rows after a commit *or* rollback that succeeded; a lost COMMIT
 * answer is ERR_DB_UNKNOWN.
 */
void pgpool_bundle(struct pgpool *p, int lane, const struct pgstmt *s,
	struct pgargs *args, pgpool_decide_fn decide, pgpool_fn done,
	void *arg);
/*
 * The same (decide NULL: a plain call), but not for who waits longer than
 * wait_ms for a connection of the lane: ERR_LIMIT, nothing was sent.
 */
void pgpool_within(struct pgpool *p, int lane, int64_t wait_ms,
	const struct pgstmt *s, struct pgargs *args, pgpool_decide_fn decide,
	pgpool_fn done, void *arg);

/* Inside a pgpool_fn with rows: the caller becomes their owner. */
PGresult *pgpool_take_result(struct pgpool *p);

/*
 * Gives up: what is in flight or waits is answered with its failure in the
 * next turns, and what comes after it too.  A little later nothing is left.
 */
void pgpool_stop(struct pgpool *p);

/* Nothing was sent because there was no connection to be had. */
bool pgpool_had_none(const struct err *e);
/* Rolled back for the sake of another (a deadlock): may be sent again. */
bool pgpool_was_victim(const struct err *e);

/* Connections of the lane that are up and have nothing to do right now. */
int pgpool_idle(const struct pgpool *p, int lane);
/* Called (from the loop) whenever a connection of the lane becomes free. */
void pgpool_on_idle(struct pgpool *p, int lane, pgpool_idle_fn fn, void *arg);

struct pgpool_stats {
	int size, up, busy;
	int waiting;
	uint64_t errors, timeouts, reconnects;
	uint64_t calls;
};
void pgpool_stats(const struct pgpool *p, struct pgpool_stats *out);
/* True while at least one connection is up. */
bool pgpool_is_up(const struct pgpool *p);

#endif
