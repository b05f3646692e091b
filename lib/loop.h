/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one loop of a process on libevent: timers, signals, and work deferred
 * to the end of the turn, so that an object may end inside its own callback.
 */
#ifndef QUEEN_LOOP_H
#define QUEEN_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct event_base;
struct loop;

typedef void (*loop_fn)(void *arg);

struct loop *loop_new(void);
void loop_free(struct loop *l);
struct event_base *loop_base(struct loop *l);
void loop_run(struct loop *l);		/* until loop_stop */
void loop_stop(struct loop *l);
/* Runs fn(arg) at the end of this turn, after the ready events. */
void loop_later(struct loop *l, loop_fn fn, void *arg);
/* Monotonic ms, read once per turn (cheap); never goes back. */
int64_t loop_now_ms(struct loop *l);

/* Embedded; fires once per start. */
struct loop_timer {
	struct loop *loop;
	struct event *ev;
	loop_fn fn;
	void *arg;
};
void loop_timer_init(struct loop_timer *t, struct loop *l, loop_fn fn,
	void *arg);
void loop_timer_fini(struct loop_timer *t);
void loop_timer_start(struct loop_timer *t, int64_t after_ms);
void loop_timer_stop(struct loop_timer *t);
bool loop_timer_pending(const struct loop_timer *t);

/* Signals only arrive through here; SIGPIPE is ignored by loop_new. */
void loop_on_signal(struct loop *l, int signo, loop_fn fn, void *arg);

/* Mean and max delay of a 100 ms heartbeat since the last call, in us. */
void loop_lag(struct loop *l, int64_t *avg_us, int64_t *max_us);

#endif
