/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a run: what it is made of, and how it ends.  However it ends,
 * the bundle in flight is given time to settle, so that the last thing the
 * server hears is what is committed.
 */
#include "stream.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "catalog.h"
#include "clk.h"
#include "commit.h"
#include "connchild.h"
#include "conndoc.h"
#include "err.h"
#include "lookup.h"
#include "shape.h"
#include "stream_int.h"
#include "wal.h"

enum { SETTLE_MS = 5000, CLOSE_MS = 2000 };

void
stream_query(struct stream *s, pglink_fn fn)
{
	buf_putc(&s->sql, '\0');
	pglink_query(s->found->sql, s->sql.p, fn, s);
	buf_reset(&s->sql);
}

bool
stream_learn(struct stream *s, uint32_t oid, PGresult *const *res, int n,
	const struct connfault *why)
{
	struct types_row row;

	if (why || n != 1) {
		if (why)
			stream_fail_sql(s, why);
		return false;
	}
	lookup_type(res[0], oid, &row);
	types_learn(&s->pipeline.types, &row);
	return true;
}

void
stream_tell(struct stream *s)
{
	char out[WAL_STATUS_BYTES];

	s->told_lsn = commit_lsn(s->commit);
	s->told_ms = loop_now_ms(s->x->loop);
	if (!s->streaming || s->repl_gone)
		return;
	wal_status_write(out, s->received_lsn, s->told_lsn, clk_wall_us());
	pglink_put(s->found->repl, span_make(out, sizeof(out)));
}

/* ---- the end ---- */

static void
on_done(void *arg)
{
	struct stream *s = arg;

	s->on_end(s->arg, s->end, s->end == STREAM_FAILED ? &s->fault : NULL);
}

static void
be_over(struct stream *s)
{
	s->state = STREAM_OVER;
	loop_timer_stop(&s->late);
	loop_timer_stop(&s->tick);
	loop_timer_stop(&s->look);
	loop_timer_stop(&s->linger);
	loop_timer_stop(&s->reread);
	loop_timer_start(&s->done, 0);
}

static void
close_stream(struct stream *s)
{
	if (s->repl_gone || !s->streaming) {
		be_over(s);
		return;
	}
	stream_tell(s);
	s->state = STREAM_CLOSES;
	pglink_finish(s->found->repl, CLOSE_MS);
}

static void
on_late(void *arg)
{
	struct stream *s = arg;

	if (s->state == STREAM_SETTLES)
		close_stream(s);
}

static void
settle(struct stream *s, int64_t limit_ms)
{
	s->state = STREAM_SETTLES;
	loop_timer_start(&s->late, limit_ms);
	stream_step(s);
}

void
stream_fail(struct stream *s, const struct connfault *why)
{
	if (s->state != STREAM_RUNS)
		return;
	s->end = STREAM_FAILED;
	s->fault = *why;
	settle(s, SETTLE_MS);
}

void
stream_fail_sql(struct stream *s, const struct connfault *why)
{
	struct connfault f = *why;

	f.retryable = true;
	stream_fail(s, &f);
}

void
stream_restart(struct stream *s)
{
	s->end = STREAM_RESTART;
	settle(s, SETTLE_MS);
}

void
stream_stop(struct stream *s, int64_t grace_ms)
{
	if (s->state == STREAM_OVER)
		return;
	s->end = STREAM_STOPPED;
	if (s->state == STREAM_RUNS)
		settle(s, grace_ms > 2 * CLOSE_MS ? grace_ms - CLOSE_MS
						  : grace_ms / 2);
}

/* ---- the links ---- */

static void
on_sql_end(void *arg, const struct connfault *why)
{
	struct stream *s = arg;

	s->sql_gone = true;
	stream_fail(s, s->checking ? &s->fault : why);
}

void
stream_fail_publication(struct stream *s)
{
	struct connfault f;

	connfault_set(&f, "publication", false,
		"the WAL behind the slot's position is older than "
		"publication %.*s and cannot be decoded with it; "
		"ask for a new copy with: queenctl connector resync %.*s",
		SPAN_ARG(s->found->publication), SPAN_ARG(s->x->task->name));
	stream_fail(s, &f);
}

/*
 * WAL from before the publication cannot be decoded, ever: to be told from a
 * slot or a publication that is gone, which the next start finds out.
 */
static void
on_checked(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct stream *s = arg;
	struct connfault f = s->fault;

	if (!why && n == 1 && PQntuples(res[0]) == 1) {
		stream_fail_publication(s);
		return;
	}
	f.retryable = true;
	stream_fail(s, &f);
}

static void
check_publication(struct stream *s, const struct connfault *why)
{
	s->checking = true;
	s->fault = *why;
	catalog_both_sql(&s->sql, s->found->slot, s->found->publication);
	stream_query(s, on_checked);
}

/* The stream was refused, or it ended. */
void
stream_lost(struct stream *s, const struct connfault *why)
{
	if (s->state != STREAM_RUNS || s->checking)
		return;
	if (connfault_is(why, "42704") && !s->sql_gone)
		check_publication(s, why);
	else
		stream_fail(s, why);
}

static void
on_repl_end(void *arg, const struct connfault *why)
{
	struct stream *s = arg;

	s->repl_gone = true;
	if (s->state == STREAM_CLOSES)
		be_over(s);
	else
		stream_lost(s, why);
}

/* ---- the cell ---- */

static void
on_settled(void *arg)
{
	struct stream *s = arg;
	struct stream_counts *c = s->counts, *f = &s->flight;

	c->bundles++;
	c->transactions += f->transactions;
	c->messages += f->messages;
	c->snapshot_rows += f->snapshot_rows;
	if (f->last_commit_us)
		c->last_commit_us = f->last_commit_us;
	s->in = s->flight_at;
	if (s->state == STREAM_RUNS)
		connchild_phase(s->x->child,
			s->in.in_snapshot ? "snapshot" : "streaming");
	connchild_touch(s->x->child);
	stream_step(s);
}

static void
on_commit_fault(void *arg, const struct connfault *f)
{
	struct stream *s = arg;

	s->commit_over = true;
	/* of a run that ends for another reason it is the last word */
	if (s->state != STREAM_RUNS)
		connchild_complain(s->x->child, f);
	stream_fail(s, f);
	stream_step(s);
}

static void
on_trouble(void *arg, const struct connfault *f)
{
	struct stream *s = arg;

	if (f)
		connchild_complain(s->x->child, f);
	else
		connchild_well(s->x->child);
}

void
stream_step(struct stream *s)
{
	if (s->state == STREAM_SETTLES &&
		(s->commit_over || !commit_is_busy(s->commit)))
		close_stream(s);
	if (s->state != STREAM_RUNS || s->repl_gone || !s->streaming)
		return;
	if (s->skipping) {
		stream_fail_publication(s);
		return;
	}
	if (pipeline_wants_restart(&s->pipeline)) {
		stream_restart(s);
		return;
	}
	stream_copy(s);
	stream_send(s);
	if (s->paused && stream_may_read(s)) {
		s->paused = false;
		pglink_go_on(s->found->repl);
	}
}

/* ---- a run ---- */

static void
configure(struct stream *s)
{
	const struct conndoc_source *d = &s->x->task->doc->source;

	s->conf = (struct pipeline_conf){ .tables = s->found->tables,
		.tables_n = s->found->tables_n,
		.limits = { .messages = (size_t)d->max_bundle_messages,
			.bytes = (size_t)d->max_bundle_bytes,
			.linger_ms = d->linger_ms },
		.chunk_rows = (uint64_t)d->snapshot_chunk_rows,
		.emit_truncate = d->on_truncate == CONNDOC_EMIT };
}

static void
init_timers(struct stream *s)
{
	struct loop *l = s->x->loop;

	loop_timer_init(&s->late, l, on_late, s);
	loop_timer_init(&s->done, l, on_done, s);
	loop_timer_init(&s->linger, l, stream_on_linger, s);
	loop_timer_init(&s->reread, l, stream_on_reread, s);
	loop_timer_init(&s->look, l, stream_on_look, s);
	loop_timer_init(&s->tick, l, stream_on_tick, s);
}

struct stream *
stream_new(struct ctx *x, struct start_found *found,
	struct stream_counts *counts, stream_end_fn on_end, void *arg)
{
	struct commit_events ev = { .on_settled = on_settled,
		.on_fault = on_commit_fault,
		.on_trouble = on_trouble };
	struct stream *s = calloc(1, sizeof(*s));
	uint64_t first_chunk;

	BUG(!s);
	s->x = x;
	s->found = found;
	s->counts = counts;
	s->on_end = on_end;
	s->arg = arg;
	configure(s);
	randombytes_buf(&first_chunk, sizeof(first_chunk));
	/* room for more chunks than there will be */
	pipeline_init(
		&s->pipeline, &s->conf, &s->found->pointer, first_chunk >> 1);
	ev.arg = s;
	s->commit = commit_new(x, &s->pipeline.queue, &s->conf.limits,
		&s->found->pointer, s->found->version, &ev);
	s->in = s->pipeline.tail;
	s->tables = calloc(s->found->tables_n, sizeof(*s->tables));
	BUG(!s->tables);
	init_timers(s);
	pglink_give(s->found->sql, on_sql_end, s);
	pglink_give(s->found->repl, on_repl_end, s);
	stream_begin(s);
	return s;
}

void
stream_free(struct stream *s)
{
	if (!s)
		return;
	loop_timer_fini(&s->late);
	loop_timer_fini(&s->done);
	loop_timer_fini(&s->linger);
	loop_timer_fini(&s->reread);
	loop_timer_fini(&s->look);
	loop_timer_fini(&s->tick);
	commit_free(s->commit);
	/* a chunk borrows its table's shape */
	pipeline_fini(&s->pipeline);
	stream_copy_fini(s);
	start_found_free(s->found);
	buf_fini(&s->held);
	buf_fini(&s->sql);
	free(s);
}
