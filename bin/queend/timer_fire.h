/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fires due timers: each queend looks when the next one is due, sleeps until
 * then, and has the database append what is due.  No process leads; what one
 * has locked the others skip.
 */
#ifndef QUEEND_TIMER_FIRE_H
#define QUEEND_TIMER_FIRE_H

#include <stdbool.h>
#include <stdint.h>

struct ctx;
struct timer_fire;

struct timer_fire *timer_fire_new(struct ctx *x);
/* Nothing more is begun; a fire in hand commits or not as a whole. */
void timer_fire_free(struct timer_fire *t);
/* A schedule was committed here that is due in so long: do not sleep past it. */
void timer_fire_wake(struct ctx *x, int64_t delay_ms);

struct timer_fire_stats {
	uint64_t fired, failed, dead;	/* timers; failed: attempts counted */
	uint64_t retried;		/* fires that met a passing fault */
	int64_t due, late_ms;		/* at the last look */
	int64_t lag_ms;			/* longest of the last fire */
};
void timer_fire_stats(const struct timer_fire *t,
	struct timer_fire_stats *out);

#endif
