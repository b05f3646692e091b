/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records that were read and not shipped yet.  A partition has a chain of
 * runs.  The first record of an answer gets a run of its own size, because
 * most partitions have one; what follows it in the same answer shares larger
 * ones, of which the last is cut to what it holds.
 */
#include "engine_int.h"

#include <stdlib.h>

#include "err.h"

enum { RUN_FIRST = 1024 }; /* bytes of the second run of an answer */

static uint32_t
padded(const struct record *r)
{
	uint64_t n = sizeof(struct engine_rec) + r->txn.n +
		     (r->null ? 0 : r->payload.n);

	BUG(n > INT32_MAX);
	return ((uint32_t)n + 7) & ~7u;
}

uint32_t
engine_rec_size(const struct engine_rec *r)
{
	uint32_t n =
		r->txn_n + (r->payload_n == ENGINE_NULL ? 0 : r->payload_n);

	return ((uint32_t)sizeof(*r) + n + 7) & ~7u;
}

const struct engine_rec *
engine_run_rec(const struct engine_run *r, uint32_t at)
{
	return (const struct engine_rec *)(const void *)(r->bytes + at);
}

const struct engine_rec *
engine_buffer_first(const struct engine_part *p)
{
	return engine_run_rec(p->first, p->first->head);
}

/* ---- adding ---- */

static void
join(struct engine *e, struct engine_part *p)
{
	e->buffered.a = engine_grow(e->buffered.a, e->buffered.n,
		&e->buffered.cap, sizeof(*e->buffered.a));
	e->buffered.a[e->buffered.n++] = p;
	p->buffered_at = e->buffered.n;
}

static void
leave(struct engine *e, struct engine_part *p)
{
	struct engine_part *last = e->buffered.a[--e->buffered.n];

	e->buffered.a[p->buffered_at - 1] = last;
	last->buffered_at = p->buffered_at;
	p->buffered_at = 0;
}

static struct engine_run *
run_new(uint32_t cap)
{
	struct engine_run *r = malloc(sizeof(*r) + cap);

	if (!r)
		abort();
	*r = (struct engine_run){ .cap = cap };
	return r;
}

void
engine_buffer_shut(struct engine *e)
{
	struct engine_part *p = e->open;

	e->open = NULL;
	if (!p)
		return;
	struct engine_run *r = *e->open_link;

	if (r->cap - r->used < 64)
		return;
	r = realloc(r, sizeof(*r) + r->used);
	if (!r)
		abort();
	r->cap = r->used;
	*e->open_link = p->last = r;
}

static struct engine_run *
run_for(struct engine *e, struct engine_part *p, uint32_t size)
{
	struct engine_run *r = p->last;
	uint32_t cap = size;

	if (e->open == p && r->cap - r->used >= size)
		return r;
	if (e->open == p)
		cap = r->cap < RUN_FIRST ? RUN_FIRST : r->cap * 4;
	if (cap > ENGINE_RUN_MAX)
		cap = ENGINE_RUN_MAX;
	if (cap < size)
		cap = size;
	engine_buffer_shut(e);
	e->open_link = p->last ? &p->last->next : &p->first;
	if (!p->last)
		join(e, p);
	r = run_new(cap);
	*e->open_link = p->last = r;
	e->open = p;
	return r;
}

void
engine_buffer_add(
	struct engine *e, struct engine_part *p, const struct record *r)
{
	uint32_t size = padded(r);
	struct engine_run *run = run_for(e, p, size);
	struct engine_rec *to = (void *)(run->bytes + run->used);
	size_t payload_n = r->null ? 0 : r->payload.n;
	char *bytes = (char *)(to + 1);

	*to = (struct engine_rec){ .offset = r->offset,
		.ts_us = r->ts_us,
		.txn_n = (uint32_t)r->txn.n,
		.payload_n = r->null ? ENGINE_NULL : (uint32_t)payload_n };
	if (r->txn.n)
		memcpy(bytes, r->txn.p, r->txn.n);
	if (payload_n)
		memcpy(bytes + r->txn.n, r->payload.p, payload_n);
	run->used += size;
	run->n++;
	run->last_us = r->ts_us;
	engine_weight_add(e, r->ts_us,
		ENGINE_RECORD_WEIGHT + p->name_n + (int64_t)r->txn.n +
			(r->null ? 4 : (int64_t)payload_n));
}

/* ---- dropping ---- */

/* The rest of a run that is mostly over; its link is still to be set. */
static struct engine_run *
cut(struct engine_run *r)
{
	uint32_t live = r->used - r->head;

	if (r->head < 512 || r->head < live)
		return r;
	struct engine_run *c = run_new(live);

	memcpy(c->bytes, r->bytes + r->head, live);
	c->next = r->next;
	c->last_us = r->last_us;
	c->used = live;
	c->n = r->n;
	free(r);
	return c;
}

static size_t
drop(struct engine *e, struct engine_part *p, int64_t below_us)
{
	size_t steps = 1;

	while (p->first && p->first->last_us < below_us) {
		struct engine_run *r = p->first;

		p->first = r->next;
		free(r);
		steps++;
	}
	if (!p->first) {
		p->last = NULL;
		leave(e, p);
		return steps;
	}
	struct engine_run *r = p->first;
	const struct engine_rec *rec;

	while ((rec = engine_run_rec(r, r->head))->ts_us < below_us) {
		r->head += engine_rec_size(rec);
		r->n--;
		steps++;
	}
	p->first = cut(r);
	if (p->last == r)
		p->last = p->first;
	return steps;
}

bool
engine_buffer_drop(struct engine *e)
{
	size_t steps = 0;

	engine_buffer_shut(e);
	while (e->drop_at < e->buffered.n && steps < ENGINE_SLICE) {
		uint32_t n = e->buffered.n;

		steps += drop(e, e->buffered.a[e->drop_at], e->prev_us);
		e->drop_at += n == e->buffered.n;
	}
	return e->drop_at >= e->buffered.n;
}

void
engine_buffer_free(struct engine_part *p)
{
	while (p->first) {
		struct engine_run *r = p->first;

		p->first = r->next;
		free(r);
	}
}
