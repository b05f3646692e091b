/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An entry per tracked partition: in the line of ready ones, in the line of
 * due ones, in the heap of waiting ones, or flying and in none.  Both lines
 * are sorted by seq, the moment an entry joined, so taking the smaller head
 * is first in first out over both.  Of those in the heap the doubted ones are
 * in a line as well, sorted by asked: one of leased, one of hidden ones.
 */
#include "hot.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "map.h"

struct hot_entry {
	int64_t part; /* first: map_is_i64 */
	int64_t until_ms;
	int64_t lease; /* leased: which one, 0 = unknown */
	uint64_t seq; /* place in the line */
	uint64_t asked; /* doubted: when it was seen */
	struct hot_entry *prev, *next; /* in the line */
	size_t heap_at; /* 1-based; 0 = not in the heap */
	uint32_t marks; /* since the last hand-out */
	uint8_t state; /* enum hot_state */
	bool probe; /* ready only because time was up */
	bool released; /* while flying */
	bool done; /* leased: perhaps no more */
	bool doubted; /* in the heap and in the line of these */
};

struct hot_line {
	struct hot_entry *first, *last;
	size_t n;
};

struct hot {
	struct map entries;
	struct hot_line ready, due, leased, hidden;
	struct hot_entry **heap; /* heap[0] unused */
	size_t heap_n, heap_cap;
	size_t flying;
	uint64_t seq;
};

struct hot *
hot_new(void)
{
	struct hot *h = calloc(1, sizeof(*h));

	if (!h)
		abort();
	return h;
}

void
hot_free(struct hot *h)
{
	if (!h)
		return;
	size_t at = 0;
	struct hot_entry *e;

	while ((e = map_next(&h->entries, &at)))
		free(e);
	map_fini(&h->entries);
	free(h->heap);
	free(h);
}

static struct hot_entry *
entry_get(const struct hot *h, int64_t part)
{
	return map_get(&h->entries, map_hash_i64(part), map_is_i64, &part);
}

static struct hot_entry *
entry_new(struct hot *h, int64_t part)
{
	struct hot_entry *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	e->part = part;
	map_put(&h->entries, map_hash_i64(part), e);
	return e;
}

/* ---- the two lines ---- */

static struct hot_line *
line_of(struct hot *h, const struct hot_entry *e)
{
	return e->probe ? &h->due : &h->ready;
}

/* Of the doubted ones. */
static struct hot_line *
doubt_of(struct hot *h, const struct hot_entry *e)
{
	return e->state == HOT_LEASED ? &h->leased : &h->hidden;
}

/* Puts e behind prev; NULL = at the front. */
static void
line_insert(struct hot_line *l, struct hot_entry *prev, struct hot_entry *e)
{
	e->prev = prev;
	e->next = prev ? prev->next : l->first;
	*(prev ? &prev->next : &l->first) = e;
	*(e->next ? &e->next->prev : &l->last) = e;
	l->n++;
}

static void
line_remove(struct hot_line *l, struct hot_entry *e)
{
	*(e->prev ? &e->prev->next : &l->first) = e->next;
	*(e->next ? &e->next->prev : &l->last) = e->prev;
	e->prev = e->next = NULL;
	l->n--;
}

static void
ready_last(struct hot *h, struct hot_entry *e, bool probe)
{
	struct hot_line *l;

	e->state = HOT_READY;
	e->probe = probe;
	e->seq = ++h->seq;
	l = line_of(h, e);
	line_insert(l, l->last, e);
}

/* Back to the place it had; only those handed out with it are before it. */
static void
ready_back(struct hot *h, struct hot_entry *e)
{
	struct hot_line *l = line_of(h, e);
	struct hot_entry *prev = NULL, *at = l->first;

	while (at && at->seq < e->seq) {
		prev = at;
		at = at->next;
	}
	e->state = HOT_READY;
	line_insert(l, prev, e);
}

/* A ready entry that was only due now has a reason. */
static void
ready_promote(struct hot *h, struct hot_entry *e)
{
	if (!e->probe)
		return;
	line_remove(&h->due, e);
	ready_last(h, e, false);
}

/* ---- the heap of waiting ones ---- */

static void
heap_set(struct hot *h, size_t at, struct hot_entry *e)
{
	h->heap[at] = e;
	e->heap_at = at;
}

static void
heap_up(struct hot *h, struct hot_entry *e)
{
	size_t at = e->heap_at;

	while (at > 1 && h->heap[at / 2]->until_ms > e->until_ms) {
		heap_set(h, at, h->heap[at / 2]);
		at /= 2;
	}
	heap_set(h, at, e);
}

static void
heap_down(struct hot *h, struct hot_entry *e)
{
	size_t at = e->heap_at, kid;

	while ((kid = at * 2) <= h->heap_n) {
		if (kid < h->heap_n &&
			h->heap[kid + 1]->until_ms < h->heap[kid]->until_ms)
			kid++;
		if (h->heap[kid]->until_ms >= e->until_ms)
			break;
		heap_set(h, at, h->heap[kid]);
		at = kid;
	}
	heap_set(h, at, e);
}

static void
heap_push(struct hot *h, struct hot_entry *e)
{
	if (h->heap_n + 2 > h->heap_cap) {
		h->heap_cap = h->heap_cap ? h->heap_cap * 2 : 16;
		h->heap = reallocarray(
			h->heap, h->heap_cap, sizeof(struct hot_entry *));
		if (!h->heap)
			abort();
	}
	heap_set(h, ++h->heap_n, e);
	heap_up(h, e);
}

static void
heap_remove(struct hot *h, struct hot_entry *e)
{
	size_t at = e->heap_at;
	struct hot_entry *last = h->heap[h->heap_n--];

	if (e->doubted)
		line_remove(doubt_of(h, e), e);
	e->doubted = false;
	e->heap_at = 0;
	if (last == e)
		return;
	heap_set(h, at, last);
	heap_up(h, last);
	heap_down(h, last);
}

/* ---- transitions ---- */

static void
park(struct hot *h, struct hot_entry *e, enum hot_state state, int64_t until_ms)
{
	e->state = (uint8_t)state;
	e->until_ms = until_ms;
	e->lease = 0;
	e->done = false;
	heap_push(h, e);
}

static void
forget(struct hot *h, struct hot_entry *e)
{
	switch ((enum hot_state)e->state) {
	case HOT_READY:
		line_remove(line_of(h, e), e);
		break;
	case HOT_LEASED:
	case HOT_HIDDEN:
		heap_remove(h, e);
		break;
	case HOT_FLYING:
	case HOT_IDLE:
		break;
	}
	map_take(&h->entries, map_hash_i64(e->part), map_is_i64, &e->part);
	free(e);
}

static bool
wake(struct hot *h, struct hot_entry *e)
{
	heap_remove(h, e);
	ready_last(h, e, false);
	return true;
}

bool
hot_mark(struct hot *h, int64_t part, int64_t now_ms)
{
	struct hot_entry *e = entry_get(h, part);

	if (!e) {
		e = entry_new(h, part);
		e->marks = 1;
		ready_last(h, e, false);
		return true;
	}
	if (e->marks < UINT32_MAX)
		e->marks++;
	if (e->state == HOT_READY) {
		ready_promote(h, e);
	} else if (e->state == HOT_LEASED && e->done) {
		return wake(h, e);
	} else if (e->state == HOT_HIDDEN &&
		   e->until_ms > now_ms + HOT_MARK_MS) {
		e->until_ms = now_ms + HOT_MARK_MS;
		heap_up(h, e);
	}
	return false;
}

bool
hot_release(struct hot *h, int64_t part)
{
	struct hot_entry *e = entry_get(h, part);

	if (!e) {
		ready_last(h, entry_new(h, part), false);
		return true;
	}
	switch ((enum hot_state)e->state) {
	case HOT_LEASED:
	case HOT_HIDDEN:
		return wake(h, e);
	case HOT_FLYING:
		e->released = true;
		return false;
	case HOT_READY:
		ready_promote(h, e);
		return false;
	case HOT_IDLE:
		break;
	}
	return false;
}

void
hot_lease(struct hot *h, int64_t part, int64_t lease)
{
	struct hot_entry *e = entry_get(h, part);

	if (e && e->state == HOT_LEASED)
		e->lease = lease;
}

void
hot_doubt(struct hot *h, int64_t part, uint64_t asked)
{
	struct hot_entry *e = entry_get(h, part), *prev;

	if (!e || !e->heap_at || e->doubted)
		return;
	prev = doubt_of(h, e)->last;
	/* answers come nearly in the order of their questions */
	while (prev && prev->asked > asked)
		prev = prev->prev;
	e->asked = asked;
	e->doubted = true;
	line_insert(doubt_of(h, e), prev, e);
}

bool
hot_done(struct hot *h, int64_t part, int64_t lease)
{
	struct hot_entry *e = entry_get(h, part);

	if (!e)
		return false;
	if (e->state == HOT_FLYING)
		e->released = true;
	if (e->state != HOT_LEASED)
		return false;
	if (e->marks)
		return wake(h, e);
	if (lease && e->lease == lease)
		forget(h, e);
	else
		e->done = true;
	return false;
}

static bool
release_some(struct hot *h, bool leased)
{
	size_t at = 0;
	struct hot_entry *e;
	bool any = false;

	while ((e = map_next(&h->entries, &at))) {
		if (e->state == HOT_HIDDEN ||
			(leased && e->state == HOT_LEASED))
			any = wake(h, e);
		else if (e->state == HOT_FLYING)
			e->released = true;
	}
	return any;
}

bool
hot_release_all(struct hot *h)
{
	return release_some(h, true);
}

bool
hot_unhide(struct hot *h)
{
	return release_some(h, false);
}

bool
hot_due(struct hot *h, int64_t now_ms, int64_t *part)
{
	if (hot_next_ms(h) > now_ms)
		return false;
	struct hot_entry *e = h->heap[1];

	heap_remove(h, e);
	ready_last(h, e, true);
	*part = e->part;
	return true;
}

int64_t
hot_next_ms(const struct hot *h)
{
	return h->heap_n ? h->heap[1]->until_ms : INT64_MAX;
}

static void
fly(struct hot *h, struct hot_entry *e)
{
	e->state = HOT_FLYING;
	e->marks = 0;
	e->released = false;
	h->flying++;
}

enum hot_take
hot_take(struct hot *h, bool probes, int64_t *part)
{
	struct hot_entry *e = h->ready.first, *d = h->due.first;

	if (probes && d && (!e || d->seq < e->seq))
		e = d;
	if (!e)
		return HOT_TAKE_NONE;
	line_remove(line_of(h, e), e);
	fly(h, e);
	*part = e->part;
	return e->probe ? HOT_TAKE_PROBE : HOT_TAKE_FRESH;
}

enum hot_take
hot_take_part(struct hot *h, int64_t part, bool unknown_too, bool probes)
{
	struct hot_entry *e = entry_get(h, part);

	if (!e) {
		if (!unknown_too)
			return HOT_TAKE_NONE;
		e = entry_new(h, part);
		e->seq = ++h->seq;
		fly(h, e);
		return HOT_TAKE_FRESH;
	}
	if (e->state != HOT_READY || (e->probe && !probes))
		return HOT_TAKE_NONE;
	line_remove(line_of(h, e), e);
	fly(h, e);
	return e->probe ? HOT_TAKE_PROBE : HOT_TAKE_FRESH;
}

static bool
take_doubted(struct hot *h, struct hot_entry *e, uint64_t upto)
{
	if (!e || !e->doubted || e->asked > upto)
		return false;
	/* its marks are kept: the lease may end while this is answered */
	uint32_t marks = e->marks;

	heap_remove(h, e);
	e->probe = true;
	e->seq = ++h->seq;
	fly(h, e);
	e->marks = marks;
	return true;
}

bool
hot_take_doubted(struct hot *h, uint64_t upto, int64_t *part)
{
	struct hot_entry *e = h->hidden.first;

	if (!take_doubted(h, e, upto)) {
		e = h->leased.first;
		if (!take_doubted(h, e, upto))
			return false;
	}
	*part = e->part;
	return true;
}

bool
hot_take_part_doubted(struct hot *h, int64_t part, uint64_t upto)
{
	return take_doubted(h, entry_get(h, part), upto);
}

bool
hot_end(struct hot *h, int64_t part, enum hot_end end, int64_t until_ms,
	int64_t now_ms)
{
	struct hot_entry *e = entry_get(h, part);

	BUG(!e || e->state != HOT_FLYING);
	h->flying--;
	switch (end) {
	case HOT_END_BACK:
		if (e->marks || e->released)
			e->probe = false;
		ready_back(h, e);
		return true;
	case HOT_END_MORE:
		ready_last(h, e, false);
		return true;
	case HOT_END_LEASED:
		if (e->released) {
			ready_last(h, e, false);
			return true;
		}
		park(h, e, HOT_LEASED, until_ms);
		return false;
	case HOT_END_HIDDEN:
		if (e->released) {
			ready_last(h, e, false);
			return true;
		}
		if (e->marks && until_ms > now_ms + HOT_MARK_MS)
			until_ms = now_ms + HOT_MARK_MS;
		park(h, e, HOT_HIDDEN, until_ms);
		return false;
	case HOT_END_EMPTY:
		if (e->marks || e->released) {
			ready_last(h, e, false);
			return true;
		}
		forget(h, e);
		return false;
	case HOT_END_GONE:
		forget(h, e);
		return false;
	}
	return false;
}

enum hot_state
hot_state(const struct hot *h, int64_t part)
{
	const struct hot_entry *e = entry_get(h, part);

	return e ? (enum hot_state)e->state : HOT_IDLE;
}

size_t
hot_ready(const struct hot *h)
{
	return h->ready.n;
}

size_t
hot_probes(const struct hot *h)
{
	return h->due.n;
}

size_t
hot_doubted(const struct hot *h)
{
	return h->leased.n + h->hidden.n;
}

size_t
hot_flying(const struct hot *h)
{
	return h->flying;
}

size_t
hot_count(const struct hot *h)
{
	return h->entries.count;
}

uint64_t
hot_marks(const struct hot *h, size_t n)
{
	uint64_t sum = 0;

	for (const struct hot_entry *e = h->ready.first; e && n; e = e->next) {
		sum += e->marks;
		n--;
	}
	return sum;
}
