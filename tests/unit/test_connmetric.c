/* SPDX-License-Identifier: Apache-2.0 */
/* The table of families. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "connmetric.h"

static void
test_families(void **state)
{
	(void)state;
	for (int i = 0; i < CONNMETRIC_N; i++) {
		const struct connmetric *m = &connmetric_table[i];
		size_t n = strlen(m->name);

		assert_int_equal(connmetric_find(span_of(m->name)), i);
		assert_true(connmetric_is_counter(i) ==
			    (strcmp(m->name + n - 6, "_total") == 0));
	}
	assert_int_equal(connmetric_find(SPAN_LIT("queen_pg_other")), -1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
