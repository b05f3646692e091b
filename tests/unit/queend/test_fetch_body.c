/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of fetch and partitions/changed, and cursors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "arena.h"
#include "buf.h"
#include "fetch_body.h"

static void
test_fetch_reads_all_fields(void **state)
{
	struct arena a = ARENA_ZERO;
	struct fetch_body b;
	struct err e = ERR_ZERO;

	(void)state;
	assert_int_equal(
		fetch_body_parse(
			SPAN_LIT(
				"{\"x\":[{}],\"maxWaitMs\":500,\"minBytes\":7,\"entries\":["
				"{\"queue\":\"orders\",\"partition\":\"c\",\"offset\":1400,"
				"\"maxBytes\":5},"
				"{\"offset\":0,\"partition\":7,\"queue\":\"q\\u00e9\","
				"\"maxBytes\":null},"
				"{\"queue\":\"q\",\"offset\":1,\"partition\":null,"
				"\"maxBytes\":99999999999}]}"),
			&a, &b, &e),
		0);
	assert_int_equal(b.n, 3);
	assert_int_equal(b.max_wait_ms, 500);
	assert_int_equal(b.min_bytes, 7);
	assert_true(span_is(b.entries[0].queue, "orders"));
	assert_true(span_is(b.entries[0].partition, "c"));
	assert_int_equal(b.entries[0].offset, 1400);
	assert_int_equal(b.entries[0].max_bytes, 5);
	assert_true(span_is(b.entries[1].queue, "q\xc3\xa9"));
	assert_true(span_is(b.entries[1].partition, "7"));
	assert_int_equal(b.entries[1].max_bytes, 1048576);
	assert_true(span_is(b.entries[2].partition, "Default"));
	assert_int_equal(b.entries[2].max_bytes, 8388608);
	arena_fini(&a);
}

static void
test_fetch_without_entries_is_empty(void **state)
{
	struct arena a = ARENA_ZERO;
	struct fetch_body b;
	struct err e = ERR_ZERO;

	(void)state;
	assert_int_equal(fetch_body_parse(SPAN_LIT("{}"), &a, &b, &e), 0);
	assert_int_equal(b.n, 0);
	assert_int_equal(b.min_bytes, 1);
	assert_int_equal(
		fetch_body_parse(SPAN_LIT("{\"entries\":null,\"maxWaitMs\":-4,"
					  "\"minBytes\":null}"),
			&a, &b, &e),
		0);
	assert_int_equal(b.n, 0);
	assert_int_equal(b.max_wait_ms, 0);
	assert_int_equal(
		fetch_body_parse(
			SPAN_LIT("{\"maxWaitMs\":31000,\"minBytes\":-1}"), &a,
			&b, &e),
		0);
	assert_int_equal(b.max_wait_ms, 30000);
	assert_int_equal(b.min_bytes, 0);
	arena_fini(&a);
}

static void
test_fetch_refusals_name_the_field(void **state)
{
	static const struct {
		const char *body, *text;
	} bad[] = {
		{ "{\"entries\":[{\"queue\":\"q\",\"offset\":-1}]}",
			"bad body: entries[0].offset is negative" },
		{ "{\"entries\":[{\"queue\":\"q\"}]}",
			"bad body: entries[0].offset is missing" },
		{ "{\"entries\":[{\"queue\":\"q\",\"offset\":null}]}",
			"bad body: entries[0].offset is missing" },
		{ "{\"entries\":[{\"offset\":1}]}",
			"bad body: entries[0].queue is missing" },
		{ "{\"entries\":[{\"queue\":\"\",\"offset\":1}]}",
			"bad body: entries[0]: queue is empty" },
		{ "{\"entries\":[{\"queue\":\"q\",\"offset\":1.5}]}",
			"bad body: entries[0].offset is not an integer" },
		{ "{\"entries\":[{\"queue\":\"q\",\"offset\":\"1\"}]}",
			"bad body: entries[0].offset is not an integer" },
		{ "{\"entries\":[{\"queue\":7,\"offset\":1}]}",
			"bad body: entries[0].queue is not a string" },
		{ "{\"entries\":[{\"queue\":\"q\",\"offset\":0},"
		  "{\"queue\":\"q\",\"offset\":0,\"partition\":[]}]}",
			"bad body: entries[1].partition is not a string" },
		{ "{\"entries\":[{\"queue\":\"q\",\"offset\":0,"
		  "\"partition\":1.5}]}",
			"bad body: entries[0].partition is not an integer" },
		{ "{\"minBytes\":\"x\"}",
			"bad body: minBytes is not an integer" },
	};
	struct arena a = ARENA_ZERO;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct fetch_body b;
		struct err e = ERR_ZERO;

		assert_int_equal(
			fetch_body_parse(span_of(bad[i].body), &a, &b, &e), -1);
		assert_string_equal(e.text, bad[i].text);
	}
	arena_fini(&a);
}

static void
test_bodies_that_are_not_json_are_refused(void **state)
{
	static const char *const bad[] = { "", "[]", "null", "{", "{}x",
		"{\"entries\":{}}", "{\"entries\":[1]}",
		"{\"entries\":[{\"queue\":\"q\",\"offset\":0}}",
		"{\"entries\":[{\"queue\":\"\xff\",\"offset\":0}]}" };
	struct arena a = ARENA_ZERO;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct fetch_body f;
		struct changed_body c;
		struct err e = ERR_ZERO;

		assert_int_equal(
			fetch_body_parse(span_of(bad[i]), &a, &f, &e), -1);
		assert_memory_equal(e.text, "bad body: ", 10);
		assert_int_equal(
			changed_body_parse(span_of(bad[i]), &a, &c, &e), -1);
		assert_memory_equal(e.text, "bad body: ", 10);
	}
	arena_fini(&a);
}

static int
count_entries(const char *entry, int n, bool fetch)
{
	struct arena a = ARENA_ZERO;
	struct buf b = BUF_ZERO;
	struct fetch_body f;
	struct changed_body c;
	struct err e = ERR_ZERO;

	buf_puts(&b, "{\"entries\":[");
	for (int i = 0; i < n; i++)
		buf_printf(&b, "%s%s", i ? "," : "", entry);
	buf_puts(&b, "]}");
	int rc = fetch ? fetch_body_parse(buf_span(&b), &a, &f, &e)
		       : changed_body_parse(buf_span(&b), &a, &c, &e);

	if (rc == 0)
		rc = (int)(fetch ? f.n : c.n);
	buf_fini(&b);
	arena_fini(&a);
	return rc;
}

static void
test_counts_of_entries_are_bounded(void **state)
{
	(void)state;
	assert_int_equal(
		count_entries("{\"queue\":\"q\",\"offset\":0}", 1024, true),
		1024);
	assert_int_equal(
		count_entries("{\"queue\":\"q\",\"offset\":0}", 1025, true),
		-1);
	assert_int_equal(count_entries("{\"queue\":\"q\"}", 64, false), 64);
	assert_int_equal(count_entries("{\"queue\":\"q\"}", 65, false), -1);
}

static void
test_changed_reads_all_fields(void **state)
{
	struct arena a = ARENA_ZERO;
	struct changed_body b;
	struct err e = ERR_ZERO;

	(void)state;
	assert_int_equal(
		changed_body_parse(
			SPAN_LIT(
				"{\"entries\":[{\"queue\":\"q\"},"
				"{\"queue\":\"q\",\"since\":\"2026-09-04T10:00:00Z\","
				"\"after\":\"t|1788515700123456|cust-0419\",\"limit\":5000},"
				"{\"queue\":\"q\",\"after\":\"\",\"limit\":-2,\"since\":null},"
				"{\"queue\":\"q\",\"after\":\"t|1|x\"}]}"),
			&a, &b, &e),
		0);
	assert_int_equal(b.n, 4);
	assert_false(b.entries[0].timed || b.entries[0].has_cursor);
	assert_int_equal(b.entries[0].limit, 1000);
	assert_true(b.entries[1].timed);
	assert_int_equal(b.entries[1].since_us, INT64_C(1788516000000000));
	assert_int_equal(b.entries[1].cursor_us, INT64_C(1788515700123456));
	assert_true(span_is(b.entries[1].cursor_name, "cust-0419"));
	assert_int_equal(b.entries[1].limit, 1000);
	assert_false(b.entries[2].has_cursor);
	assert_int_equal(b.entries[2].limit, 1);
	assert_true(b.entries[3].bad_cursor);
	assert_int_equal(
		changed_body_parse(
			SPAN_LIT(
				"{\"entries\":[{\"queue\":\"q\",\"since\":\"soon\"}]}"),
			&a, &b, &e),
		-1);
	assert_string_equal(
		e.text, "bad body: since is not a timestamp: \"soon\"");
	arena_fini(&a);
}

static void
test_cursors(void **state)
{
	static const struct {
		const char *text;
		bool timed, ok;
		int64_t at_us;
		const char *name;
	} rows[] = {
		{ "n|a", false, true, 0, "a" },
		{ "n|a|b", false, true, 0, "a|b" },
		{ "t|12|a", true, true, 12, "a" },
		{ "t|12|a|b|", true, true, 12, "a|b|" },
		{ "t|0|x", true, true, 0, "x" },
		{ "n|a", true, false, 0, "" },
		{ "t|12|a", false, false, 0, "" },
		{ "n|", false, false, 0, "" },
		{ "n", false, false, 0, "" },
		{ "", false, false, 0, "" },
		{ "x|a", false, false, 0, "" },
		{ "t|12", true, false, 0, "" },
		{ "t||a", true, false, 0, "" },
		{ "t|12|", true, false, 0, "" },
		{ "t|-1|a", true, false, 0, "" },
		{ "t|1.5|a", true, false, 0, "" },
		{ "t|99999999999999999999|a", true, false, 0, "" },
		{ "t|9223372036854775807|a", true, false, 0, "" },
		{ "n|a\x01", false, false, 0, "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int64_t at = 0;
		struct span name = SPAN_ZERO;
		bool ok = changed_cursor_parse(
			span_of(rows[i].text), rows[i].timed, &at, &name);

		assert_int_equal(ok, rows[i].ok);
		if (!ok)
			continue;
		assert_true(span_is(name, rows[i].name));
		if (rows[i].timed)
			assert_int_equal(at, rows[i].at_us);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fetch_reads_all_fields),
		cmocka_unit_test(test_fetch_without_entries_is_empty),
		cmocka_unit_test(test_fetch_refusals_name_the_field),
		cmocka_unit_test(test_bodies_that_are_not_json_are_refused),
		cmocka_unit_test(test_counts_of_entries_are_bounded),
		cmocka_unit_test(test_changed_reads_all_fields),
		cmocka_unit_test(test_cursors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
