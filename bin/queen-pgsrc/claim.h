/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease of a source, held by one process: claimed, refreshed at a third
 * of its time, given back.  It says who should work; the pointer fences.
 */
#ifndef QUEEN_PGSRC_CLAIM_H
#define QUEEN_PGSRC_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

struct claim;
struct connfault;
struct ctx;

/* Any of them may free the claim, but not on_trouble with NULL. */
struct claim_events {
	void (*on_won)(void *arg);
	/* Another node works; comes again when it is another one. */
	void (*on_standby)(void *arg, struct span owner);
	/* Could not be claimed or refreshed this time; NULL: it can again. */
	void (*on_trouble)(void *arg, const struct connfault *f);
	/* It was mine and is no more: stop at once. */
	void (*on_lost)(void *arg);
	void *arg;
};

/* Claims at once, and again at half of the lease's time until it has it. */
struct claim *claim_new(struct ctx *x, const struct claim_events *ev);
/* Without giving it back: it ends by itself. */
void claim_free(struct claim *c);
bool claim_is_mine(const struct claim *c);
/*
 * Gives it back, tries for up to 5 s; done comes once, always later.  Nothing
 * else is told meanwhile.
 */
void claim_release(struct claim *c, void (*done)(void *arg), void *arg);
/* Claims anew after a release or a loss, after wait_ms. */
void claim_again(struct claim *c, int64_t wait_ms);

#endif
