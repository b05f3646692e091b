/* SPDX-License-Identifier: Apache-2.0 */
#include "span.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void
eq_compares_bytes_not_pointers(void **state)
{
	(void)state;
	assert_true(span_is(span_make("abc", 2), "ab"));
	assert_false(span_is(span_make("abc", 2), "abc"));
	assert_true(span_eq((struct span)SPAN_ZERO, span_of(NULL)));
}

static void
i64_reads_the_whole_range_and_nothing_else(void **state)
{
	static const struct {
		const char *text;
		bool ok;
		int64_t v;
	} rows[] = {
		{ "0", true, 0 },
		{ "-0", true, 0 },
		{ "42", true, 42 },
		{ "007", true, 7 },
		{ "-1", true, -1 },
		{ "9223372036854775807", true, INT64_MAX },
		{ "-9223372036854775808", true, INT64_MIN },
		{ "9223372036854775808", false, 0 },
		{ "-9223372036854775809", false, 0 },
		{ "99999999999999999999999", false, 0 },
		{ "", false, 0 },
		{ "-", false, 0 },
		{ "+1", false, 0 },
		{ " 1", false, 0 },
		{ "1 ", false, 0 },
		{ "1.0", false, 0 },
		{ "0x1", false, 0 },
		{ "1e3", false, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int64_t v = 0;

		assert_int_equal(
			span_i64(span_of(rows[i].text), &v), rows[i].ok);
		if (rows[i].ok)
			assert_true(v == rows[i].v);
	}
}

static void
hash_sees_every_byte_and_the_length(void **state)
{
	char text[64];

	(void)state;
	memset(text, 'a', sizeof(text));
	for (size_t n = 0; n < sizeof(text); n++) {
		uint64_t h = span_hash(span_make(text, n), 7);

		assert_true(h == span_hash(span_make(text, n), 7));
		assert_true(h != span_hash(span_make(text, n + 1), 7));
		for (size_t i = 0; i < n; i++) {
			text[i] ^= 1;
			assert_true(h != span_hash(span_make(text, n), 7));
			text[i] ^= 1;
		}
	}
}

static void
hash_spreads_over_low_bits(void **state)
{
	unsigned buckets[256] = { 0 };
	char text[32];

	(void)state;
	for (int i = 0; i < 25600; i++) {
		int n = snprintf(text, sizeof(text), "customer-%d", i);

		buckets[span_hash(span_make(text, (size_t)n), 7) & 255]++;
	}
	for (int i = 0; i < 256; i++)
		assert_in_range(buckets[i], 50, 160);
}

static void
clip_cuts_between_characters(void **state)
{
	(void)state;
	assert_true(span_is(span_clip(span_of("abc"), 3), "abc"));
	assert_true(span_is(span_clip(span_of("abc"), 2), "ab"));
	assert_true(span_is(span_clip(span_of("a\xc3\xa9"), 2), "a"));
	assert_true(span_is(span_clip(span_of("\xc3\xa9"), 1), ""));
}

static void
trim_takes_white_space_from_both_ends(void **state)
{
	(void)state;
	assert_true(span_is(span_trim(span_of(" \t\r\n\v\fa b\n ")), "a b"));
	assert_true(span_is(span_trim(span_of("\x08"
					      "a\xa0")),
		"\x08"
		"a\xa0"));
	assert_true(span_is(span_trim(span_of(" \n")), ""));
	assert_true(span_is(span_trim((struct span)SPAN_ZERO), ""));
}

static void
hex_knows_both_cases_and_nothing_else(void **state)
{
	static const char digits[] = "0123456789abcdef";

	(void)state;
	for (int c = -128; c < 128; c++) {
		const char *at = c >= 'A' && c <= 'F' ? strchr(digits, c | 0x20)
				 : c                  ? strchr(digits, c)
						      : NULL;

		assert_int_equal(span_hex((char)c), at ? at - digits : -1);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clip_cuts_between_characters),
		cmocka_unit_test(trim_takes_white_space_from_both_ends),
		cmocka_unit_test(hex_knows_both_cases_and_nothing_else),
		cmocka_unit_test(eq_compares_bytes_not_pointers),
		cmocka_unit_test(i64_reads_the_whole_range_and_nothing_else),
		cmocka_unit_test(hash_sees_every_byte_and_the_length),
		cmocka_unit_test(hash_spreads_over_low_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
