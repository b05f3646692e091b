/* SPDX-License-Identifier: Apache-2.0 */
/* One active batch, looked at. */
#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "queue.h"
#include "reply.h"
#include "stream.h"
#include "stream_int.h"

struct batch {
	struct span queue;
	int64_t id;
	bool payload;
	struct stream_rows out;
};

static const struct pgstmt batch_stmt = { .name = "stream_batch",
	.sql = "select seq, event_id, type, payload, headers, retry_count, "
	       "created_at, outcome, verdict, consumer, member, start_tick, "
	       "end_tick, redelivered, batch_at, size "
	       "from queen.stream_batch_v1($1, $2, $3, $4)" };
/* Of the first row, behind the columns of a message. */
enum {
	HEAD_VERDICT = STREAM_MESSAGE_COLS,
	HEAD_CONSUMER,
	HEAD_MEMBER,
	HEAD_START,
	HEAD_END,
	HEAD_AGAIN,
	HEAD_AT,
	HEAD_SIZE
};

static void
fill(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct batch *q = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->queue);
	pgargs_i64(a, q->id);
	pgargs_bool(a, q->payload);
}

static int
nacked(const PGresult *res)
{
	int n = 0;

	for (int i = 1; i < PQntuples(res); i++)
		n += pgbin_i16(res, i, STREAM_MESSAGE_COLS - 1) != 0;
	return n;
}

static void
write_head(struct jwrite *w, const struct batch *q, const PGresult *res)
{
	struct span member = pgbin_bytes(res, 0, HEAD_MEMBER);

	jwrite_key(w, "batch");
	jwrite_object(w);
	jwrite_kv_i64(w, "id", q->id);
	jwrite_kv_str(w, "queue", q->queue);
	jwrite_kv_str(w, "consumer", pgbin_bytes(res, 0, HEAD_CONSUMER));
	if (member.n)
		jwrite_kv_str(w, "member", member);
	jwrite_kv_i64(w, "start_tick", pgbin_i64(res, 0, HEAD_START));
	jwrite_kv_i64(w, "end_tick", pgbin_i64(res, 0, HEAD_END));
	jwrite_kv_i64(w, "size", pgbin_i64(res, 0, HEAD_SIZE));
	jwrite_kv_bool(w, "redelivered", pgbin_bool(res, 0, HEAD_AGAIN));
	jwrite_key(w, "created_at");
	jwrite_iso_ms(w, pgbin_time(res, 0, HEAD_AT));
	jwrite_kv_i64(w, "nacked", nacked(res));
	jwrite_end(w);
}

static void
done(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct batch *q = arg;
	int verdict = pgbin_i16(res, 0, HEAD_VERDICT);
	struct jwrite w;

	if (verdict != STREAM_OK) {
		stream_refuse(r, verdict,
			&(struct stream_names){
				.queue = q->queue, .batch = q->id });
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	write_head(&w, q, res);
	q->out = (struct stream_rows){ .req = r, .payload = q->payload };
	stream_reply_rows(&q->out);
}

/* `payload=true` or `false`; false after 400. */
static bool
read_payload(struct hsrv_req *r, bool *payload)
{
	struct problem p;
	struct span s;

	if (!hsrv_query(r, "payload", &s) || span_is(s, "false"))
		return true;
	*payload = span_is(s, "true");
	if (*payload)
		return true;
	problem_field(&p, hsrv_arena(r), "payload",
		"`payload` must be true or false.");
	reply_problem(r, &p);
	return false;
}

void
stream_batch(struct hsrv_req *r)
{
	struct batch *q = arena_zalloc(hsrv_arena(r), sizeof(*q));
	struct call c = { .stmt = &batch_stmt,
		.lane = LANE_REST,
		.fill = fill,
		.done = done,
		.arg = q };

	if (queue_of_path(r, &q->queue) &&
		stream_path_number(r, 1, "batch_id", &q->id) &&
		read_payload(r, &q->payload))
		call_run(r, &c);
}
