/* SPDX-License-Identifier: Apache-2.0 */
/* The config file, and which of context, environment and flag wins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "context.h"
#include "err.h"

static char home[] = "/tmp/queenctl-test-XXXXXX";
static char path[200];

static void
put(const char *file, const char *text)
{
	FILE *f = fopen(file, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int
setup(void **state)
{
	static const char *const names[] = { "QUEEN_SERVER", "QUEEN_TOKEN",
		"QUEEN_TOKEN_FILE", "QUEEN_CONTEXT", "QUEEN_CONFIG",
		"QUEEN_OJS_URL" };
	char dir[100];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	setenv("HOME", home, 1);
	snprintf(dir, sizeof(dir), "%s/.queen", home);
	mkdir(dir, 0700);
	snprintf(path, sizeof(path), "%s/config.yaml", dir);
	put(path, "current-context: prod\n"
		  "contexts:\n"
		  "  - name: prod\n"
		  "    server: https://prod:6632/\n"
		  "    token-ref: literal:prodtoken\n"
		  "  - name: local\n"
		  "    server: http://localhost:6632\n"
		  "    insecure: true\n"
		  "  - name: bare\n");
	return 0;
}

static struct context_target target;

static int
teardown(void **state)
{
	(void)state;
	context_target_fini(&target);
	return 0;
}

static void
resolve(const struct context_ask *ask)
{
	struct err e = ERR_ZERO;

	context_target_fini(&target);
	if (context_resolve(ask, &target, &e) != 0)
		fail_msg("%s", e.text);
}

static void
refused(const struct context_ask *ask, const char *want)
{
	struct err e = ERR_ZERO;
	struct context_target t;

	assert_int_equal(context_resolve(ask, &t, &e), -1);
	assert_null(t.url);
	if (!strstr(e.text, want))
		fail_msg("%s", e.text);
}

static void
the_server_of_the_nearest_wins(void **state)
{
	(void)state;
	resolve(&(struct context_ask){ .insecure = false });
	assert_string_equal(target.url, "https://prod:6632");
	assert_string_equal(target.token, "prodtoken");
	assert_string_equal(target.context, "prod");
	assert_false(target.insecure);
	setenv("QUEEN_SERVER", "http://env:1", 1);
	resolve(&(struct context_ask){ .insecure = false });
	assert_string_equal(target.url, "http://env:1");
	resolve(&(struct context_ask){ .server = "http://flag:2//" });
	assert_string_equal(target.url, "http://flag:2");
}

static void
ojs(const struct context_ask *ask, const char *url)
{
	struct err e = ERR_ZERO;

	context_target_fini(&target);
	if (context_resolve_ojs(ask, &target, &e) != 0)
		fail_msg("%s", e.text);
	assert_string_equal(target.url, url);
}

static void
queen_ojs_is_beside_the_server_unless_told(void **state)
{
	struct context_ask none = { .insecure = false };
	struct context_target t;
	struct err e = ERR_ZERO;

	(void)state;
	ojs(&none, "https://prod:6634");
	assert_string_equal(target.token, "prodtoken");
	ojs(&(struct context_ask){ .server = "http://[::1]:6632/" },
		"http://[::1]:6634");
	ojs(&(struct context_ask){ .server = "http://10.0.0.1" },
		"http://10.0.0.1:6634");
	put(path, "current-context: prod\ncontexts: [{name: prod, server: "
		  "'http://a:1', ojs_url: 'http://b:2/'}]\n");
	ojs(&none, "http://b:2");
	/* that of the context would be another cell's */
	ojs(&(struct context_ask){ .server = "http://c:3" }, "http://c:6634");
	ojs(&(struct context_ask){ .server = "http://a:1/" }, "http://b:2");
	setenv("QUEEN_SERVER", "http://a:1", 1);
	ojs(&none, "http://b:2");
	setenv("QUEEN_SERVER", "http://d:4", 1);
	ojs(&none, "http://d:6634");
	setenv("QUEEN_OJS_URL", "https://e:5//", 1);
	ojs(&none, "https://e:5");
	ojs(&(struct context_ask){ .server = "http://d:4/" }, "https://e:5");
	/* and that of the environment, too */
	ojs(&(struct context_ask){ .server = "http://a:1" }, "http://b:2");
	ojs(&(struct context_ask){ .server = "http://c:3" }, "http://c:6634");
	unsetenv("QUEEN_SERVER");
	ojs(&(struct context_ask){ .server = "http://c:3" }, "http://c:6634");
	ojs(&(struct context_ask){ .server = "http://a:1" }, "https://e:5");
	/* what the routes begin with is no part of it */
	setenv("QUEEN_OJS_URL", "https://e:5/x/ojs/v1/", 1);
	ojs(&none, "https://e:5/x");
	setenv("QUEEN_OJS_URL", "e:5", 1);
	assert_int_equal(context_resolve_ojs(&none, &t, &e), -1);
	assert_non_null(strstr(e.text, "must start with http://"));
}

static void
the_context_of_the_nearest_wins(void **state)
{
	(void)state;
	setenv("QUEEN_CONTEXT", "local", 1);
	resolve(&(struct context_ask){ .insecure = false });
	assert_string_equal(target.url, "http://localhost:6632");
	assert_true(target.insecure);
	assert_null(target.token);
	resolve(&(struct context_ask){ .context = "prod" });
	assert_string_equal(target.url, "https://prod:6632");
	refused(&(struct context_ask){ .context = "nope" },
		"there is no context \"nope\"");
	setenv("QUEEN_CONTEXT", "gone", 1);
	refused(&(struct context_ask){ .insecure = false },
		"there is no context \"gone\"");
}

static void
the_token_of_the_nearest_wins(void **state)
{
	char file[200], ref[260], text[400];

	(void)state;
	snprintf(file, sizeof(file), "%s/token", home);
	put(file, "  filetoken\n");
	setenv("QUEEN_TOKEN_FILE", file, 1);
	resolve(&(struct context_ask){ .insecure = false });
	assert_string_equal(target.token, "filetoken");
	setenv("QUEEN_TOKEN", "envtoken", 1);
	resolve(&(struct context_ask){ .insecure = false });
	assert_string_equal(target.token, "envtoken");
	resolve(&(struct context_ask){ .token = "flagtoken" });
	assert_string_equal(target.token, "flagtoken");
	unsetenv("QUEEN_TOKEN");
	unsetenv("QUEEN_TOKEN_FILE");
	snprintf(ref, sizeof(ref), "file://%s", file);
	snprintf(text, sizeof(text),
		"current-context: a\ncontexts: [{name: a, server: 'http://a', "
		"token-ref: '%s'}]\n",
		ref);
	put(path, text);
	resolve(&(struct context_ask){ .insecure = false });
	assert_string_equal(target.token, "filetoken");
	refused(&(struct context_ask){ .token = "a\r\nb" },
		"space or control character");
}

static void
references_that_lead_nowhere_are_told(void **state)
{
	(void)state;
	put(path, "current-context: a\ncontexts: [{name: a, server: "
		  "'http://a', token-ref: 'keychain://a'}]\n");
	refused(&(struct context_ask){ .insecure = false },
		"keychains are not supported");
	put(path, "current-context: a\ncontexts: [{name: a, server: "
		  "'http://a', token-ref: env}]\n");
	refused(&(struct context_ask){ .insecure = false },
		"QUEEN_TOKEN is not set");
	put(path, "current-context: a\ncontexts: [{name: a, server: "
		  "'http://a', token-ref: 'file:///nowhere/x'}]\n");
	refused(&(struct context_ask){ .insecure = false },
		"cannot open /nowhere/x");
}

static void
the_file_of_the_nearest_wins(void **state)
{
	char other[200], third[200];

	(void)state;
	snprintf(other, sizeof(other), "%s/other.yaml", home);
	snprintf(third, sizeof(third), "%s/third.yaml", home);
	put(other, "current-context: o\ncontexts: [{name: o, server: "
		   "'http://o'}]\n");
	put(third, "current-context: t\ncontexts: [{name: t, server: "
		   "'http://t'}]\n");
	setenv("QUEEN_CONFIG", other, 1);
	resolve(&(struct context_ask){ .insecure = false });
	assert_string_equal(target.url, "http://o");
	resolve(&(struct context_ask){ .config = third });
	assert_string_equal(target.url, "http://t");
}

static void
bad_files_and_servers_are_told(void **state)
{
	(void)state;
	put(path, "contexts: [\n");
	refused(&(struct context_ask){ .insecure = false },
		"config.yaml: line");
	put(path, "contexts: [{server: x}]\n");
	refused(&(struct context_ask){ .insecure = false },
		"a context has no name");
	put(path, "contexts: [{name: a}, {name: a}]\n");
	refused(&(struct context_ask){ .insecure = false },
		"context \"a\" is there twice");
	put(path, "");
	refused(&(struct context_ask){ .server = "prod:6632" },
		"must start with http:// or https://");
	refused(&(struct context_ask){ .server = "http://a b" },
		"space or control character");
}

static void
a_missing_file_is_an_empty_one(void **state)
{
	struct context_file f;
	struct err e = ERR_ZERO;

	(void)state;
	unlink(path);
	assert_int_equal(
		context_load(&f, &(struct context_ask){ .config = path }, &e),
		0);
	assert_int_equal(f.n, 0);
	context_file_fini(&f);
}

static void
what_is_saved_loads_again(void **state)
{
	struct context_ask ask = { .insecure = false };
	struct context_file f;
	struct err e = ERR_ZERO;
	struct context *c;
	struct stat st;

	(void)state;
	unlink(path);
	assert_int_equal(context_load(&f, &ask, &e), 0);
	c = context_add(&f, "true"); /* a name that YAML would misread */
	context_set(&c->server, "http://x:1");
	context_set(&c->ojs_url, "http://x:2");
	c = context_add(&f, "second");
	c->insecure = true;
	assert_int_equal(context_save(&f, &e), 0);
	context_file_fini(&f);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(context_load(&f, &ask, &e), 0);
	assert_string_equal(f.current, "true");
	assert_int_equal(f.n, 2);
	assert_string_equal(context_find(&f, "true")->server, "http://x:1");
	assert_string_equal(context_find(&f, "true")->ojs_url, "http://x:2");
	assert_true(context_find(&f, "second")->insecure);
	assert_true(context_remove(&f, "true"));
	assert_null(f.current);
	assert_false(context_remove(&f, "true"));
	assert_int_equal(f.n, 1);
	context_file_fini(&f);
}

static void
tokens_are_kept_beside_the_file(void **state)
{
	struct context_ask ask = { .insecure = false };
	struct context_file f;
	struct err e = ERR_ZERO;
	struct stat st;
	char *ref;

	(void)state;
	assert_int_equal(context_load(&f, &ask, &e), 0);
	ref = context_keep_token(&f, "prod", "s3cret", &e);
	assert_non_null(ref);
	assert_int_equal(strncmp(ref, "file:///", 8), 0);
	assert_int_equal(stat(ref + 7, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_string_equal(context_auth(ref), "file");
	assert_string_equal(context_auth(NULL), "none");
	assert_string_equal(context_auth("env"), "env");
	assert_string_equal(context_auth("abc"), "literal");
	free(ref);
	context_file_fini(&f);
	assert_int_equal(context_check_name("../x", &e), -1);
	assert_int_equal(context_check_name("a/b", &e), -1);
	assert_int_equal(context_check_name("", &e), -1);
	assert_int_equal(context_check_name("prod-1", &e), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		TEST(the_server_of_the_nearest_wins),
		TEST(queen_ojs_is_beside_the_server_unless_told),
		TEST(the_context_of_the_nearest_wins),
		TEST(the_token_of_the_nearest_wins),
		TEST(references_that_lead_nowhere_are_told),
		TEST(the_file_of_the_nearest_wins),
		TEST(bad_files_and_servers_are_told),
		TEST(a_missing_file_is_an_empty_one),
		TEST(what_is_saved_loads_again),
		TEST(tokens_are_kept_beside_the_file),
	};
	char rm[100];
	int rc;

	if (!mkdtemp(home))
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(rm, sizeof(rm), "rm -rf %s", home);
	return system(rm) == 0 ? rc : 1;
}
