/* SPDX-License-Identifier: Apache-2.0 */
/* Faults: classes by SQLSTATE, texts that are one line of UTF-8. */
#include "connfault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "err.h"
#include "jspan.h"

static void
test_classes(void **state)
{
	static const char *const pass[] = { "", "08000", "08006", "08P01",
		"53100", "53300", "57P01", "57P02", "57P03", "40001", "40P01",
		"55006" };
	static const char *const stay[] = { "57014", "57P04", "57P05", "40002",
		"40003", "55000", "55P03", "23505", "22P05", "28P01", "3D000",
		"42P01", "0A000", "25006", "XX000", "P0001", "44000", "54000",
		"80000" };

	(void)state;
	for (size_t i = 0; i < sizeof(pass) / sizeof(pass[0]); i++)
		assert_true(connfault_is_transient(pass[i]));
	for (size_t i = 0; i < sizeof(stay) / sizeof(stay[0]); i++)
		assert_false(connfault_is_transient(stay[i]));
}

static void
says(const char *in, const char *out)
{
	struct connfault f;

	assert_int_equal(connfault_set(&f, "io", true, "%s", in), -1);
	assert_string_equal(f.text, out);
}

static void
test_texts_are_one_line_of_utf8(void **state)
{
	(void)state;
	says("plain", "plain");
	says("  a\r\n b\x7f  c \n", "a b c");
	/* libpq's hints and hosts, a line each */
	says("host a: refused\n\tIs it up?\nconnection to server b: refused"
	     "\n\tIs it up?\n",
		"host a: refused. Is it up? connection to server b: refused. "
		"Is it up?");
	says("refused\nconnection to server b: refused\n\t\n",
		"refused. connection to server b: refused.");
	says("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x90\x9d",
		"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x90\x9d");
	/* another encoding, a stray byte, one cut off, a surrogate, too long */
	says("fehlgeschlagen f\xfcr", "fehlgeschlagen f?r");
	says("a\x80"
	     "b",
		"a?b");
	says("a\xe2\x82", "a??");
	says("\xed\xa0\x80", "???");
	says("\xc0\xaf\xf8", "???");
	says("", "");
}

static void
test_long_texts_are_cut_between_characters(void **state)
{
	char in[3 * CONNFAULT_TEXT_MAX + 8];
	struct connfault f;
	size_t n;

	(void)state;
	in[0] = 'x';
	for (n = 1; n + 3 < sizeof(in); n += 3)
		memcpy(in + n, "\xe2\x82\xac", 3);
	in[n] = '\0';
	connfault_set(&f, "postgres", false, "%s", in);
	/* 1 + 3 * 341 = 1024 */
	assert_int_equal(strlen(f.text), 1024);
	connfault_set(&f, "postgres", false, "y%s", in);
	assert_int_equal(strlen(f.text), 1022);
	assert_true(jspan_utf8(span_of(f.text)));
	/* a text of its own goes into itself */
	connfault_set(&f, "postgres", false, "%.2s!", f.text);
	assert_string_equal(f.text, "yx!");
}

static void
test_answers_of_the_cell(void **state)
{
	static const enum err_kind pass[] = { ERR_LIMIT, ERR_DB_RETRY,
		ERR_DB_UNKNOWN, ERR_IO };
	static const enum err_kind stay[] = { ERR_INPUT, ERR_CONFIG, ERR_AUTH,
		ERR_DB_DATA, ERR_BUG };
	struct connfault f = { .code = NULL };
	struct err e = ERR_ZERO;

	(void)state;
	for (size_t i = 0; i < sizeof(pass) / sizeof(pass[0]); i++) {
		err_set(&e, pass[i], "no");
		connfault_cell(&f, &e);
		assert_true(f.retryable);
	}
	for (size_t i = 0; i < sizeof(stay) / sizeof(stay[0]); i++) {
		err_set(&e, stay[i], "no");
		connfault_cell(&f, &e);
		assert_false(f.retryable);
	}
	assert_false(connfault_is(&f, "QN001"));
	memcpy(e.sqlstate, "QN001", 6);
	assert_int_equal(connfault_cell(&f, &e), -1);
	assert_true(connfault_is(&f, "QN001"));
	assert_false(connfault_is(NULL, "QN001"));
	assert_string_equal(f.code, "queen");
	assert_string_equal(f.sqlstate, "QN001");
	assert_string_equal(f.text, "no");
}

static void
test_a_result_without_sqlstate_is_io(void **state)
{
	PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_FATAL_ERROR);
	struct connfault f;

	(void)state;
	assert_int_equal(connfault_result(&f, r, NULL), -1);
	assert_string_equal(f.code, "io");
	assert_true(f.retryable);
	assert_string_equal(f.text, "the connection was lost");
	assert_string_equal(f.sqlstate, "");
	PQclear(r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_classes),
		cmocka_unit_test(test_texts_are_one_line_of_utf8),
		cmocka_unit_test(test_long_texts_are_cut_between_characters),
		cmocka_unit_test(test_answers_of_the_cell),
		cmocka_unit_test(test_a_result_without_sqlstate_is_io),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
