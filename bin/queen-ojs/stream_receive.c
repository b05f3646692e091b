/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receives.  Each try is one call; between tries of one that waits there is
 * no connection.
 */
#include <stdlib.h>

#include "arena.h"
#include "call.h"
#include "claims.h"
#include "clk.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "loop.h"
#include "pgpool.h"
#include "queue.h"
#include "reply.h"
#include "stream.h"
#include "stream_body.h"
#include "stream_int.h"
#include "wait.h"

/* Of payloads and headers in one answer; a shorter batch is chosen then. */
static const int64_t max_bytes = 64 << 20;

struct receive {
	struct wait wait;
	struct hsrv_req *req;
	struct span queue;
	struct stream_receive in;
	int64_t queue_id;
	bool begun; /* the waiter is in its list */
	bool last;
	struct stream_rows out;
};

static const struct pgstmt receive_stmt = { .name = "stream_receive",
	.sql = "select seq, event_id, type, payload, headers, retry_count, "
	       "created_at, outcome, verdict, queue_id, batch_id, start_tick, "
	       "end_tick, redelivered, batch_at, size, need "
	       "from queen.stream_receive_v1($1, $2, $3, $4, $5, $6, $7)" };
/* Of the first row, behind the columns of a message. */
enum {
	HEAD_VERDICT = STREAM_MESSAGE_COLS,
	HEAD_QUEUE_ID,
	HEAD_BATCH_ID,
	HEAD_START,
	HEAD_END,
	HEAD_AGAIN,
	HEAD_AT,
	HEAD_SIZE,
	HEAD_NEED
};

static void
fill(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct receive *q = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->queue);
	pgargs_text(a, q->in.consumer);
	if (q->in.member.n)
		pgargs_text(a, q->in.member);
	else
		pgargs_null(a);
	pgargs_i32(a, q->in.max);
	pgargs_i64(a, max_bytes);
	if (q->in.dead_ms)
		pgargs_i64(a, q->in.dead_ms);
	else
		pgargs_null(a);
}

static void
end_wait(struct receive *q)
{
	if (q->begun)
		wait_end(ctx_of(q->req)->waits, &q->wait, false);
	q->begun = false;
}

/* ---- the answer ---- */

static void
write_head(struct receive *q, const PGresult *res)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(q->req));
	jwrite_object(&w);
	jwrite_key(&w, "batch");
	jwrite_object(&w);
	jwrite_kv_i64(&w, "id", pgbin_i64(res, 0, HEAD_BATCH_ID));
	jwrite_kv_str(&w, "queue", q->queue);
	jwrite_kv_str(&w, "consumer", q->in.consumer);
	if (q->in.member.n)
		jwrite_kv_str(&w, "member", q->in.member);
	jwrite_kv_i64(&w, "start_tick", pgbin_i64(res, 0, HEAD_START));
	jwrite_kv_i64(&w, "end_tick", pgbin_i64(res, 0, HEAD_END));
	jwrite_kv_i64(&w, "size", pgbin_i64(res, 0, HEAD_SIZE));
	jwrite_kv_bool(&w, "redelivered", pgbin_bool(res, 0, HEAD_AGAIN));
	jwrite_key(&w, "created_at");
	jwrite_iso_ms(&w, pgbin_time(res, 0, HEAD_AT));
	jwrite_end(&w);
}

static void
answer_batch(struct receive *q, const PGresult *res)
{
	write_head(q, res);
	q->out = (struct stream_rows){ .req = q->req, .payload = true };
	stream_reply_rows(&q->out);
}

static void
answer_nothing(struct receive *q)
{
	buf_puts(hsrv_out(q->req), "{\"batch\":null,\"messages\":[]}");
	hsrv_reply(q->req, 200);
}

static void
answer_too_large(struct receive *q, const PGresult *res)
{
	long long size = pgbin_i64(res, 0, HEAD_SIZE),
		  need = pgbin_i64(res, 0, HEAD_NEED);
	struct span details = arena_printf(hsrv_arena(q->req),
		"\"max\":%d,\"batch_size\":%lld,\"smallest_max\":%lld",
		q->in.max, size, need);

	reply_no(q->req, 413, "batch_too_large",
		arena_cstr(hsrv_arena(q->req), details),
		"The %s batch has %lld messages, `max` is %d.",
		pgbin_bool(res, 0, HEAD_AGAIN) ? "active" : "smallest next",
		need, q->in.max);
}

/* ---- tries ---- */

static void run(struct receive *q);

static void
again(struct wait *w, bool last)
{
	struct receive *q = (struct receive *)w;

	q->last = last;
	run(q);
}

static void
begin_wait(struct receive *q, int64_t queue_id)
{
	q->queue_id = queue_id;
	q->begun = true;
	wait_begin(ctx_of(q->req)->waits, &q->wait);
}

/* True when it tries once more, now or later. */
static bool
keep_waiting(struct receive *q, int64_t queue_id)
{
	struct ctx *x = ctx_of(q->req);

	if (q->last || q->in.wait_ms == 0)
		return false;
	claims_queue(x->claims, ctx_tenant(q->req), q->queue, queue_id,
		loop_now_ms(x->loop));
	if (q->begun && q->queue_id == queue_id)
		return wait_park(x->waits, &q->wait);
	/* Of what came before the waiter was in its list it had no hint. */
	end_wait(q);
	begin_wait(q, queue_id);
	run(q);
	return true;
}

static void
done(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct receive *q = arg;
	int verdict = pgbin_i16(res, 0, HEAD_VERDICT);

	if (verdict == STREAM_NOTHING &&
		keep_waiting(q, pgbin_i64(res, 0, HEAD_QUEUE_ID)))
		return;
	end_wait(q);
	if (verdict == STREAM_OK)
		answer_batch(q, res);
	else if (verdict == STREAM_NOTHING)
		answer_nothing(q);
	else if (verdict == STREAM_TOO_LARGE)
		answer_too_large(q, res);
	else
		stream_refuse(r, verdict,
			&(struct stream_names){ .queue = q->queue,
				.consumer = q->in.consumer });
}

static void
failed(struct hsrv_req *r, void *arg, const struct err *e)
{
	struct receive *q = arg;

	/* nothing was sent for it, and it has time */
	if (q->begun && !q->last && pgpool_had_none(e) &&
		wait_park(ctx_of(r)->waits, &q->wait))
		return;
	end_wait(q);
	call_fail(r, e);
}

static void
run(struct receive *q)
{
	struct call c = { .stmt = &receive_stmt,
		.lane = LANE_STREAM,
		.fill = fill,
		.done = done,
		.failed = failed,
		.arg = q };

	call_run(q->req, &c);
}

void
stream_receive(struct hsrv_req *r)
{
	struct arena *a = hsrv_arena(r);
	struct receive *q = arena_zalloc(a, sizeof(*q));
	struct problem p;
	struct span body;
	int64_t known;

	if (!queue_of_path(r, &q->queue) || !reply_object(r, &body))
		return;
	if (stream_body_receive(body, a, &q->in, &p) != 0) {
		reply_problem(r, &p);
		return;
	}
	if (q->in.wait_ms > WAIT_MAX_MS)
		q->in.wait_ms = WAIT_MAX_MS;
	q->req = r;
	q->wait = (struct wait){ .req = r,
		.kind = WAIT_EVENTS,
		.queue_ids = &q->queue_id,
		.queues_n = 1,
		.deadline_ms = clk_mono_ms() + q->in.wait_ms,
		.again = again };
	known = claims_queue_id(ctx_of(r)->claims, ctx_tenant(r), q->queue);
	if (known && q->in.wait_ms > 0)
		begin_wait(q, known);
	run(q);
}
