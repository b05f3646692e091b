/* SPDX-License-Identifier: Apache-2.0 */
/* What ends a statement, and what only looks as if it did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schema.h"

/* Splits text and compares with the statements listed, NULL at the end. */
static void
check(const char *text, ...)
{
	struct span rest = span_of(text), stmt;
	const char *want;
	va_list ap;

	va_start(ap, text);
	while ((want = va_arg(ap, const char *)) != NULL) {
		assert_true(schema_next_statement(&rest, &stmt));
		if (!span_is(stmt, want))
			fail_msg("got <%.*s> want <%s>", SPAN_ARG(stmt), want);
	}
	va_end(ap);
	assert_false(schema_next_statement(&rest, &stmt));
	assert_int_equal(rest.n, 0);
}

static void
test_semicolons_separate(void **state)
{
	(void)state;
	check("", NULL);
	check(" \n\t", NULL);
	check(";;; ;", NULL);
	check("select 1", "select 1", NULL);
	check("select 1;", "select 1", NULL);
	check("select 1;\n\nselect 2 ; ", "select 1", "select 2", NULL);
	check(";a;;b", "a", "b", NULL);
}

static void
test_comments_are_no_statements(void **state)
{
	(void)state;
	check("-- one; two\n", NULL);
	check("/* a; /* b; */ c; */", NULL);
	check("-- x\nselect 1; -- tail;", "select 1", NULL);
	check("select 1 -- not; here\n, 2;", "select 1 -- not; here\n, 2",
		NULL);
	check("select /* ; /* ; */ ; */ 1;x", "select /* ; /* ; */ ; */ 1", "x",
		NULL);
	check("select 4/2;x", "select 4/2", "x", NULL);
	check("select 4-2;x", "select 4-2", "x", NULL);
}

static void
test_quotes_hide_semicolons(void **state)
{
	(void)state;
	check("select 'a;b';x", "select 'a;b'", "x", NULL);
	check("select 'a'';b';x", "select 'a'';b'", "x", NULL);
	check("select 'a\\';x", "select 'a\\'", "x", NULL);
	check("select E'a\\';b';x", "select E'a\\';b'", "x", NULL);
	check("select e'\\\\';x", "select e'\\\\'", "x", NULL);
	check("select name'a\\';x", "select name'a\\'", "x", NULL);
	check("select \"a;\"\"b\";x", "select \"a;\"\"b\"", "x", NULL);
	check("select '--';x", "select '--'", "x", NULL);
	check("select '/*';x", "select '/*'", "x", NULL);
}

static void
test_dollar_quotes_hide_semicolons(void **state)
{
	(void)state;
	check("do $$ a; b; $$;x", "do $$ a; b; $$", "x", NULL);
	check("do $q$ a; $$ ; ' $q$;x", "do $q$ a; $$ ; ' $q$", "x", NULL);
	check("do $a$ $ab$ ; $a$;x", "do $a$ $ab$ ; $a$", "x", NULL);
	check("select $1;x", "select $1", "x", NULL);
	check("select a$b$c;x", "select a$b$c", "x", NULL);
	check("do $$a$$;do $$b;$$", "do $$a$$", "do $$b;$$", NULL);
}

static void
test_parentheses_hide_semicolons(void **state)
{
	(void)state;
	check("create rule r as on insert to t do (a; b);x",
		"create rule r as on insert to t do (a; b)", "x", NULL);
	/* too many closing ones do not hide the rest */
	check("a));b", "a))", "b", NULL);
}

static void
test_unclosed_text_reaches_the_server_whole(void **state)
{
	(void)state;
	check("select 'a;b", "select 'a;b", NULL);
	check("select \"a;b", "select \"a;b", NULL);
	check("select $$a;b", "select $$a;b", NULL);
	check("select E'a\\", "select E'a\\", NULL);
	check("select (1;2", "select (1;2", NULL);
	check("/* a;b", NULL);
	check("select $", "select $", NULL);
	check("select $a", "select $a", NULL);
}

static void
test_hash_depends_on_names_texts_and_order(void **state)
{
	const struct schema_file a[] = { { "1", "x" }, { "2", "y" } };
	const struct schema_file b[] = { { "1", "x2" }, { "", "y" } };
	const struct schema_file c[] = { { "2", "y" }, { "1", "x" } };
	struct schema_set s = { .files = a, .n = 2 };
	char one[65], two[65];

	(void)state;
	schema_hash_set(&s, one);
	assert_int_equal(strlen(one), 64);
	s.files = b;
	schema_hash_set(&s, two);
	assert_string_not_equal(one, two);
	s.files = c;
	schema_hash_set(&s, two);
	assert_string_not_equal(one, two);
	s.files = a;
	schema_hash_set(&s, two);
	assert_string_equal(one, two);
	assert_int_equal(strlen(schema_hash()), 64);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_semicolons_separate),
		cmocka_unit_test(test_comments_are_no_statements),
		cmocka_unit_test(test_quotes_hide_semicolons),
		cmocka_unit_test(test_dollar_quotes_hide_semicolons),
		cmocka_unit_test(test_parentheses_hide_semicolons),
		cmocka_unit_test(test_unclosed_text_reaches_the_server_whole),
		cmocka_unit_test(test_hash_depends_on_names_texts_and_order),
	};

	return cmocka_run_group_tests_name("schema_split", tests, NULL, NULL);
}
