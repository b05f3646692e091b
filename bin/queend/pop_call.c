/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pop coalescer: whenever a connection of the lane is idle, one call
 * takes everything that waits, up to 64 candidate partitions.  Invariant: a
 * candidate is flying in its ring from hand-out to verdict, so no two
 * requests of a group ask for the same partition at once.
 *
 * What autoAck takes is gone with the commit, so where payloads are sealed it
 * goes in calls of its own (opens), committed only when all of it could be
 * opened.  That a queue is such a one is learnt from SQL, which hands nothing
 * sealed to autoAck in any other call.
 */
#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "count.h"
#include "hsrv.h"
#include "keyring.h"
#include "pgpool.h"
#include "pop_call.h"

static const struct pgstmt STMT_POP = { "pop",
	"select req, cand, verdict, until, lease_at, lease_group, base, skip, "
	"take, at, last, attempt, span, expires_at, raw_bytes, key_id, blob "
	"from queen.pop_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)" };

uint64_t
call_oldest(const struct pops *p)
{
	const struct call *c = TAILQ_FIRST(&p->flights);

	return c ? c->seq : UINT64_MAX;
}

static void
clear_free(struct call *c)
{
	for (int i = 0; i < c->clear_n; i++)
		buf_fini(&c->clear[i]);
	free(c->clear);
	c->clear = NULL;
	c->clear_n = 0;
}

void
call_free(struct call *c)
{
	struct pops *p = c->pops;

	for (int i = 0; i < c->n; i++)
		ring_unref(c->cands[i].ring);
	PQclear(c->kept);
	clear_free(c);
	free(p->spare);
	p->spare = c;
}

void
call_free_all(struct pops *p)
{
	struct call *c;

	while ((c = TAILQ_FIRST(&p->flights))) {
		TAILQ_REMOVE(&p->flights, c, link);
		clear_free(c);
		free(c);
	}
	while ((c = TAILQ_FIRST(&p->naming))) {
		TAILQ_REMOVE(&p->naming, c, link);
		PQclear(c->kept);
		clear_free(c);
		free(c);
	}
	free(p->spare);
	p->spare = NULL;
}

/* ---- building ---- */

/* How many partitions the request may take; 0 = no cap. */
static int
width_of(const struct pop *pop)
{
	const struct pop_query *q = &pop->q;

	if (pop->kind == POP_PINNED)
		return 1;
	if (!pop_conflated(pop))
		return q->partitions;
	int w = q->partitions_given ? q->partitions : q->batch;

	return w < 1 || w > POP_CONFLATED_MAX ? POP_CONFLATED_MAX : w;
}

static int
budget_of(const struct pop *pop)
{
	if (pop_conflated(pop))
		return POP_CONFLATED_MAX;
	return pop->q.batch;
}

/* Candidates to hand out: twice the width, less when there are few. */
static int
checkout_of(struct lot *l, const struct pop *pop)
{
	int w = width_of(pop);

	if (pop->kind == POP_PINNED)
		return 1;
	if (w == 0 || w > POP_CALL_CANDIDATES)
		w = POP_CALL_CANDIDATES;
	int k = w * 2 > POP_CALL_CANDIDATES ? POP_CALL_CANDIDATES : w * 2;
	size_t share = lot_ready(l) / (size_t)(l->waiting ? l->waiting : 1);

	if (share < (size_t)k)
		k = share > (size_t)w ? (int)share : w;
	return k;
}

/* The client went while it waited here: nothing is claimed for it. */
static bool
drop_gone(struct pop *pop)
{
	if (!hsrv_is_gone(pop->req))
		return false;
	struct hsrv_req *r = pop->req;

	lot_leave(pop);
	pop_unpark(pop);
	pop_finish(pop);
	hsrv_drop(r);
	return true;
}

static bool
hold_back(struct lot *l, struct pop *pop, int64_t now_ms)
{
	if (!lot_hold_ms(l, pop, now_ms))
		return false;
	if (!pop->held_us)
		pop->held_us = clk_mono_us();
	pop_park(pop); /* the clock rings at the end of the hold */
	return true;
}

static void
take_off(struct call *c, struct lot *l, struct pop *pop, int cands)
{
	int64_t held_us = pop->held_us;

	lot_leave(pop);
	l->flying++;
	pop->lot = l;
	pop_unpark(pop);
	pop->state = POP_FLYING;
	pop->lease_no = qid_lease_number();
	pop->first_cand = c->n - cands;
	pop->cands = cands;
	pop->tries++;
	c->reqs[c->reqs_n++] = pop;
	if (held_us)
		count_pop_fill_wait(c->pops->x, clk_mono_us() - held_us);
}

static void
add_cand(struct call *c, struct ring *ring, int64_t part_id, int64_t now_ms)
{
	struct cand *k = &c->cands[c->n++];

	k->ring = ring;
	k->part_id = part_id;
	k->verdict = VERDICT_NONE;
	k->damaged = false;
	k->group = ring->group;
	ring->refs++;
	ring->used_ms = now_ms;
}

enum drawn {
	DRAWN_DRY, /* the lot has nothing more */
	DRAWN_FULL, /* it has, and the call has no room */
	DRAWN_OTHER, /* it has, for another kind of call */
};

static enum drawn
draw(struct call *c, struct lot *l, int64_t now_ms)
{
	struct pop *pop, *next;

	for (pop = TAILQ_FIRST(&l->waiters); pop; pop = next) {
		next = TAILQ_NEXT(pop, link);
		if (drop_gone(pop) || hold_back(l, pop, now_ms))
			continue;
		int room = POP_CALL_CANDIDATES - c->n;
		int want = checkout_of(l, pop), got = 0;
		bool opens = lot_opens(l, pop);

		if (room == 0 || (c->n && room < want && room < 8))
			return DRAWN_FULL;
		if (c->n && opens != c->opens)
			return DRAWN_OTHER;
		c->opens = opens;
		if (want > room)
			want = room;
		struct ring *ring;
		int64_t part_id;

		while (got < want && lot_take(l, pop, &ring, &part_id)) {
			add_cand(c, ring, part_id, now_ms);
			got++;
		}
		if (!got)
			return DRAWN_DRY;
		take_off(c, l, pop, got);
	}
	return DRAWN_DRY;
}

/* How many doubted ones it looks at: its share of them. */
static int
look_of(struct lot *l)
{
	size_t among = l->unsettled > 1 ? (size_t)l->unsettled : 1;
	size_t share = (lot_doubted(l) + among - 1) / among;

	return share < POP_CALL_CANDIDATES ? (int)share : POP_CALL_CANDIDATES;
}

/*
 * The lot is dry.  "Nothing there" is for the database to say, so before a pop
 * that does not wait is told it, what is doubted is looked at, once.  Others
 * park, and hear of what ends.
 */
static enum drawn
draw_doubted(struct call *c, struct lot *l, int64_t now_ms)
{
	struct pop *pop, *before;
	int left = l->unsettled;

	for (pop = TAILQ_LAST(&l->waiters, pop_list); pop && left;
		pop = before) {
		before = TAILQ_PREV(pop, pop_list, link);
		if (!pop->unsettled)
			continue;
		left--;
		if (pop->q.wait || pop->looked || drop_gone(pop))
			continue;
		int room = POP_CALL_CANDIDATES - c->n;
		int want = look_of(l), got = 0;
		bool opens = lot_opens(l, pop);
		struct tie *at = NULL;
		struct ring *ring;
		int64_t part_id;

		if (!want)
			break;
		if (room == 0 || (c->n && room < want && room < 8))
			return DRAWN_FULL;
		if (c->n && opens != c->opens)
			return DRAWN_OTHER;
		while (got < want && got < room &&
			lot_take_doubted(l, pop, &at, &ring, &part_id)) {
			add_cand(c, ring, part_id, now_ms);
			got++;
		}
		if (!got)
			continue;
		c->opens = opens;
		pop->looked = want <= room;
		take_off(c, l, pop, got);
	}
	return DRAWN_DRY;
}

static const struct qid *
lot_tenant(const struct lot *l)
{
	return &TAILQ_FIRST(&l->waiters)->tenant;
}

static struct call *
call_build(struct pops *p)
{
	struct call *c = p->spare ? p->spare : malloc(sizeof(*c));
	int64_t now = loop_now_ms(p->x->loop);
	struct lot *l, *next;

	if (!c)
		abort();
	p->spare = NULL;
	c->pops = p;
	c->n = c->reqs_n = 0;
	c->opens = c->opened = c->undone = false;
	c->kept = NULL;
	c->clear = NULL;
	c->clear_n = 0;
	for (l = TAILQ_FIRST(&p->hot); l; l = next) {
		next = TAILQ_NEXT(l, link);
		if (!l->waiting) {
			lot_cool(l);
			continue;
		}
		if (c->n && memcmp(&c->tenant, lot_tenant(l),
				    sizeof(c->tenant)) != 0)
			continue;
		c->tenant = *lot_tenant(l);
		enum drawn end = draw(c, l, now);

		if (end == DRAWN_DRY)
			end = draw_doubted(c, l, now);
		if (end == DRAWN_OTHER)
			continue; /* stays in front, for the next call */
		lot_cool(l);
		if (end == DRAWN_FULL) {
			lot_heat(l); /* behind the others */
			break;
		}
		lot_settle(l);
	}
	if (c->n)
		return c;
	p->spare = c;
	return NULL;
}

static void
put_requests(struct pgargs *a, const struct call *c)
{
	pgargs_array(a, PGARGS_I64);
	for (int i = 0; i < c->reqs_n; i++)
		pgargs_item_i64(a, c->reqs[i]->lease_no);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	for (int i = 0; i < c->reqs_n; i++)
		pgargs_item_i32(a, c->reqs[i]->q.lease_s);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	for (int i = 0; i < c->reqs_n; i++)
		pgargs_item_i32(a, budget_of(c->reqs[i]));
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	for (int i = 0; i < c->reqs_n; i++)
		pgargs_item_i32(a, width_of(c->reqs[i]));
	pgargs_close(a);
	pgargs_array(a, PGARGS_BOOL);
	for (int i = 0; i < c->reqs_n; i++)
		pgargs_item_bool(a, c->reqs[i]->q.auto_ack);
	pgargs_close(a);
}

static void
call_send(struct call *c)
{
	struct pops *p = c->pops;
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &c->tenant);
	put_requests(&a, c);
	pgargs_array(&a, PGARGS_I32);
	for (int r = 0; r < c->reqs_n; r++)
		for (int i = 0; i < c->reqs[r]->cands; i++)
			pgargs_item_i32(&a, r + 1);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_I64);
	for (int i = 0; i < c->n; i++)
		pgargs_item_i64(&a, c->cands[i].part_id);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_I64);
	for (int i = 0; i < c->n; i++)
		pgargs_item_i64(&a, c->cands[i].ring->group_id);
	pgargs_close(&a);
	keyring_args(&a, p->x);
	pgargs_bool(&a, c->opens);
	c->seq = ++p->seq;
	c->sent_us = clk_mono_us();
	TAILQ_INSERT_TAIL(&p->flights, c, link);
	p->calls++;
	p->stats.calls++;
	p->stats.candidates += (uint64_t)c->n;
	if (c->opens)
		pgpool_bundle(p->x->pool, LANE_POP, &STMT_POP, &a, call_opens,
			call_answered, c);
	else
		pgpool_call(
			p->x->pool, LANE_POP, &STMT_POP, &a, call_answered, c);
}

/* ---- firing ---- */

static void
pops_fire(struct pops *p)
{
	struct call *c;

	/*
	 * With no connection up one call goes out all the same: the pool
	 * gets one for it or fails it.
	 */
	while (!TAILQ_EMPTY(&p->hot) && p->calls < POP_CALLS_MAX &&
		(pgpool_idle(p->x->pool, LANE_POP) > 0 || p->calls == 0)) {
		if (!(c = call_build(p)))
			break;
		call_send(c);
	}
}

static void
on_fire(void *arg)
{
	struct pops *p = arg;

	if (p->fire_later) {
		p->fire_later = false;
		loop_later(p->x->loop, on_fire, p);
		return;
	}
	p->fire_soon = false;
	pops_fire(p);
}

void
pops_fire_soon(struct pops *p)
{
	if (p->fire_soon)
		return;
	p->fire_soon = true;
	loop_later(p->x->loop, on_fire, p);
}

static void
on_lane_idle(void *arg, int lane)
{
	(void)lane;
	struct pops *p = arg;

	if (!TAILQ_EMPTY(&p->hot))
		pops_fire_soon(p);
}

void
call_start(struct pops *p)
{
	TAILQ_INIT(&p->flights);
	TAILQ_INIT(&p->naming);
	pgpool_on_idle(p->x->pool, LANE_POP, on_lane_idle, p);
}
