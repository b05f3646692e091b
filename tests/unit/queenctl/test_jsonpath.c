/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of -o jsonpath=: what they select, and the exact refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "err.h"
#include "jsonpath.h"

static const char doc[] =
	"{\"s\":\"a \\u00e9\",\"n\":1.50,\"big\":12345678901234567890,"
	"\"z\":null,\"t\":true,\"one\":1.0,\"e\":1e3,"
	"\"a\":[{\"k\":\"v\"},[1,2]],\"o\":{\"x y\":{\"d\":0}},\"none\":[]}";

static void
ok(const char *path, const char *want)
{
	struct arena a = ARENA_ZERO;
	struct buf out = BUF_ZERO;
	struct err e = ERR_ZERO;

	if (jsonpath_eval(path, span_of(doc), &a, &out, &e) != 0)
		fail_msg("%s: %s", path, e.text);
	buf_putc(&out, '\0');
	assert_string_equal(out.p, want);
	buf_fini(&out);
	arena_fini(&a);
}

static void
bad(const char *path, const char *want)
{
	struct arena a = ARENA_ZERO;
	struct buf out = BUF_ZERO;
	struct err e = ERR_ZERO;

	assert_int_equal(jsonpath_eval(path, span_of(doc), &a, &out, &e), -1);
	assert_int_equal(e.kind, ERR_INPUT);
	if (!strstr(e.text, want))
		fail_msg("%s: %s", path, e.text);
	buf_fini(&out);
	arena_fini(&a);
}

static void
values_print_as_people_read_them(void **state)
{
	(void)state;
	ok(".s", "a é");
	ok("s", "a é");
	ok(".n", "1.5");
	ok(".one", "1");
	ok(".e", "1000");
	ok(".big", "12345678901234567890");
	ok(".t", "true");
	ok(".a[0].k", "v");
	ok(".a[1][1]", "2");
	ok(".o.x y.d", "0");
	ok(".a[1]", "[\n  1,\n  2\n]");
	ok(".none", "[]");
}

static void
null_and_missing_are_an_empty_line(void **state)
{
	(void)state;
	ok(".z", "");
	ok(".nothing", "");
}

static void
a_dot_is_the_whole_document(void **state)
{
	struct arena a = ARENA_ZERO;
	struct buf out = BUF_ZERO;
	struct err e = ERR_ZERO;

	(void)state;
	assert_int_equal(
		jsonpath_eval(".", SPAN_LIT("[{\"a\":1}]"), &a, &out, &e), 0);
	buf_putc(&out, '\0');
	assert_string_equal(out.p, "[\n  {\n    \"a\": 1\n  }\n]");
	buf_fini(&out);
	out = (struct buf)BUF_ZERO;
	assert_int_equal(
		jsonpath_eval(".[0].a", SPAN_LIT("[{\"a\":1}]"), &a, &out, &e),
		0);
	assert_int_equal(out.len, 1);
	buf_fini(&out);
	arena_fini(&a);
}

static void
wrong_paths_are_refused(void **state)
{
	(void)state;
	bad("", "bad jsonpath");
	bad("..s", "bad jsonpath");
	bad(".a[", "bad jsonpath");
	bad(".a[x]", "bad jsonpath");
	bad(".a[-1]", "bad jsonpath");
	bad(".a]", "bad jsonpath");
	bad(".a[0]k", "bad jsonpath");
	bad(".a.", "bad jsonpath");
	bad(".a[2]", "index 2 is out of range, there are 2");
	bad(".s.x", "not an object");
	bad(".nothing.x", "not an object");
	bad(".o[0]", "not an array");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_print_as_people_read_them),
		cmocka_unit_test(null_and_missing_are_an_empty_line),
		cmocka_unit_test(a_dot_is_the_whole_document),
		cmocka_unit_test(wrong_paths_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
