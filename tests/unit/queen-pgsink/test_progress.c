/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "buf.h"
#include "conndoc.h"
#include "connfault.h"

static const struct conndoc_name table = {
	.text = { "q.p'rog", 7 }, .schema = { "q", 1 }, .name = { "p'rog", 5 }
};
static const struct span cell = { "00000000000a", 12 };

static struct progress_row
row(int64_t offset, int64_t us, int64_t group)
{
	return (struct progress_row){ .partition_id = 7,
		.offset = offset,
		.created_at_us = us,
		.group_id = group,
		.cell = cell };
}

/* ---- what a row says of a message ---- */

static void
applied_is_what_is_at_or_below_in_both(void **state)
{
	static const struct {
		int64_t offset, us;
		bool replay;
	} t[] = { { 10, 100, true }, { 9, 90, true }, { 10, 101, false },
		{ 11, 100, false }, { 11, 101, false }, { 3, 101, false },
		{ 11, 90, false } };
	struct progress_row r = row(10, 100, 5);
	struct progress_at at;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_int_equal(
			progress_begin(&r, 5, cell, &at), PROGRESS_OURS);
		assert_int_equal(progress_replay(&at, t[i].offset, t[i].us),
			t[i].replay);
		assert_int_equal(at.moved, !t[i].replay);
		assert_int_equal(at.offset, t[i].replay ? 10 : t[i].offset);
		assert_int_equal(at.created_at_us, t[i].replay ? 100 : t[i].us);
	}
}

/* The cell went back to offset 4 and used 5 to 7 again, later. */
static void
offsets_used_again_are_applied_once(void **state)
{
	struct progress_row r = row(10, 100, 5);
	struct progress_at at;

	(void)state;
	assert_int_equal(progress_begin(&r, 5, cell, &at), PROGRESS_OURS);
	assert_true(progress_replay(&at, 3, 30));
	assert_true(progress_replay(&at, 4, 40));
	assert_false(progress_replay(&at, 5, 200));
	assert_false(progress_replay(&at, 6, 200));
	assert_true(progress_replay(&at, 6, 200));
	assert_false(progress_replay(&at, 7, 201));
	assert_int_equal(at.offset, 7);
	/* and after a redelivery */
	r = row(at.offset, at.created_at_us, 5);
	progress_begin(&r, 5, cell, &at);
	for (int64_t i = 5; i <= 7; i++)
		assert_true(progress_replay(&at, i, i < 7 ? 200 : 201));
	assert_false(at.moved);
}

static void
rows_belong_to_a_life_of_the_group_and_to_a_cell(void **state)
{
	struct progress_row r = row(10, 100, 5);
	struct progress_at at;

	(void)state;
	assert_int_equal(progress_begin(&r, 6, cell, &at), PROGRESS_OURS);
	assert_false(progress_replay(&at, 0, 1));
	assert_true(at.moved);
	assert_int_equal(progress_begin(&r, 4, cell, &at), PROGRESS_NEWER);
	assert_int_equal(progress_begin(&r, 5, SPAN_LIT("00000000000b"), &at),
		PROGRESS_FOREIGN);
	/* a newer life of the group in another cell says nothing here */
	assert_int_equal(progress_begin(&r, 4, SPAN_LIT("00000000000b"), &at),
		PROGRESS_FOREIGN);
	/* rows of a table that was altered know less */
	r.cell.n = 0;
	r.group_id = -1;
	r.created_at_us = INT64_MAX;
	assert_int_equal(progress_begin(&r, 4, SPAN_LIT("00000000000b"), &at),
		PROGRESS_OURS);
	assert_true(progress_replay(&at, 10, 500));
	assert_false(progress_replay(&at, 11, 500));
}

/* ---- the table ---- */

static const struct progress_column good[] = {
	{ { "partition_id", 12 }, { "bigint", 6 } },
	{ { "sink", 4 }, { "character varying", 17 } },
	{ { "partition", 9 }, { "text", 4 } },
	{ { "last_offset", 11 }, { "bigint", 6 } },
	{ { "updated_at", 10 }, { "timestamp without time zone", 27 } },
	{ { "more", 4 }, { "text", 4 } },
	{ { "last_created_at", 15 }, { "timestamp with time zone", 24 } },
	{ { "group_id", 8 }, { "bigint", 6 } },
	{ { "cell", 4 }, { "text", 4 } },
};
enum { GOOD = sizeof(good) / sizeof(good[0]) };

static void
a_table_is_verified(void **state)
{
	struct progress_column c[GOOD];
	struct connfault f = { .code = NULL };

	(void)state;
	assert_int_equal(progress_verify(&table, good, GOOD, true, &f), 0);
	assert_null(f.code);
	assert_int_equal(progress_verify(&table, good, GOOD, false, &f), -1);
	assert_string_equal(f.code, "progress_table");
	assert_false(f.retryable);
	assert_non_null(strstr(f.text, "primary key (sink, partition_id)"));

	memcpy(c, good, sizeof(c));
	c[3].type = SPAN_LIT("integer");
	assert_int_equal(progress_verify(&table, c, GOOD, true, &f), -1);
	assert_non_null(strstr(f.text, "column last_offset"));
	memcpy(c, good, sizeof(c));
	c[2].name = SPAN_LIT("Partition");
	assert_int_equal(progress_verify(&table, c, GOOD, true, &f), -1);
	assert_non_null(strstr(f.text, "column partition "));
}

static void
a_table_of_before_is_told_what_to_add(void **state)
{
	struct connfault f;

	(void)state;
	assert_int_equal(progress_verify(&table, good, 6, true, &f), -1);
	assert_string_equal(f.text,
		"the progress table is of an earlier version; run: ALTER TABLE "
		"\"q\".\"p'rog\" ADD COLUMN last_created_at "
		"pg_catalog.timestamptz, ADD COLUMN group_id bigint, ADD "
		"COLUMN cell pg_catalog.text");
	assert_int_equal(progress_verify(&table, good, 8, true, &f), -1);
	assert_non_null(
		strstr(f.text, "\"p'rog\" ADD COLUMN cell pg_catalog.text"));
	assert_int_equal(progress_verify(&table, good, 0, false, &f), -1);
	assert_string_equal(f.text,
		"the progress table does not exist; run: CREATE SCHEMA IF NOT "
		"EXISTS \"q\"; CREATE TABLE IF NOT EXISTS \"q\".\"p'rog\" (sink "
		"pg_catalog.text NOT NULL, partition_id bigint NOT NULL, "
		"partition pg_catalog.text NOT NULL, last_offset bigint NOT "
		"NULL, last_created_at pg_catalog.timestamptz, group_id "
		"bigint, cell pg_catalog.text, updated_at "
		"pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.now(), "
		"PRIMARY KEY (sink, partition_id))");
}

static void
arrays_are_what_the_server_reads(void **state)
{
	struct buf b = BUF_ZERO;

	(void)state;
	progress_array_open(&b);
	progress_array_close(&b);
	progress_array_open(&b);
	progress_array_i64(&b, INT64_MIN);
	progress_array_i64(&b, 2);
	progress_array_close(&b);
	progress_array_open(&b);
	progress_array_text(&b, SPAN_LIT("{"));
	progress_array_text(&b, SPAN_LIT("a\\b\"c"));
	progress_array_text(&b, SPAN_LIT(""));
	progress_array_close(&b);
	buf_putc(&b, '\0');
	assert_string_equal(
		b.p, "{}{-9223372036854775808,2}{\"{\",\"a\\\\b\\\"c\",\"\"}");
	buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(applied_is_what_is_at_or_below_in_both),
		cmocka_unit_test(offsets_used_again_are_applied_once),
		cmocka_unit_test(
			rows_belong_to_a_life_of_the_group_and_to_a_cell),
		cmocka_unit_test(a_table_is_verified),
		cmocka_unit_test(a_table_of_before_is_told_what_to_add),
		cmocka_unit_test(arrays_are_what_the_server_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
