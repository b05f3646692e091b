/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets and occupancy, with a clock that the test moves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kvmeter.h"

static void
a_bucket_starts_full_and_refills_by_the_clock(void **state)
{
	struct kvmeter_bucket b = { .used = false };

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(kvmeter_spend(&b, 10, 3, 5000), 0);
	assert_int_equal(kvmeter_spend(&b, 10, 3, 5000), 1);
	assert_int_equal(kvmeter_spend(&b, 10, 3, 5099), 1);
	assert_int_equal(kvmeter_spend(&b, 10, 3, 5100), 0);
	assert_int_equal(kvmeter_spend(&b, 10, 3, 5100), 1);
	/* an hour later: the burst and no more */
	for (int i = 0; i < 3; i++)
		assert_int_equal(kvmeter_spend(&b, 10, 3, 3605100), 0);
	assert_int_equal(kvmeter_spend(&b, 10, 3, 3605100), 1);
}

static void
a_clock_that_stands_still_gives_nothing(void **state)
{
	struct kvmeter_bucket b = { .used = false };

	(void)state;
	assert_int_equal(kvmeter_spend(&b, 1, 1, 1000), 0);
	assert_int_equal(kvmeter_spend(&b, 1, 1, 900), 1);
	assert_int_equal(kvmeter_spend(&b, 1, 1, 1899), 1);
	assert_int_equal(kvmeter_spend(&b, 1, 1, 1900), 0);
}

static void
rate_0_is_no_limit_and_a_burst_is_at_least_1(void **state)
{
	struct kvmeter_bucket b = { .used = false };

	(void)state;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(kvmeter_spend(&b, 0, 0, 0), 0);
	assert_int_equal(kvmeter_spend(&b, 5, 0, 0), 0);
	assert_int_equal(kvmeter_spend(&b, 5, 0, 0), 1);
	kvmeter_unspend(&b, 1);
	kvmeter_unspend(&b, 1);
	assert_int_equal(kvmeter_spend(&b, 5, 1, 0), 0);
	assert_int_equal(kvmeter_spend(&b, 5, 1, 0), 1);
}

static void
occupancy_fills_to_the_cap_and_the_block_sticks(void **state)
{
	struct kvmeter m = KVMETER_ZERO;

	(void)state;
	kvmeter_measure(&m, 10, 7, true, 90);
	assert_true(kvmeter_fits(&m, 3));
	kvmeter_charge(&m, 3);
	assert_false(kvmeter_fits(&m, 1));
	kvmeter_refund(&m, 3);
	assert_false(kvmeter_fits(&m, 1));
	assert_true(kvmeter_fits(&m, 0)); /* deletes */
	kvmeter_measure(&m, 10, 7, false, 90); /* the same as before */
	assert_false(kvmeter_fits(&m, 1));
	kvmeter_measure(&m, 10, 10, true, 90);
	assert_false(kvmeter_fits(&m, 1));
	kvmeter_measure(&m, 10, 9, true, 90); /* exactly 90 percent */
	assert_true(kvmeter_fits(&m, 1));
	assert_false(kvmeter_fits(&m, 2));
}

static void
a_measurement_ends_the_delta_only_when_it_is_new(void **state)
{
	struct kvmeter m = KVMETER_ZERO;

	(void)state;
	kvmeter_measure(&m, 100, 0, true, 90);
	kvmeter_charge(&m, 60);
	kvmeter_measure(&m, 100, 0, false, 90);
	assert_false(kvmeter_fits(&m, 41));
	kvmeter_measure(&m, 100, 60, true, 90);
	assert_true(kvmeter_fits(&m, 40));
	kvmeter_refund(&m, 60); /* charged before the measurement */
	assert_false(kvmeter_fits(&m, 41));
}

static void
no_cap_never_blocks_and_a_cap_taken_away_releases(void **state)
{
	struct kvmeter m = KVMETER_ZERO;

	(void)state;
	kvmeter_charge(&m, INT64_MAX);
	kvmeter_charge(&m, INT64_MAX);
	assert_true(kvmeter_fits(&m, INT64_MAX));
	assert_false(kvmeter_hot(&m, 1));
	kvmeter_measure(&m, 0, 5, true, 90);
	assert_false(kvmeter_fits(&m, 1));
	kvmeter_measure(&m, KVMETER_NO_CAP, 5, false, 90);
	assert_true(kvmeter_fits(&m, 1));
}

static void
hot_is_at_the_percentage(void **state)
{
	struct kvmeter m = KVMETER_ZERO;

	(void)state;
	kvmeter_measure(&m, 100, 79, true, 90);
	assert_false(kvmeter_hot(&m, 80));
	kvmeter_charge(&m, 1);
	assert_true(kvmeter_hot(&m, 80));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bucket_starts_full_and_refills_by_the_clock),
		cmocka_unit_test(a_clock_that_stands_still_gives_nothing),
		cmocka_unit_test(rate_0_is_no_limit_and_a_burst_is_at_least_1),
		cmocka_unit_test(
			occupancy_fills_to_the_cap_and_the_block_sticks),
		cmocka_unit_test(
			a_measurement_ends_the_delta_only_when_it_is_new),
		cmocka_unit_test(
			no_cap_never_blocks_and_a_cap_taken_away_releases),
		cmocka_unit_test(hot_is_at_the_percentage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
