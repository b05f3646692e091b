/* SPDX-License-Identifier: Apache-2.0 */
#include "err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void
set_fills_and_returns_minus_one(void **state)
{
	struct err e = { .errnum = 5, .sqlstate = "40001" };

	(void)state;
	assert_int_equal(err_set(&e, ERR_INPUT, "bad %s %d", "thing", 7), -1);
	assert_int_equal(e.kind, ERR_INPUT);
	assert_int_equal(e.errnum, 0);
	assert_string_equal(e.sqlstate, "");
	assert_string_equal(e.text, "bad thing 7");
}

static void
errno_is_kept_and_told(void **state)
{
	struct err e = ERR_ZERO;

	(void)state;
	errno = ENOENT;
	assert_int_equal(err_errno(&e, "open %s", "x"), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(e.kind, ERR_IO);
	assert_int_equal(e.errnum, ENOENT);
	assert_string_equal(e.text, "open x: No such file or directory");
}

static void
wrap_puts_context_in_front_and_keeps_codes(void **state)
{
	struct err e = ERR_ZERO;

	(void)state;
	err_set(&e, ERR_DB_RETRY, "deadlock");
	memcpy(e.sqlstate, "40P01", 6);
	assert_int_equal(err_wrap(&e, "push"), -1);
	assert_string_equal(e.text, "push: deadlock");
	assert_int_equal(e.kind, ERR_DB_RETRY);
	assert_string_equal(e.sqlstate, "40P01");
}

static void
a_long_text_is_cut_and_stays_one_line(void **state)
{
	struct err e = ERR_ZERO;
	char big[600];

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	big[3] = '\n';
	err_set(&e, ERR_INPUT, "%s", big);
	assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
	assert_int_equal(e.text[3], ' ');
	err_wrap(&e, "%s", big);
	assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
}

static void
sqlstates_map_to_decisions(void **state)
{
	static const struct {
		const char *code;
		enum err_kind kind;
	} rules[] = {
		{ NULL, ERR_DB_UNKNOWN },
		{ "", ERR_DB_UNKNOWN },
		{ "08006", ERR_DB_UNKNOWN },
		{ "08001", ERR_DB_RETRY },
		{ "40001", ERR_DB_RETRY },
		{ "40P01", ERR_DB_RETRY },
		{ "40003", ERR_DB_UNKNOWN },
		{ "53300", ERR_DB_RETRY },
		{ "55P03", ERR_DB_RETRY },
		{ "57014", ERR_DB_RETRY },
		{ "57P01", ERR_DB_UNKNOWN },
		{ "57P03", ERR_DB_RETRY },
		{ "22P02", ERR_DB_DATA },
		{ "23505", ERR_DB_DATA },
		{ "28P01", ERR_AUTH },
		{ "42501", ERR_AUTH },
		{ "42883", ERR_BUG },
		{ "3D000", ERR_CONFIG },
		{ "P0001", ERR_DB_DATA },
		{ "XX000", ERR_DB_RETRY },
		{ "ZZ999", ERR_DB_DATA },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		assert_int_equal(
			err_kind_of_sqlstate(rules[i].code), rules[i].kind);
}

static void
a_text_ends_with_a_whole_character(void **state)
{
	static const struct {
		const char *given, *kept;
	} v[] = {
		{ "a\xc3\xa9", "a\xc3\xa9" },
		{ "a\xc3", "a" },
		{ "\xe2\x82\xac", "\xe2\x82\xac" },
		{ "\xe2\x82", "" },
		{ "x\xf0\x9f\x98\x80", "x\xf0\x9f\x98\x80" },
		{ "x\xf0\x9f\x98", "x" },
		{ "x\xf0", "x" },
	};
	char wide[600] = "";
	struct err e = ERR_ZERO;

	(void)state;
	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		err_set(&e, ERR_INPUT, "%s", v[i].given);
		assert_string_equal(e.text, v[i].kept);
	}
	for (int i = 0; i < 299; i++)
		memcpy(wide + 2 * i, "\xc3\xa9", 2);
	err_set(&e, ERR_INPUT, "%s", wide);
	assert_int_equal(strlen(e.text), (sizeof(e.text) - 1) / 2 * 2);
	err_set(&e, ERR_INPUT, "-%s", wide);
	assert_int_equal(strlen(e.text), (sizeof(e.text) - 2) / 2 * 2 + 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(set_fills_and_returns_minus_one),
		cmocka_unit_test(errno_is_kept_and_told),
		cmocka_unit_test(wrap_puts_context_in_front_and_keeps_codes),
		cmocka_unit_test(a_long_text_is_cut_and_stays_one_line),
		cmocka_unit_test(a_text_ends_with_a_whole_character),
		cmocka_unit_test(sqlstates_map_to_decisions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
