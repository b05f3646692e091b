/* SPDX-License-Identifier: Apache-2.0 */
/* Seeks and fetches: what they ask for, and what their answers tell. */
#include "engine_int.h"

#include <stdlib.h>

#include "err.h"

uint32_t
engine_call_id(struct engine *e)
{
	if (++e->call_id == 0)
		e->call_id = 1;
	return e->call_id;
}

static struct engine_call *
call_new(struct engine *e, enum engine_what what, struct engine_step *s)
{
	struct engine_call *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->part = calloc(ENGINE_ENTRIES, sizeof(struct engine_part *));
	if (!c->part)
		abort();
	c->id = engine_call_id(e);
	c->what = what;
	c->low_us = INT64_MAX;
	*(what == ENGINE_SEEK ? &e->seeks : &e->fetches) += 1;
	e->call = engine_grow(
		e->call, e->call_n, &e->call_cap, sizeof(struct engine_call *));
	e->call[e->call_n++] = c;
	*s = (struct engine_step){ .what = what,
		.call = c->id,
		.part = e->step_part,
		.offset = e->step_offset };
	return c;
}

static void
ask(struct engine *e, struct engine_call *c, struct engine_part *p,
	enum engine_state state)
{
	p->state = (uint8_t)state;
	p->marks = 0;
	e->step_part[c->n] = p->id;
	e->step_offset[c->n] = p->pos;
	c->part[c->n++] = p;
}

/* Only as large as it is: hundreds may be out. */
static void
asked(struct engine_call *c, struct engine_step *s)
{
	c->part = realloc(c->part, c->n * sizeof(struct engine_part *));
	if (!c->part)
		abort();
	s->n = c->n;
}

void
engine_call_seek(struct engine *e, struct engine_step *s)
{
	struct engine_call *c = call_new(e, ENGINE_SEEK, s);

	while (e->unknown.n && c->n < ENGINE_ENTRIES)
		ask(e, c, e->unknown.a[--e->unknown.n], ENGINE_SEEKING);
	e->seeking_n += (uint32_t)c->n;
	asked(c, s);
	s->at_us = e->prev_us;
}

static size_t
within(size_t n, size_t low, size_t high)
{
	return n < low ? low : n > high ? high : n;
}

void
engine_call_fetch(struct engine *e, struct engine_step *s)
{
	struct engine_call *c = call_new(e, ENGINE_FETCH, s);
	int64_t horizon = engine_horizon_us(e);
	size_t left = (size_t)e->conf.fetch_concurrency - e->fetches + 1;
	size_t due = e->due.n;
	/* a share for each call that may be out, whole ones for many */
	size_t most =
		within((due + left - 1) / left, ENGINE_CHUNK_LEAST, e->chunk);
	struct engine_part *p;

	while (c->n < most && (p = engine_heap_top(&e->due)) &&
		p->ts_us < horizon) {
		engine_heap_pop(&e->due);
		if (p->ts_us < c->low_us)
			c->low_us = p->ts_us;
		ask(e, c, p, ENGINE_FLYING);
	}
	asked(c, s);
	/* all of them together about two windows, even when each is far behind */
	s->entry_bytes = (int32_t)within((size_t)e->conf.target_bytes * 2 / due,
		ENGINE_ENTRY_LEAST, ENGINE_ENTRY_BYTES);
}

/* ---- its end ---- */

static void
fetched(struct engine *e, struct engine_part *p)
{
	if (p->marks & ENGINE_WENT)
		engine_part_gone(e, p);
	else if (p->marks & ENGINE_SHUT)
		engine_part_block(e, p);
	else
		engine_part_settle(e, p);
}

static void
sought(struct engine *e, struct engine_part *p)
{
	if (p->marks & ENGINE_WENT) {
		engine_part_gone(e, p);
	} else if (p->marks & ENGINE_ANSWERED) {
		p->ts_us = e->prev_us;
		engine_part_settle(e, p);
	} else {
		p->state = ENGINE_UNKNOWN;
		engine_push(&e->unknown, p);
	}
}

static struct engine_call *
find(struct engine *e, uint32_t id)
{
	if (e->call_last < e->call_n && e->call[e->call_last]->id == id)
		return e->call[e->call_last];
	for (uint32_t i = 0; i < e->call_n; i++)
		if (e->call[i]->id == id) {
			e->call_last = i;
			return e->call[i];
		}
	return NULL;
}

static void
end(struct engine *e, struct engine_call *c)
{
	engine_buffer_shut(e);
	for (size_t i = 0; i < c->n; i++)
		if (c->what == ENGINE_SEEK)
			sought(e, c->part[i]);
		else
			fetched(e, c->part[i]);
	if (c->what == ENGINE_SEEK) {
		e->seeks--;
		e->seeking_n -= (uint32_t)c->n;
	} else {
		e->fetches--;
	}
	for (uint32_t i = 0; i < e->call_n; i++)
		if (e->call[i] == c) {
			e->call[i] = e->call[--e->call_n];
			break;
		}
	free(c->part);
	free(c);
	e->dirty = true;
}

void
engine_call_drop_all(struct engine *e)
{
	while (e->call_n)
		end(e, e->call[e->call_n - 1]);
	if (e->pass.out)
		engine_pass_failed(e, e->pass.call);
}

/* An answer has a bound: what found no room is asked for in smaller numbers. */
static void
size_up(struct engine *e, const struct engine_call *c)
{
	size_t starved = 0;

	if (c->what != ENGINE_FETCH)
		return;
	for (size_t i = 0; i < c->n; i++)
		starved += !c->part[i]->marks &&
			   c->part[i]->pos < c->part[i]->head;
	if (starved > c->n / 2)
		e->chunk = within(
			c->n - starved, ENGINE_CHUNK_LEAST, ENGINE_ENTRIES);
	else
		e->chunk = within(
			e->chunk * 2, ENGINE_CHUNK_LEAST, ENGINE_ENTRIES);
}

void
engine_on_done(struct engine *e, uint32_t call)
{
	struct engine_call *c = find(e, call);

	if (!c)
		return;
	size_up(e, c);
	end(e, c);
}

/* What arrived before it failed was true. */
void
engine_on_failed(struct engine *e, uint32_t call)
{
	struct engine_call *c = find(e, call);

	if (!engine_pass_failed(e, call) && c)
		end(e, c);
}

/* ---- answers ---- */

static struct engine_part *
entry(struct engine *e, uint32_t call, size_t i, enum engine_what what)
{
	struct engine_call *c = find(e, call);

	return c && c->what == what && i < c->n ? c->part[i] : NULL;
}

void
engine_on_seek(
	struct engine *e, uint32_t call, size_t i, bool gone, int64_t offset)
{
	struct engine_part *p = entry(e, call, i, ENGINE_SEEK);

	if (!p)
		return;
	if (gone) {
		p->marks |= ENGINE_WENT;
		return;
	}
	p->marks |= ENGINE_ANSWERED;
	if (p->pos < offset)
		p->pos = offset;
	if (p->head < p->pos)
		p->head = p->pos;
}

void
engine_on_entry(struct engine *e, uint32_t call, size_t i,
	enum engine_verdict v, int64_t high, int64_t log_start)
{
	struct engine_part *p = entry(e, call, i, ENGINE_FETCH);

	if (!p)
		return;
	if (v == ENGINE_GONE) {
		p->marks |= ENGINE_WENT;
		return;
	}
	if (v == ENGINE_RANGE && p->pos > high) {
		p->pos = p->head = high;
		return;
	}
	if (p->head < high)
		p->head = high;
	if (v == ENGINE_RANGE && p->pos < log_start) {
		engine_lose(e, p, p->pos, log_start - 1);
		p->pos = log_start;
	}
}

static int64_t
filter_us(const struct engine *e)
{
	return e->closing ? e->end_us : e->prev_us;
}

/* False: it was read before, or not asked for. */
static bool
take(struct engine *e, struct engine_part *p, int64_t offset, int64_t ts_us)
{
	if (p->marks & ~ENGINE_ANSWERED || offset < p->pos)
		return false;
	p->marks |= ENGINE_ANSWERED;
	/* a gap below the filter was in a window that shipped */
	if (offset > p->pos && ts_us >= filter_us(e))
		engine_lose(e, p, p->pos, offset - 1);
	/* the clock went back: it belongs to a window that is over */
	if (ts_us < filter_us(e) && ts_us < p->ts_us)
		engine_lose(e, p, offset, offset);
	p->pos = offset;
	if (p->head <= offset)
		p->head = offset + 1;
	if (p->ts_us < ts_us)
		p->ts_us = ts_us;
	return true;
}

void
engine_on_record(
	struct engine *e, uint32_t call, size_t i, const struct record *r)
{
	struct engine_part *p = entry(e, call, i, ENGINE_FETCH);

	if (!p || !take(e, p, r->offset, r->ts_us))
		return;
	p->pos++;
	if (r->ts_us >= filter_us(e))
		engine_buffer_add(e, p, r);
}

void
engine_on_blocked(struct engine *e, uint32_t call, size_t i, int64_t offset,
	int64_t ts_us, int key_id)
{
	struct engine_part *p = entry(e, call, i, ENGINE_FETCH);

	if (!p || !take(e, p, offset, ts_us))
		return;
	if (ts_us < filter_us(e)) {
		p->pos++;
		return;
	}
	p->key_id = (int16_t)key_id;
	p->marks |= ENGINE_SHUT;
}
