/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Acknowledgements.  Messages are named in the order they were claimed, so
 * that SQL can compare them with what it has: the completed ones, then one
 * that goes to the dead letters, or one to be tried again, either of which
 * ends the lease of its partition and lets the rest come at once.
 */
#include <stdlib.h>
#include <string.h>

#include "backoff.h"
#include "buf.h"
#include "conndoc.h"
#include "connchild.h"
#include "err.h"
#include "feed_int.h"
#include "hot.h"
#include "jspan.h"
#include "pgbin.h"
#include "pgconn.h"
#include "qid.h"

enum {
	AGAIN_MS = 100,
	AGAIN_MAX_MS = 2000,
	AGAIN_FOR_MS = 5000, /* at least, also when the lease is over */
};

/* As ack_v1 takes them, and as it answers. */
enum { STATUS_COMPLETED = 0, STATUS_RETRY = 2, STATUS_DLQ = 3 };
enum { ACK_RELEASED = 0, ACK_KEPT = 1, ACK_STALE = 3 };

static const struct pgstmt STMT_ACK = { "feed_ack",
	"select ord, verdict, committed, dead, more from queen.ack_v1($1, $2,"
	" $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)" };

struct acking {
	struct feed_flight flight; /* first */
	struct feed_batch *batch;
	struct feed_result *results; /* in the batch's arena */
	struct qid *dead; /* ids of dead letters, the same in every try */
	void (*fn)(void *arg, size_t filed);
	void *arg;
	struct loop_timer timer;
	int64_t until_ms, wait_ms;
	bool again; /* some try before had no answer */
};

static void
acking_drop(struct feed_flight *fl)
{
	struct acking *k = (struct acking *)fl;

	loop_timer_fini(&k->timer);
	free(k);
}

/* How many messages of the part are named. */
static size_t
named(const struct acking *k, size_t i)
{
	const struct feed_result *r = &k->results[i];

	return r->dlq || r->done == k->batch->parts[i].n ? r->done
							 : r->done + 1;
}

static const struct feed_message *
message_of(const struct acking *k, size_t part, size_t at)
{
	return &k->batch->messages[k->batch->parts[part].first + at];
}

static void
put_ids(struct pgargs *a, const struct acking *k)
{
	const struct feed *f = k->flight.feed;
	struct buf ids = BUF_ZERO;

	pgargs_array(a, PGARGS_BYTEA);
	for (size_t i = 0; i < k->batch->parts_n; i++) {
		buf_reset(&ids);
		for (size_t m = 0; m < named(k, i); m++) {
			struct hash_id h;

			hash_id(f->hash_key, message_of(k, i, m)->txn, &h);
			buf_put_span(&ids,
				span_make((const char *)h.b, sizeof(h.b)));
		}
		pgargs_item_bytea(a, buf_span(&ids));
	}
	pgargs_close(a);
	buf_fini(&ids);
}

static void
put_status(struct pgargs *a, const struct acking *k)
{
	struct buf b = BUF_ZERO;

	pgargs_array(a, PGARGS_BYTEA);
	for (size_t i = 0; i < k->batch->parts_n; i++) {
		const struct feed_result *r = &k->results[i];
		size_t n = named(k, i);

		if (!r->dlq && n == r->done) {
			pgargs_item_null(a);
			continue;
		}
		buf_reset(&b);
		memset(buf_reserve(&b, n), STATUS_COMPLETED, n);
		b.len = n;
		b.p[n - 1] = r->dlq ? STATUS_DLQ : STATUS_RETRY;
		pgargs_item_bytea(a, buf_span(&b));
	}
	pgargs_close(a);
	buf_fini(&b);
}

#define EACH_DEAD(k, i)                                                        \
	for (size_t i = 0; i < (k)->batch->parts_n; i++)                       \
		if ((k)->results[i].dlq)

static void
put_dead(struct pgargs *a, const struct acking *k)
{
	const struct feed_result *r = k->results;

	pgargs_array(a, PGARGS_I32);
	EACH_DEAD(k, i)
	pgargs_item_i32(a, (int32_t)i + 1);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	EACH_DEAD(k, i)
	pgargs_item_i32(a, (int32_t)r[i].done - 1);
	pgargs_close(a);
	pgargs_array(a, PGARGS_TEXT);
	EACH_DEAD(k, i)
	pgargs_item_text(a, r[i].text);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	EACH_DEAD(k, i)
	pgargs_item_i32(a, (int32_t)i + 1);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I64);
	EACH_DEAD(k, i)
	pgargs_item_i64(a, message_of(k, i, r[i].done - 1)->offset);
	pgargs_close(a);
	pgargs_array(a, PGARGS_BYTEA);
	EACH_DEAD(k, i)
	pgargs_item_bytea(a, message_of(k, i, r[i].done - 1)->frame);
	pgargs_close(a);
	pgargs_array(a, PGARGS_TIMESTAMPTZ);
	EACH_DEAD(k, i)
	pgargs_item_time(a, message_of(k, i, r[i].done - 1)->created_at_us);
	pgargs_close(a);
}

static void
put_same(struct pgargs *a, const struct acking *k, int64_t v)
{
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < k->batch->parts_n; i++)
		pgargs_item_i64(a, v);
	pgargs_close(a);
}

static void on_acked(void *arg, const PGresult *res, const struct err *e);

static void
acking_send(void *arg)
{
	struct acking *k = arg;
	struct feed *f = k->flight.feed;
	const struct feed_batch *b = k->batch;
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &f->x->task->tenant);
	put_same(&a, k, b->group_id);
	pgargs_array(&a, PGARGS_I64);
	for (size_t i = 0; i < b->parts_n; i++)
		pgargs_item_i64(&a, b->parts[i].id);
	pgargs_close(&a);
	put_same(&a, k, b->lease_at);
	put_same(&a, k, b->lease_group);
	put_same(&a, k, b->lease_no);
	put_ids(&a, k);
	put_status(&a, k);
	put_dead(&a, k);
	pgargs_array(&a, PGARGS_UUID);
	for (size_t i = 0; i < b->parts_n; i++)
		pgargs_item_uuid(&a, &k->dead[i]);
	pgargs_close(&a);
	feed_call_sql(f->x->work, &STMT_ACK, &a, on_acked, k);
}

/* The ring learns what became of a partition. */
static void
part_end(struct feed *f, const struct feed_batch *b, int64_t part,
	int32_t verdict, bool more)
{
	if (b->group_id != f->group_id || verdict == ACK_KEPT)
		return;
	if (verdict == ACK_RELEASED && !more)
		hot_done(f->hot, part, b->lease_no);
	else
		hot_release(f->hot, part);
}

/* Filed by this try, or by one before whose answer was lost. */
static bool
was_filed(const struct acking *k, size_t i, const PGresult *res, int row)
{
	const struct feed_result *r = &k->results[i];

	if (!r->dlq)
		return false;
	if (!pgbin_null(res, row, 3))
		return true;
	return k->again && pgbin_i32(res, row, 1) == ACK_STALE &&
	       pgbin_i64(res, row, 2) == message_of(k, i, r->done - 1)->offset;
}

static void
acking_end(struct acking *k, size_t filed)
{
	struct feed *f = k->flight.feed;
	void (*fn)(void *arg, size_t filed) = k->fn;
	void *arg = k->arg;

	feed_flight_end(&k->flight);
	feed_pop_arm(f);
	fn(arg, filed);
}

/* True: it is sent again. */
static bool
try_again(struct acking *k, const struct err *e)
{
	struct feed *f = k->flight.feed;

	if ((e->kind != ERR_DB_UNKNOWN && e->kind != ERR_DB_RETRY) ||
		loop_now_ms(f->x->loop) + k->wait_ms > k->until_ms)
		return false;
	k->again |= e->kind == ERR_DB_UNKNOWN;
	loop_timer_start(&k->timer, k->wait_ms);
	k->wait_ms = backoff_next_ms(k->wait_ms, AGAIN_MS, AGAIN_MAX_MS);
	return true;
}

static void
acking_failed(struct acking *k, const struct err *e)
{
	struct feed *f = k->flight.feed;
	const struct feed_batch *b = k->batch;
	uint64_t suppressed;

	f->failures.every_ms = 10000;
	if (log_sample(&f->failures, loop_now_ms(f->x->loop), &suppressed))
		log_line(LOG_WARN, "feed", "ack failed",
			"sqlstate=%s error=%s suppressed=%llu", e->sqlstate,
			log_quote(e->text), (unsigned long long)suppressed);
	for (size_t i = 0; i < b->parts_n; i++)
		part_end(f, b, b->parts[i].id, ACK_STALE, true);
	acking_end(k, 0);
}

static void
on_acked(void *arg, const PGresult *res, const struct err *e)
{
	struct acking *k = arg;
	struct feed *f = k->flight.feed;
	size_t filed = 0;

	if (e) {
		if (!try_again(k, e))
			acking_failed(k, e);
		return;
	}
	for (int row = 0; row < PQntuples(res); row++) {
		size_t i = (size_t)pgbin_i32(res, row, 0) - 1;

		BUG(i >= k->batch->parts_n);
		filed += was_filed(k, i, res, row);
		part_end(f, k->batch, k->batch->parts[i].id,
			pgbin_i32(res, row, 1), pgbin_bool(res, row, 4));
	}
	acking_end(k, filed);
}

/* A target of another encoding may say anything; the cell takes UTF-8. */
static struct span
clean_text(struct arena *room, struct span text)
{
	char *p = arena_cstr(room, text);
	bool good = jspan_utf8(text) && !memchr(p, '\0', text.n);

	for (size_t i = 0; i < text.n && !good; i++)
		if ((uint8_t)p[i] >= 0x80 || p[i] == '\0')
			p[i] = '?';
	return span_make(p, text.n);
}

void
feed_ack(struct feed *f, struct feed_batch *b,
	const struct feed_result *results, void (*fn)(void *arg, size_t filed),
	void *arg)
{
	struct acking *k = calloc(1, sizeof(*k));
	int64_t least = loop_now_ms(f->x->loop) + AGAIN_FOR_MS;

	if (!k)
		abort();
	k->batch = b;
	k->fn = fn;
	k->arg = arg;
	k->wait_ms = AGAIN_MS;
	k->until_ms = b->lease_until_ms > least ? b->lease_until_ms : least;
	k->results = arena_alloc(&b->arena, b->parts_n * sizeof(k->results[0]));
	k->dead = arena_alloc(&b->arena, b->parts_n * sizeof(k->dead[0]));
	for (size_t i = 0; i < b->parts_n; i++) {
		k->results[i] = results[i];
		BUG(results[i].done > b->parts[i].n);
		BUG(results[i].dlq && !results[i].done);
		if (results[i].dlq)
			k->results[i].text =
				clean_text(&b->arena, results[i].text);
		k->dead[i] = qid_new();
	}
	loop_timer_init(&k->timer, f->x->loop, acking_send, k);
	feed_flight_begin(f, &k->flight, acking_drop);
	acking_send(k);
}
