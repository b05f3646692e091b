/* SPDX-License-Identifier: Apache-2.0 */
/* What the decision (kvlimit.c) and its inputs (kvlimit_load.c) share. */
#ifndef QUEEND_KVLIMIT_INT_H
#define QUEEND_KVLIMIT_INT_H

#include "kvlimit.h"
#include "kvmeter.h"
#include "log.h"
#include "loop.h"
#include "map.h"
#include "qid.h"

struct kvlimit_tenant {
	struct qid id;
	bool granted, enabled;
	int64_t horizon_ms;		/* KVMETER_NO_CAP = the cell's */
	int64_t reads_ps, writes_ps;	/* KVMETER_NO_CAP = the settings */
	int64_t computed_us;		/* of the measurement; INT64_MIN none */
	uint64_t seen;			/* number of the refresh that had it */
	struct kvmeter rows, bytes, timers;
	struct kvmeter_bucket reads, writes;
};

struct kvlimit {
	struct ctx *x;
	int64_t (*now_ms)(void);	/* monotonic; a test moves it */
	struct map tenants;
	struct kvmeter_bucket cell;
	int64_t lane_failures;		/* in a row */
	int64_t loaded_ms;		/* of the last refresh; -1 none */
	uint64_t refreshes;
	int listed;			/* tenants of the last refresh */
	bool loading;
	struct loop_timer refresh, usage;
	struct log_sampler errors;
	struct kvlimit_stats counts;
};

/* The tenant, made when it is new; NULL when the map is full. */
struct kvlimit_tenant *kvlimit_tenant(struct kvlimit *k, const struct qid *id);
bool kvlimit_hot(const struct kvlimit *k);
/* Starts the loops. */
void kvlimit_load_start(struct kvlimit *k);
/* A refresh soon: it also tells whether a connection can be had. */
void kvlimit_load_soon(struct kvlimit *k);

#endif
