/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine of a test, run by the simulated broker to a time, or by hand:
 * each step asserted, each answer given.
 */
#ifndef QUEEN_S3_ENGINE_HAND_H
#define QUEEN_S3_ENGINE_HAND_H

#include "engine_sim.h"

static struct sim s;
static struct engine_stats st __attribute__((unused));

static inline int
setup(void **state)
{
	(void)state;
	sim_init(&s, 1);
	s.conf.start = S3_TIMESTAMP;
	s.conf.start_us = DAWN;
	s.now_us = DAWN;
	return 0;
}

static inline int
teardown(void **state)
{
	(void)state;
	if (s.faults)
		print_error("%s\n", s.why);
	assert_int_equal(s.faults, 0);
	sim_fini(&s);
	return 0;
}

/* One idle wait that ends at this time, and what comes of it. */
static inline enum engine_what
wake_at(int64_t at_us)
{
	s.now_us = at_us;
	engine_woken(s.e);
	return sim_run(&s);
}

static inline void
begins_at(int64_t at_us)
{
	s.now_us = at_us;
	sim_start(&s, NULL);
}

static inline void
restarts_at(int64_t at_us, int64_t k, int64_t committed_us)
{
	struct engine_restore r = { .committed_k = k,
		.committed_us = committed_us };

	s.now_us = at_us;
	sim_start(&s, &r);
}

/* ---- by hand ---- */

static struct engine_step t __attribute__((unused));

static inline enum engine_what
step(void)
{
	engine_next(s.e, &t);
	return t.what;
}

static inline struct engine_found
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
static inline void
names(int64_t safe_us, const struct engine_found *f, size_t n)
{
	assert_int_equal(step(), ENGINE_DISCOVER);
	engine_on_page(s.e, t.call, safe_us, false, f, n, false);
}

static inline void
names_after_a_wait(int64_t safe_us, const struct engine_found *f, size_t n)
{
	assert_int_equal(step(), ENGINE_IDLE);
	engine_woken(s.e);
	names(safe_us, f, n);
}

static inline void
record(size_t i, int64_t offset, int64_t ts_us)
{
	struct record r = { .txn = SPAN_LIT("t"),
		.payload = SPAN_LIT("{}"),
		.offset = offset,
		.ts_us = ts_us };

	engine_on_record(s.e, t.call, i, &r);
}

/* Entry 0 of a fetch, whole. */
static inline void
answers(enum engine_verdict v, int64_t high, int64_t log_start, int64_t from,
	int64_t n, int64_t ts_us)
{
	engine_on_entry(s.e, t.call, 0, v, high, log_start);
	for (int64_t o = from; o < from + n; o++)
		record(0, o, ts_us);
	engine_on_done(s.e, t.call);
}

static inline void
fetches(int64_t part, int64_t offset)
{
	assert_int_equal(step(), ENGINE_FETCH);
	assert_int_equal(t.n, 1);
	assert_int_equal(t.part[0], part);
	assert_int_equal(t.offset[0], offset);
}

/* The window in hand carries these lost ranges and no other. */
static inline void
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

static inline int64_t
planned(void)
{
	struct engine_window w;

	while (!engine_plan_ready(s.e))
		;
	engine_window(s.e, &w);
	return w.records;
}

#endif
