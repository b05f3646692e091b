/* SPDX-License-Identifier: Apache-2.0 */
/* The examples of RFC 8785, and what it leaves to be refused. */
#include "jcs.h"

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
#include "jspan.h"

static struct arena a;
static struct buf b;

static int
teardown(void **state)
{
	(void)state;
	arena_fini(&a);
	buf_fini(&b);
	return 0;
}

static const char *
canonical(const char *json)
{
	const char *why = NULL;

	buf_reset(&b);
	if (!jcs_put(&b, span_of(json), &a, &why))
		fail_msg("%s: %s", json, why);
	buf_putc(&b, '\0');
	return b.p;
}

static const char *
refused(const char *json)
{
	const char *why = NULL;

	buf_reset(&b);
	buf_puts(&b, "kept");
	assert_false(jcs_put(&b, span_of(json), &a, &why));
	assert_true(span_is(buf_span(&b), "kept"));
	return why;
}

/* Appendix B, but NaN and Infinity, which JSON cannot write. */
static void
numbers_of_appendix_b(void **state)
{
	static const struct {
		uint64_t bits;
		const char *text;
	} vectors[] = {
		{ 0x0000000000000000, "0" },
		{ 0x8000000000000000, "0" },
		{ 0x0000000000000001, "5e-324" },
		{ 0x8000000000000001, "-5e-324" },
		{ 0x7fefffffffffffff, "1.7976931348623157e+308" },
		{ 0xffefffffffffffff, "-1.7976931348623157e+308" },
		{ 0x4340000000000000, "9007199254740992" },
		{ 0xc340000000000000, "-9007199254740992" },
		{ 0x4430000000000000, "295147905179352830000" },
		{ 0x44b52d02c7e14af5, "9.999999999999997e+22" },
		{ 0x44b52d02c7e14af6, "1e+23" },
		{ 0x44b52d02c7e14af7, "1.0000000000000001e+23" },
		{ 0x444b1ae4d6e2ef4e, "999999999999999700000" },
		{ 0x444b1ae4d6e2ef4f, "999999999999999900000" },
		{ 0x444b1ae4d6e2ef50, "1e+21" },
		{ 0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7" },
		{ 0x3eb0c6f7a0b5ed8d, "0.000001" },
		{ 0x41b3de4355555553, "333333333.3333332" },
		{ 0x41b3de4355555554, "333333333.33333325" },
		{ 0x41b3de4355555555, "333333333.3333333" },
		{ 0x41b3de4355555556, "333333333.3333334" },
		{ 0x41b3de4355555557, "333333333.33333343" },
		{ 0xbecbf647612f3696, "-0.0000033333333333333333" },
		{ 0x43143ff3c1cb0959, "1424953923781206.2" },
		/* Powers of two whose nearest 16 digits are another double. */
		{ 0x0060000000000000, "7.120236347223045e-307" },
		{ 0x0100000000000000, "7.291122019556398e-304" },
	};
	char text[JCS_NUMBER_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
		double d;

		memcpy(&d, &vectors[i].bits, sizeof(d));
		assert_string_equal(jcs_number(d, text), vectors[i].text);
	}
}

/* Section 3.2.2 and 3.2.3. */
static void
examples_of_the_rfc(void **state)
{
	(void)state;
	assert_string_equal(
		canonical("{\n"
			  " \"numbers\": [333333333.33333329, 1E30, 4.50,\n"
			  "  2e-3, 0.000000000000000000000000001],\n"
			  " \"string\": \"\\u20ac$\\u000F\\u000aA'\\u0042"
			  "\\u0022\\u005c\\\\\\\"\\/\",\n"
			  " \"literals\": [null, true, false]\n}"),
		"{\"literals\":[null,true,false],\"numbers\":"
		"[333333333.3333333,1e+30,4.5,0.002,1e-27],\"string\":"
		"\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
	assert_string_equal(
		canonical("{\"\\u20ac\": \"Euro Sign\","
			  "\"\\r\": \"Carriage Return\","
			  "\"\\ufb33\": \"Hebrew Letter Dalet With Dagesh\","
			  "\"1\": \"One\","
			  "\"\\ud83d\\ude00\": \"Emoji: Grinning Face\","
			  "\"\\u0080\": \"Control\","
			  "\"\\u00f6\": \"Latin Small Letter O With "
			  "Diaeresis\"}"),
		"{\"\\r\":\"Carriage Return\",\"1\":\"One\","
		"\"\xc2\x80\":\"Control\","
		"\"\xc3\xb6\":\"Latin Small Letter O With Diaeresis\","
		"\"\xe2\x82\xac\":\"Euro Sign\","
		"\"\xf0\x9f\x98\x80\":\"Emoji: Grinning Face\","
		"\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}");
}

static void
the_last_of_equal_names_wins(void **state)
{
	(void)state;
	assert_string_equal(
		canonical("{\"b\":1,\"a\":{\"x\":[]},\"\\u0062\":2,\"b\":{}}"),
		"{\"a\":{\"x\":[]},\"b\":{}}");
	assert_string_equal(canonical("{\"ab\":1,\"a\":2,\"\":3}"),
		"{\"\":3,\"a\":2,\"ab\":1}");
	assert_string_equal(canonical("[]"), "[]");
	assert_string_equal(canonical(" {} "), "{}");
	assert_string_equal(canonical("[-0, -0.0e5, 100, 1e2, -12.50]"),
		"[0,0,100,100,-12.5]");
	/* More digits than a double has. */
	assert_string_equal(
		canonical("12345678901234567890123"), "1.2345678901234568e+22");
	assert_string_equal(canonical("1e-400"), "0");
}

static void
what_has_no_canonical_form_is_refused(void **state)
{
	char deep[2 * JCS_DEPTH_MAX + 8];

	(void)state;
	assert_string_equal(refused("1e400"), "number out of range");
	assert_string_equal(
		refused("[1,{\"a\":-1e309}]"), "number out of range");
	assert_string_equal(
		refused("[\"\\ud800\"]"), "lone surrogate in a string");
	assert_string_equal(
		refused("{\"\\udc00\":1}"), "lone surrogate in a key");
	assert_string_equal(refused("[1] 2"), "trailing data");
	assert_string_equal(refused("{\"a\":1"), "unexpected end of an object");
	assert_string_equal(refused("[1"), "unexpected end of an array");
	assert_string_equal(refused(""), "unexpected end");

	memset(deep, '[', JCS_DEPTH_MAX + 1);
	memset(deep + JCS_DEPTH_MAX + 1, ']', JCS_DEPTH_MAX + 1);
	deep[2 * JCS_DEPTH_MAX + 2] = '\0';
	assert_string_equal(refused(deep), "nested too deep");
	deep[2 * JCS_DEPTH_MAX + 1] = '\0';
	assert_int_equal(strlen(canonical(deep + 1)), 2 * JCS_DEPTH_MAX);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_of_appendix_b),
		cmocka_unit_test(examples_of_the_rfc),
		cmocka_unit_test(the_last_of_equal_names_wins),
		cmocka_unit_test(what_has_no_canonical_form_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
