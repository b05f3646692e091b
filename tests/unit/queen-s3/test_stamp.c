/* SPDX-License-Identifier: Apache-2.0 */
/* Times: parsing, boundaries on both sides of the epoch, parts of a key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "clk.h"
#include "stamp.h"

#define HOUR INT64_C(3600000000)
#define DAY (24 * HOUR)

static void
texts_round_trip_at_a_microsecond(void **state)
{
	static const char *const texts[] = { "2026-09-04T10:00:00.000001Z",
		"2024-02-29T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z",
		"1970-01-01T00:00:00.000000Z", "1900-02-28T00:00:00.000000Z",
		"2000-02-29T12:30:00.500000Z", "0000-01-01T00:00:00.000000Z",
		"9999-12-31T23:59:59.999999Z" };
	(void)state;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char iso[CLK_ISO_MAX];
		int64_t at;

		assert_true(stamp_parse(span_of(texts[i]), &at));
		assert_string_equal(clk_iso_us(at, iso), texts[i]);
	}
}

static void
short_fractions_scale(void **state)
{
	static const struct {
		const char *text;
		int64_t at_us;
	} cases[] = {
		{ "1970-01-01T00:00:01Z", 1000000 },
		{ "1970-01-01T00:00:01.5Z", 1500000 },
		{ "1970-01-01T00:00:01.05Z", 1050000 },
		{ "1970-01-01T00:00:01.000007Z", 1000007 },
		{ "1969-12-31T23:59:59.9Z", -100000 },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int64_t at;

		assert_true(stamp_parse(span_of(cases[i].text), &at));
		assert_int_equal(at, cases[i].at_us);
	}
}

static void
other_texts_are_refused(void **state)
{
	static const char *const texts[] = { "", "Z", "2026-09-04",
		"2026-09-04Z", "2026-09-04T10:00:00",
		"2026-09-04T10:00:00+00:00", "2026-09-04T10:00:00.5",
		"2026-09-04T10:00:00.Z", "2026-09-04T10:00:00.1234567Z",
		"2026-13-04T10:00:00Z", "2026-00-04T10:00:00Z",
		"2025-02-29T10:00:00Z", "2026-09-04T24:00:00Z",
		"2026-09-04T10:60:00Z", "2026-09-04T10:00:60Z",
		"2026-09-04t10:00:00Z", "2026-09-04 10:00:00Z",
		"2026-09-04T10:00:00z", "2026-09-04T10:00:00+Z",
		"2026-09-04T10:00:00.5+01Z", " 2026-09-04T10:00:00Z",
		"+026-09-04T10:00:00Z", "2026-09-04T10:00:00ZZ" };
	(void)state;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		int64_t at;

		if (stamp_parse(span_of(texts[i]), &at))
			fail_msg("%s was taken", texts[i]);
	}
}

static void
boundaries_are_multiples_from_the_epoch(void **state)
{
	static const struct {
		int64_t at, floor, next;
		enum s3_align align;
	} cases[] = {
		{ 0, 0, HOUR, S3_HOUR },
		{ 1, 0, HOUR, S3_HOUR },
		{ HOUR - 1, 0, HOUR, S3_HOUR },
		{ HOUR, HOUR, 2 * HOUR, S3_HOUR },
		{ -1, -HOUR, 0, S3_HOUR },
		{ -HOUR, -HOUR, 0, S3_HOUR },
		{ -HOUR - 1, -2 * HOUR, -HOUR, S3_HOUR },
		{ DAY - 1, 0, DAY, S3_DAY },
		{ DAY, DAY, 2 * DAY, S3_DAY },
		{ -1, -DAY, 0, S3_DAY },
		{ 42, 42, INT64_MAX, S3_UNALIGNED },
		{ INT64_MAX, INT64_MAX - INT64_MAX % HOUR, INT64_MAX, S3_HOUR },
		{ STAMP_NONE, STAMP_NONE, STAMP_NONE - STAMP_NONE % HOUR,
			S3_HOUR },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(stamp_floor(cases[i].at, cases[i].align),
			cases[i].floor);
		assert_int_equal(
			stamp_next(cases[i].at, cases[i].align), cases[i].next);
	}
}

static void
parts_are_of_utc(void **state)
{
	struct stamp_parts t;
	(void)state;

	stamp_split(INT64_C(1788516000000000), &t);
	assert_int_equal(t.year, 2026);
	assert_int_equal(t.month, 9);
	assert_int_equal(t.day, 4);
	assert_int_equal(t.hour, 10);
	stamp_split(-1, &t);
	assert_int_equal(t.year, 1969);
	assert_int_equal(t.day, 31);
	assert_int_equal(t.hour, 23);
	stamp_split(STAMP_NONE, &t);
	assert_int_equal(t.year, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_round_trip_at_a_microsecond),
		cmocka_unit_test(short_fractions_scale),
		cmocka_unit_test(other_texts_are_refused),
		cmocka_unit_test(boundaries_are_multiples_from_the_epoch),
		cmocka_unit_test(parts_are_of_utc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
