/* SPDX-License-Identifier: Apache-2.0 */
/* Dead letters back into the log: one, or all in slices. */
#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "queue.h"
#include "reply.h"
#include "stream.h"
#include "stream_int.h"
#include "ticks.h"
#include "wait.h"

enum { SLICE = 1000 };

struct replay {
	struct span queue;
	int64_t id; /* the one; of all: behind it */
	bool behind;
	int64_t replayed, failed;
	struct span first_error;
};

static void
fill_queue(struct hsrv_req *r, const struct replay *q, struct pgargs *a)
{
	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->queue);
}

static void
refuse(struct hsrv_req *r, const struct replay *q, int verdict)
{
	stream_refuse(r, verdict,
		&(struct stream_names){ .queue = q->queue, .dead = q->id });
}

/* ---- one ---- */

static const struct pgstmt replay_stmt = { .name = "stream_dead_replay",
	.sql = "select verdict, queue_id, message_id, seq, type, created_at, "
	       "bytes from queen.stream_dead_replay_v1($1, $2, $3)" };
enum {
	REPLAY_VERDICT,
	REPLAY_QUEUE_ID,
	REPLAY_MESSAGE,
	REPLAY_SEQ,
	REPLAY_TYPE,
	REPLAY_AT,
	REPLAY_BYTES
};

static void
fill_replay(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct replay *q = arg;

	fill_queue(r, q, a);
	pgargs_i64(a, q->id);
}

static void
replayed(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct replay *q = arg;
	int verdict = pgbin_i16(res, 0, REPLAY_VERDICT);
	int64_t queue_id;
	struct jwrite w;

	if (verdict != STREAM_OK) {
		refuse(r, q, verdict);
		return;
	}
	queue_id = pgbin_i64(res, 0, REPLAY_QUEUE_ID);
	waits_tell(ctx_of(r)->waits, WAIT_EVENTS, queue_id);
	ticks_grew(ctx_of(r)->ticks, queue_id, pgbin_i32(res, 0, REPLAY_BYTES),
		false);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_i64(&w, "replayed", 1);
	jwrite_key(&w, "message");
	jwrite_object(&w);
	jwrite_kv_str(&w, "id", pgbin_bytes(res, 0, REPLAY_MESSAGE));
	jwrite_kv_i64(&w, "seq", pgbin_i64(res, 0, REPLAY_SEQ));
	jwrite_kv_str(&w, "type", pgbin_bytes(res, 0, REPLAY_TYPE));
	jwrite_key(&w, "created_at");
	jwrite_iso_ms(&w, pgbin_time(res, 0, REPLAY_AT));
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
stream_dead_replay(struct hsrv_req *r)
{
	struct replay *q = arena_zalloc(hsrv_arena(r), sizeof(*q));
	struct call c = { .stmt = &replay_stmt,
		.lane = LANE_STREAM,
		.fill = fill_replay,
		.done = replayed,
		.arg = q };

	if (queue_of_path(r, &q->queue) &&
		stream_path_number(r, 1, "id", &q->id))
		call_run(r, &c);
}

/* ---- all: each slice a transaction ---- */

static const struct pgstmt replay_all_stmt = { .name = "stream_dead_replay_all",
	.sql = "select verdict, queue_id, replayed, failed, first_error, more, "
	       "after, bytes "
	       "from queen.stream_dead_replay_all_v1($1, $2, $3, $4)" };
enum {
	ALL_VERDICT,
	ALL_QUEUE_ID,
	ALL_REPLAYED,
	ALL_FAILED,
	ALL_ERROR,
	ALL_MORE,
	ALL_AFTER,
	ALL_BYTES
};

static void
fill_all(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct replay *q = arg;

	fill_queue(r, q, a);
	pgargs_i32(a, SLICE);
	if (q->behind)
		pgargs_i64(a, q->id);
	else
		pgargs_null(a);
}

static void run_all(struct hsrv_req *r, struct replay *q);

static void
tell(struct ctx *x, const PGresult *res)
{
	int64_t queue_id = pgbin_i64(res, 0, ALL_QUEUE_ID);

	waits_tell(x->waits, WAIT_EVENTS, queue_id);
	ticks_grew(x->ticks, queue_id, pgbin_i64(res, 0, ALL_BYTES), false);
}

static void
all_replayed(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct replay *q = arg;
	int verdict = pgbin_i16(res, 0, ALL_VERDICT);
	int64_t n;
	struct jwrite w;

	if (verdict != STREAM_OK) {
		refuse(r, q, verdict);
		return;
	}
	n = pgbin_i32(res, 0, ALL_REPLAYED);
	if (n > 0)
		tell(ctx_of(r), res);
	q->replayed += n;
	q->failed += pgbin_i32(res, 0, ALL_FAILED);
	if (!q->first_error.n && !pgbin_null(res, 0, ALL_ERROR))
		q->first_error = arena_dup(
			hsrv_arena(r), pgbin_bytes(res, 0, ALL_ERROR));
	if (pgbin_bool(res, 0, ALL_MORE)) {
		q->behind = true;
		q->id = pgbin_i64(res, 0, ALL_AFTER);
		run_all(r, q);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_i64(&w, "replayed", q->replayed);
	jwrite_kv_i64(&w, "failed", q->failed);
	if (q->first_error.n)
		jwrite_kv_str(&w, "first_error", q->first_error);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
run_all(struct hsrv_req *r, struct replay *q)
{
	struct call c = { .stmt = &replay_all_stmt,
		.lane = LANE_STREAM,
		.fill = fill_all,
		.done = all_replayed,
		.arg = q };

	call_run(r, &c);
}

void
stream_dead_replay_all(struct hsrv_req *r)
{
	struct replay *q = arena_zalloc(hsrv_arena(r), sizeof(*q));

	if (queue_of_path(r, &q->queue))
		run_all(r, q);
}
