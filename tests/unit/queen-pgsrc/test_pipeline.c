/* SPDX-License-Identifier: Apache-2.0 */
/* From messages to units: order, covers, cuts, resumes. */
#include "pipeline_fix.h"

static void
transactions_come_in_order_with_their_end(void **state)
{
	struct message m;

	(void)state;
	start(POINTER(""));
	begin(0x70, 9);
	describe(ORDERS, "orders");
	insert(ORDERS, "1");
	insert(ORDERS, "2");
	assert_string_equal(queued(), "");
	commit(0x70);
	begin(0x80, 10);
	describe(LINES, "lines");
	insert(LINES, "1");
	commit(0x80);
	assert_string_equal(
		queued(), "orders/1:70:0 orders/2:70:1 @71;lines/1:80:0 @81;");
	m = unit_message(TAILQ_FIRST(&p.queue.list), 0);
	assert_true(span_is(m.id, "pg:7be01c4d:0000000000000070:0"));
	assert_true(span_is(m.payload,
		"{\"op\":\"c\",\"table\":\"public.orders\",\"key\":{\"id\":1},"
		"\"after\":{\"id\":1,\"v\":\"x\"},\"before\":null,"
		"\"lsn\":\"0/70\",\"xid\":9,"
		"\"ts\":\"1970-01-01T00:00:00.000000Z\",\"seq\":0}"));
	assert_true(p.transactions == 2 && p.messages == 3);
}

/* Pitfall 24.10: the server sends again what the queue has. */
static void
what_is_covered_is_dropped(void **state)
{
	(void)state;
	start(POINTER(""));
	begin(0x63, 9);
	describe(ORDERS, "orders");
	insert(ORDERS, "1");
	commit(0x63);
	assert_string_equal(queued(), "");
	assert_true(p.transactions == 0);
	begin(0x64, 9);
	insert(ORDERS, "1");
	commit(0x64);
	assert_string_equal(queued(), "orders/1:64:0 @65;");
	begin(0x64, 9);
	insert(ORDERS, "1");
	commit(0x64);
	assert_string_equal(queued(), "orders/1:64:0 @65;");
}

static void
unmapped_tables_count_and_move_the_position(void **state)
{
	(void)state;
	start(POINTER(""));
	begin(0x70, 9);
	describe(OTHER, "other");
	insert(OTHER, "1");
	commit(0x70);
	begin(0x80, 9);
	insert(OTHER, "1");
	commit(0x80);
	assert_string_equal(queued(), "@81;");
	begin(0x90, 9);
	insert(OTHER, "1");
	describe(ORDERS, "orders");
	insert(ORDERS, "1");
	commit(0x90);
	assert_string_equal(queued(), "@81;orders/1:90:1 @91;");
	assert_true(p.transactions == 1);
}

static void
a_large_transaction_is_cut_before_a_change(void **state)
{
	(void)state;
	start(POINTER(""));
	begin(0x70, 9);
	describe(ORDERS, "orders");
	describe(OTHER, "other");
	insert(ORDERS, "1");
	insert(OTHER, "1");
	insert(ORDERS, "2");
	/* a key move is two events: never parted */
	wire_change(&wire, 'U', ORDERS);
	wire_row(&wire, 'K', "2", NULL, WIRE_END);
	wire_row(&wire, 'N', "3", "x", WIRE_END);
	feed_ok();
	insert(ORDERS, "4");
	insert(ORDERS, "5");
	commit(0x70);
	assert_string_equal(queued(),
		"orders/1:70:0 orders/2:70:2 @64+70:3;"
		"orders/2:70:3 orders/3:70:3.1 orders/4:70:4 @64+70:5;"
		"orders/5:70:5 @71;");
	assert_true(p.transactions == 1);
	assert_false(p.tail.in_txn);
}

static void
a_cut_by_bytes(void **state)
{
	(void)state;
	conf.limits.bytes = 500;
	conf.limits.messages = 100;
	start(POINTER(""));
	begin(0x70, 9);
	describe(ORDERS, "orders");
	insert(ORDERS, "1");
	insert(ORDERS, "2");
	insert(ORDERS, "3");
	commit(0x70);
	assert_string_equal(queued(),
		"orders/1:70:0 @64+70:1;orders/2:70:1 @64+70:2;"
		"orders/3:70:2 @71;");
}

static void
a_resume_skips_what_is_in(void **state)
{
	(void)state;
	/* another partitionBy changes nothing: raw changes count */
	tables[0].by = SHAPE_BY_NOTHING;
	start(POINTER(",\"inTxn\":{\"commitLsn\":\"0/70\",\"done\":3}"));
	begin(0x70, 9);
	describe(ORDERS, "orders");
	insert(ORDERS, "1");
	insert(ORDERS, "2");
	insert(ORDERS, "3");
	insert(ORDERS, "4");
	commit(0x70);
	assert_string_equal(queued(), "orders/all:70:3 @71;");
	assert_true(p.transactions == 1);
}

static void
a_split_ended_with_nothing_left_still_counts(void **state)
{
	(void)state;
	start(POINTER(",\"inTxn\":{\"commitLsn\":\"0/70\",\"done\":1}"));
	/* an earlier one keeps the memory of it */
	begin(0x68, 8);
	describe(OTHER, "other");
	insert(OTHER, "1");
	commit(0x68);
	assert_string_equal(queued(), "@69+70:1;");
	begin(0x70, 9);
	describe(ORDERS, "orders");
	insert(ORDERS, "1");
	commit(0x70);
	assert_string_equal(queued(), "@71;");
	assert_true(p.transactions == 1);
}

static void
an_idle_stream_steps_once_in_ten_seconds(void **state)
{
	(void)state;
	start(POINTER(""));
	pipeline_idle(&p, 0x64, 1000);
	assert_string_equal(queued(), "");
	pipeline_idle(&p, 0x70, 1000);
	assert_string_equal(queued(), "@70!;");
	/* something is queued */
	pipeline_idle(&p, 0x80, 50000);
	assert_string_equal(queued(), "@70!;");
	bundle_take(&p.queue, &conf.limits);
	pipeline_idle(&p, 0x80, 50000);
	unit_queue_settle(&p.queue);
	pipeline_idle(&p, 0x80, 10999);
	assert_string_equal(queued(), "");
	pipeline_idle(&p, 0x80, 11000);
	assert_string_equal(queued(), "@80!;");
	bundle_take(&p.queue, &conf.limits);
	unit_queue_settle(&p.queue);
	/* a transaction is open */
	begin(0x90, 9);
	pipeline_idle(&p, 0xa0, 99000);
	commit(0x90);
	assert_string_equal(queued(), "@91;");
	/* a step that waits for company does not wait for ever */
	pipeline_idle(&p, 0x91, 99000);
	assert_string_equal(queued(), "@91;@91!;");
	pipeline_idle(&p, 0xa0, 120000);
	assert_int_equal(bundle_take(&p.queue, &conf.limits), 2);
	unit_queue_settle(&p.queue);
	pipeline_idle(&p, 0x91, 120000);
	assert_string_equal(queued(), "");
}

static void
a_split_transaction_holds_the_idle_step(void **state)
{
	(void)state;
	start(POINTER(",\"inTxn\":{\"commitLsn\":\"0/70\",\"done\":1}"));
	pipeline_idle(&p, 0x80, 1000);
	assert_string_equal(queued(), "");
}

static void
heartbeats_are_ours_and_others_are_not(void **state)
{
	(void)state;
	start(POINTER(""));
	wire_message(&wire, true, 0x70, "queen:7be01c4d", "hb");
	feed_ok();
	wire_message(&wire, false, 0x70, "queen:7be01c4e", "hb");
	feed_ok();
	wire_message(&wire, false, 0x70, "queen:", "hb");
	feed_ok();
	wire_message(&wire, false, 0x70, "other", "hb");
	feed_ok();
	mark(0x70, "hb2");
	mark(0x70, "");
	assert_string_equal(queued(), "");
	mark(0x70, "hb");
	assert_string_equal(queued(), "@70!;");
}

static void
truncates_are_skipped_and_counted(void **state)
{
	static const uint32_t both[] = { ORDERS, OTHER };

	(void)state;
	start(POINTER(""));
	begin(0x70, 9);
	describe(ORDERS, "orders");
	describe(OTHER, "other");
	wire_truncate(&wire, 0, both, 2);
	feed_ok();
	wire_truncate(&wire, 0, both + 1, 1);
	feed_ok();
	insert(ORDERS, "1");
	commit(0x70);
	assert_string_equal(queued(), "orders/1:70:2 @71;");
	assert_true(p.truncates_skipped == 1);
}

static void
truncates_are_one_event_per_queue(void **state)
{
	static const uint32_t both[] = { ORDERS, LINES };
	struct message m;

	(void)state;
	conf.emit_truncate = true;
	start(POINTER(""));
	begin(0x70, 9);
	describe(ORDERS, "orders");
	describe(LINES, "lines");
	wire_truncate(&wire, 2, both, 2);
	feed_ok();
	commit(0x70);
	assert_string_equal(queued(), "orders/all:70:0 lines/all:70:0.1 @71;");
	tables[1].queue = SPAN_LIT("orders");
	begin(0x80, 9);
	wire_truncate(&wire, 2, both, 2);
	feed_ok();
	commit(0x80);
	m = unit_message(TAILQ_LAST(&p.queue.list, unit_list), 0);
	assert_true(span_is(m.payload,
		"{\"op\":\"t\",\"tables\":[\"public.orders\",\"public.lines\"],"
		"\"cascade\":false,\"restartIdentity\":true,\"lsn\":\"0/80\","
		"\"xid\":9,\"ts\":\"1970-01-01T00:00:00.000000Z\",\"seq\":0}"));
	assert_int_equal(TAILQ_LAST(&p.queue.list, unit_list)->n, 1);
}

static void
a_moved_key_reads_back_what_is_unchanged(void **state)
{
	struct message m;

	(void)state;
	start(POINTER(""));
	begin(0x70, 9);
	describe(ORDERS, "orders");
	wire_change(&wire, 'U', ORDERS);
	wire_row(&wire, 'K', "1", NULL, WIRE_END);
	wire_row(&wire, 'N', "2", WIRE_UNCHANGED, WIRE_END);
	assert_int_equal(feed(), PIPELINE_ASK_ROW);
	assert_true(span_is(ask.row->d[0].text, "2"));
	assert_true(ask.shape->n == 2);
	ask.row->d[1].state = DATUM_TEXT;
	ask.row->d[1].text = SPAN_LIT("long");
	assert_int_equal(pipeline_resume(&p, 1000, &ask, &e), PIPELINE_OK);
	/* the row is gone: it stays unchanged */
	assert_int_equal(feed(), PIPELINE_ASK_ROW);
	assert_int_equal(pipeline_resume(&p, 1000, &ask, &e), PIPELINE_OK);
	commit(0x70);
	m = unit_message(TAILQ_FIRST(&p.queue.list), 1);
	assert_true(holds(&m, "\"after\":{\"id\":2,\"v\":\"long\"}"));
	m = unit_message(TAILQ_LAST(&p.queue.list, unit_list), 1);
	assert_non_null(
		memmem(m.payload.p, m.payload.n, "\"unchanged\":[\"v\"]", 17));
	assert_true(span_is(m.id, "pg:7be01c4d:0000000000000070:1.1"));
	/* a covered one is not read back */
	begin(0x63, 9);
	wire_change(&wire, 'U', ORDERS);
	wire_row(&wire, 'K', "1", NULL, WIRE_END);
	wire_row(&wire, 'N', "2", WIRE_UNCHANGED, WIRE_END);
	assert_int_equal(feed(), PIPELINE_OK);
}

static void
an_unknown_type_is_asked_for(void **state)
{
	static const uint32_t odd[] = { 20, 70000 };
	static const struct types_row row = { 70000, 'e', ',', 0, 0 };

	(void)state;
	start(POINTER(""));
	begin(0x70, 9);
	wire_relation(&wire, ORDERS, "public", "orders", 'd', columns, odd, 2);
	assert_int_equal(feed(), PIPELINE_ASK_TYPE);
	assert_int_equal(ask.type_oid, 70000);
	types_learn(&p.types, &row);
	assert_int_equal(pipeline_resume(&p, 1000, &ask, &e), PIPELINE_OK);
	insert(ORDERS, "1");
	commit(0x70);
	assert_string_equal(queued(), "orders/1:70:0 @71;");
}

static void
disorder_is_io(void **state)
{
	(void)state;
	start(POINTER(""));
	wire_commit(&wire, 0x70, 0x71);
	assert_int_equal(feed(), PIPELINE_BAD);
	assert_string_equal(
		e.text, "the stream committed what it did not begin");
	wire_insert(&wire, ORDERS, "1", "x", WIRE_END);
	assert_int_equal(feed(), PIPELINE_BAD);
	assert_string_equal(
		e.text, "the stream sent a change outside a transaction");
	begin(0x70, 9);
	wire_begin(&wire, 0x70, 0, 9);
	assert_int_equal(feed(), PIPELINE_BAD);
	wire_insert(&wire, ORDERS, "1", "x", WIRE_END);
	assert_int_equal(feed(), PIPELINE_BAD);
	assert_string_equal(e.text, "the stream changed relation 100 without "
				    "describing it");
	wire_truncate(&wire, 0, (const uint32_t[]){ ORDERS }, 1);
	assert_int_equal(feed(), PIPELINE_BAD);
	wire_commit(&wire, 0x71, 0x72);
	assert_int_equal(feed(), PIPELINE_BAD);
	assert_int_equal(e.kind, ERR_IO);
}

static void
columns_come_and_go(void **state)
{
	static const char *const more[] = { "*id", "w", "v" };
	static const uint32_t types3[] = { 20, 23, 25 };
	struct message m;

	(void)state;
	start(POINTER(""));
	begin(0x70, 9);
	describe(ORDERS, "orders");
	insert(ORDERS, "1");
	wire_relation(&wire, ORDERS, "public", "renamed", 'd', more, types3, 3);
	feed_ok();
	wire_insert(&wire, ORDERS, "2", "7", "x", WIRE_END);
	feed_ok();
	wire_insert(&wire, ORDERS, "3", "7", WIRE_END);
	assert_int_equal(feed(), PIPELINE_BAD);
	commit(0x70);
	m = unit_message(TAILQ_FIRST(&p.queue.list), 1);
	/* by OID, under the name the document has */
	assert_true(holds(&m,
		"public.orders\",\"key\":{\"id\":2},\"after\":{\"id\":2,\"w\":7"));
	assert_false(pipeline_wants_restart(&p));
	wire_relation(&wire, ORDERS, "public", "orders", 'n',
		(const char *const[]){ "id" }, types3, 1);
	assert_int_equal(feed(), PIPELINE_CHANGED);
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(transactions_come_in_order_with_their_end),
		T(what_is_covered_is_dropped),
		T(unmapped_tables_count_and_move_the_position),
		T(a_large_transaction_is_cut_before_a_change),
		T(a_cut_by_bytes),
		T(a_resume_skips_what_is_in),
		T(a_split_ended_with_nothing_left_still_counts),
		T(an_idle_stream_steps_once_in_ten_seconds),
		T(a_split_transaction_holds_the_idle_step),
		T(heartbeats_are_ours_and_others_are_not),
		T(truncates_are_skipped_and_counted),
		T(truncates_are_one_event_per_queue),
		T(a_moved_key_reads_back_what_is_unchanged),
		T(an_unknown_type_is_asked_for),
		T(disorder_is_io),
		T(columns_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
