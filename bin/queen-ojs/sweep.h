/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The due work of the cell, both views in one pass: promotions, leases,
 * timeouts, expiry, crons, retries and ticks of streams, rotation, removal.
 * Any process does it; SQL decides what is due, and skips what another has.
 */
#ifndef QUEEN_OJS_SWEEP_H
#define QUEEN_OJS_SWEEP_H

#include <stdint.h>

struct ctx;
struct sweep;

struct sweep *sweep_new(struct ctx *x);
void sweep_free(struct sweep *s);

struct sweep_stats {
	uint64_t passes, failures;
	uint64_t jobs;		/* became available, expired, timed out */
	uint64_t crons;		/* jobs that crons made */
	uint64_t stream_steps;
	uint64_t rows_removed;
	int64_t last_ms;	/* duration of the last pass */
};
void sweep_stats(const struct sweep *s, struct sweep_stats *out);

#endif
