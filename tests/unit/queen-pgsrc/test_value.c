/* SPDX-License-Identifier: Apache-2.0 */
/* Values: exact JSON for every row of the table, and for malformed text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "jspan.h"
#include "types.h"
#include "value.h"

static struct buf out;

static int
teardown(void **state)
{
	(void)state;
	buf_fini(&out);
	return 0;
}

static const char *
json(const struct value_type *t, struct span text)
{
	const char *what;
	size_t at;

	buf_reset(&out);
	value_write(&out, t, text);
	if (text.n < 1000)
		assert_true(jspan_valid(buf_span(&out), &what, &at));
	buf_putc(&out, '\0');
	return out.p;
}

/* The OIDs are PostgreSQL's own. */
enum {
	BOOL = 16,
	BYTEA = 17,
	CHAR = 18,
	NAME = 19,
	INT8 = 20,
	INT2 = 21,
	INT2VECTOR = 22,
	INT4 = 23,
	TEXT = 25,
	OID = 26,
	OIDVECTOR = 30,
	JSON = 114,
	XML = 142,
	POINT = 600,
	CIDR = 650,
	FLOAT4 = 700,
	FLOAT8 = 701,
	MONEY = 790,
	MACADDR = 829,
	INET = 869,
	BPCHAR = 1042,
	DATE = 1082,
	TIME = 1083,
	TIMESTAMP = 1114,
	TIMESTAMPTZ = 1184,
	INTERVAL = 1186,
	TIMETZ = 1266,
	BIT = 1560,
	VARBIT = 1562,
	NUMERIC = 1700,
	UUID = 2950,
	PG_LSN = 3220,
	TSVECTOR = 3614,
	JSONB = 3802,
	INT4RANGE = 3904,
	JSONPATH = 4072,
	XID8 = 5069,
	INT4MULTIRANGE = 4451,
	BOOL_A = 1000,
	BYTEA_A = 1001,
	INT4_A = 1007,
	TEXT_A = 1009,
	BOX_A = 1020,
	TIMESTAMPTZ_A = 1185,
	NUMERIC_A = 1231,
	JSONB_A = 3807,
	INT2VECTOR_A = 1006
};

struct vector {
	uint32_t oid;
	const char *text, *json;
};

static const struct vector vectors[] = {
	{ BOOL, "t", "true" },
	{ BOOL, "f", "false" },
	{ BOOL, "true", "true" },
	{ BOOL, "false", "false" },
	{ BOOL, "T", "\"T\"" },
	{ BOOL, "", "\"\"" },
	{ INT2, "-32768", "-32768" },
	{ INT4, "0", "0" },
	{ INT8, "9223372036854775807", "9223372036854775807" },
	{ OID, "4294967295", "4294967295" },
	{ INT4, "+1", "\"+1\"" },
	{ INT4, "01", "\"01\"" },
	{ INT4, "1 ", "\"1 \"" },
	{ INT4, "", "\"\"" },
	{ INT4, "-", "\"-\"" },
	{ NUMERIC, "123.4500", "123.4500" },
	{ NUMERIC, "-0", "-0" },
	{ NUMERIC, "NaN", "\"NaN\"" },
	{ NUMERIC, "Infinity", "\"Infinity\"" },
	{ NUMERIC, "-Infinity", "\"-Infinity\"" },
	{ NUMERIC, "1.", "\"1.\"" },
	{ NUMERIC, ".5", "\".5\"" },
	{ FLOAT8, "1e+100", "1e+100" },
	{ FLOAT8, "-0", "-0" },
	{ FLOAT8, "1e-07", "1e-07" },
	{ FLOAT4, "1.5E10", "1.5E10" },
	{ FLOAT8, "1e", "\"1e\"" },
	{ FLOAT8, "NaN", "\"NaN\"" },
	{ JSON, " {\"a\": 1,  \"a\":2}\n", "{\"a\": 1,  \"a\":2}" },
	{ JSON, "\"\\u0000\"", "\"\\u0000\"" },
	{ JSON, "1e400", "1e400" },
	{ JSONB, "[1, null]", "[1, null]" },
	{ JSONB, "{\"a\":}", "\"{\\\"a\\\":}\"" },
	{ JSON, "", "\"\"" },
	{ JSON, "1 2", "\"1 2\"" },
	{ TIMESTAMPTZ, "2026-10-02 10:00:00+00",
		"\"2026-10-02T10:00:00+00:00\"" },
	{ TIMESTAMPTZ, "2026-10-02 10:00:00.000001+05:30",
		"\"2026-10-02T10:00:00.000001+05:30\"" },
	{ TIMESTAMPTZ, "1890-01-01 00:00:00+00:09:21",
		"\"1890-01-01T00:00:00+00:09:21\"" },
	{ TIMESTAMPTZ, "294276-12-31 23:59:59.999999-12",
		"\"294276-12-31T23:59:59.999999-12:00\"" },
	{ TIMESTAMPTZ, "infinity", "\"infinity\"" },
	{ TIMESTAMPTZ, "-infinity", "\"-infinity\"" },
	{ TIMESTAMPTZ, "0044-03-15 12:00:00+00 BC",
		"\"0044-03-15 12:00:00+00 BC\"" },
	{ TIMESTAMPTZ, "2026-10-02 10:00:00", "\"2026-10-02 10:00:00\"" },
	{ TIMESTAMPTZ, "2026-10-02 10:00:00+0", "\"2026-10-02 10:00:00+0\"" },
	{ TIMESTAMPTZ,
		"2026-10-02 10:00:00+00:", "\"2026-10-02 10:00:00+00:\"" },
	{ TIMESTAMP, "2026-10-02 10:00:00", "\"2026-10-02T10:00:00\"" },
	{ TIMESTAMP, "10000-01-01 00:00:00.5", "\"10000-01-01T00:00:00.5\"" },
	{ TIMESTAMP, "infinity", "\"infinity\"" },
	{ TIMESTAMP, "0044-03-15 12:00:00 BC", "\"0044-03-15 12:00:00 BC\"" },
	{ TIMESTAMP, "2026-10-02", "\"2026-10-02\"" },
	{ TIMESTAMP, "2026-10-02 10:00:00.", "\"2026-10-02 10:00:00.\"" },
	{ DATE, "2026-10-02", "\"2026-10-02\"" },
	{ DATE, "0044-03-15 BC", "\"0044-03-15 BC\"" },
	{ TIME, "24:00:00", "\"24:00:00\"" },
	{ TIMETZ, "10:00:00+00", "\"10:00:00+00\"" },
	{ INTERVAL, "1 day 02:00:00", "\"1 day 02:00:00\"" },
	{ UUID, "00000000-0000-0000-0000-000000000001",
		"\"00000000-0000-0000-0000-000000000001\"" },
	{ INET, "10.0.0.1/8", "\"10.0.0.1/8\"" },
	{ CIDR, "10.0.0.0/8", "\"10.0.0.0/8\"" },
	{ MACADDR, "08:00:2b:01:02:03", "\"08:00:2b:01:02:03\"" },
	{ BYTEA, "\\x00ff", "\"\\\\x00ff\"" },
	{ TEXT, "a\"b\\c\n\r\t\x01\x7f\xc3\xa9",
		"\"a\\\"b\\\\c\\n\\r\\t\\u0001\x7f\xc3\xa9\"" },
	{ TEXT, "", "\"\"" },
	{ TEXT, "null", "\"null\"" },
	{ CHAR, "x", "\"x\"" },
	{ NAME, "n", "\"n\"" },
	{ BPCHAR, "ab   ", "\"ab   \"" },
	{ BIT, "0101", "\"0101\"" },
	{ VARBIT, "1", "\"1\"" },
	{ MONEY, "$1,000.00", "\"$1,000.00\"" },
	{ XML, "<a>1</a>", "\"<a>1</a>\"" },
	{ TSVECTOR, "'a':1", "\"'a':1\"" },
	{ JSONPATH, "$.\"a\"", "\"$.\\\"a\\\"\"" },
	{ PG_LSN, "0/1A2B3C8", "\"0/1A2B3C8\"" },
	{ XID8, "7", "\"7\"" },
	{ POINT, "(1,2)", "\"(1,2)\"" },
	{ INT4RANGE, "[1,3)", "\"[1,3)\"" },
	{ INT4MULTIRANGE, "{[1,3)}", "\"{[1,3)}\"" },
	{ INT2VECTOR, "1 2", "\"1 2\"" },
	{ OIDVECTOR, "", "\"\"" },
};

static const struct vector arrays[] = {
	{ INT4_A, "{}", "[]" },
	{ INT4_A, "{1,NULL,-3}", "[1,null,-3]" },
	{ INT4_A, "{{1,2},{3,4}}", "[[1,2],[3,4]]" },
	{ INT4_A, "{{{{{{1}}}}}}", "[[[[[[1]]]]]]" },
	{ INT4_A, "{{{{{{{1}}}}}}}", "\"{{{{{{{1}}}}}}}\"" },
	{ INT4_A, "[2:3]={1,2}", "[1,2]" },
	{ INT4_A, "[-1:0][0:1]={{1,2},{3,4}}", "[[1,2],[3,4]]" },
	{ INT4_A, "[0:1]={{1,2},{3,4}}", "\"[0:1]={{1,2},{3,4}}\"" },
	{ BOOL_A, "{t,f,NULL}", "[true,false,null]" },
	{ NUMERIC_A, "{1.50,NaN}", "[1.50,\"NaN\"]" },
	{ TEXT_A, "{a,\"b c\",\"d\\\"e\\\\f\",\"NULL\",NULL,\"\"}",
		"[\"a\",\"b c\",\"d\\\"e\\\\f\",\"NULL\",null,\"\"]" },
	{ TEXT_A, "{\"{1,2}\",\"a,b\"}", "[\"{1,2}\",\"a,b\"]" },
	{ BYTEA_A, "{\"\\\\x00\"}", "[\"\\\\x00\"]" },
	{ TIMESTAMPTZ_A, "{\"2026-10-02 10:00:00+00\"}",
		"[\"2026-10-02T10:00:00+00:00\"]" },
	{ JSONB_A, "{\"{\\\"a\\\": [1]}\",\"null\",NULL}",
		"[{\"a\": [1]},null,null]" },
	{ BOX_A, "{(1,1),(0,0);(2,2),(1,1)}",
		"[\"(1,1),(0,0)\",\"(2,2),(1,1)\"]" },
	{ INT2VECTOR_A, "{\"1 2\",\"3\"}", "[\"1 2\",\"3\"]" },
	{ INT4_A, "", "\"\"" },
	{ INT4_A, "{", "\"{\"" },
	{ INT4_A, "{1", "\"{1\"" },
	{ INT4_A, "{1}}", "\"{1}}\"" },
	{ INT4_A, "{1,}", "\"{1,}\"" },
	{ INT4_A, "{,1}", "\"{,1}\"" },
	{ INT4_A, "{1}x", "\"{1}x\"" },
	{ INT4_A, "{{}}", "\"{{}}\"" },
	{ INT4_A, "{{1},2}", "\"{{1},2}\"" },
	{ INT4_A, "{1,{2}}", "\"{1,{2}}\"" },
	{ INT4_A, "{{1,2},{3}}", "\"{{1,2},{3}}\"" },
	{ INT4_A, "1", "\"1\"" },
	{ INT4_A, "[1]={1}", "\"[1]={1}\"" },
	{ INT4_A, "[1:1]=", "\"[1:1]=\"" },
	{ TEXT_A, "{\"a}", "\"{\\\"a}\"" },
	{ TEXT_A, "{\"a\\", "\"{\\\"a\\\\\"" },
	{ TEXT_A, "{\"a\"b}", "\"{\\\"a\\\"b}\"" },
	{ TEXT_A, "{a\"b\"}", "\"{a\\\"b\\\"}\"" },
};

static void
check(const struct vector *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct value_type *t = value_builtin(v[i].oid);

		assert_non_null(t);
		assert_string_equal(json(t, span_of(v[i].text)), v[i].json);
	}
}

static void
every_type_is_written_as_the_table_says(void **state)
{
	(void)state;
	check(vectors, sizeof(vectors) / sizeof(*vectors));
}

static void
arrays_nest_and_what_is_none_is_a_string(void **state)
{
	(void)state;
	check(arrays, sizeof(arrays) / sizeof(*arrays));
}

static void
digits_are_never_computed(void **state)
{
	char digits[401];

	(void)state;
	memset(digits, '7', 400);
	digits[400] = '\0';
	assert_string_equal(
		json(value_builtin(NUMERIC), span_of(digits)), digits);
}

static void
json_has_no_depth_limit(void **state)
{
	const struct value_type *t = value_builtin(JSON);
	enum { LEVELS = 5000 };
	char *deep = malloc(LEVELS * 8 + 64), *p = deep;
	size_t n;

	(void)state;
	for (int i = 0; i < LEVELS; i++)
		p = stpcpy(p, i % 2 ? "{\"a\":" : "[1,");
	p = stpcpy(p, "{}");
	for (int i = LEVELS; i-- > 0;)
		p = stpcpy(p, i % 2 ? "}" : ",[]]");
	n = (size_t)(p - deep);
	json(t, span_make(deep, n));
	assert_int_equal(out.len - 1, n);
	assert_memory_equal(out.p, deep, n);
	/* the last bracket is missing: text */
	json(t, span_make(deep, n - 1));
	assert_int_equal(out.p[0], '"');
	free(deep);
}

/* ---- domains and arrays of what the server made itself ---- */

static void
domains_are_their_base_type(void **state)
{
	static const struct types_row rows[] = {
		/* domain over a domain over numeric */
		{ 20000, 'd', ',', 20001, 0 },
		{ 20001, 'd', ',', NUMERIC, 0 },
		/* domain over int4[] */
		{ 20002, 'd', ',', INT4_A, 0 },
		/* array of the first domain, of the third */
		{ 20003, 'b', ',', 0, 20000 },
		{ 20004, 'b', ',', 0, 20002 },
		/* enum and its array, composite and its array */
		{ 20005, 'e', ',', 0, 0 },
		{ 20006, 'b', ',', 0, 20005 },
		{ 20007, 'c', ',', 0, 0 },
		{ 20008, 'b', ',', 0, 20007 },
		/* a domain over box keeps its delimiter */
		{ 20009, 'd', ';', 603, 0 },
		{ 20010, 'b', ',', 0, 20009 },
		{ 20011, 0, 0, 0, 0 },
	};
	static const struct vector want[] = {
		{ 20000, "1.50", "1.50" },
		{ 20002, "{1}", "[1]" },
		{ 20003, "{1.50,NULL}", "[1.50,null]" },
		{ 20004, "{\"{1,2}\"}", "[[1,2]]" },
		{ 20005, "sad", "\"sad\"" },
		{ 20006, "{sad,NULL}", "[\"sad\",null]" },
		{ 20007, "(1,x)", "\"(1,x)\"" },
		{ 20008, "{\"(1,x)\"}", "[\"(1,x)\"]" },
		{ 20010, "{(1,1),(0,0);(2,2),(1,1)}",
			"[\"(1,1),(0,0)\",\"(2,2),(1,1)\"]" },
		{ 20011, "{1}", "\"{1}\"" },
	};
	struct types t = TYPES_ZERO;

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		const struct value_type *type;
		uint32_t ask = 0;

		while (!(type = types_get(&t, want[i].oid, &ask))) {
			assert_in_range(ask, 20000, 20011);
			types_learn(&t, &rows[ask - 20000]);
		}
		assert_string_equal(
			json(type, span_of(want[i].text)), want[i].json);
	}
	types_fini(&t);
}

static void
what_is_too_deep_or_goes_round_is_a_string(void **state)
{
	struct types t = TYPES_ZERO;
	struct types_row row = { .oid = 30000, .typtype = 'd' };
	const struct value_type *type;
	uint32_t ask = 0;

	(void)state;
	row.base_oid = 30000;
	types_learn(&t, &row);
	type = types_get(&t, 30000, &ask);
	assert_non_null(type);
	assert_string_equal(json(type, span_of("7")), "\"7\"");
	for (uint32_t i = 1; i <= 12; i++) {
		row.oid = 30000 + i;
		row.base_oid = i == 12 ? INT4 : row.oid + 1;
		types_learn(&t, &row);
	}
	/* eight domains down is a number, more is not looked at */
	assert_string_equal(
		json(types_get(&t, 30001, &ask), span_of("7")), "\"7\"");
	assert_string_equal(
		json(types_get(&t, 30005, &ask), span_of("7")), "7");
	types_fini(&t);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_is_written_as_the_table_says),
		cmocka_unit_test(arrays_nest_and_what_is_none_is_a_string),
		cmocka_unit_test(digits_are_never_computed),
		cmocka_unit_test(json_has_no_depth_limit),
		cmocka_unit_test(domains_are_their_base_type),
		cmocka_unit_test(what_is_too_deep_or_goes_round_is_a_string),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
