/* SPDX-License-Identifier: Apache-2.0 */
/* From messages to units: order, covers, cuts, resumes, watermarks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "err.h"
#include "pgwire.h"
#include "pipeline.h"
#include "shape.h"

enum { ORDERS = 100, LINES = 101, OTHER = 102 };

static const struct span key_id[] = { { "id", 2 } };
static struct shape_table tables[] = {
	{ .schema = { "public", 6 },
		.name = { "orders", 6 },
		.label = { "public.orders", 13 },
		.queue = { "orders", 6 },
		.key = key_id,
		.key_n = 1 },
	{ .schema = { "public", 6 },
		.name = { "lines", 5 },
		.label = { "public.lines", 12 },
		.queue = { "lines", 5 },
		.key = key_id,
		.key_n = 1 },
};
static const char *const columns[] = { "*id", "v" };
static const uint32_t oids[] = { 20, 25 };

static struct pipeline_conf conf;
static struct pipeline p;
static struct buf wire, out;
static struct pipeline_ask ask;
static struct err e;
static struct shape *orders_shape;

#define POINTER(rest)                                                          \
	"{\"v\":1,\"epoch\":\"7be01c4d\",\"systemId\":\"1\",\"slot\":\"s\","   \
	"\"lsn\":\"0/64\"" rest "}"
#define COPY(table, after)                                                     \
	",\"snapshot\":{\"tables\":[\"public.orders\",\"public.gone\","        \
	"\"public.lines\"],\"table\":\"" table "\",\"after\":" after           \
	",\"rows\":5}"

static void
start(const char *json)
{
	struct pointer at;

	if (pointer_parse(span_of(json), &at, &e) != 0)
		fail_msg("%s", e.text);
	pipeline_init(&p, &conf, &at, 41);
	pointer_fini(&at);
}

static int
setup(void **state)
{
	(void)state;
	conf = (struct pipeline_conf){ .tables = tables,
		.tables_n = 2,
		.limits = { 3, 100000, 20 },
		.chunk_rows = 4 };
	tables[0].by = tables[1].by = SHAPE_BY_KEY;
	tables[1].queue = SPAN_LIT("lines");
	e = (struct err)ERR_ZERO;
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	pipeline_fini(&p);
	shape_free(orders_shape);
	orders_shape = NULL;
	buf_fini(&wire);
	buf_fini(&out);
	return 0;
}

static enum pipeline_result
feed(void)
{
	return pipeline_feed(&p, buf_span(&wire), 1000, &ask, &e);
}

static void
feed_ok(void)
{
	if (feed() != PIPELINE_OK)
		fail_msg("%s", e.text);
}

static void
describe(uint32_t oid, const char *name)
{
	wire_relation(&wire, oid, "public", name, 'd', columns, oids, 2);
	feed_ok();
}

static void
begin(uint64_t lsn, uint32_t xid)
{
	wire_begin(&wire, lsn, 0, xid);
	feed_ok();
}

/* Commits end one byte behind their record here. */
static void
commit(uint64_t lsn)
{
	wire_commit(&wire, lsn, lsn + 1);
	feed_ok();
}

static void
insert(uint32_t oid, const char *id)
{
	wire_insert(&wire, oid, id, "x", WIRE_END);
	feed_ok();
}

static void
mark(uint64_t lsn, const char *content)
{
	wire_message(&wire, false, lsn, "queen:7be01c4d", content);
	feed_ok();
}

/*
 * The queue in short: per unit the ids of its messages behind `pg:<epoch>:`
 * and LSN zeroes, then its cover.
 */
static const char *
queued(void)
{
	const struct unit *u;

	buf_reset(&out);
	TAILQ_FOREACH (u, &p.queue.list, link) {
		const struct pointer_place *at = &u->cover;

		for (size_t i = 0; i < u->n; i++) {
			struct message m = unit_message(u, i);
			const char *id = m.id.p + 12;
			bool copy = *id == 's';

			buf_printf(&out, "%.*s/%.*s:%s%.*s ", SPAN_ARG(m.queue),
				SPAN_ARG(m.partition), copy ? "s" : "",
				(int)(m.id.n - 12 - 14 - (copy ? 2 : 0)),
				id + 14 + (copy ? 2 : 0));
		}
		buf_printf(&out, "@%x", (unsigned)at->lsn);
		if (at->in_txn)
			buf_printf(&out, "+%x:%u", (unsigned)at->txn_commit_lsn,
				(unsigned)at->txn_done);
		if (at->in_snapshot)
			buf_printf(&out, " t%zu>%.*s=%u", at->table,
				at->has_after ? (int)at->after.n : 1,
				at->has_after ? at->after.p : "-",
				(unsigned)at->rows);
		buf_puts(&out, u->forced ? "!;" : ";");
	}
	buf_putc(&out, '\0');
	return out.p;
}

static bool
holds(const struct message *m, const char *text)
{
	return memmem(m->payload.p, m->payload.n, text, strlen(text)) != NULL;
}

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

/* ---- snapshot ---- */

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
		T(a_watermark_cycle),
		T(parts_have_covers_and_the_last_one_ends_the_table),
		T(an_emptied_chunk_still_moves_on),
		T(a_high_mark_before_its_rows_is_held),
		T(a_forgotten_chunk_has_no_marks),
		T(key_moves_drop_both_keys),
		T(a_covered_transaction_still_drops_rows),
		T(a_table_reshaped_while_copied_starts_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
