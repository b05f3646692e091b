/* SPDX-License-Identifier: Apache-2.0 */
/* Appends: one message, or up to a thousand, all or none. */
#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "qid.h"
#include "queue.h"
#include "reply.h"
#include "settings.h"
#include "stream.h"
#include "stream_body.h"
#include "stream_int.h"
#include "ticks.h"
#include "wait.h"

/* Events without a tick after which a consumer that was away needs one. */
enum { TICK_AFTER = 500 };

struct append {
	struct span queue;
	struct stream_message *m;
	size_t n;
	bool batch;
	struct stream_make make;
};

static const struct pgstmt append_stmt = { .name = "stream_append",
	.sql = "select verdict, queue_id, seq, created_at, since_tick "
	       "from queen.stream_append_v1($1, $2, $3, $4, $5, $6)" };
enum { COL_VERDICT, COL_QUEUE_ID, COL_SEQ, COL_AT, COL_SINCE_TICK };

static void
fill(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct append *q = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->queue);
	pgargs_array(a, PGARGS_TEXT);
	for (size_t i = 0; i < q->n; i++)
		pgargs_item_text(a, q->m[i].id);
	pgargs_close(a);
	pgargs_array(a, PGARGS_TEXT);
	for (size_t i = 0; i < q->n; i++)
		pgargs_item_text(a, q->m[i].type);
	pgargs_close(a);
	pgargs_array(a, PGARGS_TEXT);
	for (size_t i = 0; i < q->n; i++)
		pgargs_item_text(a, q->m[i].payload);
	pgargs_close(a);
	pgargs_array(a, PGARGS_TEXT);
	for (size_t i = 0; i < q->n; i++)
		if (q->m[i].headers.n)
			pgargs_item_text(a, q->m[i].headers);
		else
			pgargs_item_null(a);
	pgargs_close(a);
}

/* ---- the answer ---- */

static void
write_message(struct jwrite *w, const struct stream_message *m,
	struct pgbin_array *seqs, int64_t at_us)
{
	struct span seq;
	bool null;

	jwrite_object(w);
	jwrite_kv_str(w, "id", m->id);
	if (pgbin_array_next(seqs, &seq, &null))
		jwrite_kv_i64(w, "seq", pgbin_span_i64(seq));
	jwrite_kv_str(w, "type", m->type);
	jwrite_key(w, "created_at");
	jwrite_iso_ms(w, at_us);
	jwrite_end(w);
}

static void
answer(struct hsrv_req *r, const struct append *q, const PGresult *res)
{
	struct pgbin_array seqs = pgbin_array(res, 0, COL_SEQ);
	int64_t at_us = pgbin_time(res, 0, COL_AT);
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	if (q->batch) {
		jwrite_key(&w, "messages");
		jwrite_array(&w);
		for (size_t i = 0; i < q->n; i++)
			write_message(&w, &q->m[i], &seqs, at_us);
		jwrite_end(&w);
		jwrite_kv_i64(&w, "count", (int64_t)q->n);
	} else {
		jwrite_key(&w, "message");
		write_message(&w, q->m, &seqs, at_us);
	}
	jwrite_end(&w);
	hsrv_reply(r, 201);
}

static int64_t
bytes_of(const struct append *q)
{
	size_t n = 0;

	for (size_t i = 0; i < q->n; i++)
		n += q->m[i].id.n + q->m[i].type.n + q->m[i].payload.n +
		     q->m[i].headers.n;
	return (int64_t)n;
}

static void
done(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct append *q = arg;
	struct ctx *x = ctx_of(r);
	int verdict = pgbin_i16(res, 0, COL_VERDICT);
	int64_t queue_id;

	if (verdict == STREAM_NOTHING) {
		stream_make(r, &q->make);
		return;
	}
	if (verdict == STREAM_FULL) {
		stream_later(r, 429, "queue_full",
			"The stream holds as many events as its quota allows.");
		return;
	}
	if (verdict != STREAM_OK) {
		stream_refuse(r, verdict,
			&(struct stream_names){ .queue = q->queue });
		return;
	}
	queue_id = pgbin_i64(res, 0, COL_QUEUE_ID);
	waits_tell(x->waits, WAIT_EVENTS, queue_id);
	ticks_grew(x->ticks, queue_id, bytes_of(q),
		pgbin_i64(res, 0, COL_SINCE_TICK) > TICK_AFTER);
	answer(r, q, res);
}

/* ---- the request ---- */

static void
run(struct hsrv_req *r, void *arg)
{
	struct call c = { .stmt = &append_stmt,
		.lane = LANE_STREAM,
		.fill = fill,
		.done = done,
		.arg = arg };

	call_run(r, &c);
}

static void
name_messages(struct append *q, struct arena *a)
{
	for (size_t i = 0; i < q->n; i++) {
		struct qid id;
		char *text;

		if (q->m[i].id.n)
			continue;
		id = qid_new();
		text = arena_alloc(a, QID_TEXT_MAX);
		q->m[i].id = span_make(qid_text(&id, text), QID_TEXT);
	}
}

static void
append(struct hsrv_req *r, bool batch)
{
	struct arena *a = hsrv_arena(r);
	struct append *q = arena_zalloc(a, sizeof(*q));
	int64_t limit = ctx_of(r)->conf->max_envelope_bytes;
	struct span body;
	struct problem p;
	int rc;

	if (!queue_of_path(r, &q->queue) || !reply_object(r, &body))
		return;
	q->batch = batch;
	if (batch) {
		rc = stream_body_append_batch(body, a, limit, &q->m, &q->n, &p);
	} else {
		q->m = arena_zalloc(a, sizeof(*q->m));
		q->n = 1;
		rc = stream_body_append(body, a, limit, q->m, &p);
	}
	if (rc != 0) {
		reply_problem(r, &p);
		return;
	}
	name_messages(q, a);
	q->make = (struct stream_make){
		.queue = q->queue, .again = run, .arg = q
	};
	run(r, q);
}

void
stream_append(struct hsrv_req *r)
{
	append(r, false);
}

void
stream_append_batch(struct hsrv_req *r)
{
	append(r, true);
}
