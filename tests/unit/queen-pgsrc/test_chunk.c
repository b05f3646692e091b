/* SPDX-License-Identifier: Apache-2.0 */
/* SQL of a copy, byte by byte, and results as libpq gives them. */
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
#include "chunk.h"
#include "err.h"
#include "pipeline.h"
#include "start.h"
#include "types.h"

enum { INT4 = 23, TEXT = 25, MOOD = 70000 };

static const struct span key[] = { { "a", 1 }, { "B\"b", 3 } };
static struct span columns[] = { { "a", 1 }, { "v", 1 }, { "B\"b", 3 } };
static struct span key_types[] = { { "integer", 7 }, { "text", 4 } };
static const struct shape_table table = { .schema = { "s", 1 },
	.name = { "T", 1 },
	.label = { "s.T", 3 },
	.queue = { "q", 1 },
	.key = key,
	.key_n = 2 };
static const struct start_table about = { .columns = columns,
	.columns_n = 3,
	.key_types = key_types,
	.partitioned = true };

static struct buf sql;

static const char *
text(void)
{
	buf_putc(&sql, '\0');
	return sql.p;
}
static struct arena arena;
static struct types types;
static struct snapshot snap;
static struct shape *shape;
static uint32_t *oids;
static PGresult *made[8];
static int made_n;
static struct err e;

static int
setup(void **state)
{
	(void)state;
	types = (struct types)TYPES_ZERO;
	snapshot_init(&snap, 41);
	e = (struct err)ERR_ZERO;
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	snapshot_fini(&snap);
	shape_free(shape);
	shape = NULL;
	types_fini(&types);
	arena_fini(&arena);
	buf_fini(&sql);
	while (made_n > 0)
		PQclear(made[--made_n]);
	return 0;
}

/* Rows of a result: texts, NULL for SQL null. */
static PGresult *
result(int n, const char *const *names, const uint32_t *type_oids, int rows,
	const char *const *values)
{
	PGresAttDesc d[4] = { { .name = NULL } };
	PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	char name[64];

	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%s", names[i]);
		d[i].name = strdup(name);
		d[i].typid = type_oids[i];
	}
	assert_int_equal(PQsetResultAttrs(r, n, d), 1);
	for (int i = 0; i < n; i++)
		free(d[i].name);
	for (int i = 0; i < rows * n; i++) {
		const char *v = values[i];

		snprintf(name, sizeof(name), "%s", v ? v : "");
		assert_int_equal(PQsetvalue(r, i / n, i % n, v ? name : NULL,
					 v ? (int)strlen(v) : -1),
			1);
	}
	made[made_n++] = r;
	return r;
}

static const char *const names[] = { "a", "v", "B\"b" };

static void
describe(uint32_t v_type)
{
	const uint32_t t[] = { INT4, v_type, TEXT };
	uint32_t ask;

	assert_int_equal(chunk_shape(result(3, names, t, 0, NULL), &table,
				 &types, &shape, &oids, &arena, &ask, &e),
		SHAPE_OK);
}

static void
marks_and_what_flushes_them(void **state)
{
	(void)state;
	chunk_mark_sql(&sql, "7be01c4d", "lw:7", false, 150000);
	assert_string_equal(text(),
		"select pg_catalog.pg_logical_emit_message(false, "
		"'queen:7be01c4d', 'lw:7')");
	buf_reset(&sql);
	chunk_mark_sql(&sql, "7be01c4d", "hb", true, 170000);
	assert_string_equal(text(),
		"select pg_catalog.pg_logical_emit_message(false, "
		"'queen:7be01c4d', 'hb', true)");
	buf_reset(&sql);
	chunk_mark_sql(&sql, "7be01c4d", "hb", true, 169999);
	assert_string_equal(text(),
		"select pg_catalog.pg_logical_emit_message(false, "
		"'queen:7be01c4d', 'hb'); select "
		"pg_catalog.pg_logical_emit_message(true, 'queen', 'flush')");
}

static void
the_first_chunk_and_one_that_goes_on(void **state)
{
	struct pipeline_chunk c = { .table = &table, .limit_rows = 2000 };

	(void)state;
	chunk_read_sql(&sql, &table, &about, &c, "7be01c4d", 42, 180000);
	assert_string_equal(text(),
		"begin isolation level repeatable read read only; "
		"select pg_catalog.pg_current_snapshot(); "
		"select \"a\", \"v\", \"B\"\"b\" from \"s\".\"T\" "
		"order by \"a\", \"B\"\"b\" limit 2000; commit; "
		"select pg_catalog.pg_logical_emit_message(false, "
		"'queen:7be01c4d', 'hw:42', true)");
	buf_reset(&sql);
	c.has_after = true;
	c.after = SPAN_LIT("-7\0it's \\ x");
	c.limit_rows = 1;
	chunk_read_sql(&sql, &table, &about, &c, "7be01c4d", 43, 180000);
	assert_non_null(strstr(text(),
		"from \"s\".\"T\" where (\"a\", \"B\"\"b\") > "
		"('-7'::integer, E'it''s \\\\ x'::text) order by \"a\", "
		"\"B\"\"b\" limit 1; commit; "));
	/* an empty text is a key too */
	buf_reset(&sql);
	c.after = SPAN_LIT("1\0");
	chunk_read_sql(&sql, &table, &about, &c, "7be01c4d", 43, 180000);
	assert_non_null(strstr(text(), "> ('1'::integer, ''::text) order"));
}

static void
a_table_is_described_by_its_columns(void **state)
{
	const uint32_t t[] = { INT4, MOOD, TEXT };
	uint32_t ask = 0;

	(void)state;
	chunk_describe_sql(&sql, &table, &about);
	assert_string_equal(text(), "select \"a\", \"v\", \"B\"\"b\" from "
				    "\"s\".\"T\" limit 0");
	assert_int_equal(chunk_shape(result(3, names, t, 0, NULL), &table,
				 &types, &shape, &oids, &arena, &ask, &e),
		SHAPE_ASK);
	assert_int_equal(ask, MOOD);
	types_learn(&types, &(struct types_row){ .oid = MOOD, .typtype = 'e' });
	describe(MOOD);
	assert_int_equal(shape->key_n, 2);
	assert_int_equal(shape->key[0], 0);
	assert_int_equal(shape->key[1], 2);
	assert_int_equal(oids[1], MOOD);
}

static void
a_table_without_its_key_is_refused(void **state)
{
	const uint32_t t[] = { INT4, TEXT };
	uint32_t ask;

	(void)state;
	assert_int_equal(chunk_shape(result(2, names, t, 0, NULL), &table,
				 &types, &shape, &oids, &arena, &ask, &e),
		SHAPE_CHANGED);
	assert_non_null(strstr(e.text, "s.T has no key column B\"b"));
}

/* begin, snapshot, rows, commit, mark */
static int
install(const char *seen, uint32_t v_type, int rows, const char *const *values)
{
	const uint32_t t[] = { INT4, v_type, TEXT }, text[] = { TEXT };
	PGresult *res[5];

	res[0] = res[3] = result(0, NULL, NULL, 0, NULL);
	res[1] = res[4] = result(1, names, text, 1, &seen);
	res[2] = result(3, names, t, rows, values);
	return chunk_install(&snap, res, 5, oids, 7, &e);
}

static void
rows_are_installed_as_they_were_printed(void **state)
{
	static const char *const values[] = { "1", "x", "b", "2", NULL, "" };
	struct snapshot_item item;

	(void)state;
	describe(TEXT);
	snapshot_ask(&snap, 0, shape, 3);
	assert_int_equal(install("10:10:", TEXT, 2, values), 0);
	assert_int_equal(
		snapshot_high(&snap, snap.chunk->n), SNAPSHOT_COMPLETE);
	assert_true(snapshot_is_last(snap.chunk));
	assert_true(snap.chunk->read_at_us == 7);
	assert_true(snapshot_next(&snap, &item));
	assert_true(span_eq(item.key_code, SPAN_LIT("1\0b")));
	assert_true(span_is(item.row->d[1].text, "x"));
	assert_true(snapshot_next(&snap, &item));
	assert_true(span_eq(item.key_code, SPAN_LIT("2\0")));
	assert_int_equal(item.row->d[1].state, DATUM_NULL);
	assert_int_equal(item.row->d[2].state, DATUM_TEXT);
	assert_false(snapshot_next(&snap, &item));
}

static void
what_is_no_chunk_is_told_apart(void **state)
{
	static const char *const values[] = { "1", "2", "b" };

	(void)state;
	describe(TEXT);
	snapshot_ask(&snap, 0, shape, 3);
	assert_int_equal(chunk_install(&snap, made, 1, oids, 7, &e), -1);
	assert_int_equal(e.kind, ERR_IO);
	assert_int_equal(install("10:10:", INT4, 1, values), -1);
	assert_int_equal(e.kind, ERR_DB_DATA);
	assert_int_equal(install("soon", TEXT, 1, values), -1);
	assert_int_equal(e.kind, ERR_IO);
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(marks_and_what_flushes_them),
		T(the_first_chunk_and_one_that_goes_on),
		T(a_table_is_described_by_its_columns),
		T(a_table_without_its_key_is_refused),
		T(rows_are_installed_as_they_were_printed),
		T(what_is_no_chunk_is_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
