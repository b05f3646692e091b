/* SPDX-License-Identifier: Apache-2.0 */
/* A link to a real server: how it is reached, refused, used and lost. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pglink_fix.h"

/* ---- connecting ---- */

static void
test_session_settings_hold(void **state)
{
	static const char *const settings[] = { "statement_timeout=0",
		"cell.odd=a b,c\\d'", NULL };
	struct fix *f = *state;

	/* a role's own settings and the environment give way */
	pgserver_value(f->side, "create role odd login;"
				"alter role odd set timezone = 'Asia/Tokyo';"
				"alter role odd set datestyle = 'German';"
				"alter role odd set intervalstyle = 'iso_8601';"
				"alter role odd set extra_float_digits = -5;"
				"alter role odd set bytea_output = 'escape';"
				"alter role odd set quote_all_identifiers = on;"
				"alter role odd set"
				" default_transaction_read_only = on;"
				"alter role odd set client_encoding = 'LATIN1';"
				"alter role odd set statement_timeout = '5s'");
	setenv("PGTZ", "Asia/Tokyo", 1);
	setenv("PGDATESTYLE", "German", 1);
	setenv("PGOPTIONS", "-c nonsense=1", 1);
	setenv("PGSERVICE", "nowhere", 1);
	setenv("PGTARGETSESSIONATTRS", "standby", 1);
	setenv("PGREQUIREPEER", "nobody", 1);
	f->conn.user = SPAN_LIT("odd");
	f->conf.settings = settings;
	dial_up(f);
	assert_string_equal(getenv("PGSERVICE"), "nowhere");
	value_is(f,
		"select string_agg(setting, '|' order by name) from"
		" pg_settings where name in ('TimeZone', 'DateStyle',"
		" 'IntervalStyle', 'extra_float_digits', 'bytea_output',"
		" 'client_encoding', 'statement_timeout',"
		" 'quote_all_identifiers', 'default_transaction_read_only')",
		"ISO, MDY|postgres|UTC|hex|UTF8|off|3|off|0");
	value_is(f, "show cell.odd", "a b,c\\d'");
	unsetenv("PGTZ");
	unsetenv("PGDATESTYLE");
	unsetenv("PGOPTIONS");
	unsetenv("PGSERVICE");
	unsetenv("PGTARGETSESSIONATTRS");
	unsetenv("PGREQUIREPEER");
	assert_true(pglink_server_version(f->k) >= 150000);
	value_is(f, "show wal_level", "replica");
	pgserver_value(f->side, "drop role odd");
}

static void
test_name_is_cut_at_a_character(void **state)
{
	struct fix *f = *state;

	/* 62 bytes, then one of two */
	f->conf.application_name = "queen-pg/0.1.0 sink:aaaaaaaaaaaaaaaaaaaaaaa"
				   "aaaaaaaaaaaaaaaaaaa\xc3\xa4:1";
	dial_up(f);
	value_is(f,
		"select length(application_name) from pg_stat_activity"
		" where pid = pg_backend_pid()",
		"62");
}

static void
test_tcp_is_watched(void **state)
{
	struct fix *f = *state;

	dial_up(f);
	for (int fd = 3, found = 0; fd < 64 && !found; fd++) {
		int idle = 0, interval = 0, count = 0, user = 0;
		socklen_t n = sizeof(int);
		struct sockaddr_in at = { .sin_family = 0 };
		socklen_t at_n = sizeof(at);

		if (getpeername(fd, (struct sockaddr *)&at, &at_n) != 0 ||
			ntohs(at.sin_port) != server.port)
			continue;
		getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &n);
		getsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, &n);
		getsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, &n);
		getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user, &n);
		found = idle == 30 && interval == 10 && count == 3 &&
			user == 60000;
		if (found)
			return;
	}
	fail_msg("no socket with keepalives");
}

static void
test_names_are_no_connection_strings(void **state)
{
	struct fix *f = *state;

	f->conn.database = SPAN_LIT("host=203.0.113.1 dbname=postgres");
	refused(f, "postgres", false,
		"3D000: database \"host=203.0.113.1 dbname=postgres\" does "
		"not exist");
	assert_string_equal(f->why.sqlstate, "3D000");
}

static void
test_host_names_are_looked_up(void **state)
{
	struct fix *f = *state;

	f->conn.host = SPAN_LIT("localhost");
	dial_up(f);
	value_is(f, "select host(inet_server_addr())", "127.0.0.1");
	f->conn.host = SPAN_LIT("no-such-host.invalid");
	f->conn.connect_timeout_ms = 1000;
	refused(f, "postgres", true,
		"host name \"no-such-host.invalid\" does not resolve, or not "
		"within connectTimeoutMs (1000 ms)");
}

static void
test_private_networks_may_be_off(void **state)
{
	static const char *const hosts[] = { "127.0.0.1", "localhost", "::1",
		"10.1.2.3", "::ffff:192.168.1.1" };
	struct fix *f = *state;

	f->conf.allow_private = false;
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		f->conn.host = span_of(hosts[i]);
		refused(f, "egress", false,
			"QUEEN_PG_ALLOW_PRIVATE_NETWORKS=true");
	}
}

static void
test_tls_where_there_is_none(void **state)
{
	struct fix *f = *state;

	f->conn.ssl = CONNDOC_REQUIRE;
	refused(f, "postgres", false,
		"the server offers no TLS and sslMode is require");
	f->conn.ssl = CONNDOC_VERIFY_FULL;
	refused(f, "postgres", false,
		"the server offers no TLS and sslMode is verify-full");
	f->conn.ssl = CONNDOC_PREFER;
	dial_up(f);
	f->conn.ssl = CONNDOC_DISABLE;
	dial_up(f);
	value_is(f,
		"select ssl::text from pg_stat_ssl where pid ="
		" pg_backend_pid()",
		"false");
}

static void
test_passwords(void **state)
{
	struct fix *f = *state;

	pgserver_value(f->side, "create role guarded login password 'pw one'");
	setenv("PGPASSWORD", "pw one", 1);
	f->conn.user = SPAN_LIT("guarded");
	refused(f, "postgres", false, "set connection.password");
	unsetenv("PGPASSWORD");
	f->conf.password = SPAN_LIT("pw two-7c1e");
	refused(f, "postgres", false, "28P01: password authentication failed");
	assert_string_equal(f->why.sqlstate, "28P01");
	assert_null(strstr(f->why.text, "7c1e"));
	f->conf.password = SPAN_LIT("pw one, and more");
	f->conf.password.n = 6;
	dial_up(f);
	value_is(f, "select current_user", "guarded");
	pgserver_value(f->side, "alter role guarded connection limit 0");
	refused(f, "postgres", true, "53300: too many connections");
	pgserver_value(f->side, "drop role guarded");
}

/* ---- nobody there ---- */

static int
listener(int *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

static void
test_refused_and_silent_servers(void **state)
{
	struct fix *f = *state;
	int port, fd = listener(&port);

	f->conn.port = port; /* bound, but nobody listens */
	refused(f, "postgres", true, "Connection refused");
	assert_int_equal(listen(fd, 4), 0);
	f->conn.connect_timeout_ms = 300;
	refused(f, "postgres", true,
		"no connection to 127.0.0.1 (127.0.0.1) within "
		"connectTimeoutMs (300 ms)");
	close(fd);
}

static void
test_what_is_queued_hears_of_a_failed_dial(void **state)
{
	struct fix *f = *state;
	int port, fd = listener(&port);

	f->conn.port = port;
	dial(f);
	for (int i = 0; i < 3; i++)
		pglink_query(f->k, "select 1", on_answer, &f->a[i]);
	run_until(f, is_over);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(f->a[i].n, 1);
		assert_int_equal(f->a[i].order, i);
		assert_string_equal(f->a[i].why.code, "postgres");
	}
	/* nobody hears of what comes after the end */
	pglink_query(f->k, "select 1", on_answer, &f->a[0]);
	pglink_free(f->k);
	f->k = NULL;
	assert_int_equal(f->a[0].n, 1);
	/* freed in the middle of it all */
	dial(f);
	pglink_query(f->k, "select 1", on_answer, &f->a[1]);
	pglink_free(f->k);
	f->k = NULL;
	close(fd);
}

/* ---- queries ---- */

static void
test_queries_in_order(void **state)
{
	struct fix *f = *state;
	struct answer *a = f->a;

	dial(f);
	/* before it is up, several in one, an error between */
	pglink_query(f->k, "select 1; select 2; create temp table t (x int)",
		on_answer, &a[0]);
	pglink_query(
		f->k, "select 7 as a; select 1/0; select 8", on_answer, &a[1]);
	pglink_query(f->k, "", NULL, NULL);
	pglink_query(f->k, "select repeat('x', 5000000)", on_answer, &a[2]);
	wait_answer(f, &a[2]);
	assert_true(a[0].ok && a[2].ok && !a[1].ok);
	assert_int_equal(a[0].results, 3);
	assert_int_equal(a[1].results, 1);
	assert_string_equal(a[1].value, "7");
	assert_string_equal(a[1].why.sqlstate, "22012");
	assert_string_equal(a[1].why.text, "22012: division by zero");
	assert_false(a[1].why.retryable);
	assert_int_equal(a[2].bytes, 5000000);
	assert_int_equal(a[2].order, 2);
}

static void
test_errors_say_all(void **state)
{
	struct fix *f = *state;
	struct answer *a;

	dial_up(f);
	query(f, "create temp table t (id int primary key); insert into t "
		 "values (5)");
	a = query(f, "insert into t values (5)");
	assert_string_equal(a->why.code, "postgres");
	assert_false(a->why.retryable);
	assert_string_equal(a->why.text,
		"23505: duplicate key value violates unique constraint "
		"\"t_pkey\" (Key (id)=(5) already exists.)");
	a = query(f, "do $$ begin raise exception E'two\\nlines' using"
		     " errcode = '40001', detail = 'why', hint = 'so'; end $$");
	assert_true(a->why.retryable);
	assert_string_equal(a->why.text, "40001: two lines (why). so");
	a = query(f, "copy t from stdin");
	assert_false(a->ok);
	run_until(f, is_over);
	assert_string_equal(f->why.code, "io");
}

/* ---- losses ---- */

static void
end_session(struct fix *f)
{
	pgserver_value(f->side,
		"select pg_terminate_backend(pid) from pg_stat_activity"
		" where application_name = 'queen-pg/0 test'");
}

static void
test_server_that_ends_the_session(void **state)
{
	struct fix *f = *state;
	struct answer *a = f->a;

	dial_up(f);
	pglink_query(f->k, "select pg_sleep(60)", on_answer, &a[1]);
	pglink_query(f->k, "select 1", on_answer, &a[2]);
	end_session(f);
	run_until(f, is_over);
	assert_int_equal(a[1].n + a[2].n, 2);
	assert_string_equal(a[1].why.sqlstate, "57P01");
	assert_true(a[1].why.retryable);
	assert_string_equal(a[2].why.sqlstate, "57P01");
	assert_string_equal(f->why.sqlstate, "57P01");
	assert_true(f->why.retryable);
	/* an idle one is told as well */
	dial_up(f);
	end_session(f);
	run_until(f, is_over);
	assert_int_equal(f->ends, 1);
	assert_string_equal(f->why.sqlstate, "57P01");
}

static void
test_server_that_dies(void **state)
{
	struct fix *f = *state;

	dial_up(f);
	pglink_query(f->k, "select pg_sleep(60)", on_answer, &f->a[1]);
	pgserver_stop(&server);
	run_until(f, is_over);
	assert_int_equal(f->a[1].n, 1);
	assert_true(f->a[1].why.retryable);
	assert_true(f->why.retryable);
	refused(f, "postgres", true, "Connection refused");
	pgserver_start(&server);
	PQreset(f->side);
	dial_up(f);
	/* freed in its own callback */
	f->free_at_answer = true;
	pglink_query(f->k, "select 1", on_answer, &f->a[2]);
	pglink_query(f->k, "select 1", on_answer, &f->a[3]);
	wait_answer(f, &f->a[2]);
	assert_null(f->k);
	assert_int_equal(f->a[3].n, 0);
}

/* ---- replication through something else ---- */

static void
test_replication_commands(void **state)
{
	struct fix *f = *state;
	struct answer *a;

	f->conf.use = PGLINK_REPLICATION;
	dial_up(f);
	value_is(f, "show transaction_read_only", "off");
	a = query(f, "IDENTIFY_SYSTEM");
	assert_true(a->ok);
	assert_true(strlen(a->value) > 10);
	a = query(f, "frobnicate");
	assert_string_equal(a->why.sqlstate, "42601");
	assert_non_null(strstr(a->why.text, "connect directly to PostgreSQL"));
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		LINK_TEST(test_session_settings_hold),
		LINK_TEST(test_name_is_cut_at_a_character),
		LINK_TEST(test_tcp_is_watched),
		LINK_TEST(test_names_are_no_connection_strings),
		LINK_TEST(test_host_names_are_looked_up),
		LINK_TEST(test_private_networks_may_be_off),
		LINK_TEST(test_tls_where_there_is_none),
		LINK_TEST(test_passwords),
		LINK_TEST(test_refused_and_silent_servers),
		LINK_TEST(test_what_is_queued_hears_of_a_failed_dial),
		LINK_TEST(test_queries_in_order),
		LINK_TEST(test_errors_say_all),
		LINK_TEST(test_server_that_ends_the_session),
		LINK_TEST(test_server_that_dies),
		LINK_TEST(test_replication_commands),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
