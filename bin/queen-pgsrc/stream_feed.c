/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of the walsender into the pipeline, units of it to the cell.  A
 * frame that waits for an answer stops the reading, and so does a queue that
 * is full; status updates go on meanwhile, by the clock.
 */
#include <string.h>

#include "chunk.h"
#include "commit.h"
#include "connchild.h"
#include "err.h"
#include "lookup.h"
#include "pgquote.h"
#include "shape.h"
#include "stream_int.h"
#include "wal.h"

enum { REREAD_MS = 20 };

/* ---- to the cell ---- */

/* What the bundle just sent will have brought once it is in. */
static void
tally(struct stream *s)
{
	const struct unit_queue *q = &s->pipeline.queue;
	const struct unit *u = TAILQ_FIRST(&q->list);

	s->flight = (struct stream_counts){ .messages = 0 };
	s->flight_at = s->in;
	for (size_t i = 0; i < q->in_flight; i++, u = TAILQ_NEXT(u, link)) {
		s->flight.messages += u->n;
		s->flight.transactions += u->ends_txn;
		if (u->ends_txn)
			s->flight.last_commit_us = u->commit_at_us;
		s->flight_at = u->cover;
	}
	if (s->flight_at.rows > s->in.rows)
		s->flight.snapshot_rows = s->flight_at.rows - s->in.rows;
}

/* Nothing is left to wait for: a table changed, and the run is to end. */
static bool
is_last_call(const struct stream *s)
{
	return s->pipeline.reshaped && !s->pipeline.in_txn &&
	       s->pipeline.queue.units > 0;
}

void
stream_send(struct stream *s)
{
	const struct unit_queue *q = &s->pipeline.queue;
	int64_t now_ms = loop_now_ms(s->x->loop), at_ms;

	if (s->state != STREAM_RUNS || commit_is_busy(s->commit))
		return;
	if (is_last_call(s) || bundle_due(q, &s->conf.limits,
				       s->drained || s->paused, now_ms)) {
		commit_send(s->commit);
		tally(s);
		return;
	}
	at_ms = bundle_due_at_ms(q, &s->conf.limits);
	if (at_ms != INT64_MAX && !loop_timer_pending(&s->linger))
		loop_timer_start(&s->linger, at_ms - now_ms);
}

void
stream_on_linger(void *arg)
{
	stream_send(arg);
}

bool
stream_may_read(const struct stream *s)
{
	return s->state == STREAM_RUNS && !s->waiting &&
	       !(s->pipeline.reshaped && !s->pipeline.in_txn) &&
	       !bundle_backlogged(&s->pipeline.queue, &s->conf.limits);
}

/* ---- what a message asks for ---- */

static const struct start_table *
about(const struct stream *s, const struct shape_table *t)
{
	return &s->found->about[t - s->found->tables];
}

static void
on_type(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct stream *s = arg;

	if (stream_learn(s, s->ask.type_oid, res, n, why))
		stream_answered(s);
}

static void
on_row(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct stream *s = arg;

	if (why && !lookup_is_in_vain(why->sqlstate)) {
		stream_fail_sql(s, why);
		return;
	}
	if (!why && !lookup_row(res, n, s->pipeline.begin.xid, &s->ask))
		loop_timer_start(&s->reread, REREAD_MS);
	else
		stream_answered(s);
}

static void
ask_row(struct stream *s)
{
	lookup_row_sql(&s->sql, &s->ask, about(s, s->ask.shape->table));
	stream_query(s, on_row);
}

void
stream_on_reread(void *arg)
{
	struct stream *s = arg;

	if (s->state == STREAM_RUNS && s->waiting)
		ask_row(s);
}

static void
fail_err(struct stream *s, enum pipeline_result rc, const struct err *e)
{
	struct connfault f;

	if (rc == PIPELINE_CHANGED)
		connfault_set(&f, "relation_changed", false,
			"%s; or ask for a new copy with: queenctl connector "
			"resync %.*s",
			e->text, SPAN_ARG(s->x->task->name));
	else
		connfault_set(&f, "io", true, "%s", e->text);
	stream_fail(s, &f);
}

/* True when the message is done with. */
static bool
heed(struct stream *s, enum pipeline_result rc, const struct err *e)
{
	switch (rc) {
	case PIPELINE_OK:
		return true;
	case PIPELINE_ASK_TYPE:
		lookup_type_sql(&s->sql, s->ask.type_oid);
		stream_query(s, on_type);
		break;
	case PIPELINE_ASK_ROW:
		ask_row(s);
		break;
	case PIPELINE_ASK_CHUNK:
		break;
	case PIPELINE_CHANGED:
	case PIPELINE_BAD:
		fail_err(s, rc, e);
		return false;
	}
	s->waiting = true;
	s->asked = rc;
	return false;
}

void
stream_answered(struct stream *s)
{
	int64_t now_ms = loop_now_ms(s->x->loop);
	struct err e = ERR_ZERO;
	enum pipeline_result rc;

	if (s->state != STREAM_RUNS || !s->waiting)
		return;
	s->waiting = false;
	rc = pipeline_resume(&s->pipeline, now_ms, &s->ask, &e);
	if (heed(s, rc, &e))
		stream_step(s);
}

/* ---- frames ---- */

static bool
is_ask(enum pipeline_result rc)
{
	return rc == PIPELINE_ASK_TYPE || rc == PIPELINE_ASK_ROW ||
	       rc == PIPELINE_ASK_CHUNK;
}

static void
feed(struct stream *s, struct span data, int64_t now_ms)
{
	struct pipeline *p = &s->pipeline;
	struct err e = ERR_ZERO;
	enum pipeline_result rc = pipeline_feed(p, data, now_ms, &s->ask, &e);

	if (is_ask(rc)) {
		/* it has to outlive this call; asking changed nothing yet */
		buf_reset(&s->held);
		buf_put_span(&s->held, data);
		rc = pipeline_feed(p, buf_span(&s->held), now_ms, &s->ask, &e);
	}
	heed(s, rc, &e);
}

static bool
on_data(void *arg, struct span frame)
{
	struct stream *s = arg;
	int64_t now_ms = loop_now_ms(s->x->loop);
	struct wal_frame f;
	struct err e = ERR_ZERO;
	uint64_t lsn;

	s->drained = false;
	if (s->state == STREAM_RUNS && s->skipping)
		stream_fail_publication(s);
	if (s->state != STREAM_RUNS)
		return false;
	if (wal_frame_parse(frame, &f, &e) != 0) {
		fail_err(s, PIPELINE_BAD, &e);
		return false;
	}
	lsn = f.kind == WAL_DATA ? f.start_lsn : f.end_lsn;
	if (lsn > s->received_lsn)
		s->received_lsn = lsn;
	if (f.kind == WAL_DATA) {
		s->heard_ms = now_ms;
		feed(s, f.data, now_ms);
	} else {
		pipeline_idle(&s->pipeline, f.end_lsn, now_ms);
		if (f.reply_now)
			stream_tell(s);
	}
	stream_send(s);
	s->paused = !stream_may_read(s);
	return !s->paused;
}

static void
on_drained(void *arg)
{
	struct stream *s = arg;

	s->drained = true;
	stream_step(s);
}

/*
 * From 18 on changes from before the publication are left out with a warning,
 * where older servers refuse them.  Not of that kind is one of the same code
 * that the walsender waits for a standby, which is away.
 */
static void
on_warning(void *arg, const char *sqlstate, const char *where)
{
	struct stream *s = arg;

	s->skipping |= strcmp(sqlstate, "55000") == 0 &&
		       strcmp(where, "StandbySlotsHaveCaughtup") != 0;
}

static void
on_began(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct stream *s = arg;

	(void)res;
	(void)n;
	if (why) {
		stream_lost(s, why);
		return;
	}
	s->streaming = s->drained = true;
	s->heard_ms = loop_now_ms(s->x->loop);
	stream_tell(s);
	connchild_phase(
		s->x->child, s->in.in_snapshot ? "snapshot" : "streaming");
	loop_timer_start(&s->tick, 0);
	stream_step(s);
}

void
stream_begin(struct stream *s)
{
	const struct start_found *f = s->found;
	char lsn[WAL_LSN_MAX];
	struct buf name = BUF_ZERO;

	s->received_lsn = f->pointer.place.lsn;
	/* a commit that waits for a standby would hold up the copy */
	buf_puts(&s->sql, "set synchronous_commit = local");
	stream_query(s, NULL);
	buf_puts(&s->sql, "START_REPLICATION SLOT ");
	pgquote_ident(&s->sql, f->slot);
	pgquote_ident(&name, f->publication);
	buf_printf(&s->sql,
		" LOGICAL %s (proto_version '1', "
		"publication_names ",
		wal_lsn_text(f->pointer.place.lsn, lsn));
	pgquote_text(&s->sql, buf_span(&name));
	buf_puts(&s->sql, ", messages 'true')");
	buf_putc(&s->sql, '\0');
	pglink_on_warning(f->repl, on_warning, s);
	pglink_stream(f->repl, s->sql.p, on_began, on_data, on_drained, s);
	buf_reset(&s->sql);
	buf_fini(&name);
}
