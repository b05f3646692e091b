/* SPDX-License-Identifier: Apache-2.0 */
/* Cron expressions: what they select, and every way to get one wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cron.h"

#define BITS(from, to) (((UINT64_C(1) << ((to) - (from) + 1)) - 1) << (from))
#define BIT(n) (UINT64_C(1) << (n))

static const uint64_t ALL[5] = { BITS(0, 59), BITS(0, 23), BITS(1, 31),
	BITS(1, 12), BITS(0, 6) };

static void
parse(const char *text, struct cron_expr *e)
{
	const char *why = NULL;

	if (!cron_parse(span_of(text), e, &why))
		fail_msg("%s: %s", text, why);
}

static void
check(const char *text, const uint64_t want[5], bool any_day, bool any_weekday)
{
	struct cron_expr e;

	parse(text, &e);
	assert_int_equal(e.minutes, want[0]);
	assert_int_equal(e.hours, want[1]);
	assert_int_equal(e.days, want[2]);
	assert_int_equal(e.months, want[3]);
	assert_int_equal(e.weekdays, want[4]);
	assert_int_equal(e.any_day, any_day);
	assert_int_equal(e.any_weekday, any_weekday);
}

static void
fields_lists_ranges_and_steps(void **state)
{
	(void)state;
	check("* * * * *", ALL, true, true);
	check(" 0\t9 * * 1-5 ",
		(uint64_t[5]){ BIT(0), BIT(9), ALL[2], ALL[3], BITS(1, 5) },
		true, false);
	check("5,7,50-52 0-23/6 1,15,31 2-4,12 6",
		(uint64_t[5]){ BIT(5) | BIT(7) | BITS(50, 52),
			BIT(0) | BIT(6) | BIT(12) | BIT(18),
			BIT(1) | BIT(15) | BIT(31), BITS(2, 4) | BIT(12),
			BIT(6) },
		false, false);
	/* A value with a step runs to the end; equal ends are a range. */
	check("*/20 20/2 */15 7-7 */3",
		(uint64_t[5]){ BIT(0) | BIT(20) | BIT(40), BIT(20) | BIT(22),
			BIT(1) | BIT(16) | BIT(31), BIT(7),
			BIT(0) | BIT(3) | BIT(6) },
		true, true);
	check("00 07 01 01 *",
		(uint64_t[5]){ BIT(0), BIT(7), BIT(1), BIT(1), ALL[4] }, false,
		true);
}

static void
names_of_months_and_days(void **state)
{
	static const char *const months[] = { "JAN", "FEB", "MAR", "APR", "MAY",
		"JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC" };
	static const char *const days[] = { "SUN", "MON", "TUE", "WED", "THU",
		"FRI", "SAT" };
	struct cron_expr e;
	char text[64];

	(void)state;
	for (int i = 0; i < 12; i++) {
		snprintf(text, sizeof(text), "0 0 1 %s *", months[i]);
		parse(text, &e);
		assert_int_equal(e.months, BIT(i + 1));
	}
	for (int i = 0; i < 7; i++) {
		snprintf(text, sizeof(text), "0 0 * * %s", days[i]);
		parse(text, &e);
		assert_int_equal(e.weekdays, BIT(i));
	}
	check("0 0 * jan-Mar,DEC mon-FRI",
		(uint64_t[5]){ BIT(0), BIT(0), ALL[2], BITS(1, 3) | BIT(12),
			BITS(1, 5) },
		true, false);
	/* Sunday is 0 and 7, at either end of a week. */
	parse("0 0 * * 7", &e);
	assert_int_equal(e.weekdays, BIT(0));
	parse("0 0 * * 5-7", &e);
	assert_int_equal(e.weekdays, BIT(5) | BIT(6) | BIT(0));
	parse("0 0 * * FRI-SUN", &e);
	assert_int_equal(e.weekdays, BIT(5) | BIT(6) | BIT(0));
	parse("0 0 * * SUN-TUE", &e);
	assert_int_equal(e.weekdays, BITS(0, 2));
}

static void
macros(void **state)
{
	static const char *const same[][2] = {
		{ "@yearly", "0 0 1 1 *" },
		{ "@monthly", "0 0 1 * *" },
		{ "@weekly", "0 0 * * 0" },
		{ "@daily", "0 0 * * *" },
		{ "@midnight", "0 0 * * *" },
		{ "@hourly", "0 * * * *" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
		struct cron_expr e;

		parse(same[i][1], &e);
		check(same[i][0],
			(uint64_t[5]){ e.minutes, e.hours, e.days, e.months,
				e.weekdays },
			e.any_day, e.any_weekday);
	}
}

static void
what_is_wrong_is_said(void **state)
{
	static const struct {
		const char *text, *why;
	} all[] = {
		{ "", "five fields" },
		{ "   ", "five fields" },
		{ "* * * *", "five fields" },
		{ "0 * * * * *", "five fields" },
		{ "0 0 * * * * *", "five fields" },
		{ "*\n* * * * *", "minute" },
		{ "60 * * * *", "minute" },
		{ "-1 * * * *", "minute" },
		{ "+1 * * * *", "minute" },
		{ "1.5 * * * *", "minute" },
		{ "001 * * * *", "minute" },
		{ "0x1 * * * *", "minute" },
		{ "JAN * * * *", "minute" },
		{ "1, * * * *", "minute" },
		{ ",1 * * * *", "minute" },
		{ "1- * * * *", "minute" },
		{ "-5 * * * *", "minute" },
		{ "1--5 * * * *", "minute" },
		{ "1-5-9 * * * *", "minute" },
		{ "50-60 * * * *", "minute" },
		{ "*-5 * * * *", "minute" },
		{ "** * * * *", "minute" },
		{ "? * * * *", "minute" },
		{ "H * * * *", "minute" },
		{ "/5 * * * *", "minute" },
		{ "30-10 * * * *", "minutes runs backwards" },
		{ "*/0 * * * *", "step of the minutes" },
		{ "*/60 * * * *", "step of the minutes" },
		{ "*/ * * * *", "step of the minutes" },
		{ "*/5/2 * * * *", "step of the minutes" },
		{ "*/-1 * * * *", "step of the minutes" },
		{ "* 24 * * *", "hour" },
		{ "* 5-3 * * *", "hours runs backwards" },
		{ "* */24 * * *", "step of the hours" },
		{ "* * 0 * *", "day of the month" },
		{ "* * 32 * *", "day of the month" },
		{ "* * L * *", "day of the month" },
		{ "* * 15W * *", "day of the month" },
		{ "* * 9-8 * *", "days runs backwards" },
		{ "* * */32 * *", "step of the days" },
		{ "* * * 0 *", "month" },
		{ "* * * 13 *", "month" },
		{ "* * * JANUARY *", "month" },
		{ "* * * DEC-JAN *", "months runs backwards" },
		{ "* * * */13 *", "step of the months" },
		{ "* * * * 8", "weekday" },
		{ "* * * * MON#1", "weekday" },
		{ "* * * * 5L", "weekday" },
		{ "* * * * JAN", "weekday" },
		{ "* * * * SAT-FRI", "weekdays runs backwards" },
		{ "* * * * */8", "step of the weekdays" },
		{ "@", "@yearly" },
		{ "@reboot", "@yearly" },
		{ "@Daily", "@yearly" },
		{ "@daily *", "@yearly" },
		{ "@every 5m", "@yearly" },
		/* Days that never come. */
		{ "0 0 30 2 *", "no month" },
		{ "0 0 31 4,6,9,11 *", "no month" },
		{ "0 0 31 2 */2", "no month" },
	};
	struct cron_expr e;
	const char *why;

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		why = "";
		if (cron_parse(span_of(all[i].text), &e, &why))
			fail_msg("%s", all[i].text);
		if (!strstr(why, all[i].why))
			fail_msg("%s: %s", all[i].text, why);
	}
	/* Not these: the last day of a leap year's February, or a Monday. */
	parse("0 0 29 2 *", &e);
	parse("0 0 31 2 MON", &e);
	parse("0 0 30 */2 *", &e);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_lists_ranges_and_steps),
		cmocka_unit_test(names_of_months_and_days),
		cmocka_unit_test(macros),
		cmocka_unit_test(what_is_wrong_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
