/* SPDX-License-Identifier: Apache-2.0 */
/* Quoting: what comes out, and that no text can end its quotes. */
#include "pgquote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "buf.h"

static struct buf b;

static const char *
ident(const char *name)
{
	buf_reset(&b);
	pgquote_ident(&b, span_of(name));
	buf_putc(&b, '\0');
	return b.p;
}

static const char *
text(const char *s)
{
	buf_reset(&b);
	pgquote_text(&b, span_of(s));
	buf_putc(&b, '\0');
	return b.p;
}

static void
test_identifiers(void **state)
{
	(void)state;
	assert_string_equal(ident("Orders"), "\"Orders\"");
	assert_string_equal(ident(""), "\"\"");
	assert_string_equal(ident("a\"b"), "\"a\"\"b\"");
	assert_string_equal(
		ident("\"; drop table t; --"), "\"\"\"; drop table t; --\"");
	assert_string_equal(ident("a\\b'c"), "\"a\\b'c\"");
	buf_reset(&b);
	pgquote_table(&b, SPAN_LIT("my.s"), SPAN_LIT("T\"t"));
	assert_true(span_is(buf_span(&b), "\"my.s\".\"T\"\"t\""));
}

static void
test_texts(void **state)
{
	(void)state;
	assert_string_equal(text("it's"), "'it''s'");
	assert_string_equal(text(""), "''");
	assert_string_equal(text("\\"), "E'\\\\'");
	assert_string_equal(text("\\' or 1=1 --"), "E'\\\\'' or 1=1 --'");
	assert_string_equal(text("\xc3\xa4"), "'\xc3\xa4'");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_identifiers),
		cmocka_unit_test(test_texts),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);

	buf_fini(&b);
	return rc;
}
