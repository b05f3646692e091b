/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease of one queue and the fence in front of its pointers.  One writer
 * per lease: claim, refresh, fence and release wait for one another, so that
 * none expects a version that another is about to change.
 */
#ifndef QUEEN_S3_LEASE_H
#define QUEEN_S3_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "key.h"
#include "qid.h"
#include "span.h"

struct cell;
struct err;
struct lease;
struct loop;

struct lease_conf {
	struct cell *cell;
	const struct qid *tenant; /* borrowed */
	const char *sink, *queue, *instance; /* borrowed */
	int64_t ttl_ms; /* stored in whole seconds, at least 1 */
	/*
	 * A refresh found that it is another's, for good for this handle; called
	 * once, and not when a fence tells it.
	 */
	void (*on_lost)(void *arg);
	void *arg;
};
/* Nothing is asked yet.  A new incarnation. */
struct lease *lease_new(struct loop *l, const struct lease_conf *c);
/* Without release; no callback comes any more. */
void lease_free(struct lease *x);

enum lease_seen { LEASE_FREE, LEASE_MINE, LEASE_OTHER };
/* holder: the other's instance, or `unknown`. */
typedef void (*lease_look_fn)(
	void *arg, enum lease_seen s, struct span holder, const struct err *e);
void lease_look(struct lease *x, lease_look_fn fn, void *arg);
/*
 * Claims it when free or of an earlier life of this instance: held and
 * refreshed from then on (LEASE_MINE); else LEASE_OTHER.
 */
void lease_claim(struct lease *x, lease_look_fn fn, void *arg);

enum lease_fenced {
	LEASE_APPLIED,
	LEASE_LOST, /* the lease, or the pointer moved: stop here */
	LEASE_RETRY, /* not known to have happened: the same again */
};
/*
 * Writes a pointer (KEY_INTENT or KEY_COMMITTED) with the lease; expect: the
 * version this run read or wrote last.  LEASE_RETRY with *e: why; whose answer
 * was lost sends the same value at the same version again, and what the first
 * one wrote counts.  drop: a row that goes with it (KEY_RESUME), or KEY_LEASE
 * for none.
 */
typedef void (*lease_fence_fn)(
	void *arg, enum lease_fenced f, int64_t version, const struct err *e);
void lease_fence(struct lease *x, enum key_row pointer, struct span value,
	int64_t expect, enum key_row drop, lease_fence_fn fn, void *arg);

/* Hands it over: deletes the row while it is ours, 10 s of retries; always fn. */
typedef void (*lease_done_fn)(void *arg);
void lease_release(struct lease *x, lease_done_fn fn, void *arg);
/* From now on retries wait 250 ms at most. */
void lease_hurry(struct lease *x);

#endif
