/* SPDX-License-Identifier: Apache-2.0 */
/*
 * COPY BOTH: frames of the server one by one for as long as they are taken,
 * ours in between.  libpq keeps what came in part, so nothing that interrupts
 * the reading loses or splits a frame.
 */
#include <event2/event.h>
#include <stdlib.h>

#include "clk.h"
#include "err.h"
#include "pglink_int.h"

enum { TURN_MS = 5 };

void
pglink_stream(struct pglink *k, const char *sql, pglink_fn fn,
	pglink_data_fn on_data, void (*on_drained)(void *arg), void *arg)
{
	BUG(k->use != PGLINK_REPLICATION || k->copy != COPY_NONE || !on_data);
	k->on_data = on_data;
	k->on_drained = on_drained;
	k->stream_arg = arg;
	pglink_queue(k, pglink_op_new(OP_STREAM, sql, fn, arg));
}

void
pglink_on_warning(struct pglink *k, pglink_warning_fn fn, void *arg)
{
	k->on_warning = fn;
	k->warning_arg = arg;
}

void
pglink_stream_began(struct pglink *k, struct pglink_op *o)
{
	k->copy = COPY_RUNS;
	pglink_op_answer(o);
	if (k->pg)
		pglink_stream_step(k);
}

/* Behind the last frame: the outcome of the statement, and the loss. */
static void
read_end(struct pglink *k)
{
	struct connfault why;

	k->copy = COPY_ENDS;
	while (!PQisBusy(k->pg)) {
		PGresult *r = PQgetResult(k->pg);
		ExecStatusType st = PQresultStatus(r);

		if (st == PGRES_COPY_IN) {
			/* the server is done, we are not */
			PQclear(r);
			if (PQputCopyEnd(k->pg, NULL) != 1)
				break;
			pglink_flush(k);
			if (!k->pg)
				return;
			continue;
		}
		if (st == PGRES_COMMAND_OK || st == PGRES_TUPLES_OK) {
			PQclear(r);
			continue;
		}
		if (r)
			connfault_result(&why, r, k->pg);
		else
			connfault_set(&why, "io", true,
				"the server ended the stream");
		PQclear(r);
		pglink_lose(k, &why);
		return;
	}
}

/* False when the turn is over: paused, ended, or others want one. */
static bool
give_frame(struct pglink *k, char *data, int n)
{
	k->undrained = true;
	if (!k->finishing &&
		!k->on_data(k->stream_arg, span_make(data, (size_t)n)))
		k->paused = true;
	PQfreemem(data);
	return k->pg && (!k->paused || k->finishing);
}

static void
read_frames(struct pglink *k)
{
	int64_t until_ms = clk_mono_ms() + TURN_MS;
	char *data;
	int n;

	for (;;) {
		n = PQgetCopyData(k->pg, &data, 1);
		if (n <= 0)
			break;
		if (!give_frame(k, data, n))
			return;
		if (clk_mono_ms() >= until_ms) {
			loop_timer_start(&k->later, 0);
			return;
		}
	}
	if (n < 0) {
		read_end(k);
		return;
	}
	if (!k->undrained || k->finishing)
		return;
	k->undrained = false;
	if (k->on_drained)
		k->on_drained(k->stream_arg);
}

void
pglink_stream_step(struct pglink *k)
{
	if (k->copy == COPY_ENDS)
		read_end(k);
	else if (!k->paused || k->finishing)
		read_frames(k);
	if (!k->pg)
		return;
	if (k->dead || (k->paused && !k->finishing))
		event_del(k->rd);
	else
		event_add(k->rd, NULL);
}

bool
pglink_stream_has_more(const struct pglink *k)
{
	if (k->copy != COPY_RUNS)
		return false;
	return (k->paused && !k->finishing) || loop_timer_pending(&k->later);
}

void
pglink_go_on(struct pglink *k)
{
	if (!k->paused)
		return;
	k->paused = false;
	/* what is buffered here already makes no socket readable */
	if (k->pg)
		loop_timer_start(&k->later, 0);
}

void
pglink_put(struct pglink *k, struct span data)
{
	if (!k->pg || k->copy != COPY_RUNS || k->finishing)
		return;
	if (PQputCopyData(k->pg, data.p, (int)data.n) != 1)
		pglink_lose_broken(k);
	else
		pglink_flush(k);
	/* it may have read frames in order to write */
	if (k->pg)
		loop_timer_start(&k->later, 0);
}

void
pglink_finish(struct pglink *k, int64_t limit_ms)
{
	struct connfault none = { .code = NULL };

	if (k->finishing)
		return;
	k->finishing = true;
	if (!k->pg || k->copy != COPY_RUNS) {
		pglink_lose(k, &none);
		return;
	}
	loop_timer_start(&k->limit, limit_ms);
	if (PQputCopyEnd(k->pg, NULL) != 1) {
		pglink_lose_broken(k);
		return;
	}
	pglink_flush(k);
	if (k->pg)
		loop_timer_start(&k->later, 0);
}

void
pglink_stream_late(struct pglink *k)
{
	struct connfault none = { .code = NULL };

	pglink_lose(k, &none);
}
