/* SPDX-License-Identifier: Apache-2.0 */
/* Passes of discovery, and where a partition it names is read from. */
#include "engine_int.h"

void
engine_pass_begin(struct engine *e)
{
	bool full = !e->swept || e->since_sweep >= ENGINE_SWEEP_EVERY - 1 ||
		    e->prev_us == STAMP_NONE;

	e->pass.running = true;
	e->pass.due = e->woken = false;
	e->pass.full = full;
	e->pass.since_us =
		full ? STAMP_NONE : engine_less(e->prev_us, ENGINE_SLACK_US);
	e->pass.after_us = STAMP_NONE;
	e->pass.after_part = 0;
	e->pass.min_us = INT64_MAX;
	e->pass.blind = e->pass.degraded = false;
	e->pass.rows = 0;
	e->pass.closed = e->closed;
	e->begun++;
}

void
engine_pass_page(struct engine *e, struct engine_step *s)
{
	e->pass.out = true;
	e->pass.call = engine_call_id(e);
	*s = (struct engine_step){ .what = ENGINE_DISCOVER,
		.call = e->pass.call,
		.since_us = e->pass.since_us,
		.after_us = e->pass.after_us,
		.after_part = e->pass.after_part };
}

/* From its first page again: the pages of one pass belong together. */
bool
engine_pass_failed(struct engine *e, uint32_t call)
{
	if (!e->pass.out || e->pass.call != call)
		return false;
	e->pass.out = e->pass.running = false;
	e->pass.due = true;
	return true;
}

/* ---- rows ---- */

/* Retention was faster: what it took and we had not read. */
static void
raise(struct engine *e, struct engine_part *p, int64_t log_start)
{
	if (log_start <= p->pos)
		return;
	engine_lose(e, p, p->pos, log_start - 1);
	p->pos = log_start;
	if (p->head < log_start)
		p->head = log_start;
}

static void
resume(struct engine *e, struct engine_part *p, int64_t log_start)
{
	raise(e, p, log_start);
	if (p->pos > p->head)
		p->pos = p->head;
	engine_part_settle(e, p);
}

/* One without a position: where its start, or the window, says. */
static void
place(struct engine *e, struct engine_part *p, const struct engine_found *f)
{
	bool earliest = e->conf.start == S3_EARLIEST;

	p->pos = f->log_start;
	if (p->pos < p->head &&
		!(earliest && (e->prev_us == STAMP_NONE ||
				      p->head - p->pos <= ENGINE_SHORT))) {
		if (f->last_write_us >=
			engine_less(e->prev_us, ENGINE_QUANTUM_US)) {
			p->state = ENGINE_UNKNOWN;
			p->ts_us = f->last_write_us;
			engine_push(&e->unknown, p);
			return;
		}
		/* new, and yet older than the window: the clock went back */
		if (e->swept)
			engine_lose(e, p, p->pos, p->head - 1);
		p->pos = p->head;
	}
	engine_part_settle(e, p);
}

static void
first_seen(
	struct engine *e, struct engine_part *p, const struct engine_found *f)
{
	int64_t offset;

	if (p && !span_eq(span_make(p->name, p->name_n), f->name)) {
		engine_part_free(e, p);
		p = NULL;
	}
	if (p) {
		e->restored_n--;
		p->seen = (uint32_t)e->closed;
		offset = p->pos;
	} else {
		p = engine_part_new(e, f->part, f->name);
		offset = -1;
		engine_loose_get(e, f->name, &offset);
	}
	p->head = f->last_offset + 1;
	if (p->head < f->log_start)
		p->head = f->log_start;
	if (offset < 0) {
		place(e, p, f);
		return;
	}
	p->pos = offset;
	resume(e, p, f->log_start);
}

static void
seen(struct engine *e, struct engine_part *p, const struct engine_found *f)
{
	if (p->head < f->last_offset + 1)
		p->head = f->last_offset + 1;
	switch ((enum engine_state)p->state) {
	case ENGINE_UNKNOWN:
	case ENGINE_SEEKING:
		if (p->pos < f->log_start)
			p->pos = f->log_start;
		return;
	case ENGINE_CAUGHT:
		if (p->pos >= p->head && p->pos >= f->log_start)
			return;
		/* until the last whole pass it had nothing unread */
		if (p->ts_us < e->safe_us)
			p->ts_us = e->safe_us;
		break;
	case ENGINE_DUE:
		if (p->pos >= f->log_start)
			return;
		engine_heap_take(&e->due, p);
		break;
	case ENGINE_BLOCKED:
		if (p->pos >= f->log_start)
			return;
		engine_heap_take(&e->blocked, p);
		break;
	case ENGINE_FLYING: /* its answer may still bring them */
	case ENGINE_DEAD:
	case ENGINE_RESTORED:
		return;
	}
	resume(e, p, f->log_start);
}

static void
row(struct engine *e, const struct engine_found *f)
{
	struct engine_part *p = engine_part_get(e, f->part);

	if (p && p->state == ENGINE_DEAD)
		return;
	if (!p || p->state == ENGINE_RESTORED) {
		first_seen(e, p, f);
		return;
	}
	p->seen = (uint32_t)e->closed;
	seen(e, p, f);
}

/* ---- pages ---- */

static void
finish(struct engine *e)
{
	e->pass.running = false;
	e->degraded = e->pass.degraded;
	if (!e->pass.blind)
		e->safe_us = e->pass.min_us;
	e->since_sweep++;
	if (e->pass.full) {
		e->discovered = e->pass.rows;
		e->sweep_closed = e->pass.closed;
		e->since_sweep = 0;
		e->swept = true;
		engine_loose_drop(e);
	}
	engine_part_bury(e);
}

/* False: it is nobody's. */
static bool
page(struct engine *e, uint32_t call, int64_t safe_us, bool degraded)
{
	if (!e->pass.out || e->pass.call != call)
		return false;
	e->pass.out = false;
	e->dirty = true;
	e->pages++;
	e->pass.degraded |= degraded || safe_us == STAMP_NONE;
	e->pass.blind |= safe_us == STAMP_NONE;
	if (safe_us < e->pass.min_us)
		e->pass.min_us = safe_us;
	return true;
}

/* A page without partitions: no record that is to come can be older. */
void
engine_on_missing(
	struct engine *e, uint32_t call, int64_t safe_us, bool degraded)
{
	if (!page(e, call, safe_us, degraded))
		return;
	e->missing = true;
	engine_call_drop_all(e);
	engine_part_all_gone(e);
	if (e->bytes > 0)
		finish(e);
	else
		e->pass.running = false;
}

void
engine_on_page(struct engine *e, uint32_t call, int64_t safe_us, bool degraded,
	const struct engine_found *rows, size_t n, bool full)
{
	if (!page(e, call, safe_us, degraded))
		return;
	e->missing = false;
	if (!e->has_prev && safe_us != STAMP_NONE) {
		e->has_prev = true;
		e->prev_us = safe_us;
	}
	if (!e->has_prev) { /* where to read from cannot be told yet */
		e->pass.running = false;
		e->degraded = true;
		return;
	}
	for (size_t i = 0; i < n; i++)
		row(e, &rows[i]);
	e->pass.rows += (int64_t)n;
	engine_part_look(e, n + 16);
	if (full && n > 0) {
		e->pass.after_us = rows[n - 1].last_write_us;
		e->pass.after_part = rows[n - 1].part;
	} else {
		finish(e);
	}
}
