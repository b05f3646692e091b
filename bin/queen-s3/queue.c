/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue as its sink sees it, and the main flow: a timer and the function
 * that is to run when it fires.
 */
#include "queue_int.h"

#include <stdlib.h>
#include <string.h>

#include "backoff.h"
#include "cell.h"
#include "clk.h"
#include "err.h"

/* ---- the main flow ---- */

static void
on_timer(void *arg)
{
	struct queue *q = arg;
	queue_next_fn fn = q->next;

	q->next = NULL;
	fn(q);
}

void
queue_wait(struct queue *q, int64_t ms, queue_next_fn fn)
{
	BUG(q->next);
	q->next = fn;
	loop_timer_start(&q->timer, ms);
}

void
queue_turn(struct queue *q, queue_next_fn fn)
{
	queue_wait(q, 0, fn);
}

int64_t
queue_slice_end(void)
{
	return clk_mono_us() + QUEUE_SLICE_US;
}

bool
queue_slice_over(int64_t end_us)
{
	return clk_mono_us() >= end_us;
}

bool
queue_draining(const struct queue *q)
{
	return q->stopping || q->giving_back;
}

int64_t
queue_retry_ms(struct queue *q, int64_t wish_ms)
{
	int64_t ms;

	q->retry_ms = backoff_next_ms(
		q->retry_ms, QUEUE_RETRY_FIRST_MS, QUEUE_RETRY_MAX_MS);
	ms = wish_ms > 0 ? wish_ms : backoff_spread_ms(q->retry_ms, 25);
	return queue_draining(q) && ms > QUEUE_HURRY_MS ? QUEUE_HURRY_MS : ms;
}

struct loop *
queue_loop(const struct queue *q)
{
	return q->x->x->loop;
}

const struct settings *
queue_settings(const struct queue *q)
{
	return q->x->x->conf;
}

struct span
queue_name_of(const struct queue *q)
{
	return span_of(q->name);
}

struct span
queue_tenant_of(const struct queue *q)
{
	return span_of(q->x->tenant_text);
}

/* ---- life ---- */

struct queue *
queue_new(const struct sink_ctx *x, const char *name, queue_end_fn on_end,
	queue_window_fn on_window, void *arg)
{
	struct queue *q = calloc(1, sizeof(*q));

	if (!q || !(q->name = strdup(name)))
		abort();
	q->x = x;
	q->on_end = on_end;
	q->on_window = on_window;
	q->arg = arg;
	q->known_k = q->checkpoint_k = -1;
	q->known_us = STAMP_NONE;
	q->gave_back_ms = -1;
	TAILQ_INIT(&q->reads);
	object_init(&q->w.object);
	object_init(&q->ckpt.object);
	for (int i = 0; i < QUEUE_TROUBLES; i++)
		q->samplers[i].every_ms = QUEUE_LOG_EVERY_MS;
	loop_timer_init(&q->timer, queue_loop(q), on_timer, q);
	loop_timer_init(&q->end_timer, queue_loop(q), queue_on_end_timer, q);
	loop_timer_init(&q->blocked_timer, queue_loop(q), queue_on_blocked, q);
	queue_say(q, LOG_INFO, "starting a queue", NULL);
	queue_turn(q, queue_claim);
	return q;
}

void
queue_free(struct queue *q)
{
	if (!q)
		return;
	queue_call_off(q);
	queue_disown(q);
	loop_timer_fini(&q->timer);
	loop_timer_fini(&q->end_timer);
	loop_timer_fini(&q->blocked_timer);
	buf_fini(&q->io.key);
	buf_fini(&q->io.after);
	buf_fini(&q->fence.value);
	buf_fini(&q->holder);
	buf_fini(&q->w.manifest_key);
	object_fini(&q->w.object);
	object_fini(&q->ckpt.object);
	arena_fini(&q->w.arena);
	arena_fini(&q->rows);
	arena_fini(&q->wish);
	buf_fini(&q->ckpt.key);
	free(q->name);
	free(q);
}

const char *
queue_name(const struct queue *q)
{
	return q->name;
}

void
queue_stop(struct queue *q)
{
	if (q->stopping)
		return;
	q->stopping = true;
	queue_drain(q);
}

void
queue_give_back(struct queue *q)
{
	if (q->phase == QUEUE_AWAY || q->ending || queue_draining(q))
		return;
	q->giving_back = true;
	queue_drain(q);
}

void
queue_force(struct queue *q)
{
	if (!q->engine)
		return;
	engine_force(q->engine);
	if (q->phase == QUEUE_RUN && !q->backing_off && !q->ending)
		queue_pump(q);
}

/* ---- what there is to tell ---- */

const char *
queue_state_name(enum queue_state s)
{
	static const char *const names[] = {
		[QUEUE_CLAIMING] = "claiming",
		[QUEUE_ELSEWHERE] = "elsewhere",
		[QUEUE_RESTORING] = "restoring",
		[QUEUE_FILLING] = "filling",
		[QUEUE_INTENT] = "intent",
		[QUEUE_UPLOAD] = "upload",
		[QUEUE_COMMIT] = "commit",
		[QUEUE_DRAINED] = "drained",
		[QUEUE_FENCED] = "fenced",
		[QUEUE_FAILED] = "failed",
		[QUEUE_MISSING] = "missing",
		[QUEUE_RELEASED] = "released",
		[QUEUE_HELD] = "held",
		[QUEUE_BLOCKED] = "blocked",
	};

	return names[s];
}

int64_t
queue_lag_us(const struct queue *q)
{
	if (!q->has_stats || q->stats.lag_us < 0)
		return -1;
	return q->stats.lag_us +
	       (loop_now_ms(queue_loop(q)) - q->safe_ms) * 1000;
}

static void
status_of_engine(const struct queue *q, struct queue_status *out)
{
	const struct engine_stats *s = &q->stats;

	if (!q->has_stats)
		return;
	out->complete_us = s->complete_us;
	out->safe_us = s->safe_us;
	out->lag_us = queue_lag_us(q);
	out->degraded = s->degraded;
	out->redo = s->redo;
	out->buffered_bytes = s->buffered_bytes;
	out->partitions = s->partitions;
	out->discovered = s->discovered;
	if (out->state != QUEUE_FILLING || !s->blocked_part)
		return;
	out->state = QUEUE_BLOCKED;
	out->blocked_key_id = s->blocked_key_id;
	out->blocked_name = s->blocked_name;
}

void
queue_status(const struct queue *q, struct queue_status *out)
{
	*out = (struct queue_status){
		.name = queue_name_of(q),
		.state = q->state,
		.owned = q->owned,
		.k = q->known_k,
		.end_us = q->known_us,
		.complete_us = STAMP_NONE,
		.safe_us = STAMP_NONE,
		.lag_us = -1,
		.checkpoint_k = q->checkpoint_k,
		.counts = q->counts,
		.last_error = span_of(q->last_error),
		.last_error_us = q->last_error_us,
	};
	if (q->state == QUEUE_ELSEWHERE)
		out->holder = buf_span(&q->holder);
	status_of_engine(q, out);
}
