/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the last claim of each (queue, rank) ended: the next one begins
 * there, so that it does not walk over what was claimed before (EDGES).  From
 * the start when that finds nothing, and once a second.
 */
#ifndef QUEEN_OJS_CLAIMS_H
#define QUEEN_OJS_CLAIMS_H

#include <stddef.h>
#include <stdint.h>

#include "pgbin.h"
#include "qid.h"
#include "span.h"

struct claims;

struct claims *claims_new(void);
void claims_free(struct claims *c);
/*
 * Appends four arrays (queue_id, rank, enqueued_at, seq): what is remembered
 * of these queues.  Left out: a queue of which nothing is known, and one for
 * which it is time to look from the start.
 */
void claims_args(struct claims *c, struct pgargs *a, const struct qid *tenant,
	const struct span *queues, size_t n, int64_t now_ms);
/*
 * A queue's id, learnt from an answer; id 0 = there is none (any more).  One
 * that nobody asked for in ten minutes is forgotten.
 */
void claims_queue(struct claims *c, const struct qid *tenant,
	struct span queue, int64_t id, int64_t now_ms);
/* 0 = not known. */
int64_t claims_queue_id(
	const struct claims *c, const struct qid *tenant, struct span queue);
void claims_took(struct claims *c, int64_t queue_id, int rank,
	int64_t enqueued_us, int64_t seq);
/* The next call of this queue looks from the start. */
void claims_reset(struct claims *c, int64_t queue_id);

#endif
