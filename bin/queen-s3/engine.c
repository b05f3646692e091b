/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be done next, and the life of a window. */
#include "engine.h"
#include "engine_int.h"

#include <stdlib.h>

#include "err.h"

enum { CONCURRENCY_MAX = 256 };

static int64_t
at_least_1(int64_t v)
{
	return v < 1 ? 1 : v;
}

static void
configure(struct engine *e, const struct engine_conf *c)
{
	e->conf = *c;
	e->conf.target_bytes = at_least_1(c->target_bytes);
	e->conf.max_window_us = at_least_1(c->max_window_us);
	if (c->safe_guard_us < 0)
		e->conf.safe_guard_us = 0;
	e->conf.fetch_concurrency = (int)at_least_1(c->fetch_concurrency);
	if (e->conf.fetch_concurrency > CONCURRENCY_MAX)
		e->conf.fetch_concurrency = CONCURRENCY_MAX;
	e->unit_us = c->align == S3_UNALIGNED ? e->conf.max_window_us
					      : stamp_next(0, c->align);
	e->width_us = at_least_1(e->unit_us / ENGINE_BUCKETS);
}

/* Where the first window starts. */
static void
restore(struct engine *e, const struct engine_restore *r)
{
	bool first = r->committed_k == 0;

	e->committed_k = r->committed_k;
	e->redo = r->redo_k != 0;
	e->redo_start_us = r->redo_start_us;
	e->redo_end_us = r->redo_end_us;
	e->has_prev = true;
	e->prev_us = STAMP_NONE;
	e->complete_us = first ? STAMP_NONE : r->committed_us;
	if (e->redo && !(first && e->conf.start == S3_EARLIEST))
		e->prev_us = r->redo_start_us;
	else if (!first)
		e->prev_us = r->committed_us;
	else if (e->conf.start == S3_TIMESTAMP)
		e->prev_us = e->conf.start_us;
	else if (e->conf.start == S3_LATEST)
		e->has_prev = false;
}

struct engine *
engine_new(const struct engine_conf *c, const struct engine_restore *r)
{
	struct engine *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	configure(e, c);
	engine_weight_init(e);
	restore(e, r);
	e->safe_us = STAMP_NONE;
	e->chunk = ENGINE_ENTRIES;
	e->pass.due = true;
	return e;
}

void
engine_free(struct engine *e)
{
	if (!e)
		return;
	engine_sort_end(e);
	engine_table_fini(e);
	engine_weight_fini(e);
	for (uint32_t i = 0; i < e->call_n; i++) {
		free(e->call[i]->part);
		free(e->call[i]);
	}
	free(e->call);
	free(e->group);
	free(e);
}

/* ---- the next step ---- */

static bool
may_fetch(const struct engine *e)
{
	const struct engine_part *p = engine_heap_top(&e->due);

	return p && e->fetches < (size_t)e->conf.fetch_concurrency &&
	       p->ts_us < engine_horizon_us(e);
}

static void
schedule(struct engine *e, struct engine_step *s)
{
	bool quiet;

	if (e->unknown.n && e->seeks < (size_t)e->conf.fetch_concurrency) {
		engine_call_seek(e, s);
		return;
	}
	if (may_fetch(e)) {
		engine_call_fetch(e, s);
		return;
	}
	quiet = e->call_n == 0 && !e->pass.out;
	if (!e->pass.running && (e->pass.due || (quiet && e->woken)))
		engine_pass_begin(e);
	if (e->pass.running && !e->pass.out)
		engine_pass_page(e, s);
	else
		s->what = quiet ? ENGINE_IDLE : ENGINE_WAIT;
}

/* Decided once: one window that is worth it, if it may close now. */
static enum engine_what
drain(struct engine *e)
{
	if (e->decided)
		return ENGINE_DRAINED;
	if (e->sort.positions)
		return ENGINE_WAIT;
	e->decided = true;
	e->forced = true;
	/* of a queue that is gone nobody reads it again */
	return (e->missing || engine_worth(e)) && engine_close(e)
		       ? ENGINE_CLOSE
		       : ENGINE_DRAINED;
}

void
engine_next(struct engine *e, struct engine_step *s)
{
	*s = (struct engine_step){ .what = ENGINE_CLOSE };
	if (e->closing)
		return;
	if (e->missing && e->bytes == 0) {
		s->what = ENGINE_MISSING;
		return;
	}
	if (e->dropping && !engine_buffer_drop(e)) {
		s->what = ENGINE_BUSY;
		return;
	}
	e->dropping = false;
	if (e->draining) {
		s->what = drain(e);
		return;
	}
	if (e->dirty && !e->sort.positions) {
		e->dirty = false;
		if (engine_close(e))
			return;
	}
	schedule(e, s);
}

void
engine_woken(struct engine *e)
{
	e->woken = true;
}

void
engine_force(struct engine *e)
{
	e->forced = e->dirty = true;
}

void
engine_drain(struct engine *e)
{
	if (e->draining)
		return;
	e->draining = true;
	e->decided = e->closing;
	engine_call_drop_all(e);
}

static void
drop_lost(struct engine *e)
{
	for (uint32_t i = 0; i < e->lost_taken; i++)
		free(e->lost[i]);
	e->lost_n -= e->lost_taken;
	if (e->lost_n)
		memmove(e->lost, e->lost + e->lost_taken,
			e->lost_n * sizeof(struct engine_lost *));
	e->lost_taken = 0;
}

void
engine_committed(struct engine *e)
{
	BUG(!e->closing);
	e->closing = e->redo = e->forced = false;
	e->committed_k++;
	e->closed++;
	e->prev_us = e->end_us;
	if (e->complete_us < e->end_us)
		e->complete_us = e->end_us;
	drop_lost(e);
	engine_sort_end(e);
	engine_plan_rewind(e);
	engine_weight_drop(e, e->end_us);
	e->dropping = true;
	e->drop_at = 0;
	e->pass.due = e->dirty = true;
}
