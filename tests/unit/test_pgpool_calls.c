/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the pool against a real server: values, errors, bundles. */
#include <string.h>

#include "pgpool_fix.h"

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

static const struct pgstmt insert = { "insert",
	"insert into t values (1) returning 1::bigint" };

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

static PGresult *kept[2];

static void
keep(void *arg, const PGresult *res, const struct err *err)
{
	struct answer *a = arg;

	on_answer(a, res, err);
	kept[a->order] = pgpool_take_result(F->pool);
	assert_ptr_equal(kept[a->order], res);
}

static void
test_a_callback_may_keep_its_rows(void **state)
{
	struct fix *f = *state;
	struct answer a[2] = { { .n = 0 } };
	struct pgargs args;

	f->answers = 0;
	f->commit = true;
	pgargs_init(&args);
	pgpool_call(f->pool, 0, &one, &args, keep, &a[0]);
	wait_answers(f, a, 1);
	pgpool_bundle(f->pool, 0, &one, &args, decide, keep, &a[1]);
	wait_answers(f, a, 2);
	backend_pid(f);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pgbin_i64(kept[i], 0, 0), 1);
		PQclear(kept[i]);
	}
}

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
		POOL_TEST(test_a_callback_may_keep_its_rows),
	};

	return cmocka_run_group_tests_name(
		"pgpool_calls", tests, group_setup, group_teardown);
}
