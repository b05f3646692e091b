/* SPDX-License-Identifier: Apache-2.0 */
/* Events: exact bytes by operation and replica identity; names and ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "err.h"
#include "event.h"
#include "pgoutput.h"
#include "pgwire.h"
#include "shape.h"
#include "types.h"

enum { OID = 16400, N = 5 };

static struct arena arena;
static struct buf wire, out;
static struct types types;
static struct pgoutput m;
static struct shape *shape;
static struct event ev[2];

static const struct span key_id[] = { { "id", 2 } };
static struct shape_table table = { .schema = { "public", 6 },
	.name = { "orders", 6 },
	.label = { "public.orders", 13 },
	.queue = { "orders", 6 },
	.key = key_id,
	.key_n = 1 };

static const char *const columns[] = { "*id", "total", "tags", "body", "r\"n" };
static const uint32_t oids[] = { 20, 1700, 1009, 25, 16 };
static const struct event_at at = {
	.lsn = 0x1a2b3c8, .at_us = 1790935200000001, .seq = 3, .xid = 912
};

static void
parse(void)
{
	struct err e = ERR_ZERO;

	if (pgoutput_parse(buf_span(&wire), &arena, &m, &e) != 0)
		fail_msg("%s", e.text);
}

static enum shape_result
describe_as(char identity, const char *const *names, size_t n, struct err *e)
{
	uint32_t ask;

	shape_free(shape);
	shape = NULL;
	wire_relation(&wire, OID, "public", "orders", identity, names, oids, n);
	parse();
	return shape_new(&table, &m.relation, &types, &shape, &ask, e);
}

static void
describe(char identity)
{
	static const char *const all[] = { "*id", "*total", "*tags", "*body",
		"*r\"n" };
	struct err e = ERR_ZERO;

	if (describe_as(identity, identity == 'f' ? all : columns, N, &e) !=
		SHAPE_OK)
		fail_msg("%s", e.text);
}

static int
setup(void **state)
{
	(void)state;
	table.by = SHAPE_BY_KEY;
	table.by_columns = NULL;
	table.by_n = 0;
	table.key = key_id;
	table.key_n = 1;
	describe('d');
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	shape_free(shape);
	shape = NULL;
	types_fini(&types);
	arena_fini(&arena);
	buf_fini(&wire);
	buf_fini(&out);
	return 0;
}

static size_t
plan(void)
{
	struct err e = ERR_ZERO;
	size_t n;

	parse();
	n = event_plan(shape, &m, ev, &e);
	if (n == 0)
		fail_msg("%s", e.text);
	return n;
}

static const char *
text(void)
{
	buf_putc(&out, '\0');
	return out.p;
}

static const char *
event(size_t i)
{
	buf_reset(&out);
	event_write(&out, shape, &ev[i], &at);
	return text();
}

static const char *
partition(size_t i)
{
	buf_reset(&out);
	shape_partition(shape, ev[i].key, &out);
	return text();
}

#define TAIL                                                                   \
	",\"lsn\":\"0/1A2B3C8\",\"xid\":912,"                                  \
	"\"ts\":\"2026-10-02T10:00:00.000001Z\",\"seq\":3}"

static void
an_insert_is_c(void **state)
{
	(void)state;
	wire_insert(&wire, OID, "7", "12.50", "{a,NULL}", "x", NULL, WIRE_END);
	assert_int_equal(plan(), 1);
	assert_string_equal(event(0),
		"{\"op\":\"c\",\"table\":\"public.orders\",\"key\":{\"id\":7},"
		"\"after\":{\"id\":7,\"total\":12.50,\"tags\":[\"a\",null],"
		"\"body\":\"x\",\"r\\\"n\":null},\"before\":null" TAIL);
	assert_string_equal(partition(0), "7");
}

static void
an_update_names_what_is_unchanged(void **state)
{
	(void)state;
	wire_change(&wire, 'U', OID);
	wire_row(&wire, 'N', "7", "1", NULL, WIRE_UNCHANGED, WIRE_UNCHANGED,
		WIRE_END);
	assert_int_equal(plan(), 1);
	assert_string_equal(event(0),
		"{\"op\":\"u\",\"table\":\"public.orders\",\"key\":{\"id\":7},"
		"\"after\":{\"id\":7,\"total\":1,\"tags\":null},"
		"\"before\":null,\"unchanged\":[\"body\",\"r\\\"n\"]" TAIL);
	assert_false(event_moves_key(shape, &m));
}

static void
a_delete_has_its_key_twice(void **state)
{
	(void)state;
	wire_change(&wire, 'D', OID);
	wire_row(&wire, 'K', "7", NULL, NULL, NULL, NULL, WIRE_END);
	assert_int_equal(plan(), 1);
	assert_string_equal(event(0),
		"{\"op\":\"d\",\"table\":\"public.orders\",\"key\":{\"id\":7},"
		"\"after\":null,\"before\":{\"id\":7}" TAIL);
}

static void
full_brings_the_old_row_and_no_unchanged(void **state)
{
	(void)state;
	describe('f');
	wire_change(&wire, 'U', OID);
	wire_row(&wire, 'O', "7", "1", NULL, "long", "t", WIRE_END);
	wire_row(&wire, 'N', "7", "2", NULL, WIRE_UNCHANGED, "f", WIRE_END);
	assert_int_equal(plan(), 1);
	assert_string_equal(event(0),
		"{\"op\":\"u\",\"table\":\"public.orders\",\"key\":{\"id\":7},"
		"\"after\":{\"id\":7,\"total\":2,\"tags\":null,"
		"\"body\":\"long\",\"r\\\"n\":false},"
		"\"before\":{\"id\":7,\"total\":1,\"tags\":null,"
		"\"body\":\"long\",\"r\\\"n\":true}" TAIL);
	wire_change(&wire, 'D', OID);
	wire_row(&wire, 'O', "7", "2", NULL, "long", NULL, WIRE_END);
	assert_int_equal(plan(), 1);
	assert_string_equal(event(0),
		"{\"op\":\"d\",\"table\":\"public.orders\",\"key\":{\"id\":7},"
		"\"after\":null,\"before\":{\"id\":7,\"total\":2,\"tags\":null,"
		"\"body\":\"long\",\"r\\\"n\":null}" TAIL);
}

static void
a_key_move_is_d_then_c(void **state)
{
	(void)state;
	wire_change(&wire, 'U', OID);
	wire_row(&wire, 'K', "7", NULL, NULL, NULL, NULL, WIRE_END);
	wire_row(&wire, 'N', "8", "1", NULL, WIRE_UNCHANGED, NULL, WIRE_END);
	parse();
	assert_true(event_wants_row(shape, &m));
	assert_int_equal(plan(), 2);
	assert_true(event_moves_key(shape, &m));
	assert_string_equal(event(0),
		"{\"op\":\"d\",\"table\":\"public.orders\",\"key\":{\"id\":7},"
		"\"after\":null,\"before\":{\"id\":7}" TAIL);
	assert_string_equal(partition(0), "7");
	assert_string_equal(event(1),
		"{\"op\":\"c\",\"table\":\"public.orders\",\"key\":{\"id\":8},"
		"\"after\":{\"id\":8,\"total\":1,\"tags\":null,"
		"\"r\\\"n\":null},\"before\":null,"
		"\"unchanged\":[\"body\"]" TAIL);
	assert_string_equal(partition(1), "8");
}

static void
a_key_change_in_one_partition_is_u(void **state)
{
	(void)state;
	table.by = SHAPE_BY_NOTHING;
	describe('d');
	wire_change(&wire, 'U', OID);
	wire_row(&wire, 'K', "7", NULL, NULL, NULL, NULL, WIRE_END);
	wire_row(&wire, 'N', "8", NULL, NULL, NULL, NULL, WIRE_END);
	assert_int_equal(plan(), 1);
	assert_string_equal(event(0),
		"{\"op\":\"u\",\"table\":\"public.orders\",\"key\":{\"id\":8},"
		"\"after\":{\"id\":8,\"total\":null,\"tags\":null,"
		"\"body\":null,\"r\\\"n\":null},\"before\":{\"id\":7}" TAIL);
	assert_string_equal(partition(0), "all");
	assert_true(event_moves_key(shape, &m));
}

/* Pitfall 24.22: an old key comes along though the key stayed. */
static void
an_out_of_line_key_is_no_move(void **state)
{
	(void)state;
	wire_change(&wire, 'U', OID);
	wire_row(&wire, 'K', "7", NULL, NULL, NULL, NULL, WIRE_END);
	wire_row(&wire, 'N', WIRE_UNCHANGED, "2", NULL, NULL, NULL, WIRE_END);
	parse();
	assert_false(event_wants_row(shape, &m));
	assert_int_equal(plan(), 1);
	assert_false(event_moves_key(shape, &m));
	assert_string_equal(event(0),
		"{\"op\":\"u\",\"table\":\"public.orders\",\"key\":{\"id\":7},"
		"\"after\":{\"id\":7,\"total\":2,\"tags\":null,\"body\":null,"
		"\"r\\\"n\":null},\"before\":{\"id\":7}" TAIL);
}

static void
a_move_by_other_columns_needs_full(void **state)
{
	static const struct span by[] = { { "total", 5 }, { "body", 4 } };
	struct err e = ERR_ZERO;

	(void)state;
	table.by = SHAPE_BY_COLUMNS;
	table.by_columns = by;
	table.by_n = 2;
	assert_int_equal(describe_as('d', columns, N, &e), SHAPE_CHANGED);
	assert_string_equal(e.text, "public.orders has no partition column "
				    "total in its key any more");
	describe('f');
	wire_change(&wire, 'U', OID);
	wire_row(&wire, 'O', "7", "1", NULL, "a|b", NULL, WIRE_END);
	wire_row(&wire, 'N', "7", "2", NULL, WIRE_UNCHANGED, NULL, WIRE_END);
	assert_int_equal(plan(), 2);
	assert_string_equal(partition(0), "1|a\\|b");
	assert_string_equal(partition(1), "2|a\\|b");
	assert_string_equal(event(0),
		"{\"op\":\"d\",\"table\":\"public.orders\",\"key\":{\"id\":7},"
		"\"after\":null,\"before\":{\"id\":7,\"total\":1,\"tags\":null,"
		"\"body\":\"a|b\",\"r\\\"n\":null}" TAIL);
}

static void
a_composite_key_has_its_own_order(void **state)
{
	static const char *const names[] = { "*a", "*b", "c" };
	static const struct span key[] = { { "b", 1 }, { "a", 1 } };
	struct err e = ERR_ZERO;

	(void)state;
	table.key = key;
	table.key_n = 2;
	assert_int_equal(describe_as('d', names, 3, &e), SHAPE_OK);
	wire_insert(&wire, OID, "1", "x|y", NULL, WIRE_END);
	assert_int_equal(plan(), 1);
	assert_string_equal(partition(0), "x\\|y|1");
	assert_string_equal(event(0),
		"{\"op\":\"c\",\"table\":\"public.orders\","
		"\"key\":{\"b\":\"x|y\",\"a\":1},\"after\":{\"a\":1,"
		"\"b\":\"x|y\",\"c\":null},\"before\":null" TAIL);
	buf_reset(&out);
	shape_key_code(shape, ev[0].key, &out);
	assert_int_equal(out.len, 5);
	assert_memory_equal(out.p, "x|y\0001", 5);
}

static void
rows_that_do_not_fit_are_io(void **state)
{
	struct err e = ERR_ZERO;

	(void)state;
	wire_insert(&wire, OID, "1", "2", WIRE_END);
	parse();
	assert_int_equal(event_plan(shape, &m, ev, &e), 0);
	assert_string_equal(e.text, "the stream sent a row of public.orders "
				    "that has not its width");
	assert_int_equal(e.kind, ERR_IO);
	wire_insert(&wire, OID, NULL, "2", NULL, NULL, NULL, WIRE_END);
	parse();
	assert_int_equal(event_plan(shape, &m, ev, &e), 0);
	wire_change(&wire, 'U', OID);
	wire_row(&wire, 'N', WIRE_UNCHANGED, "2", NULL, NULL, NULL, WIRE_END);
	parse();
	assert_int_equal(event_plan(shape, &m, ev, &e), 0);
	assert_string_equal(e.text, "the stream sent a row of public.orders "
				    "without its key");
}

static void
a_truncate_lists_its_tables(void **state)
{
	static const struct span tables[] = { { "public.a", 8 },
		{ "public.b", 8 } };
	static const uint32_t two[] = { 1, 2 };

	(void)state;
	wire_truncate(&wire, 1, two, 2);
	parse();
	buf_reset(&out);
	event_write_truncate(&out, tables, 2, &m.truncate, &at);
	assert_string_equal(text(),
		"{\"op\":\"t\",\"tables\":[\"public.a\",\"public.b\"],"
		"\"cascade\":true,\"restartIdentity\":false" TAIL);
}

static void
rows_and_fills_of_a_snapshot_have_no_xid(void **state)
{
	struct event_at copy = at;
	const uint64_t fill[] = { 1 << 3 };
	struct event r = { .op = 'r' };

	(void)state;
	copy.snapshot = true;
	wire_insert(&wire, OID, "7", "1", NULL, "long", "t", WIRE_END);
	parse();
	r.key = r.after = &m.change.new;
	buf_reset(&out);
	event_write(&out, shape, &r, &copy);
	assert_string_equal(text(),
		"{\"op\":\"r\",\"table\":\"public.orders\",\"key\":{\"id\":7},"
		"\"after\":{\"id\":7,\"total\":1,\"tags\":null,"
		"\"body\":\"long\",\"r\\\"n\":true},\"before\":null,"
		"\"lsn\":\"0/1A2B3C8\",\"ts\":\"2026-10-02T10:00:00.000001Z\","
		"\"seq\":3}");
	buf_reset(&out);
	event_write_fill(&out, shape, &m.change.new, fill, &copy);
	assert_string_equal(text(),
		"{\"op\":\"u\",\"table\":\"public.orders\",\"key\":{\"id\":7},"
		"\"after\":{\"id\":7,\"body\":\"long\"},\"before\":null,"
		"\"unchanged\":[\"total\",\"tags\",\"r\\\"n\"],"
		"\"lsn\":\"0/1A2B3C8\",\"ts\":\"2026-10-02T10:00:00.000001Z\","
		"\"seq\":3}");
}

static const char *
id(bool snapshot, bool fill, uint64_t lsn, uint64_t seq, size_t nth)
{
	struct event_at a = { .lsn = lsn, .seq = seq, .snapshot = snapshot };

	buf_reset(&out);
	if (fill)
		event_fill_id(&out, "7be01c4d", &a);
	else
		event_id(&out, "7be01c4d", &a, nth);
	return text();
}

static void
ids_depend_on_the_wal_alone(void **state)
{
	(void)state;
	assert_string_equal(id(false, false, 0x1a2b3c8, 0, 0),
		"pg:7be01c4d:0000000001A2B3C8:0");
	assert_string_equal(id(false, false, 0x1a2b3c8, 17, 1),
		"pg:7be01c4d:0000000001A2B3C8:17.1");
	assert_string_equal(id(true, false, UINT64_MAX, UINT64_MAX, 0),
		"pg:7be01c4d:s:FFFFFFFFFFFFFFFF:18446744073709551615");
	assert_string_equal(id(true, true, 0x1a2b3c8, 4, 0),
		"pg:7be01c4d:s:0000000001A2B3C8:f4");
}

static const char *
partition_of(const char *first, const char *second)
{
	struct datum d[2] = { { first ? DATUM_TEXT : DATUM_NULL,
				      span_of(first) },
		{ second ? DATUM_TEXT : DATUM_NULL, span_of(second) } };
	struct tuple row = { d, 2 };
	size_t by[] = { 0, 1 };
	struct shape s = { .by = by,
		.by_n = second && strcmp(second, "-") == 0 ? 1 : 2 };

	buf_reset(&out);
	shape_partition(&s, &row, &out);
	return text();
}

static void
partitions_are_named_by_printed_text(void **state)
{
	char long_name[130];

	(void)state;
	assert_string_equal(partition_of("42", "-"), "42");
	assert_string_equal(partition_of("a|\\b", "-"), "a|\\b");
	assert_string_equal(partition_of(NULL, "-"), "\\N");
	assert_string_equal(partition_of("a", "5"), "a|5");
	assert_string_equal(partition_of("x|y", "5"), "x\\|y|5");
	assert_string_equal(partition_of("x\\", NULL), "x\\\\|\\N");
	assert_string_equal(partition_of("", ""), "|");
	memset(long_name, 'a', sizeof(long_name));
	long_name[128] = '\0';
	assert_string_equal(partition_of(long_name, "-"), long_name);
	long_name[128] = 'a';
	long_name[129] = '\0';
	/* sha256 of 129 times `a` */
	assert_string_equal(partition_of(long_name, "-"),
		"~c12cb024a2e5551cca0e08fce8f1c5e3");
}

static const char *
time_of(int64_t at_us)
{
	buf_reset(&out);
	event_time(&out, at_us);
	return text();
}

static void
times_have_four_digits_or_a_sign_and_six(void **state)
{
	(void)state;
	assert_string_equal(time_of(0), "\"1970-01-01T00:00:00.000000Z\"");
	assert_string_equal(time_of(INT64_C(253402300799999999)),
		"\"9999-12-31T23:59:59.999999Z\"");
	assert_string_equal(time_of(INT64_C(253402300800000000)),
		"\"+010000-01-01T00:00:00.000000Z\"");
	assert_string_equal(time_of(INT64_C(-62167219200000000)),
		"\"0000-01-01T00:00:00.000000Z\"");
	assert_string_equal(time_of(INT64_C(-62167219200000001)),
		"\"-000001-12-31T23:59:59.999999Z\"");
	assert_string_equal(
		time_of(INT64_MAX), "\"+294247-01-10T04:00:54.775807Z\"");
	assert_string_equal(
		time_of(INT64_MIN), "\"-290308-12-21T19:59:05.224192Z\"");
}

static void
a_shape_follows_the_relation(void **state)
{
	static const char *const no_key[] = { "id", "total" };
	static const char *const other_key[] = { "id", "*total" };
	static const char *const gone[] = { "*idx", "*total" };
	struct err e = ERR_ZERO;
	struct shape *first;
	uint32_t ask = 0;

	(void)state;
	assert_int_equal(describe_as('n', no_key, 2, &e), SHAPE_CHANGED);
	assert_string_equal(e.text,
		"public.orders has no key column any more: set a replica "
		"identity, then resync");
	assert_int_equal(describe_as('i', other_key, 2, &e), SHAPE_OK);
	assert_int_equal(shape->key_n, 1);
	assert_int_equal(shape->key[0], 1);
	/* FULL flags all: the key that was resolved, or none */
	assert_int_equal(describe_as('f', gone, 2, &e), SHAPE_CHANGED);
	assert_string_equal(
		e.text, "public.orders has no key column id any more");
	describe('f');
	assert_int_equal(shape->key_n, 1);
	assert_int_equal(shape->key[0], 0);
	first = shape;
	shape = NULL;
	describe('d');
	assert_false(shape_same(first, shape));
	shape_free(first);
	first = shape;
	shape = NULL;
	describe('d');
	assert_true(shape_same(first, shape));
	assert_int_equal(describe_as('d', columns, N - 1, &e), SHAPE_OK);
	assert_false(shape_same(first, shape));
	shape_free(first);
	/* a type nobody knows yet is asked for */
	wire_relation(&wire, OID, "public", "orders", 'd', columns,
		(const uint32_t[]){ 20, 70000 }, 2);
	parse();
	assert_int_equal(
		shape_new(&table, &m.relation, &types, &first, &ask, &e),
		SHAPE_ASK);
	assert_int_equal(ask, 70000);
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(an_insert_is_c),
		T(an_update_names_what_is_unchanged),
		T(a_delete_has_its_key_twice),
		T(full_brings_the_old_row_and_no_unchanged),
		T(a_key_move_is_d_then_c),
		T(a_key_change_in_one_partition_is_u),
		T(an_out_of_line_key_is_no_move),
		T(a_move_by_other_columns_needs_full),
		T(a_composite_key_has_its_own_order),
		T(rows_that_do_not_fit_are_io),
		T(a_truncate_lists_its_tables),
		T(rows_and_fills_of_a_snapshot_have_no_xid),
		T(ids_depend_on_the_wal_alone),
		T(partitions_are_named_by_printed_text),
		T(times_have_four_digits_or_a_sign_and_six),
		T(a_shape_follows_the_relation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
