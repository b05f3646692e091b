/* SPDX-License-Identifier: Apache-2.0 */
#include "metric.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "buf.h"

static void
families_and_labels_are_written(void **state)
{
	const struct metric_label labels[] = {
		{ "queue", SPAN_LIT("a\"b\\c\nd") },
		{ "op", SPAN_LIT("push") },
	};
	struct buf b = BUF_ZERO;

	(void)state;
	metric_head(&b, "queen_x_total", "counter", "What it is");
	metric_u64(&b, "queen_x_total", NULL, 0, UINT64_MAX);
	metric_u64(&b, "queen_x_total", labels, 2, 7);
	metric_f64(&b, "queen_y", labels + 1, 1, 0.25);
	metric_f64(&b, "queen_y", NULL, 0, NAN);
	metric_f64(&b, "queen_y", NULL, 0, -INFINITY);
	assert_true(span_is(buf_span(&b),
		"# HELP queen_x_total What it is\n"
		"# TYPE queen_x_total counter\n"
		"queen_x_total 18446744073709551615\n"
		"queen_x_total{queue=\"a\\\"b\\\\c\\nd\",op=\"push\"} 7\n"
		"queen_y{op=\"push\"} 0.25\n"
		"queen_y NaN\n"
		"queen_y -Inf\n"));
	buf_fini(&b);
}

static void
a_family_of_one(void **state)
{
	struct buf b = BUF_ZERO;

	(void)state;
	metric_one(&b, "x_total", "counter", "Xs.", UINT64_MAX);
	assert_true(span_is(buf_span(&b),
		"# HELP x_total Xs.\n# TYPE x_total counter\n"
		"x_total 18446744073709551615\n"));
	assert_true(metric_resident_bytes() > 100000);
	buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(families_and_labels_are_written),
		cmocka_unit_test(a_family_of_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
