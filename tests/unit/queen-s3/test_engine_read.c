/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked for, from where on, and what answers do to positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_hand.h"
/* ---- discovery ---- */

static void
passes_are_full_first_and_every_thirtieth_and_read_all_pages(void **state)
{
	int64_t at = DAWN + 10 * SECOND;

	(void)state;
	s.page = 10;
	for (int i = 0; i < 30; i++) {
		char name[16];

		snprintf(name, sizeof(name), "p%d", i);
		sim_create(&s, name);
		s.now_us += 1000;
	}
	begins_at(at);
	assert_int_equal(sim_run(&s), ENGINE_IDLE);
	assert_true(s.since_us == STAMP_NONE);
	/* an exact multiple costs one empty page */
	assert_int_equal(s.pages, 4);
	engine_stats(s.e, &st);
	assert_int_equal(st.discovered, 30);
	assert_int_equal(st.partitions, 30);
	for (int i = 1; i < 65; i++) {
		int64_t since = s.now_us - 7 * SECOND;

		wake_at(at += 10 * SECOND);
		if (i % 30 == 0)
			assert_true(s.since_us == STAMP_NONE);
		else
			assert_true(s.since_us == since);
	}
	assert_int_equal(s.pages, 4 + 62 + 2 * 4);
	engine_stats(s.e, &st);
	assert_int_equal(st.discovered, 30);
	assert_int_equal(st.pages, 74);
}

static void
a_page_that_failed_begins_the_pass_again(void **state)
{
	struct engine_found f[2] = { found(1, "a", 0, 0, DAWN),
		found(2, "b", -1, 0, DAWN) };

	(void)state;
	begins_at(DAWN);
	assert_int_equal(step(), ENGINE_DISCOVER);
	assert_true(t.after_us == STAMP_NONE && t.after_part == 0);
	engine_on_page(s.e, t.call, DAWN + SECOND, false, f, 2, true);
	assert_int_equal(step(), ENGINE_SEEK);
	engine_on_failed(s.e, t.call);
	assert_int_equal(step(), ENGINE_SEEK);
	engine_on_seek(s.e, t.call, 0, false, 0);
	engine_on_done(s.e, t.call);
	assert_int_equal(step(), ENGINE_DISCOVER);
	assert_true(t.after_us == DAWN && t.after_part == 2);
	engine_on_failed(s.e, t.call);
	engine_on_page(s.e, t.call, DAWN + HOUR, false, f, 2, false);
	engine_stats(s.e, &st);
	assert_true(st.safe_us == STAMP_NONE);
	assert_int_equal(step(), ENGINE_DISCOVER);
	assert_true(t.after_us == STAMP_NONE && t.after_part == 0);
	engine_on_page(s.e, t.call, DAWN + 9 * SECOND, false, f, 2, true);
	/* nothing is read before the first whole pass */
	assert_int_equal(step(), ENGINE_DISCOVER);
	engine_on_page(s.e, t.call, DAWN + 8 * SECOND, false, NULL, 0, false);
	engine_stats(s.e, &st);
	assert_true(st.safe_us == DAWN + 8 * SECOND);
	fetches(1, 0);
}

static void
safe_time_is_the_least_of_a_pass(void **state)
{
	struct engine_found f = found(1, "a", -1, 0, DAWN);

	(void)state;
	begins_at(DAWN);
	for (int i = 3; i > 0; i--) {
		assert_int_equal(step(), ENGINE_DISCOVER);
		f.part = 4 - i;
		engine_on_page(s.e, t.call, DAWN + (4 - i % 3) * SECOND, false,
			&f, 1, i > 1);
	}
	engine_stats(s.e, &st);
	assert_true(st.safe_us == DAWN + 2 * SECOND);
}

/* ---- where to begin ---- */

static void
a_partition_begins_where_its_kind_says(void **state)
{
	struct engine_found f[] = {
		found(1, "idle", 9, 0, DAWN - SECOND - 1),
		found(2, "near", 9, 4, DAWN - SECOND),
		found(3, "empty", -1, 0, DAWN + SECOND),
		found(4, "known", 9, 0, DAWN - HOUR),
		found(5, "trimmed away", 9, 10, DAWN + SECOND),
	};

	(void)state;
	begins_at(DAWN);
	engine_position(s.e, SPAN_LIT("known"), 7, 4);
	engine_stats(s.e, &st);
	assert_int_equal(st.partitions, 0);
	names(DAWN + MINUTE, f, 5);
	assert_int_equal(step(), ENGINE_SEEK);
	assert_int_equal(t.n, 1);
	assert_int_equal(t.part[0], 2);
	assert_true(t.at_us == DAWN);
	engine_on_seek(s.e, t.call, 0, false, 10);
	engine_on_done(s.e, t.call);
	/* at its head already */
	fetches(4, 7);
	answers(ENGINE_OK, 10, 0, 7, 3, DAWN + SECOND);
	assert_int_equal(step(), ENGINE_IDLE);
	engine_stats(s.e, &st);
	assert_int_equal(st.partitions, 5);
}

static void
earliest_begins_at_the_start_of_the_log(void **state)
{
	struct engine_found f[] = { found(1, "a", 9, 4, DAWN - HOUR),
		found(2, "b", 9, 0, DAWN - HOUR) };

	(void)state;
	s.conf.start = S3_EARLIEST;
	begins_at(DAWN);
	engine_position(s.e, SPAN_LIT("b"), 7, -1);
	names(DAWN + MINUTE, f, 2);
	assert_int_equal(step(), ENGINE_FETCH);
	assert_int_equal(t.n, 2);
	assert_int_equal(t.offset[0], 4);
	assert_int_equal(t.offset[1], 7);
}

/* With a window start there is no need to read what is long. */
static void
earliest_with_a_pointer_seeks_in_a_long_log(void **state)
{
	struct engine_found f[] = { found(1, "a", 1000, 0, DAWN + SECOND),
		found(2, "b", 999, 0, DAWN + SECOND) };

	(void)state;
	s.conf.start = S3_EARLIEST;
	restarts_at(DAWN, 3, DAWN);
	names(DAWN + MINUTE, f, 2);
	assert_int_equal(step(), ENGINE_SEEK);
	assert_int_equal(t.part[0], 1);
	fetches(2, 0);
}

static void
a_position_past_the_head_resumes_at_the_head(void **state)
{
	struct engine_found f = found(1, "a", 4, 0, DAWN);

	(void)state;
	restarts_at(DAWN, 1, DAWN);
	engine_position(s.e, SPAN_LIT("a"), 9, 1);
	names(DAWN + MINUTE, &f, 1);
	f.last_offset = 5;
	names_after_a_wait(DAWN + 2 * MINUTE, &f, 1);
	fetches(1, 5);
}

/* ---- what is read ---- */

static void
calls_and_entries_are_bounded(void **state)
{
	static struct engine_found f[1000];
	static char text[1000][16];
	size_t calls = 0, entries = 0, least = SIZE_MAX;

	(void)state;
	s.conf.start = S3_EARLIEST;
	s.conf.fetch_concurrency = 3;
	begins_at(DAWN);
	for (int page = 0; page < 5; page++) {
		for (int i = 0; i < 1000; i++) {
			snprintf(text[i], 16, "p%d", page * 1000 + i);
			f[i] = found(1 + page * 1000 + i, text[i], 9, 0, DAWN);
		}
		assert_int_equal(step(), ENGINE_DISCOVER);
		engine_on_page(s.e, t.call, DAWN, false, f, 1000, page < 4);
	}
	while (step() == ENGINE_FETCH) {
		calls++;
		entries += t.n;
		least = t.n < least ? t.n : least;
		assert_in_range(t.n, 1, ENGINE_ENTRIES);
		assert_int_equal(t.entry_bytes, 16384);
	}
	assert_int_equal(t.what, ENGINE_WAIT);
	assert_int_equal(calls, 3);
	assert_int_equal(entries, 3 * ENGINE_ENTRIES);
	engine_on_done(s.e, 6);
	assert_int_equal(step(), ENGINE_FETCH);
	assert_int_equal(step(), ENGINE_WAIT);
}

/* An answer that ends early for its size asks for fewer the next time. */
static void
what_finds_no_room_in_an_answer_is_asked_for_in_small_numbers(void **state)
{
	static struct engine_found f[1000];
	static char text[1000][16];
	static const size_t n[] = { 1000, 40, 80, 160, 320, 640, 1000 };

	(void)state;
	s.conf.start = S3_EARLIEST;
	s.conf.fetch_concurrency = 1;
	begins_at(DAWN);
	for (int i = 0; i < 1000; i++) {
		snprintf(text[i], 16, "p%d", i);
		f[i] = found(1 + i, text[i], 99, 0, DAWN);
	}
	names(DAWN + MINUTE, f, 1000);
	for (int k = 0; k < 7; k++) {
		assert_int_equal(step(), ENGINE_FETCH);
		assert_int_equal(t.n, n[k]);
		for (size_t i = 0; i < t.n && (k || i < 40); i++)
			record(i, t.offset[i], DAWN + k * SECOND);
		engine_on_done(s.e, t.call);
	}
}

static void
a_setting_beyond_the_ceiling_is_the_ceiling(void **state)
{
	size_t calls = 0;

	(void)state;
	s.conf.start = S3_EARLIEST;
	s.conf.fetch_concurrency = 100000;
	for (int i = 0; i < 400; i++) {
		char name[16];

		snprintf(name, sizeof(name), "p%d", i);
		sim_push(&s, sim_create(&s, name), 10);
	}
	begins_at(DAWN);
	sim_step(&s);
	sim_deliver(&s, 0, false);
	while (sim_step(&s) == ENGINE_FETCH)
		calls++;
	/* no fewer than 16 entries in one while there are as many */
	assert_int_equal(calls, 25);
	assert_int_equal(s.most_entries, 16);
}

static void
the_lowest_frontier_is_read_first_and_the_horizon_ends_it(void **state)
{
	struct engine_found f[] = { found(1, "a", 99, 0, DAWN),
		found(2, "b", 99, 0, DAWN) };

	(void)state;
	s.conf.start = S3_EARLIEST;
	begins_at(DAWN);
	names(DAWN + MINUTE, f, 2);
	assert_int_equal(step(), ENGINE_FETCH);
	engine_on_entry(s.e, t.call, 0, ENGINE_OK, 100, 0);
	/* what may close plus one hour */
	record(0, 0, DAWN + 55 * SECOND + HOUR - 1);
	engine_on_entry(s.e, t.call, 1, ENGINE_OK, 100, 0);
	record(1, 0, DAWN + 10 * SECOND);
	engine_on_done(s.e, t.call);
	assert_int_equal(step(), ENGINE_FETCH);
	assert_int_equal(t.n, 2);
	assert_int_equal(t.part[0], 2);
	assert_int_equal(t.part[1], 1);
	engine_on_entry(s.e, t.call, 1, ENGINE_OK, 100, 0);
	record(1, 1, DAWN + 55 * SECOND + HOUR);
	engine_on_done(s.e, t.call);
	fetches(2, 1);
}

static void
a_caught_up_partition_is_not_read_until_it_moved(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	sim_push_at(&s, a, DAWN + SECOND, 3);
	begins_at(DAWN + 2 * SECOND);
	sim_run(&s);
	assert_int_equal(s.fetches, 1);
	for (int i = 3; i < 70; i++)
		wake_at(DAWN + i * SECOND);
	assert_int_equal(s.fetches, 1);
	sim_push(&s, a, 5);
	wake_at(DAWN + 70 * SECOND);
	assert_int_equal(s.fetches, 2);
	assert_int_equal(s.seeks, 1);
}

static void
a_failed_fetch_holds_the_window_and_is_asked_again(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	sim_push_at(&s, a, DAWN + SECOND, 3);
	s.conf.start = S3_EARLIEST;
	begins_at(DAWN + 10 * MINUTE);
	sim_step(&s);
	sim_deliver(&s, 0, false);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(sim_step(&s), ENGINE_FETCH);
		assert_int_equal(s.call[0]->offset[0], 0);
		engine_force(s.e);
		assert_int_equal(sim_step(&s), ENGINE_WAIT);
		sim_deliver(&s, 0, true);
	}
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	sim_commit(&s);
	assert_int_equal(s.win[0].w.records, 3);
}

static void
an_unknown_queue_ends_it(void **state)
{
	(void)state;
	begins_at(DAWN);
	assert_int_equal(step(), ENGINE_DISCOVER);
	engine_on_missing(s.e, t.call + 1, DAWN, false); /* nobody's */
	assert_int_equal(step(), ENGINE_WAIT);
	engine_on_missing(s.e, 1, DAWN, false);
	for (int i = 0; i < 3; i++) {
		engine_woken(s.e);
		engine_force(s.e);
		assert_int_equal(step(), ENGINE_MISSING);
	}
}

static void
disappears(int64_t safe_us)
{
	assert_int_equal(step(), ENGINE_IDLE);
	engine_woken(s.e);
	assert_int_equal(step(), ENGINE_DISCOVER);
	engine_on_missing(s.e, t.call, safe_us, false);
}

/* Of ten records some are there when the second page knows no queue. */
static void
disappears_after(int64_t records)
{
	struct engine_found f = found(1, "a", -1, 0, DAWN);
	uint32_t fetch;

	begins_at(DAWN);
	names(DAWN + SECOND, &f, 1);
	f = found(1, "a", 9, 0, DAWN + 10 * SECOND);
	assert_int_equal(step(), ENGINE_IDLE);
	engine_woken(s.e);
	assert_int_equal(step(), ENGINE_DISCOVER);
	engine_on_page(s.e, t.call, DAWN + SECOND, false, &f, 1, true);
	fetches(1, 0);
	fetch = t.call;
	engine_on_entry(s.e, fetch, 0, ENGINE_OK, 10, 0);
	for (int64_t o = 0; o < records; o++)
		record(0, o, DAWN + 10 * SECOND);
	assert_int_equal(step(), ENGINE_DISCOVER);
	engine_on_missing(s.e, t.call, DAWN + 12 * SECOND, false);
	t.call = fetch; /* too late */
	record(0, records, DAWN + 10 * SECOND);
	engine_on_done(s.e, fetch);
}

static void
what_is_buffered_of_a_deleted_queue_ships(void **state)
{
	static const int64_t lost[][2] = { { 5, 9 } };

	(void)state;
	disappears_after(5);
	disappears(DAWN + 14 * SECOND);
	engine_stats(s.e, &st);
	assert_true(st.missing && st.partitions == 0);
	/* as soon as it is legal, however young */
	disappears(DAWN + 16 * SECOND);
	carries(lost, 1);
	assert_int_equal(planned(), 5);
	engine_committed(s.e);
	assert_int_equal(step(), ENGINE_MISSING);
}

static void
a_deleted_queue_that_is_made_again_goes_on(void **state)
{
	struct engine_found f = found(2, "a", 0, 0, DAWN + 13 * SECOND);
	static const int64_t lost[][2] = { { 5, 9 } };

	(void)state;
	disappears_after(5);
	names_after_a_wait(DAWN + 20 * SECOND, &f, 1);
	engine_stats(s.e, &st);
	assert_true(!st.missing && st.partitions == 1);
	assert_int_equal(step(), ENGINE_SEEK);
	engine_on_seek(s.e, t.call, 0, false, 0);
	engine_on_done(s.e, t.call);
	fetches(2, 0);
	answers(ENGINE_OK, 1, 0, 0, 1, DAWN + 13 * SECOND);
	engine_force(s.e);
	carries(lost, 1);
	assert_int_equal(planned(), 6);
	engine_committed(s.e);
	assert_int_equal(step(), ENGINE_DISCOVER);
}

static void
a_drain_of_a_deleted_queue_ships_what_may_close(void **state)
{
	(void)state;
	for (int legal = 0; legal < 2; legal++) {
		disappears_after(5);
		if (legal) { /* and the next window could not */
			disappears(DAWN + 14 * SECOND);
			disappears(DAWN + 16 * SECOND);
		}
		engine_drain(s.e);
		if (legal) {
			assert_int_equal(step(), ENGINE_CLOSE);
			assert_int_equal(planned(), 5);
			engine_committed(s.e);
			assert_int_equal(step(), ENGINE_MISSING);
			continue;
		}
		assert_int_equal(step(), ENGINE_DRAINED);
		engine_stats(s.e, &st);
		assert_true(st.missing && st.buffered_bytes > 0);
	}
}

static void
what_a_deleted_queue_lost_without_a_window_can_be_told(void **state)
{
	struct span name;
	int64_t from, to;
	size_t at = 0;

	(void)state;
	disappears_after(0);
	assert_int_equal(step(), ENGINE_MISSING);
	assert_true(engine_lost_next(s.e, &at, &name, &from, &to));
	assert_true(span_is(name, "a") && from == 0 && to == 9);
	assert_false(engine_lost_next(s.e, &at, &name, &from, &to));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(passes_are_full_first_and_every_thirtieth_and_read_all_pages),
		T(a_page_that_failed_begins_the_pass_again),
		T(safe_time_is_the_least_of_a_pass),
		T(a_partition_begins_where_its_kind_says),
		T(earliest_begins_at_the_start_of_the_log),
		T(earliest_with_a_pointer_seeks_in_a_long_log),
		T(a_position_past_the_head_resumes_at_the_head),
		T(calls_and_entries_are_bounded),
		T(what_finds_no_room_in_an_answer_is_asked_for_in_small_numbers),
		T(a_setting_beyond_the_ceiling_is_the_ceiling),
		T(the_lowest_frontier_is_read_first_and_the_horizon_ends_it),
		T(a_caught_up_partition_is_not_read_until_it_moved),
		T(a_failed_fetch_holds_the_window_and_is_asked_again),
		T(an_unknown_queue_ends_it),
		T(what_is_buffered_of_a_deleted_queue_ships),
		T(a_deleted_queue_that_is_made_again_goes_on),
		T(a_drain_of_a_deleted_queue_ships_what_may_close),
		T(what_a_deleted_queue_lost_without_a_window_can_be_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
