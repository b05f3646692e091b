/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /metrics/prometheus: families of this process, then those of the cell
 * read from the database.  Without a database the second part is missing and
 * the status is still 200.
 */
#include "status.h"

#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "catalog.h"
#include "change.h"
#include "clk.h"
#include "connector.h"
#include "count.h"
#include "ctx.h"
#include "flush.h"
#include "hint.h"
#include "hsrv.h"
#include "keyring.h"
#include "metric.h"
#include "pgpool.h"
#include "pop.h"
#include "timer_fire.h"
#include "prom_kv.h"

static const struct pgstmt STMT_TOTALS = { "prometheus_totals",
	"select name, value from queen.prometheus_totals_v1()" };
static const struct pgstmt STMT_QUEUES = { "prometheus_queues",
	"select * from queen.prometheus_queues_v1()" };
static const struct pgstmt STMT_DEAD = { "prometheus_dead",
	"select queue, letters from queen.prometheus_dead_v1()" };

static const char *const op_names[COUNT_OPS] = { "push", "pop", "ack" };

/* The calls of the second part go out together. */
struct prom_page {
	struct hsrv_req *r;
	int waiting;
	struct buf totals, queues, dead, connectors;
};

static void
one_f64(struct buf *b, const char *name, const char *help, double v)
{
	metric_head(b, name, "gauge", help);
	metric_f64(b, name, NULL, 0, v);
}

static void
write_requests(struct buf *b, const struct count_totals *t)
{
	static const char *const requests[COUNT_OPS] = {
		"queen_process_push_requests_total",
		"queen_process_pop_requests_total",
		"queen_process_ack_requests_total",
	};
	static const char *const messages[COUNT_OPS] = {
		"queen_process_push_messages_total",
		"queen_process_pop_messages_total",
		"queen_process_ack_messages_total",
	};

	for (int op = 0; op < COUNT_OPS; op++)
		metric_one(b, requests[op], "counter",
			"Requests answered by this process.", t->requests[op]);
	for (int op = 0; op < COUNT_OPS; op++)
		metric_one(b, messages[op], "counter",
			"Messages handled by this process.", t->messages[op]);
	metric_one(b, "queen_pop_targeted_total", "counter",
		"Pops of one named partition.", t->pops_targeted);
	metric_one(b, "queen_pop_wildcard_total", "counter",
		"Pops over partitions.", t->pops_wildcard);
	metric_one(b, "queen_pop_fill_wait_total", "counter",
		"Pops held back by minPopWaitTime.", t->fill_waits);
	metric_one(b, "queen_pop_fill_wait_microseconds_total", "counter",
		"Time pops were held back by minPopWaitTime.", t->fill_wait_us);
}

static void
write_batches(struct buf *b, const struct count_totals *t)
{
	metric_head(b, "queen_batches_fired_total", "counter",
		"Coalesced database calls.");
	for (int op = 0; op < COUNT_OPS; op++) {
		struct metric_label l = { "op", span_of(op_names[op]) };

		metric_u64(
			b, "queen_batches_fired_total", &l, 1, t->batches[op]);
	}
	metric_head(b, "queen_batch_items_fired_total", "counter",
		"Partitions carried by coalesced database calls.");
	for (int op = 0; op < COUNT_OPS; op++) {
		struct metric_label l = { "op", span_of(op_names[op]) };

		metric_u64(b, "queen_batch_items_fired_total", &l, 1,
			t->batch_items[op]);
	}
	metric_head(b, "queen_fusion_items_per_batch", "gauge",
		"Partitions per coalesced call in the last window.");
	for (int op = 0; op < COUNT_OPS; op++) {
		struct metric_label l = { "op", span_of(op_names[op]) };

		metric_f64(b, "queen_fusion_items_per_batch", &l, 1,
			t->items_per_batch[op]);
	}
	metric_head(b, "queen_batch_rtt_milliseconds", "gauge",
		"Round trip of coalesced calls in the last window.");
	for (int op = 0; op < COUNT_OPS; op++) {
		struct metric_label l[2] = {
			{ "op", span_of(op_names[op]) },
			{ "quantile", SPAN_LIT("0.5") },
		};

		metric_f64(b, "queen_batch_rtt_milliseconds", l, 2,
			t->rtt_p50_ms[op]);
		l[1].value = SPAN_LIT("0.99");
		metric_f64(b, "queen_batch_rtt_milliseconds", l, 2,
			t->rtt_p99_ms[op]);
	}
}

static void
write_parked(void *arg, struct cat_queue *q, int parked)
{
	struct metric_label l = { "queue", q->name };

	metric_u64(arg, "queen_parked_long_polls", &l, 1, (uint64_t)parked);
}

/* The caches and scans that save work: how large, how often. */
static void
write_engine(struct buf *b, struct ctx *x)
{
	struct flush_stats fs;
	struct pops_stats ps;
	struct cellscan_stats cs;
	struct hint_stats hs;
	struct catalog_stats cat;

	flush_stats(x->flush, &fs);
	pops_stats(x->pops, &ps);
	changes_stats(x->changes, &cs);
	hint_stats(x->hint, &hs);
	catalog_stats(x->catalog, &cat);
	metric_one(b, "queen_dedup_filters", "gauge",
		"Partitions with a filter of transaction ids.", fs.filters);
	metric_one(b, "queen_dedup_filter_bytes", "gauge",
		"Memory of the filters.", fs.filter_bytes);
	metric_one(b, "queen_dedup_suspects_total", "counter",
		"Ids the filters sent to the database to look at.",
		fs.suspects);
	metric_one(b, "queen_dedup_behind_total", "counter",
		"Pushes that had to page a window in first.", fs.behind);
	metric_one(b, "queen_pop_rings", "gauge",
		"Groups with a ring of candidates.", ps.rings);
	metric_one(b, "queen_pop_ring_entries", "gauge",
		"Partitions in the rings.", ps.entries);
	metric_one(b, "queen_pop_candidates_total", "counter",
		"Partitions offered to the database to claim.", ps.candidates);
	metric_one(b, "queen_pop_candidates_empty_total", "counter",
		"Candidates that had nothing.", ps.empty);
	metric_one(b, "queen_pop_blocked_total", "counter",
		"Candidates sealed with a key this process does not have.",
		ps.blocked);
	metric_one(b, "queen_pop_damaged_total", "counter",
		"Candidates with a sealed message that does not open.",
		ps.damaged);
	metric_one(b, "queen_change_scans_total", "counter",
		"Scans for partitions written elsewhere.", cs.scans);
	metric_one(b, "queen_change_scan_rows_total", "counter",
		"Partitions those scans returned.", cs.rows);
	metric_one(b, "queen_hints_sent_total", "counter",
		"Hints to the other processes.", hs.sent);
	metric_one(b, "queen_hints_received_total", "counter",
		"Hints from the other processes.", hs.received);
	metric_one(b, "queen_hints_dropped_total", "counter",
		"Hints dropped because the link lagged.", hs.dropped);
	metric_one(b, "queen_catalog_partitions", "gauge",
		"Partition names known to this process.", cat.parts);
}

static void
write_timers(struct buf *b, struct ctx *x)
{
	static const char *const results[] = { "fired", "failed",
		"dead_letter" };
	struct timer_fire_stats s;

	timer_fire_stats(x->timer_fire, &s);
	metric_head(b, "queen_timers_fired_total", "counter",
		"Timers this process fired, by what became of them.");
	for (int i = 0; i < 3; i++) {
		struct metric_label l = { "result", span_of(results[i]) };

		metric_u64(b, "queen_timers_fired_total", &l, 1,
			i == 0   ? s.fired
			: i == 1 ? s.failed
				 : s.dead);
	}
	metric_one(b, "queen_timers_due", "gauge",
		"Timers that were due at the last look, up to a cap.",
		(uint64_t)s.due);
	one_f64(b, "queen_timers_oldest_late_seconds",
		"How late the oldest of them was.", (double)s.late_ms / 1e3);
	one_f64(b, "queen_timers_fire_lag_seconds",
		"Longest time from due to appended in the last fire.",
		(double)s.lag_ms / 1e3);
}

static void
write_process(struct buf *b, struct ctx *x)
{
	struct count_totals t;
	struct pgpool_stats ps;

	counts_totals(x->counts, &t);
	pgpool_stats(x->pool, &ps);
	metric_one(b, "queen_uptime_seconds", "gauge",
		"Time since this process started.",
		(uint64_t)(clk_mono_ms() - x->started_ms) / 1000);
	metric_one(b, "queen_process_resident_memory_bytes", "gauge",
		"Resident set of this process.", metric_resident_bytes());
	write_requests(b, &t);
	metric_head(b, "queen_parked_long_polls", "gauge",
		"Pops waiting in this process.");
	pops_each_parked(x->pops, write_parked, b);
	metric_one(b, "queen_parked_pops", "gauge",
		"Pops waiting in this process, also those by label and for names "
		"that do not exist.",
		(uint64_t)pops_parked(x->pops));
	one_f64(b, "queen_event_loop_lag_avg_milliseconds",
		"Mean delay of the event loop in the last window.",
		(double)t.loop_lag_avg_us / 1000.0);
	write_batches(b, &t);
	write_engine(b, x);
	write_timers(b, x);
	prom_kv_write(b, x);
	metric_one(b, "queen_db_pool_size", "gauge",
		"Connections this process may hold.", (uint64_t)ps.size);
	metric_one(b, "queen_db_pool_idle", "gauge",
		"Connections that are up and free.",
		(uint64_t)(ps.up - ps.busy));
	metric_one(b, "queen_db_pool_active", "gauge",
		"Connections that carry a call.", (uint64_t)ps.busy);
	metric_one(b, "queen_db_errors_total", "counter",
		"Database calls that failed in this process.", ps.errors);
	metric_one(b, "queen_maintenance_mode_enabled", "gauge",
		"1 while pushes are refused for maintenance.",
		x->push_maintenance);
	metric_one(b, "queen_encryption_enabled", "gauge",
		"1 when this process has a key to seal payloads with.",
		keyring_seals(x));
	metric_one(b, "queen_file_buffer_pending", "gauge",
		"Messages in the outage spool; there is none.", 0);
	metric_one(b, "queen_file_buffer_failed", "gauge",
		"Failed spool writes; there is no spool.", 0);
	metric_one(b, "queen_file_buffer_db_healthy", "gauge",
		"1 while the database is reachable.", pgpool_is_up(x->pool));
}

/* ---- the cell ---- */

static void
page_part_done(struct prom_page *p)
{
	struct hsrv_req *r = p->r;
	struct buf *b = hsrv_out(r);

	if (--p->waiting > 0)
		return;
	buf_put_span(b, buf_span(&p->totals));
	buf_put_span(b, buf_span(&p->queues));
	buf_put_span(b, buf_span(&p->dead));
	buf_put_span(b, buf_span(&p->connectors));
	buf_fini(&p->totals);
	buf_fini(&p->queues);
	buf_fini(&p->dead);
	buf_fini(&p->connectors);
	hsrv_reply(r, 200);
}

/* These two are one family with a label. */
static bool
is_ack_result(struct span name)
{
	return span_is(name, "ack_success") || span_is(name, "ack_failed");
}

static void
on_totals(void *arg, const PGresult *res, const struct err *e)
{
	struct prom_page *p = arg;
	struct buf *b = &p->totals;
	struct metric_label l[2] = { { "scope", SPAN_LIT("cluster") },
		{ "result", SPAN_ZERO } };

	for (int i = 0; !e && i < PQntuples(res); i++) {
		struct span name = pgbin_bytes(res, i, 0);
		const char *family = arena_printf(hsrv_arena(p->r),
			"queen_cluster_%.*s_total%c", SPAN_ARG(name), '\0')
					     .p;

		if (is_ack_result(name))
			continue;
		metric_head(b, family, "counter", "Counter of the cell.");
		metric_u64(b, family, l, 1, (uint64_t)pgbin_i64(res, i, 1));
	}
	if (!e)
		metric_head(b, "queen_cluster_ack_total", "counter",
			"Acks of the cell by result.");
	for (int i = 0; !e && i < PQntuples(res); i++) {
		struct span name = pgbin_bytes(res, i, 0);

		if (!is_ack_result(name))
			continue;
		l[1].value = span_make(name.p + 4, name.n - 4);
		metric_u64(b, "queen_cluster_ack_total", l, 2,
			(uint64_t)pgbin_i64(res, i, 1));
	}
	page_part_done(p);
}

/* Columns of prometheus_queues_v1 that are one gauge each. */
static const struct {
	const char *name, *help;
	int col;
	bool real;
} queue_gauges[] = {
	{ "queen_queue_metrics_age_seconds", "Age of the queue's values.", 1,
		true },
	{ "queen_queue_pop_messages_per_minute", "Messages delivered.", 2,
		false },
	{ "queen_queue_push_requests_per_minute", "Push requests.", 3, false },
	{ "queen_queue_push_messages_per_minute", "Messages stored.", 4,
		false },
	{ "queen_queue_pop_empty_per_minute", "Pops without messages.", 5,
		false },
	{ "queen_queue_transactions_per_minute", "Transactions.", 6, false },
	{ "queen_queue_conflated_per_minute", "Positions skipped.", 7, false },
	{ "queen_queue_parked_consumers", "Pops waiting, mean.", 8, true },
};

static void
write_cell(struct buf *b, const char *name, const struct metric_label *l, int n,
	const PGresult *res, int row, int col, bool real)
{
	if (pgbin_null(res, row, col))
		return;
	if (real)
		metric_f64(b, name, l, n, pgbin_f64(res, row, col));
	else
		metric_u64(b, name, l, n, (uint64_t)pgbin_i64(res, row, col));
}

static void
on_queues(void *arg, const PGresult *res, const struct err *e)
{
	struct prom_page *p = arg;
	struct buf *b = &p->queues;
	int rows = e ? 0 : PQntuples(res);

	for (size_t g = 0;
		rows > 0 && g < sizeof(queue_gauges) / sizeof(queue_gauges[0]);
		g++) {
		metric_head(
			b, queue_gauges[g].name, "gauge", queue_gauges[g].help);
		for (int i = 0; i < rows; i++) {
			struct metric_label l = { "queue",
				pgbin_bytes(res, i, 0) };

			write_cell(b, queue_gauges[g].name, &l, 1, res, i,
				queue_gauges[g].col, queue_gauges[g].real);
		}
	}
	if (rows > 0)
		metric_head(b, "queen_queue_pop_lag_milliseconds", "gauge",
			"Age of messages at delivery.");
	for (int i = 0; i < rows; i++) {
		struct metric_label l[2] = {
			{ "queue", pgbin_bytes(res, i, 0) },
			{ "stat", SPAN_LIT("avg") },
		};

		write_cell(b, "queen_queue_pop_lag_milliseconds", l, 2, res, i,
			9, true);
		l[1].value = SPAN_LIT("max");
		write_cell(b, "queen_queue_pop_lag_milliseconds", l, 2, res, i,
			10, false);
	}
	if (rows > 0)
		metric_head(b, "queen_queue_ack_per_minute", "gauge",
			"Acks by result.");
	for (int i = 0; i < rows; i++) {
		struct metric_label l[2] = {
			{ "queue", pgbin_bytes(res, i, 0) },
			{ "result", SPAN_LIT("success") },
		};

		write_cell(b, "queen_queue_ack_per_minute", l, 2, res, i, 11,
			false);
		l[1].value = SPAN_LIT("failed");
		write_cell(b, "queen_queue_ack_per_minute", l, 2, res, i, 12,
			false);
	}
	page_part_done(p);
}

static void
on_dead(void *arg, const PGresult *res, const struct err *e)
{
	struct prom_page *p = arg;
	struct buf *b = &p->dead;
	struct metric_label scope = { "scope", SPAN_LIT("cluster") };
	uint64_t total = 0;

	if (!e) {
		for (int i = 0; i < PQntuples(res); i++)
			total += (uint64_t)pgbin_i64(res, i, 1);
		metric_head(b, "queen_dlq_depth", "gauge",
			"Dead letters of the cell.");
		metric_u64(b, "queen_dlq_depth", &scope, 1, total);
		metric_head(b, "queen_dlq_depth_by_queue", "gauge",
			"Dead letters per queue.");
		for (int i = 0; i < PQntuples(res); i++) {
			struct metric_label l = { "queue",
				pgbin_bytes(res, i, 0) };

			metric_u64(b, "queen_dlq_depth_by_queue", &l, 1,
				(uint64_t)pgbin_i64(res, i, 1));
		}
	}
	page_part_done(p);
}

static void
on_connectors(void *arg, const PGresult *res, const struct err *e)
{
	struct prom_page *p = arg;

	if (!e)
		connector_metrics_write(&p->connectors, res);
	page_part_done(p);
}

void
status_prometheus(struct hsrv_req *r)
{
	static const struct {
		const struct pgstmt *stmt;
		pgpool_fn fn;
	} parts[] = {
		{ &STMT_TOTALS, on_totals },
		{ &STMT_QUEUES, on_queues },
		{ &STMT_DEAD, on_dead },
		{ &connector_metrics_stmt, on_connectors },
	};
	struct ctx *x = ctx_of(r);
	struct prom_page *p = arena_zalloc(hsrv_arena(r), sizeof(*p));

	hsrv_set_type(r, "text/plain; version=0.0.4; charset=utf-8");
	hsrv_add_header(r, "Cache-Control", "no-cache");
	write_process(hsrv_out(r), x);
	p->r = r;
	p->waiting = sizeof(parts) / sizeof(parts[0]);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		struct pgargs a;

		pgargs_init(&a);
		pgpool_call(
			x->pool, LANE_REST, parts[i].stmt, &a, parts[i].fn, p);
	}
}
