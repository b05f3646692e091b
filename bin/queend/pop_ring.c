/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings: what may be pending for a group, and how it is learned.  A ring is
 * complete once it was walked: from its birth it receives every mark, and the
 * walk brings what was there before.  A ring belongs to the group id; when
 * the name comes to mean another group, the ring is dropped and its waiters
 * resolve their names again.
 */
#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "err.h"
#include "pgpool.h"
#include "pop_int.h"

enum { WALK_PAGE = 10000, WALKS_MAX = 2, PINS_KEPT = 4096 };

static const struct pgstmt STMT_PENDING = { "group_pending",
	"select part, next from queen.group_pending_v1($1, $2, $3, $4)" };

static bool
ring_is(const void *item, const void *key)
{
	return ((const struct ring *)item)->group_id == *(const int64_t *)key;
}

static bool
lot_is_pin(const void *item, const void *key)
{
	return ((const struct lot *)item)->part_id == *(const int64_t *)key;
}

struct lot *
lot_pin(struct ring *ring, int64_t part_id)
{
	struct lot *l = map_get(
		&ring->pins, map_hash_i64(part_id), lot_is_pin, &part_id);

	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		abort();
	lot_init(l, ring->pops, POP_PINNED);
	l->ring = ring;
	l->part_id = part_id;
	map_put(&ring->pins, map_hash_i64(part_id), l);
	return l;
}

/* ---- birth and end ---- */

static void
queue_link(struct ring *ring, struct cat_queue *q)
{
	ring->queue = q;
	ring->next_in_queue = q->rings;
	ring->link_in_queue = &q->rings;
	if (q->rings)
		q->rings->link_in_queue = &ring->next_in_queue;
	q->rings = ring;
}

/* Not by a walk: a queue may have more groups than anybody can count. */
static void
queue_unlink(struct ring *ring)
{
	if (!ring->link_in_queue)
		return;
	*ring->link_in_queue = ring->next_in_queue;
	if (ring->next_in_queue)
		ring->next_in_queue->link_in_queue = ring->link_in_queue;
	ring->link_in_queue = NULL;
}

/* The catalogue may have a new entry for the group of an old ring. */
static void
ring_adopt(struct ring *ring, struct cat_group *g)
{
	if (ring->group == g)
		return;
	ring->group->ring = NULL;
	ring->group = g;
	g->ring = ring;
	if (ring->queue != g->queue) {
		queue_unlink(ring);
		queue_link(ring, g->queue);
	}
}

struct ring *
ring_of(struct pops *p, struct cat_group *g)
{
	struct ring *ring = g->ring;

	if (!ring)
		ring = map_get(&p->ring_by_group, map_hash_i64(g->id), ring_is,
			&g->id);
	if (ring) {
		ring_adopt(ring, g);
		ring->used_ms = loop_now_ms(p->x->loop);
		return ring;
	}
	ring = calloc(1, sizeof(*ring));
	if (!ring)
		abort();
	ring->pops = p;
	ring->hot = hot_new();
	ring->group = g;
	ring->group_id = g->id;
	ring->used_ms = loop_now_ms(p->x->loop);
	TAILQ_INIT(&ring->ties);
	lot_init(&ring->wild, p, POP_WILDCARD);
	ring->wild.ring = ring;
	queue_link(ring, g->queue);
	g->ring = ring;
	map_put(&p->ring_by_group, map_hash_i64(g->id), ring);
	TAILQ_INSERT_TAIL(&p->rings, ring, all);
	return ring;
}

static void
ring_free(struct ring *ring)
{
	size_t at = 0;
	struct lot *pin;

	while ((pin = map_next(&ring->pins, &at)))
		free(pin);
	map_fini(&ring->pins);
	if (ring->timed)
		loop_timer_fini(&ring->timer);
	hot_free(ring->hot);
	free(ring);
}

void
ring_unref(struct ring *ring)
{
	BUG(ring->refs < 1);
	if (--ring->refs == 0 && ring->dead)
		ring_free(ring);
}

static void
lot_evict(struct lot *l)
{
	struct pop *pop;

	lot_cool(l);
	while ((pop = TAILQ_FIRST(&l->waiters)))
		pop_again(pop);
}

static void
walk_dequeue(struct ring *ring)
{
	if (!ring->walk_queued)
		return;
	ring->walk_queued = false;
	TAILQ_REMOVE(&ring->pops->walk_queue, ring, walk_link);
}

/* Its waiters resolve again. */
static void
ring_drop(struct ring *ring)
{
	struct pops *p = ring->pops;
	size_t at = 0;
	struct lot *pin;

	if (ring->dead)
		return;
	ring->dead = true;
	ring->refs++;
	walk_dequeue(ring);
	if (ring->group->ring == ring)
		ring->group->ring = NULL;
	queue_unlink(ring);
	map_take(&p->ring_by_group, map_hash_i64(ring->group_id), ring_is,
		&ring->group_id);
	TAILQ_REMOVE(&p->rings, ring, all);
	while (!TAILQ_EMPTY(&ring->ties))
		lot_untie(TAILQ_FIRST(&ring->ties));
	if (ring->timed)
		loop_timer_stop(&ring->timer);
	lot_evict(&ring->wild);
	/* a dead ring gets no new pins: its tables no longer lead here */
	while ((pin = map_next(&ring->pins, &at)))
		lot_evict(pin);
	ring_unref(ring);
}

void
ring_free_all(struct pops *p)
{
	struct ring *ring;

	while ((ring = TAILQ_FIRST(&p->rings))) {
		TAILQ_REMOVE(&p->rings, ring, all);
		ring_free(ring);
	}
	map_fini(&p->ring_by_group);
}

static bool
ring_in_use(const struct ring *ring)
{
	size_t at = 0;
	const struct lot *pin;

	if (ring->wild.waiting || !TAILQ_EMPTY(&ring->ties) || ring->refs)
		return true;
	while ((pin = map_next(&ring->pins, &at)))
		if (pin->waiting)
			return true;
	return false;
}

/* ---- waking ---- */

int64_t
pops_local_ms(const struct pops *p, int64_t at_us)
{
	int64_t now = loop_now_ms(p->x->loop);
	int64_t left_us;

	if (at_us == INT64_MIN || at_us == INT64_MAX)
		return now + POP_HIDDEN_PARK_MAX_MS;
	left_us = at_us - clk_wall_us() - p->clock_offset_us;
	/* a little late is right, a little early is a wasted claim */
	return left_us <= 0 ? now + 5 : now + left_us / 1000 + 3;
}

void
ring_heat(struct ring *ring, int64_t part_id)
{
	struct lot *pin = map_get(
		&ring->pins, map_hash_i64(part_id), lot_is_pin, &part_id);
	struct tie *t;

	if (hot_ready(ring->hot) == 1)
		ring->ready_since_ms = loop_now_ms(ring->pops->x->loop);
	if (pin)
		lot_heat(pin);
	lot_heat(&ring->wild);
	TAILQ_FOREACH (t, &ring->ties, of_ring)
		tie_heat(t);
}

/* All lots that wait on the ring look again. */
static void
ring_heat_all(struct ring *ring)
{
	size_t at = 0;
	struct lot *pin;
	struct tie *t;

	lot_heat(&ring->wild);
	TAILQ_FOREACH (t, &ring->ties, of_ring)
		tie_heat(t);
	while ((pin = map_next(&ring->pins, &at)))
		lot_heat(pin);
}

void
ring_due(struct ring *ring, int64_t now_ms)
{
	int64_t part;

	while (hot_due(ring->hot, now_ms, &part))
		ring_heat(ring, part);
}

static void
on_ring_timer(void *arg)
{
	struct ring *ring = arg;

	ring_due(ring, loop_now_ms(ring->pops->x->loop));
	ring_arm(ring);
}

void
ring_arm(struct ring *ring)
{
	int64_t next = hot_next_ms(ring->hot);
	struct loop *l = ring->pops->x->loop;

	if (next == INT64_MAX || ring->dead ||
		(!ring->wild.waiting && TAILQ_EMPTY(&ring->ties) &&
			!ring->pins.count))
		return;
	if (!ring->timed) {
		loop_timer_init(&ring->timer, l, on_ring_timer, ring);
		ring->timed = true;
	}
	int64_t left = next - loop_now_ms(l);

	loop_timer_start(&ring->timer, left > 1 ? left : 1);
}

/* ---- the walk ---- */

static void walk_next(struct pops *p);

static void
walk_end(struct ring *ring, const struct err *e)
{
	struct pops *p = ring->pops;

	ring->walking = false;
	ring->walk_failed = e != NULL;
	if (!e)
		ring->walked = true;
	p->walks--;
	if (!ring->dead) {
		if (!e && ring->walk_again) {
			ring->walk_again = false;
			ring_walk(ring, true);
		}
		/* an empty ring has an answer now, a failed one as well */
		ring_heat_all(ring);
	}
	ring_unref(ring);
	walk_next(p);
}

static void walk_page(struct ring *ring);

static void
on_page(void *arg, const PGresult *res, const struct err *e)
{
	struct ring *ring = arg;
	int64_t now = loop_now_ms(ring->pops->x->loop);
	int n = e ? 0 : PQntuples(res);

	if (e || ring->dead) {
		walk_end(ring, e);
		return;
	}
	for (int i = 0; i < n; i++) {
		if (pgbin_null(res, i, 0))
			continue;
		int64_t part = pgbin_i64(res, i, 0);

		if (hot_mark(ring->hot, part, now))
			ring_heat(ring, part);
	}
	ring_arm(ring);
	if (n == 0 || pgbin_null(res, n - 1, 1)) {
		walk_end(ring, NULL);
		return;
	}
	ring->walk_after = pgbin_i64(res, n - 1, 1);
	walk_page(ring);
}

static void
walk_page(struct ring *ring)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &ring->queue->tenant);
	pgargs_i64(&a, ring->group_id);
	pgargs_i64(&a, ring->walk_after);
	pgargs_i32(&a, WALK_PAGE);
	pgpool_call(ring->pops->x->pool, LANE_REST, &STMT_PENDING, &a, on_page,
		ring);
}

static void
walk_next(struct pops *p)
{
	struct ring *ring;

	while (p->walks < WALKS_MAX && (ring = TAILQ_FIRST(&p->walk_queue))) {
		walk_dequeue(ring);
		p->walks++;
		p->stats.walks++;
		ring->walking = true;
		ring->walk_after = 0;
		ring->refs++;
		walk_page(ring);
	}
}

void
ring_walk(struct ring *ring, bool again)
{
	if (ring->dead || ring->walk_queued)
		return;
	if (ring->walking) {
		ring->walk_again |= again;
		return;
	}
	if (ring->walked && !again)
		return;
	ring->walk_queued = true;
	TAILQ_INSERT_TAIL(&ring->pops->walk_queue, ring, walk_link);
	walk_next(ring->pops);
}

/* ---- is it still the group? ---- */

static void
on_checked(void *arg, const struct err *e)
{
	struct ring *ring = arg;
	struct pops *p = ring->pops;

	ring->checking = false;
	if (!ring->dead && !e) {
		struct cat_group *g = catalog_group(
			p->x->catalog, ring->queue, ring->group->name);

		if (g && g->id == ring->group_id)
			ring_adopt(ring, g);
		else
			ring_drop(ring);
	}
	ring_unref(ring);
}

void
ring_check(struct ring *ring)
{
	struct catalog *c = ring->pops->x->catalog;

	if (ring->dead || ring->checking)
		return;
	ring->checking = true;
	ring->refs++;
	catalog_refresh(c);
	catalog_forget_group(c, ring->group_id);
	catalog_load_groups(
		c, &ring->queue, &ring->group->name, 1, on_checked, ring);
}

/* ---- once a second ---- */

static void
sweep_pins(struct ring *ring)
{
	size_t at = 0, n = 0;
	struct lot *pin, **idle;

	if (ring->pins.count <= PINS_KEPT || ring->refs)
		return;
	idle = malloc(ring->pins.count * sizeof(struct lot *));
	if (!idle)
		abort();
	while ((pin = map_next(&ring->pins, &at)))
		if (!pin->waiting && !pin->flying)
			idle[n++] = pin;
	for (size_t i = 0; i < n; i++) {
		lot_cool(idle[i]);
		map_take(&ring->pins, map_hash_i64(idle[i]->part_id),
			lot_is_pin, &idle[i]->part_id);
		free(idle[i]);
	}
	free(idle);
}

void
ring_sweep(struct pops *p, int64_t now_ms)
{
	struct ring *ring, *next;
	int64_t idle_ms = p->ring_by_group.count > POP_RINGS_MANY
				  ? POP_RING_IDLE_MANY_MS
				  : POP_RING_IDLE_MS;

	for (ring = TAILQ_FIRST(&p->rings); ring; ring = next) {
		next = TAILQ_NEXT(ring, all);
		/* dropping one makes its waiters resolve, not drop others */
		if ((ring->group->gone && !ring->checking) ||
			ring->queue->gone) {
			ring_drop(ring);
			continue;
		}
		if (ring->walk_failed && ring_in_use(ring)) {
			ring->walk_failed = false;
			ring_walk(ring, !ring->walked);
		}
		if (now_ms - ring->used_ms > idle_ms && !ring_in_use(ring))
			ring_drop(ring);
		else
			sweep_pins(ring);
	}
}

/* ---- what changed ---- */

#define RINGS_EACH(ring, q)                                                    \
	for (ring = (q)->rings; ring; ring = ring->next_in_queue)

void
pops_mark(struct pops *p, int64_t queue_id, int64_t part_id)
{
	struct cat_queue *q = catalog_queue_by_id(p->x->catalog, queue_id);
	int64_t now = loop_now_ms(p->x->loop);
	struct ring *ring;

	if (q) {
		RINGS_EACH (ring, q) {
			bool woke = hot_mark(ring->hot, part_id, now);

			/* marks count for those held back by minPopWaitTime */
			if (woke || (q->min_pop_wait_ms && ring->wild.waiting))
				ring_heat(ring, part_id);
			else if (hot_next_ms(ring->hot) <= now + HOT_MARK_MS)
				ring_arm(ring);
		}
		want_marked(p, q, part_id);
	}
	watch_fire(p, queue_id);
}

static void
release_in(struct ring *ring, int64_t part_id)
{
	if (!part_id) {
		if (hot_release_all(ring->hot))
			ring_heat_all(ring);
		return;
	}
	if (hot_release(ring->hot, part_id))
		ring_heat(ring, part_id);
}

void
pops_released(
	struct pops *p, int64_t queue_id, int64_t group_id, int64_t part_id)
{
	struct cat_queue *q = catalog_queue_by_id(p->x->catalog, queue_id);
	struct ring *ring;

	if (!q)
		return;
	RINGS_EACH (ring, q) {
		if (group_id && ring->group_id != group_id)
			continue;
		release_in(ring, part_id);
		/* deleted, or moved as a whole: another id may be behind it */
		if (ring->group->gone)
			ring_check(ring);
	}
}

void
pops_done(struct pops *p, int64_t queue_id, int64_t group_id, int64_t part_id,
	int64_t lease_no)
{
	struct cat_queue *q = catalog_queue_by_id(p->x->catalog, queue_id);
	struct ring *ring;

	if (!q)
		return;
	RINGS_EACH (ring, q)
		if (ring->group_id == group_id &&
			hot_done(ring->hot, part_id, lease_no))
			ring_heat(ring, part_id);
}

void
pops_moved(struct pops *p, int64_t queue_id, int64_t group_id, int64_t part_id)
{
	struct cat_queue *q = catalog_queue_by_id(p->x->catalog, queue_id);
	struct ring *ring;
	bool known = !group_id;

	if (!q)
		return;
	RINGS_EACH (ring, q) {
		if (group_id && ring->group_id != group_id)
			continue;
		known = true;
		release_in(ring, part_id);
		if (!part_id && (ring->walked || ring->walking))
			ring_walk(ring, true);
	}
	if (known || catalog_group_by_id(p->x->catalog, group_id))
		return;
	/* a group of that name may have got a new id */
	RINGS_EACH (ring, q)
		ring_check(ring);
}

void
pops_wake_queue(struct pops *p, int64_t queue_id)
{
	struct cat_queue *q = catalog_queue_by_id(p->x->catalog, queue_id);
	struct ring *ring;

	if (!q)
		return;
	RINGS_EACH (ring, q) {
		release_in(ring, 0);
		ring_walk(ring, true);
	}
}

static void
on_want_timer(void *arg)
{
	struct pops *p = arg;

	want_check_queues(p);
	disc_rematch(p);
	if (p->want_backoff_ms < 500) {
		p->want_backoff_ms *= 2;
		loop_timer_start(&p->want_timer, p->want_backoff_ms);
	}
}

void
pops_catalog(struct pops *p, int64_t queue_id)
{
	struct cat_queue *q =
		queue_id ? catalog_queue_by_id(p->x->catalog, queue_id) : NULL;
	struct ring *ring;

	if (q)
		RINGS_EACH (ring, q)
			if (hot_unhide(ring->hot))
				ring_heat_all(ring);
	want_check_queues(p);
	disc_rematch(p);
	/* the catalogue may still be reading what a hint told */
	if (!p->want_timer.loop)
		loop_timer_init(&p->want_timer, p->x->loop, on_want_timer, p);
	p->want_backoff_ms = 10;
	loop_timer_start(&p->want_timer, p->want_backoff_ms);
}

void
pops_resync(struct pops *p)
{
	struct ring *ring, *next;

	for (ring = TAILQ_FIRST(&p->rings); ring; ring = next) {
		next = TAILQ_NEXT(ring, all);
		if (!ring_in_use(ring)) {
			ring_drop(ring);
			continue;
		}
		release_in(ring, 0);
		ring_walk(ring, true);
	}
	pops_catalog(p, 0);
}

void
pops_set_clock(struct pops *p, int64_t offset_us)
{
	p->clock_offset_us = offset_us;
}

bool
pops_wants(const struct pops *p, const struct cat_queue *q)
{
	return q->rings || q->wants || watch_any(p, q->id);
}
