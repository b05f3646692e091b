/* SPDX-License-Identifier: Apache-2.0 */
/* The pool against a real server: deadlines, losses, size, lanes, order. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "pgpool_fix.h"

static const struct pgstmt nap_long = { "nap_long",
	"select 1::bigint from pg_sleep(60)" };
static const struct pgstmt nap_short = { "nap_short",
	"select 1::bigint from pg_sleep(0.1)" };

/* ---- deadlines and losses ---- */

static bool
nobody_sleeps(struct fix *f)
{
	return strcmp(pgserver_value(f->side,
			      "select count(*) from pg_stat_activity where"
			      " wait_event = 'PgSleep'"),
		       "0") == 0;
}

static void
test_statement_past_its_deadline_is_cancelled(void **state)
{
	struct fix *f = *state;
	struct answer a = { .n = 0 };
	int64_t before = backend_pid(f), start = clk_mono_ms();
	struct pgpool_stats s;

	call(f, 0, &nap_long, &a);
	wait_answers(f, &a, 1);
	assert_int_equal(a.err.kind, ERR_DB_RETRY);
	assert_string_equal(a.err.sqlstate, "57014");
	assert_string_equal(a.err.text, "statement timeout after 400 ms");
	assert_true(a.at_ms - start >= TIMEOUT_MS);
	assert_true(a.at_ms - start < 5000);
	run_until(f, nobody_sleeps);
	/* and its link replaced */
	assert_true(backend_pid(f) != before);
	pgpool_stats(f->pool, &s);
	assert_int_equal(s.timeouts, 1);
	assert_int_equal(s.errors, 1);
}

static void
test_bundle_past_its_deadline_may_be_repeated(void **state)
{
	struct fix *f = *state;
	struct answer a = { .n = 0 };
	struct pgargs args;

	pgargs_init(&args);
	pgpool_bundle(f->pool, 0, &nap_long, &args, decide, on_answer, &a);
	wait_answers(f, &a, 1);
	assert_int_equal(a.err.kind, ERR_DB_RETRY);
	assert_int_equal(f->decided, 0);
	assert_true(backend_pid(f) > 0);
}

static void
test_killed_backend_is_unknown_and_replaced(void **state)
{
	struct fix *f = *state;
	struct answer a = { .n = 0 };
	int64_t before = backend_pid(f);
	char sql[64];

	call(f, 0, &nap_long, &a);
	snprintf(sql, sizeof sql, "select pg_terminate_backend(%d)",
		(int)before);
	pgserver_value(f->side, sql);
	wait_answers(f, &a, 1);
	assert_int_equal(a.err.kind, ERR_DB_UNKNOWN);
	assert_true(backend_pid(f) != before);
}

static void
test_idle_link_that_was_killed_comes_back(void **state)
{
	struct fix *f = *state;
	struct pgpool_stats s;

	pgserver_value(f->side,
		"select count(pg_terminate_backend(pid, 5000)) from"
		" pg_stat_activity where application_name = 'pool'");
	run_until(f, none_up);
	run_until(f, all_up);
	pgpool_stats(f->pool, &s);
	assert_int_equal(s.reconnects, s.size);
	assert_int_equal(s.errors, 0);
	assert_true(backend_pid(f) > 0);
}

static void
test_frozen_backend_meets_the_deadline_too(void **state)
{
	struct fix *f = *state;
	struct answer a = { .n = 0 };
	int64_t before = backend_pid(f), start = clk_mono_ms();

	assert_int_equal(kill((pid_t)before, SIGSTOP), 0);
	call(f, 0, &one, &a);
	wait_answers(f, &a, 1);
	assert_int_equal(a.err.kind, ERR_DB_UNKNOWN);
	assert_string_equal(a.err.text, "statement timeout after 400 ms");
	assert_true(a.at_ms - start >= TIMEOUT_MS);
	assert_true(a.at_ms - start < 5000);
	assert_true(backend_pid(f) != before);
	assert_int_equal(kill((pid_t)before, SIGCONT), 0);
}

static bool
is_refused(struct fix *f)
{
	return none_up(f) && f->a[2].n > 0;
}

static void
test_server_crash_answers_and_recovers(void **state)
{
	struct fix *f = *state;
	struct answer *a = f->a;
	int64_t start;

	call(f, 0, &nap_long, &a[0]); /* sent */
	call(f, 0, &one, &a[1]); /* waits for the link */
	pgserver_stop(&server);
	wait_answers(f, a, 2);
	assert_int_equal(a[0].err.kind, ERR_DB_UNKNOWN);
	assert_int_equal(a[1].err.kind, ERR_DB_RETRY);
	assert_string_equal(a[1].err.text, "pool");
	/* from now on at once */
	start = clk_mono_ms();
	call(f, 1, &one, &a[2]);
	run_until(f, is_refused);
	assert_int_equal(a[2].err.kind, ERR_DB_RETRY);
	assert_string_equal(a[2].err.text, "pool");
	assert_true(a[2].at_ms - start < 1000);
	assert_int_equal(pgpool_idle(f->pool, 0), 0);
	pgserver_start(&server);
	run_until(f, all_up);
	assert_true(backend_pid(f) > 0);
	PQreset(f->side);
}

static void
test_server_that_never_was_there_fails_fast(void **state)
{
	struct fix *f = calloc(1, sizeof *f);
	struct answer *a = f->a;
	int64_t start = clk_mono_ms();

	(void)state;
	F = f;
	open_pool(f, "host=127.0.0.1 port=1 user=x dbname=x", TIMEOUT_MS);
	call(f, 0, &one, &a[0]);
	wait_answers(f, a, 1);
	assert_int_equal(a[0].err.kind, ERR_DB_RETRY);
	assert_string_equal(a[0].err.text, "pool");
	assert_true(a[0].at_ms - start < 2000);
	teardown((void **)&f);
}

/* ---- size, lanes, order ---- */

static void
test_a_100_mb_parameter_does_not_stop_the_loop(void **state)
{
	static const struct pgstmt s = { "big",
		"select octet_length($1::bytea)::bigint" };
	enum { BIG = 100 * 1000 * 1000 };
	struct fix *f = *state;
	struct answer a = { .n = 0 };
	struct pgargs args;
	char *p = calloc(1, BIG);

	teardown(state);
	f = calloc(1, sizeof *f);
	*state = F = f;
	open_pool(f, server.conninfo, 60000);
	run_until(f, all_up);
	pgargs_init(&args);
	pgargs_bytea(&args, span_make(p, BIG));
	free(p);
	pgpool_call(f->pool, 0, &s, &args, on_answer, &a);
	wait_answers(f, &a, 1);
	assert_true(a.ok);
	assert_int_equal(a.value, BIG);
	assert_true(f->turns > 3);
}

static bool
one_answer_of_lane_one(struct fix *f)
{
	return f->a[4].n > 0;
}

static void
test_lanes_are_apart_and_first_in_first_out(void **state)
{
	struct fix *f = *state;
	struct answer *a = f->a;
	struct pgpool_stats s;

	for (int i = 0; i < 4; i++)
		call(f, 0, &nap_short, &a[i]);
	call(f, 1, &one, &a[4]);
	pgpool_stats(f->pool, &s);
	assert_int_equal(s.size, 3);
	assert_int_equal(s.busy, 2); /* one link in lane 0 */
	assert_int_equal(s.waiting, 3);
	assert_int_equal(pgpool_idle(f->pool, 0), 0);
	assert_int_equal(pgpool_idle(f->pool, 1), 1);
	run_until(f, one_answer_of_lane_one);
	assert_int_equal(a[4].order, 0); /* did not wait for lane 0 */
	wait_answers(f, a, 5);
	for (int i = 0; i < 4; i++)
		assert_int_equal(a[i].order, i + 1);
	/* one after the other */
	assert_true(a[3].at_ms - a[0].at_ms >= 290);
	assert_int_equal(pgpool_idle(f->pool, 0), 1);
}

static void
test_who_waits_too_long_is_told_and_the_others_go_on(void **state)
{
	static const struct pgstmt nap = { "nap",
		"select 7::bigint from pg_sleep(0.3)" };
	struct fix *f = *state;
	struct answer a[4] = { { .n = 0 } };
	struct pgargs args;

	call(f, 0, &nap, &a[0]);
	call(f, 0, &one, &a[1]);
	for (int i = 2; i < 4; i++) {
		pgargs_init(&args);
		pgpool_within(f->pool, 0, i == 2 ? 60 : 10000, &one, &args,
			NULL, on_answer, &a[i]);
	}
	wait_answers(f, a, 4);
	assert_true(a[0].ok && a[1].ok && a[3].ok);
	assert_false(a[2].ok);
	assert_int_equal(a[2].err.kind, ERR_LIMIT);
	assert_int_equal(a[2].order, 0);
	assert_int_equal(a[1].order, 2);
	assert_int_equal(a[3].order, 3);
}

static void
on_idle(void *arg, int lane)
{
	struct fix *f = arg;

	assert_int_equal(lane, 0);
	assert_int_equal(pgpool_idle(f->pool, 0), 1);
	f->idles++;
}

static bool
was_idle(struct fix *f)
{
	return f->idles > 0;
}

static void
test_idle_is_told_when_the_lane_is_empty(void **state)
{
	struct fix *f = *state;
	struct answer *a = f->a;

	pgpool_on_idle(f->pool, 0, on_idle, f);
	call(f, 0, &one, &a[0]);
	call(f, 0, &one, &a[1]);
	run_until(f, was_idle);
	assert_int_equal(f->idles, 1);
	assert_int_equal(a[1].n, 1);
}

static void
free_pool(void *arg, const PGresult *res, const struct err *err)
{
	struct fix *f = arg;

	assert_null(err);
	assert_int_equal(pgbin_i64(res, 0, 0), 1);
	pgpool_free(f->pool);
	f->pool = NULL;
}

static bool
pool_gone(struct fix *f)
{
	return f->pool == NULL;
}

static void
test_pool_may_end_inside_its_callback(void **state)
{
	struct fix *f = *state;
	struct pgargs args;

	pgargs_init(&args);
	call(f, 0, &one, &f->a[0]);
	pgpool_call(f->pool, 0, &one, &args, free_pool, f);
	call(f, 0, &one, &f->a[1]);
	call(f, 1, &nap_long, &f->a[2]);
	run_until(f, pool_gone);
	assert_int_equal(f->a[0].n, 1);
	assert_int_equal(f->a[1].n, 0); /* dropped without a word */
	assert_int_equal(f->a[2].n, 0);
}

static void
test_a_stopped_pool_answers_everybody_with_a_failure(void **state)
{
	struct fix *f = *state;
	struct answer *a = f->a;

	call(f, 0, &nap_long, &a[0]);
	call(f, 0, &one, &a[1]); /* waits behind it */
	call(f, 1, &one, &a[2]);
	wait_answers(f, &a[2], 1);
	pgpool_stop(f->pool);
	call(f, 1, &one, &a[3]);
	wait_answers(f, a, 4);
	assert_true(a[2].ok);
	assert_int_equal(a[0].err.kind, ERR_DB_UNKNOWN);
	assert_int_equal(a[1].err.kind, ERR_DB_RETRY);
	assert_int_equal(a[3].err.kind, ERR_DB_RETRY);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		POOL_TEST(test_statement_past_its_deadline_is_cancelled),
		POOL_TEST(test_bundle_past_its_deadline_may_be_repeated),
		POOL_TEST(test_killed_backend_is_unknown_and_replaced),
		POOL_TEST(test_idle_link_that_was_killed_comes_back),
		POOL_TEST(test_frozen_backend_meets_the_deadline_too),
		POOL_TEST(test_server_crash_answers_and_recovers),
		cmocka_unit_test(test_server_that_never_was_there_fails_fast),
		POOL_TEST(test_a_100_mb_parameter_does_not_stop_the_loop),
		POOL_TEST(test_lanes_are_apart_and_first_in_first_out),
		POOL_TEST(test_who_waits_too_long_is_told_and_the_others_go_on),
		POOL_TEST(test_idle_is_told_when_the_lane_is_empty),
		POOL_TEST(test_pool_may_end_inside_its_callback),
		POOL_TEST(test_a_stopped_pool_answers_everybody_with_a_failure),
	};

	return cmocka_run_group_tests_name(
		"pgpool", tests, group_setup, group_teardown);
}
