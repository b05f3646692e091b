/* SPDX-License-Identifier: Apache-2.0 */
/* A great many partitions: what each costs, in memory and per round. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "engine.h"

#define SECOND INT64_C(1000000)
#define DAWN INT64_C(1767225600000000)

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = true }; /* what is freed is kept */
#else
enum { SANITIZED = false };
#endif
enum { MANY = 100000, PART_BYTES = 256 };

static struct engine *e;
static struct engine_step t;
static size_t base, peak;
static uint64_t fetched, sought; /* entries */

static size_t
used(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

static void
sample(void)
{
	size_t now = used();

	if (now > base && now - base > peak)
		peak = now - base;
}

static enum engine_what
step(void)
{
	engine_next(e, &t);
	fetched += t.what == ENGINE_FETCH ? t.n : 0;
	sought += t.what == ENGINE_SEEK ? t.n : 0;
	return t.what;
}

static void
begin(int64_t start_us)
{
	struct engine_conf c = { .target_bytes = INT64_C(1) << 40,
		.max_window_us = 300 * SECOND,
		.safe_guard_us = 5 * SECOND,
		.align = S3_HOUR,
		.start = S3_TIMESTAMP,
		.start_us = start_us,
		.fetch_concurrency = 4 };
	struct engine_restore r = { .committed_k = 0 };

	peak = fetched = sought = 0;
	base = used();
	e = engine_new(&c, &r);
}

static void
answer(int64_t ts_us)
{
	static const char payload[96];

	if (t.what == ENGINE_SEEK)
		for (size_t i = 0; i < t.n; i++)
			engine_on_seek(e, t.call, i, false, 0);
	for (size_t i = 0; t.what == ENGINE_FETCH && i < t.n; i++) {
		struct record r = { .offset = t.offset[i],
			.ts_us = ts_us + t.part[i],
			.txn = span_make(payload, 36),
			.payload = span_make(payload, 64) };

		engine_on_entry(e, t.call, i, ENGINE_OK, t.offset[i] + 1, 0);
		engine_on_record(e, t.call, i, &r);
	}
	engine_on_done(e, t.call);
}

static void
read_all(int64_t ts_us)
{
	while (step() == ENGINE_SEEK || t.what == ENGINE_FETCH) {
		answer(ts_us);
		sample();
	}
}

/* One pass: n partitions, the ids from 1 on, in no order of their names. */
static void
pass(int64_t safe_us, int n, int64_t last_offset, int64_t write_us)
{
	static struct engine_found f[ENGINE_PAGE];
	static char text[ENGINE_PAGE][32];
	int done = 0, rows;

	do {
		read_all(write_us);
		assert_int_equal(t.what, ENGINE_DISCOVER);
		rows = n - done < ENGINE_PAGE ? n - done : ENGINE_PAGE;
		for (int i = 0; i < rows; i++) {
			int id = done + i + 1;

			snprintf(text[i], 32, "customer-%08d-orders",
				(int)((int64_t)id * 7919 % 1000003));
			f[i] = (struct engine_found){ .part = id,
				.name = span_of(text[i]),
				.last_offset = last_offset,
				.last_write_us = write_us };
		}
		done += rows;
		engine_on_page(e, t.call, safe_us, false, f, (size_t)rows,
			rows == ENGINE_PAGE);
	} while (rows == ENGINE_PAGE);
}

/* Sorted and read; returns how many records there were. */
static int64_t
ship(void)
{
	struct record r;
	int64_t n = 0;

	while (!engine_plan_ready(e))
		sample();
	sample();
	while (engine_plan_next(e, &r))
		n++;
	engine_committed(e);
	while (!engine_positions_ready(e))
		;
	engine_positions_end(e);
	return n;
}

static size_t
window(int64_t at_us, int64_t offset)
{
	struct engine_stats st;
	int64_t weight = MANY * (64 + 24 + 36 + 64);

	peak = 0;
	pass(at_us, MANY, offset, at_us - 400 * SECOND);
	read_all(at_us - 400 * SECOND);
	assert_int_equal(t.what, ENGINE_CLOSE);
	engine_stats(e, &st);
	assert_int_equal(st.buffered_bytes, weight);
	assert_int_equal(st.partitions, MANY);
	assert_int_equal(ship(), MANY);
	assert_true(peak < (size_t)weight + (size_t)PART_BYTES * MANY);
	engine_stats(e, &st);
	assert_int_equal(st.buffered_bytes, 0);
	return peak;
}

static void
a_partition_with_one_record_costs_a_bounded_sum(void **state)
{
	size_t first, second;

	(void)state;
	begin(DAWN - 500 * SECOND);
	first = window(DAWN, 0);
	/* what a window took is there for the next one */
	second = window(DAWN + 600 * SECOND, 1);
	assert_true(second <= first + first / 20);
	engine_free(e);
}

/* An empty pass per round: nothing walks over what is at rest. */
static void
partitions_at_rest_cost_nothing_per_round(void **state)
{
	struct engine_stats st;
	clock_t start;

	(void)state;
	begin(DAWN);
	pass(DAWN + SECOND, MANY, 9, DAWN - 10 * SECOND);
	start = clock();
	for (int i = 2; i < 30; i++)
		for (int k = 0; k < 1000; k++) {
			assert_int_equal(step(), ENGINE_IDLE);
			if (k)
				continue;
			engine_woken(e);
			assert_int_equal(step(), ENGINE_DISCOVER);
			engine_on_page(e, t.call, DAWN + i * SECOND, false,
				NULL, 0, false);
		}
	assert_true(clock() - start < CLOCKS_PER_SEC);
	engine_stats(e, &st);
	assert_int_equal(st.partitions, MANY);
	assert_int_equal(fetched + sought, 0);
	engine_free(e);
}

static int64_t
buffered(void)
{
	struct engine_stats st;

	engine_stats(e, &st);
	return st.buffered_bytes;
}

/* A hundred that are written to among many that are not. */
static int64_t
peak_among(int cold)
{
	struct engine_found f = { .part = 1 };
	int64_t most;
	char name[16];

	begin(DAWN);
	pass(DAWN + SECOND, cold, 9, DAWN - 10 * SECOND);
	assert_int_equal(step(), ENGINE_IDLE);
	engine_woken(e);
	for (int i = 0; i < 100; i++) {
		read_all(DAWN + 2 * SECOND);
		assert_int_equal(t.what, ENGINE_DISCOVER);
		snprintf(name, sizeof(name), "hot-%d", i);
		f = (struct engine_found){ .part = 1000000 + i,
			.name = span_of(name),
			.last_offset = 0,
			.last_write_us = DAWN + SECOND };
		engine_on_page(
			e, t.call, DAWN + 10 * SECOND, false, &f, 1, i < 99);
	}
	read_all(DAWN + 2 * SECOND);
	assert_int_equal(t.what, ENGINE_IDLE);
	assert_int_equal(sought, 100);
	assert_int_equal(fetched, 100);
	most = buffered();
	engine_free(e);
	return most;
}

static void
cold_partitions_change_no_peak_and_are_not_read(void **state)
{
	int64_t few = peak_among(5000);

	(void)state;
	assert_true(few > 100 * 164);
	assert_int_equal(peak_among(MANY), few);
}

/* ---- large runs ---- */

static size_t
resident(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long all, here;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu %lu", &all, &here), 2);
	fclose(f);
	return here * 4096;
}

/* Answers of 8 MiB in all, to so many partitions at once. */
static void
answer_much(int64_t ts_us)
{
	static const char payload[1000];
	int64_t each = (8 << 20) / 1024 / (int64_t)t.n;

	for (size_t i = 0; i < t.n; i++) {
		engine_on_entry(e, t.call, i, ENGINE_OK, 1 << 20, 0);
		for (int64_t k = 0; k < each; k++) {
			struct record r = { .offset = t.offset[i] + k,
				.ts_us = ts_us + t.offset[i] + k,
				.payload = span_make(payload, 1000) };

			engine_on_record(e, t.call, i, &r);
		}
	}
	engine_on_done(e, t.call);
}

/* Many records a partition: what they hold, little more, and it comes back. */
static void
large_runs_take_what_they_hold_and_give_it_back(void **state)
{
	const size_t held = 64 << 20;
	size_t before, most;

	(void)state;
	begin(DAWN - 500 * SECOND);
	pass(DAWN, 8, (1 << 20) - 1, DAWN - 400 * SECOND);
	assert_int_equal(step(), ENGINE_SEEK);
	answer(0);
	malloc_trim(0);
	before = resident();
	for (int i = 0; i < 8; i++) {
		assert_int_equal(step(), ENGINE_FETCH);
		answer_much(DAWN - 400 * SECOND);
	}
	most = resident();
	engine_free(e);
	malloc_trim(0);
	assert_true(SANITIZED || (most > before + held - held / 8 &&
					 most < before + held + held / 8));
	assert_true(SANITIZED || resident() < before + (3 << 20));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_partition_with_one_record_costs_a_bounded_sum),
		cmocka_unit_test(partitions_at_rest_cost_nothing_per_round),
		cmocka_unit_test(
			cold_partitions_change_no_peak_and_are_not_read),
		cmocka_unit_test(
			large_runs_take_what_they_hold_and_give_it_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
