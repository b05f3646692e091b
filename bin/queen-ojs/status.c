/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health is a real round trip.  A stream that waits for its rebase, in a cell
 * that was restored, is told as well, but is no reason to take jobs away.
 */
#include "status.h"

#include "buf.h"
#include "call.h"
#include "clk.h"
#include "ctx.h"
#include "err.h"
#include "hint.h"
#include "hsrv.h"
#include "jwrite.h"
#include "metric.h"
#include "pgpool.h"
#include "reply.h"
#include "settings.h"
#include "sweep.h"
#include "wait.h"

static const struct pgstmt STMT_HEALTH = { "health",
	"select queen.clock_v1()" };
static const struct pgstmt STMT_RESET = { "jobs_reset",
	"select queen.jobs_reset_v1($1)" };
static const struct pgstmt STMT_METRICS = { "ojs_metrics",
	"select name, value from queen.metrics_ojs_v1()" };

/* ---- manifest ---- */

static void
write_capabilities(struct jwrite *w)
{
	static const char *const have[] = { "batch_enqueue", "cron_jobs",
		"dead_letter", "delayed_jobs", "job_ttl", "pause_resume",
		"priority_queues", "rate_limiting", "unique_jobs",
		"workflows" };

	jwrite_key(w, "capabilities");
	jwrite_object(w);
	for (size_t i = 0; i < sizeof(have) / sizeof(have[0]); i++)
		jwrite_kv_bool(w, have[i], true);
	jwrite_kv_bool(w, "schema_validation", false);
	jwrite_end(w);
}

static void
write_limits(struct jwrite *w, const struct settings *conf)
{
	jwrite_key(w, "limits");
	jwrite_object(w);
	jwrite_kv_i64(w, "max_envelope_bytes", conf->max_envelope_bytes);
	jwrite_kv_i64(w, "max_meta_bytes", 65536);
	jwrite_kv_i64(w, "max_batch", conf->max_batch);
	jwrite_end(w);
}

void
status_manifest(struct hsrv_req *r)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "specversion", "1.0");
	jwrite_kv_cstr(&w, "ojs_version", "1.0");
	jwrite_key(&w, "implementation");
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "name", "queen-ojs");
	jwrite_kv_cstr(&w, "version", QUEEN_VERSION);
	jwrite_kv_cstr(&w, "language", "c");
	jwrite_end(&w);
	jwrite_kv_i64(&w, "conformance_level", 4);
	jwrite_kv_cstr(&w, "conformance_tier", "runtime");
	jwrite_kv_raw(&w, "protocols", SPAN_LIT("[\"http\"]"));
	jwrite_kv_cstr(&w, "backend", "postgres");
	jwrite_kv_cstr(&w, "unique_job_strength", "strong");
	write_capabilities(&w);
	write_limits(&w, ctx_of(r)->conf);
	jwrite_kv_raw(&w, "extensions", SPAN_LIT("[\"x_streams\"]"));
	jwrite_key(&w, "endpoints");
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "base_url", "/ojs/v1");
	jwrite_kv_cstr(&w, "manifest", "/ojs/manifest");
	jwrite_kv_cstr(&w, "health", "/ojs/v1/health");
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

/* ---- health ---- */

/* error NULL = the database answered what was asked at asked_us. */
static void
reply_health(struct hsrv_req *r, int64_t asked_us, const char *error)
{
	struct ctx *x = ctx_of(r);
	bool whole = !x->stream_fault[0];
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "status", !error && whole ? "ok" : "degraded");
	jwrite_kv_cstr(&w, "version", "1.0");
	jwrite_kv_i64(
		&w, "uptime_seconds", (clk_mono_ms() - x->started_ms) / 1000);
	jwrite_key(&w, "backend");
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "type", "postgres");
	jwrite_kv_cstr(&w, "status", error ? "disconnected" : "connected");
	if (error) {
		jwrite_kv_cstr(&w, "error", error);
	} else {
		jwrite_key(&w, "latency_ms");
		jwrite_f64(&w, (double)(clk_mono_us() - asked_us) / 1000, 3);
	}
	jwrite_end(&w);
	if (!whole)
		jwrite_kv_cstr(&w, "streams", x->stream_fault);
	jwrite_end(&w);
	hsrv_reply(r, error ? 503 : 200);
}

static void
fill_nothing(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	(void)r;
	(void)arg;
	(void)a;
}

static void
on_clock(struct hsrv_req *r, void *arg, const PGresult *res)
{
	(void)res;
	reply_health(r, *(const int64_t *)arg, NULL);
}

static void
on_no_clock(struct hsrv_req *r, void *arg, const struct err *e)
{
	(void)arg;
	(void)e;
	reply_health(r, 0, "the database does not answer");
}

void
status_health(struct hsrv_req *r)
{
	int64_t *asked_us = arena_zalloc(hsrv_arena(r), sizeof(*asked_us));
	struct call c = { .stmt = &STMT_HEALTH,
		.lane = LANE_REST,
		.fill = fill_nothing,
		.done = on_clock,
		.failed = on_no_clock,
		.arg = asked_us };

	*asked_us = clk_mono_us();
	call_run(r, &c);
}

/* ---- metrics ---- */

/* Totals of the cell, by the names metrics_ojs_v1 gives them. */
static const struct {
	const char *name, *metric, *help;
} totals[] = {
	{ "queues", "queen_ojs_queues", "Queues of queen-ojs." },
	{ "jobs_available", "queen_ojs_jobs_available",
		"Jobs that can be fetched; counted up to 100000." },
	{ "jobs_active", "queen_ojs_jobs_active",
		"Jobs that workers hold; counted up to 100000." },
	{ "jobs_waiting", "queen_ojs_jobs_waiting",
		"Jobs scheduled, retryable or pending; up to 100000." },
	{ "jobs_dead", "queen_ojs_jobs_dead",
		"Jobs in the dead-letter set; counted up to 100000." },
	{ "jobs_overdue_seconds", "queen_ojs_jobs_overdue_seconds",
		"How long the oldest due job waits to be promoted." },
	{ "crons", "queen_ojs_crons", "Recurring jobs." },
	{ "workflows", "queen_ojs_workflows", "Workflows that run." },
	{ "streams", "queen_ojs_streams", "Queues with a stream." },
	{ "stream_pinned", "queen_ojs_stream_pinned",
		"Streams whose log a consumer holds past twice its retention." },
};

enum {
	TOTALS = sizeof(totals) / sizeof(totals[0]),
	TOTALS_MS = 1000, /* a scrape's totals are served again so long */
	TOTALS_WORTH = 20, /* or as many times what they cost */
};
_Static_assert((int)TOTALS <= (int)CTX_TOTALS_MAX, "a place for each");

static void
write_process(struct hsrv_req *r)
{
	struct ctx *x = ctx_of(r);
	struct buf *b = hsrv_out(r);
	struct sweep_stats ss;
	struct pgpool_stats ps;
	struct hint_stats hints;
	struct hsrv_stats hs;

	hint_stats(x->hint, &hints);
	sweep_stats(x->sweep, &ss);
	pgpool_stats(x->pool, &ps);
	hsrv_stats(x->hsrv, &hs);
	metric_one(b, "queen_ojs_uptime_seconds", "gauge",
		"How long this process runs.",
		(uint64_t)(clk_mono_ms() - x->started_ms) / 1000);
	metric_one(b, "queen_ojs_resident_bytes", "gauge",
		"Memory of this process.", metric_resident_bytes());
	metric_one(b, "queen_ojs_requests_total", "counter",
		"Requests of this process.", hs.requests);
	metric_one(b, "queen_ojs_connections", "gauge",
		"Connections of clients.", (uint64_t)hs.connections);
	metric_one(b, "queen_ojs_parked", "gauge",
		"Fetches and receives that wait.",
		(uint64_t)waits_parked(x->waits));
	metric_one(b, "queen_ojs_hints_up", "gauge",
		"1 while NOTIFY of other processes is heard.", hints.up);
	metric_one(b, "queen_ojs_db_up", "gauge",
		"Connections to the database that are up.", (uint64_t)ps.up);
	metric_one(b, "queen_ojs_db_busy", "gauge",
		"Connections that carry a call.", (uint64_t)ps.busy);
	metric_one(b, "queen_ojs_db_calls_total", "counter",
		"Calls of the database.", ps.calls);
	metric_one(b, "queen_ojs_db_errors_total", "counter",
		"Calls of the database that failed.", ps.errors);
	metric_one(b, "queen_ojs_sweeps_total", "counter",
		"Passes over the due work.", ss.passes);
	metric_one(b, "queen_ojs_sweep_failures_total", "counter",
		"Calls of such a pass that failed.", ss.failures);
	metric_one(b, "queen_ojs_sweep_jobs_total", "counter",
		"Jobs promoted, expired, timed out or taken back.", ss.jobs);
	metric_one(b, "queen_ojs_cron_jobs_total", "counter",
		"Jobs that crons made.", ss.crons);
	metric_one(b, "queen_ojs_stream_steps_total", "counter",
		"Steps of work on streams.", ss.stream_steps);
	metric_one(b, "queen_ojs_removed_total", "counter",
		"Jobs removed by age or with their queue.", ss.rows_removed);
}

static void
reply_metrics(struct hsrv_req *r)
{
	const struct ctx_totals *t = &ctx_of(r)->totals;

	write_process(r);
	for (size_t k = 0; k < TOTALS; k++)
		if (t->known & UINT32_C(1) << k)
			metric_one(hsrv_out(r), totals[k].metric, "gauge",
				totals[k].help, (uint64_t)t->value[k]);
	hsrv_set_type(r, "text/plain; version=0.0.4; charset=utf-8");
	hsrv_reply(r, 200);
}

static void
on_totals(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct ctx_totals *t = &ctx_of(r)->totals;
	int64_t now_ms = clk_mono_ms();
	int64_t cost_ms = (clk_mono_us() - t->asked_us) / 1000;

	(void)arg;
	t->known = 0;
	for (int i = 0; i < PQntuples(res); i++)
		for (size_t k = 0; k < TOTALS; k++)
			if (span_is(pgbin_bytes(res, i, 0), totals[k].name)) {
				t->value[k] = pgbin_i64(res, i, 1);
				t->known |= UINT32_C(1) << k;
			}
	t->until_ms = now_ms + (cost_ms * TOTALS_WORTH > TOTALS_MS
					       ? cost_ms * TOTALS_WORTH
					       : TOTALS_MS);
	reply_metrics(r);
}

/* What is not known is not shown. */
static void
on_no_totals(struct hsrv_req *r, void *arg, const struct err *e)
{
	(void)arg;
	(void)e;
	ctx_of(r)->totals.known = 0;
	reply_metrics(r);
}

void
status_metrics(struct hsrv_req *r)
{
	struct ctx_totals *t = &ctx_of(r)->totals;
	struct call c = { .stmt = &STMT_METRICS,
		.lane = LANE_REST,
		.fill = fill_nothing,
		.done = on_totals,
		.failed = on_no_totals };

	if (clk_mono_ms() < t->until_ms) {
		reply_metrics(r);
		return;
	}
	t->asked_us = clk_mono_us();
	call_run(r, &c);
}

/* ---- reset ---- */

static void
fill_tenant(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	(void)arg;
	pgargs_uuid(a, ctx_tenant(r));
}

static void
on_reset(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct jwrite w;

	(void)arg;
	(void)res;
	waits_tell_queue(ctx_of(r)->waits, 0);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "reset", true);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
status_reset(struct hsrv_req *r)
{
	struct call c = { .stmt = &STMT_RESET,
		.lane = LANE_JOB,
		.fill = fill_tenant,
		.done = on_reset };

	if (!ctx_of(r)->conf->test) {
		reply_no(r, 404, "not_found", "\"resource\":\"path\"",
			"There is nothing under this path.");
		return;
	}
	call_run(r, &c);
}
