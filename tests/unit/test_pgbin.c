/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes on the wire, and reading them back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pgbin.h"

/* Parameter i of a, as a span. */
static struct span
param(const struct pgargs *a, int i)
{
	return span_make(a->data.p + a->at[i], a->len[i]);
}

static void
check_bytes(struct span got, const void *want, size_t n)
{
	assert_int_equal(got.n, n);
	assert_memory_equal(got.p, want, n);
}

#define CHECK(got, want) check_bytes((got), (want), sizeof(want) - 1)

/* A result of one row with one binary value per parameter. */
static PGresult *
result_of(struct pgargs *a)
{
	PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PGresAttDesc desc[PGARGS_MAX];
	static char name[] = "c";

	memset(desc, 0, sizeof desc);
	for (int i = 0; i < a->n; i++) {
		desc[i].name = name;
		desc[i].format = 1;
	}
	assert_int_equal(PQsetResultAttrs(r, a->n, desc), 1);
	for (int i = 0; i < a->n; i++)
		assert_int_equal(
			PQsetvalue(r, 0, i,
				a->null[i] ? NULL : a->data.p + a->at[i],
				a->null[i] ? -1 : (int)a->len[i]),
			1);
	return r;
}

static void
test_scalars_are_in_network_order(void **state)
{
	struct pgargs a;
	struct qid q = { .b = { 1, 2, 3 } };

	(void)state;
	pgargs_init(&a);
	pgargs_i16(&a, 0x0102);
	pgargs_i32(&a, -2);
	pgargs_i64(&a, 0x0102030405060708);
	pgargs_bool(&a, true);
	pgargs_bool(&a, false);
	pgargs_text(&a, SPAN_LIT("ab"));
	pgargs_bytea(&a, SPAN_LIT("\0\377"));
	pgargs_uuid(&a, &q);
	pgargs_null(&a);
	pgargs_text(&a, (struct span)SPAN_ZERO);
	assert_int_equal(a.n, 10);
	CHECK(param(&a, 0), "\1\2");
	CHECK(param(&a, 1), "\377\377\377\376");
	CHECK(param(&a, 2), "\1\2\3\4\5\6\7\10");
	CHECK(param(&a, 3), "\1");
	CHECK(param(&a, 4), "\0");
	CHECK(param(&a, 5), "ab");
	CHECK(param(&a, 6), "\0\377");
	check_bytes(param(&a, 7), q.b, 16);
	assert_true(a.null[8]);
	assert_false(a.null[9]);
	assert_int_equal(a.len[9], 0);
	pgargs_fini(&a);
	assert_int_equal(a.n, 0);
	assert_int_equal(a.open, -1);
}

static void
test_times_count_from_2000_and_infinities_stay(void **state)
{
	static const struct {
		int64_t us;
		const char *wire;
	} v[] = {
		{ INT64_C(946684800000000), "\0\0\0\0\0\0\0\0" },
		{ INT64_C(946684800000001), "\0\0\0\0\0\0\0\1" },
		{ INT64_C(946684799999999),
			"\377\377\377\377\377\377\377\377" },
		{ INT64_MAX, "\177\377\377\377\377\377\377\377" },
		{ INT64_MIN, "\200\0\0\0\0\0\0\0" },
	};
	struct pgargs a;
	PGresult *r;

	(void)state;
	pgargs_init(&a);
	for (int i = 0; i < 5; i++) {
		pgargs_time(&a, v[i].us);
		check_bytes(param(&a, i), v[i].wire, 8);
	}
	/* outside of the server's range: finite and as far as it goes */
	pgargs_time(&a, INT64_MIN + 5);
	CHECK(param(&a, 5), "\200\0\0\0\0\0\0\1");
	r = result_of(&a);
	for (int i = 0; i < 5; i++)
		assert_true(pgbin_time(r, 0, i) == v[i].us);
	PQclear(r);
	pgargs_fini(&a);
	pgargs_init(&a);
	pgargs_i64(&a, INT64_MAX - 1);
	r = result_of(&a);
	assert_true(pgbin_time(r, 0, 0) == INT64_MAX - 1);
	PQclear(r);
	pgargs_fini(&a);
}

static void
test_array_has_head_items_and_null_mark(void **state)
{
	struct pgargs a;

	(void)state;
	pgargs_init(&a);
	pgargs_i16(&a, 0); /* so that the array does not start at 0 */
	pgargs_array(&a, PGARGS_I32);
	pgargs_item_i32(&a, 5);
	pgargs_item_i32(&a, 6);
	pgargs_close(&a);
	CHECK(param(&a, 1), "\0\0\0\1\0\0\0\0\0\0\0\27\0\0\0\2\0\0\0\1"
			    "\0\0\0\4\0\0\0\5\0\0\0\4\0\0\0\6");
	pgargs_array(&a, PGARGS_TEXT);
	pgargs_item_null(&a);
	pgargs_item_text(&a, SPAN_LIT("x"));
	pgargs_close(&a);
	CHECK(param(&a, 2), "\0\0\0\1\0\0\0\1\0\0\0\31\0\0\0\2\0\0\0\1"
			    "\377\377\377\377\0\0\0\1x");
	pgargs_fini(&a);
}

static void
test_array_without_items_has_no_dimension(void **state)
{
	struct pgargs a;

	(void)state;
	pgargs_init(&a);
	pgargs_array(&a, PGARGS_UUID);
	pgargs_close(&a);
	pgargs_i16(&a, 1);
	CHECK(param(&a, 0), "\0\0\0\0\0\0\0\0\0\0\13\206");
	CHECK(param(&a, 1), "\0\1");
	pgargs_fini(&a);
}

static void
test_array_walk_returns_what_was_put(void **state)
{
	struct pgargs a;
	struct pgbin_array w;
	struct span s;
	struct qid q = { .b = { 9 } };
	PGresult *r;
	bool null;

	(void)state;
	pgargs_init(&a);
	pgargs_array(&a, PGARGS_I64);
	for (int i = 0; i < 1000; i++)
		if (i % 10 == 3)
			pgargs_item_null(&a);
		else
			pgargs_item_i64(&a, i - 500);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_UUID);
	pgargs_item_uuid(&a, &q);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_BYTEA);
	pgargs_close(&a);
	pgargs_null(&a);
	r = result_of(&a);
	w = pgbin_array(r, 0, 0);
	for (int i = 0; i < 1000; i++) {
		assert_true(pgbin_array_next(&w, &s, &null));
		assert_int_equal(null, i % 10 == 3);
		if (!null)
			assert_int_equal(pgbin_span_i64(s), i - 500);
	}
	assert_false(pgbin_array_next(&w, &s, &null));
	w = pgbin_array(r, 0, 1);
	assert_true(pgbin_array_next(&w, &s, NULL));
	check_bytes(s, q.b, 16);
	for (int col = 2; col < 4; col++) {
		w = pgbin_array(r, 0, col);
		assert_false(pgbin_array_next(&w, &s, &null));
	}
	assert_true(pgbin_null(r, 0, 3));
	assert_false(pgbin_null(r, 0, 2));
	PQclear(r);
	pgargs_fini(&a);
}

static void
test_doubles_are_read(void **state)
{
	struct pgargs a;
	PGresult *r;

	(void)state;
	pgargs_init(&a);
	pgargs_i64(&a, INT64_C(0x3ff8000000000000));
	r = result_of(&a);
	assert_true(pgbin_f64(r, 0, 0) > 1.49 && pgbin_f64(r, 0, 0) < 1.51);
	PQclear(r);
	pgargs_fini(&a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scalars_are_in_network_order),
		cmocka_unit_test(
			test_times_count_from_2000_and_infinities_stay),
		cmocka_unit_test(test_array_has_head_items_and_null_mark),
		cmocka_unit_test(test_array_without_items_has_no_dimension),
		cmocka_unit_test(test_array_walk_returns_what_was_put),
		cmocka_unit_test(test_doubles_are_read),
	};

	return cmocka_run_group_tests_name("pgbin", tests, NULL, NULL);
}
