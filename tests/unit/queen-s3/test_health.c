/* SPDX-License-Identifier: Apache-2.0 */
/* Who is behind, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "health.h"

#define Q(s) SPAN_LIT(s)

static bool
is_behind(const struct health *h, int64_t now_ms, const char *queue,
	int64_t stale_ms)
{
	struct health_behind b;

	if (!health_behind(h, now_ms, &b))
		return false;
	assert_true(span_is(b.queue, queue));
	assert_int_equal(b.stale_ms, stale_ms);
	assert_int_equal(b.limit_ms, h->limit_ms);
	return true;
}

static void
test_limit_is_three_windows_and_at_least_half_a_minute(void **state)
{
	struct health h;

	(void)state;
	health_init(&h, 100);
	assert_int_equal(h.limit_ms, 30000);
	health_fini(&h);
	health_init(&h, 300000);
	assert_int_equal(h.limit_ms, 900000);
	health_fini(&h);
}

static void
test_one_that_never_committed_counts_from_its_start(void **state)
{
	struct health h;
	struct health_behind b;

	(void)state;
	health_init(&h, 100);
	health_runs(&h, Q("orders"), 1000);
	assert_false(health_behind(&h, 31000, &b)); /* exactly at the limit */
	assert_true(is_behind(&h, 31001, "orders", 30001));
	health_report(&h, Q("orders"), -1, 5, 31001); /* still not known */
	assert_true(is_behind(&h, 31001, "orders", 30001));
	health_report(&h, Q("orders"), 6000000, 6, 31001);
	assert_false(health_behind(&h, 31001, &b));
	health_fini(&h);
}

static void
test_lag_grows_between_reports(void **state)
{
	struct health h;
	struct health_behind b;

	(void)state;
	health_init(&h, 100);
	health_runs(&h, Q("q"), 0);
	health_report(&h, Q("q"), 10000000, 7, 0);
	assert_false(health_behind(&h, 20000, &b));
	assert_true(is_behind(&h, 20001, "q", 30001));
	/* the same report again is no news, an older one neither */
	health_report(&h, Q("q"), 0, 7, 20001);
	health_report(&h, Q("q"), 0, 6, 20001);
	assert_true(is_behind(&h, 20001, "q", 30001));
	health_report(&h, Q("q"), 0, 8, 20001);
	assert_false(health_behind(&h, 50001, &b));
	/* what runs already keeps its history */
	health_runs(&h, Q("q"), 50001);
	assert_true(is_behind(&h, 50002, "q", 30001));
	health_fini(&h);
}

static void
test_first_offender_by_name(void **state)
{
	struct health h;
	struct health_behind b;

	(void)state;
	health_init(&h, 100);
	health_runs(&h, Q("b"), 0);
	health_runs(&h, Q("ab"), 0);
	health_runs(&h, Q("a"), 5000);
	assert_int_equal(h.n, 3);
	assert_true(is_behind(&h, 30001, "ab", 30001));
	assert_true(is_behind(&h, 35001, "a", 30001));
	health_forget(&h, Q("a"));
	health_forget(&h, Q("nobody"));
	assert_true(is_behind(&h, 35001, "ab", 35001));
	health_forget(&h, Q("ab"));
	health_forget(&h, Q("b"));
	assert_int_equal(h.n, 0);
	assert_false(health_behind(&h, 1000000, &b));
	health_fini(&h);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_limit_is_three_windows_and_at_least_half_a_minute),
		cmocka_unit_test(
			test_one_that_never_committed_counts_from_its_start),
		cmocka_unit_test(test_lag_grows_between_reports),
		cmocka_unit_test(test_first_offender_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
