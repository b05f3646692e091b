/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of batches: the whole acknowledged, or one message sent back. */
#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "reply.h"
#include "stream.h"
#include "stream_body.h"
#include "stream_int.h"

static void
refuse(struct hsrv_req *r, const struct stream_end *q, int verdict)
{
	stream_refuse(r, verdict,
		&(struct stream_names){ .queue = q->queue,
			.consumer = q->consumer,
			.message = q->message,
			.batch = q->batch,
			.seq = q->seq });
}

static void
put_text(struct pgargs *a, struct span s)
{
	if (s.n)
		pgargs_text(a, s);
	else
		pgargs_null(a);
}

/* Parsed into *q; false after the answer. */
static struct stream_end *
read_end(struct hsrv_req *r, int (*parse)(struct span, struct arena *,
				     struct stream_end *, struct problem *))
{
	struct arena *a = hsrv_arena(r);
	struct stream_end *q = arena_zalloc(a, sizeof(*q));
	struct problem p;
	struct span body;

	if (!reply_object(r, &body))
		return NULL;
	if (parse(body, a, q, &p) == 0)
		return q;
	reply_problem(r, &p);
	return NULL;
}

/* ---- ack ---- */

static const struct pgstmt ack_stmt = { .name = "stream_ack",
	.sql = "select verdict, consumer, last_tick, next_tick "
	       "from queen.stream_ack_v1($1, $2, $3, $4, $5)" };
enum { ACK_VERDICT, ACK_CONSUMER, ACK_LAST, ACK_NEXT };

static void
fill_ack(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct stream_end *q = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->queue);
	pgargs_i64(a, q->batch);
	put_text(a, q->consumer);
	put_text(a, q->member);
}

static void
acked(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct stream_end *q = arg;
	int verdict = pgbin_i16(res, 0, ACK_VERDICT);
	struct jwrite w;

	if (verdict != STREAM_OK) {
		refuse(r, q, verdict);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "acknowledged", true);
	jwrite_kv_str(&w, "queue", q->queue);
	jwrite_kv_i64(&w, "batch_id", q->batch);
	jwrite_kv_str(&w, "consumer", pgbin_bytes(res, 0, ACK_CONSUMER));
	jwrite_kv_i64(&w, "last_tick", pgbin_i64(res, 0, ACK_LAST));
	jwrite_kv_i64(&w, "next_tick", pgbin_i64(res, 0, ACK_NEXT));
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
stream_ack(struct hsrv_req *r)
{
	struct stream_end *q = read_end(r, stream_body_ack);
	struct call c = { .stmt = &ack_stmt,
		.lane = LANE_STREAM,
		.fill = fill_ack,
		.done = acked,
		.arg = q };

	if (q)
		call_run(r, &c);
}

/* ---- nack ---- */

static const struct pgstmt nack_stmt = { .name = "stream_nack",
	.sql = "select verdict, message_id, seq, outcome, retry_count, "
	       "max_retries, deliver_at, dead_letter_id, seqs "
	       "from queen.stream_nack_v1($1, $2, $3, $4, $5, $6, $7)" };
enum {
	NACK_VERDICT,
	NACK_MESSAGE,
	NACK_SEQ,
	NACK_OUTCOME,
	NACK_RETRIES,
	NACK_MAX,
	NACK_AT,
	NACK_DEAD,
	NACK_SEQS
};
enum { OUTCOME_RETRY = 1 };

static void
fill_nack(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct stream_end *q = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->queue);
	pgargs_i64(a, q->batch);
	put_text(a, q->message);
	if (q->seq)
		pgargs_i64(a, q->seq);
	else
		pgargs_null(a);
	if (q->retry_ms >= 0)
		pgargs_i64(a, q->retry_ms);
	else
		pgargs_null(a);
	put_text(a, q->reason);
}

static void
answer_ambiguous(
	struct hsrv_req *r, const struct stream_end *q, const PGresult *res)
{
	struct pgbin_array seqs = pgbin_array(res, 0, NACK_SEQS);
	struct buf b = BUF_ZERO;
	struct jwrite w;
	struct span seq;
	bool null;

	buf_puts(&b, "\"message\":");
	jwrite_quoted(&b, q->message);
	buf_puts(&b, ",\"seqs\":");
	jwrite_init(&w, &b);
	jwrite_array(&w);
	while (pgbin_array_next(&seqs, &seq, &null))
		jwrite_i64(&w, pgbin_span_i64(seq));
	jwrite_end(&w);
	buf_putc(&b, '\0');
	reply_no(r, 409, "conflict", b.p,
		"Several messages of the batch have this id; say which `seq`.");
	buf_fini(&b);
}

static void
write_nack(struct jwrite *w, const PGresult *res)
{
	bool retry = pgbin_i16(res, 0, NACK_OUTCOME) == OUTCOME_RETRY;

	jwrite_kv_str(w, "message_id", pgbin_bytes(res, 0, NACK_MESSAGE));
	jwrite_kv_i64(w, "seq", pgbin_i64(res, 0, NACK_SEQ));
	jwrite_kv_cstr(w, "outcome", retry ? "retry" : "dead_letter");
	jwrite_kv_i64(w, "retry_count", pgbin_i32(res, 0, NACK_RETRIES));
	jwrite_kv_i64(w, "max_retries", pgbin_i32(res, 0, NACK_MAX));
	if (retry && !pgbin_null(res, 0, NACK_AT)) {
		jwrite_key(w, "deliver_at");
		jwrite_iso_ms(w, pgbin_time(res, 0, NACK_AT));
	}
	if (!retry && !pgbin_null(res, 0, NACK_DEAD))
		jwrite_kv_i64(
			w, "dead_letter_id", pgbin_i64(res, 0, NACK_DEAD));
}

static void
nacked(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct stream_end *q = arg;
	int verdict = pgbin_i16(res, 0, NACK_VERDICT);
	struct jwrite w;

	if (verdict == STREAM_AMBIGUOUS) {
		answer_ambiguous(r, q, res);
		return;
	}
	if (verdict != STREAM_OK) {
		refuse(r, q, verdict);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_str(&w, "queue", q->queue);
	jwrite_kv_i64(&w, "batch_id", q->batch);
	write_nack(&w, res);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
stream_nack(struct hsrv_req *r)
{
	struct stream_end *q = read_end(r, stream_body_nack);
	struct call c = { .stmt = &nack_stmt,
		.lane = LANE_STREAM,
		.fill = fill_nack,
		.done = nacked,
		.arg = q };

	if (q)
		call_run(r, &c);
}
