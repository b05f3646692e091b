/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which settings end up in the conninfo: ours, then what libpq finds, then
 * the documented defaults.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "pgconn.h"
#include "pgdial.h"

static char service_file[64];

static int
setup(void **state)
{
	static const char *const names[] = { "PGHOST", "PGHOSTADDR", "PGPORT",
		"PGUSER", "PGPASSWORD", "PGDATABASE", "PGSERVICE", "PGSSLMODE",
		"PGSSLROOTCERT", "PGOPTIONS", "PGAPPNAME" };

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		unsetenv(names[i]);
	setenv("HOME", "/nonexistent", 1);
	return 0;
}

/* Parses what pgconn_info makes and compares one key; want NULL = absent. */
static void
check(const struct pgconn_conf *c, const char *key, const char *want)
{
	struct err e = ERR_ZERO;
	char *info = pgconn_info(c, &e);
	PQconninfoOption *o;

	assert_non_null(info);
	o = PQconninfoParse(info, NULL);
	assert_non_null(o);
	for (int i = 0; o[i].keyword != NULL; i++) {
		if (strcmp(o[i].keyword, key) != 0)
			continue;
		if (want == NULL)
			assert_null(o[i].val);
		else if (o[i].val == NULL)
			fail_msg("%s is absent", key);
		else
			assert_string_equal(o[i].val, want);
	}
	PQconninfoFree(o);
	free(info);
}

static void
test_nothing_set_gives_the_documented_defaults(void **state)
{
	struct pgconn_conf c = { .port = 0 };

	(void)state;
	check(&c, "host", "localhost");
	check(&c, "port", NULL); /* libpq's 5432 */
	check(&c, "user", "postgres");
	check(&c, "dbname", "postgres");
	check(&c, "password", NULL);
	check(&c, "sslmode", "disable");
	check(&c, "gssencmode", "disable");
	check(&c, "client_encoding", "UTF8");
	check(&c, "keepalives_idle", "30");
}

static void
test_settings_are_taken_and_quoted(void **state)
{
	struct pgconn_conf c = { .host = "/run/x y",
		.port = 6543,
		.user = "o'neil",
		.password = "a\\b 'c'",
		.database = "q=1" };

	(void)state;
	check(&c, "host", "/run/x y");
	check(&c, "port", "6543");
	check(&c, "user", "o'neil");
	check(&c, "password", "a\\b 'c'");
	check(&c, "dbname", "q=1");
}

static void
test_what_libpq_finds_beats_our_defaults(void **state)
{
	struct pgconn_conf c = { .port = 0 };

	(void)state;
	setenv("PGHOST", "db.example", 1);
	setenv("PGUSER", "someone", 1);
	setenv("PGDATABASE", "app", 1);
	setenv("PGSSLMODE", "verify-ca", 1);
	check(&c, "host", "db.example"); /* taken over, to be resolved */
	check(&c, "user", NULL);
	check(&c, "dbname", NULL);
	check(&c, "sslmode", NULL);
	c.host = "other";
	c.user = "me";
	check(&c, "host", "other");
	check(&c, "user", "me");
}

static void
test_a_host_address_needs_no_host(void **state)
{
	struct pgconn_conf c = { .port = 0 };

	(void)state;
	setenv("PGHOSTADDR", "192.0.2.7", 1);
	check(&c, "hostaddr", "192.0.2.7");
	check(&c, "host", NULL);
}

static void
test_a_service_is_in_charge(void **state)
{
	struct pgconn_conf c = { .port = 0 };

	(void)state;
	setenv("PGSERVICEFILE", service_file, 1);
	setenv("PGSERVICE", "cell", 1);
	check(&c, "host", "svc.example");
	check(&c, "user", "svc");
	check(&c, "dbname", "svcdb");
	check(&c, "port", "7777");
	c.user = "me";
	check(&c, "user", "me");
	unsetenv("PGSERVICE");
	/* the same when the string names it, and the environment stays */
	c = (struct pgconn_conf){ .conninfo = "service=cell dbname=mine" };
	check(&c, "host", "svc.example");
	check(&c, "user", "svc");
	check(&c, "dbname", "mine");
	assert_null(getenv("PGSERVICE"));
}

static void
test_the_string_wins_over_all_settings(void **state)
{
	struct pgconn_conf c = { .conninfo = "postgresql://u:p@h:1/d?"
					     "gssencmode=prefer",
		.host = "x",
		.user = "x",
		.password = "x",
		.database = "x",
		.port = 9 };

	(void)state;
	check(&c, "host", "h");
	check(&c, "port", "1");
	check(&c, "user", "u");
	check(&c, "password", "p");
	check(&c, "dbname", "d");
	check(&c, "gssencmode", "prefer");
	check(&c, "sslmode", NULL);
	c.conninfo = "host=a,b port=1,2";
	check(&c, "host", "a,b");
	check(&c, "user", NULL);
	check(&c, "dbname", NULL);
}

static void
test_a_bad_string_is_refused_without_repeating_it(void **state)
{
	static const char *const bad[] = { "host=x passwrd=hunter2",
		"password='hunter2", "postgresql://u:hunter2@[::1/d",
		"hunter2" };

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct pgconn_conf c = { .conninfo = bad[i] };
		struct err e = ERR_ZERO;

		assert_null(pgconn_info(&c, &e));
		assert_int_equal(e.kind, ERR_CONFIG);
		assert_string_equal(
			e.text, "QUEEN_PG_CONNINFO is not a connection string");
	}
}

static void
test_tls_verifies_unless_told_not_to(void **state)
{
	struct pgconn_conf c = { .use_ssl = true,
		.reject_unauthorized = true,
		.ssl_root_cert = "-----BEGIN CERTIFICATE-----\n" };
	struct err e = ERR_ZERO;
	char *info, *at, path[64], text[64] = "";
	FILE *f;

	(void)state;
	check(&c, "sslmode", "verify-full");
	info = pgconn_info(&c, &e);
	assert_non_null(info);
	at = strstr(info, "/proc/self/fd/");
	assert_non_null(at);
	snprintf(path, sizeof path, "%.*s", (int)strcspn(at, "'"), at);
	/* each dial reads it anew */
	for (int i = 0; i < 2; i++) {
		f = fopen(path, "r");
		assert_non_null(f);
		assert_non_null(fgets(text, sizeof text, f));
		fclose(f);
		assert_string_equal(text, c.ssl_root_cert);
	}
	free(info);
	c.reject_unauthorized = false;
	check(&c, "sslmode", "require");
	check(&c, "sslrootcert", NULL);
}

static void
test_words_replace_and_end(void **state)
{
	struct pgdial_words w;
	struct err e = ERR_ZERO;

	(void)state;
	assert_int_equal(pgdial_words_init(&w, "host=a user=''", "app", &e), 0);
	assert_string_equal(pgdial_words_get(&w, "host"), "a");
	assert_null(pgdial_words_get(&w, "user"));
	assert_null(pgdial_words_get(&w, "port"));
	assert_string_equal(
		pgdial_words_get(&w, "fallback_application_name"), "app");
	pgdial_words_set(&w, "host", "b");
	assert_string_equal(pgdial_words_get(&w, "host"), "b");
	assert_null(w.key[w.n]);
	pgdial_words_fini(&w);
	assert_int_equal(pgdial_words_init(&w, "=", "app", &e), -1);
	assert_int_equal(e.kind, ERR_CONFIG);
}

static int
group_setup(void **state)
{
	int fd;
	static const char text[] = "[cell]\nhost=svc.example\nport=7777\n"
				   "user=svc\ndbname=svcdb\n";

	(void)state;
	snprintf(service_file, sizeof service_file, "/tmp/queen-svc-XXXXXX");
	fd = mkstemp(service_file);
	if (fd < 0 || write(fd, text, sizeof text - 1) < 0)
		return -1;
	return close(fd);
}

static int
group_teardown(void **state)
{
	(void)state;
	return unlink(service_file);
}

#define INFO_TEST(name) cmocka_unit_test_setup(name, setup)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		INFO_TEST(test_nothing_set_gives_the_documented_defaults),
		INFO_TEST(test_settings_are_taken_and_quoted),
		INFO_TEST(test_what_libpq_finds_beats_our_defaults),
		INFO_TEST(test_a_host_address_needs_no_host),
		INFO_TEST(test_a_service_is_in_charge),
		INFO_TEST(test_the_string_wins_over_all_settings),
		INFO_TEST(test_a_bad_string_is_refused_without_repeating_it),
		INFO_TEST(test_tls_verifies_unless_told_not_to),
		INFO_TEST(test_words_replace_and_end),
	};

	return cmocka_run_group_tests_name(
		"pgconn_info", tests, group_setup, group_teardown);
}
