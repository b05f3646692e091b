/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of a worker.  A batch that fails is given again to the target until
 * it is applied: its messages are the next of their partitions whoever has
 * them, so there is nothing better to do with the time.  While it backs off
 * the leases run out, so that a node that cannot reach its database does not
 * hold partitions that another could serve.
 */
#include "worker.h"

#include <inttypes.h>
#include <stdlib.h>

#include "backoff.h"
#include "conndoc.h"
#include "connchild.h"
#include "connfault.h"
#include "ctx.h"
#include "err.h"
#include "feed.h"
#include "loop.h"
#include "target.h"

enum {
	BACKOFF_FIRST_MS = 1000,
	BACKOFF_MAX_MS = 30000,
	SPREAD_PERCENT = 10,
	EXTEND_AGAIN_MS = 1000,
};

struct worker {
	struct ctx *x;
	struct worker_face face;
	struct target *target;
	struct feed_wait *wait;
	struct feed_batch *batch;
	bool applying, acking, failing;
	bool settled; /* acknowledged, or given back */
	bool extending; /* the answer is still to come */
	bool stopping, stopped;
	int64_t backoff_ms; /* the last one; 0 = none */
	struct loop_timer retry, extend, gone;
};

static void take(struct worker *w);

/* ---- how it is ---- */

static void
fail(struct worker *w, const struct connfault *why, int64_t retry_ms)
{
	w->failing = true;
	w->face.failing(w->face.arg, why, retry_ms);
}

static void
well(struct worker *w)
{
	w->backoff_ms = 0;
	if (!w->failing)
		return;
	w->failing = false;
	w->face.well(w->face.arg);
}

static int64_t
next_backoff(struct worker *w)
{
	w->backoff_ms = backoff_next_ms(
		w->backoff_ms, BACKOFF_FIRST_MS, BACKOFF_MAX_MS);
	return backoff_spread_ms(w->backoff_ms, SPREAD_PERCENT);
}

static void
on_gone(void *arg)
{
	struct worker *w = arg;

	w->face.stopped(w->face.arg);
}

static void
is_idle(struct worker *w)
{
	if (!w->stopping || w->stopped)
		return;
	w->stopped = true;
	loop_timer_start(&w->gone, 0);
}

/* ---- the batch ---- */

static void
drop_batch(struct worker *w)
{
	if (!w->batch)
		return;
	target_forget(w->target);
	/* an extension that is out still looks at it */
	if (w->extending)
		return;
	feed_batch_free(w->batch);
	w->batch = NULL;
}

/* The batch is done with; it may have to wait for its extension. */
static void
next(struct worker *w)
{
	loop_timer_stop(&w->extend);
	if (w->batch && !w->settled) {
		/* who takes it up need not wait for the end of its lease */
		w->settled = true;
		feed_return(w->x->feed, w->batch, true);
	}
	drop_batch(w);
	if (w->batch)
		return;
	if (w->stopping)
		is_idle(w);
	else
		take(w);
}

/* ---- leases ---- */

static int64_t
extend_every_ms(const struct worker *w)
{
	return w->x->task->doc->sink.lease_s * 1000 / 3;
}

static void
on_extended(void *arg, bool ok)
{
	struct worker *w = arg;

	w->extending = false;
	if (!w->applying && !w->acking && !loop_timer_pending(&w->retry)) {
		next(w);
		return;
	}
	if (w->applying && !w->stopping)
		loop_timer_start(
			&w->extend, ok ? extend_every_ms(w) : EXTEND_AGAIN_MS);
}

static void
on_extend(void *arg)
{
	struct worker *w = arg;

	if (!w->applying || w->stopping || w->extending)
		return;
	w->extending = true;
	feed_extend(w->x->feed, w->batch, on_extended, w);
}

/* ---- ends of an attempt ---- */

static void
note_dead(struct worker *w, const struct feed_result *results)
{
	const struct feed_batch *b = w->batch;

	for (size_t i = 0; i < b->parts_n; i++) {
		const struct feed_part *part = &b->parts[i];
		struct connfault f;

		if (!results[i].dlq)
			continue;
		connfault_set(&f, "dlq", false,
			"partition %.*s offset %" PRId64 ": %.*s",
			SPAN_ARG(part->name),
			b->messages[part->first + results[i].done - 1].offset,
			SPAN_ARG(results[i].text));
		w->face.noted(w->face.arg, &f);
	}
}

static void
on_acked(void *arg, size_t filed)
{
	struct worker *w = arg;

	w->acking = false;
	w->x->counts.dlq += filed;
	if (filed)
		connchild_touch(w->x->child);
	next(w);
}

static bool
is_any_done(const struct feed_batch *b, const struct feed_result *results)
{
	for (size_t i = 0; i < b->parts_n; i++)
		if (results[i].done > 0)
			return true;
	return false;
}

static void
acknowledge(struct worker *w, const struct feed_result *results)
{
	if (!is_any_done(w->batch, results)) {
		next(w);
		return;
	}
	w->acking = w->settled = true;
	w->x->counts.batches++;
	connchild_touch(w->x->child);
	note_dead(w, results);
	feed_ack(w->x->feed, w->batch, results, on_acked, w);
}

static void
try_again(struct worker *w, const struct connfault *why)
{
	int64_t ms = next_backoff(w);

	fail(w, why, ms);
	if (w->stopping)
		next(w);
	else
		loop_timer_start(&w->retry, ms);
}

static void
on_target(void *arg, enum target_end end, const struct feed_result *results,
	const struct connfault *why)
{
	struct worker *w = arg;

	w->applying = false;
	loop_timer_stop(&w->extend);
	switch (end) {
	case TARGET_DONE:
		well(w);
		acknowledge(w, results);
		return;
	case TARGET_AGAIN:
		try_again(w, why);
		return;
	case TARGET_OVER:
		if (w->stopping)
			next(w);
		else
			w->face.over(w->face.arg, why);
		return;
	}
}

static void
apply(void *arg)
{
	struct worker *w = arg;

	w->applying = true;
	/* it was not extended while it backed off */
	loop_timer_start(&w->extend, w->backoff_ms ? 0 : extend_every_ms(w));
	target_apply(w->target, w->batch, on_target, w);
}

/* ---- work ---- */

static void
on_batch(void *arg, struct feed_batch *batch, const struct connfault *why)
{
	struct worker *w = arg;

	if (!batch) {
		if (why)
			fail(w, why, 0);
		else
			well(w);
		return;
	}
	w->wait = NULL;
	w->batch = batch;
	w->settled = false;
	apply(w);
}

static void
take(struct worker *w)
{
	w->wait = feed_pop(w->x->feed, on_batch, w);
}

struct worker *
worker_new(struct ctx *x, int no, const struct worker_face *face)
{
	struct worker *w = calloc(1, sizeof(*w));

	BUG(!w);
	w->x = x;
	w->face = *face;
	w->target = target_new(x, no);
	loop_timer_init(&w->retry, x->loop, apply, w);
	loop_timer_init(&w->extend, x->loop, on_extend, w);
	loop_timer_init(&w->gone, x->loop, on_gone, w);
	take(w);
	return w;
}

bool
worker_is_failing(const struct worker *w)
{
	return w->failing;
}

void
worker_stop(struct worker *w)
{
	if (w->stopping)
		return;
	w->stopping = true;
	loop_timer_stop(&w->extend);
	if (w->wait) {
		feed_cancel(w->wait);
		w->wait = NULL;
		is_idle(w);
	} else if (w->applying) {
		target_stop(w->target);
	} else if (!w->acking) {
		loop_timer_stop(&w->retry);
		next(w);
	}
}

void
worker_free(struct worker *w)
{
	if (!w)
		return;
	if (w->wait)
		feed_cancel(w->wait);
	target_free(w->target);
	feed_batch_free(w->batch);
	loop_timer_fini(&w->retry);
	loop_timer_fini(&w->extend);
	loop_timer_fini(&w->gone);
	free(w);
}
