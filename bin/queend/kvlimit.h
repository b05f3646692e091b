/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant may still store and how often it may call: switches, grants,
 * rates and occupancy of key/value state and timers.  Soft: each process adds
 * its own charges to the last measurement; no write touches the quota tables.
 */
#ifndef QUEEND_KVLIMIT_H
#define QUEEND_KVLIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct ctx;
struct kvlimit;
struct qid;

/* One call.  A delete is a write of no rows, a cancel no schedule. */
struct kvlimit_ask {
	bool kv;		/* has kv operations */
	bool kv_write;		/* some of them write or delete */
	bool schedule;		/* has a schedule or reschedule */
	bool in_bundle;		/* rider of a transaction: no rate, 403 */
	int64_t rows, bytes;	/* of put, putIfAbsent, incr: upper bounds */
	int64_t timers;		/* schedules and reschedules */
	int64_t horizon_ms;	/* the longest delay */
};

/* A refusal: static texts; retry_after_s 0 = no header. */
struct kvlimit_no {
	int status;
	const char *error, *reason;
	int retry_after_s;
};

/* Operations as metrics name them. */
enum kvlimit_op {
	KVLIMIT_GET,
	KVLIMIT_GET_MANY,
	KVLIMIT_GET_PREFIX,
	KVLIMIT_PUT,
	KVLIMIT_DELETE,
	KVLIMIT_INCR,
	KVLIMIT_OPS
};
enum kvlimit_result {
	KVLIMIT_APPLIED,	/* also: a read that was answered */
	KVLIMIT_REJECTED,	/* a lost condition */
	KVLIMIT_ERROR,
	KVLIMIT_RESULTS
};
/* Refusals of reads, and of schedules (shape to unavailable: the caller's). */
enum kvlimit_why {
	KVLIMIT_RATE,
	KVLIMIT_QUOTA,
	KVLIMIT_POOL,
	KVLIMIT_DISABLED,
	KVLIMIT_GATED,
	KVLIMIT_HORIZON,
	KVLIMIT_SHAPE,
	KVLIMIT_SIZE,
	KVLIMIT_WHYS
};

struct kvlimit_stats {
	uint64_t ops[KVLIMIT_OPS][KVLIMIT_RESULTS];
	uint64_t reads_refused[KVLIMIT_WHYS], schedules_refused[KVLIMIT_WHYS];
	int tenants;		/* with a grant or a measurement */
	int64_t age_ms;		/* of the last refresh; -1 = none yet */
	bool hot;		/* a tenant is near one of its caps */
};

struct kvlimit *kvlimit_new(struct ctx *x);
void kvlimit_free(struct kvlimit *k);

/*
 * True: charged, the call may go.  False: *no says what to answer.  Checks in
 * the order shed, switch, grant, horizon, rate, occupancy.
 */
bool kvlimit_admit(struct ctx *x, const struct qid *tenant,
	const struct kvlimit_ask *ask, struct kvlimit_no *no);
/*
 * The call failed or was rolled back: takes its occupancy back.  Not when
 * its outcome is unknown (ERR_DB_UNKNOWN).
 */
void kvlimit_refund(struct ctx *x, const struct qid *tenant,
	const struct kvlimit_ask *ask);
/* A call got its connection, or none (pgpool_had_none): standalone shed. */
void kvlimit_lane(struct ctx *x, bool got_connection);

/* Counters of /metrics/prometheus. */
void kvlimit_count(struct ctx *x, enum kvlimit_op op,
	enum kvlimit_result result);
/* Refusals kvlimit_admit does not see (it counts its own). */
void kvlimit_read_refused(struct ctx *x, enum kvlimit_why why);
void kvlimit_schedule_refused(struct ctx *x, enum kvlimit_why why);
void kvlimit_stats(const struct kvlimit *k, struct kvlimit_stats *out);

#endif
