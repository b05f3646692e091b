/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks and what drops their rows.  A row is dropped when a transaction the
 * chunk's snapshot does not see, or one inside the window, touched its key.
 * What those transactions did is folded per row, in their order, into what
 * the row still has to say: nothing, or a fill.
 */
#include "snapshot_int.h"

#include <stdio.h>
#include <stdlib.h>

#include "err.h"
#include "shape.h"

enum {
	CHUNK_MAX_BYTES = 64 << 20,
	CHUNK_SMALL_BYTES = 16 << 20,
	FIRST_ROWS = 16,
};

struct snapshot_row {
	struct snapshot_row *next;
	struct tuple tuple;
	struct span key;
	bool dropped;
	bool exists, carried_all; /* after the changes that dropped it */
	uint64_t *fill; /* columns none of them carried */
};

static void *
zalloc(size_t n)
{
	void *p = calloc(1, n);

	if (!p) {
		fprintf(stderr, "out of memory: %zu bytes\n", n);
		abort();
	}
	return p;
}

static size_t
words_of(size_t columns)
{
	return (columns + 63) / 64;
}

static void
chunk_free(struct snapshot_chunk *c)
{
	if (!c)
		return;
	map_fini(&c->by_key);
	buf_fini(&c->code);
	arena_fini(&c->arena);
	free(c);
}

void
snapshot_init(struct snapshot *s, uint64_t first_n)
{
	*s = (struct snapshot){ .n = first_n,
		.memory_bytes = SNAPSHOT_MEMORY_BYTES };
	s->last = &s->first;
}

void
snapshot_fini(struct snapshot *s)
{
	snapshot_trim(s, NULL);
	chunk_free(s->chunk);
	arena_fini(&s->open_arena);
	arena_fini(&s->seen_arena);
	snapshot_init(s, s->n);
}

/* ---- rows under changes ---- */

static bool
is_unchanged(const struct snapshot_change *f, struct span column)
{
	for (size_t i = 0; i < f->unchanged_n; i++) {
		if (span_eq(f->unchanged[i], column))
			return true;
	}
	return false;
}

static void
fold_update(struct snapshot_row *r, const struct snapshot_change *f,
	struct snapshot_chunk *c)
{
	size_t words = words_of(c->shape->n);
	bool first = !r->fill;

	r->exists = true;
	if (r->carried_all)
		return;
	if (first)
		r->fill = arena_zalloc(&c->arena, words * sizeof(*r->fill));
	for (size_t i = 0; i < c->shape->n; i++) {
		uint64_t bit = UINT64_C(1) << (i % 64);

		if (!is_unchanged(f, c->shape->columns[i].name))
			r->fill[i / 64] &= ~bit;
		else if (first)
			r->fill[i / 64] |= bit;
	}
}

static void
fold(struct snapshot_row *r, const struct snapshot_change *f,
	struct snapshot_chunk *c)
{
	r->dropped = true;
	if (f->kind == SNAPSHOT_UPDATE) {
		fold_update(r, f, c);
		return;
	}
	r->exists = r->carried_all = f->kind == SNAPSHOT_PUT;
	r->fill = NULL;
}

static bool
is_row(const void *item, const void *key)
{
	const struct snapshot_row *r = item;
	const struct span *k = key;

	return span_eq(r->key, *k);
}

void
snapshot_apply(struct snapshot_chunk *c, const struct snapshot_txn *t)
{
	struct snapshot_row *r;

	for (const struct snapshot_change *f = t->first; f; f = f->next) {
		if (f->table != c->table)
			continue;
		if (f->kind == SNAPSHOT_CLEAR) {
			for (r = c->rows; r; r = r->next)
				fold(r, f, c);
			continue;
		}
		r = map_get(&c->by_key, map_hash_span(f->key), is_row, &f->key);
		if (r)
			fold(r, f, c);
	}
}

/* ---- chunks ---- */

uint64_t
snapshot_ask(struct snapshot *s, size_t table, const struct shape *shape,
	uint64_t limit_rows)
{
	struct snapshot_chunk *c;

	BUG(s->chunk != NULL);
	c = s->chunk = zalloc(sizeof(*c));
	c->n = ++s->n;
	c->table = table;
	c->shape = shape;
	c->limit_rows = limit_rows;
	c->rows_tail = &c->rows;
	return c->n;
}

void
snapshot_row(struct snapshot *s, const struct tuple *row)
{
	struct snapshot_chunk *c = s->chunk;
	struct snapshot_row *r;

	BUG(!c || c->held || row->n != c->shape->n);
	r = arena_zalloc(&c->arena, sizeof(*r));
	r->tuple.n = row->n;
	r->tuple.d = arena_alloc(&c->arena, row->n * sizeof(*row->d));
	for (size_t i = 0; i < row->n; i++) {
		r->tuple.d[i] = row->d[i];
		r->tuple.d[i].text = arena_dup(&c->arena, row->d[i].text);
		c->bytes += row->d[i].text.n;
	}
	buf_reset(&c->code);
	shape_key_code(c->shape, row, &c->code);
	r->key = arena_dup(&c->arena, buf_span(&c->code));
	/* a key twice: the index is not what we think; the first one counts */
	if (!map_get(&c->by_key, map_hash_span(r->key), is_row, &r->key))
		map_put(&c->by_key, map_hash_span(r->key), r);
	c->last_key = r->key;
	c->rows_n++;
	*c->rows_tail = r;
	c->rows_tail = &r->next;
}

int
snapshot_install(struct snapshot *s, struct span seen_text, int64_t read_at_us,
	struct err *e)
{
	struct snapshot_chunk *c = s->chunk;

	BUG(!c || c->held);
	if (snapshot_judge(s, seen_text, e) != 0)
		return -1;
	c->held = true;
	c->read_at_us = read_at_us;
	c->at = c->rows;
	for (struct snapshot_txn *t = s->first; t; t = t->next)
		snapshot_apply(c, t);
	return 0;
}

void
snapshot_forget(struct snapshot *s)
{
	chunk_free(s->chunk);
	s->chunk = NULL;
}

void
snapshot_low(struct snapshot *s, uint64_t n)
{
	if (s->chunk && s->chunk->n == n)
		s->chunk->open = true;
}

enum snapshot_high
snapshot_high(struct snapshot *s, uint64_t n)
{
	if (!s->chunk || s->chunk->n != n)
		return SNAPSHOT_NOT_OURS;
	return s->chunk->held ? SNAPSHOT_COMPLETE : SNAPSHOT_EARLY;
}

static bool
wants_fill(const struct snapshot_row *r, size_t words)
{
	if (!r->exists || r->carried_all || !r->fill)
		return false;
	for (size_t i = 0; i < words; i++) {
		if (r->fill[i])
			return true;
	}
	return false;
}

bool
snapshot_next(struct snapshot *s, struct snapshot_item *item)
{
	struct snapshot_chunk *c = s->chunk;
	size_t words = words_of(c->shape->n);
	struct snapshot_row *r;

	while ((r = c->at) && r->dropped && !wants_fill(r, words))
		c->at = r->next;
	if (!r)
		return false;
	c->at = r->next;
	*item = (struct snapshot_item){ .row = &r->tuple,
		.key_code = r->key,
		.fill = r->dropped ? r->fill : NULL,
		.seq = c->seq++ };
	return true;
}

bool
snapshot_is_last(const struct snapshot_chunk *c)
{
	return c->rows_n < c->limit_rows;
}

uint64_t
snapshot_first_limit(uint64_t configured)
{
	return configured < FIRST_ROWS ? configured : FIRST_ROWS;
}

uint64_t
snapshot_limit(const struct snapshot_chunk *c, uint64_t configured)
{
	uint64_t limit = c->limit_rows;

	if (c->bytes > CHUNK_MAX_BYTES)
		return limit > 1 ? limit / 2 : 1;
	if (c->bytes < CHUNK_SMALL_BYTES && c->rows_n == limit)
		limit *= c->bytes < CHUNK_SMALL_BYTES / 4 ? 4 : 2;
	return limit < configured ? limit : configured;
}
