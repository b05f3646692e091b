/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogues of PostgreSQL 15, 17 and 18, and what is decided of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "catalog.h"
#include "conndoc.h"
#include "connfault.h"
#include "pgserver.h"
#include "wal.h"

static struct pgserver server;
static PGconn *pg;
static int version;
static struct arena arena;
static struct buf sql;
static struct connfault f;

/* ---- the server ---- */

static void
run(const char *text)
{
	pgserver_run(pg, text);
}

/* The distribution's server, or one of build/pg. */
static int
start(const char *of)
{
	if (!pgserver_choose(of))
		return -1;
	pgserver_init(&server);
	pg = pgserver_connect(&server, "postgres");
	run("alter system set wal_level = logical");
	PQfinish(pg);
	pgserver_stop(&server);
	pgserver_start(&server);
	pg = pgserver_connect(&server, "postgres");
	run("set client_min_messages = error; set search_path = pg_catalog");
	version = PQserverVersion(pg);
	return 0;
}

static int
start_distribution(void **state)
{
	(void)state;
	return start(NULL);
}

static int
start_17(void **state)
{
	(void)state;
	return start("17");
}

static int
start_18(void **state)
{
	(void)state;
	return start("18");
}

static int
stop(void **state)
{
	(void)state;
	PQfinish(pg);
	pgserver_fini(&server);
	arena_fini(&arena);
	buf_fini(&sql);
	return 0;
}

/* ---- asking ---- */

static PGresult *res[8];
static int res_n;

static void
ask_on(PGconn *c)
{
	PGresult *r;

	while (res_n > 0)
		PQclear(res[--res_n]);
	buf_putc(&sql, '\0');
	assert_int_equal(PQsendQuery(c, sql.p), 1);
	while ((r = PQgetResult(c)) != NULL) {
		if (PQresultStatus(r) == PGRES_FATAL_ERROR)
			fail_msg("%s: %s", PQresultErrorMessage(r), sql.p);
		res[res_n++] = r;
	}
	buf_reset(&sql);
}

static void
forget(void)
{
	while (res_n > 0)
		PQclear(res[--res_n]);
}

/* ---- tables ---- */

static struct conndoc_table want[8];
static struct conndoc_source source;
static struct decide_table *t;
static struct decide_publication pub;
static const struct span pub_name = { "pub", 3 };

/* Tables of schema `s`, or as `schema.name`. */
static void
look_at(const char *const *names)
{
	size_t n = 0;

	memset(want, 0, sizeof(want));
	for (; names[n]; n++) {
		const char *dot = strchr(names[n], '.');

		want[n].table.text = span_of(names[n]);
		want[n].table.schema =
			dot ? span_make(names[n], (size_t)(dot - names[n]))
			    : SPAN_LIT("s");
		want[n].table.name = span_of(dot ? dot + 1 : names[n]);
	}
	source = (struct conndoc_source){
		.tables = want, .tables_n = n, .manage_publication = true
	};
	buf_reset(&sql);
	catalog_tables_sql(&sql, &source, pub_name);
	ask_on(pg);
	if (catalog_tables(
		    res, res_n, &source, pub_name, &arena, &t, &pub, &f) != 0)
		fail_msg("%s", f.text);
	forget();
}

static void
look(const char *name)
{
	look_at((const char *const[]){ name, NULL });
}

/* `id integer*1 +, body text -`: type, place in the key, generated, - hidden */
static const char *
columns(void)
{
	static struct buf b;

	buf_reset(&b);
	for (size_t i = 0; i < t[0].columns_n; i++) {
		const struct decide_column *c = &t[0].columns[i];

		buf_printf(&b, "%s%.*s %.*s", i ? ", " : "", SPAN_ARG(c->name),
			SPAN_ARG(c->type));
		if (c->key_pos)
			buf_printf(&b, "*%zu", c->key_pos);
		buf_puts(&b, c->generated ? " generated" : "");
		buf_puts(&b, c->published ? " +" : "");
	}
	buf_putc(&b, '\0');
	return b.p;
}

static void
refused(const char *name, const char *code, const char *words)
{
	look(name);
	assert_int_equal(decide_table(&want[0], &t[0], &f), -1);
	assert_string_equal(f.code, code);
	if (!strstr(f.text, words))
		fail_msg("%s", f.text);
}

static void
usable(const char *name)
{
	look(name);
	if (decide_table(&want[0], &t[0], &f) != 0)
		fail_msg("%s: %s", name, f.text);
}

static void
lacks(const char *grants)
{
	look_at((const char *const[]){ "one", "two", "shut.three", NULL });
	if (!grants) {
		assert_int_equal(
			decide_readable(&source, t, SPAN_LIT("Re"), &f), 0);
		return;
	}
	assert_int_equal(decide_readable(&source, t, SPAN_LIT("Re"), &f), -1);
	assert_string_equal(f.code, "postgres");
	assert_false(f.retryable);
	assert_string_equal(f.text, grants);
}

static void
a_role_that_may_not_read_is_told_its_grants(void **state)
{
	(void)state;
	run("create schema s; create schema shut; create role \"Re\"; "
	    "grant usage on schema s to \"Re\"; create table s.one (id int "
	    "primary key, n int); create table s.two (id int primary key, n "
	    "int, hidden int); create table shut.three (id int primary key); "
	    "grant select on s.one to \"Re\"; grant select (id, n) on s.two "
	    "to \"Re\"; set role \"Re\"");
	lacks("42501: the role may not read two, which is copied; run: GRANT "
	      "SELECT ON \"s\".\"two\" TO \"Re\"; GRANT USAGE ON SCHEMA "
	      "\"shut\" TO \"Re\"; GRANT SELECT ON \"shut\".\"three\" TO "
	      "\"Re\"");
	run("reset role; grant select on s.two to \"Re\"; grant select on "
	    "shut.three to \"Re\"; set role \"Re\"");
	lacks("42501: the role may not read shut.three, which is copied; run: "
	      "GRANT USAGE ON SCHEMA \"shut\" TO \"Re\"");
	run("reset role; grant usage on schema shut to \"Re\"; set role "
	    "\"Re\"");
	lacks(NULL);
	run("reset role; drop schema s, shut cascade; drop role \"Re\"");
}

static void
tables_are_described(void **state)
{
	(void)state;
	run("create schema s; create schema ext; set search_path = s;"
	    "create domain s.code as varchar(8);"
	    "create table s.\"Order\" (gone int, \"B\" s.code, a int, c text,"
	    " twice int generated always as (a * 2) stored,"
	    " primary key (a, \"B\") include (c));"
	    "alter table s.\"Order\" drop column gone;"
	    "create table s.order (id numeric(20,0) primary key);"
	    "create table s.idx (id int primary key, x int not null,"
	    " y int not null, z int);"
	    "create unique index idx_xy on s.idx (y, x) include (z);"
	    "alter table s.idx replica identity using index idx_xy;"
	    "set search_path = pg_catalog");
	usable("Order");
	assert_string_equal(columns(),
		"B s.code*2, a integer*1, c text, twice integer generated");
	assert_int_equal(t[0].kind, 'r');
	assert_int_equal(t[0].identity, 'd');
	assert_true(t[0].oid > 0);
	assert_false(t[0].has_children || t[0].member || t[0].published);
	/* what orders a key: not its length, but the collation */
	assert_true(span_is(t[0].columns[1].order, "integer"));
	assert_true(span_is(t[0].columns[0].order,
		"s.code collate pg_catalog.\"default\""));
	run("create table s.coll (k varchar(9) collate \"C\" primary key)");
	usable("coll");
	assert_true(span_is(t[0].columns[0].order,
		"character varying collate pg_catalog.\"C\""));
	usable("order");
	assert_string_equal(columns(), "id numeric(20,0)*1");
	usable("idx");
	assert_string_equal(
		columns(), "id integer, x integer*2, y integer*1, z integer");
	run("drop index s.idx_xy");
	refused("idx", "replica_identity", "lost the index");
	/* an identity FULL is told apart by its primary key */
	run("alter table s.idx replica identity full");
	usable("idx");
	assert_string_equal(
		columns(), "id integer*1, x integer, y integer, z integer");
}

static void
what_is_no_table_with_a_key_is_refused(void **state)
{
	(void)state;
	run("create table s.bare (id int);"
	    "create table s.late (id int primary key deferrable);"
	    "create table s.no (id int primary key);"
	    "alter table s.no replica identity nothing;"
	    "create unlogged table s.light (id int primary key);"
	    "create view s.v as select 1 as id;"
	    "create materialized view s.m as select 1 as id");
	refused("ORDER", "table_missing", "no table \"s\".\"ORDER\"");
	refused("nowhere.t", "table_missing", "no table \"nowhere\".\"t\"");
	refused("v", "table_missing", "is a view");
	refused("m", "table_missing", "is a materialized view");
	refused("light", "table_missing", "SET LOGGED");
	refused("bare", "replica_identity", "has no primary key");
	/* checked at the end of a transaction: two rows may have one key */
	refused("late", "replica_identity", "that is checked at once");
	run("alter table s.late replica identity full");
	refused("late", "replica_identity", "that is checked at once");
	run("alter table s.bare replica identity full");
	refused("bare", "replica_identity", "FULL but no primary key");
	refused("no", "replica_identity", "NOTHING");
}

static void
partitions_and_children_are_seen(void **state)
{
	(void)state;
	run("create table s.root (id int, k int, primary key (id, k))"
	    " partition by list (k);"
	    "create table s.leaf1 partition of s.root for values in (1);"
	    "create table s.mid partition of s.root for values in (2, 3)"
	    " partition by list (k);"
	    "create table s.leaf2 partition of s.mid for values in (2);"
	    "create table s.parent (id int primary key);"
	    "create table s.child () inherits (s.parent)");
	usable("root");
	assert_int_equal(t[0].kind, 'p');
	assert_int_equal(t[0].leaves_n, 0);
	run("alter table s.leaf2 replica identity nothing");
	refused("root", "replica_identity",
		"the partition \"s\".\"leaf2\" of root logs nothing");
	run("alter table s.leaf2 replica identity full");
	usable("root");
	run("alter table s.root replica identity full");
	refused("root", "replica_identity", "\"s\".\"leaf1\"");
	run("alter table s.leaf1 replica identity full");
	usable("root");
	/* an index of its own that lacks a column of the root's key */
	run("alter table s.root replica identity default;"
	    "create unique index own on s.leaf1 (id);"
	    "alter table s.leaf1 replica identity using index own");
	refused("root", "replica_identity",
		"logs less of a changed row than its table needs; run ALTER "
		"TABLE \"s\".\"leaf1\" REPLICA IDENTITY DEFAULT");
	run("alter table s.leaf1 replica identity default");
	look_at((const char *const[]){ "order", "root", "leaf2", NULL });
	assert_true(span_is(t[2].ancestor, "s.root"));
	assert_int_equal(decide_table(&want[2], &t[2], &f), -1);
	usable("parent");
	assert_true(t[0].has_children);
}

static void
operators_of_an_extension_are_found(void **state)
{
	(void)state;
	run("create extension citext schema ext;"
	    "create domain s.nick as ext.citext;"
	    "create table s.people (nick s.nick, n int,"
	    " primary key (nick, n))");
	usable("people");
	assert_string_equal(columns(), "nick s.nick*1, n integer*2");
	assert_true(span_is(decide_key(&t[0], 0)->operators, "ext"));
	assert_int_equal(decide_key(&t[0], 1)->operators.n, 0);
}

/* ---- the publication ---- */

static enum decide_publish
decide(void)
{
	enum decide_publish act;

	buf_reset(&sql);
	act = decide_publication(&source, t, &pub, &sql, &f);
	buf_putc(&sql, '\0');
	return act;
}

/* What is decided for these tables works and is all there is to do. */
static void
published(const char *const *names)
{
	look_at(names);
	if (decide() != DECIDE_WRITE)
		fail_msg("nothing to write: %s", f.text);
	run(sql.p);
	buf_reset(&sql);
	look_at(names);
	if (decide() != DECIDE_KEEP)
		fail_msg("%s%s", sql.p, f.text);
	buf_reset(&sql);
	for (size_t i = 0; i < source.tables_n; i++) {
		assert_true(t[i].published);
		assert_int_equal(
			decide_published(&want[i], &t[i], pub_name, &f), 0);
	}
}

static void
unmanaged(const char *words)
{
	source.manage_publication = false;
	assert_int_equal(decide(), DECIDE_REFUSE);
	assert_string_equal(f.code, "publication");
	if (!strstr(f.text, words))
		fail_msg("%s", f.text);
	buf_reset(&sql);
}

static void
a_publication_is_made_and_kept_equal(void **state)
{
	const char *const two[] = { "Order", "idx", NULL };
	const char *const parts[] = { "root", "order", NULL };
	const char *const child[] = { "parent", NULL };
	(void)state;

	look_at(two);
	assert_false(pub.found);
	unmanaged("CREATE PUBLICATION \"pub\" FOR TABLE \"s\".\"Order\", "
		  "\"s\".\"idx\"");
	published(two);
	assert_string_equal(columns(), "B s.code*2 +, a integer*1 +, c text +, "
				       "twice integer generated");
	/* filters, lists, and what somebody added */
	run("alter publication pub set table s.\"Order\" where (a > 3),"
	    " s.idx, s.order");
	look_at(two);
	assert_true(span_is(t[0].filter, "(a > 3)"));
	unmanaged("by the row filter (a > 3)");
	published(two);
	run("alter publication pub set table s.\"Order\" (a, \"B\"), s.idx");
	look_at(two);
	assert_string_equal(columns(),
		"B s.code*2 +, a integer*1 +, c text, twice integer "
		"generated");
	unmanaged("by a column list without c");
	published(two);
	run("alter publication pub drop table s.idx;"
	    "alter publication pub set (publish = 'insert, update')");
	look_at(two);
	unmanaged("SET (publish = 'insert, update, delete, truncate')");
	published(two);
	/* a schema of them */
	run("alter publication pub add tables in schema ext");
	published(two);
	published(child); /* the child is not ours */
	published(parts);
	run("alter publication pub set (publish_via_partition_root = false)");
	look_at(parts);
	assert_true(t[0].member);
	assert_false(t[0].published);
	unmanaged("SET (publish_via_partition_root = true)");
	published(parts);
	run("drop publication pub");
}

static void
one_for_all_tables_is_left_alone(void **state)
{
	const char *const two[] = { "Order", "root", NULL };
	(void)state;

	run("create publication pub for all tables");
	look_at(two);
	assert_int_equal(decide(), DECIDE_REFUSE);
	assert_non_null(strstr(f.text, "publish_via_partition_root"));
	run("alter publication pub set (publish_via_partition_root = true)");
	look_at(two);
	assert_int_equal(decide(), DECIDE_KEEP);
	assert_true(t[0].published && t[1].published);
	buf_reset(&sql);
	catalog_for_all_sql(&sql, pub_name);
	ask_on(pg);
	assert_int_equal(catalog_number(res, res_n), 1);
	catalog_drop_publication_sql(&sql, pub_name);
	ask_on(pg);
	catalog_drop_publication_sql(&sql, pub_name);
	ask_on(pg);
	catalog_for_all_sql(&sql, pub_name);
	ask_on(pg);
	assert_int_equal(catalog_number(res, res_n), 0);
	forget();
}

static void
generated_columns_are_as_the_publication_has_them(void **state)
{
	const char *const one[] = { "Order", NULL };
	(void)state;

	if (version >= 180000) {
		run("create publication pub for table s.\"Order\""
		    " with (publish_generated_columns = stored)");
		look_at(one);
		assert_string_equal(columns(),
			"B s.code*2 +, a integer*1 +, c text +, "
			"twice integer generated +");
		published(one); /* a managed one keeps the option off */
	} else {
		run("create publication pub for table s.\"Order\"");
		look_at(one);
	}
	assert_string_equal(columns(), "B s.code*2 +, a integer*1 +, c text +, "
				       "twice integer generated");
	run("drop publication pub;"
	    "create table s.gk (a int, k int generated always as (a) stored"
	    " primary key)");
	run("create publication pub for table s.gk");
	usable("gk");
	assert_int_equal(decide_published(&want[0], &t[0], pub_name, &f), -1);
	assert_non_null(strstr(f.text, "which is part of its key; it is "
				       "generated"));
	run("drop publication pub");
}

/* ---- the slot ---- */

static const struct span slot_name = { "my_slot", 7 };
static const struct span database = { "postgres", 8 };
static struct decide_slot slot;

static enum decide_slot_act
look_at_slot(void)
{
	catalog_slot_sql(&sql, slot_name);
	ask_on(pg);
	assert_int_equal(
		catalog_slot(res, res_n, slot_name, &arena, &slot, &f), 0);
	forget();
	return decide_slot(&slot, database, NULL, SPAN_LIT("c"), &f);
}

static void
drop_slot(void)
{
	catalog_drop_slot_sql(&sql, slot_name);
	ask_on(pg);
	forget();
}

static void
the_server_is_described(void **state)
{
	struct decide_server s;
	int pid;
	(void)state;

	buf_puts(&sql, catalog_server_sql);
	ask_on(pg);
	assert_int_equal(catalog_server(res, res_n, &arena, &s, &pid, &f), 0);
	forget();
	assert_int_equal(s.version, version);
	assert_true(span_is(s.wal_level, "logical"));
	assert_true(span_eq(s.database, database));
	assert_false(s.in_recovery || s.on_demand);
	assert_int_equal(pid, PQbackendPID(pg));
	assert_int_equal(decide_server(&s, &f), 0);
}

static void
a_slot_is_made_looked_at_and_dropped(void **state)
{
	uint64_t lsn = 0;
	(void)state;

	assert_int_equal(look_at_slot(), DECIDE_SLOT_CREATE);
	drop_slot();
	catalog_create_slot_sql(&sql, slot_name, version);
	ask_on(pg);
	assert_int_equal(catalog_created_lsn(res, res_n, &lsn, &f), 0);
	assert_int_equal(look_at_slot(), DECIDE_SLOT_ADOPT);
	assert_int_equal(slot.confirmed_lsn, lsn);
	assert_int_equal(slot.failover, version >= 170000);
	assert_true(span_is(slot.wal_status, "reserved"));
	drop_slot();
	assert_int_equal(look_at_slot(), DECIDE_SLOT_CREATE);
}

/* Of the tables looked at last: one that is not carried whole; "" none. */
static const char *
measured(void)
{
	static char table[64];

	catalog_measure_sql(&sql, slot_name, &source, pub_name);
	ask_on(pg);
	assert_int_equal(PQntuples(res[0]), 1);
	assert_true(atoll(PQgetvalue(res[0], 0, 0)) >= 0);
	assert_string_equal(PQgetvalue(res[0], 0, 1), "reserved");
	snprintf(table, sizeof(table), "%s", PQgetvalue(res[0], 0, 3));
	forget();
	return table;
}

static int
both(void)
{
	int n;

	catalog_both_sql(&sql, slot_name, pub_name);
	ask_on(pg);
	n = PQntuples(res[0]);
	forget();
	return n;
}

static void
a_slot_in_use_is_measured(void **state)
{
	const char *const two[] = { "Order", "idx", NULL };

	(void)state;
	run("select pg_create_logical_replication_slot('my_slot', 'pgoutput')");
	assert_int_equal(both(), 0);
	look_at(two);
	/* a publication that is gone is told by the server */
	assert_string_equal(measured(), "");
	run("create publication pub for table s.\"Order\", s.idx");
	assert_int_equal(both(), 1);
	assert_string_equal(measured(), "");
	run("alter publication pub set table s.\"Order\" (a, \"B\"), s.idx");
	assert_string_equal(measured(), "s.Order");
	run("alter publication pub set table s.\"Order\","
	    " s.idx where (x > 1)");
	assert_string_equal(measured(), "s.idx");
	run("alter publication pub set table s.\"Order\"");
	assert_string_equal(measured(), "s.idx");
	run("alter publication pub set (publish = 'insert')");
	assert_string_not_equal(measured(), "");
	run("drop publication pub");
	drop_slot();
}

static void
slots_of_others_are_told(void **state)
{
	PGconn *other;
	(void)state;

	run("select pg_create_physical_replication_slot('my_slot')");
	assert_int_equal(look_at_slot(), DECIDE_SLOT_REFUSE);
	assert_non_null(strstr(f.text, "physical"));
	drop_slot();
	run("select pg_create_logical_replication_slot('my_slot',"
	    " 'pgoutput', false, true)");
	assert_int_equal(look_at_slot(), DECIDE_SLOT_REFUSE);
	assert_non_null(strstr(f.text, "two-phase"));
	drop_slot();
	run("create database other");
	other = pgserver_connect(&server, "other");
	pgserver_run(other,
		"select pg_create_logical_replication_slot('my_slot',"
		" 'pgoutput')");
	PQfinish(other);
	assert_int_equal(look_at_slot(), DECIDE_SLOT_REFUSE);
	assert_non_null(strstr(f.text, "belongs to the database other"));
	other = pgserver_connect(&server, "other");
	pgserver_run(other, "select pg_drop_replication_slot('my_slot')");
	PQfinish(other);
}

static void
a_creation_that_waits_is_seen_and_ended(void **state)
{
	PGconn *writer = pgserver_connect(&server, "postgres");
	PGconn *maker = pgserver_connect(&server, "postgres");
	int pid = 0;
	PGresult *r;
	(void)state;

	pgserver_run(writer, "begin; select pg_current_xact_id()");
	catalog_create_slot_sql(&sql, slot_name, version);
	buf_putc(&sql, '\0');
	assert_int_equal(PQsendQuery(maker, sql.p), 1);
	buf_reset(&sql);
	for (int i = 0; i < 1000 && pid == 0; i++) {
		catalog_blocker_sql(&sql, PQbackendPID(maker));
		ask_on(pg);
		pid = catalog_number(res, res_n);
		usleep(10000);
	}
	assert_int_equal(pid, PQbackendPID(writer));
	assert_int_equal(look_at_slot(), DECIDE_SLOT_WAIT);
	assert_int_equal(slot.active_pid, PQbackendPID(maker));
	assert_false(slot.has_confirmed);
	/* what a resync does to whoever uses the slot */
	catalog_end_user_sql(&sql, slot_name);
	ask_on(pg);
	r = PQgetResult(maker);
	assert_string_equal(PQresultErrorField(r, PG_DIAG_SQLSTATE), "57P01");
	PQclear(r);
	PQfinish(maker);
	PQfinish(writer);
	for (int i = 0; i < 1000 && look_at_slot() != DECIDE_SLOT_CREATE; i++)
		usleep(10000);
	assert_false(slot.found);
}

static void
a_slot_that_lost_its_wal_is_invalidated(void **state)
{
	(void)state;
	catalog_create_slot_sql(&sql, slot_name, version);
	ask_on(pg);
	run("alter system set max_slot_wal_keep_size = '1MB'");
	run("select pg_reload_conf()");
	for (int i = 0; i < 4; i++) {
		run("select pg_logical_emit_message(true, 'x', 'y')");
		run("select pg_switch_wal()");
	}
	run("checkpoint");
	assert_int_equal(look_at_slot(), DECIDE_SLOT_REFUSE);
	assert_string_equal(f.code, "slot_invalidated");
	assert_non_null(strstr(f.text, version >= 170000
					       ? "(wal_removed): raise max_slot"
					       : "(lost): raise max_slot"));
	drop_slot();
	assert_int_equal(look_at_slot(), DECIDE_SLOT_CREATE);
}

/* ---- the replication link ---- */

static void
the_system_tells_who_it_is(void **state)
{
	struct decide_system s;
	char info[400];
	PGconn *repl;
	(void)state;

	snprintf(
		info, sizeof(info), "%s replication=database", server.conninfo);
	repl = PQconnectdb(info);
	assert_int_equal(PQstatus(repl), CONNECTION_OK);
	buf_puts(&sql, CATALOG_IDENTIFY);
	ask_on(repl);
	assert_int_equal(catalog_system(res, res_n, &arena, &s, &f), 0);
	forget();
	PQfinish(repl);
	assert_int_equal(s.timeline, 1);
	assert_true(s.lsn > 0);
	buf_printf(&sql, "%.*s", SPAN_ARG(s.id));
	buf_putc(&sql, '\0');
	assert_string_equal(
		sql.p, pgserver_value(pg, "select system_identifier from "
					  "pg_control_system()"));
	buf_reset(&sql);
}

static void
an_answer_of_another_shape_is_refused(void **state)
{
	struct decide_system s;
	uint64_t lsn;
	(void)state;

	buf_puts(&sql, "select 'x'");
	ask_on(pg);
	assert_int_equal(catalog_system(res, res_n, &arena, &s, &f), -1);
	assert_string_equal(f.code, "io");
	assert_int_equal(catalog_created_lsn(res, res_n, &lsn, &f), -1);
	assert_int_equal(
		catalog_slot(res, res_n, slot_name, &arena, &slot, &f), -1);
	assert_int_equal(catalog_tables(res, res_n, &source, pub_name, &arena,
				 &t, &pub, &f),
		-1);
	assert_int_equal(catalog_number(res, res_n), 0);
	assert_int_equal(catalog_number(res, 0), 0);
	forget();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_server_is_described),
		cmocka_unit_test(a_role_that_may_not_read_is_told_its_grants),
		cmocka_unit_test(tables_are_described),
		cmocka_unit_test(what_is_no_table_with_a_key_is_refused),
		cmocka_unit_test(partitions_and_children_are_seen),
		cmocka_unit_test(operators_of_an_extension_are_found),
		cmocka_unit_test(a_publication_is_made_and_kept_equal),
		cmocka_unit_test(one_for_all_tables_is_left_alone),
		cmocka_unit_test(
			generated_columns_are_as_the_publication_has_them),
		cmocka_unit_test(a_slot_is_made_looked_at_and_dropped),
		cmocka_unit_test(a_slot_in_use_is_measured),
		cmocka_unit_test(slots_of_others_are_told),
		cmocka_unit_test(a_creation_that_waits_is_seen_and_ended),
		cmocka_unit_test(a_slot_that_lost_its_wal_is_invalidated),
		cmocka_unit_test(the_system_tells_who_it_is),
		cmocka_unit_test(an_answer_of_another_shape_is_refused),
	};
	int rc = cmocka_run_group_tests_name(
		"distribution", tests, start_distribution, stop);

	rc += cmocka_run_group_tests_name("17", tests, start_17, stop);
	rc += cmocka_run_group_tests_name("18", tests, start_18, stop);
	return rc;
}
