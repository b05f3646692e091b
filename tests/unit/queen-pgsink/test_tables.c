/* SPDX-License-Identifier: Apache-2.0 */
/* What a sink does to tables of PostgreSQL 15, 17 and 18. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "kinds.h"
#include "op_fix.h"
#include "pgserver.h"

static struct pgserver server;
static PGconn *pg;
static struct arena arena;
static struct buf out;

static void
run(const char *sql)
{
	pgserver_run(pg, sql);
}

/* The distribution's server, or one of build/pg; false when it is absent. */
static bool
start_server(const char *version)
{
	if (!pgserver_choose(version))
		return false;
	pgserver_init(&server);
	pg = pgserver_connect(&server, "postgres");
	run("set timezone = 'UTC'; set datestyle = 'ISO'; "
	    "set intervalstyle = 'postgres'; set extra_float_digits = 3; "
	    "set bytea_output = 'hex'; set client_min_messages = warning");
	run(kinds_preparation);
	run("create domain must as int not null; "
	    "create domain even as int check (value % 2 = 0); "
	    "create domain doc as json");
	return true;
}

static int
start_distribution(void **state)
{
	(void)state;
	return start_server(NULL) ? 0 : -1;
}

static int
start_17(void **state)
{
	*state = start_server("17") ? &server : NULL;
	return 0;
}

static int
start_18(void **state)
{
	*state = start_server("18") ? &server : NULL;
	return 0;
}

static int
stop(void **state)
{
	(void)state;
	arena_fini(&arena);
	buf_fini(&out);
	if (!pg)
		return 0;
	PQfinish(pg);
	pg = NULL;
	pgserver_fini(&server);
	return 0;
}

static bool
is_absent(void)
{
	if (!pg)
		print_message("build/pg is not there: tests/fetch-postgres\n");
	return !pg;
}

/* ---- plans of tables that are there ---- */

static struct span
value(const PGresult *r, int row, int column)
{
	return span_make(PQgetvalue(r, row, column),
		(size_t)PQgetlength(r, row, column));
}

/* Of table t, with its primary key. */
static struct plan *
plan_of(const struct conndoc_sink *doc)
{
	PGresult *r = PQexec(pg,
		"select attname, pg_catalog.format_type(atttypid, atttypmod), "
		"attgenerated <> '', attidentity = 'a' from "
		"pg_catalog.pg_attribute where attrelid = 't'::regclass and "
		"attnum > 0 and not attisdropped order by attnum");
	PGresult *k = PQexec(pg,
		"select attname from pg_catalog.pg_index i join "
		"pg_catalog.pg_attribute a on attrelid = indrelid and attnum = "
		"any (indkey) where indisprimary and indrelid = 't'::regclass "
		"order by array_position(indkey::int2[], attnum)");
	struct plan_column *columns =
		calloc((size_t)PQntuples(r), sizeof(*columns));
	struct span *key = calloc((size_t)PQntuples(k) + 1, sizeof(*key));
	struct plan_facts facts = { .oid = 1,
		.columns = columns,
		.columns_n = (size_t)PQntuples(r),
		.key = key,
		.key_n = (size_t)PQntuples(k) };
	struct connfault f = { .code = NULL };
	struct plan *p;

	for (int i = 0; i < PQntuples(r); i++)
		columns[i] = (struct plan_column){ .name = value(r, i, 0),
			.type = value(r, i, 1),
			.generated = *PQgetvalue(r, i, 2) == 't',
			.identity_always = *PQgetvalue(r, i, 3) == 't' };
	for (int i = 0; i < PQntuples(k); i++)
		key[i] = value(k, i, 0);
	if (plan_make(doc, &facts, &p, &f) != 0)
		fail_msg("%s: %s", f.code, f.text);
	free(columns);
	free(key);
	PQclear(r);
	PQclear(k);
	return p;
}

static struct conndoc_sink
doc_of(enum conndoc_mode mode)
{
	struct conndoc_sink doc = op_fix_doc(mode);

	doc.table = (struct conndoc_name){ SPAN_LIT("public.t"),
		SPAN_LIT("public"), SPAN_LIT("t") };
	return doc;
}

/* ---- operations carried out ---- */

enum { PARAMS_MAX = 8 };

/* All parameters are text, with their length beside them. */
static PGresult *
exec_params(const char *sql, const struct span *params, size_t n)
{
	const char *values[PARAMS_MAX];
	int lengths[PARAMS_MAX], formats[PARAMS_MAX];
	Oid types[PARAMS_MAX];

	for (size_t i = 0; i < n; i++) {
		values[i] = params[i].p;
		lengths[i] = (int)params[i].n;
		formats[i] = 1;
		types[i] = 25;
	}
	return PQexecParams(
		pg, sql, (int)n, types, values, lengths, formats, 0);
}

static char state_text[6];

/* Rows touched; -1 and state_text when it failed. */
static int
execute(const struct plan *p, const struct op *o, const struct span *params)
{
	struct buf sql = BUF_ZERO;
	PGresult *r;
	int rows = -1;

	op_sql(p, o, &sql);
	buf_putc(&sql, '\0');
	r = exec_params(sql.p, params, o->params_n);
	state_text[0] = '\0';
	if (PQresultStatus(r) == PGRES_COMMAND_OK ||
		PQresultStatus(r) == PGRES_TUPLES_OK)
		rows = (int)strtol(PQcmdTuples(r), NULL, 10);
	else
		snprintf(state_text, sizeof(state_text), "%s",
			PQresultErrorField(r, PG_DIAG_SQLSTATE));
	PQclear(r);
	buf_fini(&sql);
	return rows;
}

static const char *
apply_span(const struct plan *p, struct span payload)
{
	struct feed_message m = op_fix_message(payload);
	struct buf rows = BUF_ZERO;
	struct span why, joined;
	struct op o;

	arena_reset(&arena);
	if (!op_of(p, &op_fix_part, &m, &arena, &o, &why))
		fail_msg("%.*s: %.*s", SPAN_ARG(payload), SPAN_ARG(why));
	if (o.kind == OP_INSERT) {
		op_join(&o, 1, &rows);
		joined = buf_span(&rows);
		execute(p, &o, &joined);
	} else if (execute(p, &o, o.params) == 0 && o.otherwise) {
		execute(p, o.otherwise, o.otherwise->params);
	}
	buf_fini(&rows);
	return state_text;
}

/* The SQLSTATE, "" when it was applied. */
static const char *
apply(const struct plan *p, const char *payload)
{
	return apply_span(p, span_of(payload));
}

static void
good(const struct plan *p, const char *payload)
{
	if (*apply(p, payload))
		fail_msg("%s: %s", payload, state_text);
}

static void
expect(const char *sql, const char *text)
{
	const char *is = pgserver_value(pg, sql);

	if (strcmp(is, text) != 0)
		fail_msg("%s:\n%s\n%s", sql, is, text);
}

static void
table(const char *columns)
{
	run("drop table if exists t");
	buf_reset(&out);
	buf_printf(&out, "create table t (%s)%c", columns, '\0');
	run(out.p);
}

/* ---- values ---- */

static void
make_kinds_table(void)
{
	struct buf b = BUF_ZERO;

	buf_puts(&b, "id int primary key");
	for (int i = 0; i < KINDS_N; i++)
		buf_printf(&b, ", c%d %s", i, kinds[i].type);
	buf_putc(&b, '\0');
	table(b.p);
	buf_fini(&b);
}

static bool
has_back(const struct kind *k)
{
	return !k->back || k->back[0] != '!';
}

static void
compare_kind(int i)
{
	const struct kind *k = &kinds[i];
	struct buf sql = BUF_ZERO;
	PGresult *r;

	buf_printf(&sql, "select c%d, (%s)::%s from t%c", i,
		k->back ? k->back : k->sql, k->type, '\0');
	r = PQexec(pg, sql.p);
	if (PQntuples(r) != 1)
		fail_msg("%s: %s", sql.p, PQerrorMessage(pg));
	if (PQgetisnull(r, 0, 0) != PQgetisnull(r, 0, 1) ||
		strcmp(PQgetvalue(r, 0, 0), PQgetvalue(r, 0, 1)) != 0)
		fail_msg("%s: %s and %s", sql.p, PQgetvalue(r, 0, 0),
			PQgetvalue(r, 0, 1));
	PQclear(r);
	buf_fini(&sql);
}

static void
every_kind_comes_back(void **state)
{
	struct conndoc_sink doc = doc_of(CONNDOC_CDC);
	struct buf b = BUF_ZERO;
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	make_kinds_table();
	p = plan_of(&doc);
	buf_puts(&b, "{\"op\":\"c\",\"after\":{\"id\":1");
	for (int i = 0; i < KINDS_N; i++)
		if (has_back(&kinds[i]))
			buf_printf(&b, ",\"c%d\":%s", i, kinds[i].json);
	buf_printf(&b, "}}%c", '\0');
	good(p, b.p);
	for (int i = 0; i < KINDS_N; i++) {
		if (has_back(&kinds[i])) {
			compare_kind(i);
			continue;
		}
		buf_reset(&b);
		buf_printf(&b,
			"{\"op\":\"c\",\"after\":{\"id\":1,\"c%d\":%s}}%c", i,
			kinds[i].json, '\0');
		assert_string_equal(apply(p, b.p), kinds[i].back + 1);
	}
	plan_free(p);
	buf_fini(&b);
}

static void
values_are_converted_by_the_server(void **state)
{
	static const struct {
		const char *type, *json, *text; /* `!` and SQLSTATE */
	} rows[] = {
		{ "numeric", "\"12.50\"", "12.50" },
		{ "numeric(4,1)", "12.34", "12.3" },
		{ "numeric", "\"Infinity\"", "Infinity" },
		{ "numeric", "1e-3", "0.001" },
		{ "int", "\" 7 \"", "7" },
		{ "int", "7.0", "!22P02" },
		{ "int", "true", "!22P02" },
		{ "bool", "\"yes\"", "t" },
		{ "text", "{\"a\" :1, \"a\":2}", "{\"a\" :1, \"a\":2}" },
		{ "text", "1.50", "1.50" },
		{ "text", "false", "false" },
		{ "text", "\"\\ud83d\\ude00\\/\"", "\xf0\x9f\x98\x80/" },
		{ "text", "\"\\u0000\"", "!22P05" },
		{ "text", "[\"\\u0000\"]", "!22P05" },
		{ "text", "\"\\ud800\"", "!22P02" },
		{ "json", "{\"a\":\"\\u0000\\ud800\" , \"a\": 1}",
			"{\"a\":\"\\u0000\\ud800\" , \"a\": 1}" },
		{ "json", "\"\\u0041\"", "\"\\u0041\"" },
		{ "doc", "{ \"a\" : 1}", "{ \"a\" : 1}" },
		{ "jsonb", "{\"a\":\"\\u0000\"}", "!22P05" },
		{ "jsonb", "[-0, 1.10]", "[0, 1.10]" },
		{ "varchar(3)", "\"abc \"", "abc" },
		{ "varchar(3)", "\"abcd\"", "!22001" },
		{ "char(3)", "\"a\"", "a  " },
		{ "bit(4)", "\"01\"", "!22026" },
		{ "bytea", "\"\\\\x0\"", "!22023" },
		{ "int[]", "[[1,2],[3,null]]", "{{1,2},{3,NULL}}" },
		{ "int[]", "\"[5:6]={1,2}\"", "[5:6]={1,2}" },
		{ "int[]", "[1,[2]]", "!22P02" },
		{ "int[]", "1", "!22P02" },
		{ "text[]", "[{\"a\": 1},\"b\"]", "{\"{\\\"a\\\": 1}\",b}" },
		{ "pair", "{\"b\":\"x\",\"c\":3}", "(,x)" },
		{ "pair", "\"(1,x)\"", "(1,x)" },
		{ "pair[]", "[{\"a\":1},null]", "{\"(1,)\",NULL}" },
		{ "mood", "\"glad\"", "!22P02" },
		{ "price", "1.555", "1.56" },
		{ "must", "null", "!23502" },
		{ "even", "3", "!23514" },
		{ "date", "\"2026-02-30\"", "!22008" },
		{ "date", "\"soon\"", "!22007" },
		{ "timestamptz", "\"2026-10-02T10:00:00.000001Z\"",
			"2026-10-02 10:00:00.000001+00" },
		{ "interval day to second(1)", "\"1 day 00:00:01.26\"",
			"1 day 00:00:01.3" },
		{ "xid8", "18446744073709551615", "18446744073709551615" },
	};
	struct conndoc_sink doc = doc_of(CONNDOC_APPEND);

	(void)state;
	if (is_absent())
		skip();
	for (size_t i = 0; i < OP_FIX_N(rows); i++) {
		struct buf b = BUF_ZERO;
		struct plan *p;
		const char *is;

		buf_printf(&b, "v %s%c", rows[i].type, '\0');
		table(b.p);
		p = plan_of(&doc);
		buf_reset(&b);
		buf_printf(&b, "{\"v\":%s}%c", rows[i].json, '\0');
		is = *apply(p, b.p) ? state_text
				    : pgserver_value(pg, "select v from t");
		if (strcmp(is, rows[i].text + (rows[i].text[0] == '!')) != 0)
			fail_msg("%s %s: %s", rows[i].type, b.p, is);
		plan_free(p);
		buf_fini(&b);
	}
}

static void
four_hundred_digits_stay(void **state)
{
	struct conndoc_sink doc = doc_of(CONNDOC_APPEND);
	struct buf b = BUF_ZERO;
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	table("v numeric, d double precision");
	p = plan_of(&doc);
	buf_puts(&b, "{\"v\":-");
	for (int i = 0; i < 40; i++)
		buf_puts(&b, "1234567890");
	buf_printf(&b, ".50,\"d\":-0.0}%c", '\0');
	good(p, b.p);
	expect("select v = -(repeat('1234567890', 40) || '.50')::numeric and "
	       "scale(v) = 2 and d::text = '-0' from t",
		"t");
	plan_free(p);
	buf_fini(&b);
}

/* ---- append ---- */

static void
append_fills_columns_and_metadata(void **state)
{
	static const char *const payloads[] = {
		"{\"id\":1,\"n\":123456789012345678901234567890.10,"
		"\"g\":9,\"Odd \\\"q\\\"\":\"o\",\"other\":\"\\u0000\"}",
		"{\"id\":2,\"i\":50,\"d\":null,\"po\":8}",
		"[\"x\", 1]",
		" {\"none\":1} ",
	};
	struct conndoc_sink doc = doc_of(CONNDOC_APPEND);
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	table("id int, gone int, n numeric, d text default 'x', "
	      "\"Odd \"\"q\"\"\" text, g int generated always as (id * 2) "
	      "stored, i bigint generated always as identity, po bigint, "
	      "pid text, part text, tx text, at timestamptz, raw text, "
	      "v must");
	run("alter table t drop column gone");
	doc.metadata[CONNDOC_META_OFFSET] = SPAN_LIT("po");
	doc.metadata[CONNDOC_META_PARTITION_ID] = SPAN_LIT("pid");
	doc.metadata[CONNDOC_META_PARTITION] = SPAN_LIT("part");
	doc.metadata[CONNDOC_META_TXN] = SPAN_LIT("tx");
	doc.metadata[CONNDOC_META_CREATED_AT] = SPAN_LIT("at");
	doc.metadata[CONNDOC_META_PAYLOAD] = SPAN_LIT("raw");
	p = plan_of(&doc);
	/* the domain that must not be null is absent: its column is null */
	assert_string_equal(apply(p, payloads[0]), "23502");
	run("alter table t alter v set default 5");
	for (size_t i = 0; i < OP_FIX_N(payloads); i++)
		good(p, payloads[i]);
	expect("select string_agg(concat_ws(',', id, n, d, \"Odd \"\"q\"\"\", "
	       "g, i, v), ' ' order by ctid) from t",
		"1,123456789012345678901234567890.10,x,o,2,2,5 2,4,50,5 "
		"x,3,5 x,4,5");
	expect("select string_agg(concat_ws(',', po, pid, part, tx, at), ' ') "
	       "from (select distinct po, pid, part, tx, at from t) t",
		"7,42,p\"1,t-1,2026-10-02 10:00:00.000001+00");
	expect("select string_agg(raw, '|' order by ctid) from t",
		"{\"id\":1,\"n\":123456789012345678901234567890.10,"
		"\"g\":9,\"Odd \\\"q\\\"\":\"o\",\"other\":\"\\u0000\"}|"
		"{\"id\":2,\"i\":50,\"d\":null,\"po\":8}|[\"x\", 1]| "
		"{\"none\":1} ");
	plan_free(p);
}

static void
a_run_is_appended_in_order(void **state)
{
	struct conndoc_sink doc = doc_of(CONNDOC_APPEND);
	struct op ops[1000];
	struct buf rows = BUF_ZERO;
	struct span why, joined;
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	table("id int, s serial");
	p = plan_of(&doc);
	arena_reset(&arena);
	for (int i = 0; i < 1000; i++) {
		struct feed_message m = op_fix_message(
			arena_printf(&arena, "{\"id\":%d}", (i * 7919) % 1000));

		assert_true(op_of(p, &op_fix_part, &m, &arena, &ops[i], &why));
	}
	assert_int_equal(op_run(ops, 1000), 1000);
	op_join(ops, 1000, &rows);
	joined = buf_span(&rows);
	assert_int_equal(execute(p, ops, &joined), 1000);
	expect("select count(*) filter (where id = (s - 1) * 7919 % 1000) "
	       "from t",
		"1000");
	plan_free(p);
	buf_fini(&rows);
}

/* ---- upsert ---- */

static void
upserts_touch_what_is_named(void **state)
{
	struct conndoc_sink doc = doc_of(CONNDOC_UPSERT);
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	table("b text collate \"C\", a int generated always as identity, "
	      "x int default 1, y int, i int generated always as identity, "
	      "g int generated always as (a * 2) stored, v must default 3, "
	      "primary key (a, b)");
	run("alter table t alter a drop identity; "
	    "alter table t alter a add generated by default as identity");
	p = plan_of(&doc);
	assert_int_equal(p->key[0], 1);
	good(p, "{\"a\":1,\"b\":\"k\",\"y\":2}");
	good(p, "{\"a\":1,\"b\":\"k\",\"x\":5,\"i\":77,\"g\":9}");
	good(p, "{\"a\":1,\"b\":\"k\"}");
	good(p, "{\"a\":1,\"b\":\"k\",\"y\":null,\"v\":4}");
	good(p, "{\"a\":2,\"b\":\"k\",\"i\":88}");
	expect("select string_agg(concat_ws(',', a, b, x, coalesce(y, -1), i, "
	       "g, v), ' ' order by a) from t",
		"1,k,5,-1,1,2,4 2,k,1,-1,88,4,3");
	assert_string_equal(apply(p, "{\"a\":null,\"b\":\"k\"}"), "23502");
	plan_free(p);
}

static const char *
probe(const struct plan *p)
{
	PGresult *r;

	buf_reset(&out);
	op_sql_probe(p, &out);
	buf_putc(&out, '\0');
	r = PQexec(pg, out.p);
	snprintf(state_text, sizeof(state_text), "%s",
		PQresultStatus(r) == PGRES_TUPLES_OK
			? ""
			: PQresultErrorField(r, PG_DIAG_SQLSTATE));
	PQclear(r);
	return state_text;
}

static void
a_probe_tells_of_the_index(void **state)
{
	static const struct {
		const char *index, *state;
	} rows[] = {
		{ "create index on t (a, b)", "42P10" },
		{ "create unique index on t (a)", "42P10" },
		{ "create unique index on t (a, b, c)", "42P10" },
		{ "create unique index on t (a, b) where c = 1", "42P10" },
		{ "create unique index on t (b, a)", "" },
	};
	struct span key[] = { SPAN_LIT("a"), SPAN_LIT("b") };
	struct conndoc_sink doc = doc_of(CONNDOC_CDC);
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	doc.key = (struct conndoc_list){ key, 2 };
	table("a must, b int generated always as identity, c int");
	p = plan_of(&doc);
	for (size_t i = 0; i < OP_FIX_N(rows); i++) {
		run(rows[i].index);
		assert_string_equal(probe(p), rows[i].state);
	}
	expect("select count(*) from t", "0");
	plan_free(p);
}

/* ---- cdc ---- */

static void
events_repeat_the_changes(void **state)
{
	struct conndoc_sink doc = doc_of(CONNDOC_CDC);
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	table("id int primary key, n int, body text, own text default 'own', "
	      "j json, g int generated always as (n + 1) stored, "
	      "i int generated always as identity");
	p = plan_of(&doc);
	good(p, "{\"op\":\"r\",\"key\":{\"id\":1},\"after\":{\"id\":1,\"n\":1,"
		"\"body\":\"b\",\"j\":{\"a\": 1,\"a\":2}}}");
	good(p, "{\"op\":\"c\",\"after\":{\"id\":1,\"n\":2}}");
	run("update t set own = 'kept'");
	good(p, "{\"op\":\"u\",\"key\":{\"id\":1},\"after\":{\"id\":1,\"n\":3,"
		"\"body\":\"no\",\"i\":9},\"unchanged\":[\"body\"]}");
	expect("select t::text from t",
		"(1,3,b,kept,\"{\"\"a\"\": 1,\"\"a\"\":2}\",4,1)");
	/* a move keeps what the event does not carry */
	good(p, "{\"op\":\"u\",\"key\":{\"id\":5},\"after\":{\"id\":5,\"n\":4,"
		"\"i\":9},\"before\":{\"id\":1},\"unchanged\":[\"body\"]}");
	expect("select t::text from t",
		"(5,4,b,kept,\"{\"\"a\"\": 1,\"\"a\"\":2}\",5,1)");
	/* onto itself */
	good(p, "{\"op\":\"u\",\"after\":{\"id\":5,\"n\":5},\"before\":"
		"{\"id\":\"5\"}}");
	expect("select t::text from t",
		"(5,5,b,kept,\"{\"\"a\"\": 1,\"\"a\"\":2}\",6,1)");
	plan_free(p);
}

static void
moves_and_deletes_of_rows_that_are_not_there(void **state)
{
	struct conndoc_sink doc = doc_of(CONNDOC_CDC);
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	table("k numeric primary key, n int unique");
	p = plan_of(&doc);
	good(p, "{\"op\":\"u\",\"after\":{\"k\":2,\"n\":1},\"before\":"
		"{\"k\":1}}");
	good(p, "{\"op\":\"u\",\"after\":{\"k\":2.0,\"n\":3},\"before\":"
		"{\"k\":2}}");
	good(p, "{\"op\":\"d\",\"key\":{\"k\":7}}");
	expect("select string_agg(t::text, ' ') from t", "(2.0,3)");
	good(p, "{\"op\":\"c\",\"after\":{\"k\":4,\"n\":4}}");
	assert_string_equal(apply(p, "{\"op\":\"u\",\"after\":{\"k\":4},"
				     "\"before\":{\"k\":2}}"),
		"23505");
	assert_string_equal(
		apply(p, "{\"op\":\"u\",\"after\":{\"k\":2,\"n\":4}}"),
		"23505");
	good(p, "{\"op\":\"d\",\"key\":{\"k\":2},\"before\":{\"k\":2}}");
	expect("select string_agg(t::text, ' ') from t", "(4,4)");
	good(p, "{\"op\":\"t\"}");
	expect("select count(*) from t", "0");
	good(p, "{\"op\":\"r\",\"after\":{\"k\":1}}");
	expect("select string_agg(t::text, ' ') from t", "(1,)");
	plan_free(p);
}

static void
an_identity_key_moves_by_delete_and_insert(void **state)
{
	struct conndoc_sink doc = doc_of(CONNDOC_CDC);
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	table("id int generated always as identity primary key, u int unique, "
	      "j json, own text default 'own', "
	      "g int generated always as (u + 1) stored, "
	      "i int generated always as identity");
	p = plan_of(&doc);
	good(p, "{\"op\":\"c\",\"after\":{\"id\":1,\"u\":1,\"j\":[ 1],"
		"\"i\":40}}");
	run("update t set own = 'kept'");
	good(p, "{\"op\":\"u\",\"after\":{\"id\":1,\"u\":2,\"i\":50}}");
	expect("select t::text from t", "(1,2,\"[ 1]\",kept,3,40)");
	good(p, "{\"op\":\"u\",\"after\":{\"id\":7,\"j\":[ 2]},\"unchanged\":"
		"[\"u\"],\"before\":{\"id\":1}}");
	expect("select t::text from t", "(7,2,\"[ 2]\",kept,3,40)");
	good(p, "{\"op\":\"u\",\"after\":{\"id\":\"7\",\"u\":3},"
		"\"before\":{\"id\":7}}");
	expect("select t::text from t", "(7,3,\"[ 2]\",kept,4,40)");
	plan_free(p);
}

static void
keys_of_any_comparison(void **state)
{
	struct conndoc_sink doc = doc_of(CONNDOC_CDC);
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	run("create collation if not exists ci (provider = icu, "
	    "locale = 'und-u-ks-level2', deterministic = false)");
	table("a text collate ci, b char(4) collate \"C\", c bytea, "
	      "d timestamptz, e mood, f int4range, primary key (a, b, c, d, "
	      "e, f)");
	p = plan_of(&doc);
#define KEY(a)                                                                 \
	"{\"a\":\"" a "\",\"b\":\"x   \",\"c\":\"\\\\x00\",\"d\":"             \
	"\"infinity\",\"e\":\"ok\",\"f\":\"[1,3)\"}"
	good(p, "{\"op\":\"c\",\"after\":" KEY("k") "}");
	good(p, "{\"op\":\"c\",\"after\":" KEY("K") "}");
	expect("select count(*) || min(a) from t", "1k");
	good(p, "{\"op\":\"u\",\"after\":" KEY("l") ",\"before\":" KEY(
			"K") "}");
	expect("select string_agg(a, ' ') from t", "l");
	good(p, "{\"op\":\"d\",\"key\":" KEY("L") "}");
	expect("select count(*) from t", "0");
	plan_free(p);
}

/* ---- sql ---- */

static void
statements_get_texts(void **state)
{
	struct span params[] = { SPAN_LIT("$.id"), SPAN_LIT("$.by"),
		SPAN_LIT("@offset") };
	struct conndoc_sink doc = doc_of(CONNDOC_SQL);
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	table("id int primary key, n numeric, o bigint");
	doc.statement = SPAN_LIT("insert into t values ($1::int, "
				 "coalesce($2::numeric, 0), $3::bigint) on "
				 "conflict (id) do update set n = t.n + "
				 "excluded.n, o = excluded.o");
	doc.params = (struct conndoc_list){ params, 3 };
	p = plan_of(&doc);
	good(p, "{\"id\":1,\"by\":0.10}");
	good(p, "{\"id\":1,\"by\":\"0.20\"}");
	good(p, "{\"id\":\"1\",\"by\":null}");
	expect("select t::text from t", "(1,0.30,7)");
	assert_string_equal(apply(p, "{\"id\":\"\\u0000\"}"), "22021");
	assert_string_equal(apply(p, "{\"id\":\"\"}"), "22P02");
	assert_string_equal(apply(p, "{\"by\":1}"), "23502");
	plan_free(p);
}

/* ---- bounds ---- */

static void
a_table_as_wide_as_they_get(void **state)
{
	struct conndoc_sink doc = doc_of(CONNDOC_CDC);
	struct buf b = BUF_ZERO;
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	buf_puts(&b, "id int primary key");
	for (int i = 1; i < 1600; i++)
		buf_printf(&b, ", \"C %d\" %s", i, i % 2 ? "int" : "bool");
	buf_putc(&b, '\0');
	table(b.p);
	run("alter table t drop column \"C 10\", drop column \"C 1599\"");
	p = plan_of(&doc);
	assert_int_equal(p->columns_n, 1598);
	buf_reset(&b);
	buf_puts(&b, "{\"op\":\"u\",\"before\":{\"id\":2},\"after\":{\"id\":1");
	for (int i = 1; i < 1600; i++)
		buf_printf(&b, ",\"C %d\":%s", i, i % 2 ? "7" : "true");
	buf_printf(&b, "}}%c", '\0');
	good(p, b.p);
	good(p, b.p);
	good(p, "{\"op\":\"u\",\"before\":{\"id\":1},\"after\":{\"id\":2,"
		"\"C 1598\":false}}");
	expect("select concat_ws(',', id, \"C 9\", \"C 1597\", \"C 1598\") "
	       "from t",
		"2,7,7,f");
	plan_free(p);
	buf_fini(&b);
}

static void
deep_json_arrives(void **state)
{
	struct conndoc_sink doc = doc_of(CONNDOC_CDC);
	struct buf b = BUF_ZERO;
	struct plan *p;

	(void)state;
	if (is_absent())
		skip();
	table("id int primary key, j json, b jsonb");
	p = plan_of(&doc);
	for (int i = 0; i < 2; i++) {
		int depth = i ? 1000000 : 2000;

		buf_reset(&b);
		buf_printf(&b, "{\"op\":\"c\",\"after\":{\"id\":1,\"%c\":",
			i ? 'j' : 'b');
		for (int k = 0; k < depth; k++)
			buf_putc(&b, '[');
		for (int k = 0; k < depth; k++)
			buf_putc(&b, ']');
		buf_puts(&b, "}}");
		assert_string_equal(
			apply_span(p, buf_span(&b)), i ? "54001" : "");
	}
	expect("select length(b::text) from t", "4000");
	plan_free(p);
	buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_comes_back),
		cmocka_unit_test(values_are_converted_by_the_server),
		cmocka_unit_test(four_hundred_digits_stay),
		cmocka_unit_test(append_fills_columns_and_metadata),
		cmocka_unit_test(a_run_is_appended_in_order),
		cmocka_unit_test(upserts_touch_what_is_named),
		cmocka_unit_test(a_probe_tells_of_the_index),
		cmocka_unit_test(events_repeat_the_changes),
		cmocka_unit_test(moves_and_deletes_of_rows_that_are_not_there),
		cmocka_unit_test(an_identity_key_moves_by_delete_and_insert),
		cmocka_unit_test(keys_of_any_comparison),
		cmocka_unit_test(statements_get_texts),
		cmocka_unit_test(a_table_as_wide_as_they_get),
		cmocka_unit_test(deep_json_arrives),
	};
	int failed = 0;

	failed += cmocka_run_group_tests_name(
		"distribution", tests, start_distribution, stop);
	failed += cmocka_run_group_tests_name("17", tests, start_17, stop);
	failed += cmocka_run_group_tests_name("18", tests, start_18, stop);
	return failed;
}
