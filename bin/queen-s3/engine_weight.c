/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much is buffered below a time.  Stamps fall into buckets of a fixed
 * width, sorted; only the one bucket that a question ends in is looked into.
 * What is later than anybody asked for yet lies in one heap, `far`: a backfill
 * begins with records of all ages.
 */
#include "engine_int.h"

#include <stdlib.h>

static int64_t
number(const struct engine *e, int64_t ts_us)
{
	int64_t n = ts_us / e->width_us;

	return n - (ts_us % e->width_us < 0);
}

/* The first bucket with at least this number; bucket_n when there is none. */
static uint32_t
find(const struct engine *e, int64_t no)
{
	uint32_t lo = 0, hi = e->bucket_n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (e->bucket[mid].no < no)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct engine_bucket *
bucket_of(struct engine *e, int64_t no)
{
	uint32_t i = e->bucket_last;

	if (i < e->bucket_n && e->bucket[i].no == no)
		return &e->bucket[i];
	i = find(e, no);
	if (i == e->bucket_n || e->bucket[i].no != no) {
		e->bucket = engine_grow(e->bucket, e->bucket_n, &e->bucket_cap,
			sizeof(*e->bucket));
		memmove(e->bucket + i + 1, e->bucket + i,
			(e->bucket_n - i) * sizeof(*e->bucket));
		e->bucket_n++;
		e->bucket[i] =
			(struct engine_bucket){ .no = no, .min_us = INT64_MAX };
	}
	e->bucket_last = i;
	return &e->bucket[i];
}

static void
put(struct engine_bucket *b, int64_t ts_us, int64_t bytes)
{
	b->bytes += bytes;
	if (b->n && b->a[b->n - 1].ts_us == ts_us) {
		b->a[b->n - 1].bytes += bytes;
		return;
	}
	if (ts_us < b->min_us)
		b->min_us = ts_us;
	b->a = engine_grow(b->a, b->n, &b->cap, sizeof(*b->a));
	b->a[b->n++] = (struct engine_weight){ ts_us, bytes };
}

void
engine_weight_init(struct engine *e)
{
	e->near_us = STAMP_NONE;
	e->far = (struct engine_bucket){ .min_us = INT64_MAX };
}

void
engine_weight_add(struct engine *e, int64_t ts_us, int64_t bytes)
{
	e->bytes += bytes;
	put(ts_us < e->near_us ? bucket_of(e, number(e, ts_us)) : &e->far,
		ts_us, bytes);
}

/* Makes the buckets reach beyond at_us; by steps, as it looks at all of far. */
static void
reach_to(struct engine *e, int64_t at_us)
{
	struct engine_bucket far = e->far;

	if (at_us < e->near_us)
		return;
	e->near_us = (number(e, at_us) + ENGINE_BUCKETS) * e->width_us;
	if (far.min_us >= e->near_us)
		return;
	e->far = (struct engine_bucket){ .min_us = INT64_MAX };
	for (uint32_t i = 0; i < far.n; i++) {
		int64_t ts = far.a[i].ts_us;

		put(ts < e->near_us ? bucket_of(e, number(e, ts)) : &e->far, ts,
			far.a[i].bytes);
	}
	free(far.a);
}

static int64_t
below_in(const struct engine_bucket *b, int64_t at_us)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < b->n; i++)
		sum += b->a[i].ts_us < at_us ? b->a[i].bytes : 0;
	return sum;
}

int64_t
engine_weight_below(struct engine *e, int64_t at_us)
{
	uint32_t end;
	int64_t sum = 0;

	reach_to(e, at_us);
	end = find(e, number(e, at_us));
	for (uint32_t i = 0; i < end; i++)
		sum += e->bucket[i].bytes;
	if (end < e->bucket_n && e->bucket[end].min_us < at_us)
		sum += below_in(&e->bucket[end], at_us);
	return sum;
}

int64_t
engine_weight_first_us(const struct engine *e)
{
	int64_t near = e->bucket_n ? e->bucket[0].min_us : INT64_MAX;

	return near < e->far.min_us ? near : e->far.min_us;
}

bool
engine_weight_any_below(const struct engine *e, int64_t at_us)
{
	return engine_weight_first_us(e) < at_us;
}

static void
swap(struct engine_weight *a, struct engine_weight *b)
{
	struct engine_weight t = *a;

	*a = *b;
	*b = t;
}

/*
 * The stamp in b up to which, itself included, there are at least need bytes.
 * Halves the range of time and moves the entries of one half to the front.
 */
static int64_t
reach(struct engine_bucket *b, int64_t width_us, int64_t need)
{
	int64_t lo = b->no * width_us, hi = lo + width_us - 1;
	struct engine_weight *a = b->a;
	uint32_t n = b->n;

	while (lo < hi) {
		int64_t mid = lo + (hi - lo) / 2, sum = 0;
		uint32_t m = 0;

		for (uint32_t i = 0; i < n; i++)
			if (a[i].ts_us <= mid) {
				sum += a[i].bytes;
				swap(&a[i], &a[m++]);
			}
		if (sum >= need) {
			hi = mid;
			n = m;
		} else {
			lo = mid + 1;
			need -= sum;
			a += m;
			n -= m;
		}
	}
	return lo;
}

/* The first stamp after at_us, from bucket i on. */
static int64_t
next_after(const struct engine *e, uint32_t i, int64_t at_us)
{
	const struct engine_bucket *b = &e->bucket[i];
	int64_t next = INT64_MAX;

	for (uint32_t k = 0; k < b->n; k++)
		if (b->a[k].ts_us > at_us && b->a[k].ts_us < next)
			next = b->a[k].ts_us;
	if (next == INT64_MAX && i + 1 < e->bucket_n)
		next = e->bucket[i + 1].min_us;
	return next;
}

int64_t
engine_weight_cut(struct engine *e, int64_t target, int64_t at_us)
{
	uint32_t i = 0;
	int64_t sum = 0, next;

	reach_to(e, at_us);
	while (i < e->bucket_n && sum + e->bucket[i].bytes < target)
		sum += e->bucket[i++].bytes;
	if (i == e->bucket_n)
		return at_us;
	next = next_after(
		e, i, reach(&e->bucket[i], e->width_us, target - sum));
	return next < at_us ? next : at_us;
}

/* ---- the window is over ---- */

static void
drop_in(struct engine *e, struct engine_bucket *b, int64_t at_us)
{
	uint32_t n = 0;

	b->min_us = INT64_MAX;
	for (uint32_t i = 0; i < b->n; i++) {
		if (b->a[i].ts_us < at_us) {
			b->bytes -= b->a[i].bytes;
			e->bytes -= b->a[i].bytes;
			continue;
		}
		if (b->a[i].ts_us < b->min_us)
			b->min_us = b->a[i].ts_us;
		b->a[n++] = b->a[i];
	}
	b->n = n;
}

void
engine_weight_drop(struct engine *e, int64_t at_us)
{
	uint32_t end;

	reach_to(e, at_us);
	end = find(e, number(e, at_us));
	if (end < e->bucket_n && e->bucket[end].min_us < at_us)
		drop_in(e, &e->bucket[end], at_us);
	if (end < e->bucket_n && e->bucket[end].n == 0)
		end++;
	for (uint32_t i = 0; i < end; i++) {
		e->bytes -= e->bucket[i].bytes;
		free(e->bucket[i].a);
	}
	if (end)
		memmove(e->bucket, e->bucket + end,
			(e->bucket_n - end) * sizeof(*e->bucket));
	e->bucket_n -= end;
	e->bucket_last = 0;
}

void
engine_weight_fini(struct engine *e)
{
	for (uint32_t i = 0; i < e->bucket_n; i++)
		free(e->bucket[i].a);
	free(e->bucket);
	free(e->far.a);
}
