/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and integers of KV operations, in every spelling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv_value.h"

static void
sizes_are_those_of_compact_text(void **state)
{
	static const struct {
		const char *json;
		int bytes; /* -1 = cannot be stored */
	} v[] = {
		{ "null", 4 },
		{ " [ 1 , 2 ] ", 5 },
		{ "{ \"a b\" :\t\"c d\"\r\n}", 13 },
		{ "\"\\u0041\"", 3 },
		{ "\"\\u00e9\"", 4 },
		{ "\"\\u20ac\"", 5 },
		{ "\"\\ud83d\\ude00\"", 6 },
		{ "\"\\n\\/\\\"\"", 7 },
		{ "\"\\u000a\\u0022\\u0001\"", 12 },
		{ "\"a\\\\\" ", 5 },
		{ "[1e5,1E+5,1e-5]", 22 },
		{ "1e131071", 131072 },
		{ "[true,false,null,\"1e9\"]", 23 },
		{ "1e0000000000000000000005", 6 },
		{ "1e99999999999999999999999", 25 },
		{ "\"\\u0000\"", -1 },
		{ "\"\\ud83d\"", -1 },
		{ "\"\\ude00\"", -1 },
		{ "\"\\ud83d\\u0041\"", -1 },
		{ "\"\\ud83d-----------\"", -1 },
	};
	size_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		bool good = kv_value_bytes(span_of(v[i].json), &n);

		assert_int_equal(good, v[i].bytes >= 0);
		if (good)
			assert_int_equal(n, v[i].bytes);
	}
}

static void
integers_in_any_spelling(void **state)
{
	static const struct {
		const char *text;
		bool good;
		int64_t value;
	} v[] = {
		{ "0", true, 0 },
		{ "-0", true, 0 },
		{ "5", true, 5 },
		{ "5.0", true, 5 },
		{ "50e-1", true, 5 },
		{ "0.5e1", true, 5 },
		{ "5.00000000000000000000000000000000", true, 5 },
		{ "1e2", true, 100 },
		{ "1E+2", true, 100 },
		{ "100", true, 100 },
		{ "1001", true, 1001 },
		{ "-7", true, -7 },
		{ "0e99999999999999999999", true, 0 },
		{ "9223372036854775807", true, INT64_MAX },
		{ "9223372036854775808", false, 0 },
		{ "92233720368547758070e-1", true, INT64_MAX },
		{ "1.5", false, 0 },
		{ "15e-1", false, 0 },
		{ "1e300", false, 0 },
		{ "1e-300", false, 0 },
		{ "1e99999999999999999999", false, 0 },
		{ "99999999999999999999999", false, 0 },
	};
	int64_t got;

	(void)state;
	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		if (kv_value_integer(span_of(v[i].text), &got) != v[i].good)
			fail_msg("%s", v[i].text);
		if (v[i].good)
			assert_int_equal(got, v[i].value);
	}
}

static void
numbers_to_be_clamped(void **state)
{
	static const struct {
		const char *text;
		bool good;
		int64_t value;
	} v[] = {
		{ "7", true, 7 },
		{ "-7", true, -7 },
		{ "9223372036854775808", true, INT64_MAX },
		{ "-1e300", true, -INT64_MAX },
		{ "1e99999999999999999999", true, INT64_MAX },
		{ "1.5e30", true, INT64_MAX },
		{ "99999999999999999999.0", true, INT64_MAX },
		{ "99999999999999999999.5", false, 0 },
		{ "99999999999999999999.5e0", false, 0 },
		{ "99999999999999999999.5e+1", true, INT64_MAX },
		{ "1.5", false, 0 },
		{ "15e-1", false, 0 },
		{ "1e-300", false, 0 },
		{ "1e-99999999999999999999", false, 0 },
	};
	int64_t got;

	(void)state;
	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		if (kv_value_clamped(span_of(v[i].text), &got) != v[i].good)
			fail_msg("%s", v[i].text);
		if (v[i].good)
			assert_int_equal(got, v[i].value);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_those_of_compact_text),
		cmocka_unit_test(integers_in_any_spelling),
		cmocka_unit_test(numbers_to_be_clamped),
	};

	return cmocka_run_group_tests_name("kv_value", tests, NULL, NULL);
}
