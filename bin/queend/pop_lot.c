/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lots: requests that draw from the same rings, oldest first.  A lot is hot
 * while it has waiters and something may be there for them, slow while only
 * due entries are left and the second's probes are used up.
 */
#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "hsrv.h"
#include "pop_int.h"

enum { DISC_IDLE_MS = 300000, PROBE_WAIT_MS = 20 };

void
lot_init(struct lot *l, struct pops *p, enum pop_kind kind)
{
	memset(l, 0, sizeof(*l));
	l->pops = p;
	l->kind = kind;
	TAILQ_INIT(&l->waiters);
	TAILQ_INIT(&l->ties);
	TAILQ_INIT(&l->hot_ties);
}

/* ---- where it is ---- */

static void
lot_move(struct lot *l, enum lot_place place)
{
	struct pops *p = l->pops;

	if (l->place == place)
		return;
	if (l->place == LOT_HOT)
		TAILQ_REMOVE(&p->hot, l, link);
	else if (l->place == LOT_SLOW)
		TAILQ_REMOVE(&p->slow, l, link);
	l->place = place;
	if (place == LOT_HOT)
		TAILQ_INSERT_TAIL(&p->hot, l, link);
	else if (place == LOT_SLOW)
		TAILQ_INSERT_TAIL(&p->slow, l, link);
}

void
lot_heat(struct lot *l)
{
	if (!l->waiting)
		return;
	lot_move(l, LOT_HOT);
	pops_fire_soon(l->pops);
}

void
lot_cool(struct lot *l)
{
	lot_move(l, LOT_RESTING);
}

void
tie_heat(struct tie *t)
{
	if (!t->hot) {
		t->hot = true;
		TAILQ_INSERT_TAIL(&t->lot->hot_ties, t, link);
	}
	lot_heat(t->lot);
}

static void
tie_cool(struct tie *t)
{
	if (!t->hot)
		return;
	t->hot = false;
	TAILQ_REMOVE(&t->lot->hot_ties, t, link);
}

static void
on_probe_timer(void *arg)
{
	struct pops *p = arg;
	struct lot *l;

	while ((l = TAILQ_FIRST(&p->slow)))
		lot_move(l, LOT_HOT);
	pops_fire_soon(p);
}

/* ---- who is in it ---- */

void
lot_unsettle(struct pop *pop, bool unsettled)
{
	if (pop->unsettled == unsettled)
		return;
	pop->unsettled = unsettled;
	pop->lot->unsettled += unsettled ? 1 : -1;
}

static void
enter(struct lot *l, struct pop *pop)
{
	pop->lot = l;
	pop->state = POP_WAITING;
	pop->held_us = 0;
	l->waiting++;
	lot_unsettle(pop, true);
}

void
lot_join(struct lot *l, struct pop *pop)
{
	struct pops *p = l->pops;

	enter(l, pop);
	TAILQ_INSERT_TAIL(&l->waiters, pop, link);
	pop->joined_seq = ++p->seq;
	if (pop->parked && !p->x->stopping) {
		pop_park(pop);
	} else if (pop->q.auto_ack) {
		/*
		 * What it claims is lost with it: the watch must have had its
		 * turn before anything is sent.
		 */
		pop_watch_client(pop);
		p->fire_later = true;
	}
	if (l->ring)
		ring_arm(l->ring);
	lot_heat(l);
}

void
lot_rejoin(struct lot *l, struct pop *pop)
{
	enter(l, pop);
	TAILQ_INSERT_HEAD(&l->waiters, pop, link);
	if (pop->q.wait && !pop->due && !l->pops->x->stopping)
		pop_park(pop);
	/* its ring may have been armed for nobody while it was in the call */
	if (l->ring)
		ring_arm(l->ring);
	lot_heat(l);
}

void
lot_leave(struct pop *pop)
{
	struct lot *l = pop->lot;

	lot_unsettle(pop, false);
	TAILQ_REMOVE(&l->waiters, pop, link);
	l->waiting--;
	pop->lot = NULL;
	pop->state = POP_RESOLVING;
	if (!l->waiting)
		lot_cool(l);
}

void
lot_tie(struct lot *l, struct ring *ring)
{
	struct tie *t;

	TAILQ_FOREACH (t, &ring->ties, of_ring)
		if (t->lot == l)
			return;
	t = calloc(1, sizeof(*t));
	if (!t)
		abort();
	t->lot = l;
	t->ring = ring;
	TAILQ_INSERT_TAIL(&l->ties, t, of_lot);
	TAILQ_INSERT_TAIL(&ring->ties, t, of_ring);
	tie_heat(t);
	ring_walk(ring, false);
}

void
lot_untie(struct tie *t)
{
	tie_cool(t);
	TAILQ_REMOVE(&t->lot->ties, t, of_lot);
	TAILQ_REMOVE(&t->ring->ties, t, of_ring);
	free(t);
}

/* ---- drawing ---- */

static bool
ring_opens(const struct ring *ring)
{
	return ring->opens || ring->queue->encrypted;
}

bool
lot_opens(const struct lot *l, const struct pop *pop)
{
	const struct tie *t;

	if (!pop->q.auto_ack)
		return false;
	if (l->kind != POP_DISCOVERY)
		return ring_opens(l->ring);
	TAILQ_FOREACH (t, &l->hot_ties, link)
		if (ring_opens(t->ring))
			return true;
	return false;
}

static bool
probe_allowed(struct pops *p, const struct pop *pop)
{
	int64_t now = loop_now_ms(p->x->loop);

	if (!pop->parked || pop->due)
		return true;
	p->probe_tokens +=
		(double)(now - p->probe_ms) * POP_PROBES_PER_S / 1000.0;
	if (p->probe_tokens > POP_PROBES_PER_S)
		p->probe_tokens = POP_PROBES_PER_S;
	p->probe_ms = now;
	return p->probe_tokens >= 1;
}

static bool
ring_take(struct ring *ring, const struct pop *pop, int64_t *part_id)
{
	struct pops *p = ring->pops;
	enum hot_take t;

	ring_due(ring, loop_now_ms(p->x->loop));
	t = hot_take(ring->hot, probe_allowed(p, pop), part_id);
	if (t == HOT_TAKE_PROBE && pop->parked)
		p->probe_tokens -= 1;
	return t != HOT_TAKE_NONE;
}

static bool
pin_take(struct lot *l, const struct pop *pop)
{
	struct pops *p = l->pops;
	struct ring *ring = l->ring;

	ring_due(ring, loop_now_ms(p->x->loop));
	enum hot_take t = hot_take_part(ring->hot, l->part_id,
		!l->known && !ring->walked, probe_allowed(p, pop));

	if (t == HOT_TAKE_PROBE && pop->parked)
		p->probe_tokens -= 1;
	return t != HOT_TAKE_NONE;
}

bool
lot_take(struct lot *l, const struct pop *pop, struct ring **ring,
	int64_t *part_id)
{
	struct tie *t, *next;

	switch (l->kind) {
	case POP_WILDCARD:
		*ring = l->ring;
		return ring_take(l->ring, pop, part_id);
	case POP_PINNED:
		*ring = l->ring;
		*part_id = l->part_id;
		return pin_take(l, pop);
	case POP_DISCOVERY:
		break;
	}
	/* queues take turns; one that has nothing leaves the round */
	for (t = TAILQ_FIRST(&l->hot_ties); t; t = next) {
		next = TAILQ_NEXT(t, link);
		if (!ring_take(t->ring, pop, part_id)) {
			if (!hot_probes(t->ring->hot))
				tie_cool(t);
			continue;
		}
		*ring = t->ring;
		TAILQ_REMOVE(&l->hot_ties, t, link);
		TAILQ_INSERT_TAIL(&l->hot_ties, t, link);
		return true;
	}
	return false;
}

size_t
lot_doubted(const struct lot *l)
{
	const struct tie *t;
	size_t n = 0;

	if (l->kind == POP_PINNED)
		return 1; /* if any */
	if (l->kind == POP_WILDCARD)
		return hot_doubted(l->ring->hot);
	TAILQ_FOREACH (t, &l->ties, of_lot)
		n += hot_doubted(t->ring->hot);
	return n;
}

bool
lot_take_doubted(struct lot *l, const struct pop *pop, struct tie **at,
	struct ring **ring, int64_t *part_id)
{
	uint64_t upto = pop->joined_seq;

	*ring = l->ring;
	switch (l->kind) {
	case POP_WILDCARD:
		return hot_take_doubted(l->ring->hot, upto, part_id);
	case POP_PINNED:
		*part_id = l->part_id;
		return hot_take_part_doubted(l->ring->hot, *part_id, upto);
	case POP_DISCOVERY:
		break;
	}
	if (!*at)
		*at = TAILQ_FIRST(&l->ties);
	while (*at) {
		*ring = (*at)->ring;
		if (hot_take_doubted((*ring)->hot, upto, part_id))
			return true;
		/* the last one stays: it has nothing more */
		if (!TAILQ_NEXT(*at, of_lot))
			return false;
		*at = TAILQ_NEXT(*at, of_lot);
	}
	return false;
}

size_t
lot_ready(struct lot *l)
{
	struct tie *t, *next;
	size_t n = 0;

	switch (l->kind) {
	case POP_WILDCARD:
		return hot_ready(l->ring->hot) + hot_probes(l->ring->hot);
	case POP_PINNED:
		return hot_state(l->ring->hot, l->part_id) == HOT_READY;
	case POP_DISCOVERY:
		break;
	}
	for (t = TAILQ_FIRST(&l->hot_ties); t; t = next) {
		next = TAILQ_NEXT(t, link);
		size_t k = hot_ready(t->ring->hot) + hot_probes(t->ring->hot);

		if (!k)
			tie_cool(t);
		n += k;
	}
	return n;
}

int64_t
lot_hold_ms(struct lot *l, const struct pop *pop, int64_t now_ms)
{
	struct ring *ring = l->ring;

	if (l->kind != POP_WILDCARD || !pop->q.wait || pop->q.batch < 2 ||
		pop->due || ring->queue->min_pop_wait_ms <= 0 || !lot_ready(l))
		return 0;
	size_t width = pop->q.partitions ? (size_t)pop->q.partitions : SIZE_MAX;

	if (hot_marks(ring->hot, width) >= (uint64_t)pop->q.batch)
		return 0;
	int64_t from = ring->ready_since_ms > pop->arrived_ms
			       ? ring->ready_since_ms
			       : pop->arrived_ms;
	int64_t until = from + ring->queue->min_pop_wait_ms;

	if (until > pop->deadline_ms)
		until = pop->deadline_ms;
	return until > now_ms ? until : 0;
}

/* ---- nothing to draw ---- */

/* May something still come back that was on its way when pop joined? */
static bool
lot_busy(struct lot *l, const struct pop *pop)
{
	bool flights = call_oldest(l->pops) <= pop->joined_seq;
	struct tie *t;

	if (l->kind == POP_PINNED)
		return flights &&
		       hot_state(l->ring->hot, l->part_id) == HOT_FLYING;
	if (l->kind == POP_WILDCARD)
		return (!l->ring->walked && !l->ring->walk_failed) ||
		       (flights && hot_flying(l->ring->hot));
	TAILQ_FOREACH (t, &l->ties, of_lot)
		if ((!t->ring->walked && !t->ring->walk_failed) ||
			(flights && hot_flying(t->ring->hot)))
			return true;
	return false;
}

static bool
lot_failed(struct lot *l)
{
	struct tie *t;

	if (l->kind == POP_PINNED)
		return false;
	if (l->kind == POP_WILDCARD)
		return l->ring->walk_failed && !l->ring->walked;
	TAILQ_FOREACH (t, &l->ties, of_lot)
		if (t->ring->walk_failed && !t->ring->walked)
			return true;
	return false;
}

static void
settle_one(struct lot *l, struct pop *pop)
{
	struct pops *p = l->pops;

	if (pop->due) {
		lot_leave(pop);
		pop_finish_empty(pop);
		return;
	}
	if (pop->q.wait && !p->x->stopping) {
		pop_park(pop);
		return;
	}
	if (lot_busy(l, pop) && !p->x->stopping)
		return;
	bool failed = lot_failed(l);

	lot_leave(pop);
	if (failed)
		pop_finish_error(pop, 500, "pop failed");
	else
		pop_finish_empty(pop);
}

void
lot_settle(struct lot *l)
{
	struct pops *p = l->pops;
	struct pop *pop, *before;
	int left = l->unsettled;

	/* the newest are at the end, and they are what is looked for */
	for (pop = TAILQ_LAST(&l->waiters, pop_list); pop && left;
		pop = before) {
		before = TAILQ_PREV(pop, pop_list, link);
		if (!pop->unsettled)
			continue;
		left--;
		settle_one(l, pop);
	}
	if (l->waiting && lot_ready(l) && p->probe_tokens < 1 &&
		l->place == LOT_RESTING) {
		lot_move(l, LOT_SLOW);
		if (!p->probe_timer.loop)
			loop_timer_init(
				&p->probe_timer, p->x->loop, on_probe_timer, p);
		if (!loop_timer_pending(&p->probe_timer))
			loop_timer_start(&p->probe_timer, PROBE_WAIT_MS);
	}
}

/* ---- discovery ---- */

struct disc_key {
	const struct qid *tenant;
	struct span namespace_name, task, group;
};

static bool
disc_is(const void *item, const void *key)
{
	const struct disc *d = item;
	const struct disc_key *k = key;

	return span_eq(d->group, k->group) &&
	       span_eq(d->namespace_name, k->namespace_name) &&
	       span_eq(d->task, k->task) &&
	       memcmp(&d->tenant, k->tenant, sizeof(d->tenant)) == 0;
}

static uint64_t
disc_hash(const struct disc_key *k)
{
	return map_hash_span(k->group) ^ map_hash_span(k->namespace_name) * 3 ^
	       map_hash_span(k->task) * 5;
}

static void
disc_free(struct disc *d)
{
	struct pops *p = d->lot.pops;
	struct disc_key k = { &d->tenant, d->namespace_name, d->task,
		d->group };

	while (!TAILQ_EMPTY(&d->lot.ties))
		lot_untie(TAILQ_FIRST(&d->lot.ties));
	lot_cool(&d->lot);
	map_take(&p->disc_by_key, disc_hash(&k), disc_is, &k);
	TAILQ_REMOVE(&p->discs, d, link);
	free(d);
}

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

static struct disc *
disc_new(struct pops *p, const struct disc_key *k)
{
	struct disc *d = calloc(
		1, sizeof(*d) + k->group.n + k->task.n + k->namespace_name.n);

	if (!d)
		abort();
	char *at = d->text;

	lot_init(&d->lot, p, POP_DISCOVERY);
	d->tenant = *k->tenant;
	d->group = copy_to(&at, k->group);
	d->namespace_name = copy_to(&at, k->namespace_name);
	d->task = copy_to(&at, k->task);
	d->generation = p->generation - 1;
	TAILQ_INSERT_TAIL(&p->discs, d, link);
	map_put(&p->disc_by_key, disc_hash(k), d);
	return d;
}

static bool
disc_in_use(const struct disc *d)
{
	return d->lot.waiting || d->lot.flying;
}

/*
 * Labels are free to choose and cost the database nothing.  Those in use are
 * as many as there are requests; of the others the oldest goes.
 */
static void
disc_make_room(struct pops *p)
{
	struct disc *d;

	for (int i = 0; i < 8 && p->disc_by_key.count >= POP_DISCS_MAX; i++) {
		d = TAILQ_FIRST(&p->discs);
		if (!disc_in_use(d)) {
			disc_free(d);
			return;
		}
		TAILQ_REMOVE(&p->discs, d, link);
		TAILQ_INSERT_TAIL(&p->discs, d, link);
	}
}

struct disc *
disc_of(struct pops *p, const struct pop *pop)
{
	struct disc_key k = { &pop->tenant, pop->q.namespace_name, pop->q.task,
		pop->q.group };
	struct disc *d = map_get(&p->disc_by_key, disc_hash(&k), disc_is, &k);

	if (!d) {
		disc_make_room(p);
		d = disc_new(p, &k);
	}
	d->used_ms = loop_now_ms(p->x->loop);
	return d;
}

void
disc_sweep(struct pops *p, int64_t now_ms)
{
	struct disc *d, *next;

	for (d = TAILQ_FIRST(&p->discs); d; d = next) {
		next = TAILQ_NEXT(d, link);
		if (!disc_in_use(d) && now_ms - d->used_ms > DISC_IDLE_MS)
			disc_free(d);
	}
}

void
disc_rematch(struct pops *p)
{
	struct disc *d;

	p->generation++;
	TAILQ_FOREACH (d, &p->discs, link) {
		struct pop *pop = TAILQ_FIRST(&d->lot.waiters);

		if (pop && d->generation != p->generation)
			pop_again(pop);
	}
}

void
disc_free_all(struct pops *p)
{
	struct disc *d;

	while ((d = TAILQ_FIRST(&p->discs)))
		disc_free(d);
	map_fini(&p->disc_by_key);
}
