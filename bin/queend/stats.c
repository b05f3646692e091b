/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of computed answers.  Invariant: an entry is in the table from its
 * first question until it is evicted; while its call is in flight it collects
 * waiters and cannot be evicted.
 */
#include "stats.h"

#include <stdlib.h>
#include <string.h>

#include "admin.h"
#include "arena.h"
#include "buf.h"
#include "clk.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "hsrv.h"
#include "loop.h"
#include "map.h"
#include "pgpool.h"
#include "settings.h"

enum {
	STATS_ENTRIES_MAX = 64,
	STATS_COST_FACTOR = 20,
	STATS_KEEP_MAX_BYTES = 1 << 20, /* larger bodies are not kept */
	STATS_LIVE_FROM_MS = 200, /* cheaper answers are always live */
};

/* How PostgreSQL ends an object whose last member is the age. */
#define STATS_AGE_TAIL "\"statsAge\" : 0}"

struct stats_waiter {
	struct stats_waiter *next;
	struct hsrv_req *r;
};

struct stats_entry {
	struct stats *owner;
	const struct pgstmt *stmt;
	struct buf args; /* the arguments, as sent */
	enum stats_kind kind;
	const char *op;
	struct buf body;
	int status;
	int64_t computed_ms, fresh_until_ms, asked_ms;
	bool flying, doomed; /* doomed: forgotten while in flight */
	struct stats_waiter *waiters, **waiters_end;
};

struct stats {
	struct ctx *x;
	struct map entries;
};

struct stats_key {
	const struct pgstmt *stmt;
	struct span args;
};

static bool
is_entry(const void *item, const void *key)
{
	const struct stats_entry *e = item;
	const struct stats_key *k = key;

	return e->stmt == k->stmt && span_eq(buf_span(&e->args), k->args);
}

static uint64_t
key_hash(const struct stats_key *k)
{
	return map_hash_span(k->args) ^ map_hash_span(span_of(k->stmt->name));
}

/* The arguments as one string of bytes: values with their lengths. */
static void
flatten(const struct pgargs *a, struct buf *out)
{
	for (int i = 0; i < a->n; i++) {
		int64_t n = a->null[i] ? -1 : (int64_t)a->len[i];

		buf_put(out, &n, sizeof(n));
		if (n > 0)
			buf_put(out, a->data.p + a->at[i], a->len[i]);
	}
}

struct stats *
stats_new(struct ctx *x)
{
	struct stats *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->x = x;
	return s;
}

static void
entry_free(struct stats_entry *e)
{
	buf_fini(&e->args);
	buf_fini(&e->body);
	free(e);
}

void
stats_free(struct stats *s)
{
	size_t at = 0;
	struct stats_entry *e;

	if (!s)
		return;
	while ((e = map_next(&s->entries, &at)))
		entry_free(e);
	map_fini(&s->entries);
	free(s);
}

static void
entry_remove(struct stats *s, struct stats_entry *e)
{
	struct stats_key k = { e->stmt, buf_span(&e->args) };

	map_take(&s->entries, key_hash(&k), is_entry, &k);
}

/* Makes room: the entry nobody asked for the longest goes. */
static void
evict_one(struct stats *s)
{
	struct stats_entry *e, *oldest = NULL;
	size_t at = 0;

	while ((e = map_next(&s->entries, &at)))
		if (!e->flying && (!oldest || e->asked_ms < oldest->asked_ms))
			oldest = e;
	if (!oldest)
		return;
	entry_remove(s, oldest);
	entry_free(oldest);
}

static void
answer(struct stats_entry *e, struct hsrv_req *r, int64_t now_ms)
{
	int64_t age_s = (now_ms - e->computed_ms) / 1000;
	struct span body = buf_span(&e->body);
	struct span tail = SPAN_LIT(STATS_AGE_TAIL);

	if (age_s > 0 && body.n > tail.n &&
		span_eq(span_make(body.p + body.n - tail.n, tail.n), tail)) {
		body.n -= 2; /* the 0 and the brace */
		buf_put_span(hsrv_out(r), body);
		buf_printf(hsrv_out(r), "%lld}", (long long)age_s);
	} else {
		buf_put_span(hsrv_out(r), body);
	}
	hsrv_add_header(r, "Age",
		arena_printf(hsrv_arena(r), "%lld%c", (long long)age_s, '\0')
			.p);
	hsrv_reply(r, e->status);
}

static void
set_lifetime(struct stats_entry *e, int64_t took_ms)
{
	const struct settings *conf = e->owner->x->conf;
	int64_t keep_ms = took_ms * STATS_COST_FACTOR;

	if (e->kind == STATS_LIVE && took_ms < STATS_LIVE_FROM_MS)
		keep_ms = 0;
	if (e->kind == STATS_SUMMARY && keep_ms < conf->stats_interval_ms)
		keep_ms = conf->stats_interval_ms;
	if (e->kind == STATS_SIZES &&
		keep_ms < conf->retained_bytes_interval_ms)
		keep_ms = conf->retained_bytes_interval_ms;
	e->fresh_until_ms = e->computed_ms + keep_ms;
}

static void
on_computed(void *arg, const PGresult *res, const struct err *err)
{
	struct stats_entry *e = arg;
	struct stats *s = e->owner;
	struct stats_waiter *w = e->waiters, *next;
	int64_t now_ms = clk_mono_ms();

	e->flying = false;
	e->waiters = NULL;
	if (err) {
		count_db_error(s->x);
	} else {
		buf_reset(&e->body);
		e->status = pgbin_i32(res, 0, 0);
		buf_put_span(&e->body, pgbin_bytes(res, 0, 1));
		set_lifetime(e, now_ms - e->computed_ms);
		e->computed_ms = now_ms;
		if (e->status != 200)
			e->fresh_until_ms = 0;
	}
	for (; w; w = next) {
		next = w->next; /* the reply may free the waiter's arena */
		if (!err)
			answer(e, w->r, now_ms);
		else
			admin_fail(w->r, e->op, err);
	}
	if (err || e->doomed || e->fresh_until_ms <= now_ms ||
		e->body.len > STATS_KEEP_MAX_BYTES) {
		if (!e->doomed)
			entry_remove(s, e);
		entry_free(e);
	}
}

static struct stats_entry *
entry_of(struct stats *s, enum stats_kind kind, const struct pgstmt *stmt,
	const struct pgargs *a, const char *op)
{
	struct buf flat = BUF_ZERO;

	flatten(a, &flat);
	struct stats_key k = { stmt, buf_span(&flat) };
	struct stats_entry *e =
		map_get(&s->entries, key_hash(&k), is_entry, &k);

	if (e) {
		buf_fini(&flat);
		return e;
	}
	if (s->entries.count >= STATS_ENTRIES_MAX)
		evict_one(s);
	e = calloc(1, sizeof(*e));
	if (!e)
		abort();
	e->owner = s;
	e->kind = kind;
	e->stmt = stmt;
	e->op = op;
	e->args = flat;
	map_put(&s->entries, key_hash(&k), e);
	return e;
}

void
stats_pass(struct hsrv_req *r, enum stats_kind kind, const struct pgstmt *stmt,
	struct pgargs *a, const char *op)
{
	struct stats *s = ctx_of(r)->stats;
	struct stats_entry *e = entry_of(s, kind, stmt, a, op);
	int64_t now_ms = clk_mono_ms();

	e->asked_ms = now_ms;
	if (!e->flying && now_ms < e->fresh_until_ms) {
		pgargs_fini(a);
		answer(e, r, now_ms);
		return;
	}
	struct stats_waiter *w = arena_alloc(hsrv_arena(r), sizeof(*w));

	*w = (struct stats_waiter){ .r = r };
	if (!e->waiters)
		e->waiters_end = &e->waiters;
	*e->waiters_end = w;
	e->waiters_end = &w->next;
	if (e->flying) {
		pgargs_fini(a);
		return;
	}
	e->flying = true;
	e->computed_ms = now_ms; /* start of the computation, until it ends */
	pgpool_call(s->x->pool, LANE_REST, stmt, a, on_computed, e);
}

void
stats_forget(struct ctx *x)
{
	struct stats *s = x->stats;
	struct map old = s->entries;
	struct stats_entry *e;
	size_t at = 0;

	s->entries = (struct map)MAP_ZERO;
	while ((e = map_next(&old, &at))) {
		if (e->flying)
			e->doomed = true;
		else
			entry_free(e);
	}
	map_fini(&old);
}
