/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of queen-ojs share: passed, never extern. */
#ifndef QUEEN_OJS_CTX_H
#define QUEEN_OJS_CTX_H

#include <stdbool.h>
#include <stdint.h>

#include "log.h"
#include "qid.h"
#include "span.h"

struct gate;
struct hint;
struct hsrv;
struct hsrv_req;
struct loop;
struct pgpool;
struct settings;
struct sweep;
struct ticks;
struct waits;
struct claims;

/* Claims of jobs; all else of jobs; streams; sweeps and reads. */
enum lane { LANE_FETCH, LANE_JOB, LANE_STREAM, LANE_REST, LANES };

enum { CTX_TOTALS_MAX = 16 };
/* Counts of the cell, kept for as long as they are worth what they cost. */
struct ctx_totals {
	int64_t until_ms, asked_us;
	int64_t value[CTX_TOTALS_MAX];
	uint32_t known;	/* bit per value */
};

struct ctx {
	struct loop *loop;
	const struct settings *conf;
	const char *instance;	/* QUEEN_SERVER_ID, or host and slot */
	const char *conninfo;
	uint64_t cell_tag;
	int64_t started_ms;	/* monotonic */
	int64_t clock_offset_us;	/* clock of the database less ours */
	bool stopping;		/* draining: park nothing any more */
	struct log_sampler failures;	/* calls that failed */
	char stream_fault[256];	/* why a stream is refused; "" = none is */
	struct ctx_totals totals;	/* what the last scrape counted */

	struct gate *gate;
	struct hsrv *hsrv;
	struct pgpool *pool;
	struct hint *hint;
	struct waits *waits;	/* parked fetches and receives */
	struct claims *claims;	/* where the last claims ended */
	struct ticks *ticks;	/* when streams need one */
	struct sweep *sweep;	/* due work of the cell */
};

struct ctx *ctx_of(const struct hsrv_req *r);
const struct qid *ctx_tenant(const struct hsrv_req *r);
/* The clock of the database, as well as we know it. */
int64_t ctx_now_us(const struct ctx *x);

#endif
