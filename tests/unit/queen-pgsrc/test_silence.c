/* SPDX-License-Identifier: Apache-2.0 */
/* A silent server whose slot falls behind, and one that is merely idle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "silence.h"

static void
a_growing_lag_in_minutes_of_silence(void **state)
{
	struct silence s = { .is = false };

	(void)state;
	assert_false(silence_judge(&s, 1000, 0));
	assert_false(silence_judge(&s, 9000, 119999));
	assert_false(silence_judge(&s, 9000, 120000));
	assert_false(s.is);
	assert_true(silence_judge(&s, 9001, 130000));
	/* told once */
	assert_false(silence_judge(&s, 9999, 140000));
	assert_true(s.is);
	assert_false(silence_judge(&s, 20000, 10));
	assert_false(s.is);
	assert_false(silence_judge(&s, 20000, 200000));
	assert_true(silence_judge(&s, 20001, 210000));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_growing_lag_in_minutes_of_silence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
