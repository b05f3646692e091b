/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pops parked by a name that does not exist yet.  A new want looks into the
 * database once more after it can be found, so a name created meanwhile is
 * not missed; from then on memory is enough: a mark of a partition, or a
 * queue that appears in the catalogue.
 */
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "pop_int.h"

struct want_key {
	const struct qid *tenant;
	int64_t queue_id;
	struct span name;
};

static bool
want_is(const void *item, const void *key)
{
	const struct want *w = item;
	const struct want_key *k = key;

	return w->queue_id == k->queue_id && span_eq(w->name, k->name) &&
	       memcmp(&w->tenant, k->tenant, sizeof(w->tenant)) == 0;
}

static uint64_t
want_hash(int64_t queue_id, struct span name)
{
	return map_hash_span(name) ^ map_hash_i64(queue_id);
}

static void
want_free(struct want *w)
{
	struct want_key k = {
		.tenant = &w->tenant, .queue_id = w->queue_id, .name = w->name
	};

	map_take(&w->pops->wants, want_hash(w->queue_id, w->name), want_is, &k);
	if (w->queue)
		w->queue->wants--;
	free(w);
}

/* Frees it when nobody waits and nothing is being looked up. */
static void
want_ease(struct want *w)
{
	if (TAILQ_EMPTY(&w->waiters) && !w->looking)
		want_free(w);
}

/* All that wait go on; they may come back into a want of their own. */
static void
want_wake(struct want *w)
{
	struct pop_list woken = TAILQ_HEAD_INITIALIZER(woken);
	struct pop *pop;

	TAILQ_CONCAT(&woken, &w->waiters, link);
	TAILQ_FOREACH (pop, &woken, link)
		pop->want = NULL;
	want_ease(w);
	while ((pop = TAILQ_FIRST(&woken))) {
		TAILQ_REMOVE(&woken, pop, link);
		pop->state = POP_RESOLVING;
		pop_again(pop);
	}
}

static bool
want_found(const struct want *w)
{
	struct catalog *c = w->pops->x->catalog;

	if (!w->queue)
		return catalog_queue(c, &w->tenant, w->name) != NULL;
	return w->queue->gone || catalog_part(c, w->queue, w->name) != NULL;
}

static void want_look(struct want *w);

static void
on_looked(void *arg, const struct err *e)
{
	struct want *w = arg;

	w->looking = false;
	if (!e && want_found(w)) {
		want_wake(w);
		return;
	}
	/* a failure is made good by the tick */
	if (w->look_again && !e && !TAILQ_EMPTY(&w->waiters)) {
		want_look(w);
		return;
	}
	want_ease(w);
}

static void
want_look(struct want *w)
{
	struct catalog *c = w->pops->x->catalog;

	if (w->looking) {
		w->look_again = true;
		return;
	}
	w->looking = true;
	w->look_again = false;
	if (w->queue)
		catalog_load_parts(
			c, &w->queue, &w->name, 1, false, on_looked, w);
	else
		catalog_load_queues(
			c, &w->tenant, &w->name, 1, false, on_looked, w);
}

void
want_join(struct pop *pop, int64_t queue_id, struct span name)
{
	struct pops *p = pop->pops;
	struct want_key k = {
		.tenant = &pop->tenant, .queue_id = queue_id, .name = name
	};
	uint64_t hash = want_hash(queue_id, name);
	struct want *w = map_get(&p->wants, hash, want_is, &k);

	if (!w) {
		w = calloc(1, sizeof(*w) + name.n + 1);
		if (!w)
			abort();
		memcpy(w->text, name.p, name.n);
		w->name = span_make(w->text, name.n);
		w->queue_id = queue_id;
		w->queue = queue_id ? pop->queue : NULL;
		w->tenant = pop->tenant;
		w->pops = p;
		TAILQ_INIT(&w->waiters);
		map_put(&p->wants, hash, w);
		if (w->queue)
			w->queue->wants++;
	}
	pop->want = w;
	pop->state = POP_WANTING;
	TAILQ_INSERT_TAIL(&w->waiters, pop, link);
	pop_park(pop);
	want_look(w);
}

void
want_leave(struct pop *pop)
{
	struct want *w = pop->want;

	pop->want = NULL;
	pop->state = POP_RESOLVING;
	if (!w)
		return;
	TAILQ_REMOVE(&w->waiters, pop, link);
	want_ease(w);
}

static void
on_named(void *arg, const struct err *e)
{
	struct pops *p = arg;

	if (!e)
		want_check_queues(p);
}

void
want_marked(struct pops *p, struct cat_queue *q, int64_t part_id)
{
	if (!q->wants)
		return;
	struct cat_part *part = catalog_part_by_id(p->x->catalog, part_id);

	if (!part) {
		catalog_load_parts_by_id(
			p->x->catalog, &q->tenant, &part_id, 1, on_named, p);
		return;
	}
	struct want_key k = {
		.tenant = &q->tenant, .queue_id = q->id, .name = part->name
	};
	struct want *w =
		map_get(&p->wants, want_hash(q->id, part->name), want_is, &k);

	if (w)
		want_wake(w);
}

void
want_check_queues(struct pops *p)
{
	struct want **found = NULL;
	size_t at = 0, n = 0;
	struct want *w;

	if (!p->wants.count)
		return;
	found = malloc(p->wants.count * sizeof(struct want *));
	if (!found)
		abort();
	while ((w = map_next(&p->wants, &at)))
		if (!TAILQ_EMPTY(&w->waiters) && want_found(w))
			found[n++] = w;
	/* waking one only ends that one */
	for (size_t i = 0; i < n; i++)
		want_wake(found[i]);
	free(found);
}

void
want_free_all(struct pops *p)
{
	size_t at = 0;
	struct want *w;

	while ((w = map_next(&p->wants, &at)))
		free(w);
	map_fini(&p->wants);
}
