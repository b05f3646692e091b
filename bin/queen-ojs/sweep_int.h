/* SPDX-License-Identifier: Apache-2.0 */
/* Inside sweep: chains of calls, and that of the streams. */
#ifndef QUEEN_OJS_SWEEP_INT_H
#define QUEEN_OJS_SWEEP_INT_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "ctx.h"
#include "log.h"
#include "loop.h"
#include "sweep.h"

struct err;

/* Streams: steps that were claimed, and where we are in them. */
struct sweep_streams {
	struct sweep *sweep;
	struct loop_timer timer;
	PGresult *steps;
	int at, repeats;
	bool full;	/* there may be more to claim */
	struct log_sampler notes;
};

/* Jobs, crons, removal: kinds of work in turn. */
struct sweep_chain {
	struct sweep *sweep;
	struct loop_timer timer;
	int kind, last;	/* enum sweep_kind: from the first to the last */
	int first, repeats;
	int64_t every_ms, pass_ms;
};

struct sweep {
	struct ctx *x;
	struct sweep_chain jobs, care;
	struct sweep_streams streams;
	int64_t check_ms;	/* when to look whether logs are whole */
	struct log_sampler failures;
	struct sweep_stats stats;
};

/* Counts it, and says so now and then. */
void sweep_failed(struct sweep *s, const struct err *e);

void sweep_streams_start(struct sweep *s);
void sweep_streams_stop(struct sweep *s);

#endif
