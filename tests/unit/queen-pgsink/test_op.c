/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "buf.h"
#include "jspan.h"
#include "op_fix.h"

static struct arena arena;
static struct buf shown;

static struct plan *
plan_of(const struct conndoc_sink *doc, const struct span *key)
{
	struct plan_facts facts = op_fix_facts(key);
	struct connfault f = { .code = NULL };
	struct plan *p;

	if (plan_make(doc, &facts, &p, &f) != 0)
		fail_msg("%s: %s", f.code, f.text);
	return p;
}

static bool
make(const struct plan *p, struct span payload, struct op *o, struct span *why)
{
	struct feed_message m = op_fix_message(payload);

	arena_reset(&arena);
	return op_of(p, &op_fix_part, &m, &arena, o, why);
}

static void
show_params(const struct op *o)
{
	for (size_t i = 0; i < o->params_n; i++) {
		buf_putc(&shown, ' ');
		if (o->params[i].p)
			buf_put_span(&shown, o->params[i]);
		else
			buf_puts(&shown, "<null>");
	}
}

/* `kind param param`, `or` and what else when nothing moved; else `! why`. */
static const char *
op(const struct plan *p, const char *payload)
{
	static const char *const kinds[] = { "insert", "upsert", "move",
		"delete", "truncate", "statement" };
	struct span why;
	struct op o;

	buf_reset(&shown);
	if (make(p, span_of(payload), &o, &why)) {
		buf_puts(&shown, kinds[o.kind]);
		show_params(&o);
		if (o.otherwise) {
			buf_printf(&shown, " or %s", kinds[o.otherwise->kind]);
			show_params(o.otherwise);
		}
	} else {
		buf_printf(&shown, "! %.*s", SPAN_ARG(why));
	}
	buf_putc(&shown, '\0');
	return shown.p;
}

struct row {
	const char *payload, *op;
};

static void
compare(const struct plan *p, const struct row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(op(p, rows[i].payload), rows[i].op) != 0)
			fail_msg("%s:\n%s\n%s", rows[i].payload, shown.p,
				rows[i].op);
}

static void
payloads_name_columns(void **state)
{
	static const struct row rows[] = {
		{ "{\"id\":1}", "insert {\"id\":1}" },
		/* table order, the characters of the payload */
		{ " { \"n\" : 1.50e0 , \"id\" : \"7\" } ",
			"insert {\"id\":\"7\",\"n\":1.50e0}" },
		{ "{\"id\":1,\"ID\":2,\"other\":[{\"id\":3}]}",
			"insert {\"id\":1}" },
		{ "{\"id\":1,\"id\":null,\"n\":2,\"id\":{\"a\": [1, 2]}}",
			"insert {\"id\":{\"a\": [1, 2]},\"n\":2}" },
		{ "{\"\\u0069d\":1,\"Odd \\\"name\\\"\":\"x\\u0000\"}",
			"insert {\"id\":1,\"Odd \\\"name\\\"\":\"x\\u0000\"}" },
		{ "{\"twice\":4,\"no\":9}", "insert {\"no\":9}" },
		/* json stays as it is, null is one */
		{ "{\"doc\":{ \"a\":1, \"a\":\"\\u0000\"}}",
			"insert {\"doc\":\"{ \\\"a\\\":1, "
			"\\\"a\\\":\\\"\\\\u0000\\\"}\"}" },
		{ "{\"doc\":null}", "insert {\"doc\":null}" },
		{ "{\"\\ud800\":1,\"id\":1}", "insert {\"id\":1}" },
		{ "{\"twice\":4}", "! names no column of the table" },
		{ "{}", "! names no column of the table" },
		{ "[1]", "! not an object" },
		{ "null", "! not an object" },
		{ "", "! not readable: unexpected end at byte 0" },
		{ "{\"id\":1", "! not readable: unexpected end of an object at "
			       "byte 7" },
		{ "{\"id\":1}}", "! not readable: trailing data at byte 8" },
		{ "[", "! not readable: unexpected end at byte 1" },
	};
	struct conndoc_sink doc = op_fix_doc(CONNDOC_APPEND);
	struct plan *p = plan_of(&doc, NULL);

	(void)state;
	compare(p, rows, OP_FIX_N(rows));
	plan_free(p);
}

static void
metadata_win_over_payloads(void **state)
{
	static const struct row rows[] = {
		{ "{\"id\":1,\"n\":2,\"raw\":3}",
			"insert {\"id\":7,\"n\":42,\"Odd \\\"name\\\"\":\"p"
			"\\\"1\",\"no\":\"t-1\",\"doc\":\"\\\"2026-10-02T10:00:"
			"00.000001Z\\\"\",\"raw\":\"{\\\"id\\\":1,\\\"n\\\":2,"
			"\\\"raw\\\":3}\"}" },
		{ " \"text\" ",
			"insert {\"id\":7,\"n\":42,\"Odd \\\"name\\\"\":\"p"
			"\\\"1\",\"no\":\"t-1\",\"doc\":\"\\\"2026-10-02T10:00:"
			"00.000001Z\\\"\",\"raw\":\" \\\"text\\\" \"}" },
		{ " null",
			"insert {\"id\":7,\"n\":42,\"Odd \\\"name\\\"\":\"p"
			"\\\"1\",\"no\":\"t-1\",\"doc\":\"\\\"2026-10-02T10:00:"
			"00.000001Z\\\"\",\"raw\": null}" },
		{ "tru", "! not readable: expected a value at byte 0" },
	};
	struct conndoc_sink doc = op_fix_doc(CONNDOC_APPEND);
	struct plan *p;

	(void)state;
	doc.metadata[CONNDOC_META_OFFSET] = SPAN_LIT("id");
	doc.metadata[CONNDOC_META_PARTITION_ID] = SPAN_LIT("n");
	doc.metadata[CONNDOC_META_PARTITION] = SPAN_LIT("Odd \"name\"");
	doc.metadata[CONNDOC_META_TXN] = SPAN_LIT("no");
	doc.metadata[CONNDOC_META_CREATED_AT] = SPAN_LIT("doc");
	doc.metadata[CONNDOC_META_PAYLOAD] = SPAN_LIT("raw");
	p = plan_of(&doc, NULL);
	compare(p, rows, OP_FIX_N(rows));
	plan_free(p);
}

static void
an_upsert_needs_its_key(void **state)
{
	static const struct span names[] = { { "no", 2 }, { "id", 2 } };
	static const struct row rows[] = {
		{ "{\"id\":1,\"no\":2,\"n\":null}",
			"upsert {\"id\":1,\"n\":null,\"no\":2}" },
		{ "{\"id\":1}", "! no value for key column \"no\"" },
		{ "{\"n\":1}", "! no value for key columns \"no\", \"id\"" },
	};
	struct conndoc_sink doc = op_fix_doc(CONNDOC_UPSERT);
	struct span key[2] = { names[0], names[1] };
	struct plan *p;

	(void)state;
	doc.key = (struct conndoc_list){ .p = key, .n = 2 };
	p = plan_of(&doc, op_fix_id);
	compare(p, rows, OP_FIX_N(rows));
	plan_free(p);
}

static void
events_are_repeated(void **state)
{
	static const struct row rows[] = {
		{ "{\"op\":\"c\",\"table\":\"public.x\",\"key\":{\"id\":1},"
		  "\"after\":{\"id\":1,\"n\":2,\"twice\":4,\"z\":0},"
		  "\"before\":null}",
			"upsert {\"id\":1,\"n\":2}" },
		{ "{\"op\":\"r\",\"key\":{\"id\":1},\"after\":{\"n\":2}}",
			"upsert {\"id\":1,\"n\":2}" },
		/* what is unchanged is not written, a key comes from key */
		{ "{\"op\":\"u\",\"unchanged\":[\"n\",\"z\",\"id\"],\"after\":"
		  "{\"id\":9,\"n\":2,\"no\":3},\"key\":{\"id\":1}}",
			"upsert {\"id\":1,\"no\":3}" },
		{ "{\"op\":\"u\",\"unchanged\":null,\"after\":{\"id\":1}}",
			"upsert {\"id\":1}" },
		/* moves */
		{ "{\"op\":\"u\",\"key\":{\"id\":2},\"after\":{\"id\":2,"
		  "\"n\":3},\"before\":{\"id\":1,\"n\":2}}",
			"move {\"id\":2,\"n\":3} {\"id\":1} or "
			"upsert {\"id\":2,\"n\":3}" },
		{ "{\"op\":\"u\",\"after\":{\"id\":1},\"before\":{\"id\":1}}",
			"upsert {\"id\":1}" },
		{ "{\"op\":\"u\",\"after\":{\"id\":1},\"before\":{\"n\":1}}",
			"upsert {\"id\":1}" },
		{ "{\"op\":\"c\",\"after\":{\"id\":1},\"before\":{\"id\":2}}",
			"upsert {\"id\":1}" },
		/* deletes */
		{ "{\"op\":\"d\",\"key\":{\"id\":1,\"n\":2},\"after\":null,"
		  "\"before\":{\"id\":3}}",
			"delete {\"id\":1}" },
		{ "{\"op\":\"d\",\"before\":{\"id\":3}}", "delete {\"id\":3}" },
		{ "{\"op\":\"d\",\"key\":{\"n\":3}}",
			"! no value for key column \"id\"" },
		{ "{\"op\":\"t\",\"tables\":[\"public.x\"]}", "truncate" },
		/* the last of a repeated member */
		{ "{\"op\":\"t\",\"after\":1,\"after\":{\"id\":1},"
		  "\"op\":\"c\"}",
			"upsert {\"id\":1}" },
		{ "{\"\\u006fp\":\"\\u0074\"}", "truncate" },
		/* what is no event */
		{ "{\"op\":\"c\",\"after\":null}", "! after is not an object" },
		{ "{\"op\":\"u\"}", "! after is not an object" },
		{ "{\"op\":\"c\",\"after\":{\"n\":1}}",
			"! no value for key column \"id\"" },
		{ "{\"op\":\"x\"}", "! op is none of c, r, u, d, t" },
		{ "{\"op\":\"cc\"}", "! op is none of c, r, u, d, t" },
		{ "{\"op\":1}", "! op is none of c, r, u, d, t" },
		{ "{}", "! op is none of c, r, u, d, t" },
		{ "[]", "! not an object" },
		{ "{\"op\":\"u\",\"after\":{\"id\":1},\"unchanged\":{}}",
			"! unchanged is not an array" },
		{ "{\"op\":\"u\",\"after\":{\"id\":1},\"unchanged\":[1]}",
			"! unchanged holds what is no name" },
		{ "{\"op\":\"c\",\"after\":{\"id\":1}",
			"! not readable: unexpected end of an object at byte "
			"26" },
	};
	struct conndoc_sink doc = op_fix_doc(CONNDOC_CDC);
	struct plan *p = plan_of(&doc, op_fix_id);

	(void)state;
	compare(p, rows, OP_FIX_N(rows));
	plan_free(p);
}

static void
paths_give_texts(void **state)
{
	struct span params[] = { SPAN_LIT("$.a"), SPAN_LIT("$.a.b"),
		SPAN_LIT("$[\"a\"][1]"), SPAN_LIT("$.a"), SPAN_LIT("$[1]"),
		SPAN_LIT("$"), SPAN_LIT("@partition"), SPAN_LIT("@partitionId"),
		SPAN_LIT("@offset"), SPAN_LIT("@transactionId"),
		SPAN_LIT("@createdAt") };
#define FIELDS " p\"1 42 7 t-1 2026-10-02T10:00:00.000001Z"
	static const struct row rows[] = {
		{ "{\"a\":{ \"b\" : 1.50 }}",
			"statement { \"b\" : 1.50 } 1.50 <null> "
			"{ \"b\" : 1.50 } <null> {\"a\":{ \"b\" : 1.50 }}" FIELDS },
		{ "{\"a\":[1,\"x\\ny\"]}",
			"statement [1,\"x\\ny\"] <null> x\ny [1,\"x\\ny\"] "
			"<null> {\"a\":[1,\"x\\ny\"]}" FIELDS },
		{ "{\"a\":\"\"}",
			"statement  <null> <null>  <null> {\"a\":\"\"}" FIELDS },
		/* the last of a repeated key, whatever it is */
		{ "{\"a\":{\"b\":1},\"\\u0061\":true}",
			"statement true <null> <null> true <null> "
			"{\"a\":{\"b\":1},\"\\u0061\":true}" FIELDS },
		{ "{\"a\":{\"b\":1},\"a\":null}",
			"statement <null> <null> <null> <null> <null> "
			"{\"a\":{\"b\":1},\"a\":null}" FIELDS },
		{ "{\"a\":{\"b\":1,\"b\":[]}}",
			"statement {\"b\":1,\"b\":[]} [] <null> "
			"{\"b\":1,\"b\":[]} <null> {\"a\":{\"b\":1,\"b\":[]}}" FIELDS },
		{ "[0,-0]",
			"statement <null> <null> <null> <null> -0 [0,-0]" FIELDS },
		{ "\"s\"",
			"statement <null> <null> <null> <null> <null> s" FIELDS },
		{ " null ",
			"statement <null> <null> <null> <null> <null> <null>" FIELDS },
		{ "{\"b\":\"\\ud800\"}",
			"statement <null> <null> <null> <null> <null> "
			"{\"b\":\"\\ud800\"}" FIELDS },
		{ "{\"a\":\"\\ud800\"}",
			"! not readable: lone surrogate in a string" },
		{ "{\"a\":1",
			"! not readable: unexpected end of an object at byte "
			"6" },
		{ "1 2", "! not readable: trailing data at byte 2" },
	};
	struct conndoc_sink doc = op_fix_doc(CONNDOC_SQL);
	struct plan *p;
	struct span why;
	struct op o;

	(void)state;
	doc.statement = SPAN_LIT("select $1");
	doc.params = (struct conndoc_list){ params, OP_FIX_N(params) };
	p = plan_of(&doc, NULL);
	compare(p, rows, OP_FIX_N(rows));
	/* a NUL is part of a text like any other */
	assert_true(make(p, SPAN_LIT("{\"a\":\"x\\u0000y\"}"), &o, &why));
	assert_int_equal(o.params[0].n, 3);
	assert_memory_equal(o.params[0].p, "x\0y", 3);
	plan_free(p);
}

/* ---- statements ---- */

static const char *
sql(const struct plan *p, const char *payload, bool otherwise)
{
	struct span why;
	struct op o;

	if (!make(p, span_of(payload), &o, &why))
		fail_msg("%.*s", SPAN_ARG(why));
	buf_reset(&shown);
	op_sql(p, otherwise ? o.otherwise : &o, &shown);
	buf_putc(&shown, '\0');
	return shown.p;
}

#define TO_RECORD " from pg_catalog.json_to_record($1::pg_catalog.json) as n("
#define MOVED                                                                  \
	"{\"op\":\"u\",\"after\":{\"id\":2,\"no\":3,\"doc\":{}},\"before\":"   \
	"{\"id\":1,\"no\":1}}"

static void
statements_name_what_the_payload_names(void **state)
{
	struct conndoc_sink doc = op_fix_doc(CONNDOC_APPEND);
	struct plan *p = plan_of(&doc, NULL);

	(void)state;
	assert_string_equal(sql(p, "{\"Odd \\\"name\\\"\":1,\"n\":1}", false),
		"insert into \"s\".\"t\" (\"n\", \"Odd \"\"name\"\"\") "
		"overriding system value select n.\"n\", "
		"n.\"Odd \"\"name\"\"\" from pg_catalog.json_to_recordset("
		"$1::pg_catalog.json) as n(\"n\" numeric(10,2), "
		"\"Odd \"\"name\"\"\" text)");
	plan_free(p);

	doc = op_fix_doc(CONNDOC_CDC);
	p = plan_of(&doc, op_fix_id);
	assert_string_equal(
		sql(p, "{\"op\":\"c\",\"after\":{\"id\":1,\"doc\":1}}", false),
		"insert into \"s\".\"t\" (\"id\", \"doc\") overriding system "
		"value select n.\"id\", n.\"doc\"::pg_catalog.json" TO_RECORD
		"\"id\" integer, \"doc\" "
		"pg_catalog.text) on conflict (\"id\") do update "
		"set \"doc\" = excluded.\"doc\"");
	assert_string_equal(
		sql(p, "{\"op\":\"c\",\"after\":{\"id\":1,\"no\":1}}", false),
		"insert into \"s\".\"t\" (\"id\", \"no\") overriding system "
		"value select n.\"id\", n.\"no\"" TO_RECORD
		"\"id\" integer, \"no\" bigint) on conflict (\"id\") do "
		"nothing");
	assert_string_equal(sql(p, MOVED, false),
		"update \"s\".\"t\" as t set \"id\" = n.\"id\", \"doc\" = "
		"n.\"doc\"::pg_catalog.json" TO_RECORD
		"\"id\" integer, \"no\" bigint, \"doc\" pg_catalog.text), "
		"pg_catalog.json_to_record($2::pg_catalog.json) "
		"as o(\"id\" integer) "
		"where t.\"id\" = o.\"id\"");
	assert_string_equal(sql(p, MOVED, true),
		"insert into \"s\".\"t\" (\"id\", \"no\", \"doc\") overriding "
		"system value select n.\"id\", n.\"no\", n.\"doc\"::"
		"pg_catalog.json" TO_RECORD
		"\"id\" integer, \"no\" bigint, \"doc\" pg_catalog.text) on "
		"conflict (\"id\") do update set \"doc\" = excluded.\"doc\"");
	assert_string_equal(sql(p, "{\"op\":\"d\",\"key\":{\"id\":1}}", false),
		"delete from \"s\".\"t\" as t using pg_catalog.json_to_record("
		"$1::"
		"pg_catalog.json) as o(\"id\" integer) where t.\"id\" = o.\"id\"");
	assert_string_equal(
		sql(p, "{\"op\":\"t\"}", false), "truncate \"s\".\"t\"");
	buf_reset(&shown);
	op_sql_probe(p, &shown);
	buf_putc(&shown, '\0');
	assert_string_equal(shown.p,
		"explain insert into \"s\".\"t\" (\"id\") overriding system "
		"value select * from "
		"pg_catalog.json_to_record('{}'::pg_catalog.json) as "
		"o(\"id\" integer) on conflict (\"id\") do nothing");
	plan_free(p);

	p = plan_of(&doc, op_fix_no);
	assert_string_equal(sql(p, MOVED, false),
		"with o as (delete from \"s\".\"t\" as t using "
		"pg_catalog.json_to_record($2::pg_catalog.json) "
		"as o(\"no\" bigint) where "
		"t.\"no\" = o.\"no\" returning t.*) insert into \"s\".\"t\" ("
		"\"id\", \"n\", \"Odd \"\"name\"\"\", \"no\", \"doc\", \"raw\""
		") overriding system value select n.\"id\", o.\"n\", "
		"o.\"Odd \"\"name\"\"\", n.\"no\", n.\"doc\"::"
		"pg_catalog.json, o.\"raw\" "
		"from o, "
		"pg_catalog.json_to_record($1::pg_catalog.json) as n(\"id\" "
		"integer, \"no\" bigint, \"doc\" "
		"pg_catalog.text)");
	plan_free(p);
}

/* ---- runs ---- */

static void
neighbours_of_the_same_columns_are_one_statement(void **state)
{
	static const char *const payloads[] = { "{\"id\":1}", "{\"id\":2}",
		"{\"n\":3}", "{\"id\":4}" };
	struct conndoc_sink doc = op_fix_doc(CONNDOC_APPEND);
	struct plan *p = plan_of(&doc, NULL);
	struct span why, big;
	struct op ops[4];
	char *text;

	(void)state;
	arena_reset(&arena);
	for (size_t i = 0; i < 4; i++) {
		struct feed_message m = op_fix_message(span_of(payloads[i]));

		assert_true(op_of(p, &op_fix_part, &m, &arena, &ops[i], &why));
	}
	assert_int_equal(op_run(ops, 4), 2);
	assert_int_equal(op_run(ops, 1), 1);
	assert_int_equal(op_run(ops + 2, 2), 1);
	assert_true(span_eq(ops[0].shape, ops[3].shape));
	buf_reset(&shown);
	op_join(ops, 2, &shown);
	assert_true(span_is(buf_span(&shown), "[{\"id\":1},{\"id\":2}]"));
	/* up to 16 MiB; what is larger alone stays alone */
	text = calloc(1, OP_JOIN_MAX_BYTES);
	assert_non_null(text);
	big = span_make(text, OP_JOIN_MAX_BYTES / 2 - 1);
	ops[0].params = ops[1].params = &big;
	assert_int_equal(op_run(ops, 2), 2);
	big.n++;
	assert_int_equal(op_run(ops, 2), 1);
	big.n = OP_JOIN_MAX_BYTES;
	assert_int_equal(op_run(ops, 2), 1);
	free(text);
	plan_free(p);
	doc = op_fix_doc(CONNDOC_CDC);
	p = plan_of(&doc, op_fix_id);
	assert_true(make(p, SPAN_LIT("{\"op\":\"t\"}"), ops, &why));
	ops[1] = ops[0];
	assert_int_equal(op_run(ops, 2), 1);
	plan_free(p);
}

/* ---- bounds ---- */

static int64_t
cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Of the fastest of five. */
static int64_t
cost_us(const struct plan *p, struct span payload)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 5; i++) {
		int64_t from = cpu_us();
		struct span why;
		struct op o;

		if (!make(p, payload, &o, &why))
			fail_msg("%.*s", SPAN_ARG(why));
		from = cpu_us() - from;
		if (from < best)
			best = from;
	}
	return best;
}

static void
many_keys(struct buf *b, int n)
{
	buf_reset(b);
	buf_puts(b, "{\"id\":1");
	for (int i = 0; i < n; i++)
		buf_printf(b, ",\"\\u006b%d\":%d", i, i);
	buf_puts(b, ",\"n\":2}");
}

static void
many_keys_take_time_in_proportion(void **state)
{
	struct span params[200];
	struct conndoc_sink doc = op_fix_doc(CONNDOC_APPEND);
	struct plan *p = plan_of(&doc, NULL);
	struct arena own = ARENA_ZERO;
	struct buf b = BUF_ZERO;
	int64_t small, large;

	(void)state;
	many_keys(&b, 10000);
	small = cost_us(p, buf_span(&b));
	many_keys(&b, 100000);
	large = cost_us(p, buf_span(&b));
	assert_true(large < 40 * small + 1000);
	plan_free(p);

	doc = op_fix_doc(CONNDOC_SQL);
	doc.params = (struct conndoc_list){ params, OP_FIX_N(params) };
	for (size_t i = 0; i < OP_FIX_N(params); i++)
		params[i] = arena_printf(&own, "$.k%zu.a.b", i * 400);
	p = plan_of(&doc, NULL);
	assert_true(cost_us(p, buf_span(&b)) < 500000);
	plan_free(p);
	arena_fini(&own);
	buf_fini(&b);
}

/* A json column may nest as deep as the server's stack allows. */
static void
nesting_has_no_bound(void **state)
{
	struct conndoc_sink doc = op_fix_doc(CONNDOC_CDC);
	struct plan *p = plan_of(&doc, op_fix_id);
	struct buf b = BUF_ZERO;
	struct span why;
	struct op o;

	(void)state;
	buf_puts(&b, "{\"op\":\"c\",\"after\":{\"id\":1,\"n\":");
	for (int i = 0; i < 5000; i++)
		buf_puts(&b, "[\"\\\"]\",{\"a\":");
	buf_puts(&b, "1");
	for (int i = 0; i < 5000; i++)
		buf_puts(&b, "}]");
	buf_puts(&b, "},\"before\":null}");
	assert_true(make(p, buf_span(&b), &o, &why));
	assert_int_equal(o.params[0].n, b.len - 33);
	b.len -= 30;
	assert_false(make(p, buf_span(&b), &o, &why));
	assert_true(span_is(
		span_make(why.p, 32), "not readable: nested too deep at"));
	plan_free(p);
	buf_fini(&b);
}

static int
end(void **state)
{
	(void)state;
	arena_fini(&arena);
	buf_fini(&shown);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(payloads_name_columns),
		cmocka_unit_test(metadata_win_over_payloads),
		cmocka_unit_test(an_upsert_needs_its_key),
		cmocka_unit_test(events_are_repeated),
		cmocka_unit_test(paths_give_texts),
		cmocka_unit_test(statements_name_what_the_payload_names),
		cmocka_unit_test(
			neighbours_of_the_same_columns_are_one_statement),
		cmocka_unit_test(many_keys_take_time_in_proportion),
		cmocka_unit_test(nesting_has_no_bound),
	};

	return cmocka_run_group_tests(tests, NULL, end);
}
