/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One transaction of the target: a piece of a batch together with the progress
 * rows of its partitions.  It commits whole or leaves nothing.
 */
#ifndef QUEEN_PGSINK_APPLY_H
#define QUEEN_PGSINK_APPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "arena.h"
#include "buf.h"
#include "connfault.h"
#include "isolate.h"
#include "loop.h"
#include "op.h"
#include "progress.h"

struct ctx;
struct feed_batch;
struct pglink;
struct plan;
struct stmts;

enum apply_end {
	APPLY_COMMITTED,	/* applied and skipped are set */
	APPLY_FAILED,		/* fault, own and culprit are set; rolled back */
	APPLY_NEWER,		/* a later life of the group has been here */
	APPLY_FOREIGN		/* fault: another cell has been here */
};
typedef void (*apply_fn)(void *arg, enum apply_end end);

/* What it works with; all borrowed. */
struct apply_with {
	struct ctx *x;
	struct pglink *link;
	const struct plan *plan;
	struct stmts *stmts;
	const struct feed_batch *batch;
	/* Rows of a later life of the group are of one that is no more. */
	bool lost_future;
};

/* Embedded; one transaction at a time. */
struct apply {
	apply_fn fn;
	void *arg;
	/* what came out */
	size_t applied, skipped;
	struct connfault fault;
	bool own;		/* a message's own statement, or COMMIT */
	bool no_progress;	/* the progress table is not as setup left it */
	struct isolate_culprit culprit;
	/* the rest is its own */
	struct apply_with with;
	struct isolate_piece piece;
	struct arena arena;	/* of the transaction */
	struct arena chunk;	/* of the operations in the making */
	struct buf ids, names, offsets, times, joined;	/* parameters */
	enum apply_end end;
	bool runs, giving_up;
	struct progress_at *at;	/* per partition of the piece */
	size_t *todo, todo_n;	/* messages to apply */
	size_t next;		/* of todo: the first not in ops */
	struct op *ops;
	size_t ops_first, ops_n, ops_at;	/* they are todo[ops_first...] */
	struct loop_timer more;
};

void apply_init(struct apply *a, struct loop *l, apply_fn fn, void *arg);
/* Its link must be gone. */
void apply_fini(struct apply *a);
void apply_start(struct apply *a, const struct apply_with *with,
	const struct isolate_piece *piece);
bool apply_is_running(const struct apply *a);
/* The link ended: fn is called with what was the reason. */
void apply_lost(struct apply *a, const struct connfault *why);

#endif
