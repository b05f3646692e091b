/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of transaction ids: never an old id for a new one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dedup.h"

#define SECOND INT64_C(1000000)

enum { PART = 7, MANY = 300000 };

static uint64_t
mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static struct hash_id
id_of(uint64_t n)
{
	struct hash_id h;
	uint64_t a = mix(n), b = mix(a ^ 1);

	memcpy(h.b, &a, 8);
	memcpy(h.b + 8, &b, 8);
	return h;
}

/* Ids number from .. from + n - 1 at offsets from base on. */
static bool
add(struct dedup *d, struct dedup_filter *f, int64_t base, uint64_t from,
	size_t n, int64_t at_us, int64_t window_us)
{
	uint8_t *ids = malloc(n * HASH_ID_BYTES);
	bool ok;

	assert_non_null(ids);
	for (size_t i = 0; i < n; i++)
		memcpy(ids + i * HASH_ID_BYTES, id_of(from + i).b,
			HASH_ID_BYTES);
	ok = dedup_add(d, f, base, ids, n, at_us, window_us);
	free(ids);
	return ok;
}

static bool
suspects_hold(const struct dedup_filter *f, uint64_t n, int64_t offset)
{
	struct dedup_range r[4];
	struct hash_id h = id_of(n);
	int k = dedup_suspects(f, &h, r, 4);

	for (int i = 0; i < k; i++) {
		assert_true(r[i].lo <= r[i].hi);
		if (r[i].lo <= offset && offset <= r[i].hi)
			return true;
	}
	return false;
}

static struct dedup_filter *
fresh(struct dedup *d)
{
	struct dedup_filter *f = dedup_open(d, PART);

	dedup_restart(d, f, 0, INT64_MIN);
	return f;
}

static void
an_unknown_partition_vouches_for_nothing(void **state)
{
	struct dedup *d = dedup_new(1 << 20);

	(void)state;
	assert_null(dedup_find(d, PART));
	struct dedup_filter *f = dedup_open(d, PART);

	assert_false(dedup_is_ready(f));
	assert_int_equal(dedup_verified(f), -1);
	assert_false(add(d, f, 0, 0, 1, SECOND, SECOND));
	dedup_free(d);
}

static void
every_id_of_the_window_is_a_suspect_at_its_offset(void **state)
{
	static const size_t sizes[] = { 1, 4, 5, 64, 65, 512, 513, 4096, 4097,
		40000 };

	(void)state;
	for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
		struct dedup *d = dedup_new((size_t)64 << 20);
		struct dedup_filter *f = fresh(d);

		assert_true(add(d, f, 0, 0, sizes[k], SECOND, 3600 * SECOND));
		assert_int_equal(dedup_verified(f), (int64_t)sizes[k] - 1);
		for (size_t i = 0; i < sizes[k]; i++)
			assert_true(suspects_hold(f, i, (int64_t)i));
		dedup_free(d);
	}
}

static void
few_new_ids_are_suspects(void **state)
{
	struct dedup *d = dedup_new((size_t)64 << 20);
	struct dedup_filter *f = fresh(d);
	struct dedup_stats st;
	int suspects = 0;

	(void)state;
	assert_true(add(d, f, 0, 0, MANY, SECOND, 3600 * SECOND));
	for (uint64_t n = MANY; n < 2 * MANY; n++) {
		struct dedup_range r[4];
		struct hash_id h = id_of(n);

		suspects += dedup_suspects(f, &h, r, 4);
	}
	/* 0.004 of a hundred are expected, 0.05 allowed */
	assert_in_range(suspects, 0, MANY / 2000);
	dedup_stats(d, &st);
	assert_in_range(st.bytes, 1, MANY * 5);
	dedup_free(d);
}

static void
what_is_vouched_for_is_passed_over_and_holes_are_refused(void **state)
{
	struct dedup *d = dedup_new(1 << 20);
	struct dedup_filter *f = fresh(d);

	(void)state;
	assert_true(add(d, f, 0, 0, 10, SECOND, SECOND));
	assert_true(add(d, f, 5, 5, 10, SECOND, SECOND));
	assert_int_equal(dedup_verified(f), 14);
	assert_true(add(d, f, 0, 0, 5, SECOND, SECOND));
	assert_int_equal(dedup_verified(f), 14);
	assert_false(add(d, f, 16, 16, 1, SECOND, SECOND));
	assert_int_equal(dedup_verified(f), 14);
	dedup_skip_to(f, 16, 5);
	assert_true(add(d, f, 16, 16, 1, SECOND, SECOND));
	assert_true(suspects_hold(f, 16, 16));
	assert_true(suspects_hold(f, 14, 14));
	assert_int_equal(dedup_covered_us(f), 5);
	dedup_free(d);
}

static void
what_left_the_window_is_dropped_and_no_longer_covered(void **state)
{
	struct dedup *d = dedup_new((size_t)64 << 20);
	struct dedup_filter *f = fresh(d);
	int64_t window = 60 * SECOND, offset = 0;
	struct dedup_stats st;

	(void)state;
	/* a thousand ids a second for five windows, times one window back */
	for (int64_t s = 1; s <= 300; s++) {
		assert_true(add(d, f, offset, (uint64_t)offset, 1000,
			s * SECOND, window));
		offset += 1000;
		dedup_expire(d, f, s * SECOND, window);
		assert_true(dedup_covered_us(f) <= s * SECOND - window);
		for (int64_t k = 0; k < 1000; k += 97)
			for (int64_t back = 0; back <= 60 && back < s;
				back += 10)
				assert_true(suspects_hold(f,
					(uint64_t)(offset - 1 - k -
						   back * 1000),
					offset - 1 - k - back * 1000));
	}
	dedup_stats(d, &st);
	/* a window is 60 000 ids; not all 300 000 are kept */
	assert_in_range(st.bytes, 1, 100000 * 5);
	dedup_free(d);
}

static void
a_sparse_partition_keeps_only_its_window(void **state)
{
	struct dedup *d = dedup_new((size_t)64 << 20);
	struct dedup_filter *f = fresh(d);
	struct dedup_stats st;
	int64_t at = SECOND;

	(void)state;
	for (int64_t i = 0; i < 5000; i++) {
		assert_true(add(d, f, i, (uint64_t)i, 1, at, 60 * SECOND));
		dedup_expire(d, f, at, 60 * SECOND);
		at += 5 * SECOND;
	}
	dedup_stats(d, &st);
	assert_in_range(st.bytes, 1, 4096);
	dedup_free(d);
}

static void
a_sweep_forgets_partitions_that_left_the_window(void **state)
{
	struct dedup *d = dedup_new((size_t)64 << 20);
	struct dedup_stats st;

	(void)state;
	for (int64_t p = 1; p <= 1000; p++) {
		struct dedup_filter *f = dedup_open(d, p);

		dedup_restart(d, f, 0, INT64_MIN);
		/* every second one has a window of an hour */
		assert_true(add(d, f, 0, (uint64_t)p, 1, SECOND,
			p % 2 ? 60 * SECOND : 3600 * SECOND));
	}
	for (int i = 0; i < 20; i++)
		dedup_sweep(d, 100 * SECOND, 100);
	dedup_stats(d, &st);
	assert_int_equal(st.filters, 500);
	for (int i = 0; i < 20; i++)
		dedup_sweep(d, 4000 * SECOND, 100);
	dedup_stats(d, &st);
	assert_int_equal(st.filters, 0);
	assert_int_equal(st.bytes, 0);
	dedup_free(d);
}

static void
memory_is_bounded_and_the_least_used_goes_first(void **state)
{
	struct dedup *d = dedup_new(1 << 20);
	struct dedup_stats st;

	(void)state;
	for (int64_t p = 1; p <= 200; p++) {
		struct dedup_filter *f = dedup_open(d, p);

		dedup_restart(d, f, 0, INT64_MIN);
		assert_true(add(d, f, 0, (uint64_t)p * 100000, 5000, SECOND,
			60 * SECOND));
		assert_non_null(dedup_find(d, p));
		assert_non_null(dedup_find(d, 1)); /* used all the time */
	}
	dedup_stats(d, &st);
	assert_in_range(st.bytes, 1, 1 << 20);
	assert_true(st.evicted > 100);
	assert_null(dedup_find(d, 2));
	assert_true(suspects_hold(dedup_find(d, 1), 100000, 0));
	dedup_free(d);
}

/* Random batches, times, expiries, skips and restarts against a plain list. */
static void
random_streams_never_miss_an_id(void **state)
{
	struct ref {
		uint64_t n;
		int64_t off, at;
	};
	struct ref *all = malloc(200000 * sizeof(*all));

	(void)state;
	assert_non_null(all);
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct dedup *d = dedup_new((size_t)64 << 20);
		struct dedup_filter *f = fresh(d);
		uint64_t r = seed, next = seed << 40;
		int64_t at = SECOND, offset = 0, from = 0;
		int64_t window = (int64_t)(1 + mix(seed) % 200) * SECOND;
		size_t count = 0;

		for (int step = 0; step < 300; step++) {
			size_t n = (r = mix(r)) % 3 ? r % 7 : r % 900;

			at += (int64_t)((r = mix(r)) % 4) * SECOND / 2;
			if ((r = mix(r)) % 50 == 0) {
				offset += 100;
				dedup_skip_to(f, offset, INT64_MIN);
			}
			assert_true(add(d, f, offset, next, n, at, window));
			for (size_t i = 0; i < n; i++)
				all[count++] = (struct ref){ .n = next + i,
					.off = offset + (int64_t)i,
					.at = at };
			offset += (int64_t)n;
			next += n;
			if ((r = mix(r)) % 4 == 0)
				dedup_expire(d, f, at, window);
			if ((r = mix(r)) % 200 == 0) {
				from = offset;
				dedup_restart(d, f, offset, at);
			}
			assert_int_equal(dedup_verified(f), offset - 1);
			assert_true(from || dedup_covered_us(f) <= at - window);
		}
		for (size_t i = 0; i < count; i++)
			if (all[i].off >= from &&
				all[i].at >= dedup_covered_us(f))
				assert_true(
					suspects_hold(f, all[i].n, all[i].off));
		dedup_free(d);
	}
	free(all);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_unknown_partition_vouches_for_nothing),
		cmocka_unit_test(
			every_id_of_the_window_is_a_suspect_at_its_offset),
		cmocka_unit_test(few_new_ids_are_suspects),
		cmocka_unit_test(
			what_is_vouched_for_is_passed_over_and_holes_are_refused),
		cmocka_unit_test(
			what_left_the_window_is_dropped_and_no_longer_covered),
		cmocka_unit_test(a_sparse_partition_keeps_only_its_window),
		cmocka_unit_test(
			a_sweep_forgets_partitions_that_left_the_window),
		cmocka_unit_test(
			memory_is_bounded_and_the_least_used_goes_first),
		cmocka_unit_test(random_streams_never_miss_an_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
