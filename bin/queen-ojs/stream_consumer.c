/* SPDX-License-Identifier: Apache-2.0 */
/* Subscriptions: made, moved, listed, ended; members kept alive. */
#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "queue.h"
#include "reply.h"
#include "stream.h"
#include "stream_body.h"
#include "stream_int.h"
#include "wait.h"

struct consumer {
	struct span queue, name, member;
	struct span from; /* subscribe: n = 0, "now", or a tick */
	struct stream_make make;
};

static void
fill_name(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct consumer *q = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->queue);
	pgargs_text(a, q->name);
}

static void
refuse(struct hsrv_req *r, const struct consumer *q, int verdict)
{
	stream_refuse(r, verdict,
		&(struct stream_names){ .queue = q->queue,
			.consumer = q->name,
			.tick = q->from });
}

/* ---- subscribe ---- */

static const struct pgstmt subscribe_stmt = { .name = "stream_subscribe",
	.sql = "select verdict, queue_id, created, last_tick, next_tick, "
	       "created_at from queen.stream_subscribe_v1($1, $2, $3, $4)" };
enum { SUB_VERDICT, SUB_QUEUE_ID, SUB_CREATED, SUB_LAST, SUB_NEXT, SUB_AT };

static void
fill_subscribe(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct consumer *q = arg;

	fill_name(r, arg, a);
	if (q->from.n)
		pgargs_text(a, q->from);
	else
		pgargs_null(a);
}

static void
subscribed(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct consumer *q = arg;
	int verdict = pgbin_i16(res, 0, SUB_VERDICT);
	bool created;
	struct jwrite w;

	if (verdict == STREAM_NOTHING) {
		stream_make(r, &q->make);
		return;
	}
	if (verdict != STREAM_OK) {
		refuse(r, q, verdict);
		return;
	}
	/* A cursor that moved may have something to read at once. */
	if (q->from.n)
		waits_tell(ctx_of(r)->waits, WAIT_EVENTS,
			pgbin_i64(res, 0, SUB_QUEUE_ID));
	created = pgbin_bool(res, 0, SUB_CREATED);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "consumer");
	jwrite_object(&w);
	jwrite_kv_str(&w, "name", q->name);
	jwrite_kv_i64(&w, "last_tick", pgbin_i64(res, 0, SUB_LAST));
	jwrite_kv_i64(&w, "next_tick", pgbin_i64(res, 0, SUB_NEXT));
	jwrite_kv_bool(&w, "created", created);
	jwrite_key(&w, "created_at");
	jwrite_iso_ms(&w, pgbin_time(res, 0, SUB_AT));
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, created ? 201 : 200);
}

static void
run_subscribe(struct hsrv_req *r, void *arg)
{
	struct call c = { .stmt = &subscribe_stmt,
		.lane = LANE_STREAM,
		.fill = fill_subscribe,
		.done = subscribed,
		.arg = arg };

	call_run(r, &c);
}

void
stream_subscribe(struct hsrv_req *r)
{
	struct arena *a = hsrv_arena(r);
	struct consumer *q = arena_zalloc(a, sizeof(*q));
	struct stream_subscribe in;
	struct problem p;
	struct span body;

	if (!queue_of_path(r, &q->queue) || !reply_object(r, &body))
		return;
	if (stream_body_subscribe(body, a, &in, &p) != 0) {
		reply_problem(r, &p);
		return;
	}
	q->name = in.consumer;
	q->from = in.from;
	q->make = (struct stream_make){
		.queue = q->queue, .again = run_subscribe, .arg = q
	};
	run_subscribe(r, q);
}

/* ---- list ---- */

static const struct pgstmt list_stmt = { .name = "stream_consumers",
	.sql = "select name, last_tick, next_tick, lag_ticks, lag_events, "
	       "lag_ms, retries, active_at, batches "
	       "from queen.stream_consumers_v1($1, $2)" };
enum { LIST_NAME, LIST_NUMBERS, LIST_ACTIVE_AT = 7, LIST_BATCHES };
static const char *const list_numbers[] = { "last_tick", "next_tick",
	"lag_ticks", "lag_events", "lag_ms", "retries" };

static void
write_consumer(struct jwrite *w, const PGresult *res, int row)
{
	jwrite_object(w);
	jwrite_kv_str(w, "name", pgbin_bytes(res, row, LIST_NAME));
	for (int i = 0; i < LIST_ACTIVE_AT - LIST_NUMBERS; i++)
		if (!pgbin_null(res, row, LIST_NUMBERS + i))
			jwrite_kv_i64(w, list_numbers[i],
				pgbin_i64(res, row, LIST_NUMBERS + i));
	jwrite_key(w, "active_at");
	jwrite_iso_ms(w, pgbin_time(res, row, LIST_ACTIVE_AT));
	jwrite_kv_raw(w, "batches", pgbin_bytes(res, row, LIST_BATCHES));
	jwrite_end(w);
}

static void
listed(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct consumer *q = arg;
	struct jwrite w;

	if (PQntuples(res) == 0) {
		stream_if_queue(r, q->queue, SPAN_LIT("{\"consumers\":[]}"));
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "consumers");
	jwrite_array(&w);
	for (int i = 0; i < PQntuples(res); i++)
		write_consumer(&w, res, i);
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
fill_list(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct consumer *q = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->queue);
}

void
stream_consumers(struct hsrv_req *r)
{
	struct consumer *q = arena_zalloc(hsrv_arena(r), sizeof(*q));
	struct call c = { .stmt = &list_stmt,
		.lane = LANE_REST,
		.fill = fill_list,
		.done = listed,
		.arg = q };

	if (queue_of_path(r, &q->queue))
		call_run(r, &c);
}

/* ---- unsubscribe ---- */

static const struct pgstmt unsubscribe_stmt = { .name = "stream_unsubscribe",
	.sql = "select verdict, queue_id "
	       "from queen.stream_unsubscribe_v1($1, $2, $3)" };

static void
unsubscribed(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct consumer *q = arg;
	int verdict = pgbin_i16(res, 0, 0);
	struct jwrite w;

	if (verdict != STREAM_OK) {
		refuse(r, q, verdict);
		return;
	}
	/* Who waits for it learns that it is gone. */
	waits_tell(ctx_of(r)->waits, WAIT_EVENTS, pgbin_i64(res, 0, 1));
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "deleted", true);
	jwrite_kv_str(&w, "consumer", q->name);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
stream_unsubscribe(struct hsrv_req *r)
{
	struct consumer *q = arena_zalloc(hsrv_arena(r), sizeof(*q));
	struct call c = { .stmt = &unsubscribe_stmt,
		.lane = LANE_STREAM,
		.fill = fill_name,
		.done = unsubscribed,
		.arg = q };

	if (queue_of_path(r, &q->queue) &&
		stream_path_name(r, 1, "consumer", &q->name))
		call_run(r, &c);
}

/* ---- touch ---- */

static const struct pgstmt touch_stmt = { .name = "stream_touch",
	.sql = "select verdict, batches "
	       "from queen.stream_touch_v1($1, $2, $3, $4)" };

static void
fill_touch(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct consumer *q = arg;

	fill_name(r, arg, a);
	pgargs_text(a, q->member);
}

static void
touched(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct consumer *q = arg;
	int verdict = pgbin_i16(res, 0, 0);
	struct jwrite w;

	if (verdict != STREAM_OK) {
		refuse(r, q, verdict);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "touched", true);
	jwrite_kv_str(&w, "consumer", q->name);
	jwrite_kv_str(&w, "member", q->member);
	jwrite_kv_i64(&w, "batches", pgbin_i32(res, 0, 1));
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
stream_touch(struct hsrv_req *r)
{
	struct consumer *q = arena_zalloc(hsrv_arena(r), sizeof(*q));
	struct call c = { .stmt = &touch_stmt,
		.lane = LANE_STREAM,
		.fill = fill_touch,
		.done = touched,
		.arg = q };

	if (queue_of_path(r, &q->queue) &&
		stream_path_name(r, 1, "consumer", &q->name) &&
		stream_path_name(r, 2, "member", &q->member))
		call_run(r, &c);
}
