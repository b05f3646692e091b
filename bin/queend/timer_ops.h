/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timer operations of a request: read from JSON, checked, made into finished
 * (and, where the queue wants it, sealed) frames, sent as the arrays of
 * queen.timer_apply_v1, its rows written as JSON.  For /api/v1/timers and the
 * `timers` array of a transaction.  Spans point into the body or the arena.
 */
#ifndef QUEEND_TIMER_OPS_H
#define QUEEND_TIMER_OPS_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hash.h"
#include "qid.h"
#include "span.h"

struct arena;
struct ctx;
struct err;
struct fault;
struct jwrite;
struct pgargs;

struct timer_op {
	bool cancel;
	struct span queue, key;
	struct span partition;
	struct span txn;		/* of a cancel: to be echoed; n = 0 none */
	double delay_ms;
	struct qid id;			/* schedule only, as the rest */
	struct span payload;		/* in clear */
	struct span frame;
	struct hash_id hash;
	bool sealed;
	int row;			/* of the result (timer_ops_index) */
};

struct timer_ops {
	struct timer_op *v;
	size_t n, cap;
	struct span sub;		/* of who schedules; n = 0 none */
	/* what limits are about */
	int64_t schedules;		/* and reschedules */
	int64_t horizon_ms;		/* the longest delay; 0 = none above 0 */
	int64_t soonest_ms;		/* the shortest delay, for timer_fire_wake */
	size_t bytes;			/* of frames */
};

/* Columns of the rows of timer_apply_v1 in a result. */
struct timer_cols {
	int ord, status, txn, message_id, deliver_at;
};

/*
 * Reads and checks a JSON array of operations of this tenant; sub = subject of
 * the sender, n = 0 none.  0, or -1 with *f filled.
 */
int timer_ops_parse(struct span json, const struct ctx *x,
	const struct qid *tenant, struct span sub, struct arena *a,
	struct timer_ops *o, struct fault *f)
	__attribute__((warn_unused_result));
/* An operation that cancels; for the route that names it in its path. */
int timer_ops_cancel(struct span queue, struct span key, struct span txn,
	struct arena *a, struct timer_ops *o, struct fault *f)
	__attribute__((warn_unused_result));
/*
 * The call failed for a timer in clear whose queue was flagged behind our
 * back: corrects the cached flag and seals what goes to that queue.  True:
 * send again; false: it failed for something else, or there is no key.
 */
bool timer_ops_seal(struct timer_ops *o, struct ctx *x,
	const struct qid *tenant, struct arena *a, const struct err *e)
	__attribute__((warn_unused_result));
/*
 * The arguments t_op .. t_key_id of timer_apply_v1, 8 of them.  o may have no
 * operations.
 */
void timer_ops_args(struct pgargs *a, const struct timer_ops *o,
	const struct ctx *x);

/*
 * Rows [from, to) are those of timer_apply_v1; finds each operation's.  False
 * when an answer is missing (misaligned).
 */
bool timer_ops_index(struct timer_ops *o, const PGresult *res,
	const struct timer_cols *c, int from, int to)
	__attribute__((warn_unused_result));
/*
 * The members of element i inside an open object, from "status" on (index,
 * type and opIndex are the caller's).
 */
void timer_ops_write(struct jwrite *w, const struct timer_ops *o, size_t i,
	const PGresult *res, const struct timer_cols *c);
/* What an error of the call means to the client. */
void timer_ops_fault(const struct err *e, struct fault *f);
/* Counts a refused schedule; what the limits refuse they count themselves. */
void timer_ops_count(struct ctx *x, const struct fault *f);
/* Queue and key of a path: 0, or -1 with *f filled. */
int timer_ops_names(struct span queue, struct span key, struct fault *f)
	__attribute__((warn_unused_result));

#endif
