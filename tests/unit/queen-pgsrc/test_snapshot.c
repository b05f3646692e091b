/* SPDX-License-Identifier: Apache-2.0 */
/* Visibility, windows, remembered transactions and the fold of fills. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "err.h"
#include "shape.h"
#include "snapshot.h"

static struct snapshot s;
static struct arena arena;
static struct buf out;
static size_t key[] = { 0 };
static struct shape_column columns[] = { { .name = { "id", 2 } },
	{ .name = { "a", 1 } }, { .name = { "b", 1 } } };
static const struct shape shape = {
	.columns = columns, .n = 3, .key = key, .key_n = 1
};

static int
setup(void **state)
{
	(void)state;
	snapshot_init(&s, 41);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	snapshot_fini(&s);
	arena_fini(&arena);
	buf_fini(&out);
	return 0;
}

static void
touch(enum snapshot_effect kind, const char *k, const char *unchanged)
{
	struct span names[2];
	size_t n = 0;

	/* one letter a name */
	for (; *unchanged; unchanged++)
		names[n++] = span_make(unchanged, 1);
	snapshot_touch(&s, 0, kind, span_of(k), names, n);
}

/* A transaction of one update, carrying all. */
static void
txn(uint32_t xid, const char *k)
{
	snapshot_begin(&s);
	touch(SNAPSHOT_UPDATE, k, "");
	snapshot_commit(&s, xid);
}

/* Rows 1, 2 and 3 of table 0, read with this snapshot. */
static void
chunk(const char *seen)
{
	struct datum d[3] = { { .state = DATUM_TEXT }, { .state = DATUM_NULL },
		{ .state = DATUM_NULL } };
	const struct tuple row = { d, 3 };
	static const char *const ids[] = { "1", "2", "3" };
	struct err e = ERR_ZERO;

	snapshot_ask(&s, 0, &shape, 4);
	for (int i = 0; i < 3; i++) {
		d[0].text = span_of(ids[i]);
		snapshot_row(&s, &row);
	}
	if (snapshot_install(&s, span_of(seen), 0, &e) != 0)
		fail_msg("%s", e.text);
}

/* What is left: `1 2 3:ab`, the columns of fills behind a colon. */
static const char *
left(void)
{
	struct snapshot_item item;
	uint64_t seq = 0;

	assert_int_equal(snapshot_high(&s, s.chunk->n), SNAPSHOT_COMPLETE);
	buf_reset(&out);
	while (snapshot_next(&s, &item)) {
		assert_true(item.seq == seq++);
		if (out.len)
			buf_putc(&out, ' ');
		buf_put_span(&out, item.key_code);
		if (!item.fill)
			continue;
		buf_putc(&out, ':');
		for (size_t i = 0; i < shape.n; i++) {
			if (item.fill[0] >> i & 1)
				buf_put_span(&out, columns[i].name);
		}
	}
	snapshot_forget(&s);
	buf_putc(&out, '\0');
	return out.p;
}

static void
xids_widen_to_the_nearest(void **state)
{
	const uint64_t e = UINT64_C(1) << 32;

	(void)state;
	assert_true(snapshot_widen(5, 3) == 5);
	assert_true(snapshot_widen(3, 5) == 3);
	assert_true(snapshot_widen(5, e - 1) == e + 5);
	assert_true(snapshot_widen(0xfffffff0u, e + 5) == 0xfffffff0u);
	assert_true(
		snapshot_widen(0xfffffff0u, 3 * e + 5) == 2 * e + 0xfffffff0u);
	assert_true(snapshot_widen(5, 3 * e - 1) == 3 * e + 5);
	/* the first epoch has none before it */
	assert_true(snapshot_widen(0xfffffff0u, 5) == 0xfffffff0u);
}

static void
visibility_across_the_wraparound(void **state)
{
	struct snapshot_seen v;
	struct err e = ERR_ZERO;

	(void)state;
	/* xmin 2^32 - 3, xmax 2^32 + 2, running 2^32 - 3 and 2^32 + 1 */
	assert_int_equal(snapshot_seen_parse(SPAN_LIT("4294967293:4294967298:"
						      "4294967293,4294967297"),
				 &arena, &v, &e),
		0);
	assert_true(v.xmin == 4294967293u);
	assert_int_equal(v.n, 2);
	assert_true(snapshot_sees(&v, 4294967292u));
	assert_false(snapshot_sees(&v, 4294967293u));
	assert_true(snapshot_sees(&v, 4294967294u));
	assert_true(snapshot_sees(&v, 0));
	assert_false(snapshot_sees(&v, 1));
	assert_false(snapshot_sees(&v, 2));
	assert_false(snapshot_sees(&v, 3));
}

static void
what_is_no_snapshot_is_refused(void **state)
{
	static const char *const bad[] = { "", ":", "::", "1", "1:2", "1:2:x",
		"1:2:3,", "1:2:,3", "2:1:", "0:0:", "-1:2:", "1:2:4,3",
		"1:2:3,3", "1:2: 3", "1:99999999999999999999:" };
	struct snapshot_seen v;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct err e = ERR_ZERO;

		if (snapshot_seen_parse(span_of(bad[i]), &arena, &v, &e) != -1)
			fail_msg("'%s' parses", bad[i]);
	}
}

static void
nothing_touched_is_copied_whole(void **state)
{
	(void)state;
	chunk("10:10:");
	assert_string_equal(left(), "1 2 3");
}

static void
a_window_drops_what_changed_in_it(void **state)
{
	(void)state;
	chunk("10:10:");
	/* before the window, and seen: the row is newer */
	txn(5, "1");
	snapshot_low(&s, 7);
	txn(5, "1");
	snapshot_low(&s, s.chunk->n);
	txn(5, "2");
	txn(5, "9");
	assert_string_equal(left(), "1 3");
}

static void
a_transaction_not_seen_drops_without_a_window(void **state)
{
	(void)state;
	chunk("10:20:12");
	txn(11, "1");
	txn(12, "2");
	txn(20, "3");
	assert_string_equal(left(), "1");
}

/* Pitfall 24.19: in the WAL, and not yet visible to a later snapshot. */
static void
an_invisible_transaction_before_the_chunk_is_remembered(void **state)
{
	(void)state;
	chunk("10:10:");
	assert_string_equal(left(), "1 2 3");
	txn(11, "1");
	txn(9, "3");
	txn(12, "2");
	chunk("11:13:11");
	/* 12 is seen and forgotten, 11 stays for the next one */
	assert_string_equal(left(), "2 3");
	chunk("11:13:11");
	assert_string_equal(left(), "2 3");
	chunk("13:13:");
	assert_string_equal(left(), "1 2 3");
	chunk("11:13:11");
	assert_string_equal(left(), "1 2 3");
}

static void
before_the_first_snapshot_all_is_remembered(void **state)
{
	(void)state;
	txn(9, "1");
	txn(12, "2");
	chunk("10:12:");
	assert_string_equal(left(), "1 3");
}

/* An xmax alone would pass over 12, which is in the WAL and not visible. */
static void
a_copy_begins_when_all_that_ran_has_ended(void **state)
{
	struct err e = ERR_ZERO;

	(void)state;
	assert_true(snapshot_must_wait(&s));
	assert_int_equal(snapshot_look(&s, SPAN_LIT("12:12:"), &e), 0);
	assert_true(snapshot_must_wait(&s));
	snapshot_wait(&s, 14);
	assert_int_equal(snapshot_look(&s, SPAN_LIT("12:15:12"), &e), 0);
	assert_true(snapshot_must_wait(&s));
	txn(12, "1");
	txn(13, "3");
	assert_true(s.remembered_bytes > 0);
	assert_int_equal(snapshot_look(&s, SPAN_LIT("15:15:"), &e), 0);
	assert_false(snapshot_must_wait(&s));
	assert_true(s.remembered_bytes == 0);
	assert_int_equal(snapshot_look(&s, SPAN_LIT("15"), &e), -1);
}

static void
past_its_memory_it_forgets_and_waits(void **state)
{
	struct err e = ERR_ZERO;
	char k[40];

	(void)state;
	s.memory_bytes = 100000;
	snapshot_wait(&s, 9);
	assert_int_equal(snapshot_look(&s, SPAN_LIT("9:10:9"), &e), 0);
	chunk("10:10:");
	txn(11, "1");
	snapshot_begin(&s);
	for (int i = 0; i < 5000; i++) {
		snprintf(k, sizeof(k), "a rather long key %d", i);
		touch(SNAPSHOT_DELETE, k, "ab");
	}
	assert_null(s.chunk);
	assert_null(s.first);
	assert_null(s.open);
	assert_true(s.open_arena.total_bytes < s.memory_bytes);
	assert_true(s.remembered_bytes == 0);
	assert_true(s.waits == 1);
	assert_true(snapshot_must_wait(&s));
	snapshot_commit(&s, 12);
	assert_null(s.first);
	/* the next one is remembered again */
	txn(13, "2");
	assert_int_equal(snapshot_look(&s, SPAN_LIT("13:13:"), &e), 0);
	assert_true(snapshot_must_wait(&s));
	snapshot_wait(&s, 13);
	assert_int_equal(snapshot_look(&s, SPAN_LIT("13:14:13"), &e), 0);
	assert_false(snapshot_must_wait(&s));
	chunk("13:14:13");
	assert_string_equal(left(), "1 3");
}

static void
while_the_chunk_is_read_the_last_snapshot_judges(void **state)
{
	struct err e = ERR_ZERO;
	struct datum d[3] = { { .state = DATUM_TEXT, .text = { "1", 1 } },
		{ .state = DATUM_NULL }, { .state = DATUM_NULL } };

	(void)state;
	chunk("10:10:");
	left();
	snapshot_ask(&s, 0, &shape, 4);
	txn(10, "1");
	/* both marks may come before the rows do */
	snapshot_low(&s, s.chunk->n);
	assert_int_equal(snapshot_high(&s, s.chunk->n), SNAPSHOT_EARLY);
	assert_int_equal(snapshot_high(&s, s.chunk->n + 1), SNAPSHOT_NOT_OURS);
	snapshot_row(&s, &(struct tuple){ d, 3 });
	assert_int_equal(snapshot_install(&s, SPAN_LIT("10:11:10"), 0, &e), 0);
	assert_string_equal(left(), "");
	assert_int_equal(snapshot_high(&s, 42), SNAPSHOT_NOT_OURS);
}

static const struct {
	const char *name;
	/* op and unchanged columns, one transaction each */
	const char *steps[5];
	const char *left;
} folds[] = {
	{ "update that carried all", { "u" }, "" },
	{ "update", { "uab" }, "1:ab" },
	{ "second update narrows", { "uab", "ub" }, "1:b" },
	{ "second update carries the rest", { "ua", "ub" }, "" },
	{ "never widens", { "ua", "uab" }, "1:a" },
	{ "empty stays empty", { "u", "ua" }, "" },
	{ "put", { "p" }, "" },
	{ "put then update", { "p", "uab" }, "" },
	{ "delete", { "d" }, "" },
	{ "update then delete", { "uab", "d" }, "" },
	{ "delete then put", { "d", "p" }, "" },
	{ "delete, put, update", { "d", "p", "uab" }, "" },
	{ "put, delete, update", { "p", "d", "ua" }, "1:a" },
	{ "truncate", { "t" }, "" },
	{ "truncate then put", { "uab", "t", "p" }, "" },
	{ "a column the chunk has not", { "uz" }, "" },
};

static void
the_fold_of_fills(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(folds) / sizeof(*folds); i++) {
		const char *got;

		chunk("10:10:");
		for (size_t k = 0; k < 5 && folds[i].steps[k]; k++) {
			const char *step = folds[i].steps[k];
			const char *at = strchr("pudt", step[0]);

			snapshot_begin(&s);
			touch((enum snapshot_effect)(at - "pudt"), "1",
				step + 1);
			snapshot_commit(&s, 11);
		}
		got = left();
		/* a truncate takes the others too */
		if (strchr(folds[i].name, 't') == folds[i].name &&
			strncmp(folds[i].name, "truncate", 8) == 0) {
			assert_string_equal(got, folds[i].left);
		} else {
			char want[16];

			snprintf(want, sizeof(want), "%s%s2 3", folds[i].left,
				*folds[i].left ? " " : "");
			if (strcmp(got, want) != 0)
				fail_msg("%s: '%s'", folds[i].name, got);
		}
		/* the next round begins without a memory */
		snapshot_fini(&s);
	}
}

static void
other_tables_and_unfinished_transactions_do_not_count(void **state)
{
	(void)state;
	chunk("10:10:");
	snapshot_begin(&s);
	snapshot_touch(&s, 1, SNAPSHOT_DELETE, SPAN_LIT("1"), NULL, 0);
	snapshot_commit(&s, 11);
	snapshot_begin(&s);
	touch(SNAPSHOT_DELETE, "2", "");
	snapshot_begin(&s);
	snapshot_commit(&s, 12);
	assert_string_equal(left(), "1 2 3");
}

static void
the_last_chunk_is_shorter_than_its_limit(void **state)
{
	struct snapshot_chunk c = { .rows_n = 3, .limit_rows = 4 };

	(void)state;
	assert_true(snapshot_is_last(&c));
	c.rows_n = 4;
	assert_false(snapshot_is_last(&c));
}

static void
the_limit_halves_and_comes_back(void **state)
{
	struct snapshot_chunk c = { .rows_n = 2000, .limit_rows = 2000 };

	(void)state;
	/* nobody knows how large the first rows are */
	assert_true(snapshot_first_limit(2000) == 16);
	assert_true(snapshot_first_limit(4) == 4);
	assert_true(snapshot_limit(&c, 2000) == 2000);
	c.bytes = (64 << 20) + 1;
	assert_true(snapshot_limit(&c, 2000) == 1000);
	c.limit_rows = c.rows_n = 1;
	assert_true(snapshot_limit(&c, 2000) == 1);
	c.bytes = 20 << 20;
	assert_true(snapshot_limit(&c, 2000) == 1);
	c.bytes = 5 << 20;
	assert_true(snapshot_limit(&c, 2000) == 2);
	c.bytes = 1 << 20;
	assert_true(snapshot_limit(&c, 2000) == 4);
	c.limit_rows = c.rows_n = 1500;
	assert_true(snapshot_limit(&c, 2000) == 2000);
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(xids_widen_to_the_nearest),
		T(visibility_across_the_wraparound),
		T(what_is_no_snapshot_is_refused),
		T(nothing_touched_is_copied_whole),
		T(a_window_drops_what_changed_in_it),
		T(a_transaction_not_seen_drops_without_a_window),
		T(an_invisible_transaction_before_the_chunk_is_remembered),
		T(before_the_first_snapshot_all_is_remembered),
		T(a_copy_begins_when_all_that_ran_has_ended),
		T(past_its_memory_it_forgets_and_waits),
		T(while_the_chunk_is_read_the_last_snapshot_judges),
		T(the_fold_of_fills),
		T(other_tables_and_unfinished_transactions_do_not_count),
		T(the_last_chunk_is_shorter_than_its_limit),
		T(the_limit_halves_and_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
