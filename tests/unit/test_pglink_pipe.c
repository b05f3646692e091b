/* SPDX-License-Identifier: Apache-2.0 */
/* Flights of prepared statements against a real server. */
#include "pglink_fix.h"

enum { BIG = 5000000 };

static int
setup_pipe(void **state)
{
	struct fix *f;

	setup(state);
	f = *state;
	f->conf.use = PGLINK_PIPELINE;
	dial_up(f);
	return 0;
}

static void
exec(struct fix *f, int i, const char *name, const char *sql)
{
	memset(&f->a[i], 0, sizeof(f->a[i]));
	pglink_exec(f->k, name, sql, NULL, 0, on_answer, &f->a[i]);
}

static void
exec_1(struct fix *f, int i, const char *name, const char *sql,
	struct span value)
{
	struct pglink_param p = { value };

	memset(&f->a[i], 0, sizeof(f->a[i]));
	pglink_exec(f->k, name, sql, &p, 1, on_answer, &f->a[i]);
}

/* Ends the flight and waits for its last answer. */
static void
land(struct fix *f, int last)
{
	pglink_sync(f->k);
	assert_int_equal(f->a[last].n, 0);
	wait_answer(f, &f->a[last]);
}

static void
test_a_flight_and_its_parameters(void **state)
{
	struct fix *f = *state;
	struct answer *a = f->a;
	static const char echo[] = "select coalesce($1, '(null)')";

	exec(f, 0, NULL, "begin");
	exec_1(f, 1, "echo", echo, SPAN_LIT("it's \\ \xc3\xa4"));
	exec_1(f, 2, "echo", echo, (struct span)SPAN_ZERO);
	exec_1(f, 3, "echo", echo, SPAN_LIT(""));
	exec(f, 4, "two", "select 2 union all select 3");
	exec(f, 5, NULL, "commit");
	land(f, 5);
	for (int i = 0; i < 6; i++) {
		assert_true(a[i].ok);
		assert_int_equal(a[i].results, 1);
		assert_int_equal(a[i].order, i);
	}
	assert_string_equal(a[0].value, "BEGIN");
	assert_string_equal(a[1].value, "it's \\ \xc3\xa4");
	assert_string_equal(a[2].value, "(null)");
	assert_string_equal(a[3].value, "");
	assert_string_equal(a[4].value, "2");
	assert_string_equal(a[5].value, "COMMIT");
	/* what is no text to the server is its data error, not our crash */
	exec_1(f, 6, "echo", echo, span_make("a\0b", 3));
	land(f, 6);
	assert_string_equal(a[6].why.sqlstate, "22021");
	assert_false(a[6].why.retryable);
	/* every parameter is text, a server converts as a literal */
	exec_1(f, 7, NULL, "select ($1::jsonb)->>'a'", SPAN_LIT("{\"a\":7}"));
	land(f, 7);
	assert_string_equal(a[7].value, "7");
}

static void
test_a_failure_takes_its_flight_along(void **state)
{
	struct fix *f = *state;
	struct answer *a = f->a;

	exec(f, 0, NULL, "begin");
	exec(f, 1, "bad", "select 1/0");
	exec(f, 2, "after", "select 2");
	exec(f, 3, NULL, "commit");
	pglink_sync(f->k);
	/* without waiting; the name of the flight that failed is not there */
	exec(f, 4, NULL, "commit");
	exec(f, 5, "after", "select 5");
	pglink_sync(f->k);
	exec(f, 6, "after", "select 5");
	land(f, 6);
	assert_true(a[0].ok && !a[1].ok && !a[2].ok && !a[3].ok);
	assert_string_equal(a[1].why.sqlstate, "22012");
	assert_null(a[2].why.code);
	assert_null(a[3].why.code);
	assert_int_equal(a[2].results + a[3].results, 0);
	assert_string_equal(a[4].value, "ROLLBACK");
	assert_string_equal(a[5].value, "5");
	assert_string_equal(a[6].value, "5");
	for (int i = 0; i < 7; i++) {
		assert_int_equal(a[i].n, 1);
		assert_int_equal(a[i].order, i);
	}
	/* `bad` is prepared, it failed when it ran */
	exec(f, 0, NULL,
		"select string_agg(name, ',' order by name) from"
		" pg_prepared_statements");
	land(f, 0);
	assert_string_equal(a[0].value, "after.0,bad.0");
	/* a statement that does not prepare may be mended */
	exec(f, 1, "typo", "selec 1");
	land(f, 1);
	assert_string_equal(a[1].why.sqlstate, "42601");
	exec(f, 2, "typo", "select 1");
	land(f, 2);
	assert_true(a[2].ok);
}

static void
test_forgetting_prepares_again(void **state)
{
	struct fix *f = *state;
	struct answer *a = f->a;

	pgserver_value(f->side, "create table shape (a int)");
	exec(f, 0, "all", "select * from shape");
	land(f, 0);
	pgserver_value(f->side, "alter table shape add b int");
	exec(f, 1, "all", "select * from shape");
	land(f, 1);
	assert_string_equal(a[1].why.sqlstate, "0A000");
	pglink_forget(f->k);
	exec(f, 2, "all", "select * from shape");
	exec(f, 3, NULL,
		"select string_agg(name, ',') from pg_prepared_statements");
	land(f, 3);
	assert_true(a[2].ok);
	assert_string_equal(a[3].value, "all.1");
	/* in the middle of a flight nothing is disturbed */
	exec(f, 4, NULL, "begin");
	exec(f, 5, "all", "select * from shape");
	pglink_forget(f->k);
	exec(f, 6, "all", "select 6");
	exec(f, 7, NULL, "commit");
	land(f, 7);
	assert_true(a[5].ok);
	assert_string_equal(a[6].value, "6");
	assert_string_equal(a[7].value, "COMMIT");
	exec(f, 8, "all", "select 6");
	land(f, 8);
	assert_true(a[8].ok);
	pgserver_value(f->side, "drop table shape");
}

static bool
all_came(struct fix *f)
{
	return f->answers >= 12;
}

static void
test_big_values_both_ways_at_once(void **state)
{
	struct fix *f = *state;
	char *big = malloc(BIG);

	/* far more than the buffers of both sides, before anything is read */
	memset(big, 'x', BIG);
	for (int i = 0; i < 12; i++) {
		exec_1(f, i, "echo", "select $1 || 'y'", span_make(big, BIG));
		if (i % 4 == 3)
			pglink_sync(f->k);
	}
	run_until(f, all_came);
	for (int i = 0; i < 12; i++) {
		assert_true(f->a[i].ok);
		assert_int_equal(f->a[i].bytes, BIG + 1);
		assert_int_equal(f->a[i].order, i);
	}
	free(big);
}

static bool
many_came(struct fix *f)
{
	return f->answers >= 5000;
}

static void
test_many_small_ones(void **state)
{
	struct fix *f = *state;

	for (int i = 0; i < 5000; i++) {
		exec_1(f, i % 10, "echo", "select $1", SPAN_LIT("z"));
		if (i % 100 == 99)
			pglink_sync(f->k);
	}
	run_until(f, many_came);
	assert_string_equal(f->a[9].value, "z");
}

static void
test_a_backend_that_is_ended_mid_flight(void **state)
{
	struct fix *f = *state;
	struct answer *a = f->a;

	exec(f, 0, NULL, "begin");
	exec(f, 1, NULL, "select pg_sleep(60)");
	exec(f, 2, "x", "select 1");
	pglink_sync(f->k);
	exec(f, 3, "x", "select 1");
	pgserver_value(f->side,
		"select pg_terminate_backend(pid) from pg_stat_activity"
		" where application_name = 'queen-pg/0 test'");
	run_until(f, is_over);
	assert_int_equal(a[0].n + a[1].n + a[2].n + a[3].n, 4);
	assert_string_equal(f->why.code, "postgres");
	assert_string_equal(f->why.sqlstate, "57P01");
	for (int i = 1; i < 4; i++) {
		assert_false(a[i].ok);
		assert_true(a[i].why.retryable || !a[i].why.code);
	}
}

static void
test_an_idle_backend_says_why_it_ends(void **state)
{
	struct fix *f = *state;

	exec(f, 0, "x", "select 1");
	land(f, 0);
	pgserver_value(f->side,
		"select pg_terminate_backend(pid) from pg_stat_activity"
		" where application_name = 'queen-pg/0 test'");
	run_until(f, is_over);
	assert_string_equal(f->why.sqlstate, "57P01");
}

static void
on_described(
	void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct fix *f = arg;

	on_answer(&f->a[0], res, n, why);
	f->a[0].bytes = n ? (size_t)PQnparams(res[0]) : 99;
}

static void
test_describing_runs_nothing(void **state)
{
	struct fix *f = *state;

	memset(f->a, 0, sizeof(f->a));
	pglink_describe(f->k, "insert into t values ($1, $2::int + $3)", 1,
		on_described, f);
	land(f, 0);
	assert_string_equal(f->a[0].why.sqlstate, "42P01");
	assert_int_equal(f->a[0].bytes, 99);
	memset(f->a, 0, sizeof(f->a));
	pglink_describe(
		f->k, "select $1, $2::int + $3, 1/0", 1, on_described, f);
	land(f, 0);
	assert_true(f->a[0].ok);
	assert_int_equal(f->a[0].bytes, 3);
}

static void
test_freed_in_the_middle(void **state)
{
	struct fix *f = *state;

	f->free_at_answer = true;
	exec(f, 0, "x", "select 1");
	exec(f, 1, "x", "select 1");
	pglink_sync(f->k);
	exec(f, 2, "x", "select 1");
	wait_answer(f, &f->a[0]);
	assert_null(f->k);
	assert_int_equal(f->a[1].n + f->a[2].n + f->ends, 0);
}

static int
group_setup(void **state)
{
	(void)state;
	pgserver_init(&server);
	return 0;
}

static int
group_teardown(void **state)
{
	(void)state;
	pgserver_fini(&server);
	return 0;
}

#define PIPE_TEST(name)                                                        \
	cmocka_unit_test_setup_teardown(name, setup_pipe, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PIPE_TEST(test_a_flight_and_its_parameters),
		PIPE_TEST(test_a_failure_takes_its_flight_along),
		PIPE_TEST(test_forgetting_prepares_again),
		PIPE_TEST(test_big_values_both_ways_at_once),
		PIPE_TEST(test_many_small_ones),
		PIPE_TEST(test_a_backend_that_is_ended_mid_flight),
		PIPE_TEST(test_an_idle_backend_says_why_it_ends),
		PIPE_TEST(test_describing_runs_nothing),
		PIPE_TEST(test_freed_in_the_middle),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
