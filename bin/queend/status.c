/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health and the metrics JSON.  /health is readiness: it makes a real round
 * trip and is never a reason to kill the process.
 */
#include "status.h"

#include <stdlib.h>

#include "clk.h"
#include "connector.h"
#include "count.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "metric.h"
#include "pgpool.h"

static const struct pgstmt STMT_CLOCK = { "clock", "select queen.clock_v1()" };

static void
on_clock(void *arg, const PGresult *res, const struct err *e)
{
	struct hsrv_req *r = arg;
	struct jwrite w;

	(void)res;
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "status", e ? "unhealthy" : "healthy");
	jwrite_kv_cstr(&w, "database", e ? "disconnected" : "connected");
	jwrite_kv_cstr(&w, "engine", STATUS_ENGINE);
	jwrite_kv_cstr(&w, "version", QUEEN_VERSION);
	jwrite_end(&w);
	hsrv_reply(r, e ? 503 : 200);
}

void
status_health(struct hsrv_req *r)
{
	struct pgargs a;

	pgargs_init(&a);
	pgpool_call(ctx_of(r)->pool, LANE_REST, &STMT_CLOCK, &a, on_clock, r);
}

static void
on_connectors(struct hsrv_req *r, struct span pg)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "status", "ok");
	jwrite_kv_cstr(&w, "engine", STATUS_ENGINE);
	jwrite_kv_raw(&w, "pg", pg);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
status_process(struct hsrv_req *r)
{
	connector_status(r, on_connectors);
}

/* There is no spool in this release: nothing is ever pending. */
void
status_buffers(struct hsrv_req *r)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_i64(&w, "pending", 0);
	jwrite_kv_i64(&w, "failed", 0);
	jwrite_kv_bool(&w, "dbHealthy", pgpool_is_up(ctx_of(r)->pool));
	jwrite_kv_i64(&w, "worker", 0);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
write_total(struct jwrite *w, const char *key, const uint64_t v[COUNT_OPS])
{
	jwrite_key(w, key);
	jwrite_object(w);
	jwrite_kv_i64(w, "total",
		(int64_t)(v[COUNT_PUSH] + v[COUNT_POP] + v[COUNT_ACK]));
	jwrite_kv_i64(w, "rate", 0);
	jwrite_end(w);
}

/* A Prometheus scraper names the text form; everyone else gets JSON. */
static bool
wants_text(const struct hsrv_req *r)
{
	struct span accept;

	return hsrv_header(r, "accept", &accept) &&
	       (memmem(accept.p, accept.n, "text/plain", 10) ||
		       memmem(accept.p, accept.n, "openmetrics", 11));
}

void
status_metrics(struct hsrv_req *r)
{
	struct ctx *x = ctx_of(r);
	struct count_totals t;
	struct pgpool_stats ps;
	struct jwrite w;

	if (wants_text(r)) {
		status_prometheus(r);
		return;
	}
	counts_totals(x->counts, &t);
	pgpool_stats(x->pool, &ps);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_i64(&w, "uptime", (clk_mono_ms() - x->started_ms) / 1000);
	write_total(&w, "requests", t.requests);
	write_total(&w, "messages", t.messages);
	jwrite_key(&w, "database");
	jwrite_object(&w);
	jwrite_kv_i64(&w, "poolSize", ps.size);
	jwrite_kv_i64(&w, "idleConnections", ps.up - ps.busy);
	jwrite_kv_i64(&w, "waitingRequests", ps.waiting);
	jwrite_end(&w);
	jwrite_key(&w, "memory");
	jwrite_object(&w);
	jwrite_kv_i64(&w, "rss", (int64_t)metric_resident_bytes());
	jwrite_kv_i64(&w, "heapTotal", 0);
	jwrite_kv_i64(&w, "heapUsed", 0);
	jwrite_kv_i64(&w, "external", 0);
	jwrite_kv_i64(&w, "arrayBuffers", 0);
	jwrite_end(&w);
	jwrite_key(&w, "cpu");
	jwrite_object(&w);
	jwrite_kv_i64(&w, "user", 0);
	jwrite_kv_i64(&w, "system", 0);
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}
