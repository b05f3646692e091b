/* SPDX-License-Identifier: Apache-2.0 */
/* The pool against a real server: answers, verdicts, deadlines, losses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <unistd.h>

#include "clk.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "pgpool.h"
#include "pgserver.h"

enum { TIMEOUT_MS = 400, LANES = 2, PATIENCE_MS = 20000 };

static struct pgserver server;

/* One operation and what became of it. */
struct answer {
	int n;
	bool ok;
	struct err err;
	int64_t value; /* first column of the first row, when it is a bigint */
	int64_t at_ms;
	int order;
};

struct fix {
	struct loop *loop;
	struct pgpool *pool;
	PGconn *side;
	struct loop_timer poll;
	bool (*until)(struct fix *f);
	int64_t deadline_ms;
	int turns, answers, idles;
	struct answer a[8];
	bool commit;
	int decided;
	struct answer *expect;
	int expect_n;
};

static struct fix *F;

static void
on_poll(void *arg)
{
	struct fix *f = arg;

	f->turns++;
	if (f->until(f) || clk_mono_ms() > f->deadline_ms)
		loop_stop(f->loop);
	else
		loop_timer_start(&f->poll, 5);
}

static void
run_until(struct fix *f, bool (*until)(struct fix *f))
{
	f->until = until;
	f->turns = 0;
	f->deadline_ms = clk_mono_ms() + PATIENCE_MS;
	loop_timer_start(&f->poll, 0);
	loop_run(f->loop);
	assert_true(until(f));
}

static void
on_answer(void *arg, const PGresult *res, const struct err *err)
{
	struct answer *a = arg;

	a->n++;
	a->ok = err == NULL;
	a->order = F->answers++;
	a->at_ms = clk_mono_ms();
	if (err != NULL) {
		a->err = *err;
		assert_null(res);
	} else if (PQntuples(res) > 0 && PQftype(res, 0) == 20) {
		a->value = pgbin_i64(res, 0, 0);
	}
}

static bool
decide(void *arg, const PGresult *res)
{
	struct answer *a = arg;

	assert_int_equal(a->n, 0);
	assert_int_equal(PQntuples(res), 1);
	F->decided++;
	return F->commit;
}

static bool
all_answered(struct fix *f)
{
	for (int i = 0; i < f->expect_n; i++)
		if (f->expect[i].n == 0)
			return false;
	return true;
}

static void
wait_answers(struct fix *f, struct answer *a, int n)
{
	f->expect = a;
	f->expect_n = n;
	run_until(f, all_answered);
	for (int i = 0; i < n; i++)
		assert_int_equal(a[i].n, 1);
}

static bool
all_up(struct fix *f)
{
	struct pgpool_stats s;

	pgpool_stats(f->pool, &s);
	return s.up == s.size;
}

static bool
none_up(struct fix *f)
{
	return !pgpool_is_up(f->pool);
}

static void
open_pool(struct fix *f, const char *conninfo, int64_t timeout_ms)
{
	struct pgpool_conf c = { .conninfo = conninfo,
		.application_name = "pool",
		.lanes_n = LANES,
		.conns = { 1, 2 },
		.stmt_timeout_ms = timeout_ms };

	f->loop = loop_new();
	loop_timer_init(&f->poll, f->loop, on_poll, f);
	f->pool = pgpool_new(f->loop, &c);
}

static int
setup(void **state)
{
	struct fix *f = calloc(1, sizeof *f);

	*state = F = f;
	f->side = pgserver_connect(&server, "postgres");
	open_pool(f, server.conninfo, TIMEOUT_MS);
	run_until(f, all_up);
	return 0;
}

static int
teardown(void **state)
{
	struct fix *f = *state;

	pgpool_free(f->pool);
	loop_timer_fini(&f->poll);
	loop_free(f->loop);
	PQfinish(f->side);
	free(f);
	return 0;
}

static void
call(struct fix *f, int lane, const struct pgstmt *s, struct answer *a)
{
	struct pgargs args;

	pgargs_init(&args);
	pgpool_call(f->pool, lane, s, &args, on_answer, a);
	assert_int_equal(a->n, 0); /* never from inside */
}

static const struct pgstmt one = { "one", "select 1::bigint" };
static const struct pgstmt pid = { "pid", "select pg_backend_pid()::bigint" };
static const struct pgstmt nap_long = { "nap_long",
	"select 1::bigint from pg_sleep(60)" };
static const struct pgstmt nap_short = { "nap_short",
	"select 1::bigint from pg_sleep(0.1)" };
static const struct pgstmt insert = { "insert",
	"insert into t values (1) returning 1::bigint" };

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

static int64_t
backend_pid(struct fix *f)
{
	struct answer a = { .n = 0 };

	call(f, 0, &pid, &a);
	wait_answers(f, &a, 1);
	assert_true(a.ok);
	return a.value;
}

/* ---- values ---- */

static void
on_scalars(void *arg, const PGresult *r, const struct err *err)
{
	struct qid q = pgbin_uuid(r, 0, 6);

	assert_null(err);
	assert_int_equal(pgbin_i16(r, 0, 0), -2);
	assert_int_equal(pgbin_i32(r, 0, 1), -300000);
	assert_int_equal(pgbin_i64(r, 0, 2), INT64_MIN);
	assert_true(pgbin_bool(r, 0, 3));
	assert_true(span_is(pgbin_bytes(r, 0, 4), "h\xc3\xa4t"));
	assert_true(span_eq(pgbin_bytes(r, 0, 5), SPAN_LIT("\0\1\377")));
	assert_int_equal(q.b[0], 0xa0);
	assert_int_equal(q.b[15], 0xaf);
	assert_true(pgbin_time(r, 0, 7) == INT64_C(1788433364512873));
	assert_true(pgbin_time(r, 0, 8) == INT64_MAX);
	assert_true(pgbin_time(r, 0, 9) == INT64_MIN);
	assert_true(pgbin_null(r, 0, 10));
	assert_int_equal(pgbin_bytes(r, 0, 11).n, 0);
	assert_false(pgbin_null(r, 0, 11));
	assert_true(span_is(
		pgbin_bytes(r, 0, 12), "2026-09-03 11:02:44.512873+00"));
	((struct answer *)arg)->n++;
}

static void
test_scalars_go_and_come_back_unchanged(void **state)
{
	static const struct pgstmt s = { "scalars",
		"select $1::int2, $2::int4, $3::int8, $4::bool, $5::text,"
		" $6::bytea, $7::uuid, $8::timestamptz, $9::timestamptz,"
		" $10::timestamptz, $11::int8, $12::text, $8::text" };
	struct fix *f = *state;
	struct answer a = { .n = 0 };
	struct pgargs args;
	struct qid q;

	for (int i = 0; i < 16; i++)
		q.b[i] = (uint8_t)(0xa0 + i);
	pgargs_init(&args);
	pgargs_i16(&args, -2);
	pgargs_i32(&args, -300000);
	pgargs_i64(&args, INT64_MIN);
	pgargs_bool(&args, true);
	pgargs_text(&args, span_of("h\xc3\xa4t"));
	pgargs_bytea(&args, SPAN_LIT("\0\1\377"));
	pgargs_uuid(&args, &q);
	pgargs_time(&args, INT64_C(1788433364512873));
	pgargs_time(&args, INT64_MAX);
	pgargs_time(&args, INT64_MIN);
	pgargs_null(&args);
	pgargs_text(&args, SPAN_LIT(""));
	pgpool_call(f->pool, 0, &s, &args, on_scalars, &a);
	assert_int_equal(args.n, 0); /* taken over */
	assert_null(args.data.p);
	wait_answers(f, &a, 1);
}

static void
check_i64s(const PGresult *r, int col)
{
	struct pgbin_array w = pgbin_array(r, 0, col);
	struct span s;
	bool null;

	assert_true(pgbin_array_next(&w, &s, &null));
	assert_false(null);
	assert_int_equal(pgbin_span_i64(s), -1);
	assert_true(pgbin_array_next(&w, &s, &null));
	assert_true(null);
	assert_int_equal(s.n, 0);
	assert_true(pgbin_array_next(&w, &s, &null));
	assert_int_equal(pgbin_span_i64(s), INT64_MAX);
	assert_false(pgbin_array_next(&w, &s, &null));
}

static void
on_arrays(void *arg, const PGresult *r, const struct err *err)
{
	struct pgbin_array w;
	struct span s;
	bool null;

	assert_null(err);
	check_i64s(r, 0);
	w = pgbin_array(r, 0, 1);
	assert_false(pgbin_array_next(&w, &s, &null));
	assert_int_equal(pgbin_i32(r, 0, 2), 0);
	w = pgbin_array(r, 0, 3);
	assert_true(pgbin_array_next(&w, &s, &null));
	assert_true(span_is(s, "a"));
	assert_true(pgbin_array_next(&w, &s, &null));
	assert_int_equal(s.n, 0);
	assert_false(null);
	assert_false(pgbin_array_next(&w, &s, &null));
	assert_true(span_is(pgbin_bytes(r, 0, 4), "{1,2}{t,f}{-7}"));
	assert_true(span_is(pgbin_bytes(r, 0, 5),
		"{\"1970-01-01 00:00:00.000001+00\",infinity}"));
	assert_true(span_is(pgbin_bytes(r, 0, 6), "{\"\\\\x00ff\",NULL}"));
	w = pgbin_array(r, 0, 7); /* null */
	assert_false(pgbin_array_next(&w, &s, &null));
	((struct answer *)arg)->n++;
}

static void
test_arrays_keep_nulls_empties_and_order(void **state)
{
	static const struct pgstmt s = { "arrays",
		"select $1::int8[], $2::int8[], cardinality($2::int8[]),"
		" $3::text[], $4::int2[]::text || $5::bool[]::text ||"
		" $6::int4[]::text, $7::timestamptz[]::text, $8::bytea[]::text,"
		" null::int8[]" };
	struct fix *f = *state;
	struct answer a = { .n = 0 };
	struct pgargs args;

	pgargs_init(&args);
	pgargs_array(&args, PGARGS_I64);
	pgargs_item_i64(&args, -1);
	pgargs_item_null(&args);
	pgargs_item_i64(&args, INT64_MAX);
	pgargs_close(&args);
	pgargs_array(&args, PGARGS_I64);
	pgargs_close(&args);
	pgargs_array(&args, PGARGS_TEXT);
	pgargs_item_text(&args, SPAN_LIT("a"));
	pgargs_item_text(&args, SPAN_LIT(""));
	pgargs_close(&args);
	pgargs_array(&args, PGARGS_I16);
	pgargs_item_i16(&args, 1);
	pgargs_item_i16(&args, 2);
	pgargs_close(&args);
	pgargs_array(&args, PGARGS_BOOL);
	pgargs_item_bool(&args, true);
	pgargs_item_bool(&args, false);
	pgargs_close(&args);
	pgargs_array(&args, PGARGS_I32);
	pgargs_item_i32(&args, -7);
	pgargs_close(&args);
	pgargs_array(&args, PGARGS_TIMESTAMPTZ);
	pgargs_item_time(&args, 1);
	pgargs_item_time(&args, INT64_MAX);
	pgargs_close(&args);
	pgargs_array(&args, PGARGS_BYTEA);
	pgargs_item_bytea(&args, SPAN_LIT("\0\377"));
	pgargs_item_null(&args);
	pgargs_close(&args);
	pgpool_call(f->pool, 0, &s, &args, on_arrays, &a);
	wait_answers(f, &a, 1);
}

static void
test_sessions_have_the_settings_of_the_plans(void **state)
{
	static const struct pgstmt s = { "settings",
		"select (current_setting('plan_cache_mode') ="
		" 'force_generic_plan' and current_setting('enable_seqscan') ="
		" 'off' and current_setting('enable_bitmapscan') = 'off' and"
		" current_setting('jit') = 'off' and"
		" current_setting('timezone') = 'UTC' and"
		" current_setting('statement_timeout') = '5400ms' and"
		" current_setting('idle_in_transaction_session_timeout') ="
		" '5s')::int::int8" };
	struct answer a = { .n = 0 };

	call(*state, 0, &s, &a);
	wait_answers(*state, &a, 1);
	assert_true(a.ok);
	assert_int_equal(a.value, 1);
}

/* ---- errors ---- */

static void
test_error_keeps_code_and_hides_detail(void **state)
{
	static const struct pgstmt s = { "dup",
		"insert into secrets values ('hunter2') returning 1::bigint" };
	struct fix *f = *state;
	struct answer a[2] = { { .n = 0 } };

	pgserver_value(f->side, "create table secrets (s text primary key)");
	call(f, 0, &s, &a[0]);
	call(f, 0, &s, &a[1]);
	wait_answers(f, a, 2);
	assert_true(a[0].ok);
	assert_false(a[1].ok);
	assert_int_equal(a[1].err.kind, ERR_DB_DATA);
	assert_string_equal(a[1].err.sqlstate, "23505");
	assert_null(strstr(a[1].err.text, "hunter2"));
	/* the link is as good as before */
	a[0] = (struct answer){ .n = 0 };
	call(f, 0, &one, &a[0]);
	wait_answers(f, a, 1);
	assert_int_equal(a[0].value, 1);
	pgserver_value(f->side, "drop table secrets");
}

static void
test_failed_prepare_is_forgotten(void **state)
{
	static const struct pgstmt s = { "absent",
		"select v::bigint from absent" };
	struct fix *f = *state;
	struct answer a[2] = { { .n = 0 } };

	call(f, 0, &s, &a[0]);
	wait_answers(f, a, 1);
	assert_string_equal(a[0].err.sqlstate, "42P01");
	pgserver_value(f->side, "create table absent as select 7 as v");
	call(f, 0, &s, &a[1]);
	wait_answers(f, &a[1], 1);
	assert_int_equal(a[1].value, 7);
	pgserver_value(f->side, "drop table absent");
}

static void
test_statement_that_failed_at_once_stays_prepared(void **state)
{
	static const struct pgstmt s = { "flaky",
		"select (1 / v)::bigint from flaky" };
	struct fix *f = *state;
	struct answer a[2] = { { .n = 0 } };
	struct pgpool_stats st;

	pgserver_value(f->side, "create table flaky as select 0 as v");
	call(f, 0, &s, &a[0]);
	wait_answers(f, a, 1);
	assert_string_equal(a[0].err.sqlstate, "22012");
	pgserver_value(f->side, "update flaky set v = 1");
	call(f, 0, &s, &a[1]);
	wait_answers(f, &a[1], 1);
	assert_true(a[1].ok);
	assert_int_equal(a[1].value, 1);
	pgpool_stats(f->pool, &st);
	assert_int_equal(st.reconnects, 0);
	pgserver_value(f->side, "drop table flaky");
}

static void
test_error_at_commit_is_an_error(void **state)
{
	static const struct pgstmt s = { "late",
		"insert into late values (1) returning 1::bigint" };
	struct fix *f = *state;
	struct answer a[2] = { { .n = 0 } };

	pgserver_value(f->side, "create table late (v int unique deferrable"
				" initially deferred)");
	call(f, 0, &s, &a[0]);
	call(f, 0, &s, &a[1]);
	wait_answers(f, a, 2);
	assert_true(a[0].ok);
	assert_false(a[1].ok);
	assert_string_equal(a[1].err.sqlstate, "23505");
	assert_int_equal(a[1].err.kind, ERR_DB_DATA);
	assert_string_equal(
		pgserver_value(f->side, "select count(*) from late"), "1");
	pgserver_value(f->side, "drop table late");
}

static void
test_changed_result_type_is_prepared_again(void **state)
{
	static const struct pgstmt s = { "shape", "select * from shape()" };
	struct fix *f = *state;
	struct answer a[4] = { { .n = 0 } };

	pgserver_value(f->side,
		"create function shape() returns table "
		"(v bigint) language sql as 'select 1::bigint'");
	/* prepared on both links of the lane */
	call(f, 1, &s, &a[0]);
	call(f, 1, &s, &a[1]);
	wait_answers(f, a, 2);
	assert_int_equal(a[0].value, 1);
	pgserver_value(f->side, "drop function shape()");
	pgserver_value(f->side,
		"create function shape() returns table (v bigint, w int)"
		" language sql as 'select 2::bigint, 3'");
	call(f, 1, &s, &a[2]);
	call(f, 1, &s, &a[3]);
	wait_answers(f, &a[2], 2);
	assert_true(a[2].ok);
	assert_int_equal(a[2].value, 2);
	assert_int_equal(a[3].value, 2);
	pgserver_value(f->side, "drop function shape()");
}

static void
test_lost_prepared_statement_is_prepared_again(void **state)
{
	static const struct pgstmt drop = { "drop", "deallocate all" };
	struct answer a[3] = { { .n = 0 } };

	call(*state, 0, &one, &a[0]);
	call(*state, 0, &drop, &a[1]);
	call(*state, 0, &one, &a[2]);
	wait_answers(*state, a, 3);
	assert_true(a[2].ok);
	assert_int_equal(a[2].value, 1);
}

/* ---- bundles ---- */

static const char *
bundle(struct fix *f, const struct pgstmt *s, bool commit, struct answer *a)
{
	struct pgargs args;

	pgargs_init(&args);
	f->commit = commit;
	f->decided = 0;
	pgpool_bundle(f->pool, 0, s, &args, decide, on_answer, a);
	wait_answers(f, a, 1);
	return pgserver_value(f->side, "select count(*) from t");
}

static void
test_bundle_commits_or_rolls_back_by_verdict(void **state)
{
	static const struct pgstmt bad = { "bad",
		"insert into t values (1 / 0) returning 1::bigint" };
	struct fix *f = *state;
	struct answer a[4] = { { .n = 0 } };

	pgserver_value(f->side, "create table t (v int)");
	assert_string_equal(bundle(f, &insert, true, &a[0]), "1");
	assert_true(a[0].ok);
	assert_int_equal(a[0].value, 1);
	assert_int_equal(f->decided, 1);
	/* the rows of a rolled back bundle are its verdict: no error */
	assert_string_equal(bundle(f, &insert, false, &a[1]), "1");
	assert_true(a[1].ok);
	assert_int_equal(a[1].value, 1);
	assert_int_equal(f->decided, 1);
	assert_string_equal(bundle(f, &bad, true, &a[2]), "1");
	assert_false(a[2].ok);
	assert_string_equal(a[2].err.sqlstate, "22012");
	assert_int_equal(f->decided, 0);
	/* nothing of it is left on the link */
	assert_string_equal(bundle(f, &insert, true, &a[3]), "2");
	pgserver_value(f->side, "drop table t");
}

static void
test_bundle_that_fails_at_commit_is_an_error(void **state)
{
	struct fix *f = *state;
	struct answer a[2] = { { .n = 0 } };

	pgserver_value(f->side, "create table t (v int unique deferrable"
				" initially deferred)");
	assert_string_equal(bundle(f, &insert, true, &a[0]), "1");
	assert_string_equal(bundle(f, &insert, true, &a[1]), "1");
	assert_int_equal(f->decided, 1);
	assert_false(a[1].ok);
	assert_string_equal(a[1].err.sqlstate, "23505");
	pgserver_value(f->side, "drop table t");
}

static void
test_bundle_lost_before_commit_did_not_happen(void **state)
{
	static const struct pgstmt s = { "suicide",
		"insert into t select 1 from pg_terminate_backend("
		"pg_backend_pid()) returning 1::bigint" };
	struct fix *f = *state;
	struct answer a = { .n = 0 };

	pgserver_value(f->side, "create table t (v int)");
	assert_string_equal(bundle(f, &s, true, &a), "0");
	assert_int_equal(a.err.kind, ERR_DB_RETRY);
	assert_int_equal(f->decided, 0);
	pgserver_value(f->side, "drop table t");
}

static bool
decide_and_kill(void *arg, const PGresult *res)
{
	(void)arg;
	(void)res;
	F->decided++;
	pgserver_value(F->side,
		"select count(pg_terminate_backend(pid, 5000)) from"
		" pg_stat_activity where application_name = 'pool' and"
		" state = 'idle in transaction'");
	return true;
}

static void
test_bundle_lost_at_commit_is_unknown(void **state)
{
	struct fix *f = *state;
	struct answer a = { .n = 0 };
	struct pgargs args;

	pgserver_value(f->side, "create table t (v int)");
	pgargs_init(&args);
	pgpool_bundle(
		f->pool, 0, &insert, &args, decide_and_kill, on_answer, &a);
	wait_answers(f, &a, 1);
	assert_int_equal(f->decided, 1);
	assert_int_equal(a.err.kind, ERR_DB_UNKNOWN);
	assert_true(backend_pid(f) > 0);
	pgserver_value(f->side, "drop table t");
}

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

static int
group_setup(void **state)
{
	(void)state;
	log_init("error", false);
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

#define POOL_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		POOL_TEST(test_scalars_go_and_come_back_unchanged),
		POOL_TEST(test_arrays_keep_nulls_empties_and_order),
		POOL_TEST(test_sessions_have_the_settings_of_the_plans),
		POOL_TEST(test_error_keeps_code_and_hides_detail),
		POOL_TEST(test_failed_prepare_is_forgotten),
		POOL_TEST(test_statement_that_failed_at_once_stays_prepared),
		POOL_TEST(test_error_at_commit_is_an_error),
		POOL_TEST(test_changed_result_type_is_prepared_again),
		POOL_TEST(test_lost_prepared_statement_is_prepared_again),
		POOL_TEST(test_bundle_commits_or_rolls_back_by_verdict),
		POOL_TEST(test_bundle_that_fails_at_commit_is_an_error),
		POOL_TEST(test_bundle_lost_before_commit_did_not_happen),
		POOL_TEST(test_bundle_lost_at_commit_is_unknown),
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
