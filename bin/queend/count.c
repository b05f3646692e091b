/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters.  A queue has an entry here only while it has something to write:
 * an idle queue costs nothing, in memory and in the database.
 */
#include "count.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "catalog.h"
#include "clk.h"
#include "ctx.h"
#include "hsrv.h"
#include "log.h"
#include "loop.h"
#include "map.h"
#include "pgpool.h"
#include "pop.h"
#include "settings.h"

enum {
	HIST_SUB = 8, /* buckets per doubling */
	HIST_BUCKETS = 32 * HIST_SUB,
	PARKED_SAMPLE_MS = 10000,
};

/* The columns of queen.queue_minutes, in the order of minutes_add_v1. */
enum minute_column {
	MIN_PUSH_REQUESTS,
	MIN_PUSH_MESSAGES,
	MIN_POP_REQUESTS,
	MIN_POP_MESSAGES,
	MIN_POP_EMPTY,
	MIN_ACK_REQUESTS,
	MIN_ACK_SUCCESS,
	MIN_ACK_FAILED,
	MIN_TRANSACTIONS,
	MIN_CONFLATED,
	MIN_DEAD,
	MIN_CREATED,
	MIN_DELETED,
	MIN_LAG_SUM_MS,
	MIN_LAG_N,
	MIN_LAG_MAX_MS,
	MIN_PARKED_SUM,
	MIN_PARKED_N,
	MIN_COLUMNS
};

struct queue_count {
	int64_t queue_id; /* first: map_is_i64 */
	int64_t v[MIN_COLUMNS];
	int64_t window[COUNT_OPS]; /* messages in this rates window */
	int64_t window_lag_ms;
};

struct hist {
	uint32_t n[HIST_BUCKETS];
	uint32_t total;
};

struct counts {
	struct ctx *x;
	struct map queues; /* struct queue_count by id */
	struct count_totals totals, at_window, at_flush;
	struct hist rtt[COUNT_OPS], latency[COUNT_OPS];
	struct rusage usage_at_flush;
	int64_t window_ms;
	int pool_busy_max;
	int64_t lag_avg_max_us, lag_max_us; /* since the last flush */
	uint64_t pop_empty, conflated, window_empty, window_conflated;
	struct loop_timer flush_timer, rates_timer, parked_timer;
};

static const struct pgstmt STMT_MINUTES = { "minutes_add",
	"select queen.minutes_add_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
	"$11, $12, $13, $14, $15, $16, $17, $18, $19)" };
static const struct pgstmt STMT_INSTANCE = { "instance_add",
	"select queen.instance_add_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
	"$11)" };

/* ---- histogram: bucket = HIST_SUB * log2(us) ---- */

static void
hist_add(struct hist *h, int64_t us)
{
	int b = us <= 1 ? 0 : (int)(log2((double)us) * HIST_SUB);

	if (b >= HIST_BUCKETS)
		b = HIST_BUCKETS - 1;
	h->n[b]++;
	h->total++;
}

static double
hist_quantile_ms(const struct hist *h, double q)
{
	uint64_t want = (uint64_t)ceil(q * h->total), seen = 0;

	if (h->total == 0)
		return 0;
	for (int b = 0; b < HIST_BUCKETS; b++) {
		seen += h->n[b];
		if (seen >= want)
			return exp2((b + 0.5) / HIST_SUB) / 1000.0;
	}
	return 0;
}

/* ---- per queue ---- */

static struct queue_count *
of_queue(struct ctx *x, int64_t queue_id)
{
	struct counts *c = x->counts;
	uint64_t hash = map_hash_i64(queue_id);
	struct queue_count *q =
		map_get(&c->queues, hash, map_is_i64, &queue_id);

	if (q)
		return q;
	q = calloc(1, sizeof(*q));
	if (!q)
		abort();
	q->queue_id = queue_id;
	map_put(&c->queues, hash, q);
	return q;
}

void
count_push(struct ctx *x, int64_t queue_id, int requests, int messages)
{
	struct queue_count *q = of_queue(x, queue_id);

	q->v[MIN_PUSH_REQUESTS] += requests;
	q->v[MIN_PUSH_MESSAGES] += messages;
	q->window[COUNT_PUSH] += messages;
	x->counts->totals.messages[COUNT_PUSH] += (uint64_t)messages;
}

void
count_pop(struct ctx *x, int64_t queue_id, int messages, int64_t lag_ms,
	bool wildcard)
{
	struct count_totals *t = &x->counts->totals;

	t->pops_wildcard += wildcard;
	t->pops_targeted += !wildcard;
	/* an idle queue with parked pops must not write a row a minute */
	if (messages == 0) {
		struct queue_count *active = map_get(&x->counts->queues,
			map_hash_i64(queue_id), map_is_i64, &queue_id);

		x->counts->pop_empty++;
		if (active) {
			active->v[MIN_POP_REQUESTS]++;
			active->v[MIN_POP_EMPTY]++;
		}
		return;
	}
	struct queue_count *q = of_queue(x, queue_id);

	q->v[MIN_POP_REQUESTS]++;
	q->v[MIN_POP_MESSAGES] += messages;
	q->window[COUNT_POP] += messages;
	t->messages[COUNT_POP] += (uint64_t)messages;
	if (lag_ms >= 0) {
		q->v[MIN_LAG_SUM_MS] += lag_ms;
		q->v[MIN_LAG_N]++;
		if (lag_ms > q->v[MIN_LAG_MAX_MS])
			q->v[MIN_LAG_MAX_MS] = lag_ms;
		if (lag_ms > q->window_lag_ms)
			q->window_lag_ms = lag_ms;
	}
}

void
count_pop_fill_wait(struct ctx *x, int64_t waited_us)
{
	x->counts->totals.fill_waits++;
	x->counts->totals.fill_wait_us += (uint64_t)waited_us;
}

void
count_ack(struct ctx *x, int64_t queue_id, int requests, int success,
	int failed, int dead, int64_t conflated)
{
	struct queue_count *q = of_queue(x, queue_id);
	struct count_totals *t = &x->counts->totals;

	q->v[MIN_ACK_REQUESTS] += requests;
	q->v[MIN_ACK_SUCCESS] += success;
	q->v[MIN_ACK_FAILED] += failed;
	q->v[MIN_DEAD] += dead;
	q->v[MIN_CONFLATED] += conflated;
	q->window[COUNT_ACK] += success;
	t->messages[COUNT_ACK] += (uint64_t)(success + failed);
	t->ack_failed += (uint64_t)failed;
	t->dead_letters += (uint64_t)dead;
	x->counts->conflated += (uint64_t)conflated;
}

void
count_transaction(struct ctx *x, int64_t queue_id)
{
	of_queue(x, queue_id)->v[MIN_TRANSACTIONS]++;
	x->counts->totals.transactions++;
}

void
count_partitions(struct ctx *x, int64_t queue_id, int created, int deleted)
{
	struct queue_count *q = of_queue(x, queue_id);

	q->v[MIN_CREATED] += created;
	q->v[MIN_DELETED] += deleted;
}

void
count_db_error(struct ctx *x)
{
	x->counts->totals.db_errors++;
}

void
count_batch(struct ctx *x, enum count_op op, int items, int messages,
	int64_t rtt_us)
{
	x->counts->totals.batches[op]++;
	x->counts->totals.batch_items[op] += (uint64_t)items;
	x->counts->totals.batch_messages[op] += (uint64_t)messages;
	hist_add(&x->counts->rtt[op], rtt_us);
}

void
count_latency(struct ctx *x, enum count_op op, int64_t us)
{
	x->counts->totals.requests[op]++;
	hist_add(&x->counts->latency[op], us);
}

void
counts_totals(const struct counts *c, struct count_totals *out)
{
	*out = c->totals;
}

/* ---- the minute rows ---- */

static void
on_flushed(void *arg, const PGresult *res, const struct err *e)
{
	(void)arg;
	(void)res;
	(void)e; /* a lost minute of counters is not worth more */
}

static void
flush_instance(struct counts *c)
{
	struct count_totals *t = &c->totals, *was = &c->at_flush;
	struct rusage now;
	struct pgpool_stats ps;
	struct pgargs a;
	uint64_t requests = 0;

	for (int op = 0; op < COUNT_OPS; op++)
		requests += t->requests[op] - was->requests[op];
	getrusage(RUSAGE_SELF, &now);
	pgpool_stats(c->x->pool, &ps);
	pgargs_init(&a);
	pgargs_text(&a, span_of(c->x->instance));
	pgargs_i64(&a, (int64_t)requests);
	pgargs_i64(&a, (int64_t)(t->db_errors - was->db_errors));
#define SPENT_US(field)                                                        \
	((now.field.tv_sec - c->usage_at_flush.field.tv_sec) * 1000000 +       \
		now.field.tv_usec - c->usage_at_flush.field.tv_usec)
	pgargs_i64(&a, SPENT_US(ru_utime));
	pgargs_i64(&a, SPENT_US(ru_stime));
#undef SPENT_US
	pgargs_i64(&a, now.ru_maxrss * 1024);
	pgargs_i64(&a, c->lag_avg_max_us);
	pgargs_i64(&a, c->lag_max_us);
	pgargs_i32(&a, ps.size);
	pgargs_i32(&a, c->pool_busy_max);
	pgargs_i64(&a, (clk_mono_ms() - c->x->started_ms) / 1000);
	c->usage_at_flush = now;
	c->at_flush = *t;
	c->lag_avg_max_us = c->lag_max_us = 0;
	c->pool_busy_max = 0;
	pgpool_call(c->x->pool, LANE_REST, &STMT_INSTANCE, &a, on_flushed, c);
}

static bool
has_activity(const struct queue_count *q)
{
	for (int i = 0; i < MIN_PARKED_SUM; i++)
		if (q->v[i] != 0)
			return true;
	return false;
}

static void
flush(struct counts *c)
{
	struct queue_count *q;
	struct pgargs a;
	size_t at;
	bool idle = memcmp(c->totals.requests, c->at_flush.requests,
			    sizeof(c->totals.requests)) == 0;
	bool any = false;

	for (at = 0; (q = map_next(&c->queues, &at));)
		any |= has_activity(q);
	if (!any) {
		if (!idle && pgpool_is_up(c->x->pool))
			flush_instance(c);
		return;
	}
	pgargs_init(&a);
	pgargs_array(&a, PGARGS_I64);
	for (at = 0; (q = map_next(&c->queues, &at));)
		if (has_activity(q))
			pgargs_item_i64(&a, q->queue_id);
	pgargs_close(&a);
	for (int col = 0; col < MIN_COLUMNS; col++) {
		pgargs_array(&a, PGARGS_I64);
		for (at = 0; (q = map_next(&c->queues, &at));)
			if (has_activity(q))
				pgargs_item_i64(&a, q->v[col]);
		pgargs_close(&a);
	}
	for (at = 0; (q = map_next(&c->queues, &at));)
		free(q);
	map_fini(&c->queues);
	pgpool_call(c->x->pool, LANE_REST, &STMT_MINUTES, &a, on_flushed, c);
	flush_instance(c);
}

static void
on_flush_timer(void *arg)
{
	struct counts *c = arg;

	flush(c);
	loop_timer_start(&c->flush_timer, c->x->conf->metrics_flush_ms);
}

/* ---- parked pops, sampled into queues that have a row anyway ---- */

static void
sample_parked(void *arg, struct cat_queue *queue, int parked)
{
	struct counts *c = arg;
	struct queue_count *q = map_get(
		&c->queues, map_hash_i64(queue->id), map_is_i64, &queue->id);

	if (q) {
		q->v[MIN_PARKED_SUM] += parked;
		q->v[MIN_PARKED_N]++;
	}
}

static void
on_parked_timer(void *arg)
{
	struct counts *c = arg;
	struct pgpool_stats ps;

	pops_each_parked(c->x->pops, sample_parked, c);
	pgpool_stats(c->x->pool, &ps);
	if (ps.busy > c->pool_busy_max)
		c->pool_busy_max = ps.busy;
	loop_timer_start(&c->parked_timer, PARKED_SAMPLE_MS);
}

/* ---- the rates lines ---- */

static double
per_second(uint64_t now, uint64_t before, int64_t ms)
{
	return (double)(now - before) * 1000.0 / (double)ms;
}

static int
by_traffic(const void *a, const void *b)
{
	const struct queue_count *p = *(struct queue_count *const *)a;
	const struct queue_count *q = *(struct queue_count *const *)b;
	int64_t n = p->window[0] + p->window[1],
		m = q->window[0] + q->window[1];

	return n < m ? 1 : n > m ? -1 : 0;
}

static void
log_top_queues(struct counts *c, int64_t ms)
{
	struct queue_count **list, *q;
	size_t at, n = 0;

	list = malloc((c->queues.count + 1) * sizeof(*list));
	if (!list)
		abort();
	for (at = 0; (q = map_next(&c->queues, &at));)
		if (q->window[COUNT_PUSH] + q->window[COUNT_POP] > 0)
			list[n++] = q;
	qsort(list, n, sizeof(*list), by_traffic);
	for (size_t i = 0; i < n; i++) {
		struct cat_queue *queue =
			catalog_queue_by_id(c->x->catalog, list[i]->queue_id);
		char name[128];

		q = list[i];
		if (queue && i < (size_t)c->x->conf->log_topn_queues) {
			snprintf(name, sizeof(name), "%.*s",
				queue->name.n > 100 ? 100 : (int)queue->name.n,
				queue->name.p);
			log_line(LOG_INFO, "rates", "queue",
				"queue=%s push_s=%.1f pop_s=%.1f ack_s=%.1f "
				"lag_ms=%lld",
				log_quote(name),
				per_second((uint64_t)q->window[0], 0, ms),
				per_second((uint64_t)q->window[1], 0, ms),
				per_second((uint64_t)q->window[2], 0, ms),
				(long long)q->window_lag_ms);
		}
		memset(q->window, 0, sizeof(q->window));
		q->window_lag_ms = 0;
	}
	free(list);
}

static void
log_rates(struct counts *c, int64_t ms)
{
	const struct count_totals *t = &c->totals, *w = &c->at_window;
	uint64_t pops = t->requests[COUNT_POP] - w->requests[COUNT_POP];
	struct pgpool_stats ps;

	pgpool_stats(c->x->pool, &ps);
	log_line(LOG_INFO, "rates", "global",
		"push_s=%.1f pop_s=%.1f ack_s=%.1f txn_s=%.1f "
		"p50_push_ms=%.2f p99_push_ms=%.2f p99_pop_ms=%.2f "
		"p99_ack_ms=%.2f pop_empty_pct=%.1f parked=%d pool=%d/%d "
		"pool_waiting=%d conflated_s=%.1f",
		per_second(t->messages[0], w->messages[0], ms),
		per_second(t->messages[1], w->messages[1], ms),
		per_second(t->messages[2], w->messages[2], ms),
		per_second(t->transactions, w->transactions, ms),
		hist_quantile_ms(&c->latency[COUNT_PUSH], 0.5),
		hist_quantile_ms(&c->latency[COUNT_PUSH], 0.99),
		hist_quantile_ms(&c->latency[COUNT_POP], 0.99),
		hist_quantile_ms(&c->latency[COUNT_ACK], 0.99),
		pops ? 100.0 * (double)(c->pop_empty - c->window_empty) /
				(double)pops
		     : 0.0,
		pops_parked(c->x->pops), ps.busy, ps.size, ps.waiting,
		per_second(c->conflated, c->window_conflated, ms));
}

static void
on_rates_timer(void *arg)
{
	struct counts *c = arg;
	int64_t now_ms = clk_mono_ms(), ms = now_ms - c->window_ms;
	struct count_totals *t = &c->totals;

	loop_lag(c->x->loop, &t->loop_lag_avg_us, &t->loop_lag_max_us);
	if (t->loop_lag_avg_us > c->lag_avg_max_us)
		c->lag_avg_max_us = t->loop_lag_avg_us;
	if (t->loop_lag_max_us > c->lag_max_us)
		c->lag_max_us = t->loop_lag_max_us;
	for (int op = 0; op < COUNT_OPS; op++) {
		uint64_t batches = t->batches[op] - c->at_window.batches[op];
		uint64_t items =
			t->batch_items[op] - c->at_window.batch_items[op];

		t->rtt_p50_ms[op] = hist_quantile_ms(&c->rtt[op], 0.5);
		t->rtt_p99_ms[op] = hist_quantile_ms(&c->rtt[op], 0.99);
		t->items_per_batch[op] =
			batches ? (double)items / (double)batches : 0;
	}
	if (ms > 0 && memcmp(t->requests, c->at_window.requests,
			      sizeof(t->requests)) != 0) {
		log_rates(c, ms);
		log_top_queues(c, ms);
	}
	memset(c->rtt, 0, sizeof(c->rtt));
	memset(c->latency, 0, sizeof(c->latency));
	c->at_window = *t;
	c->window_empty = c->pop_empty;
	c->window_conflated = c->conflated;
	c->window_ms = now_ms;
	loop_timer_start(&c->rates_timer, c->x->conf->log_rates_ms);
}

struct counts *
counts_new(struct ctx *x)
{
	struct counts *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->x = x;
	c->window_ms = clk_mono_ms();
	getrusage(RUSAGE_SELF, &c->usage_at_flush);
	loop_timer_init(&c->flush_timer, x->loop, on_flush_timer, c);
	loop_timer_init(&c->rates_timer, x->loop, on_rates_timer, c);
	loop_timer_init(&c->parked_timer, x->loop, on_parked_timer, c);
	loop_timer_start(&c->flush_timer, x->conf->metrics_flush_ms);
	loop_timer_start(&c->rates_timer, x->conf->log_rates_ms);
	loop_timer_start(&c->parked_timer, PARKED_SAMPLE_MS);
	return c;
}

void
counts_free(struct counts *c)
{
	struct queue_count *q;
	size_t at = 0;

	if (!c)
		return;
	while ((q = map_next(&c->queues, &at)))
		free(q);
	map_fini(&c->queues);
	loop_timer_fini(&c->flush_timer);
	loop_timer_fini(&c->rates_timer);
	loop_timer_fini(&c->parked_timer);
	free(c);
}
