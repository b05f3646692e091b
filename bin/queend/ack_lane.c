/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coalesced ack calls; see ack_lane.h.  Invariant: a key is in the ready list
 * exactly when it has jobs and none of them is in flight.
 */
#include "ack_lane.h"

#include <stdlib.h>
#include <string.h>

#include "ack.h"
#include "ack_job.h"
#include "announce.h"
#include "catalog.h"
#include "clk.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "loop.h"
#include "map.h"
#include "pgpool.h"

enum { CALL_JOBS_MAX = 64, CALL_ITEMS_MAX = 65536, FAULTS_MAX = 2 };

static const struct pgstmt STMT_ACK = { "ack",
	"select ord, verdict, dead, dropped, conflated, more, off, base, blob, "
	"items from queen.ack_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
	"$11, $12, $13, $14, $15, $16)" };
enum { COL_ORD, COL_VERDICT };
static const struct ack_cols COLS = { .dead = 2,
	.dropped = 3,
	.conflated = 4,
	.more = 5,
	.off = 6,
	.base = 7,
	.blob = 8,
	.items = 9 };

/* A (group, partition) with acks to do. */
struct key {
	int64_t group_id, part_id;
	struct ack_job *first, **last;
	bool flying;
	struct key *next_ready;
};

struct acks {
	struct ctx *x;
	struct map keys;
	struct key *ready, **ready_last;
	int calls;
	bool pumping;
};

struct call {
	struct acks *acks;
	size_t n;
	int64_t sent_us;
	struct ack_job *jobs[CALL_JOBS_MAX];
};

static void pump_later(struct acks *k);

static void
on_idle(void *arg, int lane)
{
	(void)lane;
	pump_later(arg);
}

struct acks *
acks_new(struct ctx *x)
{
	struct acks *k = calloc(1, sizeof(*k));

	if (!k)
		abort();
	k->x = x;
	k->ready_last = &k->ready;
	pgpool_on_idle(x->pool, LANE_ACK, on_idle, k);
	return k;
}

void
acks_free(struct acks *k)
{
	struct key *y;
	size_t at = 0;

	if (!k)
		return;
	while ((y = map_next(&k->keys, &at)))
		free(y);
	map_fini(&k->keys);
	free(k);
}

/* ---- keys ---- */

static bool
is_key(const void *item, const void *key)
{
	const struct key *a = item, *b = key;

	return a->group_id == b->group_id && a->part_id == b->part_id;
}

static uint64_t
hash_of(const struct key *y)
{
	return map_hash_i64(y->part_id) ^ map_hash_i64(~y->group_id);
}

static struct key *
key_of(struct acks *k, const struct ack_job *j)
{
	struct key want = { .group_id = j->group_id, .part_id = j->part_id };
	struct key *y = map_get(&k->keys, hash_of(&want), is_key, &want);

	if (y)
		return y;
	y = calloc(1, sizeof(*y));
	if (!y)
		abort();
	y->group_id = j->group_id;
	y->part_id = j->part_id;
	y->last = &y->first;
	map_put(&k->keys, hash_of(y), y);
	return y;
}

static void
make_ready(struct acks *k, struct key *y)
{
	y->next_ready = NULL;
	*k->ready_last = y;
	k->ready_last = &y->next_ready;
	pump_later(k);
}

void
ack_lane_add(struct acks *k, struct ack_job *j)
{
	j->acks = k;

	struct key *y = key_of(k, j);
	bool was_idle = !y->first && !y->flying;

	j->next = NULL;
	*y->last = j;
	y->last = &j->next;
	if (was_idle)
		make_ready(k, y);
}

/* Puts a job in front again: the next call repeats it. */
static void
again(struct acks *k, struct ack_job *j)
{
	struct key *y = key_of(k, j);

	j->next = y->first;
	if (!y->first)
		y->last = &j->next;
	y->first = j;
	y->flying = false;
	make_ready(k, y);
}

/* The flight of a key is over. */
static void
settle(struct acks *k, struct ack_job *j)
{
	struct key *y = key_of(k, j);

	y->flying = false;
	if (y->first) {
		make_ready(k, y);
		return;
	}
	map_take(&k->keys, hash_of(y), is_key, y);
	free(y);
}

static void
finish(struct acks *k, struct ack_job *j)
{
	settle(k, j);
	j->done(j);
}

/* ---- group gone ---- */

static void
on_group(void *arg, const struct err *e)
{
	struct ack_job *j = arg;
	struct acks *k = j->acks;
	struct cat_group *g = e ? NULL
				: catalog_group(k->x->catalog, j->part->queue,
					  j->group->name);

	if (!g) {
		ack_job_fail(j, e ? ack_job_failed : ack_job_no_consumer);
		j->done(j);
		return;
	}
	j->group = g;
	j->group_id = g->id;
	ack_lane_add(k, j);
}

/* A seek of the whole queue gave the group another id; once is enough. */
static void
renew(struct acks *k, struct ack_job *j)
{
	catalog_forget_group(k->x->catalog, j->group_id);
	if (j->renewed) {
		ack_job_fail(j, ack_job_no_consumer);
		finish(k, j);
		return;
	}
	j->renewed = true;
	settle(k, j);
	catalog_load_groups(k->x->catalog, &j->part->queue, &j->group->name, 1,
		on_group, j);
}

/* ---- answers ---- */

static void
on_row(struct acks *k, struct ack_job *j, const PGresult *res, int row)
{
	enum ack_verdict v = (enum ack_verdict)pgbin_i32(res, row, COL_VERDICT);

	switch (v) {
	case ACK_GONE:
		renew(k, j);
		return;
	case ACK_NEEDS_FRAME:
		if (ack_job_cut(k->x, j, res, row, &COLS)) {
			again(k, j);
			return;
		}
		ack_job_fail(j, ack_job_failed);
		break;
	case ACK_RELEASED:
		if (pgbin_bool(res, row, COLS.more))
			announce_released(k->x, j->part->queue->id, j->group_id,
				j->part_id);
		else
			announce_done(k->x, j->part->queue->id, j->group_id,
				j->part_id, j->leased ? j->lease.number : 0);
		/* fall through */
	case ACK_KEPT:
	case ACK_NO_CONSUMER:
	case ACK_STALE:
		ack_job_read(j, v, res, row, &COLS);
		break;
	default:
		ack_job_fail(j, ack_job_failed);
	}
	finish(k, j);
}

static void
on_failure(struct call *c, const struct err *e)
{
	struct acks *k = c->acks;
	bool victim = pgpool_was_victim(e), no_pool = pgpool_had_none(e);

	count_db_error(k->x);
	for (size_t i = 0; i < c->n; i++) {
		struct ack_job *j = c->jobs[i];

		if (victim && j->faults++ < FAULTS_MAX) {
			again(k, j);
			continue;
		}
		ack_job_fail(j, no_pool ? ack_job_pool : ack_job_failed);
		/* it may have ended the lease, and nobody would say so */
		if (e->kind == ERR_DB_UNKNOWN)
			announce_released(k->x, j->part->queue->id, j->group_id,
				j->part_id);
		finish(k, j);
	}
}

static void
on_answer(void *arg, const PGresult *res, const struct err *e)
{
	struct call *c = arg;
	struct acks *k = c->acks;
	bool seen[CALL_JOBS_MAX] = { false };
	size_t items = 0;

	k->calls--;
	if (e) {
		on_failure(c, e);
		goto out;
	}
	for (size_t i = 0; i < c->n; i++)
		items += c->jobs[i]->n;
	count_batch(k->x, COUNT_ACK, (int)c->n, (int)items,
		clk_mono_us() - c->sent_us);
	for (int i = 0; i < PQntuples(res); i++) {
		size_t at = (size_t)pgbin_i32(res, i, COL_ORD) - 1;

		BUG(at >= c->n || seen[at]);
		seen[at] = true;
		on_row(k, c->jobs[at], res, i);
	}
	for (size_t i = 0; i < c->n; i++) {
		if (seen[i])
			continue;
		ack_job_fail(c->jobs[i], ack_job_failed);
		finish(k, c->jobs[i]);
	}
out:
	free(c);
	pump_later(k);
}

/* ---- firing ---- */

static void
fire(struct acks *k)
{
	struct call *c = calloc(1, sizeof(*c));
	const struct qid *tenant = NULL;
	struct key **link = &k->ready, *y;
	size_t items = 0;
	struct pgargs a;

	if (!c)
		abort();
	c->acks = k;
	c->sent_us = clk_mono_us();
	while ((y = *link) && c->n < CALL_JOBS_MAX && items < CALL_ITEMS_MAX) {
		struct ack_job *j = y->first;
		const struct qid *of = &j->part->queue->tenant;

		if (tenant && memcmp(tenant, of, sizeof(*of)) != 0) {
			link = &y->next_ready;
			continue;
		}
		tenant = of;
		*link = y->next_ready;
		y->first = j->next;
		if (!y->first)
			y->last = &y->first;
		y->flying = true;
		items += j->n;
		c->jobs[c->n++] = j;
	}
	if (!*link)
		k->ready_last = link;
	BUG(c->n == 0);
	qsort(c->jobs, c->n, sizeof(struct ack_job *), ack_job_cmp);
	pgargs_init(&a);
	pgargs_uuid(&a, tenant);
	ack_job_args(&a, c->jobs, c->n);
	k->calls++;
	pgpool_call(k->x->pool, LANE_ACK, &STMT_ACK, &a, on_answer, c);
}

static void
pump(void *arg)
{
	struct acks *k = arg;
	int idle = pgpool_idle(k->x->pool, LANE_ACK);

	k->pumping = false;
	/* with no connection at all, the pool says so to one call at a time */
	while (k->ready && (idle-- > 0 || k->calls == 0))
		fire(k);
}

static void
pump_later(struct acks *k)
{
	if (k->pumping || !k->ready)
		return;
	k->pumping = true;
	loop_later(k->x->loop, pump, k);
}
