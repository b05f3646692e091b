/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes out in the order of names: the records of a window, and positions.
 * Sorted by merging from the bottom up, in slices.  Names tend to begin alike,
 * so an item carries the eight bytes that follow what all have in common.
 */
#include "engine_int.h"

#include <stdlib.h>

#include "err.h"

enum { MERGE_SLICE = 200000 };

static struct span
name_of(const struct engine_part *p)
{
	return span_make(p->name, p->name_n);
}

/* ---- collecting ---- */

static size_t
shared(struct span a, struct span b, size_t most)
{
	size_t n = 0;

	while (n < most && n < a.n && n < b.n && a.p[n] == b.p[n])
		n++;
	return n;
}

static void
put(struct engine_sort *s, struct engine_part *p)
{
	if (s->n == s->cap) {
		s->cap += s->cap / 4 + 64;
		s->a = realloc(s->a, s->cap * sizeof(*s->a));
		if (!s->a)
			abort();
	}
	if (s->n == 0)
		s->common = p->name_n;
	else
		s->common =
			shared(name_of(s->a[0].part), name_of(p), s->common);
	s->a[s->n++].part = p;
}

/* The records of p in this window; returns the steps it took. */
static size_t
count(struct engine *e, const struct engine_part *p)
{
	const struct engine_run *r = p->first;
	size_t steps = 1;
	int64_t max = STAMP_NONE;

	for (; r && r->last_us < e->end_us; r = r->next, steps++) {
		e->records += r->n;
		max = r->last_us;
	}
	for (uint32_t at = r ? r->head : 0; r; steps++) {
		const struct engine_rec *rec = engine_run_rec(r, at);

		if (rec->ts_us >= e->end_us)
			break;
		e->records++;
		max = rec->ts_us;
		at += engine_rec_size(rec);
	}
	if (max > e->max_us)
		e->max_us = max;
	return steps;
}

static size_t
collect_plan(struct engine *e, struct engine_part *p)
{
	int64_t first = engine_buffer_first(p)->ts_us;

	if (first >= e->end_us)
		return 1;
	if (e->min_us == STAMP_NONE || first < e->min_us)
		e->min_us = first;
	put(&e->sort, p);
	return count(e, p);
}

static size_t
collect_position(struct engine *e, struct engine_part *p)
{
	if (p->state != ENGINE_DEAD && p->state != ENGINE_RESTORED)
		put(&e->sort, p);
	return 1;
}

static void
collect(struct engine *e)
{
	struct engine_sort *s = &e->sort;
	const struct engine_list *from = s->plan ? &e->buffered : &e->all;

	for (size_t steps = 0; s->at < from->n && steps < ENGINE_SLICE;) {
		struct engine_part *p = from->a[s->at++];

		steps += s->plan ? collect_plan(e, p) : collect_position(e, p);
	}
	if (s->at < from->n)
		return;
	s->at = 0;
	s->stage = ENGINE_KEYS;
}

/* ---- sorting ---- */

static uint64_t
key_of(const struct engine_part *p, size_t from)
{
	uint64_t key = 0;

	for (size_t i = from; i < from + sizeof(key); i++)
		key = key << 8 |
		      (i < p->name_n ? (unsigned char)p->name[i] : 0);
	return key;
}

static void
keys(struct engine_sort *s)
{
	size_t end = s->n - s->at > ENGINE_SLICE ? s->at + ENGINE_SLICE : s->n;

	for (; s->at < end; s->at++)
		s->a[s->at].key = key_of(s->a[s->at].part, s->common);
	if (s->at < s->n)
		return;
	s->stage = ENGINE_MERGE;
	s->b = malloc((s->n + 1) * sizeof(*s->b));
	if (!s->b)
		abort();
	s->width = 1;
	s->lo = s->i = s->k = 0;
	s->j = 1;
}

static int
compare_names(struct span a, struct span b)
{
	size_t n = a.n < b.n ? a.n : b.n;
	int d = n ? memcmp(a.p, b.p, n) : 0;

	return d ? d : (a.n > b.n) - (a.n < b.n);
}

static bool
before(const struct engine_item *x, const struct engine_item *y)
{
	if (x->key != y->key)
		return x->key < y->key;
	int d = compare_names(name_of(x->part), name_of(y->part));

	return d ? d < 0 : x->part->id < y->part->id;
}

static size_t
least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static void
next_pair(struct engine_sort *s, size_t lo)
{
	s->lo = s->i = s->k = lo;
	s->j = least(lo + s->width, s->n);
}

static void
merge(struct engine_sort *s)
{
	size_t steps = MERGE_SLICE;

	while (s->width < s->n && steps > 0) {
		size_t mid = least(s->lo + s->width, s->n);
		size_t hi = least(mid + s->width, s->n);
		struct engine_item *a = s->a, *b = s->b;

		for (; s->k < hi && steps > 0; steps--)
			b[s->k++] =
				s->i < mid && (s->j >= hi || !before(&a[s->j],
								     &a[s->i]))
					? a[s->i++]
					: a[s->j++];
		if (s->k < hi)
			return;
		if (hi < s->n) {
			next_pair(s, hi);
			continue;
		}
		s->a = b;
		s->b = a;
		s->width *= 2;
		next_pair(s, 0);
	}
	if (s->width < s->n)
		return;
	free(s->b);
	s->b = NULL;
	s->at = 0;
	s->stage = ENGINE_SORTED;
}

static bool
ready(struct engine *e)
{
	switch (e->sort.stage) {
	case ENGINE_COLLECT:
		collect(e);
		break;
	case ENGINE_KEYS:
		keys(&e->sort);
		break;
	case ENGINE_MERGE:
		merge(&e->sort);
		break;
	case ENGINE_SORTED:
		break;
	}
	return e->sort.stage == ENGINE_SORTED;
}

void
engine_sort_end(struct engine *e)
{
	free(e->sort.a);
	free(e->sort.b);
	e->sort = (struct engine_sort){ .plan = false };
}

/* ---- the plan ---- */

bool
engine_plan_ready(struct engine *e)
{
	BUG(!e->closing);
	e->sort.plan = true;
	if (!ready(e))
		return false;
	e->partitions = (int64_t)e->sort.n;
	return true;
}

void
engine_plan_rewind(struct engine *e)
{
	e->plan_at = 0;
	e->group_n = 0;
}

/*
 * A cursor stays at the end of its run: the next one may still grow, and move,
 * until it turns out to hold a record of this window.
 */
static const struct engine_rec *
current(const struct engine *e, const struct engine_cursor *c)
{
	const struct engine_run *run = c->run;
	uint32_t at = c->at;
	const struct engine_rec *r;

	if (at >= run->used) {
		run = run->next;
		if (!run)
			return NULL;
		at = run->head;
	}
	r = engine_run_rec(run, at);
	return r->ts_us < e->end_us ? r : NULL;
}

/* Over r, which is current. */
static void
step(struct engine_cursor *c, const struct engine_rec *r)
{
	if (c->at >= c->run->used) {
		c->run = c->run->next;
		c->at = c->run->head;
	}
	c->at += engine_rec_size(r);
}

/* All partitions of the next name: one was deleted and made again. */
static bool
group(struct engine *e)
{
	const struct engine_sort *s = &e->sort;
	struct span name;

	if (s->stage != ENGINE_SORTED || e->plan_at >= s->n)
		return false;
	name = name_of(s->a[e->plan_at].part);
	do {
		struct engine_part *p = s->a[e->plan_at++].part;

		e->group = engine_grow(
			e->group, e->group_n, &e->group_cap, sizeof(*e->group));
		e->group[e->group_n++] = (struct engine_cursor){
			.part = p, .run = p->first, .at = p->first->head
		};
	} while (e->plan_at < s->n &&
		 span_eq(name_of(s->a[e->plan_at].part), name));
	return true;
}

static bool
older(const struct engine_rec *a, const struct engine_rec *b)
{
	return a->ts_us != b->ts_us ? a->ts_us < b->ts_us
				    : a->offset < b->offset;
}

static struct engine_cursor *
oldest(struct engine *e)
{
	struct engine_cursor *best = NULL;
	const struct engine_rec *rec = NULL;

	for (uint32_t i = 0; i < e->group_n; i++) {
		const struct engine_rec *r = current(e, &e->group[i]);

		if (r && (!rec || older(r, rec))) {
			best = &e->group[i];
			rec = r;
		}
	}
	return best;
}

bool
engine_plan_next(struct engine *e, struct record *r)
{
	struct engine_cursor *c;

	while (!(c = oldest(e))) {
		e->group_n = 0;
		if (!group(e))
			return false;
	}
	const struct engine_rec *rec = current(e, c);
	const char *bytes = (const char *)(rec + 1);

	r->partition = name_of(c->part);
	r->txn = span_make(bytes, rec->txn_n);
	r->offset = rec->offset;
	r->ts_us = rec->ts_us;
	r->null = rec->payload_n == ENGINE_NULL;
	r->payload =
		span_make(bytes + rec->txn_n, r->null ? 0 : rec->payload_n);
	step(c, rec);
	return true;
}

/* ---- positions ---- */

bool
engine_may_checkpoint(const struct engine *e)
{
	return !e->closing && e->safe_us != STAMP_NONE;
}

bool
engine_positions_ready(struct engine *e)
{
	BUG(e->closing);
	if (e->dropping && !engine_buffer_drop(e))
		return false;
	e->dropping = false;
	e->sort.positions = true;
	return ready(e);
}

bool
engine_positions_next(
	struct engine *e, struct span *name, int64_t *part, int64_t *offset)
{
	struct engine_sort *s = &e->sort;

	while (s->stage == ENGINE_SORTED && s->at < s->n) {
		struct engine_part *p = s->a[s->at++].part;

		/* of the same name the last is the one that lives */
		if (s->at < s->n &&
			span_eq(name_of(p), name_of(s->a[s->at].part)))
			continue;
		if (p->state == ENGINE_UNKNOWN || p->state == ENGINE_SEEKING ||
			p->state == ENGINE_DEAD)
			continue;
		*name = name_of(p);
		*part = p->id;
		*offset = p->first ? engine_buffer_first(p)->offset : p->pos;
		return true;
	}
	return false;
}

void
engine_positions_end(struct engine *e)
{
	if (e->sort.positions)
		engine_sort_end(e);
}
