/* SPDX-License-Identifier: Apache-2.0 */
/* The candidate ring: states, wake-ups that must not be lost, fairness. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "hot.h"

static int64_t
take(struct hot *h)
{
	int64_t part = -1;

	return hot_take(h, true, &part) == HOT_TAKE_NONE ? -1 : part;
}

static void
test_marked_partitions_come_out_in_order(void **state)
{
	struct hot *h = hot_new();

	(void)state;
	assert_int_equal(take(h), -1);
	assert_true(hot_mark(h, 5, 0));
	assert_true(hot_mark(h, 3, 0));
	assert_false(hot_mark(h, 5, 0));
	assert_int_equal(hot_ready(h), 2);
	assert_int_equal(take(h), 5);
	assert_int_equal(take(h), 3);
	assert_int_equal(take(h), -1);
	assert_int_equal(hot_flying(h), 2);
	assert_int_equal(hot_count(h), 2);
	hot_free(h);
}

static void
test_empty_forgets_only_without_a_mark_since(void **state)
{
	struct hot *h = hot_new();

	(void)state;
	hot_mark(h, 1, 0);
	assert_int_equal(take(h), 1);
	assert_false(hot_end(h, 1, HOT_END_EMPTY, 0, 0));
	assert_int_equal(hot_state(h, 1), HOT_IDLE);
	assert_int_equal(hot_count(h), 0);
	hot_mark(h, 1, 0);
	assert_int_equal(take(h), 1);
	assert_false(hot_mark(h, 1, 0));
	assert_true(hot_end(h, 1, HOT_END_EMPTY, 0, 0));
	assert_int_equal(hot_state(h, 1), HOT_READY);
	hot_free(h);
}

static void
test_flying_is_not_handed_out_twice(void **state)
{
	struct hot *h = hot_new();

	(void)state;
	hot_mark(h, 1, 0);
	assert_int_equal(take(h), 1);
	hot_mark(h, 1, 0);
	hot_release(h, 1);
	assert_int_equal(take(h), -1);
	assert_int_equal(hot_take_part(h, 1, true, true), HOT_TAKE_NONE);
	hot_free(h);
}

static void
test_leased_waits_for_its_time_or_a_release(void **state)
{
	struct hot *h = hot_new();
	int64_t part = 0;

	(void)state;
	hot_mark(h, 1, 0);
	take(h);
	hot_end(h, 1, HOT_END_LEASED, 1000, 0);
	assert_int_equal(hot_state(h, 1), HOT_LEASED);
	assert_int_equal(hot_next_ms(h), 1000);
	hot_mark(h, 1, 10); /* does not wake it */
	assert_int_equal(hot_next_ms(h), 1000);
	assert_false(hot_due(h, 999, &part));
	assert_true(hot_due(h, 1000, &part));
	assert_int_equal(part, 1);
	assert_int_equal(hot_next_ms(h), INT64_MAX);
	/* only its time was up: that is a probe */
	assert_int_equal(hot_take(h, false, &part), HOT_TAKE_NONE);
	assert_int_equal(hot_take(h, true, &part), HOT_TAKE_PROBE);
	hot_end(h, 1, HOT_END_LEASED, 2000, 1000);
	assert_true(hot_release(h, 1));
	assert_int_equal(hot_take(h, false, &part), HOT_TAKE_FRESH);
	/* a release while flying is not lost */
	assert_false(hot_release(h, 1));
	assert_true(hot_end(h, 1, HOT_END_LEASED, 3000, 1000));
	hot_free(h);
}

static void
test_done_forgets_its_lease_unless_marked_meanwhile(void **state)
{
	struct hot *h = hot_new();

	(void)state;
	hot_mark(h, 1, 0);
	take(h);
	hot_end(h, 1, HOT_END_LEASED, 1000, 0);
	hot_lease(h, 1, 77);
	assert_false(hot_done(h, 1, 77));
	assert_int_equal(hot_state(h, 1), HOT_IDLE);
	assert_false(hot_done(h, 1, 77)); /* unknown: nothing to say */
	assert_int_equal(hot_count(h), 0);

	hot_mark(h, 2, 0);
	take(h);
	hot_end(h, 2, HOT_END_LEASED, 1000, 0);
	hot_lease(h, 2, 78);
	hot_mark(h, 2, 5);
	assert_true(hot_done(h, 2, 78));
	assert_int_equal(hot_state(h, 2), HOT_READY);
	hot_free(h);
}

static void
test_done_of_another_lease_does_not_lose_the_expiry(void **state)
{
	struct hot *h = hot_new();

	(void)state;
	hot_mark(h, 1, 0);
	take(h);
	hot_end(h, 1, HOT_END_LEASED, 1000, 0);
	hot_lease(h, 1, 77);
	assert_false(hot_done(h, 1, 76));
	assert_int_equal(hot_state(h, 1), HOT_LEASED);
	assert_int_equal(hot_next_ms(h), 1000);
	/* but if it was the end of this one, the next mark must wake it */
	assert_true(hot_mark(h, 1, 10));
	assert_int_equal(hot_state(h, 1), HOT_READY);
	/* the word does not outlive the lease it met */
	take(h);
	hot_end(h, 1, HOT_END_LEASED, 2000, 10);
	assert_false(hot_mark(h, 1, 20));
	assert_int_equal(hot_state(h, 1), HOT_LEASED);
	hot_free(h);
}

static void
test_hidden_is_probed_soon_after_a_mark(void **state)
{
	struct hot *h = hot_new();

	(void)state;
	hot_mark(h, 1, 0);
	take(h);
	hot_end(h, 1, HOT_END_HIDDEN, 60000, 0);
	assert_int_equal(hot_next_ms(h), 60000);
	hot_mark(h, 1, 100);
	assert_int_equal(hot_next_ms(h), 100 + HOT_MARK_MS);
	hot_mark(h, 1, 200); /* the next ones do not push it away */
	assert_int_equal(hot_next_ms(h), 100 + HOT_MARK_MS);
	assert_true(hot_unhide(h));
	take(h);
	hot_mark(h, 1, 300); /* while it flies */
	hot_end(h, 1, HOT_END_HIDDEN, 60000, 400);
	assert_int_equal(hot_next_ms(h), 400 + HOT_MARK_MS);
	hot_free(h);
}

static void
test_unreached_keeps_its_place(void **state)
{
	struct hot *h = hot_new();

	(void)state;
	for (int i = 1; i <= 6; i++)
		hot_mark(h, i, 0);
	for (int i = 1; i <= 4; i++)
		assert_int_equal(take(h), i);
	hot_end(h, 1, HOT_END_MORE, 0, 0);
	hot_end(h, 2, HOT_END_BACK, 0, 0);
	hot_end(h, 4, HOT_END_BACK, 0, 0);
	hot_end(h, 3, HOT_END_BACK, 0, 0);
	int64_t want[] = { 2, 3, 4, 5, 6, 1, -1 };

	for (int i = 0; i < 7; i++)
		assert_int_equal(take(h), want[i]);
	hot_free(h);
}

static void
test_unknown_partition_can_be_probed_by_name(void **state)
{
	struct hot *h = hot_new();

	(void)state;
	assert_int_equal(hot_take_part(h, 9, false, true), HOT_TAKE_NONE);
	assert_int_equal(hot_take_part(h, 9, true, true), HOT_TAKE_FRESH);
	assert_int_equal(hot_state(h, 9), HOT_FLYING);
	hot_end(h, 9, HOT_END_GONE, 0, 0);
	assert_int_equal(hot_count(h), 0);
	hot_free(h);
}

static void
test_no_partition_starves_among_busy_ones(void **state)
{
	struct hot *h = hot_new();
	int last[50] = { 0 };

	(void)state;
	for (int i = 0; i < 50; i++)
		hot_mark(h, i, 0);
	/* two are checked out at a time, one is served, the other goes back */
	for (int round = 1; round <= 2000; round++) {
		int64_t a = take(h), b = take(h);

		last[a] = round;
		hot_end(h, a, HOT_END_MORE, 0, 0);
		hot_end(h, b, HOT_END_BACK, 0, 0);
		for (int i = 0; i < 50 && round > 50; i++)
			assert_true(round - last[i] <= 50);
	}
	hot_free(h);
}

static void
test_marks_are_counted_since_the_last_hand_out(void **state)
{
	struct hot *h = hot_new();

	(void)state;
	hot_mark(h, 1, 0);
	hot_mark(h, 1, 0);
	hot_mark(h, 2, 0);
	assert_int_equal(hot_marks(h, 1), 2);
	assert_int_equal(hot_marks(h, 10), 3);
	take(h);
	assert_int_equal(hot_marks(h, 10), 1);
	hot_free(h);
}

static void
test_doubted_goes_to_those_who_came_later(void **state)
{
	struct hot *h = hot_new();
	int64_t part = 0;

	(void)state;
	for (int i = 1; i <= 4; i++) {
		hot_mark(h, i, 0);
		take(h);
	}
	hot_doubt(h, 1, 1); /* only what waits for a time is doubted */
	assert_int_equal(hot_doubted(h), 0);
	hot_end(h, 1, HOT_END_LEASED, 1000, 0);
	hot_end(h, 2, HOT_END_HIDDEN, 500, 0);
	hot_end(h, 3, HOT_END_HIDDEN, 700, 0);
	hot_end(h, 4, HOT_END_LEASED, 900, 0);
	hot_doubt(h, 1, 30);
	hot_doubt(h, 2, 20);
	hot_doubt(h, 4, 10);
	assert_int_equal(hot_doubted(h), 3);
	assert_false(hot_take_doubted(h, 9, &part));
	/* hidden ones, then the oldest; not before the moment it was seen */
	assert_true(hot_take_doubted(h, 20, &part));
	assert_int_equal(part, 2);
	assert_true(hot_take_doubted(h, 20, &part));
	assert_int_equal(part, 4);
	assert_false(hot_take_doubted(h, 20, &part));
	assert_false(hot_take_part_doubted(h, 1, 29));
	assert_false(hot_take_part_doubted(h, 3, UINT64_MAX));
	assert_false(hot_take_part_doubted(h, 9, UINT64_MAX));
	assert_true(hot_take_part_doubted(h, 1, 30));
	assert_int_equal(hot_flying(h), 3);
	assert_int_equal(hot_next_ms(h), 700);
	/* seen anew: of no use to who came before */
	hot_end(h, 4, HOT_END_LEASED, 900, 0);
	hot_doubt(h, 4, 40);
	assert_false(hot_take_doubted(h, 39, &part));
	/* one that was not needed is a probe, no work that was told of */
	assert_true(hot_end(h, 2, HOT_END_BACK, 0, 0));
	assert_int_equal(hot_take(h, false, &part), HOT_TAKE_NONE);
	assert_int_equal(hot_take(h, true, &part), HOT_TAKE_PROBE);
	assert_int_equal(part, 2);
	/* what wakes is doubted no more */
	assert_true(hot_release(h, 4));
	assert_int_equal(hot_doubted(h), 0);
	assert_int_equal(hot_take(h, false, &part), HOT_TAKE_FRESH);
	assert_int_equal(part, 4);
	hot_free(h);
}

static void
test_a_look_at_a_doubted_one_keeps_its_marks(void **state)
{
	struct hot *h = hot_new();

	(void)state;
	hot_mark(h, 1, 0);
	take(h);
	hot_end(h, 1, HOT_END_LEASED, 1000, 0);
	hot_doubt(h, 1, 1);
	hot_mark(h, 1, 5);
	assert_true(hot_take_part_doubted(h, 1, 1));
	hot_end(h, 1, HOT_END_LEASED, 1000, 10);
	/* the end that is told of now may not have seen that message */
	assert_true(hot_done(h, 1, 0));
	assert_int_equal(hot_state(h, 1), HOT_READY);
	hot_free(h);
}

/*
 * Against a naive model of the database: each partition has messages and
 * perhaps a lease; marks and releases are told as the announcements tell
 * them.  Whatever the order, work that can be claimed is always ready,
 * flying, or parked until a time that comes.
 */
enum { PARTS = 12 };

struct model {
	bool pending[PARTS]; /* messages beyond the cursor */
	bool leased[PARTS];
	int64_t lease_until[PARTS];
	int64_t lease[PARTS], ended[PARTS]; /* ended: word on its way */
	int64_t leases;
	bool flying[PARTS];
	uint64_t clock; /* of hot_doubt */
};

static void
check(const struct hot *h, const struct model *m)
{
	size_t ready = 0, flying = 0;

	for (int i = 0; i < PARTS; i++) {
		enum hot_state s = hot_state(h, i);

		if (m->pending[i])
			assert_int_not_equal(s, HOT_IDLE);
		if (s == HOT_FLYING)
			flying++;
		if (s == HOT_READY)
			ready++;
		assert_int_equal(s == HOT_FLYING, m->flying[i]);
		/* free work that waits for a time, waits for that of a lease */
		if (m->pending[i] && !m->leased[i] && s == HOT_LEASED)
			assert_true(hot_next_ms(h) <= m->lease_until[i]);
	}
	assert_int_equal(ready, hot_ready(h) + hot_probes(h));
	assert_int_equal(flying, hot_flying(h));
	assert_true(hot_doubted(h) <= hot_count(h) - ready - flying);
}

static void
verdict(struct hot *h, struct model *m, int i, int64_t now)
{
	m->flying[i] = false;
	if (rand() % 5 == 0) {
		hot_end(h, i, HOT_END_BACK, 0, now);
	} else if (m->leased[i]) {
		hot_end(h, i, HOT_END_LEASED, m->lease_until[i], now);
		hot_doubt(h, i, ++m->clock);
	} else if (!m->pending[i]) {
		/* a mark may come between the snapshot and the verdict */
		if (rand() % 3 == 0) {
			m->pending[i] = true;
			hot_mark(h, i, now);
		}
		hot_end(h, i, HOT_END_EMPTY, 0, now);
	} else {
		m->leased[i] = true;
		m->lease[i] = ++m->leases;
		m->lease_until[i] = now + 1 + rand() % 50;
		hot_end(h, i, HOT_END_LEASED, m->lease_until[i], now);
		hot_lease(h, i, m->lease[i]);
		hot_doubt(h, i, ++m->clock);
	}
}

static void
step(struct hot *h, struct model *m, int64_t now)
{
	int i = rand() % PARTS;
	int64_t part;

	switch (rand() % 8) {
	case 0:
		m->pending[i] = true;
		hot_mark(h, i, now);
		break;
	case 1:
		if (hot_take(h, rand() % 2, &part) != HOT_TAKE_NONE) {
			assert_false(m->flying[part]);
			m->flying[part] = true;
		}
		break;
	case 2:
		if (m->flying[i])
			verdict(h, m, i, now);
		break;
	case 3: /* ack: all of it, or a part */
		if (!m->leased[i] || m->flying[i])
			break;
		m->leased[i] = false;
		if (rand() % 2) {
			hot_release(h, i);
		} else {
			m->pending[i] = false;
			m->ended[i] = m->lease[i];
		}
		break;
	case 7: /* somebody doubts what is leased */
		if (hot_take_doubted(h, m->clock - m->clock % 3, &part)) {
			assert_false(m->flying[part]);
			m->flying[part] = true;
		}
		break;
	case 6: /* the word of it comes, perhaps late */
		if (m->ended[i])
			hot_done(h, i, rand() % 2 ? m->ended[i] : 0);
		m->ended[i] = 0;
		break;
	case 4: /* leases run out */
		for (int k = 0; k < PARTS; k++)
			if (m->leased[k] && m->lease_until[k] <= now)
				m->leased[k] = false;
		while (hot_due(h, now, &part))
			;
		break;
	default:
		if (hot_take_part(h, i, false, true) != HOT_TAKE_NONE) {
			assert_false(m->flying[i]);
			m->flying[i] = true;
		}
	}
}

static void
test_random_events_lose_no_work(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 60; seed++) {
		struct hot *h = hot_new();
		struct model m;
		int64_t now = 0;

		memset(&m, 0, sizeof(m));
		srand(seed);
		for (int n = 0; n < 3000; n++) {
			now += rand() % 3;
			step(h, &m, now);
			check(h, &m);
		}
		/* left alone, everything pending can be handed out */
		for (int i = 0; i < PARTS; i++)
			if (m.flying[i])
				hot_end(h, i, HOT_END_BACK, 0, now);
		now += 1000;
		int64_t part;
		bool out[PARTS] = { false };

		while (hot_due(h, now, &part))
			;
		while ((part = take(h)) >= 0)
			out[part] = true;
		for (int i = 0; i < PARTS; i++)
			if (m.pending[i])
				assert_true(out[i]);
		hot_free(h);
	}
}

static void
test_many_parked_come_due_in_order(void **state)
{
	struct hot *h = hot_new();
	int64_t part, before = -1;

	(void)state;
	srand(7);
	for (int i = 0; i < 1000; i++) {
		hot_mark(h, i, 0);
		assert_int_equal(take(h), i);
		hot_end(h, i, HOT_END_LEASED, rand() % 10000, 0);
	}
	for (int i = 0; i < 1000; i += 3)
		assert_true(hot_release(h, i));
	while (hot_next_ms(h) != INT64_MAX) {
		int64_t next = hot_next_ms(h);

		assert_true(next >= before);
		before = next;
		assert_true(hot_due(h, next, &part));
		assert_int_not_equal(part % 3, 0);
	}
	assert_int_equal(hot_ready(h), 334);
	assert_int_equal(hot_probes(h), 666);
	hot_free(h);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_marked_partitions_come_out_in_order),
		cmocka_unit_test(test_empty_forgets_only_without_a_mark_since),
		cmocka_unit_test(test_flying_is_not_handed_out_twice),
		cmocka_unit_test(test_leased_waits_for_its_time_or_a_release),
		cmocka_unit_test(
			test_done_forgets_its_lease_unless_marked_meanwhile),
		cmocka_unit_test(
			test_done_of_another_lease_does_not_lose_the_expiry),
		cmocka_unit_test(test_hidden_is_probed_soon_after_a_mark),
		cmocka_unit_test(test_unreached_keeps_its_place),
		cmocka_unit_test(test_unknown_partition_can_be_probed_by_name),
		cmocka_unit_test(test_no_partition_starves_among_busy_ones),
		cmocka_unit_test(
			test_marks_are_counted_since_the_last_hand_out),
		cmocka_unit_test(test_doubted_goes_to_those_who_came_later),
		cmocka_unit_test(test_a_look_at_a_doubted_one_keeps_its_marks),
		cmocka_unit_test(test_random_events_lose_no_work),
		cmocka_unit_test(test_many_parked_come_due_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
