/* SPDX-License-Identifier: Apache-2.0 */
/* What other processes do, told to the rings; lib/cellscan does the scan. */
#include "change.h"

#include <stdlib.h>

#include "catalog.h"
#include "ctx.h"
#include "fetch.h"
#include "flags.h"
#include "hint.h"
#include "loop.h"
#include "pgpool.h"
#include "pop.h"
#include "settings.h"

enum { TICK_MS = 1000 };

struct changes {
	struct ctx *x;
	struct loop_timer timer;
	struct cellscan *scan;
	int64_t flags_next_ms;
};

/* ---- the change scan ---- */

static void
scan_call(void *arg, const struct pgstmt *s, struct pgargs *args,
	pgconn_result_fn fn, void *fn_arg)
{
	struct changes *c = arg;

	pgpool_call(c->x->pool, LANE_REST, s, args, fn, fn_arg);
}

static bool
scan_wants(void *arg, int64_t queue_id)
{
	struct changes *c = arg;
	struct cat_queue *q = catalog_queue_by_id(c->x->catalog, queue_id);

	return q && pops_wants(c->x->pops, q);
}

static void
on_mark(void *arg, int64_t queue_id, int64_t part_id)
{
	struct changes *c = arg;

	pops_mark(c->x->pops, queue_id, part_id);
}

static void
on_moved(void *arg, int64_t queue_id, int64_t group_id, int64_t part_id)
{
	struct changes *c = arg;

	pops_moved(c->x->pops, queue_id, group_id, part_id);
}

static void
on_clock(void *arg, int64_t offset_us)
{
	struct changes *c = arg;

	pops_set_clock(c->x->pops, offset_us);
}

void
changes_heard(struct changes *c, int64_t queue_id, int64_t part_id)
{
	cellscan_heard(c->scan, queue_id, part_id);
}

/* ---- hints ---- */

static void
on_hint(void *arg, const struct hint_item *i)
{
	struct changes *c = arg;
	struct ctx *x = c->x;

	switch (i->kind) {
	case HINT_MESSAGES:
		cellscan_heard(c->scan, i->queue_id, i->part_id);
		pops_mark(x->pops, i->queue_id, i->part_id);
		break;
	case HINT_RELEASED:
		pops_released(x->pops, i->queue_id, i->group_id, i->part_id);
		break;
	case HINT_DONE:
		pops_done(x->pops, i->queue_id, i->group_id, i->part_id, 0);
		break;
	case HINT_MOVED:
		pops_moved(x->pops, i->queue_id, i->group_id, i->part_id);
		break;
	case HINT_CATALOG:
		catalog_refresh(x->catalog);
		pops_catalog(x->pops, i->queue_id);
		break;
	case HINT_FLAGS:
		flags_refresh(x, NULL, NULL);
		break;
	case HINT_RESYNC:
		catalog_refresh(x->catalog);
		pops_resync(x->pops);
		break;
	case HINT_JOBS:
	case HINT_EVENTS:
	case HINT_QUEUES:
	case HINT_KINDS:
		break;
	}
}

static void
on_listening(void *arg)
{
	struct changes *c = arg;

	catalog_refresh(c->x->catalog);
	flags_refresh(c->x, NULL, NULL);
	pops_resync(c->x->pops);
}

/* ---- once a second ---- */

static void
on_second(void *arg)
{
	struct changes *c = arg;
	int64_t now = loop_now_ms(c->x->loop);

	loop_timer_start(&c->timer, TICK_MS);
	catalog_refresh(c->x->catalog);
	cellscan_tick(c->scan, now);
	if (now >= c->flags_next_ms) {
		c->flags_next_ms = now + c->x->conf->cache_refresh_ms;
		flags_refresh(c->x, NULL, NULL);
	}
	pops_tick(c->x->pops);
}

struct changes *
changes_new(struct ctx *x)
{
	struct changes *c = calloc(1, sizeof(*c));
	int64_t now = loop_now_ms(x->loop);
	struct hint_events ev = {
		.on_hint = on_hint, .on_up = on_listening, .arg = c
	};
	struct cellscan_face face = { .call = scan_call,
		.wants = scan_wants,
		.on_mark = on_mark,
		.on_moved = on_moved,
		.on_clock = on_clock,
		.arg = c };

	if (!c)
		abort();
	c->x = x;
	c->flags_next_ms = now + x->conf->cache_refresh_ms;
	c->scan = cellscan_new(&face, now);
	x->hint = hint_new(
		x->loop, x->conninfo, "queend listen", x->instance, &ev);
	loop_timer_init(&c->timer, x->loop, on_second, c);
	loop_timer_start(&c->timer, 1);
	return c;
}

void
changes_free(struct changes *c)
{
	if (!c)
		return;
	fetches_free(c->x->fetches);
	c->x->fetches = NULL;
	hint_free(c->x->hint);
	c->x->hint = NULL;
	c->x->changes = NULL;
	loop_timer_fini(&c->timer);
	cellscan_free(c->scan);
	free(c);
}

void
changes_stats(const struct changes *c, struct cellscan_stats *out)
{
	cellscan_stats(c->scan, out);
}
