/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress rows.  A message counts as applied only when both its offset and
 * its time are at or below the row's: offsets alone come again when a cell is
 * restored or a standby behind takes over, times alone are equal within one
 * push.
 */
#include "progress.h"

#include <inttypes.h>

#include "buf.h"
#include "conndoc.h"
#include "connfault.h"
#include "pgquote.h"
#include "pgtext.h"

struct column {
	const char *name, *ddl;
	const char *types[3];
	bool is_new; /* tables of an earlier version lack it */
};

static const struct column columns[] = {
	{ "sink", "pg_catalog.text NOT NULL",
		{ "text", "pg_catalog.text", "character varying" }, false },
	{ "partition_id", "bigint NOT NULL", { "bigint" }, false },
	{ "partition", "pg_catalog.text NOT NULL",
		{ "text", "pg_catalog.text", "character varying" }, false },
	{ "last_offset", "bigint NOT NULL", { "bigint" }, false },
	{ "last_created_at", "pg_catalog.timestamptz",
		{ "timestamp with time zone", "timestamp without time zone" },
		true },
	{ "group_id", "bigint", { "bigint" }, true },
	{ "cell", "pg_catalog.text",
		{ "text", "pg_catalog.text", "character varying" }, true },
	{ "updated_at",
		"pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.now()",
		{ "timestamp with time zone", "timestamp without time zone" },
		false },
};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/*
 * ---- statements; @ is the table ----
 *
 * The role's search_path stays, sink.statement may count on it.  So whatever
 * is found by it is named with its schema here, operators too.
 */

#define EQ " operator(pg_catalog.=) "
#define NE " operator(pg_catalog.<>) "
#define IDS "::pg_catalog.int8[]"
#define TEXTS "::pg_catalog.text[]"

static const char *const sqls[PROGRESS_SQLS] = {
	/*
	 * Rows that are there are locked by an update that changes nothing:
	 * conflicts go by the key's index, always, while a plan made when the
	 * table was small would read all of it.  -1 is below every offset.
	 */
	[PROGRESS_LOCK] =
		"insert into @ as p (sink, partition_id, partition,"
		" last_offset, last_created_at, group_id, cell)"
		" select $1, u.id, u.name, -1, 'epoch', $4::bigint, $5"
		" from unnest($2" IDS ", $3" TEXTS ") u(id, name)"
		" order by u.id on conflict (sink, partition_id)"
		" do update set last_offset = p.last_offset"
		" returning partition_id, last_offset,"
		" case when pg_catalog.isfinite(last_created_at) then"
		" (extract(epoch from last_created_at)"
		" operator(pg_catalog.*) 1000000)::bigint end, group_id, cell",
	/*
	 * For the same reason no update.  A cell that went back in time uses
	 * ids again, for other names.
	 */
	[PROGRESS_MOVE] =
		"insert into @ (sink, partition_id, partition, last_offset,"
		" last_created_at, group_id, cell)"
		" select $1, u.id, u.name, u.at,"
		" pg_catalog.timestamptz 'epoch' operator(pg_catalog.+)"
		" (u.us operator(pg_catalog.*) interval '1 microsecond'),"
		" $5::bigint, $6 from unnest($2" IDS ", $3" IDS ", $4" IDS
		", $7" TEXTS ") u(id, at, us, name)"
		" on conflict (sink, partition_id) do update set"
		" last_offset = excluded.last_offset, last_created_at ="
		" excluded.last_created_at, group_id = excluded.group_id,"
		" cell = excluded.cell, partition = excluded.partition,"
		" updated_at = pg_catalog.now()",
	[PROGRESS_OTHERS] = "select cell from @ where sink" EQ "$1"
			    " and cell" NE "$2 limit 1",
	[PROGRESS_TAKE] = "select partition_id, partition from @"
			  " where sink" EQ "$1 and cell" NE "$2"
			  " order by partition_id for update",
	/* what stands under the new id was written by the cell of today */
	[PROGRESS_REKEY] =
		"with u as (select * from"
		" unnest($2" IDS ", $3" IDS ") u(was, id)),"
		" d as (delete from @ p using u"
		" where p.sink" EQ "$1 and p.partition_id" EQ "u.was returning"
		" u.id, p.partition, p.last_offset, p.last_created_at)"
		" insert into @ (sink, partition_id, partition, last_offset,"
		" last_created_at, group_id, cell)"
		" select $1, d.id, d.partition, d.last_offset,"
		" d.last_created_at, $4::bigint, $5 from d"
		" on conflict do nothing",
	[PROGRESS_DROP] = "delete from @ where sink" EQ "$1"
			  " and partition_id" EQ "any ($2" IDS ")",
};

/* Of the catalogue; @ is the table's oid. */
static const char *const asks[PROGRESS_SQLS] = {
	[PROGRESS_COLUMNS] =
		"select a.attname, pg_catalog.format_type(a.atttypid, null)"
		" from pg_catalog.pg_attribute a where a.attrelid = @"
		" and a.attnum > 0 and not a.attisdropped order by a.attnum",
	[PROGRESS_FACTS] =
		"select c.relkind in ('r', 'p'), exists (select"
		" from pg_catalog.pg_index i where i.indrelid = c.oid"
		" and i.indisprimary and i.indimmediate"
		" and i.indnkeyatts = 2 and 2 = (select pg_catalog.count(*)"
		" from pg_catalog.pg_attribute a"
		" where a.attrelid = c.oid and a.attnum ="
		" any ((i.indkey::pg_catalog.int2[])[0:1])"
		" and a.attname in ('sink', 'partition_id'))),"
		" pg_catalog.has_table_privilege(c.oid, 'SELECT'),"
		" pg_catalog.has_table_privilege(c.oid, 'INSERT'),"
		" pg_catalog.has_table_privilege(c.oid, 'UPDATE'),"
		" pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE')"
		" from pg_catalog.pg_class c where c.oid = @",
};

static void
put_table(const struct conndoc_name *table, struct buf *out)
{
	pgquote_table(out, table->schema, table->name);
}

/* Not regclass: a schema one may not use is an error there. */
static void
put_oid(const struct conndoc_name *table, struct buf *out)
{
	buf_puts(out, "(select c.oid from pg_catalog.pg_class c"
		      " join pg_catalog.pg_namespace n"
		      " on n.oid = c.relnamespace where n.nspname = ");
	pgquote_text(out, table->schema);
	buf_puts(out, " and c.relname = ");
	pgquote_text(out, table->name);
	buf_putc(out, ')');
}

static void
put_schema(const struct conndoc_name *table, struct buf *out)
{
	buf_puts(out, "CREATE SCHEMA IF NOT EXISTS ");
	pgquote_ident(out, table->schema);
}

static void
put_create(const struct conndoc_name *table, struct buf *out)
{
	buf_puts(out, "CREATE TABLE IF NOT EXISTS ");
	put_table(table, out);
	buf_puts(out, " (");
	for (size_t i = 0; i < COLUMNS; i++)
		buf_printf(out, "%s %s, ", columns[i].name, columns[i].ddl);
	buf_puts(out, "PRIMARY KEY (sink, partition_id))");
}

void
progress_sql(const struct conndoc_name *table, enum progress_sql which,
	struct buf *out)
{
	const char *p = sqls[which] ? sqls[which] : asks[which];

	if (which == PROGRESS_SCHEMA)
		put_schema(table, out);
	else if (which == PROGRESS_TABLE)
		put_create(table, out);
	for (; p && *p; p++) {
		if (*p != '@')
			buf_putc(out, *p);
		else if (sqls[which])
			put_table(table, out);
		else
			put_oid(table, out);
	}
}

/* ---- array literals ---- */

void
progress_array_open(struct buf *b)
{
	buf_putc(b, '{');
}

static void
separate(struct buf *b)
{
	if (b->p[b->len - 1] != '{')
		buf_putc(b, ',');
}

void
progress_array_i64(struct buf *b, int64_t v)
{
	separate(b);
	buf_printf(b, "%" PRId64, v);
}

void
progress_array_text(struct buf *b, struct span s)
{
	separate(b);
	buf_putc(b, '"');
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] == '"' || s.p[i] == '\\')
			buf_putc(b, '\\');
		buf_putc(b, s.p[i]);
	}
	buf_putc(b, '"');
}

void
progress_array_close(struct buf *b)
{
	buf_putc(b, '}');
}

/* ---- rows ---- */

static int64_t
number(const PGresult *res, int row, int col, int64_t none)
{
	return PQgetisnull(res, row, col) ? none : pgtext_i64(res, row, col);
}

void
progress_row_read(const PGresult *res, int i, struct progress_row *out)
{
	*out = (struct progress_row){ .partition_id = number(res, i, 0, 0),
		.offset = number(res, i, 1, -1),
		.created_at_us = number(res, i, 2, INT64_MAX),
		.group_id = number(res, i, 3, -1),
		.cell = pgtext_get(res, i, 4) };
}

enum progress_is
progress_begin(const struct progress_row *row, int64_t group_id,
	struct span cell, struct progress_at *at)
{
	*at = (struct progress_at){ .offset = row->offset,
		.created_at_us = row->created_at_us };
	if (row->cell.n > 0 && !span_eq(row->cell, cell))
		return PROGRESS_FOREIGN;
	if (row->group_id > group_id)
		return PROGRESS_NEWER;
	if (row->group_id >= 0 && row->group_id < group_id) {
		at->offset = -1;
		at->created_at_us = INT64_MIN;
	}
	return PROGRESS_OURS;
}

bool
progress_replay(struct progress_at *at, int64_t offset, int64_t created_at_us)
{
	if (offset <= at->offset && created_at_us <= at->created_at_us)
		return true;
	*at = (struct progress_at){
		.offset = offset, .created_at_us = created_at_us, .moved = true
	};
	return false;
}

/* ---- the table ---- */

int
progress_refuse(
	const struct conndoc_name *table, struct connfault *f, const char *why)
{
	struct buf b = BUF_ZERO;

	put_schema(table, &b);
	buf_puts(&b, "; ");
	put_create(table, &b);
	connfault_set(f, "progress_table", false, "%s %s; run: %.*s",
		"the progress table", why, (int)b.len, b.p);
	buf_fini(&b);
	return -1;
}

static const struct progress_column *
find(const struct progress_column *c, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (span_is(c[i].name, name))
			return &c[i];
	return NULL;
}

static bool
fits(const struct column *want, struct span type)
{
	for (size_t i = 0; i < 3 && want->types[i]; i++)
		if (span_is(type, want->types[i]))
			return true;
	return false;
}

static int
refuse_shape(
	const struct conndoc_name *table, const char *name, struct connfault *f)
{
	return connfault_set(f, "progress_table", false,
		"%.*s is no progress table: column %s is missing or of another "
		"type; name another sink.progressTable",
		SPAN_ARG(table->text), name);
}

static int
refuse_old(const struct conndoc_name *table, const struct progress_column *c,
	size_t n, struct connfault *f)
{
	struct buf b = BUF_ZERO;
	const char *comma = " ";

	put_table(table, &b);
	for (size_t i = 0; i < COLUMNS; i++) {
		if (!columns[i].is_new || find(c, n, columns[i].name))
			continue;
		buf_printf(&b, "%sADD COLUMN %s %s", comma, columns[i].name,
			columns[i].ddl);
		comma = ", ";
	}
	connfault_set(f, "progress_table", false,
		"the progress table is of an earlier version; run: "
		"ALTER TABLE %.*s",
		(int)b.len, b.p);
	buf_fini(&b);
	return -1;
}

int
progress_verify(const struct conndoc_name *table,
	const struct progress_column *c, size_t n, bool keyed,
	struct connfault *f)
{
	bool old = false;

	if (n == 0)
		return progress_refuse(table, f, "does not exist");
	for (size_t i = 0; i < COLUMNS; i++) {
		const struct progress_column *have =
			find(c, n, columns[i].name);

		if (have ? !fits(&columns[i], have->type) : !columns[i].is_new)
			return refuse_shape(table, columns[i].name, f);
		old |= !have;
	}
	if (!keyed)
		return connfault_set(f, "progress_table", false,
			"%.*s has no primary key (sink, partition_id); name "
			"another sink.progressTable",
			SPAN_ARG(table->text));
	return old ? refuse_old(table, c, n, f) : 0;
}
