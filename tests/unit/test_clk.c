/* SPDX-License-Identifier: Apache-2.0 */
#include "clk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void
check_us(const char *text, int64_t expected)
{
	int64_t v = -1;

	assert_true(clk_parse_iso(span_of(text), &v));
	assert_true(v == expected);
}

static void
iso_text_of_known_instants(void **state)
{
	char out[CLK_ISO_MAX];

	(void)state;
	assert_string_equal(clk_iso_us(0, out), "1970-01-01T00:00:00.000000Z");
	assert_string_equal(clk_iso_us(1788433364512873, out),
		"2026-09-03T11:02:44.512873Z");
	assert_string_equal(
		clk_iso_ms(1788433364512873, out), "2026-09-03T11:02:44.512Z");
	assert_string_equal(clk_iso_us(-1, out), "1969-12-31T23:59:59.999999Z");
	assert_string_equal(clk_iso_us(951782400000000, out),
		"2000-02-29T00:00:00.000000Z");
	assert_string_equal(clk_iso_us(INT64_MAX, out), "9999-12-31T23:59:59Z");
	assert_string_equal(clk_iso_us(INT64_MIN, out), "0000-01-01T00:00:00Z");
}

static void
parse_accepts_rfc3339_and_its_cousins(void **state)
{
	(void)state;
	check_us("1970-01-01T00:00:00Z", 0);
	check_us("2026-09-03T11:02:44.512873Z", 1788433364512873);
	check_us("2026-09-03t11:02:44.512873z", 1788433364512873);
	check_us("2026-09-03 11:02:44.512873", 1788433364512873);
	check_us("2026-09-03T13:02:44.512873+02:00", 1788433364512873);
	check_us("2026-09-03T13:02:44.512873+0200", 1788433364512873);
	check_us("2026-09-03 13:02:44.512873+02", 1788433364512873);
	check_us("2026-09-03T05:32:44.512873-05:30", 1788433364512873);
	check_us("2026-09-03T11:02:44.5128739999Z", 1788433364512873);
	check_us("2026-09-03T11:02:44.5Z", 1788433364500000);
	check_us("2026-09-03", 1788393600000000);
	check_us("2016-12-31T23:59:60Z", 1483228800000000);
	check_us("0000-01-01T00:00:00Z", -62167219200000000);
}

static void
parse_refuses_what_is_no_time(void **state)
{
	static const char *const rows[] = { "", "2026", "2026-9-3",
		"2026-13-01", "2026-00-01", "2026-02-30", "2025-02-29",
		"1900-02-29", "2026-01-32", "2026-01-00", "2026-01-01T",
		"2026-01-01T00:00", "2026-01-01T24:00:00Z",
		"2026-01-01T00:60:00Z", "2026-01-01T00:00:61Z",
		"2026-01-01T00:00:00.Z", "2026-01-01T00:00:00ZZ",
		"2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+01:60",
		"2026-01-01T00:00:00+1",
		"2026-01-01T00:00:00+01:", "2026-01-01x00:00:00Z",
		" 2026-01-01", "2026-01-01 ", "yesterday", "-026-01-01",
		"1788433364" };
	int64_t v;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_false(clk_parse_iso(span_of(rows[i]), &v));
	assert_false(clk_parse_iso(span_make("2026-01-01\0", 11), &v));
}

static void
text_and_parse_agree_over_four_centuries(void **state)
{
	char out[CLK_ISO_MAX];

	(void)state;
	for (int64_t t = -11644473600000000; t < 13569465600000000;
		t += 7776543210987)
		check_us(clk_iso_us(t, out), t);
}

static void
clocks_run_forward_and_agree(void **state)
{
	int64_t a = clk_mono_us(), b = clk_mono_us();

	(void)state;
	assert_true(b >= a);
	assert_true(clk_mono_ms() >= b / 1000);
	assert_true(clk_wall_us() > 1700000000000000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(iso_text_of_known_instants),
		cmocka_unit_test(parse_accepts_rfc3339_and_its_cousins),
		cmocka_unit_test(parse_refuses_what_is_no_time),
		cmocka_unit_test(text_and_parse_agree_over_four_centuries),
		cmocka_unit_test(clocks_run_forward_and_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
