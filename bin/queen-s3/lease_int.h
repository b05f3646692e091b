/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the lease.  Its files: lease.c life, operations and whose the row
 * is; lease_claim.c look, claim, refresh; lease_fence.c fence, release.
 */
#ifndef QUEEN_S3_LEASE_INT_H
#define QUEEN_S3_LEASE_INT_H

#include "lease.h"

#include <sys/queue.h>

#include "arena.h"
#include "buf.h"
#include "cell.h"
#include "doc.h"
#include "loop.h"

enum { LEASE_TRIES = 3 /* of one operation, while the row moves */ };

struct lease_op {
	STAILQ_ENTRY(lease_op) link;
	void (*begin)(struct lease *x);
	union {
		lease_look_fn look;
		lease_fence_fn fence;
		lease_done_fn done;
	} fn;
	void *arg;
	int tries;
	/* of a fence */
	struct buf key, value, drop;
	int64_t expect;
};

struct lease {
	struct loop *loop;
	struct lease_conf conf;
	int64_t ttl_s;
	struct buf key, doc;
	char incarnation[DOC_INCARNATION + 1];
	int64_t version; /* as last told; 0: not held */
	bool lost, hurry;

	STAILQ_HEAD(, lease_op) ops; /* the first one is under way */
	struct cell_call *call;
	struct loop_timer refresh;
	bool refreshing; /* one is among the ops */
	struct loop_timer wait; /* of the first one */
	int64_t retry_ms, give_up_ms;
};

struct lease_holder {
	struct arena arena;
	struct span instance;
	bool mine; /* of this handle */
	bool earlier; /* of this instance */
};

/* ---- operations ---- */
struct lease_op *
lease_op_new(void (*begin)(struct lease *x), void *arg);
void lease_op_free(struct lease_op *o);
void lease_op_add(struct lease *x, struct lease_op *o);
/* The first one is over and the caller's; the next one begins. */
struct lease_op *lease_op_take(struct lease *x);
static inline struct lease_op *
lease_op_first(struct lease *x)
{
	return STAILQ_FIRST(&x->ops);
}
/* What has nothing to ask answers later all the same. */
void lease_answer_later(struct lease *x, loop_fn fn, int64_t ms);

/* The arena is the caller's. */
struct lease_holder lease_holder_of(const struct lease *x, struct span value);
void lease_lose(struct lease *x);
void lease_arm_refresh(struct lease *x);
void lease_on_refresh_due(void *arg);

#endif
