/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a source: at any time it has one thing to wait for, named by its
 * state.  It works under the lease alone, which it keeps over failures that
 * may pass and gives back before anything an operator has to mend.
 */
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backoff.h"
#include "claim.h"
#include "connchild.h"
#include "conndoc.h"
#include "connfault.h"
#include "err.h"
#include "pgconn.h"
#include "source_int.h"
#include "start.h"

enum {
	RETRY_FIRST_MS = 1000,
	RETRY_MAX_MS = 30000,
	SPREAD_PERCENT = 20,
	OPERATOR_MS = 30000, /* an error that somebody has to mend */
	FENCED_MS = 1000,
	STALE_MS = 1000, /* before the lease is tried again */
	LONG_RUN_MS = 60000, /* failures start to count anew */
	GRACE_MIN_MS = 1000,
	GRACE_MAX_MS = 60000,
	RELEASE_MS = 2000, /* of the grace, kept for the lease */
	LOST_MS = 1000,
};

static int64_t
now_ms(const struct source *s)
{
	return loop_now_ms(s->x->loop);
}

/* ---- the lease ---- */

static void
leave(struct source *s)
{
	connchild_leave(s->x->child, s->torn_down);
}

static void
on_released(void *arg)
{
	struct source *s = arg;

	if (s->stopping || s->torn_down) {
		leave(s);
		return;
	}
	s->state = SOURCE_CLAIMS;
	claim_again(s->claim, s->again_ms);
}

static void
release(struct source *s, int64_t again_ms)
{
	s->state = SOURCE_RELEASES;
	s->again_ms = again_ms;
	claim_release(s->claim, on_released, s);
}

/* ---- failures ---- */

static void run(struct source *s);

static void
wait_and_run(struct source *s, int64_t ms)
{
	s->state = SOURCE_WAITS;
	loop_timer_start(&s->timer, ms);
}

static int64_t
next_retry_ms(struct source *s)
{
	if (now_ms(s) - s->began_ms > LONG_RUN_MS)
		s->retry_ms = 0;
	s->retry_ms =
		backoff_next_ms(s->retry_ms, RETRY_FIRST_MS, RETRY_MAX_MS);
	return backoff_spread_ms(s->retry_ms, SPREAD_PERCENT);
}

/* From the top, without the lease. */
static void
start_over(struct source *s, const struct connfault *f, int64_t wait_ms)
{
	connchild_error(s->x->child, f, wait_ms);
	connchild_restarted(s->x->child);
	if (s->lost) {
		s->lost = false;
		s->state = SOURCE_CLAIMS;
		claim_again(s->claim, wait_ms);
	} else {
		release(s, wait_ms);
	}
}

static void
failed(struct source *s, const struct connfault *f)
{
	int64_t wait_ms;

	if (strcmp(f->code, "fenced") == 0) {
		start_over(s, f, backoff_spread_ms(FENCED_MS, SPREAD_PERCENT));
		return;
	}
	if (!f->retryable) {
		start_over(s, f, OPERATOR_MS);
		return;
	}
	wait_ms = next_retry_ms(s);
	connchild_error(s->x->child, f, wait_ms);
	connchild_restarted(s->x->child);
	if (connfault_is(f, "55006"))
		connchild_phase(s->x->child, "waiting_for_slot");
	wait_and_run(s, wait_ms);
}

static void
lost(struct source *s)
{
	struct connfault f;

	s->lost = true;
	connfault_set(
		&f, "fenced", true, "the lease ended, or another node has it");
	failed(s, &f);
}

/* ---- a run ---- */

/* The slot cannot be used: the next start says why, if it may come at once. */
static bool
is_slot_gone(struct source *s, const struct connfault *f)
{
	if (!connfault_is(f, "55000") ||
		(s->gone_ms && now_ms(s) - s->gone_ms < OPERATOR_MS))
		return false;
	s->gone_ms = now_ms(s);
	return true;
}

/* Nothing is wrong, but should it be so again and again, not in a rush. */
static void
start_anew(struct source *s)
{
	bool again = s->anew_ms && now_ms(s) - s->anew_ms < LONG_RUN_MS;

	s->anew_ms = now_ms(s);
	if (again)
		wait_and_run(s, next_retry_ms(s));
	else
		run(s);
}

static void
on_stream_end(void *arg, enum stream_end end, const struct connfault *why)
{
	struct source *s = arg;
	struct connfault f = { .code = NULL };

	if (why)
		f = *why;
	s->pointer_lsn = stream_pointer_lsn(s->stream);
	stream_free(s->stream);
	s->stream = NULL;
	connchild_touch(s->x->child);
	if (s->stopping) {
		release(s, 0);
	} else if (s->lost) {
		lost(s);
	} else if (end == STREAM_RESTART) {
		start_anew(s);
	} else if (is_slot_gone(s, &f)) {
		connchild_complain(s->x->child, &f);
		run(s);
	} else {
		failed(s, &f);
	}
}

static void
note_found(struct source *s, const struct start_found *f)
{
	buf_reset(&s->resynced_at);
	buf_put_span(&s->resynced_at, f->pointer.resynced_at);
	memcpy(s->system_id, f->system_id, sizeof(s->system_id));
	memcpy(s->epoch, f->pointer.epoch, sizeof(s->epoch));
}

static void
on_start_end(void *arg, enum start_end end, struct start_found *found,
	const struct connfault *fault)
{
	struct source *s = arg;
	struct connfault f;

	start_free(s->start);
	s->start = NULL;
	switch (end) {
	case START_READY:
		note_found(s, found);
		s->state = SOURCE_STREAMS;
		s->stream =
			stream_new(s->x, found, &s->counts, on_stream_end, s);
		break;
	case START_TORN_DOWN:
		s->torn_down = true;
		release(s, 0);
		break;
	case START_FENCED:
		connfault_set(
			&f, "fenced", true, "another node moved the pointer");
		failed(s, &f);
		break;
	case START_STALE:
		/* the parent brings what is stored, or the end */
		connchild_phase(s->x->child, "standby");
		release(s, STALE_MS);
		break;
	case START_FAILED:
		failed(s, fault);
		break;
	}
	connchild_touch(s->x->child);
}

static void
on_state(void *arg)
{
	struct source *s = arg;

	connchild_phase(s->x->child, start_state(s->start)->phase);
	connchild_touch(s->x->child);
}

static void
run(struct source *s)
{
	s->state = SOURCE_STARTS;
	s->began_ms = now_ms(s);
	connchild_phase(s->x->child, "connecting");
	s->start = start_new(s->x, on_start_end, s);
	start_on_state(s->start, on_state);
}

/* ---- the claim ---- */

static void
on_won(void *arg)
{
	struct source *s = arg;

	buf_reset(&s->owner);
	run(s);
}

static void
on_standby(void *arg, struct span owner)
{
	struct source *s = arg;

	buf_reset(&s->owner);
	buf_put_span(&s->owner, owner);
	connchild_phase(s->x->child, "standby");
	connchild_well(s->x->child);
	connchild_touch(s->x->child);
}

static void
on_trouble(void *arg, const struct connfault *f)
{
	struct source *s = arg;

	if (f) {
		connchild_complain(s->x->child, f);
		if (s->state == SOURCE_CLAIMS)
			connchild_phase(s->x->child, "standby");
	} else {
		connchild_well(s->x->child);
	}
}

static void
on_lost(void *arg)
{
	struct source *s = arg;

	s->lost = true;
	if (s->stream) {
		stream_stop(s->stream, LOST_MS);
		return;
	}
	start_free(s->start);
	s->start = NULL;
	loop_timer_stop(&s->timer);
	lost(s);
}

/* ---- life ---- */

static void
on_timer(void *arg)
{
	run(arg);
}

static void
begin(struct source *s)
{
	const struct conndoc *d = s->x->task->doc;
	const struct claim_events ev = { .on_won = on_won,
		.on_standby = on_standby,
		.on_trouble = on_trouble,
		.on_lost = on_lost,
		.arg = s };

	connchild_well(s->x->child);
	if (!d->enabled && !d->deleting) {
		s->state = SOURCE_DISABLED;
		connchild_phase(s->x->child, "disabled");
		return;
	}
	s->state = SOURCE_CLAIMS;
	s->claim = claim_new(s->x, &ev);
}

static void
on_work(void *arg, enum pgconn_event ev, const struct err *why)
{
	/* who waits for an answer says what it means */
	(void)arg;
	(void)ev;
	(void)why;
}

/* Nothing is begun before there is somebody to ask. */
static void
on_side(void *arg, enum pgconn_event ev, const struct err *why)
{
	struct source *s = arg;
	struct connfault f;

	if (s->state != SOURCE_CONNECTS || s->stopping)
		return;
	if (ev == PGCONN_UP) {
		begin(s);
		return;
	}
	connfault_cell(&f, why);
	connchild_complain(s->x->child, &f);
}

static void
open_cell(struct source *s)
{
	struct ctx *x = s->x;
	struct span name = x->task->name;
	char app[96];

	snprintf(app, sizeof(app), "queen-pgsrc %.*s", SPAN_ARG(name));
	x->work = pgconn_new(x->loop, x->conninfo, app, on_work, s);
	x->side = pgconn_new(x->loop, x->conninfo, app, on_side, s);
	pgconn_session_add(x->work, pgconn_heap_sql);
	snprintf(x->cell_tag, sizeof(x->cell_tag), "%.*s",
		SPAN_ARG(x->task->cell_tag));
	x->pointer_key =
		arena_printf(&s->arena, "src:%.*s:pointer", SPAN_ARG(name));
	x->lease_key =
		arena_printf(&s->arena, "src:%.*s:lease", SPAN_ARG(name));
}

struct source *
source_new(struct ctx *x)
{
	struct source *s = calloc(1, sizeof(*s));

	BUG(!s);
	s->x = x;
	open_cell(s);
	loop_timer_init(&s->timer, x->loop, on_timer, s);
	return s;
}

void
source_stop(struct source *s, int64_t grace_ms)
{
	int64_t ms = grace_ms < GRACE_MIN_MS   ? GRACE_MIN_MS
		     : grace_ms > GRACE_MAX_MS ? GRACE_MAX_MS
					       : grace_ms;

	if (s->stopping)
		return;
	s->stopping = true;
	loop_timer_stop(&s->timer);
	if (s->state == SOURCE_STREAMS) {
		stream_stop(s->stream,
			ms > 2 * RELEASE_MS ? ms - RELEASE_MS : ms / 2);
		return;
	}
	start_free(s->start);
	s->start = NULL;
	if (s->state == SOURCE_RELEASES)
		return;
	/* a claim under way may win yet */
	if (s->claim)
		release(s, 0);
	else
		leave(s);
}

void
source_free(struct source *s)
{
	if (!s)
		return;
	loop_timer_fini(&s->timer);
	stream_free(s->stream);
	start_free(s->start);
	claim_free(s->claim);
	pgconn_free(s->x->work);
	pgconn_free(s->x->side);
	arena_fini(&s->arena);
	buf_fini(&s->owner);
	buf_fini(&s->resynced_at);
	free(s);
}
