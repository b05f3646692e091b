/* SPDX-License-Identifier: Apache-2.0 */
/* What is lost, made again, restored or cannot be opened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_hand.h"
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

/* It stood at 3, the log begins at 8: what is between is lost. */
static void
reads_on_above_its_position(struct engine_found f)
{
	static const int64_t lost[][2] = { { 3, 7 } };

	restarts_at(DAWN, 1, DAWN);
	engine_position(s.e, SPAN_LIT("a"), 3, 1);
	names(DAWN + 10 * MINUTE, &f, 1);
	fetches(1, 8);
	answers(ENGINE_OK, 10, 8, 8, 2, DAWN + SECOND);
	carries(lost, 1);
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
	reads_on_above_its_position(f);
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
	(void)state;
	reads_on_above_its_position(found(1, "a", 9, 8, DAWN));
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
