/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real streams of PostgreSQL 15, 17 and 18: values, every message, a chunk
 * between watermarks.  Read by pg_logical_slot_get_binary_changes(), which
 * gives what a walsender would send.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "err.h"
#include "kinds.h"
#include "pgserver.h"
#include "pipeline.h"
#include "shape.h"
#include "wal.h"

static struct pgserver server;
static PGconn *pg;
static struct buf out;

static const struct span key[] = { { "id", 2 } };
static const struct shape_table tables[] = {
	{ .schema = { "public", 6 },
		.name = { "t", 1 },
		.label = { "public.t", 8 },
		.queue = { "q", 1 },
		.key = key,
		.key_n = 1 },
};
static const struct pipeline_conf conf = { .tables = tables,
	.tables_n = 1,
	.limits = { 1000, 4 << 20, 20 },
	.chunk_rows = 2000,
	.emit_truncate = true };
static struct pipeline p;

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
	run("alter system set wal_level = logical");
	PQfinish(pg);
	pgserver_stop(&server);
	pgserver_start(&server);
	pg = pgserver_connect(&server, "postgres");
	run("set timezone = 'UTC'; set datestyle = 'ISO'; "
	    "set intervalstyle = 'postgres'; set extra_float_digits = 3; "
	    "set bytea_output = 'hex'");
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
	if (!pg)
		return 0;
	PQfinish(pg);
	pg = NULL;
	pgserver_fini(&server);
	buf_fini(&out);
	return 0;
}

/* ---- the stream ---- */

static void
pipeline_start(const char *rest)
{
	struct err e = ERR_ZERO;
	struct pointer at;

	buf_reset(&out);
	buf_printf(&out,
		"{\"v\":1,\"epoch\":\"00000000\",\"systemId\":\"1\","
		"\"slot\":\"s\",\"lsn\":\"0/1\"%s}",
		rest);
	assert_int_equal(pointer_parse(buf_span(&out), &at, &e), 0);
	pipeline_init(&p, &conf, &at, 6);
	pointer_fini(&at);
}

static void
learn(uint32_t oid)
{
	struct types_row row = { .oid = oid };
	char sql[320];
	PGresult *r;

	snprintf(sql, sizeof(sql),
		"select typtype, typdelim, typbasetype, case when typlen = -1 "
		"and typsubscript = 'pg_catalog.array_subscript_handler'"
		"::pg_catalog.regproc then typelem else 0 end "
		"from pg_catalog.pg_type where oid = %u",
		oid);
	r = PQexec(pg, sql);
	if (PQntuples(r) == 1) {
		row.typtype = PQgetvalue(r, 0, 0)[0];
		row.delim = PQgetvalue(r, 0, 1)[0];
		row.base_oid = (uint32_t)strtoul(PQgetvalue(r, 0, 2), NULL, 10);
		row.elem_oid = (uint32_t)strtoul(PQgetvalue(r, 0, 3), NULL, 10);
	}
	PQclear(r);
	types_learn(&p.types, &row);
}

static PGresult *
changes(void)
{
	static const char sql[] =
		"select data from pg_logical_slot_get_binary_changes('s', "
		"null, null, 'proto_version', '1', 'publication_names', 'p', "
		"'messages', 'true')";
	PGresult *r = PQexecParams(pg, sql, 0, NULL, NULL, NULL, NULL, 1);

	if (PQresultStatus(r) != PGRES_TUPLES_OK)
		fail_msg("%s", PQerrorMessage(pg));
	return r;
}

static struct span
message(const PGresult *r, int i)
{
	return span_make(PQgetvalue(r, i, 0), (size_t)PQgetlength(r, i, 0));
}

static void
feed_all(PGresult *r)
{
	for (int i = 0; i < PQntuples(r); i++) {
		struct pipeline_ask ask;
		struct err e = ERR_ZERO;
		enum pipeline_result rc =
			pipeline_feed(&p, message(r, i), 0, &ask, &e);

		while (rc == PIPELINE_ASK_TYPE || rc == PIPELINE_ASK_ROW) {
			if (rc == PIPELINE_ASK_TYPE)
				learn(ask.type_oid);
			rc = pipeline_resume(&p, 0, &ask, &e);
		}
		if (rc != PIPELINE_OK)
			fail_msg("message %d: %s", i, e.text);
	}
}

/* ---- values ---- */

static void
make_value_table(void)
{
	buf_reset(&out);
	buf_puts(&out, kinds_preparation);
	buf_puts(&out, "create table t (id int primary key");
	for (int i = 0; i < KINDS_N; i++)
		buf_printf(&out, ", c%d %s", i, kinds[i].type);
	buf_puts(&out, "); create publication p for table t;");
	buf_putc(&out, '\0');
	run(out.p);
	run("select pg_create_logical_replication_slot('s', 'pgoutput')");
	buf_reset(&out);
	buf_puts(&out, "insert into t values (1");
	for (int i = 0; i < KINDS_N; i++)
		buf_printf(&out, ", %s", kinds[i].sql);
	buf_puts(&out, ")");
	buf_putc(&out, '\0');
	run(out.p);
}

/* Stream text is what the simple protocol prints; casts print other text. */
static void
compare_texts(PGresult *stream)
{
	PGresult *r = PQexec(pg, "select * from t");
	struct arena a = ARENA_ZERO;
	struct err e = ERR_ZERO;
	struct pgoutput m = { .kind = PGOUTPUT_OTHER };

	for (int i = 0; i < PQntuples(stream); i++) {
		if (pgoutput_parse(message(stream, i), &a, &m, &e) != 0)
			fail_msg("%s", e.text);
		if (m.kind == PGOUTPUT_INSERT)
			break;
	}
	assert_int_equal(m.kind, PGOUTPUT_INSERT);
	assert_int_equal(m.change.new.n, KINDS_N + 1);
	for (int i = 0; i < KINDS_N; i++) {
		const struct datum *d = &m.change.new.d[i + 1];
		char sql[64];
		bool cast_differs;

		if (PQgetisnull(r, 0, i + 1)) {
			assert_int_equal(d->state, DATUM_NULL);
			continue;
		}
		if (!span_is(d->text, PQgetvalue(r, 0, i + 1)))
			fail_msg("%s: '%.*s' and '%s'", kinds[i].type,
				SPAN_ARG(d->text), PQgetvalue(r, 0, i + 1));
		snprintf(sql, sizeof(sql), "select c%d::text from t", i);
		cast_differs = strcmp(kinds[i].type, "bool") == 0 ||
			       strcmp(kinds[i].type, "inet") == 0 ||
			       strcmp(kinds[i].type, "char(5)") == 0;
		if (span_is(d->text, pgserver_value(pg, sql)) == cast_differs)
			fail_msg("%s: cast", kinds[i].type);
	}
	PQclear(r);
	arena_fini(&a);
}

static void
compare_values(void)
{
	const struct unit *u = TAILQ_FIRST(&p.queue.list);
	struct message m;
	size_t head;

	assert_non_null(u);
	assert_int_equal(u->n, 1);
	m = unit_message(u, 0);
	buf_reset(&out);
	buf_puts(&out, "{\"op\":\"c\",\"table\":\"public.t\",\"key\":{\"id\":1"
		       "},\"after\":{\"id\":1");
	for (int i = 0; i < KINDS_N; i++) {
		head = out.len;
		buf_printf(&out, ",\"c%d\":%s", i, kinds[i].json);
		if (m.payload.n < out.len ||
			memcmp(m.payload.p + head, out.p + head,
				out.len - head) != 0)
			fail_msg("%s %s: '%.60s'", kinds[i].type, kinds[i].sql,
				m.payload.p + head);
	}
	buf_puts(&out, "},\"before\":null,\"lsn\":\"");
	assert_memory_equal(m.payload.p, out.p, out.len);
}

static void
values_of_a_real_server(void **state)
{
	PGresult *r;

	if (!pg) {
		print_message("build/pg is not there: tests/fetch-postgres\n");
		skip();
	}
	(void)state;
	make_value_table();
	r = changes();
	compare_texts(r);
	pipeline_start("");
	feed_all(r);
	compare_values();
	PQclear(r);
	pipeline_fini(&p);
}

/* ---- every message ---- */

/* `c:1 u:2`: op and key of each message of the units, a bar between units. */
static const char *
ops(void)
{
	const struct unit *u;

	buf_reset(&out);
	TAILQ_FOREACH (u, &p.queue.list, link) {
		for (size_t i = 0; i < u->n; i++) {
			struct message m = unit_message(u, i);

			buf_printf(&out, "%c:%.*s", m.payload.p[7],
				SPAN_ARG(m.partition));
			if (memmem(m.payload.p, m.payload.n,
				    "\"unchanged\":", 12))
				buf_putc(&out, '~');
			if (memmem(m.payload.p, m.payload.n,
				    "\"before\":{\"id\"", 14))
				buf_putc(&out, '-');
			buf_putc(&out, ' ');
		}
		buf_puts(&out, "| ");
	}
	buf_putc(&out, '\0');
	return out.p;
}

static void
messages_of_a_real_server(void **state)
{
	PGresult *r;

	(void)state;
	if (!pg) {
		print_message("build/pg is not there: tests/fetch-postgres\n");
		skip();
	}
	run("drop table if exists t");
	run("select pg_drop_replication_slot(slot_name) "
	    "from pg_replication_slots; drop publication if exists p");
	run("create table t (id int primary key, n int, body text); "
	    "alter table t alter body set storage external; "
	    "create table other (id int primary key); "
	    "create publication p for table t, other");
	run("select pg_create_logical_replication_slot('s', 'pgoutput')");
	run("begin; insert into t values (1, 1, repeat('x', 9000)), (2, 1, "
	    "'y'); update t set n = 2 where id = 1; "
	    "insert into other values (1); "
	    "update t set id = 3 where id = 2; delete from t where id = 3; "
	    "commit");
	/* the key moves, the value out of line does not come along */
	run("update t set id = 4 where id = 1");
	run("alter table t replica identity full");
	run("update t set n = 3");
	run("truncate t, other restart identity cascade");
	run("select pg_logical_emit_message(true, 'queen:00000000', 'hb'); "
	    "select pg_logical_emit_message(false, 'else', 'hb')");
	r = changes();
	pipeline_start("");
	feed_all(r);
	PQclear(r);
	assert_string_equal(ops(),
		"c:1 c:2 u:1~ d:2- c:3 d:3- | d:1- c:4~ | u:4- | t:all | | ");
	assert_true(p.transactions == 4);
	pipeline_fini(&p);
	run("drop table other");
}

/* ---- a chunk between watermarks ---- */

static void
mark(const char *kind, uint64_t n)
{
	char text[128];

	snprintf(text, sizeof(text),
		"select pg_logical_emit_message(false, 'queen:00000000', "
		"'%s:%llu')",
		kind, (unsigned long long)n);
	run(text);
}

static const struct shape *
chunk_shape(void)
{
	static size_t key_columns[] = { 0 };
	static struct shape_column columns[] = {
		{ .name = { "id", 2 }, .json_key = { "\"id\":", 5 } },
		{ .name = { "n", 1 }, .json_key = { "\"n\":", 4 } },
		{ .name = { "body", 4 }, .json_key = { "\"body\":", 7 } },
	};
	static const struct shape shape = { .table = tables,
		.columns = columns,
		.n = 3,
		.key = key_columns,
		.key_n = 1,
		.by = key_columns,
		.by_n = 1 };
	uint32_t ask;

	columns[0].type = columns[1].type = types_get(&p.types, 23, &ask);
	columns[2].type = types_get(&p.types, 25, &ask);
	return &shape;
}

static void
read_chunk(PGconn *link, struct span *seen, char *seen_text)
{
	PGresult *r = PQexec(link, "select * from t order by id");

	for (int i = 0; i < PQntuples(r); i++) {
		struct datum d[3];

		for (int k = 0; k < 3; k++)
			d[k] = (struct datum){ .state = DATUM_TEXT,
				.text = span_of(PQgetvalue(r, i, k)) };
		snapshot_row(&p.snapshot, &(struct tuple){ d, 3 });
	}
	PQclear(r);
	*seen = span_of(seen_text);
}

static void
a_chunk_of_a_real_server(void **state)
{
	char seen_text[256];
	struct pipeline_chunk c;
	struct err e = ERR_ZERO;
	struct span seen;
	PGconn *other;
	PGresult *r;
	uint64_t n;

	(void)state;
	if (!pg) {
		print_message("build/pg is not there: tests/fetch-postgres\n");
		skip();
	}
	other = pgserver_connect(&server, "postgres");
	run("alter table t replica identity default; insert into t "
	    "select i, 0, repeat('x', 9000) from generate_series(1, 6) i");
	PQclear(changes());
	pipeline_start(",\"snapshot\":{\"tables\":[\"public.t\"],\"table\":"
		       "\"public.t\",\"after\":null,\"rows\":0}");
	assert_true(pipeline_next_chunk(&p, &c));
	n = snapshot_ask(&p.snapshot, 0, chunk_shape(), c.limit_rows);
	/* open when the snapshot is taken, so that it is not seen */
	PQclear(PQexec(other, "begin; update t set n = 1 where id = 2"));
	mark("lw", n);
	run("begin isolation level repeatable read read only");
	snprintf(seen_text, sizeof(seen_text), "%s",
		pgserver_value(pg, "select pg_current_snapshot()::text"));
	PQclear(PQexec(other, "delete from t where id = 3; commit"));
	PQclear(PQexec(other, "update t set id = 9 where id = 4"));
	PQclear(PQexec(other, "update t set n = 5, body = 'z' where id = 5"));
	read_chunk(pg, &seen, seen_text);
	run("commit");
	assert_int_equal(snapshot_install(&p.snapshot, seen, 0, &e), 0);
	mark("hw", n);
	/* a mark alone is not flushed, and what is not is not sent */
	run("select pg_logical_emit_message(true, 'flush', '')");
	r = changes();
	feed_all(r);
	PQclear(r);
	/* 2 is filled, 3 and 4 are gone, 5 carried all, 9 was never read */
	assert_string_equal(
		ops(), "u:2~ d:3- | d:4- c:9~ | u:5 | r:1 u:2~ r:6 | | ");
	assert_false(p.tail.in_snapshot);
	pipeline_fini(&p);
	PQfinish(other);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_of_a_real_server),
		cmocka_unit_test(messages_of_a_real_server),
		cmocka_unit_test(a_chunk_of_a_real_server),
	};
	int failed = 0;

	failed += cmocka_run_group_tests_name(
		"distribution", tests, start_distribution, stop);
	failed += cmocka_run_group_tests_name("17", tests, start_17, stop);
	failed += cmocka_run_group_tests_name("18", tests, start_18, stop);
	return failed;
}
