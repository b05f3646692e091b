/* SPDX-License-Identifier: Apache-2.0 */
/* One link: dialling by name, passwords, notifications, silence, loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clk.h"
#include "loop.h"
#include "pgbin.h"
#include "pgconn.h"
#include "pgserver.h"

enum { PATIENCE_MS = 20000 };

static struct pgserver server;

struct fix {
	struct loop *loop;
	struct pgconn *c;
	struct loop_timer poll;
	bool (*until)(struct fix *f);
	int64_t deadline_ms;
	int turns, ups, downs, answers, notes;
	struct err why, err;
	char note[32], value[64];
	bool free_on_up, free_on_down, free_on_answer;
};

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
	f->deadline_ms = clk_mono_ms() + PATIENCE_MS;
	loop_timer_start(&f->poll, 0);
	loop_run(f->loop);
	assert_true(until(f));
}

static void
drop(struct fix *f)
{
	pgconn_free(f->c);
	f->c = NULL;
}

static void
on_event(void *arg, enum pgconn_event ev, const struct err *why)
{
	struct fix *f = arg;

	if (ev == PGCONN_UP) {
		f->ups++;
		assert_null(why);
		if (f->free_on_up)
			drop(f);
		return;
	}
	f->downs++;
	f->why = *why;
	if (f->free_on_down)
		drop(f);
}

static void
on_answer(void *arg, const PGresult *res, const struct err *err)
{
	struct fix *f = arg;

	f->answers++;
	f->err = (struct err)ERR_ZERO;
	if (err != NULL)
		f->err = *err;
	else if (PQntuples(res) > 0)
		snprintf(f->value, sizeof f->value, "%.*s",
			SPAN_ARG(pgbin_bytes(res, 0, 0)));
	if (f->free_on_answer)
		drop(f);
}

static void
on_note(void *arg, const PGnotify *n)
{
	struct fix *f = arg;

	f->notes++;
	snprintf(f->note, sizeof f->note, "%s", n->extra);
}

static bool
is_up(struct fix *f)
{
	return f->ups > 0;
}

static bool
is_up_again(struct fix *f)
{
	return f->ups > 1;
}

static bool
is_down(struct fix *f)
{
	return f->downs > 0;
}

static bool
is_down_twice(struct fix *f)
{
	return f->downs > 1;
}

static bool
is_answered(struct fix *f)
{
	return f->answers > 0;
}

static bool
is_noted(struct fix *f)
{
	return f->notes > 0;
}

/* The resolver answers a cancelled question some turns later. */
static bool
has_turned(struct fix *f)
{
	return f->turns > 10;
}

static int
setup(void **state)
{
	struct fix *f = calloc(1, sizeof *f);

	f->loop = loop_new();
	loop_timer_init(&f->poll, f->loop, on_poll, f);
	*state = f;
	return 0;
}

static int
teardown(void **state)
{
	struct fix *f = *state;

	pgconn_free(f->c);
	loop_timer_fini(&f->poll);
	loop_free(f->loop);
	free(f);
	return 0;
}

static void
dial(struct fix *f, const char *conninfo)
{
	f->c = pgconn_new(f->loop, conninfo, "link", on_event, f);
}

/* The server's conninfo with another host and more words. */
static const char *
info(const char *host, const char *more)
{
	static char s[256];

	snprintf(s, sizeof s,
		"host=%s port=%d dbname=postgres gssencmode=disable %s", host,
		server.port, more);
	return s;
}

/* ---- dialling ---- */

static void
test_a_host_name_is_resolved_by_the_loop(void **state)
{
	struct fix *f = *state;

	/* the server listens on 127.0.0.1 only; ::1 is refused first or not */
	dial(f, info("localhost", "user=postgres"));
	assert_false(pgconn_is_up(f->c));
	run_until(f, is_up);
	assert_int_equal(f->downs, 0);
	assert_true(pgconn_backend_pid(f->c) > 0);
	pgconn_send(f->c, "select current_setting('application_name')", NULL,
		on_answer, f);
	run_until(f, is_answered);
	assert_string_equal(f->value, "link");
}

static void
test_sockets_and_lists_are_left_to_libpq(void **state)
{
	struct fix *f = *state;

	dial(f, info(server.dir, "user=postgres"));
	run_until(f, is_up);
	drop(f);
	f->ups = 0;
	dial(f, info("/nonexistent,127.0.0.1", "user=postgres"));
	run_until(f, is_up);
}

static void
test_an_unknown_name_is_tried_again(void **state)
{
	struct fix *f = *state;

	dial(f, info("no-such-host.invalid", "user=postgres"));
	run_until(f, is_down_twice);
	assert_int_equal(f->why.kind, ERR_DB_RETRY);
	assert_non_null(strstr(f->why.text, "no-such-host.invalid"));
}

static void
test_a_refused_dial_is_tried_again(void **state)
{
	struct fix *f = *state;

	dial(f, "host=127.0.0.1 port=1 user=postgres password=hunter2");
	run_until(f, is_down_twice);
	assert_int_equal(f->ups, 0);
	assert_int_equal(f->why.kind, ERR_DB_RETRY);
	assert_non_null(strstr(f->why.text, "Connection refused"));
	assert_null(strstr(f->why.text, "hunter2"));
}

static void
test_a_silent_server_is_given_up(void **state)
{
	struct fix *f = *state;
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char s[128];

	assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	snprintf(s, sizeof s, "host=127.0.0.1 port=%d user=x",
		ntohs(a.sin_port));
	dial(f, s);
	run_until(f, is_down);
	assert_string_equal(f->why.text, "no connection within 5000 ms");
	close(fd);
}

static void
test_the_documented_password_is_tried_when_asked(void **state)
{
	struct fix *f = *state;
	struct err e;
	PGconn *c;

	dial(f, info("127.0.0.1", "user=guarded"));
	run_until(f, is_up);
	assert_int_equal(f->downs, 0);
	c = pgconn_open_sync(info("127.0.0.1", "user=guarded"), "t", 5000, &e);
	assert_non_null(c);
	PQfinish(c);
}

static void
test_a_wrong_password_is_refused_and_not_repeated(void **state)
{
	struct fix *f = *state;
	struct err e;
	const char *s = info("127.0.0.1", "user=guarded password=hunter2");

	assert_null(pgconn_open_sync(s, "t", 5000, &e));
	assert_int_equal(e.kind, ERR_AUTH);
	assert_non_null(strstr(e.text, "authentication failed"));
	assert_null(strstr(e.text, "hunter2"));
	dial(f, s);
	run_until(f, is_down);
	assert_null(strstr(f->why.text, "hunter2"));
}

static void
test_sync_link_tells_unreachable_from_refused(void **state)
{
	struct err e;
	PGconn *c;

	(void)state;
	assert_null(pgconn_open_sync(
		"host=127.0.0.1 port=1 user=x", "t", 5000, &e));
	assert_int_equal(e.kind, ERR_IO);
	assert_null(pgconn_open_sync(
		info("127.0.0.1", "user=nobody_here"), "t", 5000, &e));
	assert_int_equal(e.kind, ERR_AUTH);
	assert_null(pgconn_open_sync(
		info("127.0.0.1", "user=postgres dbname=nowhere"), "t", 5000,
		&e));
	assert_int_equal(e.kind, ERR_IO);
	c = pgconn_open_sync(info("127.0.0.1", "user=postgres"), "t", 5000, &e);
	assert_non_null(c);
	assert_string_equal(pgserver_value(c, "show plan_cache_mode"),
		"force_generic_plan");
	PQfinish(c);
}

/* ---- sessions and statements ---- */

static void
test_more_session_sql_runs_before_up(void **state)
{
	struct fix *f = *state;
	struct pgargs a;

	dial(f, server.conninfo);
	pgconn_session_add(f->c, "listen chan");
	pgconn_on_notify(f->c, on_note, f);
	run_until(f, is_up);
	pgargs_init(&a);
	pgargs_text(&a, SPAN_LIT("chan"));
	pgargs_text(&a, SPAN_LIT("hello"));
	pgconn_send(f->c, "select pg_notify($1, $2)", &a, on_answer, f);
	assert_int_equal(a.n, 0);
	assert_int_equal(pgconn_pending(f->c), 1);
	run_until(f, is_noted);
	assert_string_equal(f->note, "hello");
	assert_int_equal(f->err.kind, ERR_NONE);
	/* after a loss too */
	pgconn_reset(f->c);
	f->notes = 0;
	run_until(f, is_up_again);
	pgconn_send(f->c, "notify chan, 'again'", NULL, NULL, NULL);
	run_until(f, is_noted);
	assert_string_equal(f->note, "again");
}

static void
test_a_failing_session_setting_keeps_the_link_down(void **state)
{
	struct fix *f = *state;

	dial(f, server.conninfo);
	pgconn_session_add(f->c, "select 1/0");
	run_until(f, is_down_twice);
	assert_int_equal(f->ups, 0);
	assert_string_equal(f->why.sqlstate, "22012");
}

static void
test_statements_answer_in_order_and_errors_stay_apart(void **state)
{
	struct fix *f = *state;

	dial(f, server.conninfo);
	run_until(f, is_up);
	pgconn_send(f->c, "select 'a'", NULL, on_answer, f);
	pgconn_send(f->c, "select 1/0", NULL, NULL, NULL);
	pgconn_send(f->c, "nonsense", NULL, NULL, NULL);
	f->value[0] = '\0';
	run_until(f, is_answered);
	assert_string_equal(f->value, "a");
	f->answers = 0;
	pgconn_send(f->c, "select 'b'", NULL, on_answer, f);
	run_until(f, is_answered);
	assert_string_equal(f->value, "b");
	assert_int_equal(pgconn_pending(f->c), 0);
	assert_int_equal(f->downs, 0);
}

static void
test_a_statement_while_down_is_answered_later(void **state)
{
	struct fix *f = *state;

	dial(f, server.conninfo);
	pgconn_send(f->c, "select 'a'", NULL, on_answer, f);
	assert_int_equal(f->answers, 0);
	run_until(f, is_answered);
	assert_int_equal(f->err.kind, ERR_DB_RETRY);
	assert_string_equal(f->err.text, "not connected");
}

static void
test_reset_leaves_statements_unknown(void **state)
{
	struct fix *f = *state;

	dial(f, server.conninfo);
	run_until(f, is_up);
	pgconn_send(f->c, "select pg_sleep(60)", NULL, on_answer, f);
	pgconn_reset(f->c);
	assert_int_equal(f->answers, 0);
	assert_false(pgconn_is_up(f->c));
	run_until(f, is_answered);
	assert_int_equal(f->err.kind, ERR_DB_UNKNOWN);
	run_until(f, is_up_again);
	assert_int_equal(f->downs, 1);
}

static void
test_silence_beyond_the_limit_drops_the_link(void **state)
{
	struct fix *f = *state;

	dial(f, server.conninfo);
	pgconn_limit(f->c, 200);
	run_until(f, is_up);
	pgconn_send(f->c, "select pg_sleep(60)", NULL, on_answer, f);
	run_until(f, is_answered);
	assert_int_equal(f->err.kind, ERR_DB_UNKNOWN);
	assert_string_equal(f->err.text, "no answer in time");
	run_until(f, is_up_again);
}

static void
test_a_link_may_end_inside_each_callback(void **state)
{
	struct fix *f = *state;

	f->free_on_up = true;
	dial(f, server.conninfo);
	run_until(f, is_up);
	f->free_on_up = false;
	f->ups = 0;
	f->free_on_down = true;
	dial(f, "host=127.0.0.1 port=1 user=x");
	run_until(f, is_down);
	dial(f, server.conninfo);
	run_until(f, is_up);
	f->free_on_answer = true;
	pgconn_send(f->c, "select 'a'", NULL, on_answer, f);
	pgconn_send(f->c, "select 'b'", NULL, on_answer, f);
	run_until(f, is_answered);
	assert_int_equal(f->answers, 1);
	assert_null(f->c);
	/* and while a name is being resolved */
	dial(f, info("no-such-host.invalid", "user=postgres"));
	drop(f);
	f->turns = 0;
	run_until(f, has_turned);
}

static int
group_setup(void **state)
{
	PGconn *c;

	(void)state;
	pgserver_init(&server);
	c = pgserver_connect(&server, "postgres");
	pgserver_value(c, "create role guarded login password 'postgres'");
	PQfinish(c);
	return 0;
}

static int
group_teardown(void **state)
{
	(void)state;
	pgserver_fini(&server);
	return 0;
}

#define LINK_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		LINK_TEST(test_a_host_name_is_resolved_by_the_loop),
		LINK_TEST(test_sockets_and_lists_are_left_to_libpq),
		LINK_TEST(test_an_unknown_name_is_tried_again),
		LINK_TEST(test_a_refused_dial_is_tried_again),
		LINK_TEST(test_a_silent_server_is_given_up),
		LINK_TEST(test_the_documented_password_is_tried_when_asked),
		LINK_TEST(test_a_wrong_password_is_refused_and_not_repeated),
		LINK_TEST(test_sync_link_tells_unreachable_from_refused),
		LINK_TEST(test_more_session_sql_runs_before_up),
		LINK_TEST(test_a_failing_session_setting_keeps_the_link_down),
		LINK_TEST(
			test_statements_answer_in_order_and_errors_stay_apart),
		LINK_TEST(test_a_statement_while_down_is_answered_later),
		LINK_TEST(test_reset_leaves_statements_unknown),
		LINK_TEST(test_silence_beyond_the_limit_drops_the_link),
		LINK_TEST(test_a_link_may_end_inside_each_callback),
	};

	return cmocka_run_group_tests_name(
		"pgconn", tests, group_setup, group_teardown);
}
