/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the bundles share: commit.c prepares and does what an
 * answer asks for, commit_call.c asks the cell.
 */
#ifndef QUEEN_PGSRC_COMMIT_INT_H
#define QUEEN_PGSRC_COMMIT_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "batch.h"
#include "buf.h"
#include "bundle.h"
#include "commit.h"
#include "connfault.h"
#include "loop.h"
#include "pointer.h"

struct commit_flight;
struct err;
struct names;

struct commit {
	struct ctx *x;
	struct unit_queue *queue;
	const struct bundle_limits *limits;
	struct commit_events ev;
	struct names *names;
	struct pointer pointer; /* what stays of it */
	int64_t version; /* of its row, as of the last settled bundle */
	uint64_t lsn;
	bool troubled;
	/* the bundle in flight */
	bool busy;
	struct bundle bundle;
	struct batch batch;
	struct buf doc; /* the pointer it moves to */
	int64_t next_version; /* of a bundle that is written */
	struct connfault refusal; /* why it is not taken */
	struct commit_flight *flight;
	struct loop_timer timer;
	void (*next)(struct commit *c); /* when the timer is up */
};

/* ---- commit.c ---- */

/* The place the bundle in flight reaches. */
const struct pointer_place *commit_cover(const struct commit *c);
/* version: of the pointer's row, should the act be to go on. */
void commit_act(struct commit *c, enum bundle_act a, int64_t version);
void commit_answered(struct commit *c, enum bundle_answer answer);
/* Nothing of it is in, for certain. */
void commit_not_done(struct commit *c, const struct err *e);
void commit_trouble(struct commit *c, const struct connfault *f);

/* ---- commit_call.c ---- */

/* The bundle, which is packed. */
void commit_call(struct commit *c);
/* Is it in? */
void commit_ask(struct commit *c);
/* What is under way answers nobody; what it has begun is rolled back. */
void commit_leave(struct commit *c);

#endif
