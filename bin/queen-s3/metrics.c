/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <stdio.h>
#include <stdlib.h>

#include "buf.h"
#include "clk.h"
#include "err.h"
#include "metric.h"
#include "s3.h"
#include "stamp.h"

struct metrics_ended {
	TAILQ_ENTRY(metrics_ended) link;
	struct queue_counts counts;
	size_t n;
	char name[];
};

static const uint64_t record_bounds[METRICS_BUCKETS] = { 1, 10, 100, 1000,
	10000, 100000, 1000000, 10000000 };
static const uint64_t byte_bounds[METRICS_BUCKETS] = { UINT64_C(1) << 20,
	UINT64_C(4) << 20, UINT64_C(16) << 20, UINT64_C(64) << 20,
	UINT64_C(128) << 20, UINT64_C(256) << 20, UINT64_C(512) << 20,
	UINT64_C(1024) << 20 };

void
metrics_tenant_init(struct metrics_tenant *t, struct span tenant)
{
	*t = (struct metrics_tenant){ .tenant = tenant,
		.requests = s3_counts_new() };
	TAILQ_INIT(&t->ended);
}

void
metrics_tenant_fini(struct metrics_tenant *t)
{
	struct metrics_ended *e;

	while ((e = TAILQ_FIRST(&t->ended))) {
		TAILQ_REMOVE(&t->ended, e, link);
		free(e);
	}
	s3_counts_free(t->requests);
}

static void
observe(struct metrics_histogram *h, const uint64_t *bounds, uint64_t v)
{
	h->count++;
	h->sum += v;
	for (int i = METRICS_BUCKETS - 1; i >= 0 && v <= bounds[i]; i--)
		h->bucket[i]++;
}

void
metrics_window(struct metrics_tenant *t, int64_t records, int64_t bytes)
{
	observe(&t->records, record_bounds, (uint64_t)records);
	observe(&t->bytes, byte_bounds, (uint64_t)bytes);
}

static struct metrics_ended *
find(const struct metrics_tenant *t, struct span name)
{
	struct metrics_ended *e;

	TAILQ_FOREACH (e, &t->ended, link)
		if (span_eq(span_make(e->name, e->n), name))
			return e;
	return NULL;
}

static void
add(struct queue_counts *to, const struct queue_counts *c)
{
	to->windows += c->windows;
	to->records += c->records;
	to->bytes += c->bytes;
	to->lost += c->lost;
	to->given_back += c->given_back;
	to->fetch_ok += c->fetch_ok;
	to->fetch_error += c->fetch_error;
	to->precondition_lost += c->precondition_lost;
}

void
metrics_keep(struct metrics_tenant *t, struct span queue,
	const struct queue_counts *c)
{
	struct metrics_ended *e = find(t, queue);

	if (!e) {
		e = calloc(1, sizeof(*e) + queue.n);
		BUG(!e);
		memcpy(e->name, queue.p, queue.n);
		e->n = queue.n;
		TAILQ_INSERT_TAIL(&t->ended, e, link);
	}
	add(&e->counts, c);
}

/* ---- writing ---- */

/* One family over all sinks and queues. */
struct page {
	struct buf *b;
	const struct metrics_sink *s;
	size_t n;
};

typedef bool (*queue_value_fn)(const struct queue_status *q, double *v);
typedef uint64_t (*count_fn)(const struct queue_counts *c);

static int
label_tenant(const struct metrics_sink *s, struct metric_label *l)
{
	if (s->tenant->tenant.n == 0)
		return 0;
	l[0] = (struct metric_label){ "tenant", s->tenant->tenant };
	return 1;
}

static void
write_gauge(const struct page *p, const char *name, const char *help,
	queue_value_fn value)
{
	struct metric_label l[2];
	double v;

	metric_head(p->b, name, "gauge", help);
	for (size_t i = 0; i < p->n; i++) {
		const struct metrics_sink *s = &p->s[i];
		int n = label_tenant(s, l);

		for (size_t k = 0; k < s->queues_n; k++) {
			if (!s->queues[k].owned || !value(&s->queues[k], &v))
				continue;
			l[n] = (struct metric_label){ "queue",
				s->queues[k].name };
			metric_f64(p->b, name, l, n + 1, v);
		}
	}
}

static bool
is_live(const struct metrics_sink *s, struct span name)
{
	for (size_t k = 0; k < s->queues_n; k++)
		if (span_eq(s->queues[k].name, name))
			return true;
	return false;
}

/* extra: one more label behind the queue, or no name. */
static void
write_count(const struct page *p, const struct metrics_sink *s,
	const char *name, struct metric_label extra, count_fn count)
{
	const struct metrics_ended *e;
	struct metric_label l[3];
	int n = label_tenant(s, l), more = extra.name ? 1 : 0;

	l[n + 1] = extra;
	for (size_t k = 0; k < s->queues_n; k++) {
		e = find(s->tenant, s->queues[k].name);
		l[n] = (struct metric_label){ "queue", s->queues[k].name };
		metric_u64(p->b, name, l, n + 1 + more,
			count(&s->queues[k].counts) +
				(e ? count(&e->counts) : 0));
	}
	TAILQ_FOREACH (e, &s->tenant->ended, link) {
		l[n] = (struct metric_label){ "queue",
			span_make(e->name, e->n) };
		if (!is_live(s, l[n].value))
			metric_u64(
				p->b, name, l, n + 1 + more, count(&e->counts));
	}
}

static void
write_counter(const struct page *p, const char *name, const char *help,
	count_fn count)
{
	struct metric_label none = { .name = NULL };

	metric_head(p->b, name, "counter", help);
	for (size_t i = 0; i < p->n; i++)
		write_count(p, &p->s[i], name, none, count);
}

static void
write_histogram(const struct page *p, const char *name, const char *help,
	const uint64_t *bounds, size_t at)
{
	char text[64], le[24];

	metric_head(p->b, name, "histogram", help);
	for (size_t i = 0; i < p->n; i++) {
		const struct metrics_histogram *h =
			(const void *)((const char *)p->s[i].tenant + at);
		struct metric_label l[2];
		int n = label_tenant(&p->s[i], l);

		snprintf(text, sizeof(text), "%s_bucket", name);
		for (int k = 0; k < METRICS_BUCKETS; k++) {
			snprintf(le, sizeof(le), "%llu",
				(unsigned long long)bounds[k]);
			l[n] = (struct metric_label){ "le", span_of(le) };
			metric_u64(p->b, text, l, n + 1, h->bucket[k]);
		}
		l[n] = (struct metric_label){ "le", SPAN_LIT("+Inf") };
		metric_u64(p->b, text, l, n + 1, h->count);
		snprintf(text, sizeof(text), "%s_sum", name);
		metric_u64(p->b, text, l, n, h->sum);
		snprintf(text, sizeof(text), "%s_count", name);
		metric_u64(p->b, text, l, n, h->count);
	}
}

static bool
lag(const struct queue_status *q, double *v)
{
	*v = (double)q->lag_us / 1e6;
	return q->lag_us >= 0;
}

static bool
discovered(const struct queue_status *q, double *v)
{
	*v = (double)q->discovered;
	return true;
}

static bool
checkpoint_age(const struct queue_status *q, double *v)
{
	*v = (double)(q->k - q->checkpoint_k);
	return q->k >= 0 && q->checkpoint_k >= 0;
}

#define COUNT(field)                                                           \
	static uint64_t count_##field(const struct queue_counts *c)            \
	{                                                                      \
		return c->field;                                               \
	}
COUNT(windows)
COUNT(records)
COUNT(bytes)
COUNT(lost)
COUNT(fetch_ok)
COUNT(fetch_error)
COUNT(precondition_lost)
COUNT(given_back)

static void
write_bytes(const struct page *p)
{
	const char *name = "queen_s3_bytes_written_total";

	metric_head(p->b, name, "counter",
		"Bytes of committed objects, after compression.");
	for (size_t i = 0; i < p->n; i++) {
		struct metric_label format = { "format",
			span_of(s3conf_format_name(p->s[i].format)) };

		write_count(p, &p->s[i], name, format, count_bytes);
	}
}

static void
write_fetches(const struct page *p)
{
	const char *name = "queen_s3_fetch_calls_total";

	metric_head(p->b, name, "counter",
		"Calls that read the log, by what came of them.");
	for (size_t i = 0; i < p->n; i++) {
		struct metric_label ok = { "result", SPAN_LIT("ok") };
		struct metric_label bad = { "result", SPAN_LIT("error") };

		write_count(p, &p->s[i], name, ok, count_fetch_ok);
		write_count(p, &p->s[i], name, bad, count_fetch_error);
	}
}

/* Over all queues of a sink, those that are gone included. */
static void
write_sum(const struct page *p, const char *name, const char *help,
	count_fn count)
{
	const struct metrics_ended *e;
	struct metric_label l[1];

	metric_head(p->b, name, "counter", help);
	for (size_t i = 0; i < p->n; i++) {
		const struct metrics_sink *s = &p->s[i];
		uint64_t sum = 0;

		for (size_t k = 0; k < s->queues_n; k++)
			sum += count(&s->queues[k].counts);
		TAILQ_FOREACH (e, &s->tenant->ended, link)
			sum += count(&e->counts);
		metric_u64(p->b, name, l, label_tenant(s, l), sum);
	}
}

static void
write_sinks(const struct page *p)
{
	struct metric_label l[1];

	metric_head(p->b, "queen_s3_s3_requests_total", "counter",
		"Requests to the bucket, every attempt; code 0: no answer.");
	for (size_t i = 0; i < p->n; i++)
		s3_counts_write(p->s[i].tenant->requests, p->b, l,
			label_tenant(&p->s[i], l));
	write_sum(p, "queen_s3_commit_precondition_lost_total",
		"Intents and commits that another node had fenced off.",
		count_precondition_lost);
	write_sum(p, "queen_s3_queues_given_back_total",
		"Queues handed to another node to share the load.",
		count_given_back);
}

/* The newest safeTime of a queue that runs here. */
static int64_t
newest_safe(const struct page *p)
{
	int64_t at_us = STAMP_NONE;

	for (size_t i = 0; i < p->n; i++)
		for (size_t k = 0; k < p->s[i].queues_n; k++)
			if (p->s[i].queues[k].owned &&
				p->s[i].queues[k].safe_us > at_us)
				at_us = p->s[i].queues[k].safe_us;
	return at_us;
}

static void
write_node(const struct page *p, const struct metrics_node *node)
{
	int64_t safe_us = newest_safe(p);

	metric_one(p->b, "queen_process_uptime_seconds", "gauge",
		"Time since this process started.",
		(uint64_t)(clk_mono_ms() - node->started_ms) / 1000);
	metric_one(p->b, "queen_process_resident_memory_bytes", "gauge",
		"Resident set of this process.", metric_resident_bytes());
	metric_one(p->b, "queen_s3_cell_up", "gauge",
		"1 while the cell is reachable.", node->cell_up);
	metric_one(p->b, "queen_s3_buffer_bytes", "gauge",
		"Buffered records of all queues, against QUEEN_S3_MEMORY_MB.",
		(uint64_t)node->buffer_bytes);
	metric_head(p->b, "queen_s3_safe_lag_seconds", "gauge",
		"How far safeTime is behind the clock.");
	if (safe_us != STAMP_NONE)
		metric_f64(p->b, "queen_s3_safe_lag_seconds", NULL, 0,
			(double)(clk_wall_us() - safe_us) / 1e6);
}

void
metrics_write(struct buf *b, const struct metrics_sink *s, size_t n,
	const struct metrics_node *node)
{
	struct page p = { .b = b, .s = s, .n = n };

	write_node(&p, node);
	write_gauge(&p, "queen_s3_lag_seconds",
		"Age of the newest record that is surely in the bucket.", lag);
	write_counter(&p, "queen_s3_windows_committed_total",
		"Windows committed by this process.", count_windows);
	write_counter(&p, "queen_s3_records_written_total",
		"Records of those windows.", count_records);
	write_bytes(&p);
	write_counter(&p, "queen_s3_records_lost_total",
		"Records that retention removed before they were read.",
		count_lost);
	write_histogram(&p, "queen_s3_window_records", "Records of a window.",
		record_bounds, offsetof(struct metrics_tenant, records));
	write_histogram(&p, "queen_s3_window_bytes", "Bytes of a window.",
		byte_bounds, offsetof(struct metrics_tenant, bytes));
	write_fetches(&p);
	write_gauge(&p, "queen_s3_discovery_partitions",
		"Partitions of the last full sweep.", discovered);
	write_gauge(&p, "queen_s3_checkpoint_age_windows",
		"Windows committed since the last checkpoint.", checkpoint_age);
	write_sinks(&p);
}
