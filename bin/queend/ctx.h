/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of queend share: passed, never extern. */
#ifndef QUEEND_CTX_H
#define QUEEND_CTX_H

#include <stdbool.h>
#include <stdint.h>

#include "qid.h"
#include "span.h"

struct acks;
struct catalog;
struct changes;
struct counts;
struct fetches;
struct flush;
struct gate;
struct hint;
struct hsrv;
struct hsrv_req;
struct kvlimit;
struct kv_sweep;
struct loop;
struct maint;
struct pgpool;
struct pops;
struct seal;
struct settings;
struct stats;
struct timer_fire;

/* Lanes of the pool (DESIGN §3, Connections). */
enum lane { LANE_PUSH, LANE_ACK, LANE_POP, LANE_REST, LANES };

struct ctx {
	struct loop *loop;
	const struct settings *conf;
	const char *instance;		/* QUEEN_SERVER_ID, or host and slot */
	const char *conninfo;
	struct seal *seal;		/* keys of payloads; NULL = none */
	uint64_t cell_tag;
	uint8_t hash_key[16];
	int64_t started_ms;		/* monotonic */
	bool stopping;			/* draining: park nothing any more */

	/* mirrors of queen.flags, refreshed by hint and every minute */
	bool push_maintenance, pop_maintenance;
	bool kv_enabled, timers_schedule_enabled, timers_fire_enabled;
	uint64_t flags_set;		/* by us so far, and again when stored */
	int flags_setting;		/* of those, not stored yet */

	struct gate *gate;		/* tokens, tenants */
	struct hsrv *hsrv;
	struct pgpool *pool;
	struct hint *hint;		/* LISTEN connection */
	struct catalog *catalog;	/* names to ids */
	struct flush *flush;		/* push coalescer and dedup filter */
	struct acks *acks;		/* ack coalescer */
	struct pops *pops;		/* rings, parked pops, pop coalescer */
	struct changes *changes;	/* the change scan */
	struct fetches *fetches;	/* parked fetches; made by the first */
	struct counts *counts;		/* per-minute counters */
	struct stats *stats;		/* cached statistics */
	struct timer_fire *timer_fire;	/* fires due timers */
	struct maint *maint;		/* due work: retention, purge, cleanup */
	struct kv_sweep *kv_sweep;	/* dead KV rows */
	struct kvlimit *kvlimit;	/* rates and quotas of kv and timers */
};

#define CTX_QUEUE_MODE "__QUEUE_MODE__"

/*
 * The context of a request, the tenant it speaks for, and who sent it: `sub`
 * of its token, n = 0 without; both live as long as the request.
 */
struct ctx *ctx_of(const struct hsrv_req *r);
const struct qid *ctx_tenant(const struct hsrv_req *r);
struct span ctx_subject(const struct hsrv_req *r);

#endif
