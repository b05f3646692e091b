/* SPDX-License-Identifier: Apache-2.0 */
/* From how many waiting calls on what is left undone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pgpool.h"
#include "pressure.h"

static void
pruning_is_left_before_measuring(void **state)
{
	static const struct {
		int up, waiting;
		enum pressure want;
	} v[] = {
		{ 16, 0, PRESSURE_NONE },
		{ 16, 16, PRESSURE_NONE },
		{ 16, 17, PRESSURE_SOME },
		{ 16, 64, PRESSURE_SOME },
		{ 16, 65, PRESSURE_HIGH },
		{ 1, 17, PRESSURE_SOME },
		{ 0, 0, PRESSURE_HIGH },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		struct pgpool_stats s = {
			.size = 16, .up = v[i].up, .waiting = v[i].waiting
		};

		assert_int_equal(pressure_of(&s), v[i].want);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pruning_is_left_before_measuring),
	};

	return cmocka_run_group_tests_name("pressure", tests, NULL, NULL);
}
