/* SPDX-License-Identifier: Apache-2.0 */
/* What may be a name, and what is said of one that may not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "name.h"

static void
test_names_have_bounds(void **state)
{
	char text[1100];
	struct err e = ERR_ZERO;

	(void)state;
	memset(text, 'x', sizeof(text));
	assert_int_equal(name_check(span_make(text, 1024), "q", &e), 0);
	assert_int_equal(name_check(span_make(text, 1025), "q", &e), -1);
	assert_string_equal(e.text, "q is longer than 1024 bytes");
	assert_int_equal(name_check(span_make(text, 0), "q", &e), -1);
	assert_string_equal(e.text, "q is empty");
	assert_int_equal(name_check(SPAN_LIT("\x7f"), "q", &e), -1);
	assert_int_equal(name_check(SPAN_LIT("\xed\xa0\x80"), "q", &e), -1);
	assert_int_equal(name_check(SPAN_LIT("a/b \xc3\xa9"), "q", &e), 0);
}

static void
test_the_first_fault_is_named(void **state)
{
	static const struct {
		struct span name;
		const char *text;
	} rows[] = {
		{ { "", 0 }, "queue is empty" },
		{ { "\xff", 1 }, "queue is not UTF-8" },
		{ { "a\n", 2 }, "queue holds a control character (0x0a)" },
		{ { "a\0b", 3 }, "queue holds a control character (0x00)" },
		{ { "\x7f", 1 }, "queue holds a control character (0x7f)" },
	};
	struct err e = ERR_ZERO;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(name_check(rows[i].name, "queue", &e), -1);
		assert_int_equal(e.kind, ERR_INPUT);
		assert_string_equal(e.text, rows[i].text);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_have_bounds),
		cmocka_unit_test(test_the_first_fault_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
