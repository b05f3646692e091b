/* SPDX-License-Identifier: Apache-2.0 */
/* What the stream handlers share: refusals, missing streams, messages. */
#include "stream.h"

#include <stdio.h>

#include "arena.h"
#include "call.h"
#include "clk.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "reply.h"
#include "stream_body.h"
#include "stream_int.h"
#include "wait.h"

enum { TRIES_MAX = 3 };

/* ---- refusals ---- */

void
stream_later(struct hsrv_req *r, int status, const char *code, const char *text)
{
	struct problem p = { .status = status,
		.code = code,
		.message = text,
		.retry_after_s = 1 };

	reply_problem(r, &p);
}

static void
no_number(struct hsrv_req *r, const char *what, int64_t v)
{
	reply_missing(
		r, what, arena_printf(hsrv_arena(r), "%lld", (long long)v));
}

static void
conflict(struct hsrv_req *r, const char *text, const struct stream_names *n)
{
	struct buf b = BUF_ZERO;

	buf_puts(&b, "\"queue\":");
	jwrite_quoted(&b, n->queue);
	if (n->consumer.n) {
		buf_puts(&b, ",\"consumer\":");
		jwrite_quoted(&b, n->consumer);
	}
	if (n->batch)
		buf_printf(&b, ",\"batch_id\":%lld", (long long)n->batch);
	buf_putc(&b, '\0');
	reply_no(r, 409, "conflict", b.p, "%s", text);
	buf_fini(&b);
}

void
stream_refuse(struct hsrv_req *r, int verdict, const struct stream_names *n)
{
	switch (verdict) {
	case STREAM_NO_QUEUE:
		reply_missing(r, "queue", n->queue);
		break;
	case STREAM_NO_CONSUMER:
		reply_missing(r, "consumer", n->consumer);
		break;
	case STREAM_NO_TICK:
		reply_missing(r, "tick", n->tick);
		break;
	case STREAM_NO_BATCH:
		no_number(r, "batch", n->batch);
		break;
	case STREAM_NO_MESSAGE:
		if (n->message.n)
			reply_missing(r, "message", n->message);
		else
			no_number(r, "message", n->seq);
		break;
	case STREAM_NO_DEAD:
		no_number(r, "dead_letter", n->dead);
		break;
	case STREAM_MIXED:
		conflict(r,
			"The consumer has batches of the other kind: plain and "
			"cooperative receives do not mix.",
			n);
		break;
	case STREAM_WAITS:
		conflict(r,
			"The batch is acknowledged already and waits for "
			"earlier ones.",
			n);
		break;
	case STREAM_HOLDER:
		conflict(r, "Another consumer or member holds the batch.", n);
		break;
	default:
		stream_later(r, 503, "backend_error",
			"The stream was restored and waits to be rebased.");
		break;
	}
}

/* ---- what is missing is made ---- */

static const struct pgstmt ensure_stmt = { .name = "stream_ensure",
	.sql = "select queen.stream_ensure_v1($1, $2)" };

static void
fill_ensure(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct stream_make *m = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, m->queue);
}

static void
ensured(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct stream_make *m = arg;

	waits_tell_queue(ctx_of(r)->waits, pgbin_i64(res, 0, 0));
	m->again(r, m->arg);
}

void
stream_make(struct hsrv_req *r, struct stream_make *m)
{
	struct call c = { .stmt = &ensure_stmt,
		.lane = LANE_STREAM,
		.fill = fill_ensure,
		.done = ensured,
		.arg = m };

	/* Somebody drops it as often as it is made. */
	if (m->tries++ == TRIES_MAX) {
		stream_later(
			r, 503, "backend_error", "The queue is being dropped.");
		return;
	}
	call_run(r, &c);
}

/* ---- paths ---- */

bool
stream_path_number(struct hsrv_req *r, int i, const char *field, int64_t *v)
{
	struct problem p;

	if (stream_body_number(hsrv_param(r, i), v))
		return true;
	problem_field(&p, hsrv_arena(r), field,
		"`%s` must be an integer of at least 1.", field);
	reply_problem(r, &p);
	return false;
}

bool
stream_path_name(
	struct hsrv_req *r, int i, const char *field, struct span *name)
{
	struct problem p;

	*name = hsrv_param(r, i);
	if (stream_body_name_ok(*name))
		return true;
	problem_field(&p, hsrv_arena(r), field,
		"`%s` must be 1 to 128 of A-Z a-z 0-9 _ -, and begin with a "
		"letter or digit.",
		field);
	reply_problem(r, &p);
	return false;
}

/* ---- messages ---- */

/* By hand: an answer may hold a hundred thousand of them. */
void
stream_write_message(
	struct buf *b, const PGresult *res, int row, int col, bool payload)
{
	char at[CLK_ISO_MAX];
	int outcome = pgbin_i16(res, row, col + 7);

	buf_puts(b, "{\"id\":");
	jwrite_quoted(b, pgbin_bytes(res, row, col + 1));
	buf_printf(b, ",\"seq\":%lld", (long long)pgbin_i64(res, row, col));
	buf_puts(b, ",\"type\":");
	jwrite_quoted(b, pgbin_bytes(res, row, col + 2));
	if (payload) {
		buf_puts(b, ",\"payload\":");
		buf_put_span(b, pgbin_bytes(res, row, col + 3));
		if (!pgbin_null(res, row, col + 4)) {
			buf_puts(b, ",\"headers\":");
			buf_put_span(b, pgbin_bytes(res, row, col + 4));
		}
	}
	buf_printf(b, ",\"retry_count\":%d,\"created_at\":\"",
		pgbin_i32(res, row, col + 5));
	buf_puts(b, clk_iso_ms(pgbin_time(res, row, col + 6), at));
	buf_putc(b, '"');
	if (outcome)
		buf_puts(b, outcome == 1 ? ",\"outcome\":\"retry\""
					 : ",\"outcome\":\"dead_letter\"");
	buf_putc(b, '}');
}
