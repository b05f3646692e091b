/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start sequence against a real server, which is source and cell in one:
 * every state the two can be found in, and what comes of it.
 */
#include "cell_fix.h"

#include <sys/stat.h>
#include <unistd.h>

#include "arena.h"
#include "buf.h"
#include "conndoc.h"
#include "connchild.h"
#include "connfault.h"
#include "ctx.h"
#include "pglink.h"
#include "seal.h"
#include "connhost.h"
#include "start.h"

static struct arena arena;
static struct connhost_settings conf = { .allow_private = true };
static struct connchild_task task;
static struct ctx x;
static struct start *start;

/* what it answered */
static bool answered;
static enum start_end end;
static struct start_found *found;
static struct connfault fault;
static bool waited_for_slot;

/* ---- the server ---- */

static void
run_on(PGconn *c, const char *fmt, ...)
{
	char text[1024];
	PGresult *r;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	r = PQexec(c, text);
	if (PQresultStatus(r) != PGRES_COMMAND_OK &&
		PQresultStatus(r) != PGRES_TUPLES_OK)
		fail_msg("%s: %s", text, PQerrorMessage(c));
	PQclear(r);
}

#define run(...) run_on(sql, __VA_ARGS__)

static bool
shows(void *arg)
{
	return strcmp(pgserver_value(sql, arg), "t") == 0;
}

static void
until(const char *query)
{
	char text[512];

	snprintf(text, sizeof(text), "%s", query);
	run_until(shows, text);
}

static void
reconnect(void)
{
	PQfinish(sql);
	sql = pgserver_connect(&server, "postgres");
	run("set client_min_messages = error");
}

static int
begin(void **state)
{
	if (!pgserver_choose("17") || cell_start(state) != 0)
		return -1;
	reconnect();
	run("alter system set wal_level = logical");
	run("alter system set restore_command = 'false'");
	run("alter system set hot_standby = off");
	PQfinish(sql);
	pgserver_stop(&server);
	pgserver_start(&server);
	sql = pgserver_connect(&server, "postgres");
	reconnect();
	x.loop = loop;
	x.conf = &conf;
	x.task = &task;
	task.tenant = tenant;
	task.name = SPAN_LIT("my-src");
	task.node = SPAN_LIT("here");
	x.pointer_key = SPAN_LIT("src:my-src:pointer");
	x.side = link_new(server.conninfo, NULL);
	snprintf(x.cell_tag, sizeof(x.cell_tag), "%s",
		value_of("select lpad(to_hex(tag), 12, '0') from queen.cell"));
	return 0;
}

static int
finish(void **state)
{
	pgconn_free(x.side);
	arena_fini(&arena);
	return cell_stop(state);
}

/* ---- the document ---- */

static struct conndoc *doc;

/* One table, more members of `source`, and of the top as queend stores them. */
static void
document(const char *tables, const char *more, const char *top)
{
	struct err e = ERR_ZERO;
	struct span json = arena_printf(&arena,
		"{\"kind\":\"source\",\"connection\":{\"host\":\"127.0.0.1\","
		"\"port\":%d,\"database\":\"postgres\",\"user\":\"postgres\"},"
		"\"source\":{\"tables\":[%s]%s}%s}",
		server.port, tables, more, top);

	if (conndoc_parse_stored(json, &arena, &doc, &e) != 0)
		fail_msg("%s", e.text);
	task.doc = doc;
}

#define ORDERS "{\"table\":\"orders\",\"queue\":\"q\"}"

static int
setup(void **state)
{
	(void)state;
	run("drop schema public cascade; create schema public");
	run("create table orders (id int primary key, note text, n numeric)");
	document(ORDERS, "", "");
	return 0;
}

static int
teardown_all(void **state)
{
	(void)state;
	start_free(start);
	start = NULL;
	start_found_free(found);
	found = NULL;
	run("select pg_terminate_backend(active_pid) from "
	    "pg_replication_slots where active_pid is not null");
	until("select count(*) = 0 from pg_replication_slots "
	      "where active_pid is not null");
	run("select pg_drop_replication_slot(slot_name) "
	    "from pg_replication_slots");
	run("drop publication if exists queen_my_src");
	run("delete from queen.kv");
	return 0;
}

/* ---- one start ---- */

static void
on_answer(void *arg, enum start_end how, struct start_found *f,
	const struct connfault *why)
{
	(void)arg;
	answered = true;
	end = how;
	found = f;
	memset(&fault, 0, sizeof(fault));
	if (why)
		fault = *why;
	start_free(start);
	start = NULL;
}

static void
on_state(void *arg)
{
	(void)arg;
	if (strcmp(start_state(start)->phase, "waiting_for_slot") == 0)
		waited_for_slot = true;
}

static void
launch(void)
{
	start_found_free(found);
	found = NULL;
	answered = waited_for_slot = false;
	start = start_new(&x, on_answer, NULL);
	start_on_state(start, on_state);
}

static void
goes(enum start_end how)
{
	launch();
	run_until(is_true, &answered);
	if (end != how)
		fail_msg("end %d: %s: %s", (int)end,
			fault.code ? fault.code : "none", fault.text);
}

static void
fails(const char *code, const char *words)
{
	goes(START_FAILED);
	if (strcmp(fault.code, code) != 0 || !strstr(fault.text, words))
		fail_msg("%s: %s", fault.code, fault.text);
}

static const char *
pointer(const char *member)
{
	return value_of("select value->>'%s' from queen.kv where key = "
			"'src:my-src:pointer'",
		member);
}

/* As another owner, or another time, would have left it. */
static void
set_pointer(const char *member, const char *json)
{
	run("update queen.kv set value = jsonb_set(value, '{%s}', '%s'), "
	    "version = version + 1 where key = 'src:my-src:pointer'",
		member, json);
}

static const char *
slots(void)
{
	return value_of("select count(*) from pg_replication_slots");
}

/* ---- tests ---- */

static void
a_first_start_makes_all_and_the_next_finds_it(void **state)
{
	char epoch[16];
	int64_t version;
	(void)state;

	document("{\"table\":\"orders\",\"queue\":\"q\",\"partitionBy\":"
		 "\"single\"}",
		"", "");
	goes(START_READY);
	assert_true(found->version > 0);
	assert_int_equal(found->tables_n, 1);
	assert_true(span_is(found->tables[0].label, "public.orders"));
	assert_true(span_is(found->tables[0].queue, "q"));
	assert_int_equal(found->tables[0].by, SHAPE_BY_NOTHING);
	assert_int_equal(found->tables[0].key_n, 1);
	assert_true(span_is(found->tables[0].key[0], "id"));
	assert_true(span_is(found->about[0].key_types[0], "integer"));
	assert_int_equal(found->about[0].columns_n, 3);
	assert_true(span_is(found->about[0].columns[2], "n"));
	assert_false(found->about[0].partitioned);
	assert_true(span_is(found->slot, "queen_my_src"));
	assert_true(span_is(found->publication, "queen_my_src"));
	assert_true(found->failover);
	assert_int_equal(found->timeline, 1);
	assert_int_equal(found->server_version / 10000, 17);
	assert_true(pglink_is_up(found->sql) && pglink_is_up(found->repl));
	assert_int_equal(strlen(found->pointer.epoch), 8);
	assert_string_equal(found->pointer.cell, x.cell_tag);
	assert_true(found->pointer.place.in_snapshot);
	assert_string_equal(pointer("epoch"), found->pointer.epoch);
	assert_string_equal(pointer("cell"), x.cell_tag);
	assert_string_equal(pointer("timeline"), "1");
	assert_string_equal(pointer("publication"), "queen_my_src");
	assert_string_equal(pointer("systemId"), found->system_id);
	assert_string_equal(
		value_of("select value->'snapshot'->>'table' = "
			 "'public.orders' and value->>'lsn' = "
			 "confirmed_flush_lsn::text from queen.kv, "
			 "pg_replication_slots where key like '%%pointer'"),
		"t");
	assert_string_equal(value_of("select count(*) from pg_stat_activity "
				     "where application_name = "
				     "'queen-pg/" QUEEN_VERSION " my-src'"),
		"2");
	snprintf(epoch, sizeof(epoch), "%s", found->pointer.epoch);
	version = found->version;
	goes(START_READY);
	assert_int_equal(found->version, version);
	assert_string_equal(found->pointer.epoch, epoch);
	assert_string_equal(slots(), "1");
}

static void
unusable_tables_stop_before_the_publication(void **state)
{
	(void)state;
	run("create table bare (id int); create table nothing (id int primary "
	    "key, n int); alter table nothing replica identity nothing; "
	    "insert into nothing values (1, 1)");
	document("{\"table\":\"bare\",\"queue\":\"q\"}", "", "");
	fails("replica_identity", "bare has no primary key");
	assert_false(fault.retryable);
	document(ORDERS ",{\"table\":\"nothing\",\"queue\":\"q\"}", "", "");
	fails("replica_identity", "NOTHING");
	document("{\"table\":\"orders\",\"queue\":\"q\",\"partitionBy\":["
		 "\"note\"]}",
		"", "");
	fails("partition_by", "note is not part of the key");
	document("{\"table\":\"Orders\",\"queue\":\"q\"}", "", "");
	fails("table_missing", "\"public\".\"Orders\"");
	assert_string_equal(
		value_of("select count(*) from pg_publication"), "0");
	assert_string_equal(slots(), "0");
	run("update nothing set n = 2");
}

static void
a_narrowed_publication_stops_before_the_slot(void **state)
{
	(void)state;
	run("create publication queen_my_src for table orders where (id > 3)");
	document(ORDERS, ",\"managePublication\":false", "");
	fails("publication", "by the row filter (id > 3)");
	run("alter publication queen_my_src set table orders (id, n)");
	fails("publication", "by a column list without note");
	assert_string_equal(slots(), "0");
	document(ORDERS, "", "");
	goes(START_READY);
	assert_string_equal(
		value_of("select attnames from pg_publication_tables"),
		"{id,note,n}");
}

static void
who_may_not_write_a_publication_is_told(void **state)
{
	(void)state;
	run("create role plain login replication; grant all on schema public "
	    "to plain");
	doc->conn.user = SPAN_LIT("plain");
	fails("postgres", "run: GRANT SELECT ON \"public\".\"orders\" TO "
			  "\"plain\"");
	assert_string_equal(slots(), "0");
	run("grant select on orders to plain");
	fails("publication", "CREATE PUBLICATION \"queen_my_src\" FOR TABLE "
			     "\"public\".\"orders\"");
	assert_string_equal(fault.sqlstate, "");
	run("create publication queen_my_src for table orders");
	goes(START_READY);
	run("alter role plain noreplication");
	fails("postgres", "42501: permission denied to start WAL sender");
	assert_false(fault.retryable);
	run("drop owned by plain; drop role plain");
}

/* A walsender of somebody else. */
static PGconn *
occupy(void)
{
	char info[400];
	PGconn *c;
	PGresult *r;

	snprintf(
		info, sizeof(info), "%s replication=database", server.conninfo);
	c = PQconnectdb(info);
	r = PQexec(c, "START_REPLICATION SLOT queen_my_src LOGICAL 0/0 "
		      "(proto_version '1', publication_names 'queen_my_src')");
	assert_int_equal(PQresultStatus(r), PGRES_COPY_BOTH);
	PQclear(r);
	return c;
}

static bool
is_waiting(void *arg)
{
	int pid = *(int *)arg;

	return waited_for_slot && start_state(start)->active_pid == pid;
}

static void
a_held_slot_is_waited_for_and_then_adopted(void **state)
{
	PGconn *holder;
	int pid;
	(void)state;

	run("create publication queen_my_src for table orders");
	run("select pg_create_logical_replication_slot('queen_my_src', "
	    "'pgoutput')");
	holder = occupy();
	pid = PQbackendPID(holder);
	launch();
	run_until(is_waiting, &pid);
	PQfinish(holder);
	run_until(is_true, &answered);
	assert_int_equal(end, START_READY);
	assert_false(found->failover); /* as it was made */
	assert_string_equal(
		value_of("select value->>'lsn' = confirmed_flush_lsn::text "
			 "from queen.kv, pg_replication_slots"),
		"t");
}

static void
a_lost_slot_stops_and_a_resync_starts_over_once(void **state)
{
	const char *request =
		",\"resyncRequestedAt\":\"2026-10-02T11:00:00.000000Z\"";
	PGconn *holder;
	char epoch[16];
	(void)state;

	document(ORDERS, ",\"snapshot\":\"never\"", "");
	goes(START_READY);
	assert_false(found->pointer.place.in_snapshot);
	snprintf(epoch, sizeof(epoch), "%s", found->pointer.epoch);
	run("select pg_drop_replication_slot('queen_my_src')");
	fails("slot_lost", "queenctl connector resync my-src");
	assert_string_equal(slots(), "0");
	assert_string_equal(pointer("epoch"), epoch);
	document(ORDERS, ",\"snapshot\":\"never\"", request);
	goes(START_READY);
	assert_string_not_equal(found->pointer.epoch, epoch);
	assert_true(found->pointer.place.in_snapshot);
	assert_string_equal(
		pointer("resyncedAt"), "2026-10-02T11:00:00.000000Z");
	snprintf(epoch, sizeof(epoch), "%s", found->pointer.epoch);
	goes(START_READY);
	assert_string_equal(found->pointer.epoch, epoch);
	/* a later one ends whoever uses the slot */
	holder = occupy();
	document(ORDERS, "",
		",\"resyncRequestedAt\":\"2026-10-02T11:00:00.000001Z\"");
	goes(START_READY);
	assert_string_not_equal(found->pointer.epoch, epoch);
	PQfinish(holder);
}

static void
foreign_states_are_refused(void **state)
{
	(void)state;
	goes(START_READY);
	set_pointer("systemId", "\"7\"");
	fails("system_changed", "database system 7");
	set_pointer("systemId", value_of("select to_jsonb(system_identifier::"
					 "text) from pg_control_system()"));
	set_pointer("slot", "\"old\"");
	fails("slot_changed", "the slot old");
	set_pointer("slot", "\"queen_my_src\"");
	goes(START_READY);
	run("select pg_logical_emit_message(true, 'x', 'y')");
	run("select pg_replication_slot_advance('queen_my_src', "
	    "pg_current_wal_lsn())");
	fails("slot_ahead", "queenctl connector resync my-src");
	assert_false(fault.retryable);
	set_pointer("lsn", value_of("select to_jsonb(pg_current_wal_lsn())"));
	goes(START_READY);
	set_pointer("inTxn", "{\"commitLsn\":\"0/1\",\"done\":3}");
	document(ORDERS, ",\"publication\":\"another\"", "");
	fails("slot_changed", "counted by the publication queen_my_src");
	run("drop publication another");
	document(ORDERS, "", "");
	set_pointer("v", "2");
	fails("pointer_corrupt", "upgrade if a later version wrote it");
	/* an answered request is no fix of it, a new one is */
	set_pointer("resyncedAt", "\"2026-10-02T11:00:00.000000Z\"");
	document(ORDERS, "",
		",\"resyncRequestedAt\":\"2026-10-02T11:00:00.000000Z\"");
	fails("pointer_corrupt", "queenctl connector resync my-src");
	document(ORDERS, "",
		",\"resyncRequestedAt\":\"2026-10-03T11:00:00.000000Z\"");
	goes(START_READY);
}

static void
a_slot_of_another_kind_is_refused(void **state)
{
	(void)state;
	run("select pg_create_physical_replication_slot('queen_my_src')");
	fails("slot_mismatch", "is a physical one");
	document(ORDERS, "",
		",\"resyncRequestedAt\":\"2026-10-02T11:00:00.000000Z\"");
	fails("slot_mismatch", "is a physical one");
	assert_string_equal(slots(), "1");
}

static const char *
takeover(const char *action, const char *cell)
{
	static char text[128];

	snprintf(text, sizeof(text),
		",\"takeover\":{\"action\":\"%s\",\"cell\":\"%s\","
		"\"requestedAt\":\"2026-10-02T11:00:00.000000Z\"}",
		action, cell);
	return text;
}

static void
a_pointer_of_another_cell_waits_for_a_word(void **state)
{
	char epoch[16];
	(void)state;

	goes(START_READY);
	snprintf(epoch, sizeof(epoch), "%s", found->pointer.epoch);
	set_pointer("cell", "\"000000000abc\"");
	fails("cell_changed", "by the cell 000000000abc");
	assert_non_null(strstr(fault.text, "connector adopt my-src"));
	assert_non_null(strstr(fault.text, "connector reset my-src"));
	/* what was said in another cell does not count here */
	document(ORDERS, "", takeover("adopt", "000000000abc"));
	fails("cell_changed", "adopt my-src");
	document(ORDERS, "", takeover("adopt", x.cell_tag));
	goes(START_READY);
	assert_string_equal(found->pointer.epoch, epoch);
	assert_string_equal(pointer("cell"), x.cell_tag);
	assert_string_equal(pointer("epoch"), epoch);
	goes(START_READY); /* and the row's version is the one that is held */
	/* adopting holds only while nothing was read past the pointer */
	set_pointer("cell", "\"000000000abc\"");
	run("select pg_logical_emit_message(true, 'x', 'y')");
	run("select pg_replication_slot_advance('queen_my_src', "
	    "pg_current_wal_lsn())");
	fails("slot_ahead", "queenctl connector resync my-src");
	assert_string_equal(pointer("cell"), "000000000abc");
	document(ORDERS, "", takeover("reset", x.cell_tag));
	goes(START_READY);
	assert_string_not_equal(found->pointer.epoch, epoch);
	assert_string_equal(pointer("cell"), x.cell_tag);
	snprintf(epoch, sizeof(epoch), "%s", found->pointer.epoch);
	goes(START_READY); /* once */
	assert_string_equal(found->pointer.epoch, epoch);
}

static bool
is_held_up(void *arg)
{
	return start_state(start)->active_pid == *(int *)arg;
}

static void
a_creation_that_waits_says_for_whom_and_can_be_stopped(void **state)
{
	PGconn *writer = pgserver_connect(&server, "postgres");
	int pid = PQbackendPID(writer);
	(void)state;

	run("create publication queen_my_src for table orders");
	run_on(writer, "begin; select pg_current_xact_id()");
	launch();
	run_until(is_held_up, &pid);
	assert_string_equal(start_state(start)->phase, "connecting");
	assert_non_null(strstr(start_state(start)->doing, "waits for a"));
	start_free(start);
	start = NULL;
	/* the session notices by itself and takes its slot with it */
	until("select count(*) = 0 from pg_replication_slots");
	assert_false(answered);
	/* another owner moved the pointer while this one waited */
	launch();
	run_until(is_held_up, &pid);
	run("select queen.kv_put('01020300-0000-0000-0000-000000000000', "
	    "'queen-pg', 'src:my-src:pointer', '{}', 0, null, now())");
	run_on(writer, "commit");
	run_until(is_true, &answered);
	assert_int_equal(end, START_FENCED);
	PQfinish(writer);
}

static void
a_pointer_in_doubt_is_waited_for(void **state)
{
	PGconn *writer = pgserver_connect(&server, "postgres");
	(void)state;

	goes(START_READY);
	run_on(writer,
		"begin; update queen.kv set version = version + 7, value = "
		"jsonb_set(value, '{epoch}', '\"0123abcd\"')");
	launch();
	until("select count(*) > 0 from pg_stat_activity where "
	      "wait_event_type = 'Lock' and query like '%kv_settle%'");
	run_on(writer, "commit");
	run_until(is_true, &answered);
	assert_int_equal(end, START_READY);
	assert_string_equal(found->pointer.epoch, "0123abcd");
	assert_string_equal(value_of("select version from queen.kv"),
		value_of("select %jd", (intmax_t)found->version));
	PQfinish(writer);
}

static void
a_stop_leaves_a_call_of_the_cell_behind(void **state)
{
	PGconn *writer = pgserver_connect(&server, "postgres");
	(void)state;

	goes(START_READY);
	run_on(writer, "begin; update queen.kv set version = version + 1");
	launch();
	until("select count(*) > 0 from pg_stat_activity where "
	      "wait_event_type = 'Lock' and query like '%kv_settle%'");
	start_free(start);
	start = NULL;
	run_on(writer, "rollback");
	PQfinish(writer);
	goes(START_READY); /* behind it on the same link */
}

#define DELETING                                                               \
	",\"deleting\":{\"dropSlot\":true,\"requestedAt\":"                    \
	"\"2026-10-02T11:00:00.000000Z\"}"

static void
a_deletion_removes_what_was_made(void **state)
{
	PGconn *holder;
	(void)state;

	goes(START_READY);
	holder = occupy();
	document(ORDERS, "", DELETING);
	goes(START_TORN_DOWN);
	PQfinish(holder);
	assert_string_equal(slots(), "0");
	assert_string_equal(
		value_of("select count(*) from pg_publication"), "0");
	assert_string_equal(value_of("select count(*) from queen.kv"), "0");
	goes(START_TORN_DOWN); /* again, after a crash */
	/* what others made stays */
	run("create publication queen_my_src for all tables");
	run("select pg_create_physical_replication_slot('queen_my_src')");
	goes(START_TORN_DOWN);
	assert_string_equal(slots(), "1");
	assert_string_equal(
		value_of("select count(*) from pg_publication"), "1");
	doc->conn.port = 1;
	fails("postgres", "connector delete my-src --keep-slot");
}

static void
a_password_is_opened_with_the_nodes_key(void **state)
{
	static const char key[] = "00112233445566778899aabbccddeeff"
				  "00112233445566778899aabbccddeeff";
	struct err e = ERR_ZERO;
	struct seal *seal;
	(void)state;

	assert_int_equal(seal_new(key, NULL, &seal, &e), 0);
	run("create role guarded login superuser password 'pa''ss'");
	doc->conn.user = SPAN_LIT("guarded");
	fails("postgres", "asks for a password");
	doc->conn.password = arena_dup(&arena, SPAN_LIT("pa'ss"));
	conndoc_seal(doc, &tenant, task.name, seal, &arena);
	fails("unseal", "QUEEN_ENCRYPTION_KEY");
	assert_false(fault.retryable);
	x.seal = seal;
	goes(START_READY);
	doc->conn.password = arena_dup(&arena, SPAN_LIT("wrong"));
	conndoc_seal(doc, &tenant, task.name, seal, &arena);
	fails("postgres", "28P01");
	assert_false(fault.retryable);
	x.seal = NULL;
	seal_free(seal);
	run("drop owned by guarded; drop role guarded");
}

static void
keys_of_an_extension_are_in_the_path_of_both_links(void **state)
{
	(void)state;
	run("create schema \"Ext\"; create extension citext schema \"Ext\"; "
	    "create table people (nick \"Ext\".citext primary key)");
	document("{\"table\":\"people\",\"queue\":\"q\"}", "", "");
	goes(START_READY);
	assert_true(span_is(found->about[0].key_types[0], "\"Ext\".citext"));
	run("drop schema \"Ext\" cascade");
}

static void
what_a_role_is_set_to_does_not_matter(void **state)
{
	PGconn *held = pgserver_connect(&server, "postgres");
	(void)state;

	run("create role odd login superuser; alter role odd set search_path "
	    "= nowhere; alter role odd set statement_timeout = 1; alter role "
	    "odd set lock_timeout = 1; alter role odd set "
	    "idle_session_timeout = 1; alter role odd set transaction_timeout "
	    "= 1; alter role odd set standard_conforming_strings = off");
	doc->conn.user = SPAN_LIT("odd");
	run("create publication queen_my_src for table orders");
	run_on(held, "begin; lock table pg_publication in access exclusive "
		     "mode");
	launch();
	until("select count(*) > 0 from pg_stat_activity where usename = "
	      "'odd' and wait_event_type = 'Lock'");
	run_on(held, "commit");
	PQfinish(held);
	run_until(is_true, &answered);
	assert_int_equal(end, START_READY);
	start_found_free(found);
	found = NULL;
	run("drop publication queen_my_src; drop role odd");
}

static void
promote(void)
{
	char path[128];
	FILE *f;

	PQfinish(sql);
	pgserver_stop(&server);
	snprintf(path, sizeof(path), "%s/data/recovery.signal", server.dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
	assert_int_equal(chown(path, server.uid, server.gid), 0);
	pgserver_start(&server);
	sql = pgserver_connect(&server, "postgres");
	run("set client_min_messages = error");
	until("select not pg_is_in_recovery()");
}

static void
a_new_timeline_is_followed_unless_it_lacks_what_was_read(void **state)
{
	char lsn[32];
	(void)state;

	goes(START_READY);
	start_found_free(found);
	found = NULL;
	promote();
	run_until(link_is_up, x.side);
	assert_string_equal(pointer("timeline"), "1");
	goes(START_READY);
	assert_int_equal(found->timeline, 2);
	assert_int_equal(found->pointer.timeline, 2);
	/* a place that only the old timeline had */
	run("select pg_logical_emit_message(true, 'x', 'y')");
	snprintf(lsn, sizeof(lsn), "%s",
		value_of("select to_jsonb(pg_current_wal_flush_lsn())"));
	set_pointer("lsn", lsn);
	fails("timeline_diverged", "synchronized_standby_slots");
	assert_false(fault.retryable);
	set_pointer("timeline", "2");
	goes(START_READY);
	set_pointer("lsn", "\"FF/0\"");
	fails("timeline_diverged", "the pointer FF/0 is beyond");
}

static void
an_unreachable_source_or_cell_is_tried_again(void **state)
{
	struct pgconn *side = x.side;
	(void)state;

	doc->conn.port = 1;
	fails("postgres", "refused");
	assert_true(fault.retryable);
	conf.allow_private = false;
	fails("egress", "QUEEN_PG_ALLOW_PRIVATE_NETWORKS=true");
	assert_false(fault.retryable);
	conf.allow_private = true;
	x.side = pgconn_new(
		loop, "host=127.0.0.1 port=1", "test", link_on_event, NULL);
	fails("queen", "");
	assert_true(fault.retryable);
	pgconn_free(x.side);
	x.side = side;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown_all)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_first_start_makes_all_and_the_next_finds_it),
		TEST(unusable_tables_stop_before_the_publication),
		TEST(a_narrowed_publication_stops_before_the_slot),
		TEST(who_may_not_write_a_publication_is_told),
		TEST(a_held_slot_is_waited_for_and_then_adopted),
		TEST(a_lost_slot_stops_and_a_resync_starts_over_once),
		TEST(foreign_states_are_refused),
		TEST(a_slot_of_another_kind_is_refused),
		TEST(a_pointer_of_another_cell_waits_for_a_word),
		TEST(a_creation_that_waits_says_for_whom_and_can_be_stopped),
		TEST(a_pointer_in_doubt_is_waited_for),
		TEST(a_stop_leaves_a_call_of_the_cell_behind),
		TEST(a_deletion_removes_what_was_made),
		TEST(a_password_is_opened_with_the_nodes_key),
		TEST(keys_of_an_extension_are_in_the_path_of_both_links),
		TEST(what_a_role_is_set_to_does_not_matter),
		TEST(an_unreachable_source_or_cell_is_tried_again),
		TEST(a_new_timeline_is_followed_unless_it_lacks_what_was_read),
	};

	return cmocka_run_group_tests(tests, begin, finish);
}
