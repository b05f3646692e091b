/* SPDX-License-Identifier: Apache-2.0 */
/* The replication stream of a real walsender. */
#include <endian.h>

#include "pglink_fix.h"

enum { ROWS = 20000, KEEP_MS = 3300, GRACE_MS = 10000 };
#define TIMEOUT "1500ms"
#define START                                                                  \
	"START_REPLICATION SLOT \"s\" LOGICAL 0/0 (proto_version '1', "        \
	"publication_names 'p')"

/* What the frames said. */
struct seen {
	int frames, rows, commits, keepalives, drained, pauses;
	uint64_t last_start, end;
	size_t bytes;
	bool answer, pause;
	int broken; /* line of the first check that failed */
	struct loop_timer resume;
};

static struct seen S;

static uint64_t
be64(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static void
confirm(struct fix *f, uint64_t lsn)
{
	char m[34] = { 'r' };
	uint64_t v = htobe64(lsn);

	for (int i = 0; i < 3; i++)
		memcpy(m + 1 + 8 * i, &v, sizeof(v));
	pglink_put(f->k, span_make(m, sizeof(m)));
}

/* A callback must not leave the loop by a failed assertion. */
#define CHECK(cond)                                                            \
	do {                                                                   \
		if (!(cond) && S.broken == 0)                                  \
			S.broken = __LINE__;                                   \
	} while (0)

/* Rows are (n, n times a pattern): whole, in order, none twice. */
static void
take_row(struct span m)
{
	const char *p = m.p + 6 + 2; /* I, relation, N, columns */
	uint32_t n;
	char id[12] = { 0 };
	const char *pad;

	CHECK(p[0] == 't');
	memcpy(&n, p + 1, sizeof(n));
	n = be32toh(n);
	memcpy(id, p + 5, n);
	CHECK(strtol(id, NULL, 10) == S.rows);
	p += 5 + n;
	memcpy(&n, p + 1, sizeof(n));
	n = be32toh(n);
	pad = p + 5;
	CHECK(n == 10u * (unsigned)(S.rows % 50));
	for (uint32_t i = 0; i < n; i++)
		CHECK(pad[i] == 'a' + (char)(i % 10));
	CHECK(pad + n == m.p + m.n);
	S.rows++;
}

static bool
on_frame(void *arg, struct span d)
{
	struct fix *f = arg;

	S.frames++;
	S.bytes += d.n;
	if (d.p[0] == 'k') {
		S.keepalives++;
		if (S.answer && d.p[17])
			confirm(f, S.end);
		return true;
	}
	CHECK(d.p[0] == 'w');
	CHECK(be64(d.p + 1) == 0 || be64(d.p + 1) >= S.last_start);
	S.last_start = be64(d.p + 1) ? be64(d.p + 1) : S.last_start;
	if (d.p[25] == 'I')
		take_row(span_make(d.p + 25, d.n - 25));
	if (d.p[25] == 'C') {
		S.commits++;
		S.end = be64(d.p + 25 + 10);
	}
	if (!S.pause || S.frames % 7 != 0)
		return true;
	S.pauses++;
	loop_timer_start(&S.resume, S.pauses % 50 == 0 ? 2 : 0);
	return false;
}

static void
on_drained(void *arg)
{
	(void)arg;
	S.drained++;
}

static void
on_resume(void *arg)
{
	struct fix *f = arg;

	pglink_go_on(f->k);
}

static int
setup_stream(void **state)
{
	struct fix *f;

	setup(state);
	f = *state;
	memset(&S, 0, sizeof(S));
	loop_timer_init(&S.resume, f->loop, on_resume, f);
	f->conf.use = PGLINK_REPLICATION;
	S.answer = true;
	pgserver_value(f->side, "create table t (id int primary key, pad text);"
				"create publication p for table t;");
	pgserver_value(f->side,
		"select pg_create_logical_replication_slot('s', 'pgoutput')");
	dial_up(f);
	return 0;
}

static bool
slot_is_free(struct fix *f)
{
	return strcmp(pgserver_value(f->side,
			      "select count(*) from pg_replication_slots"
			      " where active"),
		       "0") == 0;
}

static int
teardown_stream(void **state)
{
	struct fix *f = *state;

	pglink_free(f->k);
	f->k = NULL;
	run_until(f, slot_is_free);
	pgserver_value(f->side,
		"select pg_drop_replication_slot(slot_name) from"
		" pg_replication_slots");
	pgserver_value(f->side, "drop publication p");
	pgserver_value(f->side, "drop table t");
	loop_timer_fini(&S.resume);
	assert_int_equal(S.broken, 0);
	return teardown(state);
}

static void
on_began(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct fix *f = arg;

	on_answer(&f->a[0], res, n, why);
}

static void
stream(struct fix *f, const char *sql)
{
	memset(&f->a[0], 0, sizeof(f->a[0]));
	pglink_stream(f->k, sql, on_began, on_frame, on_drained, f);
	wait_answer(f, &f->a[0]);
}

static void
insert_rows(struct fix *f, const char *n)
{
	char sql[200];

	snprintf(sql, sizeof(sql),
		"insert into t select i, repeat('abcdefghij', i %% 50) from"
		" generate_series(0, %s - 1) i",
		n);
	pgserver_value(f->side, sql);
}

static bool
one_commit(struct fix *f)
{
	(void)f;
	return S.commits > 0;
}

static void
finished(struct fix *f)
{
	run_until(f, is_over);
	assert_null(f->why.code);
	assert_int_equal(f->ends, 1);
}

/* ---- tests ---- */

static void
test_frames_come_whole_however_reading_is_interrupted(void **state)
{
	struct fix *f = *state;
	char sql[120];

	S.pause = true;
	insert_rows(f, "20000");
	stream(f, START);
	assert_true(f->a[0].ok);
	run_until(f, one_commit);
	assert_int_equal(S.rows, ROWS);
	assert_true(S.pauses > 2000);
	assert_true(S.drained > 0);
	/* what was confirmed stands, and the slot is free at the end */
	confirm(f, S.end);
	pglink_finish(f->k, GRACE_MS);
	pglink_finish(f->k, GRACE_MS);
	finished(f);
	assert_true(slot_is_free(f));
	snprintf(sql, sizeof(sql),
		"select confirmed_flush_lsn - '0/0' = %llu from"
		" pg_replication_slots",
		(unsigned long long)S.end);
	assert_string_equal(pgserver_value(f->side, sql), "t");
	/* a later start passes over it */
	S.commits = 0;
	dial_up(f);
	stream(f, START);
	pgserver_value(f->side, "insert into t values (20000, '')");
	run_until(f, one_commit);
	assert_int_equal(S.rows, ROWS + 1);
}

static void
test_a_stream_that_is_paused_ends_in_order(void **state)
{
	struct fix *f = *state;

	insert_rows(f, "2000");
	S.pause = true;
	stream(f, START);
	loop_timer_stop(&S.resume);
	pglink_finish(f->k, GRACE_MS);
	finished(f);
	assert_true(slot_is_free(f));
	assert_true(S.rows < 2000);
}

static bool
time_is_up(struct fix *f)
{
	return f->ends > 0 ||
	       clk_mono_ms() > f->deadline_ms - PATIENCE_MS + KEEP_MS;
}

static void
test_keepalives_must_be_answered(void **state)
{
	struct fix *f = *state;

	pgserver_value(f->side,
		"alter role postgres set wal_sender_timeout = '" TIMEOUT "'");
	dial_up(f);
	stream(f, START);
	run_until(f, time_is_up);
	assert_int_equal(f->ends, 0);
	assert_true(S.keepalives >= 3);
	S.answer = false;
	run_until(f, is_over);
	assert_string_equal(f->why.code, "io");
	assert_true(f->why.retryable);
	pgserver_value(f->side, "alter role postgres reset wal_sender_timeout");
}

static void
test_refusals_carry_the_servers_error(void **state)
{
	struct fix *f = *state;
	struct pglink *holder;
	struct answer *a = f->a;

	stream(f, "START_REPLICATION SLOT \"none\" LOGICAL 0/0 (proto_version "
		  "'1', publication_names 'p')");
	assert_string_equal(a->why.sqlstate, "42704");
	assert_string_equal(a->why.code, "postgres");
	assert_false(a->why.retryable);
	assert_int_equal(f->ends, 0);
	/* it still takes commands */
	pglink_query(f->k, "IDENTIFY_SYSTEM", on_answer, &a[1]);
	wait_answer(f, &a[1]);
	assert_true(a[1].ok);
	dial_up(f);
	stream(f, START);
	holder = f->k;
	f->k = NULL;
	dial_up(f);
	stream(f, START);
	assert_string_equal(a->why.sqlstate, "55006");
	assert_true(a->why.retryable);
	pglink_free(holder);
	pgserver_value(
		f->side, "create role guarded login replication password 'x'");
	f->conn.user = SPAN_LIT("guarded");
	f->conf.password = SPAN_LIT("y");
	refused(f, "postgres", false, "28P01: ");
	pgserver_value(f->side, "drop role guarded");
	f->conn.user = SPAN_LIT("postgres");
}

static void
test_what_is_written_waits_for_the_socket(void **state)
{
	struct fix *f = *state;

	/* megabytes of ours while the walsender sends its own */
	insert_rows(f, "20000");
	S.pause = true;
	stream(f, START);
	for (int i = 0; i < 200000; i++)
		confirm(f, 1);
	run_until(f, one_commit);
	assert_int_equal(S.rows, ROWS);
	assert_int_equal(f->ends, 0);
}

static void
test_losses(void **state)
{
	struct fix *f = *state;

	insert_rows(f, "10");
	stream(f, START);
	run_until(f, one_commit);
	pgserver_value(f->side, "select pg_terminate_backend(active_pid) from"
				" pg_replication_slots");
	run_until(f, is_over);
	assert_string_equal(f->why.sqlstate, "57P01");
	assert_true(f->why.retryable);
	/* an error that ends the stream, not the session */
	S.rows = 0;
	S.last_start = 0;
	dial_up(f);
	stream(f, START);
	assert_true(f->a[0].ok);
	pgserver_value(f->side, "select pg_cancel_backend(active_pid) from"
				" pg_replication_slots");
	run_until(f, is_over);
	assert_string_equal(f->why.sqlstate, "57014");
	assert_false(f->why.retryable);
	/* an end that was asked for before there was a stream */
	dial_up(f);
	pglink_finish(f->k, GRACE_MS);
	finished(f);
}

static void
on_warning(void *arg, const char *sqlstate, const char *where)
{
	snprintf(arg, 32, "%s %s", sqlstate, where);
}

static void
test_a_warning_is_told_by_its_sqlstate(void **state)
{
	struct fix *f = *state;
	char last[32] = "";

	query(f, "do $$ begin raise warning 'x'; end $$");
	pglink_on_warning(f->k, on_warning, last);
	assert_true(query(f, "do $$ begin raise notice 'x'; end $$")->ok);
	assert_string_equal(last, "");
	assert_true(query(f, "do $$ begin raise warning 'x' using errcode = "
			     "'55000'; end $$")
			    ->ok);
	assert_string_equal(last, "55000 exec_stmt_raise");
}

static int
group_setup(void **state)
{
	PGconn *c;

	(void)state;
	pgserver_init(&server);
	c = pgserver_connect(&server, "postgres");
	pgserver_value(c, "alter system set wal_level = logical");
	PQfinish(c);
	pgserver_stop(&server);
	pgserver_start(&server);
	return 0;
}

static int
group_teardown(void **state)
{
	(void)state;
	pgserver_fini(&server);
	return 0;
}

#define STREAM_TEST(name)                                                      \
	cmocka_unit_test_setup_teardown(name, setup_stream, teardown_stream)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		STREAM_TEST(
			test_frames_come_whole_however_reading_is_interrupted),
		STREAM_TEST(test_a_stream_that_is_paused_ends_in_order),
		STREAM_TEST(test_keepalives_must_be_answered),
		STREAM_TEST(test_refusals_carry_the_servers_error),
		STREAM_TEST(test_what_is_written_waits_for_the_socket),
		STREAM_TEST(test_losses),
		STREAM_TEST(test_a_warning_is_told_by_its_sqlstate),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
