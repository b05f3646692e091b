/* SPDX-License-Identifier: Apache-2.0 */
/* Where a window may end, and when it does. */
#include "engine_int.h"

enum { WORTH_BYTES = 1 << 20, WORTH_LAG_US = 10000000 };

static int64_t
least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t
engine_less(int64_t at_us, int64_t us)
{
	return at_us < STAMP_NONE + us ? STAMP_NONE : at_us - us;
}

static int64_t
closable_us(const struct engine *e)
{
	return engine_less(e->safe_us, e->conf.safe_guard_us);
}

/* All records below it are buffered, if they are below `safe` too. */
static int64_t
frontier_us(const struct engine *e)
{
	const struct engine_part *p;
	int64_t low = INT64_MAX;

	if (e->unknown.n || e->seeking_n)
		return STAMP_NONE;
	if ((p = engine_heap_top(&e->due)))
		low = least(low, p->ts_us);
	if ((p = engine_heap_top(&e->blocked)))
		low = least(low, p->ts_us);
	for (uint32_t i = 0; i < e->call_n; i++)
		low = least(low, e->call[i]->low_us);
	return low;
}

/* The start of the window, or of what it holds while it has none. */
static int64_t
base_us(const struct engine *e)
{
	return e->prev_us != STAMP_NONE ? e->prev_us
					: engine_weight_first_us(e);
}

static int64_t
bound_us(const struct engine *e)
{
	int64_t base = base_us(e);

	return base == INT64_MAX ? base : stamp_next(base, e->conf.align);
}

/* As a reader sees it. */
static int64_t
start_us(const struct engine *e)
{
	return e->prev_us != STAMP_NONE
		       ? e->prev_us
		       : stamp_floor(engine_weight_first_us(e), e->conf.align);
}

/* Without boundaries: the slowest partition may go on for two windows. */
static int64_t
ahead_us(const struct engine *e)
{
	int64_t from = base_us(e), frontier = frontier_us(e);

	if (from == INT64_MAX || frontier == INT64_MAX)
		return INT64_MAX;
	if (from < frontier)
		from = frontier;
	return from + e->unit_us;
}

int64_t
engine_horizon_us(const struct engine *e)
{
	int64_t closable = closable_us(e), at;

	if (closable == STAMP_NONE || !e->has_prev)
		return STAMP_NONE;
	at = e->conf.align == S3_UNALIGNED ? ahead_us(e) : bound_us(e);
	at = least(closable, at) + e->unit_us;
	return e->redo && at < e->redo_end_us ? e->redo_end_us : at;
}

static void
complete(struct engine *e, int64_t at_us)
{
	if (at_us > e->complete_us)
		e->complete_us = at_us;
}

static void
advance(struct engine *e, int64_t to_us)
{
	enum s3_align a = e->conf.align;

	if (to_us <= e->prev_us)
		return;
	if (a != S3_UNALIGNED && e->prev_us != STAMP_NONE)
		e->stepped_over +=
			(uint64_t)((stamp_floor(to_us, a) -
					   stamp_floor(e->prev_us, a)) /
				   e->unit_us);
	e->prev_us = to_us;
	complete(e, to_us);
}

/* Past time that holds nothing, so that what comes next is not old at once. */
static void
step_over(struct engine *e, int64_t closable, int64_t frontier)
{
	int64_t settled = least(closable, frontier);

	if (e->bytes == 0) {
		complete(e, settled);
		if (frontier >= closable)
			advance(e, closable);
	}
	if (e->conf.align != S3_UNALIGNED && e->prev_us != STAMP_NONE &&
		settled > e->prev_us)
		advance(e,
			stamp_floor(least(settled, engine_weight_first_us(e)),
				e->conf.align));
}

static void
begin(struct engine *e, int64_t start, int64_t end)
{
	e->closing = true;
	e->start_us = start;
	e->end_us = end;
	e->lost_taken = e->lost_n;
	e->records = e->partitions = 0;
	e->min_us = e->max_us = STAMP_NONE;
}

static bool
close_redo(struct engine *e, int64_t closable, int64_t frontier)
{
	if (closable < e->redo_end_us || frontier < e->redo_end_us)
		return false;
	begin(e, e->redo_start_us, e->redo_end_us);
	return true;
}

/*
 * Old enough.  While it is a partition that holds it back, more is about to
 * come: then what could close counts, not how far behind the queue is.
 */
static bool
is_old(const struct engine *e, int64_t cap, int64_t closable)
{
	if (cap < closable && cap < bound_us(e))
		return cap - start_us(e) >= e->conf.max_window_us;
	return e->prev_us == STAMP_NONE ||
	       e->safe_us - e->prev_us >= e->conf.max_window_us;
}

/* Nothing that could still come would be of a window with it. */
static bool
is_last(struct engine *e, int64_t closable)
{
	return e->missing && engine_weight_below(e, closable) == e->bytes;
}

/* True when a window is closing. */
bool
engine_close(struct engine *e)
{
	int64_t closable = closable_us(e);
	int64_t frontier = frontier_us(e), cap, end;
	bool size;

	if (e->sort.positions || closable == STAMP_NONE || !e->has_prev)
		return false;
	if (e->redo)
		return close_redo(e, closable, frontier);
	step_over(e, closable, frontier);
	cap = least(least(closable, frontier), bound_us(e));
	if (cap <= e->prev_us || !engine_weight_any_below(e, cap))
		return false;
	size = e->bytes >= e->conf.target_bytes &&
	       engine_weight_below(e, cap) >= e->conf.target_bytes;
	end = size ? engine_weight_cut(e, e->conf.target_bytes, cap) : cap;
	if (!size && cap != bound_us(e) && !e->forced &&
		!is_old(e, cap, closable) && !is_last(e, closable))
		return false;
	begin(e, start_us(e), end);
	return true;
}

static int64_t
lag_us(const struct engine *e)
{
	if (e->safe_us == STAMP_NONE || e->complete_us == STAMP_NONE)
		return -1;
	return e->safe_us > e->complete_us ? e->safe_us - e->complete_us : 0;
}

/* May a drain wait for it? */
bool
engine_worth(const struct engine *e)
{
	return e->bytes >= WORTH_BYTES ||
	       (e->bytes > 0 && lag_us(e) >= WORTH_LAG_US);
}

void
engine_window(const struct engine *e, struct engine_window *w)
{
	*w = (struct engine_window){ .k = e->committed_k + 1,
		.start_us = e->start_us,
		.end_us = e->end_us,
		.redo = e->redo,
		.records = e->records,
		.partitions = e->partitions,
		.min_us = e->min_us,
		.max_us = e->max_us };
}

void
engine_stats(const struct engine *e, struct engine_stats *out)
{
	const struct engine_part *p = engine_heap_top(&e->blocked);

	*out = (struct engine_stats){ .committed_k = e->committed_k,
		.safe_us = e->safe_us,
		.complete_us = e->complete_us,
		.lag_us = lag_us(e),
		.degraded = e->degraded,
		.filling = !e->closing,
		.redo = e->redo,
		.missing = e->missing,
		.buffered_bytes = e->bytes,
		.partitions = (int64_t)e->all.n - e->restored_n - e->dead.n,
		.discovered = e->discovered,
		.stepped_over = e->stepped_over,
		.pages = e->pages };
	if (!p)
		return;
	out->blocked_part = p->id;
	out->blocked_name = span_make(p->name, p->name_n);
	out->blocked_offset = p->pos;
	out->blocked_key_id = p->key_id;
}
