/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "arena.h"
#include "pgtext.h"

/* One row: a number, a word, null. */
static PGresult *
make(char *number, char *word)
{
	char name[] = "x";
	PGresAttDesc d[3] = { { .name = name }, { .name = name },
		{ .name = name } };
	PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);

	assert_int_equal(PQsetResultAttrs(r, 3, d), 1);
	assert_int_equal(PQsetvalue(r, 0, 0, number, (int)strlen(number)), 1);
	assert_int_equal(PQsetvalue(r, 0, 1, word, (int)strlen(word)), 1);
	assert_int_equal(PQsetvalue(r, 0, 2, NULL, -1), 1);
	return r;
}

static void
columns_are_read_as_what_they_are(void **state)
{
	char number[] = "-9223372036854775808", word[] = "t";
	PGresult *r = make(number, word);
	struct arena a = ARENA_ZERO;
	struct span copy = pgtext_dup(r, 0, 0, &a);

	(void)state;
	assert_true(pgtext_i64(r, 0, 0) == INT64_MIN);
	assert_int_equal(pgtext_i64(r, 0, 1), 0);
	assert_true(pgtext_bool(r, 0, 1));
	assert_false(pgtext_bool(r, 0, 0));
	assert_int_equal(pgtext_char(r, 0, 0), '-');
	assert_true(span_is(pgtext_get(r, 0, 1), "t"));
	PQclear(r);
	assert_true(span_is(copy, number));
	arena_fini(&a);
}

static void
what_is_not_there_is_empty(void **state)
{
	char number[] = "1", word[] = "";
	PGresult *r = make(number, word);
	const int at[][2] = { { 0, 1 }, { 0, 2 }, { 1, 0 }, { 0, 3 } };

	(void)state;
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		int row = at[i][0], col = at[i][1];

		assert_int_equal(pgtext_get(r, row, col).n, 0);
		assert_int_equal(pgtext_i64(r, row, col), 0);
		assert_false(pgtext_bool(r, row, col));
		assert_int_equal(pgtext_char(r, row, col), 0);
	}
	PQclear(r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(columns_are_read_as_what_they_are),
		cmocka_unit_test(what_is_not_there_is_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
