/* SPDX-License-Identifier: Apache-2.0 */
#include "loop.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "clk.h"

struct order {
	struct loop *loop;
	char text[64];
	struct loop_timer timer;
	int rounds;
};

static void
say(struct order *o, const char *what)
{
	strncat(o->text, what, sizeof(o->text) - strlen(o->text) - 1);
}

static void
on_second_later(void *arg)
{
	struct order *o = arg;

	say(o, "c");
	loop_stop(o->loop);
}

static void
on_later(void *arg)
{
	struct order *o = arg;

	say(o, "b");
	loop_later(o->loop, on_second_later, o);
}

static void
on_timer(void *arg)
{
	struct order *o = arg;

	loop_later(o->loop, on_later, o);
	say(o, "a");
}

static void
deferred_work_runs_after_the_event(void **state)
{
	struct order o = { .loop = loop_new() };

	(void)state;
	loop_timer_init(&o.timer, o.loop, on_timer, &o);
	loop_timer_start(&o.timer, 0);
	assert_true(loop_timer_pending(&o.timer));
	loop_run(o.loop);
	assert_false(loop_timer_pending(&o.timer));
	assert_string_equal(o.text, "abc");
	loop_timer_fini(&o.timer);
	loop_free(o.loop);
}

static void
on_again(void *arg)
{
	struct order *o = arg;

	if (++o->rounds < 1000000)
		loop_later(o->loop, on_again, o);
}

static void
on_stop(void *arg)
{
	struct order *o = arg;

	loop_stop(o->loop);
}

static void
endless_deferral_does_not_starve_timers(void **state)
{
	struct order o = { .loop = loop_new() };

	(void)state;
	loop_timer_init(&o.timer, o.loop, on_stop, &o);
	loop_timer_start(&o.timer, 5);
	loop_later(o.loop, on_again, &o);
	loop_run(o.loop);
	assert_in_range(o.rounds, 1, 999999);
	loop_timer_fini(&o.timer);
	o.rounds = 1000000;
	loop_free(o.loop);
}

static void
a_timer_waits_at_least_its_time(void **state)
{
	struct order o = { .loop = loop_new() };
	int64_t from = clk_mono_us();

	(void)state;
	loop_timer_init(&o.timer, o.loop, on_stop, &o);
	loop_timer_start(&o.timer, 500);
	loop_timer_start(&o.timer, 20);
	loop_run(o.loop);
	assert_in_range(clk_mono_us() - from, 19500, 400000);
	loop_timer_fini(&o.timer);
	loop_free(o.loop);
}

static void
a_stopped_timer_does_not_fire(void **state)
{
	struct order o = { .loop = loop_new() };
	struct loop_timer end;

	(void)state;
	loop_timer_init(&o.timer, o.loop, on_timer, &o);
	loop_timer_init(&end, o.loop, on_stop, &o);
	loop_timer_start(&o.timer, 1);
	loop_timer_stop(&o.timer);
	assert_false(loop_timer_pending(&o.timer));
	loop_timer_start(&end, 15);
	loop_run(o.loop);
	assert_string_equal(o.text, "");
	loop_timer_fini(&o.timer);
	loop_timer_fini(&end);
	loop_free(o.loop);
}

static void
a_stop_before_the_run_counts(void **state)
{
	struct loop *l = loop_new();

	(void)state;
	loop_stop(l);
	loop_run(l);
	loop_free(l);
}

static void
on_last_event(void *arg)
{
	struct order *o = arg;

	loop_later(o->loop, on_later, o);
	loop_stop(o->loop);
}

/* The owner of what was deferred is freed between the run and loop_free. */
static void
what_was_deferred_runs_before_the_run_ends(void **state)
{
	struct order o = { .loop = loop_new() };

	(void)state;
	loop_timer_init(&o.timer, o.loop, on_last_event, &o);
	loop_timer_start(&o.timer, 0);
	loop_run(o.loop);
	assert_string_equal(o.text, "bc");
	loop_timer_fini(&o.timer);
	loop_free(o.loop);
}

static void
what_is_deferred_runs_before_the_loop_is_freed(void **state)
{
	struct loop *l = loop_new();

	(void)state;
	loop_later(l, free, malloc(10));
	loop_free(l);
}

static void
signals_arrive_in_the_loop(void **state)
{
	struct order o = { .loop = loop_new() };

	(void)state;
	loop_on_signal(o.loop, SIGUSR1, on_stop, &o);
	raise(SIGUSR1);
	raise(SIGPIPE);
	loop_run(o.loop);
	loop_free(o.loop);
}

static void
on_busy(void *arg)
{
	struct order *o = arg;
	int64_t until = clk_mono_us() + 150000;

	while (clk_mono_us() < until)
		continue;
	loop_timer_start(&o->timer, 1);
	o->timer.fn = on_stop;
}

static void
lag_shows_a_busy_callback(void **state)
{
	struct order o = { .loop = loop_new() };
	int64_t avg, max, now = loop_now_ms(o.loop);

	(void)state;
	loop_timer_init(&o.timer, o.loop, on_busy, &o);
	loop_timer_start(&o.timer, 0);
	loop_run(o.loop);
	loop_lag(o.loop, &avg, &max);
	assert_true(max >= 30000);
	assert_true(avg <= max);
	loop_lag(o.loop, &avg, &max);
	assert_true(avg == 0 && max == 0);
	assert_true(loop_now_ms(o.loop) >= now + 150);
	loop_timer_fini(&o.timer);
	loop_free(o.loop);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deferred_work_runs_after_the_event),
		cmocka_unit_test(endless_deferral_does_not_starve_timers),
		cmocka_unit_test(a_timer_waits_at_least_its_time),
		cmocka_unit_test(a_stopped_timer_does_not_fire),
		cmocka_unit_test(a_stop_before_the_run_counts),
		cmocka_unit_test(what_was_deferred_runs_before_the_run_ends),
		cmocka_unit_test(
			what_is_deferred_runs_before_the_loop_is_freed),
		cmocka_unit_test(signals_arrive_in_the_loop),
		cmocka_unit_test(lag_shows_a_busy_callback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
