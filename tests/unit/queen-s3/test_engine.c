/* SPDX-License-Identifier: Apache-2.0 */
/* Where windows begin and end, and what they hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_hand.h"

static const struct engine_window *
window(int i)
{
	assert_true(i < s.win_n);
	return &s.win[i].w;
}

/* ---- the end of a window ---- */

static void
none_closes_above_safe_time_less_the_guard(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	s.conf.start = S3_EARLIEST;
	sim_push_at(&s, a, DAWN + 10 * SECOND, 1);
	sim_push_at(&s, a, DAWN + 65 * SECOND, 1);
	begins_at(DAWN + 70 * SECOND);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	sim_commit(&s);
	assert_true(window(0)->start_us == DAWN);
	assert_true(window(0)->end_us == DAWN + 65 * SECOND);
	assert_int_equal(window(0)->records, 1);
	/* an open transaction holds it */
	s.tx[0] =
		(struct sim_tx){ .open = true, .start_us = DAWN + 66 * SECOND };
	assert_int_equal(wake_at(DAWN + HOUR), ENGINE_IDLE);
	s.tx[0].open = false;
	assert_int_equal(wake_at(DAWN + HOUR), ENGINE_CLOSE);
	sim_commit(&s);
	assert_true(window(1)->end_us == DAWN + HOUR - 5 * SECOND);
}

static void
a_partition_read_slowly_caps_it_at_its_frontier(void **state)
{
	struct sim_part *a = sim_create(&s, "a"), *b = sim_create(&s, "b");

	(void)state;
	s.conf.start = S3_EARLIEST;
	for (int i = 1; i <= 300; i++)
		sim_push_at(&s, a, DAWN + i * SECOND, 1);
	sim_push_at(&s, b, DAWN + 290 * SECOND, 1);
	begins_at(DAWN + 400 * SECOND);
	assert_int_equal(sim_step(&s), ENGINE_DISCOVER);
	sim_deliver(&s, 0, false);
	assert_int_equal(sim_step(&s), ENGINE_FETCH);
	assert_int_equal(s.call[0]->s.n, 2);
	sim_deliver(&s, 0, false);
	/* it may close only there, and more is about to come */
	assert_int_equal(sim_step(&s), ENGINE_FETCH);
	engine_force(s.e);
	assert_int_equal(sim_step(&s), ENGINE_CLOSE);
	sim_commit(&s);
	assert_true(window(0)->end_us == DAWN + 100 * SECOND);
	assert_int_equal(window(0)->records, 99);
	sim_settle(&s);
	assert_int_equal(s.win_n, 2);
	assert_int_equal(window(1)->records, 202);
}

static void
none_straddles_an_hour(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	s.conf.max_window_us = 24 * HOUR;
	sim_push_at(&s, a, DAWN + HOUR - 1, 1);
	sim_push_at(&s, a, DAWN + HOUR, 1);
	begins_at(DAWN + 80 * MINUTE);
	assert_int_equal(sim_settle(&s), ENGINE_IDLE);
	assert_int_equal(s.win_n, 1);
	assert_int_equal(window(0)->records, 1);
	assert_true(window(0)->end_us == DAWN + HOUR);
	assert_true(window(0)->max_us == DAWN + HOUR - 1);
}

static void
five_silent_hours_make_no_object_and_no_stall(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	s.conf.max_window_us = 24 * HOUR;
	sim_push_at(&s, a, DAWN + 10 * MINUTE, 1);
	sim_push_at(&s, a, DAWN + 5 * HOUR + 30 * MINUTE, 1);
	begins_at(DAWN + 7 * HOUR);
	sim_settle(&s);
	assert_int_equal(s.win_n, 2);
	assert_true(window(0)->end_us == DAWN + HOUR);
	assert_true(window(1)->start_us == DAWN + 5 * HOUR);
	assert_true(window(1)->end_us == DAWN + 6 * HOUR);
	engine_stats(s.e, &st);
	/* 1 to 5, then 6 to 7 less the guard */
	assert_int_equal(st.stepped_over, 4);
}

static void
size_closes_at_a_stamp_and_about_the_target(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	for (int i = 0; i < 25; i++)
		sim_push_at(&s, a, DAWN + i * SECOND, 1);
	/* each weighs 64, `a`, `1/0` and 100; from the tenth on one more */
	s.conf.target_bytes = 10 * 168;
	begins_at(DAWN + MINUTE);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	sim_commit(&s);
	assert_int_equal(window(0)->records, 10);
	assert_true(window(0)->end_us == DAWN + 10 * SECOND);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	sim_commit(&s);
	/* 9 would weigh 1521 */
	assert_int_equal(window(1)->records, 10);
	assert_true(window(1)->end_us == DAWN + 20 * SECOND);
	assert_int_equal(sim_run(&s), ENGINE_IDLE);
	engine_stats(s.e, &st);
	assert_int_equal(st.buffered_bytes, 5 * 169);
}

static void
what_shares_the_last_stamp_closes_at_the_limit(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	sim_push_at(&s, a, DAWN + SECOND, 30);
	s.conf.target_bytes = 1000;
	begins_at(DAWN + MINUTE);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	sim_commit(&s);
	assert_int_equal(window(0)->records, 30);
	assert_true(window(0)->end_us == DAWN + MINUTE - 5 * SECOND);
}

static void
age_closes_a_tiny_window(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	sim_push_at(&s, a, DAWN + SECOND, 1);
	begins_at(DAWN + 5 * MINUTE - 1);
	assert_int_equal(sim_run(&s), ENGINE_IDLE);
	assert_int_equal(wake_at(DAWN + 5 * MINUTE), ENGINE_CLOSE);
	sim_commit(&s);
	assert_int_equal(window(0)->records, 1);
	assert_true(window(0)->start_us == DAWN);
	assert_true(window(0)->end_us == DAWN + 5 * MINUTE - 5 * SECOND);
}

static void
an_empty_window_is_never_made_and_an_idle_queue_idles(void **state)
{
	(void)state;
	sim_create(&s, "a");
	begins_at(DAWN + SECOND);
	assert_int_equal(sim_run(&s), ENGINE_IDLE);
	assert_int_equal(s.pages, 1);
	for (int i = 1; i <= 50; i++) {
		assert_int_equal(wake_at(DAWN + i * 5 * MINUTE), ENGINE_IDLE);
		/* to ask again changes nothing */
		assert_int_equal(sim_step(&s), ENGINE_IDLE);
		assert_int_equal(s.pages, i + 1);
	}
	assert_int_equal(s.fetches + s.seeks, 0);
}

static void
force_closes_early_but_never_what_may_not(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	sim_push_at(&s, a, DAWN + 100 * SECOND, 2);
	begins_at(DAWN + 103 * SECOND);
	engine_force(s.e);
	assert_int_equal(sim_run(&s), ENGINE_IDLE);
	assert_int_equal(wake_at(DAWN + 105 * SECOND), ENGINE_IDLE);
	assert_int_equal(wake_at(DAWN + 105 * SECOND + 1), ENGINE_CLOSE);
	sim_commit(&s);
	assert_int_equal(window(0)->records, 2);
	assert_true(window(0)->end_us == DAWN + 100 * SECOND + 1);
	/* once */
	sim_push_at(&s, a, DAWN + 106 * SECOND, 1);
	assert_int_equal(wake_at(DAWN + 150 * SECOND), ENGINE_IDLE);
}

/* ---- the start of a window ---- */

static void
after_a_lull_a_burst_is_not_old_at_once(void **state)
{
	struct sim_part *a = sim_create(&s, "a");
	int64_t at = DAWN + SECOND;

	(void)state;
	sim_push_at(&s, a, at, 1);
	begins_at(at + 2 * SECOND);
	sim_settle(&s);
	for (int i = 0; i < 450; i++) /* three windows */
		if (wake_at(at += 2 * SECOND) == ENGINE_CLOSE)
			sim_commit(&s);
	assert_int_equal(s.win_n, 1);
	for (int i = 0; i < 10; i++) {
		sim_push_at(&s, a, at += SECOND / 5, 100);
		assert_int_equal(wake_at(at), ENGINE_IDLE);
	}
	for (int i = 0; i < 200; i++)
		if (wake_at(at += 2 * SECOND) == ENGINE_CLOSE)
			sim_commit(&s);
	assert_int_equal(s.win_n, 2);
	assert_int_equal(window(1)->records, 1000);
}

static void
a_backfill_does_not_close_wherever_the_slowest_is(void **state)
{
	static const char *const name[] = { "a", "b", "c" };

	(void)state;
	s.conf.start = S3_EARLIEST;
	s.conf.fetch_concurrency = 1;
	s.batch = 10;
	for (int k = 0; k < 3; k++) {
		struct sim_part *p = sim_create(&s, name[k]);

		for (int i = 0; i < 3600; i++)
			sim_push_at(&s, p, DAWN + i * SECOND, 1);
	}
	begins_at(DAWN + 10 * HOUR);
	sim_settle(&s);
	assert_in_range(s.win_n, 10, 12);
	for (int i = 0; i + 1 < s.win_n; i++)
		assert_true(
			window(i)->end_us - window(i)->start_us >= 5 * MINUTE);
}

static void
latest_begins_at_the_first_safe_time(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	s.conf.start = S3_LATEST;
	sim_push_at(&s, a, DAWN + 10 * SECOND, 3);
	sim_push_at(&s, a, DAWN + 20 * SECOND, 1);
	/* a writer that began before: what it wrote counts */
	s.tx[0] =
		(struct sim_tx){ .open = true, .start_us = DAWN + 20 * SECOND };
	begins_at(DAWN + 30 * SECOND);
	assert_int_equal(sim_run(&s), ENGINE_IDLE);
	assert_int_equal(s.seeks, 1);
	s.tx[0].open = false;
	assert_int_equal(wake_at(DAWN + 6 * MINUTE), ENGINE_CLOSE);
	sim_commit(&s);
	assert_true(window(0)->start_us == DAWN + 20 * SECOND);
	assert_int_equal(window(0)->records, 1);
}

static void
nothing_is_read_until_safe_time_is_told(void **state)
{
	struct engine_found f = { .part = 1,
		.name = SPAN_LIT("a"),
		.last_offset = 9,
		.last_write_us = DAWN };

	(void)state;
	s.conf.start = S3_LATEST;
	begins_at(DAWN);
	for (int i = 0; i < 3; i++) {
		engine_next(s.e, &t);
		assert_int_equal(t.what, ENGINE_DISCOVER);
		assert_true(t.since_us == STAMP_NONE);
		engine_on_page(s.e, t.call, STAMP_NONE, true, &f, 1, false);
		engine_next(s.e, &t);
		assert_int_equal(t.what, ENGINE_IDLE);
		engine_stats(s.e, &st);
		assert_true(st.degraded);
		assert_int_equal(st.partitions, 0);
		assert_true(st.safe_us == STAMP_NONE);
		assert_int_equal(st.lag_us, -1);
		engine_woken(s.e);
	}
}

static void
a_time_to_start_at_is_the_start_even_if_it_is_to_come(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	s.conf.start_us = DAWN + HOUR;
	sim_push_at(&s, a, DAWN + 10 * MINUTE, 1);
	begins_at(DAWN + 20 * MINUTE);
	assert_int_equal(sim_settle(&s), ENGINE_IDLE);
	sim_push_at(&s, a, DAWN + HOUR - 1, 1);
	sim_push_at(&s, a, DAWN + HOUR, 1);
	assert_int_equal(wake_at(DAWN + HOUR + SECOND), ENGINE_IDLE);
	assert_int_equal(wake_at(DAWN + HOUR + 6 * MINUTE), ENGINE_CLOSE);
	sim_commit(&s);
	assert_true(window(0)->start_us == DAWN + HOUR);
	assert_int_equal(window(0)->records, 1);
}

/* ---- lag ---- */

static void
lag_of_an_idle_queue_is_the_guard(void **state)
{
	(void)state;
	s.conf.start = S3_EARLIEST;
	sim_create(&s, "a");
	begins_at(DAWN);
	for (int i = 1; i <= 50; i++) {
		sim_run(&s);
		engine_stats(s.e, &st);
		assert_true(st.lag_us == 5 * SECOND);
		assert_true(st.complete_us == s.now_us - 5 * SECOND);
		wake_at(DAWN + i * 5 * MINUTE);
	}
}

static void
pending_records_make_it_grow_and_their_commit_shrinks_it(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	s.conf.align = S3_UNALIGNED;
	begins_at(DAWN + 10 * SECOND);
	sim_run(&s);
	sim_push_at(&s, a, DAWN + 11 * SECOND, 1);
	for (int i = 2; i < 30; i++) {
		assert_int_equal(wake_at(DAWN + 10 * i * SECOND), ENGINE_IDLE);
		engine_stats(s.e, &st);
		/* up to the pass before it came */
		assert_true(st.complete_us == DAWN + 10 * SECOND);
		assert_true(st.lag_us == (10 * i - 10) * SECOND);
	}
	assert_int_equal(wake_at(DAWN + 305 * SECOND), ENGINE_CLOSE);
	engine_stats(s.e, &st);
	assert_true(st.lag_us == 295 * SECOND);
	assert_false(st.filling);
	sim_commit(&s);
	engine_stats(s.e, &st);
	assert_true(st.lag_us == 5 * SECOND);
	assert_int_equal(st.committed_k, 1);
}

static void
degraded_is_told_as_the_cell_tells_it(void **state)
{

	(void)state;
	begins_at(DAWN);
	for (int i = 0; i < 4; i++) {
		engine_next(s.e, &t);
		assert_int_equal(t.what, ENGINE_DISCOVER);
		engine_on_page(
			s.e, t.call, DAWN + i, i % 2 == 0, NULL, 0, false);
		engine_stats(s.e, &st);
		assert_int_equal(st.degraded, i % 2 == 0);
		assert_true(st.safe_us == DAWN + i);
		engine_next(s.e, &t);
		engine_woken(s.e);
	}
}

/* ---- its sequence ---- */

static void
it_waits_for_the_commit_and_asks_for_nothing_meanwhile(void **state)
{
	struct sim_part *a = sim_create(&s, "a"), *b = sim_create(&s, "b");

	(void)state;
	sim_push_at(&s, a, DAWN + SECOND, 1);
	begins_at(DAWN + 6 * MINUTE);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	assert_false(engine_may_checkpoint(s.e));
	engine_woken(s.e);
	engine_force(s.e);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sim_step(&s), ENGINE_CLOSE);
	sim_commit(&s);
	assert_true(engine_may_checkpoint(s.e));
	/* one pass for the new window */
	sim_push_at(&s, b, s.now_us, 1);
	assert_int_equal(sim_step(&s), ENGINE_DISCOVER);
	assert_true(s.since_us == window(0)->end_us - 2 * SECOND);
	sim_deliver(&s, 0, false);
	assert_int_equal(sim_step(&s), ENGINE_FETCH);
	sim_deliver(&s, 0, false);
	assert_int_equal(sim_step(&s), ENGINE_IDLE);
}

static void
the_plan_does_not_depend_on_the_order_of_answers(void **state)
{
	struct sim_window w[2];

	(void)state;
	s.conf.fetch_concurrency = 4;
	for (int i = 0; i < 60; i++) {
		char name[16];

		snprintf(name, sizeof(name), "p%d", i * 37 % 60);
		sim_push_at(&s, sim_create(&s, name), DAWN + i * SECOND, 3);
	}
	for (int i = 0; i < 2; i++) {
		begins_at(DAWN + 6 * MINUTE);
		assert_int_equal(sim_step(&s), ENGINE_DISCOVER);
		sim_deliver(&s, 0, false);
		while (sim_step(&s) != ENGINE_WAIT)
			;
		assert_int_equal(s.call_n, 1);
		sim_deliver(&s, 0, false); /* the seek */
		while (sim_step(&s) != ENGINE_WAIT)
			;
		assert_true(s.call_n > 2);
		while (s.call_n)
			sim_deliver(&s, i ? 0 : s.call_n - 1, false);
		assert_int_equal(sim_run(&s), ENGINE_CLOSE);
		w[i] = *sim_open(&s);
		sim_records(&s, &w[i], false);
	}
	assert_int_equal(w[0].w.records, 180);
	assert_int_equal(w[0].w.partitions, 60);
	assert_true(w[0].hash == w[1].hash);
}

static void
a_plan_may_be_read_again(void **state)
{
	struct sim_part *a = sim_create(&s, "a");
	struct sim_window w = { .lost = 0 }, again;

	(void)state;
	sim_push_at(&s, a, DAWN + SECOND, 70);
	sim_push_at(&s, a, DAWN + 2 * SECOND, 1);
	a->r[70].len = 0;
	begins_at(DAWN + 6 * MINUTE);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	w = again = *sim_open(&s);
	sim_records(&s, &w, false);
	sim_records(&s, &again, false);
	assert_true(w.hash == again.hash);
	assert_int_equal(w.w.records, 71);
}

/* ---- drain ---- */

static void
a_drain_closes_what_is_worth_it(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	/* ten seconds behind, and little */
	sim_push_at(&s, a, DAWN + SECOND, 1);
	begins_at(DAWN + 10 * SECOND);
	assert_int_equal(sim_run(&s), ENGINE_IDLE);
	engine_drain(s.e);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	sim_commit(&s);
	assert_true(window(0)->end_us == DAWN + 5 * SECOND);
	/* one window, whatever there is */
	assert_int_equal(sim_run(&s), ENGINE_DRAINED);
	assert_true(engine_may_checkpoint(s.e));
}

static void
a_drain_leaves_a_small_young_window(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	sim_push_at(&s, a, DAWN + SECOND, 1);
	begins_at(DAWN + 10 * SECOND - 1);
	assert_int_equal(sim_run(&s), ENGINE_IDLE);
	engine_drain(s.e);
	assert_int_equal(sim_run(&s), ENGINE_DRAINED);
	engine_woken(s.e);
	assert_int_equal(sim_run(&s), ENGINE_DRAINED);
	assert_int_equal(s.pages, 1);
}

static void
a_drain_closes_a_mebibyte_however_young(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	s.conf.target_bytes = 64 << 20;
	s.conf.safe_guard_us = 0;
	s.now_us = DAWN + SECOND;
	sim_push(&s, a, 1 << 20);
	begins_at(DAWN + 2 * SECOND);
	assert_int_equal(sim_run(&s), ENGINE_IDLE);
	engine_drain(s.e);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	sim_commit(&s);
	assert_int_equal(sim_run(&s), ENGINE_DRAINED);
}

static void
a_drain_finishes_the_window_in_its_sequence(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	sim_push_at(&s, a, DAWN + SECOND, 1);
	sim_push_at(&s, a, DAWN + 6 * MINUTE, 1);
	begins_at(DAWN + 6 * MINUTE);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	engine_drain(s.e);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	sim_commit(&s);
	assert_int_equal(sim_run(&s), ENGINE_DRAINED);
	assert_int_equal(s.win_n, 1);
}

/* What is still being read holds the window back, as ever. */
static void
a_drain_does_not_close_over_an_open_fetch(void **state)
{
	struct sim_part *a = sim_create(&s, "a"), *b = sim_create(&s, "b");

	(void)state;
	sim_push_at(&s, a, DAWN + SECOND, 1);
	begins_at(DAWN + 30 * SECOND);
	sim_run(&s);
	sim_push_at(&s, b, DAWN + 31 * SECOND, 1);
	s.now_us = DAWN + MINUTE;
	engine_woken(s.e);
	assert_int_equal(sim_step(&s), ENGINE_DISCOVER);
	sim_deliver(&s, 0, false);
	assert_int_equal(sim_step(&s), ENGINE_FETCH);
	engine_drain(s.e);
	assert_int_equal(sim_step(&s), ENGINE_CLOSE);
	/* its answer is nobody's */
	sim_deliver(&s, 0, false);
	sim_commit(&s);
	assert_true(window(0)->end_us == DAWN + 30 * SECOND);
	assert_int_equal(window(0)->records, 1);
	assert_int_equal(sim_run(&s), ENGINE_DRAINED);
	assert_int_equal(b->r[0].shipped, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(none_closes_above_safe_time_less_the_guard),
		T(a_partition_read_slowly_caps_it_at_its_frontier),
		T(none_straddles_an_hour),
		T(five_silent_hours_make_no_object_and_no_stall),
		T(size_closes_at_a_stamp_and_about_the_target),
		T(what_shares_the_last_stamp_closes_at_the_limit),
		T(age_closes_a_tiny_window),
		T(an_empty_window_is_never_made_and_an_idle_queue_idles),
		T(force_closes_early_but_never_what_may_not),
		T(after_a_lull_a_burst_is_not_old_at_once),
		T(a_backfill_does_not_close_wherever_the_slowest_is),
		T(latest_begins_at_the_first_safe_time),
		T(nothing_is_read_until_safe_time_is_told),
		T(a_time_to_start_at_is_the_start_even_if_it_is_to_come),
		T(lag_of_an_idle_queue_is_the_guard),
		T(pending_records_make_it_grow_and_their_commit_shrinks_it),
		T(degraded_is_told_as_the_cell_tells_it),
		T(it_waits_for_the_commit_and_asks_for_nothing_meanwhile),
		T(the_plan_does_not_depend_on_the_order_of_answers),
		T(a_plan_may_be_read_again),
		T(a_drain_closes_what_is_worth_it),
		T(a_drain_leaves_a_small_young_window),
		T(a_drain_closes_a_mebibyte_however_young),
		T(a_drain_finishes_the_window_in_its_sequence),
		T(a_drain_does_not_close_over_an_open_fetch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
