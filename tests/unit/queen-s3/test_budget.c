/* SPDX-License-Identifier: Apache-2.0 */
/* Who is told to close early, when, and how often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "budget.h"
#include "loop.h"

static struct loop *loop;
static struct budget *budget;
static struct budget_item items[3];
static int told[3];

static void
on_force(void *arg)
{
	++*(int *)arg;
}

static void
on_stop(void *arg)
{
	loop_stop(arg);
}

/* What the loop has to do by now. */
static void
turn(void)
{
	struct loop_timer t;

	loop_timer_init(&t, loop, on_stop, loop);
	loop_timer_start(&t, 5);
	loop_run(loop);
	loop_timer_fini(&t);
}

static int
setup(void **state)
{
	(void)state;
	loop = loop_new();
	budget = budget_new(loop, 100);
	for (int i = 0; i < 3; i++) {
		told[i] = 0;
		budget_join(budget, &items[i], on_force, &told[i]);
	}
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		if (items[i].budget)
			budget_leave(&items[i]);
	budget_free(budget);
	loop_free(loop);
	return 0;
}

static void
the_largest_alone_is_told_and_later(void **state)
{
	(void)state;
	budget_report(&items[0], 30);
	budget_report(&items[1], 60);
	budget_report(&items[2], 10);
	assert_int_equal(budget_used(budget), 100);
	assert_int_equal(budget_limit(budget), 100);
	turn();
	assert_int_equal(told[1], 0);
	budget_report(&items[2], 11);
	assert_int_equal(told[1], 0);
	turn();
	assert_int_equal(told[0], 0);
	assert_int_equal(told[1], 1);
	assert_int_equal(told[2], 0);
}

static void
it_is_told_once_until_it_shrinks(void **state)
{
	(void)state;
	budget_report(&items[0], 101);
	turn();
	budget_report(&items[0], 150);
	budget_report(&items[1], 20);
	turn();
	/* blocked, it stays so; no other pays for it */
	assert_int_equal(told[0], 1);
	assert_int_equal(told[1], 0);
	budget_report(&items[0], 0);
	turn();
	assert_int_equal(budget_used(budget), 20);
	budget_report(&items[0], 101);
	turn();
	assert_int_equal(told[0], 2);
	/* the next largest, once it is the largest */
	budget_report(&items[1], 102);
	turn();
	assert_int_equal(told[1], 1);
}

static void
who_leaves_is_not_counted_and_not_told(void **state)
{
	(void)state;
	budget_report(&items[1], 200);
	budget_leave(&items[1]);
	turn();
	assert_int_equal(told[1], 0);
	assert_int_equal(budget_used(budget), 0);
	budget_report(&items[0], 60);
	budget_report(&items[2], 50);
	turn();
	assert_int_equal(told[0], 1);
	assert_int_equal(told[2], 0);
	budget_leave(&items[2]);
	budget_leave(&items[0]);
	assert_int_equal(budget_used(budget), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			the_largest_alone_is_told_and_later, setup, teardown),
		cmocka_unit_test_setup_teardown(
			it_is_told_once_until_it_shrinks, setup, teardown),
		cmocka_unit_test_setup_teardown(
			who_leaves_is_not_counted_and_not_told, setup,
			teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
