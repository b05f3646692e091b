/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a life: drained, given back, fenced, failed or missing.  What is
 * under way is called off at once; what was called from is torn down in a turn
 * of its own, and the lease handed over last.
 */
#include "queue_int.h"

#include "cell.h"
#include "err.h"

void
queue_call_off(struct queue *q)
{
	loop_timer_stop(&q->timer);
	loop_timer_stop(&q->end_timer);
	loop_timer_stop(&q->blocked_timer);
	q->next = NULL;
	queue_io_cancel(q);
	if (q->call)
		cell_cancel(q->call);
	q->call = NULL;
	queue_reads_cancel(q);
	queue_checkpoint_drop(q);
	queue_window_drop(q);
	queue_engine_drop(q);
	q->fence.busy = false;
	q->backing_off = false;
}

/* ---- ending ---- */

void
queue_finish(struct queue *q, enum queue_state state)
{
	if (q->ending)
		return;
	q->ending = true;
	q->end_state = state;
	loop_timer_stop(&q->timer);
	loop_timer_stop(&q->blocked_timer);
	q->next = NULL;
	loop_timer_start(&q->end_timer, 0);
}

void
queue_fail(struct queue *q, const char *text)
{
	if (q->ending)
		return;
	queue_remember(q, text);
	queue_finish(q, QUEUE_FAILED);
}

void
queue_on_lost(void *arg)
{
	queue_finish(arg, QUEUE_FENCED);
}

static void
say_end(struct queue *q)
{
	switch (q->end_state) {
	case QUEUE_FAILED:
		queue_say(q, LOG_ERROR, "queue stopped, tried again in 60 s",
			"error=%s", log_quote(q->last_error));
		return;
	case QUEUE_MISSING:
		if (!q->missing_told)
			queue_say(q, LOG_WARN, "there is no such queue", NULL);
		q->missing_told = true;
		return;
	case QUEUE_FENCED:
		queue_say(
			q, LOG_WARN, "queue fenced: another node has it", NULL);
		return;
	default:
		queue_say(q, LOG_INFO,
			q->end_state == QUEUE_RELEASED ? "queue given back"
						       : "queue drained",
			NULL);
	}
}

/* Nothing is ours any more. */
static void
ended(void *arg)
{
	struct queue *q = arg;
	int64_t ms = 0;

	say_end(q);
	queue_disown(q);
	q->phase = QUEUE_AWAY;
	q->state = q->end_state;
	q->ending = q->giving_back = false;
	queue_unhold(q);
	q->retry_ms = 0;
	/* a failed queue stays behind in the eyes of health */
	if (q->end_state != QUEUE_FAILED)
		q->has_stats = false;
	if (q->stopping) {
		q->on_end(q->arg, q);
		return;
	}
	if (q->end_state == QUEUE_FENCED)
		ms = queue_settings(q)->lease_ttl_ms;
	else if (q->end_state == QUEUE_FAILED)
		ms = QUEUE_FAILED_MS;
	else if (q->end_state == QUEUE_MISSING)
		ms = QUEUE_MISSING_MS;
	queue_wait(q, ms, queue_claim);
}

void
queue_on_end_timer(void *arg)
{
	struct queue *q = arg;

	queue_call_off(q);
	if (q->end_state == QUEUE_RELEASED) {
		q->counts.given_back++;
		q->gave_back_ms = loop_now_ms(queue_loop(q));
	}
	/* a fence that is out is waited for by the release */
	if (q->owned && q->end_state != QUEUE_FENCED)
		lease_release(q->lease, ended, q);
	else
		ended(q);
}

/* ---- a drain ---- */

static void
say_drain(struct queue *q)
{
	queue_say(q, LOG_INFO, q->stopping ? "stopping" : "giving back",
		"buffered_bytes=%lld", (long long)q->stats.buffered_bytes);
}

/* A wait that is on is not to be longer than a drain allows. */
static void
hurry(struct queue *q)
{
	queue_next_fn fn = q->next;

	if (!fn)
		return;
	loop_timer_stop(&q->timer);
	q->next = NULL;
	queue_wait(q, 0, fn);
}

void
queue_drain(struct queue *q)
{
	if (q->lease)
		lease_hurry(q->lease);
	if (q->ending)
		return;
	switch (q->phase) {
	case QUEUE_AWAY:
		/* a look or a claim that is out may find it ours */
		if (!q->claiming)
			queue_finish(q, QUEUE_DRAINED);
		return;
	case QUEUE_START:
		say_drain(q);
		/* a pointer that is under way is seen through */
		if (!q->fence.busy)
			queue_finish(q,
				q->stopping ? QUEUE_DRAINED : QUEUE_RELEASED);
		else
			hurry(q);
		return;
	case QUEUE_RUN:
		say_drain(q);
		engine_drain(q->engine);
		queue_reads_cancel(q);
		queue_pump(q);
		return;
	case QUEUE_WINDOW:
		say_drain(q);
		engine_drain(q->engine);
		queue_reads_cancel(q);
		hurry(q);
		return;
	}
}
