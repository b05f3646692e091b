/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker of a sink: takes a batch, has it applied, acknowledges it, for as
 * long as it is let; keeps the leases while it works and lets them go while it
 * only waits.
 */
#ifndef QUEEN_PGSINK_WORKER_H
#define QUEEN_PGSINK_WORKER_H

#include <stdbool.h>
#include <stdint.h>

struct connfault;
struct ctx;
struct worker;

struct worker_face {
	/* Its last step failed, and is tried again; retry_ms 0: by others. */
	void (*failing)(void *arg, const struct connfault *why,
		int64_t retry_ms);
	void (*well)(void *arg);	/* after failing */
	/* A dead letter was filed. */
	void (*noted)(void *arg, const struct connfault *why);
	/* It cannot go on, an operator must mend something. */
	void (*over)(void *arg, const struct connfault *why);
	void (*stopped)(void *arg);	/* after worker_stop, once, later */
	void *arg;
};

struct worker *worker_new(struct ctx *x, int no,
	const struct worker_face *face);
bool worker_is_failing(const struct worker *w);
/* Nothing new; the transaction in flight and its ack may end. */
void worker_stop(struct worker *w);
/*
 * Drops what it has in hand: it comes again when its lease ends.  When it has
 * stopped, or right before the links of the feed are freed.
 */
void worker_free(struct worker *w);

#endif
