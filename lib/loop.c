/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop.  A turn is: wait, run what is ready, run what was deferred.  What
 * is deferred while deferred work runs waits for the next turn, which then
 * does not sleep; so deferral can never starve the events.
 */
#include "loop.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "err.h"

enum {
	BEAT_MS = 100,
	SIGNALS_MAX = 8,
	LAST_TURNS = 100, /* deferral that goes on for ever ends here */
};

struct later {
	loop_fn fn;
	void *arg;
};

struct later_list {
	struct later *items;
	size_t n, cap;
};

struct signal_watch {
	struct event *ev;
	loop_fn fn;
	void *arg;
};

struct loop {
	struct event_base *base;
	struct later_list later, running;
	struct signal_watch signals[SIGNALS_MAX];
	int signals_n;
	bool stopped;
	bool in_turn;
	int64_t now_ms; /* of this turn; 0 = not read yet */
	struct loop_timer beat;
	int64_t beat_due_us;
	int64_t lag_sum_us, lag_max_us, lag_n;
};

static void
on_beat(void *arg)
{
	struct loop *l = arg;
	int64_t now = clk_mono_us(), lag = now - l->beat_due_us;

	if (lag < 0)
		lag = 0;
	l->lag_sum_us += lag;
	l->lag_n++;
	if (lag > l->lag_max_us)
		l->lag_max_us = lag;
	l->beat_due_us = now + BEAT_MS * 1000;
	loop_timer_start(&l->beat, BEAT_MS);
}

struct loop *
loop_new(void)
{
	struct loop *l = calloc(1, sizeof(*l));
	struct event_config *c = event_config_new();

	BUG(!l || !c);
	/*
	 * The coarse clock is 4 ms wrong; hints are coalesced over 5 ms.  And a
	 * timer counts from now, not from the start of the turn.
	 */
	BUG(event_config_set_flag(c, EVENT_BASE_FLAG_PRECISE_TIMER |
					     EVENT_BASE_FLAG_NO_CACHE_TIME |
					     EVENT_BASE_FLAG_NOLOCK) < 0);
	l->base = event_base_new_with_config(c);
	event_config_free(c);
	if (!l->base) {
		fprintf(stderr, "cannot create an event loop\n");
		abort();
	}
	signal(SIGPIPE, SIG_IGN);
	loop_timer_init(&l->beat, l, on_beat, l);
	return l;
}

static void
run_later(struct loop *l)
{
	struct later_list batch = l->later;

	l->later = l->running;
	l->later.n = 0;
	for (size_t i = 0; i < batch.n; i++)
		batch.items[i].fn(batch.items[i].arg);
	batch.n = 0;
	l->running = batch;
}

void
loop_free(struct loop *l)
{
	if (!l)
		return;
	/* Deferred frees of objects that ended with the loop. */
	for (int turn = 0; turn < LAST_TURNS && l->later.n > 0; turn++)
		run_later(l);
	for (int i = 0; i < l->signals_n; i++)
		event_free(l->signals[i].ev);
	loop_timer_fini(&l->beat);
	free(l->later.items);
	free(l->running.items);
	event_base_free(l->base);
	free(l);
}

struct event_base *
loop_base(struct loop *l)
{
	return l->base;
}

void
loop_run(struct loop *l)
{
	BUG(l->in_turn);
	l->in_turn = true;
	l->beat_due_us = clk_mono_us() + BEAT_MS * 1000;
	loop_timer_start(&l->beat, BEAT_MS);
	while (!l->stopped) {
		int how = EVLOOP_ONCE;

		if (l->later.n > 0)
			how |= EVLOOP_NONBLOCK;
		/* Forgotten before the wait, so it is read after it. */
		l->now_ms = 0;
		if (event_base_loop(l->base, how) < 0) {
			fprintf(stderr, "event loop failed\n");
			abort();
		}
		run_later(l);
	}
	/* What was deferred while its owner lived must not meet it freed. */
	for (int turn = 0; turn < LAST_TURNS && l->later.n > 0; turn++)
		run_later(l);
	loop_timer_stop(&l->beat);
	l->in_turn = false;
	/* Here and not at the start: a stop before the run counts too. */
	l->stopped = false;
}

void
loop_stop(struct loop *l)
{
	l->stopped = true;
	event_base_loopbreak(l->base);
}

void
loop_later(struct loop *l, loop_fn fn, void *arg)
{
	struct later_list *q = &l->later;

	if (q->n == q->cap) {
		size_t cap = q->cap ? q->cap * 2 : 64;
		struct later *p = reallocarray(q->items, cap, sizeof(*p));

		if (!p) {
			fprintf(stderr, "out of memory\n");
			abort();
		}
		q->items = p;
		q->cap = cap;
	}
	q->items[q->n++] = (struct later){ .fn = fn, .arg = arg };
}

int64_t
loop_now_ms(struct loop *l)
{
	/* Outside a turn nothing would ever refresh it. */
	if (!l->in_turn)
		return clk_mono_ms();
	if (l->now_ms == 0)
		l->now_ms = clk_mono_ms();
	return l->now_ms;
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct loop_timer *t = arg;

	(void)fd;
	(void)what;
	t->fn(t->arg);
}

void
loop_timer_init(struct loop_timer *t, struct loop *l, loop_fn fn, void *arg)
{
	t->loop = l;
	t->fn = fn;
	t->arg = arg;
	t->ev = evtimer_new(l->base, on_timer, t);
	BUG(!t->ev);
}

void
loop_timer_fini(struct loop_timer *t)
{
	if (t->ev)
		event_free(t->ev);
	t->ev = NULL;
}

void
loop_timer_start(struct loop_timer *t, int64_t after_ms)
{
	struct timeval tv;

	if (after_ms < 0)
		after_ms = 0;
	tv.tv_sec = after_ms / 1000;
	tv.tv_usec = after_ms % 1000 * 1000;
	BUG(event_add(t->ev, &tv) < 0);
}

void
loop_timer_stop(struct loop_timer *t)
{
	if (t->ev)
		event_del(t->ev);
}

bool
loop_timer_pending(const struct loop_timer *t)
{
	return t->ev && event_pending(t->ev, EV_TIMEOUT, NULL);
}

static void
on_signal(evutil_socket_t fd, short what, void *arg)
{
	struct signal_watch *w = arg;

	(void)fd;
	(void)what;
	w->fn(w->arg);
}

void
loop_on_signal(struct loop *l, int signo, loop_fn fn, void *arg)
{
	struct signal_watch *w = &l->signals[l->signals_n];

	BUG(l->signals_n == SIGNALS_MAX);
	l->signals_n++;
	w->fn = fn;
	w->arg = arg;
	w->ev = evsignal_new(l->base, signo, on_signal, w);
	BUG(!w->ev || event_add(w->ev, NULL) < 0);
}

void
loop_lag(struct loop *l, int64_t *avg_us, int64_t *max_us)
{
	*avg_us = l->lag_n > 0 ? l->lag_sum_us / l->lag_n : 0;
	*max_us = l->lag_max_us;
	l->lag_sum_us = l->lag_max_us = l->lag_n = 0;
}
