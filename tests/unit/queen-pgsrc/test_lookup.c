/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of the source, and its answers into a held message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "lookup.h"
#include "pipeline.h"
#include "shape.h"
#include "start.h"
#include "types.h"

static struct buf sql;

static const char *
text(void)
{
	buf_putc(&sql, '\0');
	return sql.p;
}
static struct arena arena;
static PGresult *res;

static int
teardown(void **state)
{
	(void)state;
	buf_fini(&sql);
	arena_fini(&arena);
	PQclear(res);
	res = NULL;
	return 0;
}

/* One row of n columns; none when values is NULL. */
static PGresult *
answer(int n, const char *const *values)
{
	PGresAttDesc d[4] = { { .name = NULL } };
	char text[64], name[] = "x";

	PQclear(res);
	res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	for (int i = 0; i < n; i++)
		d[i].name = name;
	assert_int_equal(PQsetResultAttrs(res, n, d), 1);
	for (int i = 0; values && i < n; i++) {
		snprintf(text, sizeof(text), "%s", values[i] ? values[i] : "");
		assert_int_equal(PQsetvalue(res, 0, i, values[i] ? text : NULL,
					 values[i] ? (int)strlen(text) : -1),
			1);
	}
	return res;
}

static void
a_type(void **state)
{
	static const char *const array[] = { "b", ",", "0", "23" };
	struct types_row row;

	(void)state;
	lookup_type_sql(&sql, 4000000000u);
	assert_non_null(strstr(text(), "where oid = 4000000000"));
	lookup_type(answer(4, array), 7, &row);
	assert_true(row.oid == 7 && row.typtype == 'b' && row.delim == ',' &&
		    row.base_oid == 0 && row.elem_oid == 23);
	lookup_type(answer(4, NULL), 8, &row);
	assert_true(row.oid == 8 && row.typtype == 0 && row.elem_oid == 0);
}

static bool
looked_up(const char *seen, int n, const char *const *values, uint32_t xid,
	const struct pipeline_ask *ask)
{
	PGresult *both[2] = { PQcopyResult(
		answer(1, &seen), PG_COPYRES_ATTRS | PG_COPYRES_TUPLES) };
	bool is;

	both[1] = answer(n, values);
	is = lookup_row(both, 2, xid, ask);
	PQclear(both[0]);
	return is;
}

static size_t key_columns[] = { 0, 3 };
static struct shape_column shape_columns[] = { { .name = { "id", 2 } },
	{ .name = { "body", 4 } }, { .name = { "n", 1 } },
	{ .name = { "late", 4 } }, { .name = { "more", 4 } } };
static const struct span key[] = { { "id", 2 } };
static const struct shape_table table = {
	.schema = { "public", 6 }, .name = { "t", 1 }, .key = key, .key_n = 1
};
static const struct shape shape = { .table = &table,
	.columns = shape_columns,
	.n = 5,
	.key = key_columns,
	.key_n = 2 };
static struct span key_types[] = { { "bigint", 6 } };
static const struct start_table about = { .key_types = key_types };

static void
only_what_the_change_did_not_carry(void **state)
{
	static const char *const found[] = { "long", NULL };
	struct datum d[5] = { { DATUM_TEXT, { "7", 1 } },
		{ .state = DATUM_UNCHANGED }, { DATUM_TEXT, { "1", 1 } },
		{ DATUM_TEXT, { "a'b", 3 } }, { .state = DATUM_UNCHANGED } };
	struct tuple row = { d, 5 };
	struct pipeline_ask ask = {
		.shape = &shape, .row = &row, .arena = &arena
	};

	(void)state;
	/* a key column that came later has no type of the start */
	lookup_row_sql(&sql, &ask, &about);
	assert_string_equal(text(),
		"select pg_catalog.pg_current_snapshot(); "
		"select \"body\", \"more\" from only \"public\".\"t\" where "
		"\"id\" = '7'::bigint and \"late\" = 'a''b'");
	/* it is in the WAL, but not visible: what is there is another row */
	assert_false(looked_up("7:9:8", 2, found, 8, &ask));
	assert_false(looked_up("7:9:", 2, NULL, 9, &ask));
	assert_int_equal(d[1].state, DATUM_UNCHANGED);
	assert_true(looked_up("9:9:", 2, NULL, 8, &ask));
	assert_int_equal(d[1].state, DATUM_UNCHANGED);
	assert_true(looked_up("9:9:", 2, found, 8, &ask));
	assert_int_equal(d[1].state, DATUM_TEXT);
	assert_true(span_is(d[1].text, "long"));
	assert_true(span_is(d[2].text, "1"));
	assert_int_equal(d[4].state, DATUM_NULL);
}

static void
what_is_gone_is_asked_for_in_vain(void **state)
{
	(void)state;
	assert_true(lookup_is_in_vain("42703"));
	assert_true(lookup_is_in_vain("22P02"));
	assert_false(lookup_is_in_vain("57P01"));
	assert_false(lookup_is_in_vain(""));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_type, teardown),
		cmocka_unit_test_teardown(
			only_what_the_change_did_not_carry, teardown),
		cmocka_unit_test(what_is_gone_is_asked_for_in_vain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
