/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of every type a table may have, and what they are in an event.  The
 * tests of a source make the one of the other, those of a sink the reverse.
 */
#ifndef QUEEN_TEST_KINDS_H
#define QUEEN_TEST_KINDS_H

#include <stddef.h>

struct kind {
	const char *type, *sql, *json;
	/*
	 * What it is again behind a sink: NULL = the same, else another SQL
	 * value, `!` and a SQLSTATE = none.
	 */
	const char *back;
};

static const char kinds_preparation[] =
	"create type mood as enum ('sad', 'ok');"
	"create domain price as numeric(10,2);"
	"create domain ints as int[];"
	"create domain rate as price;"
	"create type pair as (a int, b text);";

static const struct kind kinds[] = {
	{ "bool", "true", "true", NULL },
	{ "int2", "-32768", "-32768", NULL },
	{ "int8", "9223372036854775807", "9223372036854775807", NULL },
	{ "oid", "4294967295", "4294967295", NULL },
	{ "numeric", "'123.4500'", "123.4500", NULL },
	{ "numeric", "'NaN'", "\"NaN\"", NULL },
	{ "numeric", "'-Infinity'", "\"-Infinity\"", NULL },
	{ "float8", "'-0'", "-0", NULL },
	{ "float8", "1e100", "1e+100", NULL },
	{ "float4", "0.1", "0.1", NULL },
	{ "float8", "'Infinity'", "\"Infinity\"", NULL },
	{ "json", "' {\"a\": 1, \"a\":2} '", "{\"a\": 1, \"a\":2}",
		"'{\"a\": 1, \"a\":2}'" },
	{ "json", "'\"\\u0000\"'", "\"\\u0000\"", NULL },
	{ "jsonb", "'[1e3, null]'", "[1000, null]", NULL },
	{ "jsonb", "'null'", "null", "null" },
	{ "timestamptz", "'2026-10-02 10:00:00.000001+02'",
		"\"2026-10-02T08:00:00.000001+00:00\"", NULL },
	{ "timestamptz", "'infinity'", "\"infinity\"", NULL },
	{ "timestamptz", "'0044-03-15 12:00+00 BC'",
		"\"0044-03-15 12:00:00+00 BC\"", NULL },
	{ "timestamptz", "'10000-01-01 00:00+00'",
		"\"10000-01-01T00:00:00+00:00\"", NULL },
	{ "timestamp", "'2026-10-02 10:00:00.5'", "\"2026-10-02T10:00:00.5\"", NULL },
	{ "timestamp", "'-infinity'", "\"-infinity\"", NULL },
	{ "date", "'0044-03-15 BC'", "\"0044-03-15 BC\"", NULL },
	{ "time", "'24:00'", "\"24:00:00\"", NULL },
	{ "timetz", "'10:00+00:09:21'", "\"10:00:00+00:09:21\"", NULL },
	{ "interval", "'1 day 2 hours'", "\"1 day 02:00:00\"", NULL },
	{ "uuid", "'00000000-0000-0000-0000-00000000000A'",
		"\"00000000-0000-0000-0000-00000000000a\"", NULL },
	{ "inet", "'10.0.0.1'", "\"10.0.0.1\"", NULL },
	{ "cidr", "'10.0.0.0/8'", "\"10.0.0.0/8\"", NULL },
	{ "macaddr", "'08:00:2b:01:02:03'", "\"08:00:2b:01:02:03\"", NULL },
	{ "macaddr8", "'08:00:2b:01:02:03:04:05'",
		"\"08:00:2b:01:02:03:04:05\"", NULL },
	{ "bytea", "'\\x00ff'", "\"\\\\x00ff\"", NULL },
	{ "text", "E'a\"\\\\\\n\\t\\x01\\x7f\xc3\xa9'",
		"\"a\\\"\\\\\\n\\t\\u0001\x7f\xc3\xa9\"", NULL },
	{ "text", "''", "\"\"", NULL },
	{ "text", "null", "null", NULL },
	{ "\"char\"", "'x'", "\"x\"", NULL },
	{ "name", "'n'", "\"n\"", NULL },
	{ "char(5)", "'ab'", "\"ab   \"", NULL },
	{ "bit(4)", "'0101'", "\"0101\"", NULL },
	{ "varbit", "'1'", "\"1\"", NULL },
	{ "money", "1000", "\"$1,000.00\"", NULL },
	{ "xml", "'<a>1</a>'", "\"<a>1</a>\"", NULL },
	{ "tsvector", "'b a'", "\"'a' 'b'\"", NULL },
	{ "tsquery", "'a & b'", "\"'a' & 'b'\"", NULL },
	{ "jsonpath", "'$.a'", "\"$.\\\"a\\\"\"", NULL },
	{ "pg_lsn", "'0/1A2B3C8'", "\"0/1A2B3C8\"", NULL },
	{ "xid8", "'7'", "\"7\"", NULL },
	{ "point", "'1,2'", "\"(1,2)\"", NULL },
	{ "box", "'0,0,1,1'", "\"(1,1),(0,0)\"", NULL },
	{ "line", "'{1,2,3}'", "\"{1,2,3}\"", NULL },
	{ "lseg", "'1,2,3,4'", "\"[(1,2),(3,4)]\"", NULL },
	{ "path", "'[(1,2),(3,4)]'", "\"[(1,2),(3,4)]\"", NULL },
	{ "polygon", "'(1,2),(3,4)'", "\"((1,2),(3,4))\"", NULL },
	{ "circle", "'1,2,3'", "\"<(1,2),3>\"", NULL },
	{ "tstzrange", "'[2026-10-02 10:00+00,)'",
		"\"[\\\"2026-10-02 10:00:00+00\\\",)\"", NULL },
	{ "int4range", "'[1,2]'", "\"[1,3)\"", NULL },
	{ "int4multirange", "'{[1,2]}'", "\"{[1,3)}\"", NULL },
	{ "int2vector", "'1 2'", "\"1 2\"", NULL },
	{ "oidvector", "'1 2'", "\"1 2\"", NULL },
	{ "int4[]", "'{1,NULL}'", "[1,null]", NULL },
	{ "int4[]", "'{}'", "[]", NULL },
	{ "int4[]", "'[0:1][2:3]={{1,2},{3,4}}'", "[[1,2],[3,4]]",
		"'{{1,2},{3,4}}'" },
	{ "int4[]", "'{{{{{{1}}}}}}'", "[[[[[[1]]]]]]", NULL },
	{ "text[]", "array['a b', 'NULL', null, '', '\"\\', '{}']",
		"[\"a b\",\"NULL\",null,\"\",\"\\\"\\\\\",\"{}\"]", NULL },
	{ "bytea[]", "array['\\x00'::bytea]", "[\"\\\\x00\"]", NULL },
	{ "jsonb[]", "array['{\"a\":1}'::jsonb, 'null']", "[{\"a\": 1},null]",
		"array['{\"a\":1}'::jsonb, null]" },
	{ "jsonb[]", "array['[1, 2]'::jsonb]", "[[1, 2]]",
		"array[array['1'::jsonb, '2']]" },
	{ "json[]", "array['{\"a\": 1, \"a\":2}'::json]",
		"[{\"a\": 1, \"a\":2}]", NULL },
	{ "timestamptz[]", "array['2026-10-02 10:00+00'::timestamptz]",
		"[\"2026-10-02T10:00:00+00:00\"]", NULL },
	{ "box[]", "array['0,0,1,1'::box, '1,1,2,2']",
		"[\"(1,1),(0,0)\",\"(2,2),(1,1)\"]", NULL },
	{ "int2vector[]", "array['1 2'::int2vector]", "[\"1 2\"]", NULL },
	{ "mood", "'sad'", "\"sad\"", NULL },
	{ "mood[]", "'{sad,NULL}'", "[\"sad\",null]", NULL },
	{ "price", "1.5", "1.50", NULL },
	{ "rate", "1.5", "1.50", NULL },
	{ "price[]", "'{1.5}'", "[1.50]", NULL },
	{ "ints", "'{1,2}'", "[1,2]", NULL },
	{ "ints[]", "array['{1,2}'::ints]", "[[1,2]]", "!22P02" },
	{ "pair", "row(1,'x y')", "\"(1,\\\"x y\\\")\"", NULL },
	{ "pair[]", "array[row(1,'x')::pair]", "[\"(1,x)\"]", NULL },
	{ "pg_catalog.pg_class[]", "null", "null", NULL },
};

enum { KINDS_N = sizeof(kinds) / sizeof(*kinds) };

#endif
