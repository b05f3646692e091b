/* SPDX-License-Identifier: Apache-2.0 */
/* Times and durations as typed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "err.h"
#include "timearg.h"

/* 2026-09-03T11:02:44Z */
#define NOW INT64_C(1788433364000000)

static void
is(const char *text, enum timearg_kind kind, const char *want)
{
	struct err e = ERR_ZERO;
	char iso[TIMEARG_TEXT];
	struct timearg t;

	if (timearg_parse(text, NOW, &t, &e) != 0)
		fail_msg("%s: %s", text, e.text);
	assert_int_equal(t.kind, kind);
	assert_string_equal(timearg_text(t.at_us, iso), want);
}

static void
words_are_ends_of_the_log(void **state)
{
	(void)state;
	is("now", TIMEARG_END, "2026-09-03T11:02:44Z");
	is("end", TIMEARG_END, "2026-09-03T11:02:44Z");
	is("latest", TIMEARG_END, "2026-09-03T11:02:44Z");
	is("beginning", TIMEARG_START, "1970-01-01T00:00:00Z");
	is("earliest", TIMEARG_START, "1970-01-01T00:00:00Z");
	is("start", TIMEARG_START, "1970-01-01T00:00:00Z");
}

static void
durations_count_back_from_now(void **state)
{
	(void)state;
	is("5m ago", TIMEARG_AT, "2026-09-03T10:57:44Z");
	is("2h ago", TIMEARG_AT, "2026-09-03T09:02:44Z");
	is("1d ago", TIMEARG_AT, "2026-09-02T11:02:44Z");
	is("1w ago", TIMEARG_AT, "2026-08-27T11:02:44Z");
	is("30s", TIMEARG_AT, "2026-09-03T11:02:14Z");
	is("1h30m", TIMEARG_AT, "2026-09-03T09:32:44Z");
}

static void
absolute_times_are_utc(void **state)
{
	(void)state;
	is("2026-09-03", TIMEARG_AT, "2026-09-03T00:00:00Z");
	is("2026-09-03 10:20:30", TIMEARG_AT, "2026-09-03T10:20:30Z");
	is("2026-09-03T10:20:30", TIMEARG_AT, "2026-09-03T10:20:30Z");
	is("2026-09-03T10:20:30.9Z", TIMEARG_AT, "2026-09-03T10:20:30Z");
	is("2026-09-03T10:20:30+02:00", TIMEARG_AT, "2026-09-03T08:20:30Z");
	is("1788433364", TIMEARG_AT, "2026-09-03T11:02:44Z");
}

static void
offsets_are_told_apart(void **state)
{
	struct err e = ERR_ZERO;
	struct timearg t;

	(void)state;
	assert_int_equal(timearg_parse("offset:17", NOW, &t, &e), 0);
	assert_int_equal(t.kind, TIMEARG_OFFSET);
	assert_int_equal(t.offset, 17);
}

static void
anything_else_is_refused(void **state)
{
	static const char *const list[] = { "", "yesterday", "5", "5x", "m5",
		"1000000000", "-5m", "5m from now", "2026-13-01",
		"offset:", "offset:-1", "offset:x", "99999999999999999999",
		"9999999999w", "ago" };

	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		struct err e = ERR_ZERO;
		struct timearg t;

		if (timearg_parse(list[i], NOW, &t, &e) == 0)
			fail_msg("\"%s\" is taken", list[i]);
		assert_int_equal(e.kind, ERR_INPUT);
	}
}

static void
duration_needs_units(void **state)
{
	struct err e = ERR_ZERO;
	int64_t ms;

	(void)state;
	assert_int_equal(timearg_duration("10s", &ms, &e), 0);
	assert_int_equal(ms, 10000);
	assert_int_equal(timearg_duration("1m30s", &ms, &e), 0);
	assert_int_equal(ms, 90000);
	assert_int_equal(timearg_duration("250ms", &ms, &e), 0);
	assert_int_equal(ms, 250);
	assert_int_equal(timearg_duration("0", &ms, &e), 0);
	assert_int_equal(ms, 0);
	assert_int_equal(timearg_duration("10", &ms, &e), -1);
	assert_string_equal(e.text, "\"10\" is not a duration (as 500ms, 10s, "
				    "1m30s)");
}

static void
age_is(int64_t ago_s, const char *want)
{
	char out[64];

	timearg_age(NOW - ago_s * 1000000, NOW, out, sizeof(out));
	assert_string_equal(out, want);
}

static void
ages_read_like_speech(void **state)
{
	(void)state;
	age_is(0, "now");
	age_is(1, "1 second ago");
	age_is(180, "3 minutes ago");
	age_is(3600, "1 hour ago");
	age_is(86400 * 3, "3 days ago");
	age_is(86400 * 800, "2 years ago");
	age_is(-7200, "in 2 hours");
}

static void
span_is_text(double s, const char *want)
{
	char out[64];

	timearg_span(s, out, sizeof(out));
	assert_string_equal(out, want);
}

static void
durations_round_as_columns_need(void **state)
{
	(void)state;
	span_is_text(0, "0s");
	span_is_text(0.25, "250ms");
	span_is_text(42, "42s");
	span_is_text(725, "12m5s");
	span_is_text(3599, "59m59s");
	span_is_text(3840, "1h4m0s");
	span_is_text(3600 + 59 * 60 + 31, "2h0m0s");
	span_is_text(-1, "-");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_ends_of_the_log),
		cmocka_unit_test(durations_count_back_from_now),
		cmocka_unit_test(absolute_times_are_utc),
		cmocka_unit_test(offsets_are_told_apart),
		cmocka_unit_test(anything_else_is_refused),
		cmocka_unit_test(duration_needs_units),
		cmocka_unit_test(ages_read_like_speech),
		cmocka_unit_test(durations_round_as_columns_need),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
