/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables and publication as the catalogue has them.  What the stream carries
 * of a table is asked of pg_publication_tables, the way the server itself
 * resolves schemas, partition roots and column lists.
 */
#include "catalog.h"

#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "catalog_int.h"
#include "conndoc.h"
#include "connfault.h"
#include "pgquote.h"
#include "pgtext.h"

/* ---- results ---- */

bool
catalog_shape(
	PGresult *const *res, int n, int at, int columns, struct connfault *f)
{
	if (at < n && PQresultStatus(res[at]) == PGRES_TUPLES_OK &&
		PQnfields(res[at]) >= columns)
		return true;
	connfault_set(f, "io", true,
		"the server's answer has not the shape that was asked for");
	return false;
}

/* ---- texts ---- */

/*
 * The index whose columns tell rows of a relation apart.  One that is checked
 * at the end of a transaction is none: within it two rows may have one key,
 * and what became of the first would be taken for the second.
 */
#define KEY_INDEX(rel, as)                                                     \
	"left join lateral (select i.indkey, i.indnkeyatts"                    \
	" from pg_catalog.pg_index i where i.indrelid = " rel ".oid"           \
	" and i.indisvalid and i.indimmediate and case " rel ".relreplident"   \
	" when 'i' then i.indisreplident else i.indisprimary end"              \
	" limit 1) " as " on true"

/* Names of an index's key columns. */
#define KEY_NAMES(rel, as)                                                     \
	"select ka.attname from pg_catalog.unnest(" as ".indkey::int2[])"      \
	" with ordinality kx(attnum, pos) join pg_catalog.pg_attribute ka"     \
	" on ka.attrelid = " rel ".oid and ka.attnum = kx.attnum"              \
	" where kx.pos <= " as ".indnkeyatts"

#define REL                                                                    \
	"(pg_catalog.pg_class c join pg_catalog.pg_namespace ns"               \
	" on ns.oid = c.relnamespace) on ns.nspname = w.s and c.relname = w.t"

static void
put_wanted(struct buf *b, const struct conndoc_source *want)
{
	buf_puts(b, "with w(n, s, t) as (values ");
	for (size_t i = 0; i < want->tables_n; i++) {
		const struct conndoc_name *t = &want->tables[i].table;

		buf_printf(b, "%s(%zu, ", i ? ", " : "", i);
		pgquote_text(b, t->schema);
		buf_puts(b, "::text, ");
		pgquote_text(b, t->name);
		buf_puts(b, "::text)");
	}
	buf_puts(b, ") ");
}

/* The view is read once: joined it would be read for each table. */
static void
put_published(struct buf *b, struct span publication)
{
	buf_puts(b, ", v as materialized (select * from "
		    "pg_catalog.pg_publication_tables where pubname = ");
	pgquote_text(b, publication);
	buf_puts(b, ") ");
}

static void
publication_sql(struct buf *b, const struct conndoc_source *want,
	struct span publication)
{
	put_wanted(b, want);
	buf_puts(b,
		"select p.puballtables, exists (select from "
		"pg_catalog.pg_publication_namespace x "
		"where x.pnpubid = p.oid), p.pubinsert, p.pubupdate, "
		"p.pubdelete, p.pubtruncate, p.pubviaroot, "
		"coalesce(pg_catalog.to_jsonb(p) ->> 'pubgencols', 'n') <> "
		"'n', (select pg_catalog.count(*) from "
		"pg_catalog.pg_publication_rel r where r.prpubid = p.oid and "
		"not exists (select from w join " REL
		" where c.oid = r.prrelid)) "
		"from pg_catalog.pg_publication p where p.pubname = ");
	pgquote_text(b, publication);
	buf_putc(b, ';');
}

static void
relations_sql(struct buf *b, const struct conndoc_source *want,
	struct span publication)
{
	put_wanted(b, want);
	put_published(b, publication);
	buf_puts(b,
		"select w.n, c.oid, c.relkind, c.relpersistence, "
		"c.relreplident, exists (select from pg_catalog.pg_inherits x "
		"where x.inhparent = c.oid), (select a.s || '.' || a.t from "
		"pg_catalog.pg_partition_ancestors(c.oid) pa "
		"join pg_catalog.pg_class ac on ac.oid = pa.relid "
		"join pg_catalog.pg_namespace an on an.oid = ac.relnamespace "
		"join w a on a.s = an.nspname and a.t = ac.relname "
		"where pa.relid <> c.oid limit 1), r.oid is not null, "
		"r.prattrs is not null, v.tablename is not null, "
		"coalesce(v.rowfilter, "
		"pg_catalog.pg_get_expr(r.prqual, r.prrelid)), "
		"pg_catalog.has_schema_privilege(ns.oid, 'USAGE') "
		"from w left join " REL
		" left join (pg_catalog.pg_publication_rel r "
		"join pg_catalog.pg_publication p on p.oid = r.prpubid "
		"and p.pubname = ");
	pgquote_text(b, publication);
	buf_puts(b, ") on r.prrelid = c.oid "
		    "left join v on v.schemaname = w.s "
		    "and v.tablename = w.t order by w.n;");
}

/*
 * The schema of the operator that orders values of a column's base type: what
 * an extension brought is found by no search_path of ours.
 */
#define OPERATORS                                                              \
	"(with recursive b(oid, base) as (select ty.oid, ty.typbasetype "      \
	"from pg_catalog.pg_type ty where ty.oid = a.atttypid union all "      \
	"select ty.oid, ty.typbasetype from b join pg_catalog.pg_type ty "     \
	"on ty.oid = b.base) select pn.nspname from b "                        \
	"join pg_catalog.pg_opclass oc on oc.opcintype = b.oid "               \
	"and oc.opcdefault join pg_catalog.pg_amop ao "                        \
	"on ao.amopfamily = oc.opcfamily and ao.amopstrategy = 5 "             \
	"and ao.amoplefttype = oc.opcintype "                                  \
	"and ao.amoprighttype = oc.opcintype "                                 \
	"join pg_catalog.pg_am am on am.oid = ao.amopmethod "                  \
	"and am.amname = 'btree' join pg_catalog.pg_operator op "              \
	"on op.oid = ao.amopopr join pg_catalog.pg_namespace pn "              \
	"on pn.oid = op.oprnamespace where b.base = 0 "                        \
	"and pn.nspname <> 'pg_catalog' limit 1)"

/* Up to 17 the server names generated columns, and does not send them. */
static void
columns_sql(struct buf *b, const struct conndoc_source *want,
	struct span publication)
{
	put_wanted(b, want);
	put_published(b, publication);
	buf_puts(b,
		"select w.n, a.attname, "
		"pg_catalog.format_type(a.atttypid, a.atttypmod), "
		"a.attgenerated <> '', coalesce(a.attname = any (v.attnames) "
		"and (a.attgenerated = '' or pg_catalog.current_setting("
		"'server_version_num')::int >= 180000), false), "
		"coalesce((select kx.pos from "
		"pg_catalog.unnest(k.indkey::int2[]) with ordinality "
		"kx(attnum, pos) where kx.attnum = a.attnum and kx.pos <= "
		"k.indnkeyatts), 0), " OPERATORS ", "
		"pg_catalog.format_type(a.atttypid, null) || coalesce((select "
		"pg_catalog.format(' collate %I.%I', cn.nspname, co.collname) "
		"from pg_catalog.pg_collation co join pg_catalog.pg_namespace "
		"cn on cn.oid = co.collnamespace "
		"where co.oid = a.attcollation), ''), coalesce("
		"pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT'), "
		"true) from w join " REL
		" join pg_catalog.pg_attribute a on a.attrelid = c.oid "
		"and a.attnum > 0 and not a.attisdropped " KEY_INDEX(
			"c", "k") " left join v on v.schemaname = w.s "
				  "and v.tablename = w.t "
				  "where c.relkind in ('r', 'p') "
				  "order by w.n, a.attnum;");
}

/* Leaves that give cause for a refusal; of a thousand there may be none. */
static void
leaves_sql(struct buf *b, const struct conndoc_source *want)
{
	put_wanted(b, want);
	buf_puts(b,
		"select w.n, ln.nspname, l.relname, l.relkind, "
		"l.relreplident, x.covers from w join " REL
		" cross join lateral pg_catalog.pg_partition_tree(c.oid) pt "
		"join pg_catalog.pg_class l on l.oid = pt.relid "
		"join pg_catalog.pg_namespace ln on ln.oid = l.relnamespace " KEY_INDEX(
			"c", "k") " " KEY_INDEX("l",
			"lk") " cross join lateral (select case l.relreplident "
			      "when 'f' then true when 'n' then false else not exists (" KEY_NAMES(
				      "c", "k") " except " KEY_NAMES("l",
				      "lk") ") end as covers) x where c.relkind = 'p' and pt.isleaf "
					    "and (l.relkind = 'f' or not x.covers "
					    "or c.relreplident = 'f' and l.relreplident <> 'f') "
					    "order by w.n, ln.nspname, l.relname");
}

/*
 * A table that is there and not published whole, such as one that was dropped
 * and made again.  A publication that is gone is told by the server.  One of
 * all tables is not read: it may be of a hundred thousand.
 */
static void
put_uncarried(struct buf *b, const struct conndoc_source *want,
	struct span publication)
{
	buf_putc(b, '(');
	put_wanted(b, want);
	buf_puts(b, ", p as (select * from pg_catalog.pg_publication "
		    "where pubname = ");
	pgquote_text(b, publication);
	buf_puts(b, "), x as materialized (select v.schemaname, v.tablename, "
		    "v.rowfilter, pg_catalog.cardinality(v.attnames) as n "
		    "from pg_catalog.pg_publication_tables v "
		    "where not (select puballtables from p) and v.pubname = ");
	pgquote_text(b, publication);
	buf_puts(b, ") select w.s || '.' || w.t from p cross join w join " REL
		    " and c.relkind in ('r', 'p') left join x "
		    "on x.schemaname = w.s and x.tablename = w.t "
		    "where not (p.pubinsert and p.pubupdate and p.pubdelete) "
		    "or not p.puballtables and (x.tablename is null "
		    "or x.rowfilter is not null or x.n < (select "
		    "pg_catalog.count(*) from pg_catalog.pg_attribute a "
		    "where a.attrelid = c.oid and a.attnum > 0 and not "
		    "a.attisdropped and a.attgenerated = '')) limit 1)");
}

void
catalog_measure_sql(struct buf *b, struct span slot,
	const struct conndoc_source *want, struct span publication)
{
	buf_puts(b, "select pg_catalog.pg_wal_lsn_diff("
		    "pg_catalog.pg_current_wal_lsn(), s.confirmed_flush_lsn), "
		    "s.wal_status, s.confirmed_flush_lsn, ");
	put_uncarried(b, want, publication);
	buf_puts(b, " from pg_catalog.pg_replication_slots s "
		    "where s.slot_name = ");
	pgquote_text(b, slot);
}

void
catalog_tables_sql(struct buf *b, const struct conndoc_source *want,
	struct span publication)
{
	publication_sql(b, want, publication);
	relations_sql(b, want, publication);
	columns_sql(b, want, publication);
	leaves_sql(b, want);
}

/* ---- readers ---- */

enum { RES_PUBLICATION, RES_RELATIONS, RES_COLUMNS, RES_LEAVES };

static void
read_publication(const PGresult *r, struct decide_publication *p)
{
	if (PQntuples(r) == 0)
		return;
	p->found = true;
	p->all_tables = pgtext_bool(r, 0, 0);
	p->schemas = pgtext_bool(r, 0, 1);
	p->inserts = pgtext_bool(r, 0, 2);
	p->updates = pgtext_bool(r, 0, 3);
	p->deletes = pgtext_bool(r, 0, 4);
	p->truncates = pgtext_bool(r, 0, 5);
	p->via_root = pgtext_bool(r, 0, 6);
	p->generated = pgtext_bool(r, 0, 7);
	p->others = pgtext_i64(r, 0, 8);
}

static void
read_relation(
	const PGresult *r, int row, struct arena *a, struct decide_table *t)
{
	t->found = !PQgetisnull(r, row, 1);
	t->oid = (uint32_t)pgtext_i64(r, row, 1);
	t->kind = pgtext_char(r, row, 2);
	t->persistence = pgtext_char(r, row, 3);
	t->identity = pgtext_char(r, row, 4);
	t->has_children = pgtext_bool(r, row, 5);
	t->ancestor = pgtext_dup(r, row, 6, a);
	t->member = pgtext_bool(r, row, 7);
	t->listed = pgtext_bool(r, row, 8);
	t->published = pgtext_bool(r, row, 9);
	t->filter = pgtext_dup(r, row, 10, a);
	t->may_enter = pgtext_bool(r, row, 11);
}

/* Rows of each table, in column 0, which they are sorted by. */
static size_t
count(const PGresult *r, int row)
{
	int64_t table = pgtext_i64(r, row, 0);
	size_t n = 0;

	while (row < PQntuples(r) && pgtext_i64(r, row, 0) == table) {
		row++;
		n++;
	}
	return n;
}

static void
read_columns(const PGresult *r, struct arena *a, struct decide_table *t,
	size_t tables_n)
{
	int row = 0;

	while (row < PQntuples(r)) {
		size_t at = (size_t)pgtext_i64(r, row, 0), n = count(r, row);
		struct decide_column *c = arena_alloc(a, n * sizeof(*c));

		for (size_t i = 0; i < n; i++, row++)
			c[i] = (struct decide_column){
				.name = pgtext_dup(r, row, 1, a),
				.type = pgtext_dup(r, row, 2, a),
				.generated = pgtext_bool(r, row, 3),
				.published = pgtext_bool(r, row, 4),
				.key_pos = (size_t)pgtext_i64(r, row, 5),
				.operators = pgtext_dup(r, row, 6, a),
				.order = pgtext_dup(r, row, 7, a),
				.may_read = pgtext_bool(r, row, 8),
			};
		if (at < tables_n) {
			t[at].columns = c;
			t[at].columns_n = n;
		}
	}
}

static void
read_leaves(const PGresult *r, struct arena *a, struct decide_table *t,
	size_t tables_n)
{
	int row = 0;

	while (row < PQntuples(r)) {
		size_t at = (size_t)pgtext_i64(r, row, 0), n = count(r, row);
		struct decide_leaf *l = arena_alloc(a, n * sizeof(*l));

		for (size_t i = 0; i < n; i++, row++)
			l[i] = (struct decide_leaf){
				.schema = pgtext_dup(r, row, 1, a),
				.name = pgtext_dup(r, row, 2, a),
				.kind = pgtext_char(r, row, 3),
				.identity = pgtext_char(r, row, 4),
				.covers = pgtext_bool(r, row, 5),
			};
		if (at < tables_n) {
			t[at].leaves = l;
			t[at].leaves_n = n;
		}
	}
}

int
catalog_tables(PGresult *const *res, int n, const struct conndoc_source *want,
	struct span publication, struct arena *a, struct decide_table **out,
	struct decide_publication *p, struct connfault *f)
{
	struct decide_table *t = arena_zalloc(a, want->tables_n * sizeof(*t));

	*out = t;
	*p = (struct decide_publication){ .name = publication };
	if (!catalog_shape(res, n, RES_PUBLICATION, 9, f) ||
		!catalog_shape(res, n, RES_RELATIONS, 12, f) ||
		!catalog_shape(res, n, RES_COLUMNS, 9, f) ||
		!catalog_shape(res, n, RES_LEAVES, 6, f))
		return -1;
	read_publication(res[RES_PUBLICATION], p);
	for (size_t i = 0; i < want->tables_n; i++) {
		t[i].schema = want->tables[i].table.schema;
		t[i].name = want->tables[i].table.name;
	}
	for (int row = 0; row < PQntuples(res[RES_RELATIONS]); row++) {
		int64_t at = pgtext_i64(res[RES_RELATIONS], row, 0);

		if (at >= 0 && (size_t)at < want->tables_n)
			read_relation(res[RES_RELATIONS], row, a, &t[at]);
	}
	read_columns(res[RES_COLUMNS], a, t, want->tables_n);
	read_leaves(res[RES_LEAVES], a, t, want->tables_n);
	return 0;
}
