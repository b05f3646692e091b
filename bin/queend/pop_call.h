/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of pop: pop_call.c builds and sends it, pop_answer.c reads what came
 * back and answers its requests.
 */
#ifndef QUEEND_POP_CALL_H
#define QUEEND_POP_CALL_H

#include "pgbin.h"
#include "pop_int.h"

/* Columns of the answer. */
enum {
	COL_REQ,
	COL_CAND,
	COL_VERDICT,
	COL_UNTIL,
	COL_LEASE_AT,
	COL_LEASE_GROUP,
	COL_BASE,
	COL_SKIP,
	COL_TAKE,
	COL_AT,
	COL_LAST,
	COL_ATTEMPT,
	COL_SPAN,
	COL_EXPIRES,
	COL_RAW,
	COL_KEY,
	COL_BLOB
};

enum verdict {
	VERDICT_TOOK,
	VERDICT_LEASED,
	VERDICT_HIDDEN,
	VERDICT_LOCKED,
	VERDICT_BLOCKED,
	VERDICT_EMPTY,
	VERDICT_GONE,
	VERDICT_NONE /* not reached */
};

struct cand {
	struct ring *ring;
	int64_t part_id;
	enum verdict verdict;
	int64_t until_us; /* of verdict, or when the lease ends */
	int64_t last, end; /* newest offset; last one served */
	int64_t base; /* blocked: of the segment that does */
	int key; /* and its key id */
	bool damaged; /* took, but it cannot be opened */
	struct cat_group *group;
};

struct call {
	TAILQ_ENTRY(call) link;
	struct pops *pops;
	uint64_t seq;
	int64_t sent_us;
	struct qid tenant;
	bool opens, opened, undone; /* undone: rolled back */
	int n, reqs_n;
	struct cand cands[POP_CALL_CANDIDATES];
	struct pop *reqs[POP_CALL_CANDIDATES];
	PGresult *kept; /* while names are looked up */
	struct buf *clear; /* by row: what was sealed, opened */
	int clear_n;
};

void call_free(struct call *c);

/* ---- pop_answer.c ---- */
/* Of a call that opens: commit what was taken? */
bool call_opens(void *arg, const PGresult *res);
void call_answered(void *arg, const PGresult *res, const struct err *e);

#endif
