/* SPDX-License-Identifier: Apache-2.0 */
#include "conf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "err.h"
#include "log.h"

struct s {
	char *name, *mode, *key;
	bool on;
	int64_t port;
};

#define AT(f) offsetof(struct s, f)
static const struct conf_item items[] = {
	{ .name = "T_NAME",
		.type = CONF_STR,
		.at = AT(name),
		.dflt = "cell",
		.group = "server",
		.help = "its name" },
	{ .name = "T_PORT",
		.type = CONF_INT,
		.at = AT(port),
		.dflt = "6632",
		.min = 1,
		.max = 65535,
		.group = "server",
		.help = "port" },
	{ .name = "T_ON",
		.type = CONF_BOOL,
		.at = AT(on),
		.dflt = "true",
		.group = "engine",
		.help = "whether" },
	{ .name = "T_MODE",
		.type = CONF_WORD,
		.at = AT(mode),
		.dflt = "new",
		.words = "new all",
		.group = "engine",
		.help = "how" },
	{ .name = "T_KEY",
		.type = CONF_STR,
		.at = AT(key),
		.secret = true,
		.group = "server",
		.help = "a key" },
	{ .name = "T_OLD", .type = CONF_ACCEPT },
};
enum { N = sizeof(items) / sizeof(items[0]) };

static struct s s;
static struct err e;

static int
clear(void **state)
{
	(void)state;
	for (size_t i = 0; i < N; i++)
		unsetenv(items[i].name);
	unsetenv("T_KEY_FILE");
	memset(&s, 0xee, sizeof(s));
	e.text[0] = '\0';
	return 0;
}

static void
fails_with(const char *name, const char *value, const char *text)
{
	clear(NULL);
	setenv(name, value, 1);
	assert_int_equal(conf_load(items, N, &s, &e), -1);
	assert_int_equal(e.kind, ERR_CONFIG);
	assert_string_equal(e.text, text);
	conf_fini(items, N, &s);
	clear(NULL);
}

static void
loads(void)
{
	assert_int_equal(conf_load(items, N, &s, &e), 0);
}

static void
unset_means_default(void **state)
{
	clear(state);
	loads();
	assert_string_equal(s.name, "cell");
	assert_string_equal(s.mode, "new");
	assert_null(s.key);
	assert_true(s.on);
	assert_int_equal(s.port, 6632);
	conf_fini(items, N, &s);
	assert_null(s.name);
}

static void
an_empty_string_stays_empty_other_types_take_the_default(void **state)
{
	clear(state);
	setenv("T_NAME", "", 1);
	setenv("T_PORT", "", 1);
	setenv("T_ON", "  ", 1);
	setenv("T_MODE", "", 1);
	loads();
	assert_string_equal(s.name, "");
	assert_int_equal(s.port, 6632);
	assert_true(s.on);
	assert_string_equal(s.mode, "new");
	conf_fini(items, N, &s);
}

static void
booleans_in_every_spelling(void **state)
{
	static const char *const yes[] = { "true", "1", "yes", "on", "TRUE",
		" On ", "Yes" };
	static const char *const no[] = { "false", "0", "no", "off", "OFF",
		"\tFalse\n" };

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
		clear(state);
		setenv("T_ON", yes[i], 1);
		loads();
		assert_true(s.on);
		conf_fini(items, N, &s);
	}
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		clear(state);
		setenv("T_ON", no[i], 1);
		loads();
		assert_false(s.on);
		conf_fini(items, N, &s);
	}
}

static void
bad_values_are_named(void **state)
{
	(void)state;
	fails_with("T_ON", "maybe",
		"T_ON=\"maybe\" is not a boolean (expected "
		"true/false, 1/0, yes/no, on/off)");
	fails_with("T_PORT", "abc", "T_PORT=\"abc\" is not a whole number");
	fails_with("T_PORT", "1.5", "T_PORT=\"1.5\" is not a whole number");
	fails_with("T_PORT", "99999999999999999999",
		"T_PORT=\"99999999999999999999\" is not a whole number");
	fails_with("T_PORT", "0", "T_PORT=\"0\" is below the minimum 1");
	fails_with("T_PORT", "65536",
		"T_PORT=\"65536\" is above the maximum 65535");
	fails_with("T_MODE", "old", "T_MODE=\"old\" is not one of: new all");
}

static void
words_match_in_any_case_and_read_as_declared(void **state)
{
	clear(state);
	setenv("T_MODE", " ALL ", 1);
	setenv("T_PORT", " 80 ", 1);
	loads();
	assert_string_equal(s.mode, "all");
	assert_int_equal(s.port, 80);
	conf_fini(items, N, &s);
}

static void
an_accepted_name_never_fails(void **state)
{
	clear(state);
	setenv("T_OLD", "whatever", 1);
	loads();
	conf_fini(items, N, &s);
	conf_warn_ignored(items, N);
}

static void
put_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void
a_secret_may_come_from_a_file(void **state)
{
	char path[] = "/tmp/queen-conf-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	clear(state);
	put_file(path, "s3cret key\n");
	setenv("T_KEY_FILE", path, 1);
	loads();
	assert_string_equal(s.key, "s3cret key");
	conf_fini(items, N, &s);
	setenv("T_KEY", "other", 1);
	assert_int_equal(conf_load(items, N, &s, &e), -1);
	assert_string_equal(e.text, "T_KEY and T_KEY_FILE are both set");
	conf_fini(items, N, &s);
	unsetenv("T_KEY");
	unlink(path);
	assert_int_equal(conf_load(items, N, &s, &e), -1);
	assert_non_null(strstr(e.text, "T_KEY_FILE: cannot open"));
	conf_fini(items, N, &s);
}

static char *
printed(void)
{
	static char text[2048];
	FILE *f = fmemopen(text, sizeof(text), "w");

	conf_print(items, N, &s, f);
	fclose(f);
	return text;
}

static void
printing_shows_effective_values_and_no_secret(void **state)
{
	clear(state);
	loads();
	assert_string_equal(printed(), "T_NAME=cell\nT_PORT=6632\nT_ON=true\n"
				       "T_MODE=new\nT_KEY=<unset>\n");
	conf_fini(items, N, &s);
	setenv("T_KEY", "0123456789abcdef0123456789abcdef", 1);
	loads();
	assert_non_null(strstr(printed(), "T_KEY=<set:32 chars>\n"));
	assert_null(strstr(printed(), "0123"));
	conf_fini(items, N, &s);
}

static void
a_number_without_a_default_may_be_unset(void **state)
{
	static const struct conf_item one = { .name = "T_PORT",
		.type = CONF_INT,
		.at = AT(port),
		.min = 1,
		.max = 65535 };
	static const struct {
		const char *set, *shown;
	} rows[] = { { NULL, "T_PORT=<unset>\n" }, { "", "T_PORT=<unset>\n" },
		{ "1", "T_PORT=1\n" } };

	for (size_t i = 0; i < 3; i++) {
		char text[64] = "";
		FILE *f = fmemopen(text, sizeof(text), "w");

		clear(state);
		if (rows[i].set)
			setenv("T_PORT", rows[i].set, 1);
		assert_int_equal(conf_load(&one, 1, &s, &e), 0);
		conf_print(&one, 1, &s, f);
		fclose(f);
		assert_string_equal(text, rows[i].shown);
	}
}

static void
the_boot_log_has_a_line_per_group(void **state)
{
	char got[2048];
	int fds[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	clear(state);
	setenv("T_NAME", "two words", 1);
	setenv("T_KEY", "hidden", 1);
	loads();
	log_init("info", false);
	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	conf_log(items, N, &s);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fds[1]);
	n = read(fds[0], got, sizeof(got) - 1);
	close(fds[0]);
	assert_true(n > 0);
	got[n] = '\0';
	assert_non_null(strstr(got,
		" INFO boot  config: server "
		"T_NAME=\"two words\" T_PORT=6632 T_KEY=\"<set:6 chars>\"\n"));
	assert_non_null(strstr(got, " INFO boot  config: engine "
				    "T_ON=true T_MODE=new\n"));
	conf_fini(items, N, &s);
	clear(state);
}

static void
help_names_every_setting(void **state)
{
	char text[2048];
	FILE *f = fmemopen(text, sizeof(text), "w");

	(void)state;
	conf_help(items, N, f);
	fclose(f);
	assert_non_null(strstr(text, "T_PORT"));
	assert_non_null(strstr(text, "how; one of: new all [new]\n"));
	assert_non_null(strstr(text, "a key (or T_KEY_FILE)\n"));
	assert_null(strstr(text, "T_OLD"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unset_means_default),
		cmocka_unit_test(
			an_empty_string_stays_empty_other_types_take_the_default),
		cmocka_unit_test(booleans_in_every_spelling),
		cmocka_unit_test(bad_values_are_named),
		cmocka_unit_test(words_match_in_any_case_and_read_as_declared),
		cmocka_unit_test(an_accepted_name_never_fails),
		cmocka_unit_test(a_secret_may_come_from_a_file),
		cmocka_unit_test(printing_shows_effective_values_and_no_secret),
		cmocka_unit_test(a_number_without_a_default_may_be_unset),
		cmocka_unit_test(the_boot_log_has_a_line_per_group),
		cmocka_unit_test(help_names_every_setting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
