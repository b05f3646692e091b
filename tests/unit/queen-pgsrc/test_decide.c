/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "conndoc.h"
#include "connfault.h"
#include "decide.h"
#include "pointer.h"

static struct connfault f;

static const struct span name = { "my-src", 6 };

/* The last fault has this code, and these words in its sentence. */
static void
told(const char *code, const char *words)
{
	assert_string_equal(f.code, code);
	if (!strstr(f.text, words))
		fail_msg("%s: %s", words, f.text);
}

/* ---- server ---- */

static void
servers_need_15_and_logical_wal(void **state)
{
	struct decide_server s = { .version = 150000,
		.wal_level = SPAN_LIT("logical") };
	(void)state;

	assert_int_equal(decide_server(&s, &f), 0);
	s.version = 149999;
	assert_int_equal(decide_server(&s, &f), -1);
	told("version", "PostgreSQL 14; upgrade it to 15");
	s.version = 180000;
	s.wal_level = SPAN_LIT("replica");
	assert_int_equal(decide_server(&s, &f), -1);
	told("wal_level", "run ALTER SYSTEM SET wal_level = logical");
	assert_false(f.retryable);
	s.on_demand = true;
	assert_int_equal(decide_server(&s, &f), 0);
	s.wal_level = SPAN_LIT("minimal");
	assert_int_equal(decide_server(&s, &f), -1);
	s.wal_level = SPAN_LIT("logical");
	s.in_recovery = true;
	assert_int_equal(decide_server(&s, &f), -1);
	told("not_primary", "set connection.host to the primary");
	assert_true(f.retryable);
}

/* ---- tables ---- */

static struct span by[] = { { "a", 1 }, { "b", 1 } };
static struct conndoc_table want;
static struct decide_column columns[3];
static struct decide_leaf leaves[1];
static struct decide_table t;

/* public.t with columns id (key), a, b; published whole. */
static int
table_of(void **state)
{
	static const char *const names[] = { "id", "a", "b" };
	(void)state;

	memset(&f, 0, sizeof(f));
	want = (struct conndoc_table){ .table = { SPAN_LIT("public.T"),
					       SPAN_LIT("public"),
					       SPAN_LIT("T") },
		.queue = SPAN_LIT("q"),
		.columns = { by, 2 } };
	for (size_t i = 0; i < 3; i++)
		columns[i] = (struct decide_column){
			.name = span_of(names[i]),
			.published = true,
			.key_pos = i == 0,
			.order = SPAN_LIT("integer"),
		};
	leaves[0] = (struct decide_leaf){ .schema = SPAN_LIT("s"),
		.name = SPAN_LIT("leaf"),
		.kind = 'r',
		.identity = 'd' };
	t = (struct decide_table){ .schema = want.table.schema,
		.name = want.table.name,
		.found = true,
		.kind = 'r',
		.persistence = 'p',
		.identity = 'd',
		.columns = columns,
		.columns_n = 3,
		.leaves = leaves,
		.member = true,
		.published = true };
	return 0;
}

static void
refused(const char *code, const char *words)
{
	assert_int_equal(decide_table(&want, &t, &f), -1);
	told(code, words);
	assert_false(f.retryable);
}

static void
tables_must_exist_and_log_their_changes(void **state)
{
	(void)state;
	assert_int_equal(decide_table(&want, &t, &f), 0);
	t.kind = 'p';
	assert_int_equal(decide_table(&want, &t, &f), 0);
	t.found = false;
	refused("table_missing", "there is no table \"public\".\"T\"");
	t.found = true;
	t.kind = 'v';
	refused("table_missing", "public.T is a view");
	t.kind = 'S';
	refused("table_missing", "public.T is a sequence");
	t.kind = 'r';
	t.persistence = 'u';
	refused("table_missing", "run ALTER TABLE \"public\".\"T\" SET LOGGED");
	t.persistence = 'p';
	t.ancestor = SPAN_LIT("public.root");
	refused("publication", "public.T is a partition of public.root");
}

static void
tables_need_an_identity_with_a_key(void **state)
{
	(void)state;
	t.identity = 'i';
	assert_int_equal(decide_table(&want, &t, &f), 0);
	t.identity = 'f';
	assert_int_equal(decide_table(&want, &t, &f), 0);
	t.identity = 'n';
	refused("replica_identity",
		"run ALTER TABLE \"public\".\"T\" REPLICA IDENTITY DEFAULT");
	columns[0].key_pos = 0;
	t.identity = 'd';
	refused("replica_identity", "has no primary key that is checked");
	told("replica_identity",
		"ALTER TABLE \"public\".\"T\" REPLICA IDENTITY USING INDEX");
	t.identity = 'i';
	refused("replica_identity", "lost the index of its replica identity");
	t.identity = 'f';
	refused("replica_identity", "FULL but no primary key");
}

static void
every_leaf_must_log_what_the_root_needs(void **state)
{
	(void)state;
	t.kind = 'p';
	t.leaves_n = 1;
	leaves[0].covers = true;
	assert_int_equal(decide_table(&want, &t, &f), 0);
	t.identity = 'f';
	refused("replica_identity",
		"ALTER TABLE \"s\".\"leaf\" REPLICA IDENTITY FULL");
	leaves[0].identity = 'f';
	assert_int_equal(decide_table(&want, &t, &f), 0);
	t.identity = 'd';
	leaves[0].identity = 'n';
	leaves[0].covers = false;
	refused("replica_identity",
		"the partition \"s\".\"leaf\" of public.T logs nothing of a "
		"changed row; run ALTER TABLE \"s\".\"leaf\" REPLICA IDENTITY "
		"DEFAULT");
	leaves[0].kind = 'f';
	refused("table_missing", "foreign partition \"s\".\"leaf\"");
}

static void
partitions_are_named_by_what_a_delete_brings(void **state)
{
	(void)state;
	want.by = CONNDOC_BY_COLUMNS;
	refused("partition_by", "a is not part of the key of public.T");
	told("partition_by",
		"run ALTER TABLE \"public\".\"T\" REPLICA IDENTITY FULL");
	t.identity = 'f';
	assert_int_equal(decide_table(&want, &t, &f), 0);
	t.identity = 'd';
	columns[1].key_pos = 2;
	columns[2].key_pos = 3;
	assert_int_equal(decide_table(&want, &t, &f), 0);
	want.columns.p = &(struct span){ "x", 1 };
	want.columns.n = 1;
	t.identity = 'f';
	refused("partition_by", "public.T has no column x");
}

static void
keys_and_partitions_must_be_published(void **state)
{
	struct span p = SPAN_LIT("pub");
	(void)state;

	assert_int_equal(decide_published(&want, &t, p, &f), 0);
	columns[1].published = false;
	assert_int_equal(decide_published(&want, &t, p, &f), 0);
	want.by = CONNDOC_BY_COLUMNS;
	assert_int_equal(decide_published(&want, &t, p, &f), -1);
	told("publication", "does not carry the column a of public.T, which "
			    "is in partitionBy; publish the whole table");
	columns[0].published = false;
	columns[0].generated = true;
	assert_int_equal(decide_published(&want, &t, p, &f), -1);
	told("publication", "which is part of its key; it is generated");
}

/* ---- the publication ---- */

static struct conndoc_source source;
static struct decide_publication pub;
static struct buf sql;

static int
pub_of(void **state)
{
	table_of(state);
	source = (struct conndoc_source){
		.tables = &want, .tables_n = 1, .manage_publication = true
	};
	pub = (struct decide_publication){ .name = SPAN_LIT("my\"pub"),
		.found = true,
		.inserts = true,
		.updates = true,
		.deletes = true,
		.truncates = true };
	return 0;
}

static void
written(const char *statement)
{
	buf_reset(&sql);
	assert_int_equal(
		decide_publication(&source, &t, &pub, &sql, &f), DECIDE_WRITE);
	buf_putc(&sql, '\0');
	assert_string_equal(sql.p, statement);
}

static void
kept(void)
{
	buf_reset(&sql);
	assert_int_equal(
		decide_publication(&source, &t, &pub, &sql, &f), DECIDE_KEEP);
}

static void
not_published(const char *words)
{
	buf_reset(&sql);
	assert_int_equal(
		decide_publication(&source, &t, &pub, &sql, &f), DECIDE_REFUSE);
	told("publication", words);
	assert_false(f.retryable);
}

#define ALTER "ALTER PUBLICATION \"my\"\"pub\" "

static void
a_managed_publication_is_made_and_kept_equal(void **state)
{
	(void)state;
	kept();
	pub.found = false;
	written("CREATE PUBLICATION \"my\"\"pub\" FOR TABLE \"public\".\"T\"");
	t.kind = 'p';
	written("CREATE PUBLICATION \"my\"\"pub\" FOR TABLE \"public\".\"T\" "
		"WITH (publish_via_partition_root = true)");
	pub.found = true;
	written(ALTER "SET (publish_via_partition_root = true);");
	pub.via_root = true;
	kept();
	t.kind = 'r';
	t.member = false;
	written(ALTER "SET TABLE \"public\".\"T\";");
	t.member = true;
	t.has_children = true;
	pub.others = 1;
	written(ALTER "SET TABLE ONLY \"public\".\"T\";");
	t.has_children = false;
	pub.others = 0;
	pub.schemas = true;
	written(ALTER "SET TABLE \"public\".\"T\";");
	pub.schemas = false;
	t.listed = true;
	written(ALTER "SET TABLE \"public\".\"T\";");
	t.listed = false;
	t.filter = SPAN_LIT("(id > 3)");
	written(ALTER "SET TABLE \"public\".\"T\";");
	t.filter = (struct span)SPAN_ZERO;
	pub.generated = true;
	pub.deletes = false;
	written(ALTER
		"SET (publish = 'insert, update, delete, truncate');" ALTER
		"SET (publish_generated_columns = none);");
	pub.generated = false;
	pub.deletes = true;
	pub.truncates = false;
	kept();
	source.on_truncate = CONNDOC_EMIT;
	written(ALTER "SET (publish = 'insert, update, delete, truncate');");
}

static void
any_other_publication_is_told_what_it_lacks(void **state)
{
	(void)state;
	source.manage_publication = false;
	kept();
	pub.found = false;
	not_published(
		"does not exist; run CREATE PUBLICATION \"my\"\"pub\" FOR "
		"TABLE \"public\".\"T\"");
	pub.found = true;
	t.published = false;
	not_published("lacks tables; run " ALTER "ADD TABLE \"public\".\"T\"");
	t.published = true;
	t.filter = SPAN_LIT("(id > 3)");
	not_published("narrows \"public\".\"T\" by the row filter (id > 3), "
		      "which the copy of the table would not; run " ALTER
		      "DROP TABLE \"public\".\"T\"; " ALTER
		      "ADD TABLE \"public\".\"T\"");
	t.filter = (struct span)SPAN_ZERO;
	columns[2].published = false;
	not_published("by a column list without b");
	columns[2].generated = true;
	kept();
	pub.updates = false;
	not_published(
		ALTER "SET (publish = 'insert, update, delete, truncate')");
	pub.updates = true;
	t.kind = 'p';
	not_published(ALTER "SET (publish_via_partition_root = true)");
	/* one for all tables is left alone, managed or not */
	source.manage_publication = true;
	pub.all_tables = true;
	not_published(ALTER "SET (publish_via_partition_root = true)");
	pub.via_root = true;
	kept();
}

static void
who_may_not_write_it_is_told_who_must(void **state)
{
	(void)state;
	connfault_set(&f, "postgres", false, "42501: must be owner of table T");
	decide_publication_denied(&source, &t, &pub, &f);
	told("publication", "42501: must be owner of table T: the role may not "
			    "write the publication");
	told("publication", ALTER "SET TABLE \"public\".\"T\"");
	pub.found = false;
	decide_publication_denied(&source, &t, &pub, &f);
	told("publication", "CREATE PUBLICATION \"my\"\"pub\" FOR TABLE");
}

/* ---- the slot ---- */

static const struct span database = { "db", 2 };
static struct decide_slot slot;
static struct pointer p;

static int
slot_of(void **state)
{
	(void)state;
	slot = (struct decide_slot){ .name = SPAN_LIT("s"),
		.found = true,
		.logical = true,
		.plugin = SPAN_LIT("pgoutput"),
		.database = database,
		.wal_status = SPAN_LIT("reserved"),
		.has_confirmed = true,
		.confirmed_lsn = 100 };
	p = (struct pointer){ .epoch = "0123abcd",
		.cell = "0123456789ab",
		.system_id = SPAN_LIT("7"),
		.slot = SPAN_LIT("s"),
		.timeline = 1,
		.place = { .lsn = 100 } };
	return 0;
}

static enum decide_slot_act
act(const struct pointer *at)
{
	return decide_slot(&slot, database, at, name, &f);
}

static void
slot_refused(const char *code, const char *words)
{
	assert_int_equal(act(NULL), DECIDE_SLOT_REFUSE);
	told(code, words);
	assert_int_equal(act(&p), DECIDE_SLOT_REFUSE);
	told(code, words);
	assert_false(f.retryable);
}

static void
a_slot_is_made_adopted_or_used_and_never_made_anew(void **state)
{
	(void)state;
	assert_int_equal(act(NULL), DECIDE_SLOT_ADOPT);
	assert_int_equal(act(&p), DECIDE_SLOT_USE);
	slot.confirmed_lsn = 99;
	assert_int_equal(act(&p), DECIDE_SLOT_USE);
	slot.confirmed_lsn = 101;
	assert_int_equal(act(&p), DECIDE_SLOT_AHEAD);
	told("slot_ahead", "confirmed up to 0/65, past the pointer 0/64");
	told("slot_ahead", "queenctl connector resync my-src");
	slot.active_pid = 7;
	assert_int_equal(act(NULL), DECIDE_SLOT_WAIT);
	assert_int_equal(act(&p), DECIDE_SLOT_WAIT);
	slot.found = false;
	assert_int_equal(act(NULL), DECIDE_SLOT_CREATE);
	assert_int_equal(act(&p), DECIDE_SLOT_REFUSE);
	told("slot_lost", "queenctl connector resync my-src");
	assert_false(f.retryable);
}

static void
a_slot_of_another_kind_is_refused_even_while_it_is_used(void **state)
{
	(void)state;
	slot.active_pid = 7;
	slot.logical = false;
	slot_refused("slot_mismatch", "is a physical one");
	told("slot_mismatch", "SELECT pg_drop_replication_slot('s')");
	slot.logical = true;
	slot.plugin = SPAN_LIT("wal2json");
	slot_refused("slot_mismatch", "output plugin wal2json");
	slot.plugin = SPAN_LIT("pgoutput");
	slot.database = SPAN_LIT("other");
	slot_refused("slot_mismatch", "belongs to the database other");
	slot.database = database;
	slot.temporary = true;
	slot_refused("slot_mismatch", "temporary");
	slot.temporary = false;
	slot.two_phase = true;
	slot_refused("slot_mismatch", "two-phase");
}

static void
an_invalid_slot_says_what_keeps_it_from_happening(void **state)
{
	static const char *const why[][2] = {
		{ "wal_removed", "raise max_slot_wal_keep_size" },
		{ "idle_timeout", "raise idle_replication_slot_timeout" },
		{ "wal_level_insufficient", "keep wal_level at logical" },
		{ "rows_removed", "hot_standby_feedback" },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(why) / sizeof(why[0]); i++) {
		slot.invalidation = span_of(why[i][0]);
		slot_refused("slot_invalidated", why[i][1]);
		told("slot_invalidated", why[i][0]);
		told("slot_invalidated", "queenctl connector resync my-src");
	}
	slot.invalidation = (struct span)SPAN_ZERO;
	slot.wal_status = SPAN_LIT("lost");
	slot_refused(
		"slot_invalidated", "(lost): raise max_slot_wal_keep_size");
	slot.wal_status = SPAN_LIT("extended");
	assert_int_equal(act(&p), DECIDE_SLOT_USE);
	slot.has_confirmed = false;
	slot_refused("slot_invalidated", "(extended)");
}

/* ---- the pointer ---- */

static struct decide_system sys;

static int
pointer_of(void **state)
{
	slot_of(state);
	sys = (struct decide_system){ SPAN_LIT("7"), 1, 1000 };
	p.publication = SPAN_LIT("pub");
	return 0;
}

static int
judged(const char *slot_name, const char *publication)
{
	return decide_pointer(
		&p, &sys, span_of(slot_name), span_of(publication), name, &f);
}

static void
a_pointer_belongs_to_a_system_a_slot_and_a_publication(void **state)
{
	(void)state;
	assert_int_equal(judged("s", "pub"), 0);
	assert_int_equal(judged("s", "other"), 0);
	assert_int_equal(judged("z", "pub"), -1);
	told("slot_changed", "set source.slot back to it");
	p.place.in_txn = true;
	assert_int_equal(judged("s", "pub"), 0);
	assert_int_equal(judged("s", "other"), -1);
	told("slot_changed", "counted by the publication pub; set "
			     "source.publication back");
	p.publication = (struct span)SPAN_ZERO; /* an older pointer */
	assert_int_equal(judged("s", "other"), 0);
	sys.id = SPAN_LIT("8");
	assert_int_equal(judged("z", "pub"), -1);
	told("system_changed", "database system 7, the server is 8");
	assert_int_equal(decide_cell_changed(&p, name, &f), -1);
	told("cell_changed", "cell 0123456789ab");
	told("cell_changed", "queenctl connector adopt my-src");
	told("cell_changed", "queenctl connector reset my-src --yes");
}

static int
on_timeline(const char *history)
{
	return decide_timeline(&p, &sys, span_of(history), name, &f);
}

static void
a_pointer_is_held_against_the_servers_history(void **state)
{
	static const char history[] = "1\t0/64\tno recovery target specified\n"
				      "\n2\t0/C8\tat restore point \"2\"\n";
	(void)state;

	assert_false(decide_wants_history(&p, &sys));
	assert_int_equal(on_timeline(""), 0);
	sys.lsn = 99; /* not even a new timeline, and less than we have */
	assert_int_equal(on_timeline(""), -1);
	told("timeline_diverged", "the pointer 0/64 is beyond 0/63");

	sys = (struct decide_system){ SPAN_LIT("7"), 3, 1000 };
	assert_true(decide_wants_history(&p, &sys));
	assert_int_equal(on_timeline(history), 0);
	p.place.lsn = 101;
	assert_int_equal(on_timeline(history), -1);
	told("timeline_diverged", "the pointer 0/65 is beyond 0/64");
	told("timeline_diverged", "synchronized_standby_slots");
	p.timeline = 2;
	assert_int_equal(on_timeline(history), 0);
	p.timeline = 4;
	assert_int_equal(on_timeline(history), -1);
	told("timeline_diverged", "does not hold timeline 4");
	p.timeline = 0; /* written before timelines were kept */
	assert_false(decide_wants_history(&p, &sys));
	assert_int_equal(on_timeline(""), 0);
	/* back on the first one, which has no history */
	sys.timeline = 1;
	p.timeline = 2;
	assert_false(decide_wants_history(&p, &sys));
	assert_int_equal(on_timeline(""), -1);
	told("timeline_diverged", "timeline 1, whose history does not hold");
}

static void
a_resync_is_carried_out_once(void **state)
{
	struct span none = SPAN_ZERO,
		    a = SPAN_LIT("2026-10-02T11:00:00.000000Z"),
		    b = SPAN_LIT("2026-10-02T11:00:00.000001Z");
	struct arena arena = ARENA_ZERO;
	(void)state;

	assert_false(decide_resync_due(none, none));
	assert_false(decide_resync_due(none, a));
	assert_true(decide_resync_due(a, none));
	assert_false(decide_resync_due(a, a));
	assert_true(decide_resync_due(b, a));
	assert_false(decide_resync_due(a, b));
	assert_true(decide_resync_due(a, SPAN_LIT("when")));
	assert_false(decide_resync_due(SPAN_LIT("when"), a));
	/* also when the rest of the pointer is not understood */
	assert_true(span_eq(
		decide_resynced_at(
			SPAN_LIT("{\"v\":9,\"resyncedAt\":\"2026-10-02T11:00:"
				 "00.000000Z\",\"lsn\":[]}"),
			&arena),
		a));
	assert_int_equal(decide_resynced_at(SPAN_LIT("[1]"), &arena).n, 0);
	assert_int_equal(
		decide_resynced_at(SPAN_LIT("{\"resyncedAt\":1}"), &arena).n,
		0);
	arena_fini(&arena);
}

#define WITH(setup, fn) cmocka_unit_test_setup(fn, setup)

/* Another key is another order: what lies behind a place in it is unknown. */
static void
a_copy_goes_on_by_the_key_it_was_begun_with(void **state)
{
	struct span label = SPAN_LIT("public.T");
	struct pointer_key keys[1] = { { .columns = SPAN_LIT("id") } }, k;
	struct pointer q = { .tables = &label,
		.tables_n = 1,
		.place = { .in_snapshot = true,
			.has_after = true,
			.after = SPAN_LIT("7") } };
	struct arena a = ARENA_ZERO;

	(void)state;
	/* a pointer that does not say which key it was */
	assert_int_equal(decide_after(&q, &t, name, &a, &f), 0);
	/* one that names its columns alone */
	q.keys = keys;
	assert_int_equal(decide_after(&q, &t, name, &a, &f), 0);
	columns[1].key_pos = 2;
	columns[1].order = SPAN_LIT("text collate pg_catalog.\"C\"");
	k = decide_pointer_key(&t, &a);
	assert_true(span_eq(k.columns, SPAN_LIT("id\0a")));
	assert_true(span_eq(
		k.types, SPAN_LIT("integer\0text collate pg_catalog.\"C\"")));
	assert_int_equal(decide_after(&q, &t, name, &a, &f), -1);
	told("relation_changed", "the key of public.T changed");
	told("relation_changed", "queenctl connector resync my-src");
	assert_false(f.retryable);
	q.keys = NULL;
	assert_int_equal(decide_after(&q, &t, name, &a, &f), -1);
	q.place.after = SPAN_LIT("7\0x");
	assert_int_equal(decide_after(&q, &t, name, &a, &f), 0);
	q.keys = keys;
	assert_int_equal(decide_after(&q, &t, name, &a, &f), -1);
	/* nothing of it is copied yet, or all of it */
	q.place.has_after = false;
	assert_int_equal(decide_after(&q, &t, name, &a, &f), 0);
	/* the same columns in another order */
	q.place.has_after = true;
	*keys = k;
	assert_int_equal(decide_after(&q, &t, name, &a, &f), 0);
	columns[1].order = SPAN_LIT("text collate pg_catalog.\"default\"");
	assert_int_equal(decide_after(&q, &t, name, &a, &f), -1);
	told("relation_changed", "the key of public.T changed");
	columns[1].order = SPAN_LIT("text collate pg_catalog.\"C\"");
	columns[0].order = SPAN_LIT("text collate pg_catalog.\"C\"");
	assert_int_equal(decide_after(&q, &t, name, &a, &f), -1);
	q.place = (struct pointer_place){ .has_after = true };
	assert_int_equal(decide_after(&q, &t, name, &a, &f), 0);
	arena_fini(&a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(servers_need_15_and_logical_wal),
		WITH(table_of, tables_must_exist_and_log_their_changes),
		WITH(table_of, tables_need_an_identity_with_a_key),
		WITH(table_of, every_leaf_must_log_what_the_root_needs),
		WITH(table_of, partitions_are_named_by_what_a_delete_brings),
		WITH(table_of, keys_and_partitions_must_be_published),
		WITH(pub_of, a_managed_publication_is_made_and_kept_equal),
		WITH(pub_of, any_other_publication_is_told_what_it_lacks),
		WITH(pub_of, who_may_not_write_it_is_told_who_must),
		WITH(slot_of,
			a_slot_is_made_adopted_or_used_and_never_made_anew),
		WITH(slot_of,
			a_slot_of_another_kind_is_refused_even_while_it_is_used),
		WITH(slot_of,
			an_invalid_slot_says_what_keeps_it_from_happening),
		WITH(pointer_of,
			a_pointer_belongs_to_a_system_a_slot_and_a_publication),
		WITH(table_of, a_copy_goes_on_by_the_key_it_was_begun_with),
		WITH(pointer_of, a_pointer_is_held_against_the_servers_history),
		cmocka_unit_test(a_resync_is_carried_out_once),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);

	buf_fini(&sql);
	return rc;
}
