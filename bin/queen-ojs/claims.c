/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row per queue under its tenant and name, found by its id too.  Ranks are
 * few (201 at most), so they are looked through.
 */
#include "claims.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "map.h"

enum { LOOK_MS = 1000, FORGET_MS = 10 * 60 * 1000, SWEEP_MS = 60 * 1000 };

struct last {
	int rank;
	int64_t enqueued_us, seq;
};

struct row {
	int64_t id; /* key of by_id */
	struct qid tenant;
	char *text; /* the name */
	struct span name;
	int64_t used_ms;
	int64_t looked_ms; /* from the start */
	struct last *lasts;
	size_t n, cap;
};

struct claims {
	struct map by_name, by_id;
	int64_t swept_ms;
};

struct key {
	const struct qid *tenant;
	struct span name;
};

static bool
is_named(const void *item, const void *key)
{
	const struct row *r = item;
	const struct key *k = key;

	return span_eq(r->name, k->name) &&
	       memcmp(&r->tenant, k->tenant, sizeof(r->tenant)) == 0;
}

static uint64_t
name_hash(const struct qid *tenant, struct span name)
{
	return map_hash_span(span_make(tenant->b, sizeof(tenant->b))) * 31 +
	       map_hash_span(name);
}

static struct row *
row_named(const struct claims *c, const struct qid *tenant, struct span name)
{
	struct key k = { .tenant = tenant, .name = name };

	return map_get(&c->by_name, name_hash(tenant, name), is_named, &k);
}

static struct row *
row_of(const struct claims *c, int64_t id)
{
	return map_get(&c->by_id, map_hash_i64(id), map_is_i64, &id);
}

static void
row_free(struct row *r)
{
	free(r->text);
	free(r->lasts);
	free(r);
}

static void
forget(struct claims *c, struct row *r)
{
	struct key k = { .tenant = &r->tenant, .name = r->name };

	map_take(&c->by_name, name_hash(&r->tenant, r->name), is_named, &k);
	map_take(&c->by_id, map_hash_i64(r->id), map_is_i64, &r->id);
	row_free(r);
}

struct claims *
claims_new(void)
{
	struct claims *c = calloc(1, sizeof(*c));

	BUG(!c);
	return c;
}

void
claims_free(struct claims *c)
{
	struct row *r;
	size_t at = 0;

	if (!c)
		return;
	while ((r = map_next(&c->by_id, &at)))
		row_free(r);
	map_fini(&c->by_name);
	map_fini(&c->by_id);
	free(c);
}

/* ---- what is remembered ---- */

struct pick {
	int64_t queue_id;
	const struct last *last;
};

/* Room for all that may be picked. */
static struct pick *
picks_new(const struct claims *c, const struct qid *tenant,
	const struct span *queues, size_t n)
{
	struct pick *picks;
	size_t room = 1;

	for (size_t i = 0; i < n; i++) {
		const struct row *r = row_named(c, tenant, queues[i]);

		room += r ? r->n : 0;
	}
	picks = calloc(room, sizeof(*picks));
	BUG(!picks);
	return picks;
}

static size_t
pick_lasts(struct claims *c, const struct qid *tenant,
	const struct span *queues, size_t n, int64_t now_ms, struct pick *picks)
{
	size_t picks_n = 0;

	for (size_t i = 0; i < n; i++) {
		struct row *r = row_named(c, tenant, queues[i]);

		if (!r || !r->n)
			continue;
		if (now_ms - r->looked_ms >= LOOK_MS) {
			r->looked_ms = now_ms;
			continue;
		}
		for (size_t k = 0; k < r->n; k++)
			picks[picks_n++] = (struct pick){ r->id, &r->lasts[k] };
	}
	return picks_n;
}

void
claims_args(struct claims *c, struct pgargs *a, const struct qid *tenant,
	const struct span *queues, size_t n, int64_t now_ms)
{
	struct pick *picks = picks_new(c, tenant, queues, n);
	size_t m = pick_lasts(c, tenant, queues, n, now_ms, picks);

	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < m; i++)
		pgargs_item_i64(a, picks[i].queue_id);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I16);
	for (size_t i = 0; i < m; i++)
		pgargs_item_i16(a, (int16_t)picks[i].last->rank);
	pgargs_close(a);
	pgargs_array(a, PGARGS_TIMESTAMPTZ);
	for (size_t i = 0; i < m; i++)
		pgargs_item_time(a, picks[i].last->enqueued_us);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < m; i++)
		pgargs_item_i64(a, picks[i].last->seq);
	pgargs_close(a);
	free(picks);
}

/* ---- learning ---- */

static void
learn(struct claims *c, const struct qid *tenant, struct span name, int64_t id,
	int64_t now_ms)
{
	struct row *r = calloc(1, sizeof(*r));
	char *text = malloc(name.n ? name.n : 1);

	BUG(!r || !text);
	memcpy(text, name.p, name.n);
	r->id = id;
	r->tenant = *tenant;
	r->text = text;
	r->name = span_make(text, name.n);
	r->used_ms = r->looked_ms = now_ms;
	map_put(&c->by_name, name_hash(tenant, name), r);
	map_put(&c->by_id, map_hash_i64(id), r);
}

/* What is there is walked before anything is taken out. */
static void
sweep(struct claims *c, int64_t now_ms)
{
	struct row **old = calloc(c->by_id.count + 1, sizeof(struct row *));
	struct row *r;
	size_t at = 0, n = 0;

	BUG(!old);
	while ((r = map_next(&c->by_id, &at)))
		if (now_ms - r->used_ms >= FORGET_MS)
			old[n++] = r;
	while (n > 0)
		forget(c, old[--n]);
	free(old);
	c->swept_ms = now_ms;
}

void
claims_queue(struct claims *c, const struct qid *tenant, struct span queue,
	int64_t id, int64_t now_ms)
{
	struct row *r = row_named(c, tenant, queue);

	if (now_ms - c->swept_ms >= SWEEP_MS) {
		if (r)
			r->used_ms = now_ms;
		sweep(c, now_ms);
	}
	if (r && r->id == id) {
		r->used_ms = now_ms;
		return;
	}
	if (r)
		forget(c, r);
	if (id)
		learn(c, tenant, queue, id, now_ms);
}

int64_t
claims_queue_id(
	const struct claims *c, const struct qid *tenant, struct span queue)
{
	const struct row *r = row_named(c, tenant, queue);

	return r ? r->id : 0;
}

void
claims_took(struct claims *c, int64_t queue_id, int rank, int64_t enqueued_us,
	int64_t seq)
{
	struct last last = { rank, enqueued_us, seq };
	struct row *r = row_of(c, queue_id);
	size_t i = 0;

	if (!r)
		return;
	while (i < r->n && r->lasts[i].rank != rank)
		i++;
	if (i == r->n && r->n++ == r->cap) {
		struct last *more;

		r->cap = r->cap ? r->cap * 2 : 4;
		more = reallocarray(r->lasts, r->cap, sizeof(*more));
		BUG(!more);
		r->lasts = more;
	}
	r->lasts[i] = last;
}

void
claims_reset(struct claims *c, int64_t queue_id)
{
	struct row *r = row_of(c, queue_id);

	if (r)
		r->n = 0;
}
