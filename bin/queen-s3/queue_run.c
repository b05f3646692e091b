/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine asks, the cell answers.  A read that failed is not repeated here:
 * the engine asks again, after a wait that holds back all of its reads.
 */
#include "queue_int.h"

#include <stdio.h>
#include <stdlib.h>

#include "backoff.h"
#include "cell.h"
#include "err.h"
#include "place.h"

enum { AHEAD_US = 60000000 }; /* more than any guard leaves open */

/* ---- figures ---- */

static void
observe_blocked(struct queue *q)
{
	const struct engine_stats *s = &q->stats;
	char text[256];

	if (!s->blocked_part) {
		loop_timer_stop(&q->blocked_timer);
		q->blocked_told = 0;
		return;
	}
	if (!loop_timer_pending(&q->blocked_timer) && !queue_draining(q))
		loop_timer_start(
			&q->blocked_timer, queue_settings(q)->lease_ttl_ms);
	if (q->blocked_told == s->blocked_part)
		return;
	q->blocked_told = s->blocked_part;
	if (s->blocked_key_id < 0)
		snprintf(text, sizeof(text),
			"offset %lld of partition %.*s "
			"is damaged",
			(long long)s->blocked_offset,
			SPAN_ARG(span_clip(s->blocked_name, 128)));
	else
		snprintf(text, sizeof(text),
			"offset %lld of partition %.*s "
			"cannot be opened without key %d",
			(long long)s->blocked_offset,
			SPAN_ARG(span_clip(s->blocked_name, 128)),
			s->blocked_key_id);
	queue_remember(q, text);
	queue_say(q, LOG_ERROR, "queue blocked", "key_id=%d error=%s",
		s->blocked_key_id, log_quote(text));
}

void
queue_on_blocked(void *arg)
{
	struct queue *q = arg;

	if (q->phase == QUEUE_AWAY || q->ending || queue_draining(q))
		return;
	/* another node may have the key */
	place_gave(q->x->place, q->name);
	queue_give_back(q);
}

/* The clock went back, or somebody wrote the row. */
static void
observe_redo(struct queue *q)
{
	const struct engine_stats *s = &q->stats;
	char text[160];

	if (q->ahead_told || !s->redo || s->safe_us == STAMP_NONE ||
		q->intent.end_us - AHEAD_US < s->safe_us)
		return;
	q->ahead_told = true;
	snprintf(text, sizeof(text),
		"window %lld was begun with an end that is %lld s away",
		(long long)q->intent.k,
		(long long)((q->intent.end_us - s->safe_us) / 1000000));
	queue_remember(q, text);
	queue_say(q, LOG_WARN, "queue waits for a time to come", "error=%s",
		log_quote(text));
}

void
queue_observe(struct queue *q)
{
	int64_t safe_us = q->has_stats ? q->stats.safe_us : STAMP_NONE;

	engine_stats(q->engine, &q->stats);
	if (q->stats.safe_us != safe_us)
		q->safe_ms = loop_now_ms(queue_loop(q));
	q->has_stats = true;
	if (q->stats.safe_us != STAMP_NONE)
		q->missing_told = false;
	budget_report(&q->budget, q->stats.buffered_bytes);
	if (q->stats.degraded && !q->degraded_told)
		queue_say(q, LOG_WARN,
			"safeTime is degraded: a session of the cell cannot "
			"be seen, or a transaction is prepared",
			NULL);
	q->degraded_told = q->stats.degraded;
	observe_blocked(q);
	observe_redo(q);
}

/* ---- reads ---- */

static void
read_free(struct queue_read *r)
{
	TAILQ_REMOVE(&r->q->reads, r, link);
	free(r);
}

static void
count(struct queue *q, const struct queue_read *r, bool ok)
{
	if (r->what != ENGINE_FETCH)
		return;
	if (ok)
		q->counts.fetch_ok++;
	else
		q->counts.fetch_error++;
}

static void
on_backed_off(struct queue *q)
{
	q->backing_off = false;
	queue_pump(q);
}

static void
read_failed(struct queue *q, enum engine_what what, const struct err *e)
{
	enum queue_trouble kind =
		what == ENGINE_DISCOVER ? QUEUE_OF_DISCOVERY : QUEUE_OF_FETCH;

	if (!cell_may_retry(e)) {
		queue_fail(q, e->text);
		return;
	}
	queue_trouble(q, kind, e->text);
	/* a window in its sequence uses the timer, and reads nothing anyway */
	if (q->phase != QUEUE_RUN || q->backing_off)
		return;
	loop_timer_stop(&q->timer);
	q->next = NULL;
	q->backing_off = true;
	queue_wait(q, queue_retry_ms(q, 0), on_backed_off);
}

static void
on_read(void *arg, const struct err *e)
{
	struct queue_read *r = arg;
	struct queue *q = r->q;
	enum engine_what what = r->what;

	r->call = NULL;
	count(q, r, !e);
	read_free(r);
	if (e) {
		read_failed(q, what, e);
		return;
	}
	if (q->phase != QUEUE_RUN) {
		queue_observe(q);
		return;
	}
	if (q->backing_off)
		return;
	q->retry_ms = 0;
	queue_pump(q);
}

static void
begin(struct queue *q, const struct engine_step *s)
{
	struct queue_read *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	r->q = q;
	r->what = s->what;
	TAILQ_INSERT_TAIL(&q->reads, r, link);
	r->call = cell_step(q->x->x->cell, &q->x->tenant, q->name, q->engine, s,
		on_read, r);
}

void
queue_reads_cancel(struct queue *q)
{
	struct queue_read *r;

	while ((r = TAILQ_FIRST(&q->reads))) {
		if (r->call)
			cell_cancel(r->call);
		read_free(r);
	}
}

/* ---- the pump ---- */

static void
on_idle_over(struct queue *q)
{
	engine_woken(q->engine);
	queue_pump(q);
}

/* Of a queue that is gone: what no window takes any more. */
static void
say_left(struct queue *q)
{
	struct doc_lost l;
	size_t at = 0;

	queue_observe(q);
	if (q->stats.buffered_bytes)
		queue_say(q, LOG_WARN,
			"queue deleted, what was read of it is not shipped",
			"buffered_bytes=%lld",
			(long long)q->stats.buffered_bytes);
	while (engine_lost_next(q->engine, &at, &l.partition, &l.from, &l.to))
		queue_say_lost(q, 0, &l);
}

static void
drained(struct queue *q)
{
	if (q->ckpt.req)
		return; /* its end comes back here */
	if (q->stats.missing)
		say_left(q);
	queue_finish(q, q->giving_back && !q->stopping ? QUEUE_RELEASED
						       : QUEUE_DRAINED);
}

static void
missing(struct queue *q)
{
	queue_remember(q, "there is no such queue");
	say_left(q);
	queue_finish(q, QUEUE_MISSING);
}

/* False: something else has taken over. */
static bool
step(struct queue *q)
{
	struct engine_step s;

	engine_next(q->engine, &s);
	switch (s.what) {
	case ENGINE_WAIT:
		return false;
	case ENGINE_IDLE:
		queue_wait(q, queue_settings(q)->discovery_interval_ms,
			on_idle_over);
		return false;
	case ENGINE_BUSY:
		queue_turn(q, queue_pump);
		return false;
	case ENGINE_DISCOVER:
	case ENGINE_SEEK:
	case ENGINE_FETCH:
		begin(q, &s);
		return true;
	case ENGINE_CLOSE:
		queue_window_begin(q);
		return false;
	case ENGINE_MISSING:
		missing(q);
		return false;
	case ENGINE_DRAINED:
		drained(q);
		return false;
	}
	return false;
}

void
queue_pump(struct queue *q)
{
	if (q->ending)
		return;
	q->phase = QUEUE_RUN;
	q->state = QUEUE_FILLING;
	/* an idle wait ends with whatever comes in between */
	loop_timer_stop(&q->timer);
	q->next = NULL;
	q->backing_off = false;
	while (step(q))
		;
	if (!q->ending && q->engine)
		queue_observe(q);
}
