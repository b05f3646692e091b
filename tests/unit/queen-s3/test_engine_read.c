/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked for, from where on, and what answers do to positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_sim.h"

static struct sim s;
static struct engine_stats st;

static int
setup(void **state)
{
	(void)state;
	sim_init(&s, 1);
	s.conf.start = S3_TIMESTAMP;
	s.conf.start_us = DAWN;
	s.now_us = DAWN;
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	if (s.faults)
		print_error("%s\n", s.why);
	assert_int_equal(s.faults, 0);
	sim_fini(&s);
	return 0;
}

static enum engine_what
wake_at(int64_t at_us)
{
	s.now_us = at_us;
	engine_woken(s.e);
	return sim_run(&s);
}

static void
begins_at(int64_t at_us)
{
	s.now_us = at_us;
	sim_start(&s, NULL);
}

static void
restarts_at(int64_t at_us, int64_t k, int64_t committed_us)
{
	struct engine_restore r = { .committed_k = k,
		.committed_us = committed_us };

	s.now_us = at_us;
	sim_start(&s, &r);
}

/* ---- by hand ---- */

static struct engine_step t;

static enum engine_what
step(void)
{
	engine_next(s.e, &t);
	return t.what;
}

static struct engine_found
found(int64_t part, const char *name, int64_t last, int64_t log_start,
	int64_t write_us)
{
	return (struct engine_found){ .part = part,
		.name = span_of(name),
		.last_offset = last,
		.log_start = log_start,
		.last_write_us = write_us };
}

/* The whole pass is one page. */
static void
names(int64_t safe_us, const struct engine_found *f, size_t n)
{
	assert_int_equal(step(), ENGINE_DISCOVER);
	engine_on_page(s.e, t.call, safe_us, false, f, n, false);
}

static void
names_after_a_wait(int64_t safe_us, const struct engine_found *f, size_t n)
{
	assert_int_equal(step(), ENGINE_IDLE);
	engine_woken(s.e);
	names(safe_us, f, n);
}

static void
record(size_t i, int64_t offset, int64_t ts_us)
{
	struct record r = { .txn = SPAN_LIT("t"),
		.payload = SPAN_LIT("{}"),
		.offset = offset,
		.ts_us = ts_us };

	engine_on_record(s.e, t.call, i, &r);
}

/* Entry 0 of a fetch, whole. */
static void
answers(enum engine_verdict v, int64_t high, int64_t log_start, int64_t from,
	int64_t n, int64_t ts_us)
{
	engine_on_entry(s.e, t.call, 0, v, high, log_start);
	for (int64_t o = from; o < from + n; o++)
		record(0, o, ts_us);
	engine_on_done(s.e, t.call);
}

static void
fetches(int64_t part, int64_t offset)
{
	assert_int_equal(step(), ENGINE_FETCH);
	assert_int_equal(t.n, 1);
	assert_int_equal(t.part[0], part);
	assert_int_equal(t.offset[0], offset);
}

/* The window in hand carries these lost ranges and no other. */
static void
carries(const int64_t (*range)[2], size_t n)
{
	struct span name;
	int64_t from, to;
	size_t at = 0;

	assert_int_equal(step(), ENGINE_CLOSE);
	for (size_t i = 0; i < n; i++) {
		assert_true(engine_lost_next(s.e, &at, &name, &from, &to));
		assert_true(span_is(name, "a"));
		assert_int_equal(from, range[i][0]);
		assert_int_equal(to, range[i][1]);
	}
	assert_false(engine_lost_next(s.e, &at, &name, &from, &to));
}

static int64_t
planned(void)
{
	struct engine_window w;

	while (!engine_plan_ready(s.e))
		;
	engine_window(s.e, &w);
	return w.records;
}

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

/* ---- lost ---- */

static void
out_of_range_loses_exactly_what_is_gone_and_once(void **state)
{
	struct engine_found f = found(1, "a", 9, 0, DAWN);
	static const int64_t first[][2] = { { 0, 3 } },
			     second[][2] = { { 10, 19 } };

	(void)state;
	s.conf.start = S3_EARLIEST;
	s.conf.align = S3_UNALIGNED;
	begins_at(DAWN);
	names(DAWN + 10 * MINUTE, &f, 1);
	fetches(1, 0);
	answers(ENGINE_RANGE, 10, 4, 0, 0, 0);
	fetches(1, 4);
	answers(ENGINE_OK, 10, 4, 4, 6, DAWN + SECOND);
	carries(first, 1);
	assert_int_equal(planned(), 6);
	engine_committed(s.e);
	/* told by discovery, of one that had been read to its end */
	f = found(1, "a", 24, 20, DAWN + 10 * MINUTE);
	names(DAWN + 20 * MINUTE, &f, 1);
	fetches(1, 20);
	answers(ENGINE_OK, 25, 20, 20, 5, DAWN + 11 * MINUTE);
	carries(second, 1);
	engine_committed(s.e);
	/* above the head nothing is lost */
	f.last_offset = 29;
	f.last_write_us = DAWN + 20 * MINUTE;
	names(DAWN + 21 * MINUTE, &f, 1);
	fetches(1, 25);
	answers(ENGINE_RANGE, 22, 20, 0, 0, 0);
	f.last_offset = 22;
	names_after_a_wait(DAWN + 30 * MINUTE, &f, 1);
	fetches(1, 22);
	answers(ENGINE_OK, 23, 20, 22, 1, DAWN + 21 * MINUTE);
	carries(NULL, 0);
}

static void
what_another_owner_did_not_tell_goes_with_the_next_window(void **state)
{
	struct engine_found f = found(1, "a", 9, 8, DAWN);
	static const int64_t lost[][2] = { { 3, 7 } },
			     rest[][2] = { { 3, 4 }, { 6, 7 } };
	struct span name;
	int64_t from, to;
	size_t at = 0;

	(void)state;
	s.conf.align = S3_UNALIGNED;
	restarts_at(DAWN, 1, DAWN);
	engine_position(s.e, SPAN_LIT("a"), 3, 1);
	names(DAWN + 10 * MINUTE, &f, 1);
	fetches(1, 8);
	answers(ENGINE_OK, 10, 8, 8, 2, DAWN + SECOND);
	carries(lost, 1);
	assert_true(engine_lost_next(s.e, &at, &name, &from, &to));
	engine_lost_keep(s.e, at, 3, 4);
	engine_lost_keep(s.e, at, 6, 7);
	carries(lost, 1);
	engine_committed(s.e);
	f.last_offset = 10;
	f.last_write_us = DAWN + 11 * MINUTE;
	names(DAWN + 20 * MINUTE, &f, 1);
	fetches(1, 10);
	answers(ENGINE_OK, 11, 8, 10, 1, DAWN + 11 * MINUTE);
	carries(rest, 2);
}

static void
a_position_below_the_log_is_lost_up_to_it(void **state)
{
	struct engine_found f = found(1, "a", 9, 8, DAWN);
	static const int64_t lost[][2] = { { 3, 7 } };

	(void)state;
	restarts_at(DAWN, 1, DAWN);
	engine_position(s.e, SPAN_LIT("a"), 3, 1);
	names(DAWN + 10 * MINUTE, &f, 1);
	fetches(1, 8);
	answers(ENGINE_OK, 10, 8, 8, 2, DAWN + SECOND);
	carries(lost, 1);
}

static void
a_gap_is_lost_unless_it_had_shipped(void **state)
{
	struct engine_found f = found(1, "a", 19, 0, DAWN);
	static const int64_t lost[][2] = { { 6, 7 }, { 9, 9 } };

	(void)state;
	restarts_at(DAWN, 1, DAWN);
	engine_position(s.e, SPAN_LIT("a"), 0, 1);
	names(DAWN + 10 * MINUTE, &f, 1);
	fetches(1, 0);
	engine_on_entry(s.e, t.call, 0, ENGINE_OK, 20, 0);
	record(0, 4, DAWN - 1); /* 0..3: below the window */
	record(0, 5, DAWN);
	record(0, 8, DAWN);
	record(0, 8, DAWN); /* again: not taken twice */
	record(0, 10, DAWN);
	engine_on_done(s.e, t.call);
	fetches(1, 11);
	answers(ENGINE_OK, 11, 0, 0, 0, 0);
	assert_int_equal(step(), ENGINE_FETCH); /* the head is 20 */
	answers(ENGINE_OK, 20, 0, 11, 9, DAWN + SECOND);
	carries(lost, 2);
	assert_int_equal(planned(), 12);
}

/* They are in no window that is still to come, which is told. */
static void
what_a_clock_that_went_back_stamped_is_lost(void **state)
{
	struct engine_found f[] = { found(1, "a", 0, 0, DAWN),
		found(2, "a", 2, 0, DAWN + SECOND) };
	static const int64_t lost[][2] = { { 0, 2 }, { 1, 3 } };

	(void)state;
	s.conf.align = S3_UNALIGNED;
	restarts_at(DAWN, 1, DAWN);
	engine_position(s.e, SPAN_LIT("a"), 0, 1);
	names(DAWN + 6 * MINUTE, f, 1);
	fetches(1, 0);
	answers(ENGINE_OK, 1, 0, 0, 1, DAWN + 5 * MINUTE);
	assert_int_equal(step(), ENGINE_CLOSE);
	engine_committed(s.e);
	names(DAWN + 6 * MINUTE, f, 1);
	/* minutes back: one is new, the other is written again */
	f[0].last_offset = 4;
	f[0].last_write_us = DAWN + 12 * MINUTE;
	names_after_a_wait(DAWN + 12 * MINUTE, f, 2);
	fetches(1, 1);
	engine_on_entry(s.e, t.call, 0, ENGINE_OK, 5, 0);
	for (int i = 1; i < 4; i++)
		record(0, i, DAWN + 2 * MINUTE + i);
	record(0, 4, DAWN + 7 * MINUTE);
	engine_on_done(s.e, t.call);
	carries(lost, 2);
	assert_int_equal(planned(), 1);
}

static void
what_is_found_lost_while_a_window_closes_is_of_the_next(void **state)
{
	struct engine_found f[] = { found(1, "b", 0, 0, DAWN),
		found(2, "a", 9, 0, DAWN + 8 * MINUTE) };
	static const int64_t lost[][2] = { { 5, 6 } };

	(void)state;
	s.conf.align = S3_UNALIGNED;
	restarts_at(DAWN, 1, DAWN);
	engine_position(s.e, SPAN_LIT("b"), 0, 1);
	engine_position(s.e, SPAN_LIT("a"), 5, 2);
	names(DAWN + 6 * MINUTE, f, 1);
	fetches(1, 0);
	answers(ENGINE_OK, 1, 0, 0, 1, DAWN + SECOND);
	assert_int_equal(step(), ENGINE_CLOSE);
	engine_committed(s.e);
	names(DAWN + 12 * MINUTE, f, 2);
	f[1].log_start = 7;
	fetches(2, 5);
	answers(ENGINE_OK, 8, 7, 7, 1, DAWN + 7 * MINUTE);
	assert_int_equal(step(), ENGINE_FETCH);
	answers(ENGINE_OK, 10, 7, 8, 2, DAWN + 8 * MINUTE);
	carries(lost, 1);
}

/* ---- incarnations ---- */

static void
one_made_again_begins_anew_and_the_old_one_still_ships(void **state)
{
	struct sim_part *a = sim_create(&s, "a"), *b;
	struct span name;
	int64_t part, offset;

	(void)state;
	s.conf.align = S3_UNALIGNED;
	sim_push_at(&s, a, DAWN + SECOND, 3);
	begins_at(DAWN + 2 * SECOND);
	sim_run(&s);
	sim_push_at(&s, a, DAWN + 3 * SECOND, 2);
	sim_delete(&s, a);
	b = sim_create(&s, "a");
	sim_push_at(&s, b, DAWN + 4 * SECOND, 4);
	assert_int_equal(wake_at(DAWN + 6 * MINUTE), ENGINE_CLOSE);
	sim_commit(&s);
	/* that it had two more nobody ever said */
	assert_int_equal(s.win[0].w.records, 7);
	assert_int_equal(s.win[0].w.partitions, 2);
	assert_int_equal(s.win[0].lost, 0);
	while (!engine_positions_ready(s.e))
		;
	assert_true(engine_positions_next(s.e, &name, &part, &offset));
	assert_int_equal(part, b->id);
	assert_int_equal(offset, 4);
	assert_false(engine_positions_next(s.e, &name, &part, &offset));
	engine_positions_end(s.e);
}

static void
what_was_not_read_of_one_that_is_gone_is_lost(void **state)
{
	struct engine_found f[] = { found(1, "a", 9, 0, DAWN + SECOND),
		found(2, "a", 1, 0, DAWN + 3 * SECOND) };
	static const int64_t lost[][2] = { { 4, 9 } };

	(void)state;
	s.conf.start = S3_EARLIEST;
	begins_at(DAWN);
	names(DAWN + MINUTE, f, 1);
	fetches(1, 0);
	answers(ENGINE_OK, 10, 0, 0, 4, DAWN + SECOND);
	fetches(1, 4);
	engine_on_entry(s.e, t.call, 0, ENGINE_GONE, 0, 0);
	record(0, 4, DAWN + SECOND); /* in no answer of one that is gone */
	engine_on_done(s.e, t.call);
	carries(lost, 1);
	assert_int_equal(planned(), 4);
	engine_committed(s.e);
	/* a page that was read before it went does not bring it back */
	names(DAWN + MINUTE, f, 1);
	engine_stats(s.e, &st);
	assert_int_equal(st.partitions, 0);
	names_after_a_wait(DAWN + 20 * MINUTE, f + 1, 1);
	fetches(2, 0);
	engine_stats(s.e, &st);
	assert_int_equal(st.partitions, 1);
}

static void
a_position_of_another_incarnation_is_not_resumed(void **state)
{
	struct engine_found f = found(7, "a", 9, 2, DAWN + SECOND);

	(void)state;
	restarts_at(DAWN, 1, DAWN);
	engine_position(s.e, SPAN_LIT("a"), 1, 6);
	names(DAWN + 10 * MINUTE, &f, 1);
	assert_int_equal(step(), ENGINE_SEEK);
	engine_on_seek(s.e, t.call, 0, false, 2);
	engine_on_done(s.e, t.call);
	fetches(7, 2);
	answers(ENGINE_OK, 10, 2, 2, 8, DAWN + SECOND);
	carries(NULL, 0);
}

static void
an_id_learned_later_is_not_a_change(void **state)
{
	struct engine_found f = found(7, "a", 9, 0, DAWN + SECOND);

	(void)state;
	restarts_at(DAWN, 1, DAWN);
	engine_position(s.e, SPAN_LIT("a"), 6, -1);
	names(DAWN + 10 * MINUTE, &f, 1);
	fetches(7, 6);
}

/* An id that names something else: the database is another one. */
static void
an_id_under_another_name_is_another_partition(void **state)
{
	struct engine_found f = found(7, "b", 9, 0, DAWN + SECOND);

	(void)state;
	restarts_at(DAWN, 1, DAWN);
	engine_position(s.e, SPAN_LIT("a"), 6, 7);
	names(DAWN + 10 * MINUTE, &f, 1);
	assert_int_equal(step(), ENGINE_SEEK);
	assert_int_equal(t.offset[0], 0);
}

static void
one_that_went_before_its_seek_is_lost_whole(void **state)
{
	struct engine_found f = found(7, "a", 9, 3, DAWN + SECOND);
	static const int64_t lost[][2] = { { 3, 9 } };

	(void)state;
	begins_at(DAWN);
	names(DAWN + 10 * MINUTE, &f, 1);
	assert_int_equal(step(), ENGINE_SEEK);
	engine_on_seek(s.e, t.call, 0, true, 0);
	engine_on_done(s.e, t.call);
	f = found(8, "a", 0, 0, DAWN + 10 * MINUTE);
	names_after_a_wait(DAWN + 16 * MINUTE, &f, 1);
	assert_int_equal(step(), ENGINE_SEEK);
	engine_on_seek(s.e, t.call, 0, false, 0);
	engine_on_done(s.e, t.call);
	fetches(8, 0);
	answers(ENGINE_OK, 1, 0, 0, 1, DAWN + 10 * MINUTE);
	carries(lost, 1);
}

static void
one_nobody_names_any_more_is_forgotten_a_living_one_is_not(void **state)
{
	struct sim_part *a = sim_create(&s, "a"), *b = sim_create(&s, "b");
	int64_t at = DAWN;

	(void)state;
	sim_create(&s, "idle");
	s.conf.max_window_us = SECOND;
	s.conf.align = S3_UNALIGNED;
	sim_push_at(&s, a, at += SECOND, 1);
	begins_at(at += 10 * SECOND);
	sim_settle(&s);
	sim_delete(&s, a);
	for (int k = 0; k < 58; k++) {
		sim_push_at(&s, b, at += MINUTE, 1);
		wake_at(at += 5 * SECOND);
		wake_at(at += 5 * SECOND);
		sim_settle(&s);
		engine_stats(s.e, &st);
		assert_int_equal(st.committed_k, k + 2);
		assert_int_equal(st.partitions, 3);
	}
	for (int k = 0; k < 40; k++) {
		sim_push_at(&s, b, at += MINUTE, 1);
		wake_at(at += 10 * SECOND);
		sim_settle(&s);
	}
	engine_stats(s.e, &st);
	assert_int_equal(st.partitions, 2);
	assert_true(st.committed_k > 90);
}

/* ---- restore ---- */

static void
a_restart_goes_on_and_ships_nothing_twice(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	for (int i = 1; i <= 20; i++)
		sim_push_at(&s, a, DAWN + i * MINUTE, 5);
	begins_at(DAWN + 12 * MINUTE);
	sim_settle(&s);
	assert_int_equal(s.win_n, 1);
	for (int i = 0; i < 2; i++) {
		restarts_at(DAWN + (25 + 10 * i) * MINUTE, s.win_n,
			s.win[s.win_n - 1].w.end_us);
		engine_position(s.e, SPAN_LIT("a"), 0, a->id);
		sim_push_at(&s, a, s.now_us - 8 * MINUTE, 5);
		s.now_us += 8 * MINUTE;
		sim_settle(&s);
	}
	assert_int_equal(s.win[s.win_n - 1].w.k, s.win_n);
	for (int i = 0; i < a->seen; i++)
		assert_int_equal(a->r[i].shipped, 1);
}

static void
a_position_is_where_the_next_window_begins(void **state)
{
	struct sim_part *a = sim_create(&s, "a");
	struct span name;
	int64_t part, offset;

	(void)state;
	s.conf.max_window_us = 24 * HOUR;
	sim_push_at(&s, a, DAWN + 10 * MINUTE, 4);
	sim_push_at(&s, a, DAWN + 61 * MINUTE, 5);
	begins_at(DAWN + 62 * MINUTE);
	assert_false(engine_may_checkpoint(s.e));
	sim_settle(&s);
	assert_int_equal(s.win_n, 1);
	assert_true(engine_may_checkpoint(s.e));
	while (!engine_positions_ready(s.e))
		;
	assert_true(engine_positions_next(s.e, &name, &part, &offset));
	assert_true(span_is(name, "a"));
	assert_int_equal(offset, 4); /* not 9 */
	/* no window closes meanwhile, all else goes on */
	s.now_us = DAWN + 3 * HOUR;
	engine_woken(s.e);
	assert_int_equal(sim_run(&s), ENGINE_IDLE);
	assert_int_equal(s.pages, 4);
	engine_positions_end(s.e);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
}

static void
a_redo_is_the_same_window(void **state)
{
	static const enum s3_start start[] = { S3_EARLIEST, S3_LATEST };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct sim_part *a, *b;
		struct sim_window first, again;
		struct engine_restore r = { .redo_k = 1 };

		sim_init(&s, 1);
		s.conf.start = start[i];
		a = sim_create(&s, "a");
		b = sim_create(&s, "b");
		s.now_us = DAWN + 10 * SECOND;
		sim_start(&s, NULL);
		sim_push(&s, a, 10);
		sim_run(&s);
		sim_push_at(&s, a, DAWN + MINUTE, 7);
		sim_push_at(&s, b, DAWN + 2 * MINUTE, 7);
		assert_int_equal(wake_at(DAWN + 10 * MINUTE), ENGINE_CLOSE);
		first = *sim_open(&s);
		sim_records(&s, &first, false);
		assert_int_equal(first.w.records, 15);
		r.redo_start_us = first.w.start_us;
		r.redo_end_us = first.w.end_us;
		sim_push_at(&s, a, DAWN + 11 * MINUTE, 7);
		sim_push_at(&s, b, DAWN + 30 * MINUTE, 7);
		s.seeks = 0;
		sim_start(&s, &r);
		engine_stats(s.e, &st);
		assert_true(st.redo);
		assert_int_equal(sim_run(&s), ENGINE_CLOSE);
		assert_int_equal(s.seeks != 0, i);
		again = *sim_open(&s);
		sim_records(&s, &again, false);
		assert_true(again.w.redo);
		assert_true(again.hash == first.hash);
		assert_true(again.w.start_us == first.w.start_us);
		assert_true(again.w.end_us == first.w.end_us);
		sim_commit(&s);
		engine_stats(s.e, &st);
		assert_false(st.redo);
		sim_settle(&s);
		assert_int_equal(s.win_n, 2);
		if (i == 0)
			sim_fini(&s);
	}
}

static void
a_redo_waits_for_safe_time_and_every_frontier(void **state)
{
	struct engine_restore r = { .committed_k = 4,
		.committed_us = DAWN,
		.redo_k = 5,
		.redo_start_us = DAWN,
		.redo_end_us = DAWN + MINUTE };
	struct engine_found f = found(1, "a", 9, 0, DAWN);
	static const int64_t safe[] = { DAWN + MINUTE - 1, DAWN + MINUTE,
		DAWN + MINUTE + 5 * SECOND - 1 };

	(void)state;
	sim_start(&s, &r);
	engine_force(s.e);
	for (int i = 0; i < 3; i++) {
		names(safe[i], NULL, 0);
		assert_int_equal(step(), ENGINE_IDLE);
		engine_woken(s.e);
	}
	names(DAWN + MINUTE + 5 * SECOND, &f, 1);
	assert_int_equal(step(), ENGINE_SEEK);
	assert_true(t.at_us == DAWN);
	engine_on_seek(s.e, t.call, 0, false, 0);
	engine_on_done(s.e, t.call);
	fetches(1, 0);
	assert_int_equal(step(), ENGINE_WAIT);
	engine_on_failed(s.e, t.call);
	engine_on_failed(s.e, t.call - 1);
	engine_on_failed(s.e, 6);
	fetches(1, 0);
	answers(ENGINE_OK, 10, 0, 0, 9, DAWN + MINUTE - 1);
	fetches(1, 9);
	answers(ENGINE_OK, 10, 0, 9, 1, DAWN + MINUTE);
	carries(NULL, 0);
	assert_int_equal(planned(), 9);
}

/* Set up by day then, by the hour now. */
static void
a_redo_reads_to_its_end_beyond_the_horizon(void **state)
{
	struct engine_restore r = { .committed_k = 4,
		.committed_us = DAWN,
		.redo_k = 5,
		.redo_start_us = DAWN,
		.redo_end_us = DAWN + 24 * HOUR };
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	s.batch = 3;
	for (int i = 0; i < 30; i++)
		sim_push_at(&s, a, DAWN + i * HOUR, 1);
	sim_start(&s, &r);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	sim_commit(&s);
	assert_int_equal(s.win[0].w.records, 24);
}

static void
a_redo_of_nothing_is_an_empty_window(void **state)
{
	struct engine_restore r = { .committed_k = 4,
		.committed_us = DAWN,
		.redo_k = 5,
		.redo_start_us = DAWN,
		.redo_end_us = DAWN + MINUTE };

	(void)state;
	sim_start(&s, &r);
	names(DAWN + HOUR, NULL, 0);
	carries(NULL, 0);
	assert_int_equal(planned(), 0);
}

/* ---- a frame that cannot be opened ---- */

static void
a_sealed_record_stops_its_partition_and_windows_close_up_to_it(void **state)
{
	struct sim_part *a = sim_create(&s, "a"), *b = sim_create(&s, "b");

	(void)state;
	for (int i = 1; i <= 10; i++) {
		sim_push_at(&s, a, DAWN + i * MINUTE, 1);
		sim_push_at(&s, b, DAWN + i * MINUTE + SECOND, 1);
	}
	a->sealed = 6;
	begins_at(DAWN + 20 * MINUTE);
	assert_int_equal(sim_settle(&s), ENGINE_IDLE);
	assert_int_equal(s.win_n, 1);
	assert_true(s.win[0].w.end_us == DAWN + 7 * MINUTE);
	assert_int_equal(s.win[0].w.records, 12);
	engine_stats(s.e, &st);
	assert_int_equal(st.blocked_part, a->id);
	assert_true(span_is(st.blocked_name, "a"));
	assert_int_equal(st.blocked_offset, 6);
	assert_int_equal(st.blocked_key_id, 7);
	for (int i = 21; i < 24; i++)
		assert_int_equal(wake_at(DAWN + i * MINUTE), ENGINE_IDLE);
	/* until retention takes it */
	sim_push(&s, a, 1);
	sim_trim(&s, a, 7);
	assert_int_equal(wake_at(DAWN + 30 * MINUTE), ENGINE_CLOSE);
	sim_commit(&s);
	assert_int_equal(s.win[1].lost, 1);
	engine_stats(s.e, &st);
	assert_int_equal(st.blocked_part, 0);
}

static void
a_sealed_record_below_the_window_is_stepped_over(void **state)
{
	struct sim_part *a = sim_create(&s, "a");

	(void)state;
	sim_push_at(&s, a, DAWN + SECOND, 5);
	sim_push_at(&s, a, DAWN + MINUTE, 5);
	a->sealed = 2;
	restarts_at(DAWN + 20 * MINUTE, 1, DAWN + 30 * SECOND);
	engine_position(s.e, SPAN_LIT("a"), 0, a->id);
	assert_int_equal(sim_run(&s), ENGINE_CLOSE);
	sim_commit(&s);
	assert_int_equal(s.win[0].w.records, 5);
	assert_int_equal(s.win[0].lost, 0);
	engine_stats(s.e, &st);
	assert_int_equal(st.blocked_part, 0);
}

/* A fetch beyond the window may be on its way in while the window goes out. */
static void
what_arrives_while_a_window_goes_out_is_of_the_next(void **state)
{
	struct engine_found f = found(1, "a", 0, 0, DAWN + 10 * SECOND);
	struct record r;
	uint32_t late;

	(void)state;
	begins_at(DAWN + MINUTE);
	names(DAWN + MINUTE, &f, 1);
	assert_int_equal(step(), ENGINE_SEEK);
	engine_on_seek(s.e, t.call, 0, false, 0);
	engine_on_done(s.e, t.call);
	fetches(1, 0);
	answers(ENGINE_OK, 1, 0, 0, 1, DAWN + 10 * SECOND);
	f = found(1, "a", 9, 0, DAWN + 100 * SECOND);
	names_after_a_wait(DAWN + 2 * MINUTE, &f, 1);
	fetches(1, 1);
	late = t.call;
	engine_on_entry(s.e, late, 0, ENGINE_OK, 10, 0);
	record(0, 1, DAWN + 100 * SECOND);
	record(0, 2, DAWN + 100 * SECOND);
	engine_force(s.e);
	assert_int_equal(step(), ENGINE_CLOSE);
	assert_int_equal(planned(), 1);
	assert_true(engine_plan_next(s.e, &r));
	assert_int_equal(r.offset, 0);
	engine_on_done(s.e, late);
	assert_false(engine_plan_next(s.e, &r));
	engine_plan_rewind(s.e);
	assert_true(engine_plan_next(s.e, &r));
	assert_false(engine_plan_next(s.e, &r));
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
		T(out_of_range_loses_exactly_what_is_gone_and_once),
		T(what_another_owner_did_not_tell_goes_with_the_next_window),
		T(a_position_below_the_log_is_lost_up_to_it),
		T(a_gap_is_lost_unless_it_had_shipped),
		T(what_a_clock_that_went_back_stamped_is_lost),
		T(what_is_found_lost_while_a_window_closes_is_of_the_next),
		T(one_made_again_begins_anew_and_the_old_one_still_ships),
		T(what_was_not_read_of_one_that_is_gone_is_lost),
		T(a_position_of_another_incarnation_is_not_resumed),
		T(an_id_learned_later_is_not_a_change),
		T(an_id_under_another_name_is_another_partition),
		T(one_that_went_before_its_seek_is_lost_whole),
		T(one_nobody_names_any_more_is_forgotten_a_living_one_is_not),
		T(what_arrives_while_a_window_goes_out_is_of_the_next),
		T(a_restart_goes_on_and_ships_nothing_twice),
		T(a_position_is_where_the_next_window_begins),
		T(a_redo_is_the_same_window),
		T(a_redo_waits_for_safe_time_and_every_frontier),
		T(a_redo_reads_to_its_end_beyond_the_horizon),
		T(a_redo_of_nothing_is_an_empty_window),
		T(a_sealed_record_stops_its_partition_and_windows_close_up_to_it),
		T(a_sealed_record_below_the_window_is_stepped_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
