/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backoff.h"

static void
it_doubles_up_to_its_end(void **state)
{
	int64_t ms = 0;
	const int64_t want[] = { 1000, 2000, 4000, 5000, 5000 };

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		ms = backoff_next_ms(ms, 1000, 5000);
		assert_int_equal(ms, want[i]);
	}
	assert_int_equal(backoff_next_ms(0, 9, 5), 5);
}

static void
chance_stays_within_its_bounds(void **state)
{
	int64_t least = INT64_MAX, most = 0;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		int64_t ms = backoff_spread_ms(100, 20);

		least = ms < least ? ms : least;
		most = ms > most ? ms : most;
	}
	assert_int_equal(least, 80);
	assert_int_equal(most, 120);
	assert_int_equal(backoff_spread_ms(0, 20), 0);
	assert_int_equal(backoff_spread_ms(4, 20), 4);
}

static void
jitter_keeps_a_tenth(void **state)
{
	int64_t least = INT64_MAX, most = 0;

	(void)state;
	for (int i = 0; i < 4000; i++) {
		int64_t ms = backoff_jitter_ms(100);

		least = ms < least ? ms : least;
		most = ms > most ? ms : most;
	}
	assert_int_equal(least, 10);
	assert_int_equal(most, 100);
	assert_int_equal(backoff_jitter_ms(0), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_doubles_up_to_its_end),
		cmocka_unit_test(chance_stays_within_its_bounds),
		cmocka_unit_test(jitter_keeps_a_tenth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
