/* SPDX-License-Identifier: Apache-2.0 */
#include "jspan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "arena.h"

static struct span
nested(char open, int n, char *out)
{
	char *p = out;

	for (int i = 0; i < n; i++) {
		*p++ = open;
		if (open == '{') {
			memcpy(p, "\"a\":", 4);
			p += 4;
		}
	}
	*p++ = '1';
	for (int i = 0; i < n; i++)
		*p++ = open == '{' ? '}' : ']';
	return span_make(out, (size_t)(p - out));
}

static bool
valid(struct span s)
{
	const char *what;
	size_t at;

	return jspan_valid(s, &what, &at);
}

/* Walks instead of taking; must come to the same verdict. */
static void
walk(struct jspan *j, struct arena *a)
{
	struct jspan_val v;
	struct span key;

	if (jspan_peek(j) == JSPAN_OBJECT) {
		if (jspan_enter_object(j))
			while (jspan_next_key(j, a, &key))
				walk(j, a);
	} else if (jspan_peek(j) == JSPAN_ARRAY) {
		if (jspan_enter_array(j))
			while (jspan_next_item(j))
				walk(j, a);
	} else {
		jspan_take(j, &v);
	}
}

static bool
walkable(struct span s)
{
	struct arena a = ARENA_ZERO;
	struct jspan j;
	bool ok;

	jspan_open(&j, s);
	walk(&j, &a);
	ok = jspan_end(&j);
	arena_fini(&a);
	return ok;
}

/* `\xNN` stands for one byte; in place. */
static size_t
unescape(char *s)
{
	char *o = s;
	unsigned c;

	for (char *p = s; *p && *p != '\n';) {
		if (p[0] == '\\' && p[1] == 'x' && sscanf(p + 2, "%2x", &c)) {
			*o++ = (char)c;
			p += 4;
		} else {
			*o++ = *p++;
		}
	}
	return (size_t)(o - s);
}

static void
every_vector_has_its_verdict(void **state)
{
	FILE *f = fopen("tests/data/json.txt", "r");
	char line[512];
	int n = 0;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		struct span s;
		char *copy;

		if (line[0] == '#')
			continue;
		s.n = unescape(line + 2);
		/* Without a byte behind it, so an overread is seen. */
		copy = malloc(s.n ? s.n : 1);
		assert_non_null(copy);
		memcpy(copy, line + 2, s.n);
		s.p = copy;
		if (valid(s) != (line[0] == 'y'))
			fail_msg("line %d of json.txt: %s", n + 2, line);
		if (memmem(s.p, s.n, "{\"\\ud800", 8) == NULL)
			assert_int_equal(walkable(s), line[0] == 'y');
		free(copy);
		n++;
	}
	fclose(f);
	assert_in_range(n, 150, 10000);
}

static void
a_thousand_levels_pass_and_one_more_does_not(void **state)
{
	static char text[12000];
	const char *what = NULL;
	size_t at = 0;

	(void)state;
	assert_true(valid(nested('[', 1000, text)));
	assert_true(walkable(nested('[', 1000, text)));
	assert_false(valid(nested('[', 1001, text)));
	assert_false(walkable(nested('[', 1001, text)));
	assert_true(valid(nested('{', 1000, text)));
	assert_false(jspan_valid(nested('{', 1001, text), &what, &at));
	assert_string_equal(what, "nested too deep");
	assert_int_equal(at, 5000);
}

static void
the_limit_counts_entered_levels_too(void **state)
{
	static char text[12000];
	struct jspan_val v;
	struct jspan j;

	(void)state;
	jspan_open(&j, nested('[', 1000, text));
	assert_true(jspan_enter_array(&j));
	assert_true(jspan_next_item(&j));
	assert_true(jspan_take(&j, &v));
	assert_int_equal(v.raw.n, 1999);
	jspan_open(&j, nested('[', 1001, text));
	assert_true(jspan_enter_array(&j));
	assert_true(jspan_next_item(&j));
	assert_false(jspan_take(&j, &v));
	assert_string_equal(j.error, "nested too deep");
}

static void
ten_million_open_brackets_end_quickly(void **state)
{
	size_t n = 10000000;
	char *text = malloc(n);

	(void)state;
	assert_non_null(text);
	memset(text, '[', n);
	assert_false(valid(span_make(text, n)));
	free(text);
}

static void
values_are_spans_of_the_body(void **state)
{
	struct span body = SPAN_LIT(
		" { \"items\" : [ {\"queue\":\"q\\u0031\", "
		"\"payload\": {\"a\" : [1, 2.50, \"x\"] } , \"n\":-12} , 7 ] } ");
	struct arena a = ARENA_ZERO;
	struct span key, text;
	struct jspan_val v;
	struct jspan j;
	int64_t n;

	(void)state;
	jspan_open(&j, body);
	assert_true(jspan_enter_object(&j));
	assert_true(jspan_next_key(&j, &a, &key));
	assert_true(span_is(key, "items"));
	assert_true(jspan_enter_array(&j));
	assert_true(jspan_next_item(&j));
	assert_true(jspan_enter_object(&j));
	assert_true(jspan_next_key(&j, &a, &key));
	assert_true(jspan_take(&j, &v));
	assert_int_equal(v.type, JSPAN_STRING);
	assert_true(v.escaped);
	assert_true(jspan_text(&v, &a, &text));
	assert_true(span_is(text, "q1"));
	assert_true(jspan_next_key(&j, &a, &key));
	assert_true(span_is(key, "payload"));
	assert_int_equal(jspan_peek(&j), JSPAN_OBJECT);
	assert_true(jspan_take(&j, &v));
	assert_true(span_is(v.raw, "{\"a\" : [1, 2.50, \"x\"] }"));
	assert_true(jspan_next_key(&j, &a, &key));
	assert_true(jspan_take(&j, &v));
	assert_true(jspan_i64(&v, &n));
	assert_int_equal(n, -12);
	assert_false(jspan_text(&v, &a, &text));
	assert_false(jspan_next_key(&j, &a, &key));
	assert_true(jspan_next_item(&j));
	assert_true(jspan_take(&j, &v));
	assert_false(jspan_next_item(&j));
	assert_false(jspan_next_key(&j, &a, &key));
	assert_true(jspan_end(&j));
	assert_null(j.error);
	arena_fini(&a);
}

static void
the_first_error_sticks(void **state)
{
	struct arena a = ARENA_ZERO;
	struct jspan_val v;
	struct span key;
	struct jspan j;

	(void)state;
	jspan_open(&j, span_of("[1, x]"));
	assert_true(jspan_enter_array(&j));
	assert_true(jspan_next_item(&j));
	assert_true(jspan_take(&j, &v));
	assert_true(jspan_next_item(&j));
	assert_false(jspan_take(&j, &v));
	assert_int_equal(v.type, JSPAN_NONE);
	assert_string_equal(j.error, "expected a value");
	assert_int_equal(j.error_at, 4);
	assert_false(jspan_next_item(&j));
	assert_false(jspan_next_key(&j, &a, &key));
	assert_false(jspan_enter_object(&j));
	assert_false(jspan_end(&j));
	assert_int_equal(jspan_peek(&j), JSPAN_NONE);
	assert_false(jspan_fail(&j, "other"));
	assert_string_equal(j.error, "expected a value");
	arena_fini(&a);
}

static void
errors_name_the_place(void **state)
{
	static const struct {
		const char *text, *what;
		size_t at;
	} rows[] = {
		{ "", "unexpected end", 0 },
		{ "{\"a\":1", "unexpected end of an object", 6 },
		{ "[1", "unexpected end of an array", 2 },
		{ "[\"abc", "unexpected end of a string", 5 },
		{ "[1 2]", "expected ',' or ']'", 3 },
		{ "{\"a\" 1}", "expected ':'", 5 },
		{ "{1}", "expected a key", 1 },
		{ "[01]", "bad number", 1 },
		{ "[\"\\x\"]", "bad escape", 2 },
		{ "[\"\\uzzzz\"]", "bad \\u escape", 2 },
		{ "[\"a\nb\"]", "control character in a string", 3 },
		{ "[\"a\xff\"]", "invalid UTF-8", 3 },
		{ "1 1", "trailing data", 2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *what = NULL;
		size_t at = 99;

		assert_false(jspan_valid(span_of(rows[i].text), &what, &at));
		assert_string_equal(what, rows[i].what);
		assert_int_equal(at, rows[i].at);
	}
}

static void
wrong_containers_are_errors(void **state)
{
	struct jspan j;

	(void)state;
	jspan_open(&j, span_of("[]"));
	assert_false(jspan_enter_object(&j));
	assert_string_equal(j.error, "expected an object");
	jspan_open(&j, span_of("{}"));
	assert_false(jspan_enter_array(&j));
	assert_string_equal(j.error, "expected an array");
	jspan_open(&j, span_of(" "));
	assert_false(jspan_enter_array(&j));
	assert_string_equal(j.error, "unexpected end");
	jspan_open(&j, (struct span)SPAN_ZERO);
	assert_int_equal(jspan_peek(&j), JSPAN_NONE);
	assert_true(jspan_end(&j));
}

static bool
text_of(const char *json, struct arena *a, struct span *out)
{
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, span_of(json));
	assert_true(jspan_take(&j, &v));
	return jspan_text(&v, a, out);
}

static void
text_decodes_escapes_and_refuses_lone_surrogates(void **state)
{
	static const char *const lone[] = { "\"\\ud800\"", "\"\\udc00\"",
		"\"\\ud800x\"", "\"\\ud800\\n\"", "\"\\ud800\\ud800\"",
		"\"\\udc00\\ud800\"", "\"x\\udfff\"", "\"\\ud800\\u0041\"" };
	struct arena a = ARENA_ZERO;
	struct jspan_val v;
	struct jspan j;
	struct span s;

	(void)state;
	assert_true(text_of("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", &a, &s));
	assert_true(span_is(s, "\"\\/\b\f\n\r\t"));
	assert_true(
		text_of("\"\\u0041\\u00e9\\u20AC\\ud834\\udd1e!\"", &a, &s));
	assert_true(span_is(s, "A\xc3\xa9\xe2\x82\xac\xf0\x9d\x84\x9e!"));
	assert_true(text_of("\"a\\u0000b\"", &a, &s));
	assert_true(span_eq(s, span_make("a\0b", 3)));
	assert_true(text_of("\"\"", &a, &s));
	assert_int_equal(s.n, 0);
	assert_true(text_of("\"\xc3\xa9\"", &a, &s));
	assert_true(span_is(s, "\xc3\xa9"));
	for (size_t i = 0; i < sizeof(lone) / sizeof(lone[0]); i++)
		assert_false(text_of(lone[i], &a, &s));
	jspan_open(&j, SPAN_LIT("{\"\\ud800\":1,\"b\":2}"));
	assert_true(jspan_enter_object(&j));
	assert_true(jspan_next_name(&j, &v));
	assert_true(span_is(v.raw, "\"\\ud800\""));
	assert_true(jspan_take(&j, &v));
	assert_true(jspan_next_key(&j, &a, &s));
	assert_true(span_is(s, "b"));
	arena_fini(&a);
}

static void
integers_are_exact_or_refused(void **state)
{
	static const struct {
		const char *text;
		bool ok;
		int64_t v;
	} rows[] = {
		{ "0", true, 0 },
		{ "-0", true, 0 },
		{ "9223372036854775807", true, INT64_MAX },
		{ "-9223372036854775808", true, INT64_MIN },
		{ "9223372036854775808", false, 0 },
		{ "1.0", false, 0 },
		{ "1e2", false, 0 },
		{ "\"1\"", false, 0 },
		{ "true", false, 0 },
		{ "null", false, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct jspan_val v;
		struct jspan j;
		int64_t n = 0;

		jspan_open(&j, span_of(rows[i].text));
		assert_true(jspan_take(&j, &v));
		assert_int_equal(jspan_i64(&v, &n), rows[i].ok);
		assert_true(n == rows[i].v);
	}
}

static void
booleans_carry_their_truth(void **state)
{
	struct jspan_val v;
	struct jspan j;

	(void)state;
	jspan_open(&j, span_of("true"));
	assert_true(jspan_take(&j, &v) && v.type == JSPAN_BOOL && v.truth);
	jspan_open(&j, span_of("false"));
	assert_true(jspan_take(&j, &v) && v.type == JSPAN_BOOL && !v.truth);
}

/* A special byte at every place of strings of every small length. */
static void
string_ends_are_found_at_every_alignment(void **state)
{
	char text[80];

	(void)state;
	for (size_t n = 2; n < sizeof(text); n++) {
		memset(text, 'a', n);
		text[0] = text[n - 1] = '"';
		assert_true(valid(span_make(text, n)));
		assert_false(valid(span_make(text, n - 1)));
		for (size_t i = 1; i + 1 < n; i++) {
			text[i] = 0x1f;
			assert_false(valid(span_make(text, n)));
			text[i] = (char)0xff;
			assert_false(valid(span_make(text, n)));
			text[i] = '"';
			assert_false(valid(span_make(text, n)));
			text[i] = '\\';
			assert_false(valid(span_make(text, n)));
			text[i] = 0x7f;
			assert_true(valid(span_make(text, n)));
			text[i] = 'a';
		}
	}
}

/* Every code point, and every number that is none. */
static void
utf8_is_exactly_the_scalar_values(void **state)
{
	(void)state;
	for (uint32_t c = 0x80; c < 0x200000; c++) {
		bool ok = c < 0x110000 && (c < 0xd800 || c > 0xdfff);
		char t[4];
		size_t n;

		if (c < 0x800) {
			t[0] = (char)(0xc0 | c >> 6);
			n = 2;
		} else if (c < 0x10000) {
			t[0] = (char)(0xe0 | c >> 12);
			n = 3;
		} else {
			t[0] = (char)(0xf0 | c >> 18);
			n = 4;
		}
		for (size_t i = n - 1; i > 0; i--)
			t[n - i] = (char)(0x80 | (c >> (6 * (i - 1)) & 0x3f));
		if (jspan_utf8(span_make(t, n)) != ok)
			fail_msg("U+%04X", c);
		if (jspan_utf8(span_make(t, n - 1)))
			fail_msg("cut U+%04X", c);
	}
	assert_true(jspan_utf8(span_of("plain ascii of some length")));
	assert_true(jspan_utf8((struct span)SPAN_ZERO));
	assert_false(jspan_utf8(span_of("plain ascii of some lengt\x80")));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_vector_has_its_verdict),
		cmocka_unit_test(a_thousand_levels_pass_and_one_more_does_not),
		cmocka_unit_test(the_limit_counts_entered_levels_too),
		cmocka_unit_test(ten_million_open_brackets_end_quickly),
		cmocka_unit_test(values_are_spans_of_the_body),
		cmocka_unit_test(the_first_error_sticks),
		cmocka_unit_test(errors_name_the_place),
		cmocka_unit_test(wrong_containers_are_errors),
		cmocka_unit_test(
			text_decodes_escapes_and_refuses_lone_surrogates),
		cmocka_unit_test(integers_are_exact_or_refused),
		cmocka_unit_test(booleans_carry_their_truth),
		cmocka_unit_test(string_ends_are_found_at_every_alignment),
		cmocka_unit_test(utf8_is_exactly_the_scalar_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
