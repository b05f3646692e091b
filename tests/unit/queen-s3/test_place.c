/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits and shares, and nodes of a cell simulated: presence rows and leases in
 * memory, each node deciding by the arithmetic alone, a hundred milliseconds
 * at a time, under several seeds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "place.h"
#include "place_int.h"

enum {
	TTL = 30000,
	TICK = 100,
	NODES = 3,
	QUEUES_MAX = 7,
	DRAIN = 700, /* of a queue that is given back */
	SEEDS = 8
};

/* ---- arithmetic ---- */

static void
share_is_rounded_up(void **state)
{
	(void)state;
	assert_int_equal(place_share(0, 3), 0);
	assert_int_equal(place_share(1, 3), 1);
	assert_int_equal(place_share(6, 3), 2);
	assert_int_equal(place_share(7, 3), 3);
	assert_int_equal(place_share(7, 1), 7);
	assert_int_equal(place_share(7, 0), 7);
}

static void
waits_are_bounded(void **state)
{
	static const struct {
		struct place_claim c;
		int64_t wait;
	} cases[] = {
		/* ours: at once, however many it has */
		{ { LEASE_MINE, 9, 9, 1, true, -1, TTL }, 0 },
		/* free: jitter, and a second for each queue it runs */
		{ { LEASE_FREE, 0, 0, 2, false, -1, TTL }, 150 },
		{ { LEASE_FREE, 3, 1, 2, false, -1, TTL }, 3150 },
		{ { LEASE_FREE, 99, 1, 2, false, -1, TTL }, TTL / 2 + 150 },
		{ { LEASE_FREE, 2, 2, 2, false, -1, TTL }, TTL + 2150 },
		/* given back by this node: two TTLs after that */
		{ { LEASE_FREE, 0, 0, 2, false, 0, TTL }, 2 * TTL },
		{ { LEASE_FREE, 0, 0, 2, false, 50000, TTL }, 10000 },
		{ { LEASE_FREE, 0, 0, 2, false, 2 * TTL, TTL }, 150 },
		{ { LEASE_FREE, 1, 2, 2, false, 50000, TTL }, TTL + 1150 },
		/* another's: until the next look */
		{ { LEASE_OTHER, 9, 1, 2, false, -1, TTL }, TTL / 3 + 150 },
		{ { LEASE_OTHER, 0, 2, 2, false, -1, TTL }, TTL + 150 },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(
			place_wait_ms(&cases[i].c, 150), cases[i].wait);
}

static void
first_beats_are_close(void **state)
{
	(void)state;
	assert_int_equal(place_beat_ms(1, TTL), 1000);
	assert_int_equal(place_beat_ms(2, TTL), 1000);
	assert_int_equal(place_beat_ms(3, TTL), TTL / 3);
	assert_int_equal(place_beat_ms(1, 1000), 333);
	assert_int_equal(place_beat_ms(9, 100), 100);
}

static void
a_slot_is_taken_before_it_is_compared(void **state)
{
	(void)state;
	assert_int_equal(place_slot_take(), 0);
	assert_int_equal(place_slot_take(), 1);
	place_slot_give();
	assert_int_equal(place_slot_take(), 1);
	place_slot_give();
	place_slot_give();
}

static void
excess_is_given_after_a_whole_ttl_one_by_one(void **state)
{
	struct place_excess x = PLACE_EXCESS_ZERO;
	(void)state;

	assert_false(place_excess_due(&x, 4, 2, 0, TTL));
	assert_false(place_excess_due(&x, 4, 2, TTL - 1, TTL));
	/* fair for a moment: from the start again */
	assert_false(place_excess_due(&x, 2, 2, TTL - 1, TTL));
	assert_false(place_excess_due(&x, 4, 2, TTL, TTL));
	assert_true(place_excess_due(&x, 4, 2, 2 * TTL, TTL));
	place_excess_gave(&x);
	/* none other before it is another's, however long it drains */
	assert_false(place_excess_due(&x, 4, 2, 5 * TTL, TTL));
	place_excess_lost(&x, 5 * TTL);
	assert_false(place_excess_due(&x, 3, 2, 6 * TTL - 1, TTL));
	place_excess_taken(&x);
	assert_true(place_excess_due(&x, 3, 2, 6 * TTL - 1, TTL));
	place_excess_gave(&x);
	/* the last one draining: what is left is fair */
	assert_false(place_excess_due(&x, 3, 2, 6 * TTL, TTL));
	assert_int_equal(x.over_since_ms, -1);
	place_excess_lost(&x, 6 * TTL);
	/* or a whole TTL passed and nobody wanted it */
	assert_false(place_excess_due(&x, 3, 2, 6 * TTL, TTL));
	assert_false(place_excess_due(&x, 3, 2, 7 * TTL - 1, TTL));
	assert_true(place_excess_due(&x, 3, 2, 7 * TTL, TTL));
}

/* ---- nodes ---- */

struct task {
	bool held, slot;
	int ahead;
	int64_t look_ms, free_since_ms, jitter_ms, gave_back_ms;
	int64_t drained_ms; /* -1: not draining */
};

struct node {
	bool up;
	int64_t deaf_until_ms; /* its calls fail */
	int64_t beat_ms;
	int beats, seen, held, slots, given;
	int given_back;
	struct place_excess excess;
	struct task t[QUEUES_MAX];
};

static struct world {
	int64_t now_ms;
	int queues;
	struct node n[NODES];
	int64_t present_ms[NODES]; /* until */
	int owner[QUEUES_MAX];
	int64_t lease_ms[QUEUES_MAX]; /* until */
	int moves, free_most;
	uint32_t seed;
} w;

static int64_t
chance(uint32_t below)
{
	w.seed = w.seed * 1664525 + 1013904223;
	return (int64_t)((w.seed >> 8) % below);
}

static void
begin(int queues, uint32_t seed)
{
	memset(&w, 0, sizeof(w));
	w.queues = queues;
	w.seed = seed;
	for (int q = 0; q < queues; q++)
		w.owner[q] = -1;
}

static void
start(int i)
{
	struct node *n = &w.n[i];

	*n = (struct node){ .up = true,
		.beat_ms = w.now_ms,
		.seen = 1,
		.given = -1,
		.excess = PLACE_EXCESS_ZERO };
	for (int q = 0; q < w.queues; q++) {
		n->t[q].look_ms = w.now_ms + chance(100);
		n->t[q].gave_back_ms = n->t[q].drained_ms = -1;
	}
}

/* kill: rows stay until they expire. */
static void
stop(int i, bool kill)
{
	w.n[i].up = false;
	if (kill)
		return;
	w.present_ms[i] = 0;
	for (int q = 0; q < w.queues; q++)
		if (w.owner[q] == i)
			w.owner[q] = -1;
}

static bool
is_free(int q)
{
	return w.owner[q] < 0 || w.lease_ms[q] <= w.now_ms;
}

static void
unslot(struct node *n, struct task *t)
{
	n->slots -= t->slot;
	t->slot = false;
}

static void
look_free(int i, int q, struct place_claim *c)
{
	struct node *n = &w.n[i];
	struct task *t = &n->t[q];
	int64_t due;

	if (!t->slot) {
		t->slot = true;
		t->ahead = n->slots++;
		t->free_since_ms = w.now_ms;
		t->jitter_ms = chance(201);
	}
	c->running = t->ahead;
	c->gave_back_ms =
		t->gave_back_ms < 0 ? -1 : t->free_since_ms - t->gave_back_ms;
	due = t->free_since_ms + place_wait_ms(c, t->jitter_ms);
	if (w.now_ms < due) {
		t->look_ms =
			w.now_ms +
			(due - w.now_ms < TTL / 3 ? due - w.now_ms : TTL / 3);
		return;
	}
	w.owner[q] = i;
	w.lease_ms[q] = w.now_ms + TTL;
	w.moves++;
	t->held = true;
	t->gave_back_ms = -1;
	n->held++;
}

static void
look(int i, int q)
{
	struct node *n = &w.n[i];
	struct task *t = &n->t[q];
	struct place_claim c = { .held = n->held,
		.share = place_share(w.queues, n->seen),
		.gave_back_ms = -1,
		.ttl_ms = TTL };

	if (w.now_ms < n->deaf_until_ms) {
		t->look_ms = w.now_ms + 1000;
		return;
	}
	if (is_free(q)) {
		c.seen = LEASE_FREE;
		look_free(i, q, &c);
		return;
	}
	unslot(n, t);
	if (n->given == q) {
		place_excess_taken(&n->excess);
		n->given = -1;
	}
	c.seen = LEASE_OTHER;
	t->look_ms = w.now_ms + place_wait_ms(&c, chance(201));
}

static void
give_one(int i)
{
	struct node *n = &w.n[i];

	for (int q = 0; q < w.queues; q++) {
		if (!n->t[q].held)
			continue;
		n->t[q].drained_ms = w.now_ms + DRAIN;
		n->given = q;
		n->given_back++;
		place_excess_gave(&n->excess);
		return;
	}
}

static void
beat(int i)
{
	struct node *n = &w.n[i];

	if (w.now_ms < n->deaf_until_ms) {
		n->beat_ms = w.now_ms + 1000;
		return;
	}
	w.present_ms[i] = w.now_ms + TTL;
	n->seen = 0;
	for (int k = 0; k < NODES; k++)
		n->seen += w.present_ms[k] > w.now_ms;
	n->beat_ms = w.now_ms + place_beat_ms(++n->beats, TTL);
	if (place_excess_due(&n->excess, n->held,
		    place_share(w.queues, n->seen), w.now_ms, TTL))
		give_one(i);
}

static void
hold(int i, int q)
{
	struct node *n = &w.n[i];
	struct task *t = &n->t[q];

	w.lease_ms[q] = w.now_ms + TTL;
	if (t->drained_ms < 0 || w.now_ms < t->drained_ms)
		return;
	t->held = false;
	t->drained_ms = -1;
	t->gave_back_ms = w.now_ms;
	t->look_ms = w.now_ms;
	w.owner[q] = -1;
	unslot(n, t);
	n->held--;
	place_excess_lost(&n->excess, w.now_ms);
	place_excess_due(&n->excess, n->held, place_share(w.queues, n->seen),
		w.now_ms, TTL);
}

static void
run(int64_t ms)
{
	for (int64_t end = w.now_ms + ms; w.now_ms < end; w.now_ms += TICK) {
		int nobodys = 0;

		for (int i = 0; i < NODES; i++) {
			struct node *n = &w.n[i];

			if (!n->up)
				continue;
			if (w.now_ms >= n->beat_ms)
				beat(i);
			for (int q = 0; q < w.queues; q++)
				if (n->t[q].held)
					hold(i, q);
				else if (w.now_ms >= n->t[q].look_ms)
					look(i, q);
		}
		for (int q = 0; q < w.queues; q++)
			nobodys += is_free(q);
		if (nobodys > w.free_most)
			w.free_most = nobodys;
	}
}

static void
assert_held(int a, int b, int c)
{
	const int want[NODES] = { a, b, c };

	for (int i = 0; i < NODES; i++)
		assert_int_equal(w.n[i].up ? w.n[i].held : 0, want[i]);
}

static int
all_held(void)
{
	int n = 0;

	for (int i = 0; i < NODES; i++)
		n += w.n[i].up ? w.n[i].held : 0;
	return n;
}

/* ---- what becomes of them ---- */

static void
seven_queues_spread_over_three_nodes_and_fail_over(void **state)
{
	(void)state;
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		begin(7, seed);
		for (int i = 0; i < NODES; i++)
			start(i);
		run(TTL);
		assert_int_equal(all_held(), 7);
		for (int i = 0; i < NODES; i++)
			assert_in_range(w.n[i].held, 1, 4);
		stop(0, true);
		/* the leases run out, then less than a TTL */
		run(2 * TTL);
		assert_int_equal(all_held(), 7);
	}
}

static void
nodes_whose_first_calls_fail_end_spread(void **state)
{
	(void)state;
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		begin(7, seed);
		for (int i = 0; i < NODES; i++) {
			start(i);
			w.n[i].deaf_until_ms = 4000 * i;
		}
		run(12 * TTL);
		assert_int_equal(all_held(), 7);
		for (int i = 0; i < NODES; i++)
			assert_in_range(w.n[i].held, 1, 3);
	}
}

static void
one_node_keeps_everything(void **state)
{
	(void)state;
	begin(7, 1);
	start(1);
	run(10 * TTL);
	assert_held(0, 7, 0);
	assert_int_equal(w.moves, 7);
	assert_int_equal(w.n[1].given_back, 0);
}

static void
staggered_nodes_converge_and_then_stay(void **state)
{
	(void)state;
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		begin(6, seed);
		start(0);
		run(TTL);
		assert_held(6, 0, 0);
		start(1);
		run(200);
		start(2);
		w.free_most = 0;
		run(8 * TTL);
		assert_held(2, 2, 2);
		assert_int_equal(w.n[0].given_back, 4);
		assert_int_equal(w.free_most, 1);
		assert_int_equal(w.moves, 10);
		run(20 * TTL);
		assert_int_equal(w.moves, 10);
	}
}

static void
a_dead_nodes_queues_move_and_come_back(void **state)
{
	int before[2];
	(void)state;
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		begin(6, seed);
		for (int i = 0; i < NODES; i++)
			start(i);
		run(8 * TTL);
		assert_held(2, 2, 2);
		stop(2, true);
		run(3 * TTL);
		assert_held(3, 3, 0);
		before[0] = w.n[0].given_back;
		before[1] = w.n[1].given_back;
		start(2);
		run(2 * TTL);
		assert_held(2, 2, 2);
		assert_int_equal(w.n[0].given_back, before[0] + 1);
		assert_int_equal(w.n[1].given_back, before[1] + 1);
	}
}

static void
a_node_seen_for_seconds_moves_nothing(void **state)
{
	int moves;
	(void)state;

	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		begin(6, seed);
		start(0);
		start(1);
		run(6 * TTL);
		assert_held(3, 3, 0);
		moves = w.moves;
		start(2);
		run(5000);
		stop(2, false);
		run(4 * TTL);
		assert_held(3, 3, 0);
		assert_int_equal(w.moves, moves);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(share_is_rounded_up),
		cmocka_unit_test(waits_are_bounded),
		cmocka_unit_test(first_beats_are_close),
		cmocka_unit_test(a_slot_is_taken_before_it_is_compared),
		cmocka_unit_test(excess_is_given_after_a_whole_ttl_one_by_one),
		cmocka_unit_test(
			seven_queues_spread_over_three_nodes_and_fail_over),
		cmocka_unit_test(nodes_whose_first_calls_fail_end_spread),
		cmocka_unit_test(one_node_keeps_everything),
		cmocka_unit_test(staggered_nodes_converge_and_then_stay),
		cmocka_unit_test(a_dead_nodes_queues_move_and_come_back),
		cmocka_unit_test(a_node_seen_for_seconds_moves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
