/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cell for test_feed.c: a server with the schema, messages pushed into it,
 * and sinks' feeds (nodes) whose waits are driven by the test.
 */
#ifndef QUEEN_TEST_FEED_FIX_H
#define QUEEN_TEST_FEED_FIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "clk.h"
#include "conndoc.h"
#include "connchild.h"
#include "feed_int.h"
#include "frame.h"
#include "hot.h"
#include "pgconn.h"
#include "pgserver.h"
#include "qid.h"
#include "schema.h"
#include "seal.h"
#include "seg.h"

#define K1 "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define K2 "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
#define TENANT "00000000-0000-0000-0000-000000000001"

enum { PATIENCE_MS = 20000, NODES = 2, GOT_MAX = 8 };

static struct pgserver server;
static struct schema_cell cell;
static struct loop *loop;
static PGconn *sql;
static int queues;

/* ---- SQL ---- */

/* First value of a formatted statement; the last four stay. */
__attribute__((format(printf, 1, 2))) static const char *
value(const char *fmt, ...)
{
	static char text[65536], values[4][256];
	static int next;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	next = (next + 1) % 4;
	snprintf(values[next], sizeof(values[next]), "%s",
		pgserver_value(sql, text));
	return values[next];
}

__attribute__((format(printf, 1, 2))) static int64_t
number(const char *fmt, ...)
{
	static char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return atoll(pgserver_value(sql, text));
}

static inline int64_t
part_id(const char *queue, const char *part)
{
	return number("select p.id from queen.partitions p join queen.queues q"
		      " on q.id = p.queue_id and q.deleted_at is null"
		      " where q.name = '%s' and p.name = '%s'",
		queue, part);
}

/* `committed|leased|retries`, or "" without a row; newest group of the name. */
static inline const char *
consumer(int64_t part)
{
	return value("select concat_ws('|', c.committed, coalesce("
		     "c.expires_at > clock_timestamp(), false), c.retries)"
		     " from queen.consumers c join queen.groups g on"
		     " g.id = c.group_id and g.deleted_at is null"
		     " where c.partition_id = %lld order by c.gen desc limit 1",
		(long long)part);
}

/* ---- messages ---- */

static inline void
hex_of(struct span s, struct buf *out)
{
	buf_printf(out, "'\\x");
	for (size_t i = 0; i < s.n; i++)
		buf_printf(out, "%02x", (uint8_t)s.p[i]);
	buf_printf(out, "'::bytea");
}

/* Payload of message i of a partition. */
static inline struct span
payload_of(const char *part, int i)
{
	static char text[128];

	snprintf(text, sizeof(text),
		"{\"big\":98765432109876543210123456789, \"at\":\"%s-%d\"}",
		part, i);
	return span_of(text);
}

struct pushed {
	const char *queue, *part;
	int from, n; /* numbers of the messages */
	const struct seal *seal; /* NULL: in the clear */
	int damaged; /* of a sealed one; 0 = none, i is the i-th */
};

static inline void
pack(const struct pushed *p, struct buf *frames, struct buf *ids)
{
	struct buf box = BUF_ZERO;

	for (int i = p->from; i < p->from + p->n; i++) {
		char txn[64];
		struct hash_id h;
		struct frame f = { .id = qid_new(),
			.payload = payload_of(p->part, i) };

		snprintf(txn, sizeof(txn), "%s-%d", p->part, i);
		f.txn = span_of(txn);
		if (p->seal) {
			buf_reset(&box);
			seal_box(p->seal, &f.id, f.payload, &box);
			box.p[box.len - 1] ^= i - p->from + 1 == p->damaged;
			f.payload = buf_span(&box);
			f.flags |= FRAME_SEALED;
		}
		frame_write(frames, &f);
		hash_id(cell.hash_key, f.txn, &h);
		buf_put_span(ids, span_make((const char *)h.b, sizeof(h.b)));
	}
	buf_fini(&box);
}

/* Queue and partition are made when they are not there. */
static inline void
push_what(struct pushed p)
{
	struct buf frames = BUF_ZERO, ids = BUF_ZERO, blob = BUF_ZERO,
		   out = BUF_ZERO;

	value("select id from queen.queue_resolve_v1('" TENANT
	      "', array['%s'], true)",
		p.queue);
	value("select e.id from queen.queue_resolve_v1('" TENANT
	      "', array['%s'], false) q, queen.partitions_ensure_v1('" TENANT
	      "', array[q.id], array['%s']) e",
		p.queue, p.part);
	pack(&p, &frames, &ids);
	seg_pack(buf_span(&frames), &blob);
	buf_printf(&out,
		"select verdict from queen.push_v1('" TENANT "', array[%lld],"
		" array[%d], array[",
		(long long)part_id(p.queue, p.part), p.n);
	hex_of(buf_span(&ids), &out);
	buf_printf(&out, "], array[%zu], array[", frames.len);
	if (p.seal)
		buf_printf(&out, "%d", seal_key_id(p.seal));
	else
		buf_printf(&out, "null");
	buf_printf(&out, "]::smallint[], array[");
	hex_of(buf_span(&blob), &out);
	buf_printf(&out, "], array[null]::bigint[], array[null]::timestamptz[],"
			 " '{}', '{}', '{}', '{}')");
	buf_putc(&out, '\0');
	assert_string_equal(pgserver_value(sql, out.p), "0");
	buf_fini(&frames);
	buf_fini(&ids);
	buf_fini(&blob);
	buf_fini(&out);
}

static inline void
push(const char *queue, const char *part, int from, int n)
{
	push_what((struct pushed){ queue, part, from, n, NULL, 0 });
}

/* ---- nodes ---- */

struct node {
	struct conndoc doc;
	struct connchild_task task;
	struct ctx x;
	int64_t watched;
	int watches, complaints;
	struct connfault complaint;
	/* of its waits */
	struct feed_batch *got[GOT_MAX];
	int got_n;
	struct connfault why; /* code NULL: well */
	int whys;
	/* of acks, extensions, settling */
	int acks, extensions, settled;
	size_t filed;
	bool extended;
};

static struct node nodes[NODES];
static struct node *const a = &nodes[0], *const b = &nodes[1];

static inline void
on_watch(void *arg, int64_t queue_id)
{
	struct node *n = arg;

	n->watched = queue_id;
	n->watches++;
}

static inline void
on_complaint(void *arg, const struct connfault *why)
{
	struct node *n = arg;

	n->complaint = *why;
	n->complaints++;
}

static inline void
on_batch(void *arg, struct feed_batch *batch, const struct connfault *why)
{
	struct node *n = arg;

	if (batch) {
		assert_true(n->got_n < GOT_MAX);
		n->got[n->got_n++] = batch;
		n->why.code = NULL;
		return;
	}
	n->whys++;
	if (why)
		n->why = *why;
	else
		n->why.code = NULL;
}

static inline void
on_ack(void *arg, size_t filed)
{
	struct node *n = arg;

	n->acks++;
	n->filed = filed;
}

static inline void
on_extend(void *arg, bool ok)
{
	struct node *n = arg;

	n->extensions++;
	n->extended = ok;
}

static inline void
on_settled(void *arg)
{
	((struct node *)arg)->settled++;
}

static inline void
on_link(void *arg, enum pgconn_event ev, const struct err *why)
{
	(void)arg;
	(void)ev;
	(void)why;
}

/* ---- waiting ---- */

struct patience {
	struct loop_timer timer;
	bool (*until)(void);
	int64_t deadline_ms;
};

static inline void
on_look(void *arg)
{
	struct patience *p = arg;

	if (p->until() || clk_mono_ms() > p->deadline_ms)
		loop_stop(loop);
	else
		loop_timer_start(&p->timer, 2);
}

/* A failure names what was waited for. */
#define run_until(until) run_until_of(until, #until, __LINE__)

static inline void
run_until_of(bool (*until)(void), const char *what, int line)
{
	struct patience p = { .until = until,
		.deadline_ms = clk_mono_ms() + PATIENCE_MS };

	loop_timer_init(&p.timer, loop, on_look, &p);
	loop_timer_start(&p.timer, 0);
	loop_run(loop);
	loop_timer_fini(&p.timer);
	if (!until())
		fail_msg("line %d: waited for %s", line, what);
}

static inline bool
a_got(void)
{
	return a->got_n > 0;
}

static inline bool
a_acked(void)
{
	return a->acks > 0;
}

static inline bool
a_extended(void)
{
	return a->extensions > 0;
}

static inline bool
a_knows(void)
{
	return a->x.feed->group_id != 0 && !a->x.feed->walking;
}

static inline bool
a_fails(void)
{
	return a->why.code != NULL;
}

static inline bool
a_is_well(void)
{
	return a->why.code == NULL && !feed_is_failing(a->x.feed);
}

static inline bool
a_is_idle(void)
{
	const struct feed *f = a->x.feed;

	return f->group_id && !f->walking && !f->call && !f->finding &&
	       hot_ready(f->hot) + hot_probes(f->hot) == 0;
}

/* ---- driving ---- */

/* A feed of this queue, group `g`; defaults where 0. */
static inline void
node_open_from(struct node *n, const char *queue, int64_t batch,
	int64_t lease_s, enum conndoc_start start)
{
	static const struct feed_face face = { on_watch, on_complaint, NULL };
	struct feed_face mine = face;

	memset(n, 0, sizeof(*n));
	n->doc.kind = CONNDOC_SINK;
	n->doc.sink.queue = span_of(queue);
	n->doc.sink.consumer_group = SPAN_LIT("g");
	n->doc.sink.start = start;
	n->doc.sink.batch = batch ? batch : 500;
	n->doc.sink.lease_s = lease_s ? lease_s : 60;
	assert_true(qid_parse(span_of(TENANT), &n->task.tenant));
	n->task.name = SPAN_LIT("sink");
	n->task.node = SPAN_LIT("node-a");
	n->task.doc = &n->doc;
	n->x.loop = loop;
	n->x.task = &n->task;
	n->x.work = pgconn_new(loop, server.conninfo, "work", on_link, n);
	n->x.side = pgconn_new(loop, server.conninfo, "side", on_link, n);
	mine.arg = n;
	n->x.feed = feed_new(&n->x, &mine);
}

static inline void
node_open(struct node *n, const char *queue, int64_t batch, int64_t lease_s)
{
	node_open_from(n, queue, batch, lease_s, CONNDOC_ALL);
}

static inline void
node_close(struct node *n)
{
	if (!n->x.loop)
		return;
	pgconn_free(n->x.work);
	pgconn_free(n->x.side);
	feed_free(n->x.feed);
	for (int i = 0; i < n->got_n; i++)
		feed_batch_free(n->got[i]);
	n->x.loop = NULL;
}

static inline struct feed_batch *
take_batch(struct node *n)
{
	struct feed_batch *got = n->got[0];

	assert_true(n->got_n > 0);
	memmove(n->got, n->got + 1, (size_t)--n->got_n * sizeof(n->got[0]));
	return got;
}

/* Waits until a has a batch. */
static inline struct feed_batch *
pop(void)
{
	feed_pop(a->x.feed, on_batch, a);
	run_until(a_got);
	return take_batch(a);
}

/* As results say, and waits; returns how many were filed. */
static inline size_t
ack(struct feed_batch *batch, const struct feed_result *results)
{
	a->acks = 0;
	feed_ack(a->x.feed, batch, results, on_ack, a);
	run_until(a_acked);
	feed_batch_free(batch);
	return a->filed;
}

static inline size_t
ack_all(struct feed_batch *batch)
{
	struct feed_result results[FEED_CANDIDATES] = { { 0 } };

	for (size_t i = 0; i < batch->parts_n; i++)
		results[i].done = batch->parts[i].n;
	return ack(batch, results);
}

/* Part at of the batch is these messages of that partition. */
static inline void
assert_part(const struct feed_batch *batch, size_t at, const char *queue,
	const char *part, int from, size_t n)
{
	const struct feed_part *p = &batch->parts[at];
	char txn[64];

	assert_true(at < batch->parts_n);
	assert_int_equal(p->id, part_id(queue, part));
	assert_true(span_is(p->name, part));
	assert_int_equal(p->n, n);
	for (size_t i = 0; i < n; i++) {
		const struct feed_message *m = &batch->messages[p->first + i];
		int no = from + (int)i;

		snprintf(txn, sizeof(txn), "%s-%d", part, no);
		assert_int_equal(m->part, at);
		assert_int_equal(m->offset, no);
		assert_true(span_is(m->txn, txn));
		assert_true(span_eq(m->payload, payload_of(part, no)));
	}
}

/* ---- cmocka ---- */

/* A queue name of the test's own. */
static inline const char *
new_queue(void)
{
	static char name[32];

	snprintf(name, sizeof(name), "q%d", ++queues);
	return name;
}

static inline int
group_setup(void **state)
{
	struct err e = ERR_ZERO;

	(void)state;
	log_init("error", false);
	pgserver_init(&server);
	sql = pgserver_connect(&server, "postgres");
	if (schema_apply(sql, 5000, &cell, NULL, NULL, &e) != 0)
		fail_msg("%s", e.text);
	loop = loop_new();
	return 0;
}

static inline int
group_teardown(void **state)
{
	(void)state;
	loop_free(loop);
	PQfinish(sql);
	pgserver_fini(&server);
	return 0;
}

static inline int
teardown(void **state)
{
	(void)state;
	for (int i = 0; i < NODES; i++)
		node_close(&nodes[i]);
	return 0;
}

#endif
