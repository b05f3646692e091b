/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resolving in rounds: look in the catalogue, load the queues that are
 * missing, look again, load the partitions.  A queue that is deleted
 * meanwhile makes another round; a few are enough for any honest race.
 */
#include "resolve.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "catalog.h"
#include "ctx.h"
#include "err.h"
#include "loop.h"
#include "map.h"

enum { RESOLVE_ROUNDS = 8 };

struct resolve {
	struct ctx *x;
	struct qid tenant;
	struct resolve_item *items;
	size_t n;
	int rounds;
	struct arena arena; /* arrays of the round */
	resolve_fn done;
	void *arg;
};

struct want {
	struct cat_queue *queue; /* NULL: the queue is what is wanted */
	struct span name;
};

static bool
is_want(const void *item, const void *key)
{
	const struct want *a = item, *b = key;

	return a->queue == b->queue && span_eq(a->name, b->name);
}

/* Both lists are small beside a round trip, and hold no name twice. */
static void
want_add(struct map *m, struct arena *a, struct cat_queue *q, struct span name)
{
	struct want w = { .queue = q, .name = name };
	uint64_t h = map_hash_span(name) ^ map_hash_i64(q ? q->id : 0);

	if (map_get(m, h, is_want, &w))
		return;
	struct want *kept = arena_alloc(a, sizeof(*kept));

	*kept = w;
	map_put(m, h, kept);
}

static bool
look(struct ctx *x, const struct qid *tenant, struct resolve_item *items,
	size_t n, struct arena *a, struct map *queues, struct map *parts)
{
	struct cat_queue *q = NULL;
	struct cat_part *p = NULL;
	bool all = true;

	for (size_t i = 0; i < n; i++) {
		struct resolve_item *it = &items[i];

		if (!q || !span_eq(q->name, it->queue)) {
			q = catalog_queue(x->catalog, tenant, it->queue);
			p = NULL;
		}
		if (q && (!p || !span_eq(p->name, it->partition)))
			p = catalog_part(x->catalog, q, it->partition);
		it->part = q ? p : NULL;
		if (it->part)
			continue;
		all = false;
		if (!q && queues)
			want_add(queues, a, NULL, it->queue);
		else if (q && parts)
			want_add(parts, a, q, it->partition);
	}
	return all;
}

bool
resolve_known(struct ctx *x, const struct qid *tenant,
	struct resolve_item *items, size_t n)
{
	return look(x, tenant, items, n, NULL, NULL, NULL);
}

static void
finish(struct resolve *r, const struct err *e)
{
	r->done(r->arg, e);
	arena_fini(&r->arena);
	free(r);
}

static void round_next(void *arg, const struct err *e);

static void
load(struct resolve *r, const struct map *m, bool queues)
{
	struct span *names = arena_alloc(&r->arena, m->count * sizeof(*names));
	struct cat_queue **of =
		arena_alloc(&r->arena, m->count * sizeof(struct cat_queue *));
	size_t at = 0, n = 0;
	struct want *w;

	while ((w = map_next(m, &at))) {
		names[n] = w->name;
		of[n++] = w->queue;
	}
	if (queues)
		catalog_load_queues(r->x->catalog, &r->tenant, names, n, true,
			round_next, r);
	else
		catalog_load_parts(
			r->x->catalog, of, names, n, true, round_next, r);
}

static void
round_next(void *arg, const struct err *e)
{
	struct resolve *r = arg;
	struct map queues = MAP_ZERO, parts = MAP_ZERO;

	arena_reset(&r->arena);
	if (look(r->x, &r->tenant, r->items, r->n, &r->arena, &queues,
		    &parts) ||
		e || r->rounds++ == RESOLVE_ROUNDS)
		finish(r, e);
	else if (queues.count)
		load(r, &queues, true);
	else
		load(r, &parts, false);
	map_fini(&queues);
	map_fini(&parts);
}

static void
begin(void *arg)
{
	round_next(arg, NULL);
}

void
resolve_start(struct ctx *x, const struct qid *tenant,
	struct resolve_item *items, size_t n, resolve_fn done, void *arg)
{
	struct resolve *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	r->x = x;
	r->tenant = *tenant;
	r->items = items;
	r->n = n;
	r->done = done;
	r->arg = arg;
	loop_later(x->loop, begin, r);
}
