/* SPDX-License-Identifier: Apache-2.0 */
/* The partitions, what became of each, and the ranges that were lost. */
#include "engine_int.h"

#include <stdlib.h>

#include "err.h"

void *
engine_grow(void *a, uint32_t n, uint32_t *cap, size_t size)
{
	if (n < *cap)
		return a;
	BUG(*cap > UINT32_MAX / 2);
	*cap += *cap / 4 + 8;
	a = realloc(a, *cap * size);
	if (!a)
		abort();
	return a;
}

void
engine_push(struct engine_list *l, struct engine_part *p)
{
	l->a = engine_grow(l->a, l->n, &l->cap, sizeof(*l->a));
	l->a[l->n++] = p;
}

/* ---- heaps, the oldest bound on top ---- */

static bool
before(const struct engine_part *a, const struct engine_part *b)
{
	return a->ts_us != b->ts_us ? a->ts_us < b->ts_us : a->id < b->id;
}

static void
place(struct engine_list *h, uint32_t i, struct engine_part *p)
{
	h->a[i] = p;
	p->heap_at = i;
}

static void
sift_up(struct engine_list *h, uint32_t i, struct engine_part *p)
{
	for (; i > 0 && before(p, h->a[(i - 1) / 2]); i = (i - 1) / 2)
		place(h, i, h->a[(i - 1) / 2]);
	place(h, i, p);
}

static void
sift_down(struct engine_list *h, uint32_t i, struct engine_part *p)
{
	for (;;) {
		uint64_t c = (uint64_t)i * 2 + 1;

		if (c + 1 < h->n && before(h->a[c + 1], h->a[c]))
			c++;
		if (c >= h->n || !before(h->a[c], p))
			break;
		place(h, i, h->a[c]);
		i = (uint32_t)c;
	}
	place(h, i, p);
}

static void
heap_put(struct engine_list *h, struct engine_part *p)
{
	engine_push(h, p);
	sift_up(h, h->n - 1, p);
}

struct engine_part *
engine_heap_top(const struct engine_list *h)
{
	return h->n ? h->a[0] : NULL;
}

void
engine_heap_take(struct engine_list *h, struct engine_part *p)
{
	uint32_t i = p->heap_at;
	struct engine_part *last = h->a[--h->n];

	if (last == p)
		return;
	if (i > 0 && before(last, h->a[(i - 1) / 2]))
		sift_up(h, i, last);
	else
		sift_down(h, i, last);
}

struct engine_part *
engine_heap_pop(struct engine_list *h)
{
	struct engine_part *p = h->a[0];

	engine_heap_take(h, p);
	return p;
}

/* ---- partitions ---- */

struct engine_part *
engine_part_get(const struct engine *e, int64_t id)
{
	return map_get(&e->parts, map_hash_i64(id), map_is_i64, &id);
}

struct engine_part *
engine_part_new(struct engine *e, int64_t id, struct span name)
{
	struct engine_part *p = malloc(sizeof(*p) + name.n);

	BUG(name.n > UINT16_MAX);
	if (!p)
		abort();
	*p = (struct engine_part){ .id = id,
		.ts_us = STAMP_NONE,
		.all_at = e->all.n,
		.seen = (uint32_t)e->closed,
		.name_n = (uint16_t)name.n };
	if (name.n)
		memcpy(p->name, name.p, name.n);
	map_put(&e->parts, map_hash_i64(id), p);
	engine_push(&e->all, p);
	return p;
}

void
engine_part_free(struct engine *e, struct engine_part *p)
{
	struct engine_part *last = e->all.a[--e->all.n];

	BUG(p->buffered_at);
	e->restored_n -= p->state == ENGINE_RESTORED;
	e->all.a[p->all_at] = last;
	last->all_at = p->all_at;
	map_take(&e->parts, map_hash_i64(p->id), map_is_i64, &p->id);
	free(p);
}

/* It is in no heap and in no call. */
void
engine_part_settle(struct engine *e, struct engine_part *p)
{
	if (p->pos < p->head) {
		p->state = ENGINE_DUE;
		heap_put(&e->due, p);
	} else {
		p->state = ENGINE_CAUGHT;
	}
}

void
engine_part_block(struct engine *e, struct engine_part *p)
{
	p->state = ENGINE_BLOCKED;
	heap_put(&e->blocked, p);
}

/*
 * Its records ship, what was not read is lost.  It is remembered until no
 * answer that was asked before can name it again.
 */
void
engine_part_gone(struct engine *e, struct engine_part *p)
{
	if (p->pos < p->head)
		engine_lose(e, p, p->pos, p->head - 1);
	p->state = ENGINE_DEAD;
	p->seen = (uint32_t)e->begun;
	engine_push(&e->dead, p);
}

void
engine_part_all_gone(struct engine *e)
{
	e->unknown.n = e->due.n = e->blocked.n = 0;
	for (uint32_t i = 0; i < e->all.n; i++) {
		struct engine_part *p = e->all.a[i];

		if (p->state != ENGINE_DEAD && p->state != ENGINE_RESTORED)
			engine_part_gone(e, p);
	}
}

static bool
in_order(const struct engine *e)
{
	return e->sort.plan || e->sort.positions;
}

void
engine_part_bury(struct engine *e)
{
	if (in_order(e))
		return;
	for (uint32_t i = 0; i < e->dead.n;) {
		struct engine_part *p = e->dead.a[i];

		if (p->buffered_at || p->seen == (uint32_t)e->begun) {
			i++;
			continue;
		}
		e->dead.a[i] = e->dead.a[--e->dead.n];
		engine_part_free(e, p);
	}
}

/* Nothing names it any more: deleted, or never there. */
static bool
is_over(const struct engine *e, const struct engine_part *p)
{
	if (!e->swept)
		return false;
	if (p->state == ENGINE_RESTORED)
		return true;
	return p->state == ENGINE_CAUGHT && !p->buffered_at &&
	       p->seen + ENGINE_PRUNE_WINDOWS <= e->closed &&
	       p->seen < e->sweep_closed;
}

void
engine_part_look(struct engine *e, size_t n)
{
	if (in_order(e))
		return;
	for (; n > 0 && e->all.n > 0; n--) {
		if (e->look_at >= e->all.n)
			e->look_at = 0;
		struct engine_part *p = e->all.a[e->look_at];

		if (!is_over(e, p)) {
			e->look_at++;
			continue;
		}
		engine_part_free(e, p);
	}
}

/* ---- lost ranges ---- */

/* The next of the range that was told last. */
static bool
lose_more(struct engine *e, int64_t part, int64_t from, int64_t to)
{
	struct engine_lost *l =
		e->lost_n > e->lost_taken ? e->lost[e->lost_n - 1] : NULL;

	if (!l || l->part != part || l->to != from - 1)
		return false;
	l->to = to;
	return true;
}

static void
lose(struct engine *e, int64_t part, struct span name, int64_t from, int64_t to)
{
	if (lose_more(e, part, from, to))
		return;
	struct engine_lost *l = malloc(sizeof(*l) + name.n);

	if (!l)
		abort();
	l->part = part;
	l->from = from;
	l->to = to;
	l->n = name.n;
	memcpy(l->name, name.p, name.n);
	e->lost = engine_grow(
		e->lost, e->lost_n, &e->lost_cap, sizeof(struct engine_lost *));
	e->lost[e->lost_n++] = l;
}

void
engine_lose(struct engine *e, struct engine_part *p, int64_t from, int64_t to)
{
	lose(e, p->id, span_make(p->name, p->name_n), from, to);
}

void
engine_lost_keep(struct engine *e, size_t at, int64_t from, int64_t to)
{
	const struct engine_lost *l = e->lost[at - 1];

	lose(e, l->part, span_make(l->name, l->n), from, to);
}

bool
engine_lost_next(struct engine *e, size_t *at, struct span *name, int64_t *from,
	int64_t *to)
{
	if (*at >= (e->closing ? e->lost_taken : e->lost_n))
		return false;
	const struct engine_lost *l = e->lost[(*at)++];

	*name = span_make(l->name, l->n);
	*from = l->from;
	*to = l->to;
	return true;
}

/* ---- positions of a checkpoint ---- */

static bool
loose_is(const void *item, const void *key)
{
	const struct engine_loose *l = item;

	return span_eq(span_make(l->name, l->n), *(const struct span *)key);
}

bool
engine_loose_get(const struct engine *e, struct span name, int64_t *offset)
{
	if (e->loose.count == 0)
		return false;
	const struct engine_loose *l =
		map_get(&e->loose, map_hash_span(name), loose_is, &name);

	if (l)
		*offset = l->offset;
	return l;
}

static void
loose_put(struct engine *e, struct span name, int64_t offset)
{
	int64_t known;

	if (engine_loose_get(e, name, &known))
		return;
	struct engine_loose *l = malloc(sizeof(*l) + name.n);

	if (!l)
		abort();
	l->offset = offset;
	l->n = name.n;
	if (name.n)
		memcpy(l->name, name.p, name.n);
	map_put(&e->loose, map_hash_span(name), l);
}

void
engine_loose_drop(struct engine *e)
{
	size_t at = 0;
	void *l;

	while ((l = map_next(&e->loose, &at)))
		free(l);
	map_fini(&e->loose);
}

void
engine_position(
	struct engine *e, struct span name, int64_t offset, int64_t part)
{
	if (name.n > UINT16_MAX || offset < 0)
		return;
	if (part < 0) {
		loose_put(e, name, offset);
		return;
	}
	if (engine_part_get(e, part))
		return;
	struct engine_part *p = engine_part_new(e, part, name);

	p->state = ENGINE_RESTORED;
	p->pos = offset;
	e->restored_n++;
}

void
engine_table_fini(struct engine *e)
{
	for (uint32_t i = 0; i < e->all.n; i++) {
		engine_buffer_free(e->all.a[i]);
		free(e->all.a[i]);
	}
	for (uint32_t i = 0; i < e->lost_n; i++)
		free(e->lost[i]);
	engine_loose_drop(e);
	map_fini(&e->parts);
	free(e->all.a);
	free(e->due.a);
	free(e->blocked.a);
	free(e->buffered.a);
	free(e->unknown.a);
	free(e->dead.a);
	free(e->lost);
}
