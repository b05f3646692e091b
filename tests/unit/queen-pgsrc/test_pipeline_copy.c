/* SPDX-License-Identifier: Apache-2.0 */
/* Watermarks, parts and covers of a copy while the stream goes on. */
#include "pipeline_fix.h"

/* Reads a chunk of rows with these ids; returns its number. */
static uint64_t
read_chunk(const char *seen, size_t n, const char *const *ids)
{
	struct datum d[2] = { { .state = DATUM_TEXT },
		{ .state = DATUM_TEXT, .text = { "long", 4 } } };
	struct pgoutput_column cols[2] = {
		{ .name = { "id", 2 }, .type_oid = 20, .key = true },
		{ .name = { "v", 1 }, .type_oid = 25 }
	};
	struct pgoutput_relation r = {
		.oid = ORDERS, .identity = 'd', .columns = cols, .n = 2
	};
	struct pipeline_chunk c;
	uint64_t number;
	uint32_t oid;

	assert_true(pipeline_next_chunk(&p, &c));
	shape_free(orders_shape);
	orders_shape = NULL;
	assert_int_equal(
		shape_new(c.table, &r, &p.types, &orders_shape, &oid, &e),
		SHAPE_OK);
	number = snapshot_ask(
		&p.snapshot, c.run_table, orders_shape, c.limit_rows);
	assert_false(pipeline_next_chunk(&p, &c));
	for (size_t i = 0; i < n; i++) {
		d[0].text = span_of(ids[i]);
		snapshot_row(&p.snapshot, &(struct tuple){ d, 2 });
	}
	if (seen && snapshot_install(&p.snapshot, span_of(seen), 0, &e) != 0)
		fail_msg("%s", e.text);
	return number;
}

static void
mark_n(uint64_t lsn, const char *kind, uint64_t n)
{
	char text[40];

	snprintf(text, sizeof(text), "%s:%llu", kind, (unsigned long long)n);
	mark(lsn, text);
}

static void
a_watermark_cycle(void **state)
{
	static const char *const ids[] = { "1", "2", "3", "4" };
	struct message m;
	uint64_t n;

	(void)state;
	start(POINTER(COPY("public.orders", "null")));
	n = read_chunk("10:10:", 4, ids);
	assert_true(n == 42);
	mark_n(0x70, "lw", n);
	begin(0x80, 5);
	describe(ORDERS, "orders");
	wire_change(&wire, 'U', ORDERS);
	wire_row(&wire, 'N', "2", WIRE_UNCHANGED, WIRE_END);
	feed_ok();
	wire_change(&wire, 'D', ORDERS);
	wire_row(&wire, 'K', "3", NULL, WIRE_END);
	feed_ok();
	commit(0x80);
	mark_n(0x90, "hw", n + 1);
	mark_n(0x90, "hw", n);
	/* 2 is filled, 3 is gone; the limit of the bundle is 3 messages */
	assert_string_equal(queued(),
		"orders/2:80:0 orders/3:80:1 @81 t0>-=5;"
		"orders/1:s90:0 orders/2:s90:f1 orders/4:s90:2 @90 t0>4=7;");
	m = unit_message(TAILQ_LAST(&p.queue.list, unit_list), 1);
	assert_true(span_is(m.payload,
		"{\"op\":\"u\",\"table\":\"public.orders\",\"key\":{\"id\":2},"
		"\"after\":{\"id\":2,\"v\":\"long\"},\"before\":null,"
		"\"lsn\":\"0/90\",\"ts\":\"1970-01-01T00:00:00.000000Z\","
		"\"seq\":1}"));
	assert_true(p.snapshot_rows == 2);
	mark_n(0xa0, "hw", n);
	assert_int_equal(p.queue.units, 2);
}

static void
parts_have_covers_and_the_last_one_ends_the_table(void **state)
{
	static const char *const ids[] = { "1", "2", "3" };
	struct pipeline_chunk c;
	uint64_t n;

	(void)state;
	conf.limits.messages = 2;
	start(POINTER(COPY("public.orders", "[\"0\"]")));
	n = read_chunk("10:10:", 3, ids);
	mark_n(0x70, "lw", n);
	mark_n(0x71, "hw", n);
	assert_string_equal(queued(),
		"orders/1:s71:0 orders/2:s71:1 @71 t0>2=7;"
		"orders/3:s71:2 @71 t1>-=8;");
	/* too much is queued for another chunk */
	assert_false(pipeline_next_chunk(&p, &c));
	bundle_take(&p.queue, &conf.limits);
	unit_queue_settle(&p.queue);
	/* the table in between is no longer configured */
	assert_true(pipeline_next_chunk(&p, &c));
	assert_string_equal(queued(), "orders/3:s71:2 @71 t1>-=8;@71 t2>-=8!;");
	assert_int_equal(c.run_table, 2);
	assert_ptr_equal(c.table, &tables[1]);
	assert_false(c.has_after);
	unit_queue_fini(&p.queue);
	/* nothing read at all: the copy is finished, and says so */
	n = read_chunk("10:10:", 0, NULL);
	mark_n(0x60, "hw", n);
	assert_string_equal(queued(), "@71!;");
	assert_false(p.tail.in_snapshot);
	assert_false(pipeline_next_chunk(&p, &c));
}

static void
an_emptied_chunk_still_moves_on(void **state)
{
	static const char *const ids[] = { "1", "2", "3", "4" };
	static const uint32_t one[] = { ORDERS };
	uint64_t n;

	(void)state;
	start(POINTER(COPY("public.orders", "null")));
	n = read_chunk("10:10:", 4, ids);
	mark_n(0x70, "lw", n);
	begin(0x80, 5);
	describe(ORDERS, "orders");
	wire_truncate(&wire, 0, one, 1);
	feed_ok();
	commit(0x80);
	mark_n(0x90, "hw", n);
	assert_string_equal(queued(), "@81 t0>-=5;@90 t0>4=5!;");
}

static void
a_high_mark_before_its_rows_is_held(void **state)
{
	static const char *const ids[] = { "1" };
	uint64_t n;

	(void)state;
	start(POINTER(COPY("public.lines", "null")));
	n = read_chunk(NULL, 1, ids);
	mark_n(0x70, "lw", n);
	wire_message(&wire, false, 0x80, "queen:7be01c4d", "hw:42");
	assert_int_equal(feed(), PIPELINE_ASK_CHUNK);
	assert_int_equal(
		pipeline_resume(&p, 1000, &ask, &e), PIPELINE_ASK_CHUNK);
	assert_int_equal(
		snapshot_install(&p.snapshot, SPAN_LIT("1:1:"), 0, &e), 0);
	assert_int_equal(pipeline_resume(&p, 1000, &ask, &e), PIPELINE_OK);
	assert_string_equal(queued(), "lines/1:s80:0 @80;");
}

static void
a_forgotten_chunk_has_no_marks(void **state)
{
	static const char *const ids[] = { "1" };
	uint64_t n;

	(void)state;
	start(POINTER(COPY("public.orders", "[\"0\"]")));
	n = read_chunk("1:1:", 1, ids);
	snapshot_forget(&p.snapshot);
	mark_n(0x70, "lw", n);
	mark_n(0x80, "hw", n);
	assert_string_equal(queued(), "");
	/* read again from the same place, under a number of its own */
	assert_true(read_chunk("1:1:", 1, ids) == n + 1);
}

static void
key_moves_drop_both_keys(void **state)
{
	static const char *const ids[] = { "1", "2", "3" };
	uint64_t n;

	(void)state;
	start(POINTER(COPY("public.orders", "null")));
	n = read_chunk("10:10:", 3, ids);
	begin(0x80, 12);
	describe(ORDERS, "orders");
	wire_change(&wire, 'U', ORDERS);
	wire_row(&wire, 'K', "1", NULL, WIRE_END);
	wire_row(&wire, 'N', "3", "x", WIRE_END);
	feed_ok();
	commit(0x80);
	mark_n(0x90, "hw", n);
	assert_string_equal(queued(),
		"orders/1:80:0 orders/3:80:0.1 @81 t0>-=5;"
		"orders/2:s90:0 @90 t1>-=6;");
}

static void
a_covered_transaction_still_drops_rows(void **state)
{
	static const char *const ids[] = { "1", "2" };
	uint64_t n;

	(void)state;
	start(POINTER(COPY("public.orders", "null")));
	n = read_chunk("10:20:12", 2, ids);
	begin(0x50, 12);
	describe(ORDERS, "orders");
	insert(ORDERS, "1");
	commit(0x50);
	mark_n(0x70, "hw", n);
	assert_string_equal(queued(), "orders/2:s70:0 @70 t1>-=6;");
}

static void
a_table_reshaped_while_copied_starts_over(void **state)
{
	static const char *const more[] = { "*id", "v", "w" };
	static const char *const other_key[] = { "id", "*v" };
	static const uint32_t types3[] = { 20, 25, 25 };
	struct pipeline_chunk c;

	(void)state;
	start(POINTER(COPY("public.orders", "null")));
	begin(0x80, 12);
	describe(ORDERS, "orders");
	describe(ORDERS, "orders");
	insert(ORDERS, "1");
	assert_true(pipeline_next_chunk(&p, &c));
	wire_relation(&wire, ORDERS, "public", "orders", 'd', more, types3, 3);
	feed_ok();
	/* not before it can begin behind this transaction */
	assert_false(pipeline_next_chunk(&p, &c));
	assert_false(pipeline_wants_restart(&p));
	commit(0x80);
	assert_false(pipeline_wants_restart(&p));
	bundle_take(&p.queue, &conf.limits);
	unit_queue_settle(&p.queue);
	assert_true(pipeline_wants_restart(&p));
	wire_relation(
		&wire, ORDERS, "public", "orders", 'd', other_key, types3, 2);
	assert_int_equal(feed(), PIPELINE_CHANGED);
	assert_string_equal(e.text, "the key of public.orders changed while "
				    "the table is being copied: resync");
}

static void
a_shape_newer_than_what_was_found_starts_over(void **state)
{
	static const struct span found[] = { { "id", 2 }, { "v", 1 } };
	static const char *const more[] = { "*id", "v", "w" };
	static const uint32_t types3[] = { 20, 25, 25 };

	(void)state;
	for (int i = 0; i < 2; i++)
		tables[i].columns = found, tables[i].columns_n = 2;
	start(POINTER(COPY("public.orders", "null")));
	pipeline_found_at(&p, 0x80);
	/* from before the start: the table had other columns then */
	begin(0x80, 12);
	wire_relation(&wire, ORDERS, "public", "orders", 'd', more, types3, 3);
	feed_ok();
	commit(0x80);
	assert_false(p.reshaped);
	begin(0x90, 13);
	describe(LINES, "lines");
	assert_false(p.reshaped);
	commit(0x90);
	pipeline_fini(&p);
	start(POINTER(COPY("public.orders", "null")));
	pipeline_found_at(&p, 0x80);
	begin(0x90, 13);
	wire_relation(&wire, ORDERS, "public", "orders", 'd', more, types3, 3);
	feed_ok();
	assert_true(p.reshaped);
	for (int i = 0; i < 2; i++)
		tables[i].columns = NULL, tables[i].columns_n = 0;
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_watermark_cycle),
		T(parts_have_covers_and_the_last_one_ends_the_table),
		T(an_emptied_chunk_still_moves_on),
		T(a_high_mark_before_its_rows_is_held),
		T(a_forgotten_chunk_has_no_marks),
		T(key_moves_drop_both_keys),
		T(a_covered_transaction_still_drops_rows),
		T(a_table_reshaped_while_copied_starts_over),
		T(a_shape_newer_than_what_was_found_starts_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
