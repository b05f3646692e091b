/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of the catalogue.  Invariant: an entry is in its two tables or
 * marked gone and in the graveyard, where it stays readable for ten minutes.
 * This file never asks the database; catalog_load.c does.
 */
#include "catalog.h"

#include <stdlib.h>
#include <string.h>

#include "catalog_int.h"
#include "clk.h"

enum {
	CATALOG_GRAVE_MS = 600000,
	CATALOG_BURY_EVERY_MS = 60000,
	CATALOG_IDLE_MIN = 120,
	CATALOG_SWEEP = 20000, /* entries looked at each minute, of each kind */
};

struct catalog_grave {
	struct catalog_grave *next;
	int64_t free_at_ms;
	void *memory;
};

struct name_key {
	const struct qid *tenant; /* queues */
	int64_t queue_id; /* partitions and groups */
	struct span name;
};

static bool
queue_has_name(const void *item, const void *key)
{
	const struct cat_queue *q = item;
	const struct name_key *k = key;

	return memcmp(&q->tenant, k->tenant, sizeof(q->tenant)) == 0 &&
	       span_eq(q->name, k->name);
}

static bool
part_has_name(const void *item, const void *key)
{
	const struct cat_part *p = item;
	const struct name_key *k = key;

	return p->queue->id == k->queue_id && span_eq(p->name, k->name);
}

static bool
group_has_name(const void *item, const void *key)
{
	const struct cat_group *g = item;
	const struct name_key *k = key;

	return g->queue->id == k->queue_id && span_eq(g->name, k->name);
}

static uint64_t
hash_in_tenant(const struct qid *tenant, struct span name)
{
	int64_t part;

	memcpy(&part, tenant->b + 8, sizeof(part));
	return map_hash_span(name) ^ map_hash_i64(part);
}

static uint64_t
hash_in_queue(int64_t queue_id, struct span name)
{
	return map_hash_span(name) ^ map_hash_i64(queue_id);
}

/* ---- memory ---- */

/* Copies s behind *at, which moves on. */
static struct span
copy_to(char **at, struct span s)
{
	struct span out = { .p = *at, .n = s.n };

	if (s.n)
		memcpy(*at, s.p, s.n);
	*at += s.n;
	return out;
}

static void *
entry_new(struct catalog *c, size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p)
		abort();
	c->bytes += bytes;
	return p;
}

static void
entry_bury(struct catalog *c, void *memory)
{
	struct catalog_grave *g = entry_new(c, sizeof(*g));

	c->bytes -= sizeof(*g);
	g->memory = memory;
	g->free_at_ms = clk_mono_ms() + CATALOG_GRAVE_MS;
	*c->graves_end = g;
	c->graves_end = &g->next;
}

static void
free_graves(struct catalog *c, int64_t now_ms)
{
	struct catalog_grave *g;

	while ((g = c->graves) && g->free_at_ms <= now_ms) {
		c->graves = g->next;
		free(g->memory);
		free(g);
	}
	if (!c->graves)
		c->graves_end = &c->graves;
}

/* The next entries from *at on for which idle says so; freed by the caller. */
static int64_t *
next_idle(const struct catalog *c, const struct map *m, size_t *at,
	bool (*idle)(const struct catalog *, const void *), size_t *n)
{
	int64_t *ids = malloc(CATALOG_SWEEP * sizeof(*ids));
	const void *item;

	if (!ids)
		abort();
	*n = 0;
	for (int i = 0; i < CATALOG_SWEEP && (item = map_next(m, at)); i++)
		if (idle(c, item))
			ids[(*n)++] = *(const int64_t *)item;
	if (*at >= m->cap)
		*at = 0;
	return ids;
}

static bool
part_is_idle(const struct catalog *c, const void *item)
{
	const struct cat_part *p = item;

	return c->minute - p->used_min > CATALOG_IDLE_MIN;
}

static bool
group_is_idle(const struct catalog *c, const void *item)
{
	const struct cat_group *g = item;

	return !g->ring && c->minute - g->used_min > CATALOG_IDLE_MIN;
}

/* Names are the clients' choice; what they no longer use must not add up. */
static void
sweep(struct catalog *c)
{
	size_t n;
	int64_t *ids =
		next_idle(c, &c->parts_by_id, &c->parts_at, part_is_idle, &n);

	for (size_t i = 0; i < n; i++)
		catalog_forget_part(c, ids[i]);
	free(ids);
	ids = next_idle(c, &c->groups_by_id, &c->groups_at, group_is_idle, &n);
	for (size_t i = 0; i < n; i++)
		catalog_forget_group(c, ids[i]);
	free(ids);
}

static void
on_bury_timer(void *arg)
{
	struct catalog *c = arg;

	c->minute++;
	sweep(c);
	free_graves(c, clk_mono_ms());
	loop_timer_start(&c->bury_timer, CATALOG_BURY_EVERY_MS);
}

struct catalog *
catalog_new(struct ctx *x)
{
	struct catalog *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->x = x;
	c->graves_end = &c->graves;
	loop_timer_init(&c->bury_timer, x->loop, on_bury_timer, c);
	loop_timer_start(&c->bury_timer, CATALOG_BURY_EVERY_MS);
	catalog_load_init(c);
	return c;
}

static void
free_all(struct map *by_id, struct map *by_name)
{
	size_t at = 0;
	void *item;

	while ((item = map_next(by_id, &at)))
		free(item);
	map_fini(by_id);
	map_fini(by_name);
}

void
catalog_free(struct catalog *c)
{
	if (!c)
		return;
	catalog_load_fini(c);
	loop_timer_fini(&c->bury_timer);
	free_graves(c, INT64_MAX);
	size_t at = 0;
	struct cat_queue *q;

	while ((q = map_next(&c->queues_by_id, &at)))
		free(q->labels);
	free_all(&c->groups_by_id, &c->groups_by_name);
	free_all(&c->parts_by_id, &c->parts_by_name);
	free_all(&c->queues_by_id, &c->queues_by_name);
	free(c);
}

/* ---- look-ups ---- */

static struct cat_part *
used_part(const struct catalog *c, struct cat_part *p)
{
	if (p)
		p->used_min = c->minute;
	return p;
}

static struct cat_group *
used_group(const struct catalog *c, struct cat_group *g)
{
	if (g)
		g->used_min = c->minute;
	return g;
}

struct cat_queue *
catalog_queue(struct catalog *c, const struct qid *tenant, struct span name)
{
	struct name_key k = { .tenant = tenant, .name = name };

	return map_get(&c->queues_by_name, hash_in_tenant(tenant, name),
		queue_has_name, &k);
}

struct cat_queue *
catalog_queue_by_id(struct catalog *c, int64_t id)
{
	return map_get(&c->queues_by_id, map_hash_i64(id), map_is_i64, &id);
}

struct cat_part *
catalog_part(struct catalog *c, const struct cat_queue *q, struct span name)
{
	struct name_key k = { .queue_id = q->id, .name = name };

	return used_part(
		c, map_get(&c->parts_by_name, hash_in_queue(q->id, name),
			   part_has_name, &k));
}

struct cat_part *
catalog_part_by_id(struct catalog *c, int64_t id)
{
	return used_part(
		c, map_get(&c->parts_by_id, map_hash_i64(id), map_is_i64, &id));
}

struct cat_part *
catalog_part_of(struct catalog *c, const struct qid *tenant, int64_t id)
{
	struct cat_part *p = catalog_part_by_id(c, id);

	return p && memcmp(&p->queue->tenant, tenant, sizeof(*tenant)) == 0
		       ? p
		       : NULL;
}

struct cat_group *
catalog_group(struct catalog *c, const struct cat_queue *q, struct span name)
{
	struct name_key k = { .queue_id = q->id, .name = name };

	return used_group(
		c, map_get(&c->groups_by_name, hash_in_queue(q->id, name),
			   group_has_name, &k));
}

struct cat_group *
catalog_group_by_id(struct catalog *c, int64_t id)
{
	return used_group(c,
		map_get(&c->groups_by_id, map_hash_i64(id), map_is_i64, &id));
}

void
catalog_match(struct catalog *c, const struct qid *tenant,
	struct span namespace_name, struct span task,
	void (*fn)(void *arg, struct cat_queue *q), void *arg)
{
	size_t at = 0;
	struct cat_queue *q;

	while ((q = map_next(&c->queues_by_id, &at))) {
		if (memcmp(&q->tenant, tenant, sizeof(*tenant)) != 0)
			continue;
		if (namespace_name.n &&
			!span_eq(namespace_name, q->namespace_name))
			continue;
		if (task.n && !span_eq(task, q->task))
			continue;
		fn(arg, q);
	}
}

void
catalog_stats(const struct catalog *c, struct catalog_stats *out)
{
	*out = (struct catalog_stats){
		.queues = c->queues_by_id.count,
		.parts = c->parts_by_id.count,
		.groups = c->groups_by_id.count,
		.bytes = c->bytes,
	};
}

/* ---- changes ---- */

static void
set_labels(struct catalog *c, struct cat_queue *q,
	const struct catalog_queue_row *row)
{
	if (span_eq(q->namespace_name, row->namespace_name) &&
		span_eq(q->task, row->task))
		return;
	/* the old text may be in use by a request: it is never freed early */
	size_t bytes = row->namespace_name.n + row->task.n + 1;
	char *p = entry_new(c, bytes);

	c->bytes -= bytes;
	if (q->labels)
		entry_bury(c, q->labels);
	q->labels = p;
	q->namespace_name = copy_to(&p, row->namespace_name);
	q->task = copy_to(&p, row->task);
}

struct cat_queue *
catalog_put_queue(struct catalog *c, const struct catalog_queue_row *row)
{
	struct cat_queue *q = catalog_queue_by_id(c, row->id);

	if (q && !(memcmp(&q->tenant, &row->tenant, sizeof(q->tenant)) == 0 &&
			 span_eq(q->name, row->name))) {
		catalog_forget_queue(c, row->id);
		q = NULL;
	}
	if (!q) {
		struct cat_queue *old =
			catalog_queue(c, &row->tenant, row->name);

		if (old && old->id > row->id)
			return old; /* a late row of a former namesake */
		if (old)
			catalog_forget_queue(c, old->id);
		q = entry_new(c, sizeof(*q) + row->name.n);
		char *p = (char *)(q + 1);

		q->id = row->id;
		q->tenant = row->tenant;
		q->name = copy_to(&p, row->name);
		map_put(&c->queues_by_id, map_hash_i64(q->id), q);
		map_put(&c->queues_by_name, hash_in_tenant(&q->tenant, q->name),
			q);
	} else if (row->changed_at_us < q->changed_at_us) {
		return q;
	}
	set_labels(c, q, row);
	q->lease_time_s = row->lease_time_s;
	q->delayed_processing_s = row->delayed_processing_s;
	q->window_buffer_s = row->window_buffer_s;
	q->min_pop_wait_ms = row->min_pop_wait_ms;
	q->dedup_window_s = row->dedup_window_s;
	q->encrypted = row->encrypted;
	q->changed_at_us = row->changed_at_us;
	return q;
}

struct cat_part *
catalog_put_part(
	struct catalog *c, struct cat_queue *q, int64_t id, struct span name)
{
	struct cat_part *p = catalog_part_by_id(c, id);

	if (p && p->queue == q && span_eq(p->name, name))
		return p;
	/* of another name: the database went back and gave the id again */
	if (p)
		catalog_forget_part(c, id);
	p = catalog_part(c, q, name);
	if (p)
		catalog_forget_part(c, p->id);
	p = entry_new(c, sizeof(*p) + name.n);
	char *at = (char *)(p + 1);

	p->id = id;
	p->queue = q;
	p->name = copy_to(&at, name);
	p->used_min = c->minute;
	map_put(&c->parts_by_id, map_hash_i64(id), p);
	map_put(&c->parts_by_name, hash_in_queue(q->id, name), p);
	return p;
}

struct cat_group *
catalog_put_group(struct catalog *c, struct cat_queue *q, int64_t id,
	struct span name, bool conflated)
{
	struct cat_group *g = catalog_group_by_id(c, id);

	if (g && g->queue == q && span_eq(g->name, name))
		return g;
	if (g)
		catalog_forget_group(c, id);
	g = catalog_group(c, q, name);
	if (g)
		catalog_forget_group(c, g->id);
	g = entry_new(c, sizeof(*g) + name.n);
	char *at = (char *)(g + 1);

	g->id = id;
	g->queue = q;
	g->name = copy_to(&at, name);
	g->conflated = conflated;
	g->used_min = c->minute;
	map_put(&c->groups_by_id, map_hash_i64(id), g);
	map_put(&c->groups_by_name, hash_in_queue(q->id, name), g);
	return g;
}

void
catalog_forget_part(struct catalog *c, int64_t id)
{
	struct cat_part *p =
		map_take(&c->parts_by_id, map_hash_i64(id), map_is_i64, &id);

	if (!p)
		return;
	struct name_key k = { .queue_id = p->queue->id, .name = p->name };

	map_take(&c->parts_by_name, hash_in_queue(p->queue->id, p->name),
		part_has_name, &k);
	c->bytes -= sizeof(*p) + p->name.n;
	entry_bury(c, p);
}

void
catalog_forget_group(struct catalog *c, int64_t id)
{
	struct cat_group *g =
		map_take(&c->groups_by_id, map_hash_i64(id), map_is_i64, &id);

	if (!g)
		return;
	struct name_key k = { .queue_id = g->queue->id, .name = g->name };

	map_take(&c->groups_by_name, hash_in_queue(g->queue->id, g->name),
		group_has_name, &k);
	g->gone = true;
	c->bytes -= sizeof(*g) + g->name.n;
	entry_bury(c, g);
}

/* Ids of what belongs to a queue; freed by the caller. */
static int64_t *
members_of(
	const struct map *m, const struct cat_queue *q, bool parts, size_t *n)
{
	int64_t *ids = malloc((m->count + 1) * sizeof(*ids));
	size_t at = 0;
	void *item;

	if (!ids)
		abort();
	*n = 0;
	while ((item = map_next(m, &at))) {
		const struct cat_part *p = item;
		const struct cat_group *g = item;

		if (parts ? p->queue == q : g->queue == q)
			ids[(*n)++] = parts ? p->id : g->id;
	}
	return ids;
}

void
catalog_forget_queue(struct catalog *c, int64_t id)
{
	struct cat_queue *q =
		map_take(&c->queues_by_id, map_hash_i64(id), map_is_i64, &id);

	if (!q)
		return;
	struct name_key k = { .tenant = &q->tenant, .name = q->name };
	size_t n;

	map_take(&c->queues_by_name, hash_in_tenant(&q->tenant, q->name),
		queue_has_name, &k);
	q->gone = true;
	int64_t *ids = members_of(&c->parts_by_id, q, true, &n);

	for (size_t i = 0; i < n; i++)
		catalog_forget_part(c, ids[i]);
	free(ids);
	ids = members_of(&c->groups_by_id, q, false, &n);
	for (size_t i = 0; i < n; i++)
		catalog_forget_group(c, ids[i]);
	free(ids);
	if (q->labels)
		entry_bury(c, q->labels);
	c->bytes -= sizeof(*q) + q->name.n;
	entry_bury(c, q);
}
