/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables: which key their rows are told apart by, and whether every change
 * will name it.  Asked before a table is published, because publishing one
 * without an identity makes the application's own updates fail.
 */
#include "arena.h"
#include "buf.h"
#include "conndoc.h"
#include "connfault.h"
#include "decide.h"
#include "pgquote.h"

enum { KIND_TABLE = 'r', KIND_PARTITIONED = 'p', KIND_FOREIGN = 'f' };
enum {
	IDENTITY_DEFAULT = 'd',
	IDENTITY_FULL = 'f',
	IDENTITY_INDEX = 'i',
	IDENTITY_NOTHING = 'n'
};

/* `"schema"."name"` for a sentence; the buffer is ended by a zero byte. */
static const char *
quoted(struct buf *b, struct span schema, struct span name)
{
	buf_reset(b);
	pgquote_table(b, schema, name);
	buf_putc(b, '\0');
	return b->p;
}

const struct decide_column *
decide_key(const struct decide_table *t, size_t pos)
{
	for (size_t i = 0; i < t->columns_n; i++)
		if (t->columns[i].key_pos == pos + 1)
			return &t->columns[i];
	return NULL;
}

struct pointer_key
decide_pointer_key(const struct decide_table *t, struct arena *a)
{
	struct buf columns = BUF_ZERO, types = BUF_ZERO;
	const struct decide_column *c;
	struct pointer_key key;

	for (size_t i = 0; (c = decide_key(t, i)); i++) {
		if (i > 0) {
			buf_putc(&columns, '\0');
			buf_putc(&types, '\0');
		}
		buf_put_span(&columns, c->name);
		buf_put_span(&types, c->order);
	}
	key.columns = arena_dup(a, buf_span(&columns));
	key.types = arena_dup(a, buf_span(&types));
	buf_fini(&columns);
	buf_fini(&types);
	return key;
}

static const struct decide_column *
column(const struct decide_table *t, struct span name)
{
	for (size_t i = 0; i < t->columns_n; i++)
		if (span_eq(t->columns[i].name, name))
			return &t->columns[i];
	return NULL;
}

/* ---- is it a table whose changes are logged? ---- */

static const char *
other_kind(char kind)
{
	switch (kind) {
	case 'v':
		return "a view";
	case 'm':
		return "a materialized view";
	case 'f':
		return "a foreign table";
	case 'S':
		return "a sequence";
	case 'i':
	case 'I':
		return "an index";
	default:
		return "no table";
	}
}

static int
exists(const struct conndoc_table *want, const struct decide_table *t,
	struct buf *q, struct connfault *f)
{
	struct span name = want->table.text;

	if (!t->found)
		return connfault_set(f, "table_missing", false,
			"source.tables: there is no table %s; create it, or "
			"write the name as the catalogue has it, upper and "
			"lower case too",
			quoted(q, t->schema, t->name));
	if (t->kind != KIND_TABLE && t->kind != KIND_PARTITIONED)
		return connfault_set(f, "table_missing", false,
			"source.tables: %.*s is %s, which has no changes of "
			"its own; name the table behind it",
			SPAN_ARG(name), other_kind(t->kind));
	if (t->persistence != 'p')
		return connfault_set(f, "table_missing", false,
			"source.tables: the changes of %.*s are not logged; "
			"run ALTER TABLE %s SET LOGGED",
			SPAN_ARG(name), quoted(q, t->schema, t->name));
	if (t->ancestor.n)
		return connfault_set(f, "publication", false,
			"source.tables: %.*s is a partition of %.*s, which is "
			"named too and brings its rows; leave one of them out",
			SPAN_ARG(name), SPAN_ARG(t->ancestor));
	return 0;
}

/* ---- identity ---- */

static int
without(const struct conndoc_table *want, const char *what, const char *fix,
	struct connfault *f)
{
	return connfault_set(f, "replica_identity", false,
		"source.tables: %.*s has %s; %s", SPAN_ARG(want->table.text),
		what, fix);
}

static int
identity(const struct conndoc_table *want, const struct decide_table *t,
	struct buf *q, struct connfault *f)
{
	bool has_key = decide_key(t, 0) != NULL;
	const char *name = quoted(q, t->schema, t->name);
	struct buf fix = BUF_ZERO;
	int rc = 0;

	if (t->identity == IDENTITY_NOTHING) {
		buf_printf(&fix,
			"run ALTER TABLE %s REPLICA IDENTITY DEFAULT%c", name,
			'\0');
		rc = without(want,
			"replica identity NOTHING, and once published its "
			"updates and deletes would fail",
			fix.p, f);
	} else if (!has_key) {
		buf_printf(&fix,
			"run ALTER TABLE %s ADD PRIMARY KEY (...), or ALTER "
			"TABLE %s REPLICA IDENTITY USING INDEX with a unique "
			"index on columns that are not null%c",
			name, name, '\0');
		rc = without(want,
			t->identity == IDENTITY_INDEX
				? "lost the index of its replica identity"
			: t->identity == IDENTITY_FULL
				? "replica identity FULL but no primary key "
				  "that is checked at once, by which its rows "
				  "are told apart"
				: "no primary key that is checked at once",
			fix.p, f);
	}
	buf_fini(&fix);
	return rc;
}

/* An old row comes as its partition logs it, whatever the root says. */
static int
leaf(const struct conndoc_table *want, const struct decide_table *t,
	const struct decide_leaf *l, struct buf *q, struct connfault *f)
{
	const char *name = quoted(q, l->schema, l->name);

	if (l->kind == KIND_FOREIGN)
		return connfault_set(f, "table_missing", false,
			"source.tables: %.*s has the foreign partition %s, "
			"whose changes are not logged here; detach it, or "
			"name the other partitions",
			SPAN_ARG(want->table.text), name);
	if (l->covers &&
		(t->identity != IDENTITY_FULL || l->identity == IDENTITY_FULL))
		return 0;
	return connfault_set(f, "replica_identity", false,
		"source.tables: the partition %s of %.*s logs %s; run ALTER "
		"TABLE %s REPLICA IDENTITY %s",
		name, SPAN_ARG(want->table.text),
		l->identity == IDENTITY_NOTHING
			? "nothing of a changed row"
			: "less of a changed row than its table needs",
		name, t->identity == IDENTITY_DEFAULT ? "DEFAULT" : "FULL");
}

/* ---- partitionBy ---- */

static int
by_column(const struct conndoc_table *want, const struct decide_table *t,
	struct span name, struct buf *q, struct connfault *f)
{
	const struct decide_column *c = column(t, name);

	if (!c)
		return connfault_set(f, "partition_by", false,
			"partitionBy: %.*s has no column %.*s; name one of "
			"its columns, upper and lower case too",
			SPAN_ARG(want->table.text), SPAN_ARG(name));
	if (c->key_pos || t->identity == IDENTITY_FULL)
		return 0;
	return connfault_set(f, "partition_by", false,
		"partitionBy: %.*s is not part of the key of %.*s, so a delete "
		"could not name its partition; use columns of the key, or run "
		"ALTER TABLE %s REPLICA IDENTITY FULL",
		SPAN_ARG(name), SPAN_ARG(want->table.text),
		quoted(q, t->schema, t->name));
}

static int
check(const struct conndoc_table *want, const struct decide_table *t,
	struct buf *q, struct connfault *f)
{
	if (exists(want, t, q, f) != 0 || identity(want, t, q, f) != 0)
		return -1;
	for (size_t i = 0; i < t->leaves_n; i++)
		if (leaf(want, t, &t->leaves[i], q, f) != 0)
			return -1;
	if (want->by != CONNDOC_BY_COLUMNS)
		return 0;
	for (size_t i = 0; i < want->columns.n; i++)
		if (by_column(want, t, want->columns.p[i], q, f) != 0)
			return -1;
	return 0;
}

int
decide_table(const struct conndoc_table *want, const struct decide_table *t,
	struct connfault *f)
{
	struct buf q = BUF_ZERO;
	int rc = check(want, t, &q, f);

	buf_fini(&q);
	return rc;
}

/* ---- what may be read ---- */

static bool
may_read(const struct conndoc_source *want, const struct decide_table *t)
{
	for (size_t i = 0; i < t->columns_n; i++) {
		const struct decide_column *c = &t->columns[i];
		bool copied = c->published ||
			      (want->manage_publication && !c->generated);

		if (copied && !c->may_read)
			return false;
	}
	return true;
}

/* Is the schema of table number n one that a table before it told of? */
static bool
told_schema(const struct decide_table *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (span_eq(t[i].schema, t[n].schema))
			return true;
	return false;
}

static void
put_grants(struct buf *b, const struct conndoc_source *want,
	const struct decide_table *t, struct span role)
{
	for (size_t i = 0; i < want->tables_n; i++) {
		if (!t[i].may_enter && !told_schema(t, i)) {
			buf_puts(b, "; GRANT USAGE ON SCHEMA ");
			pgquote_ident(b, t[i].schema);
			buf_puts(b, " TO ");
			pgquote_ident(b, role);
		}
		if (!may_read(want, &t[i])) {
			buf_puts(b, "; GRANT SELECT ON ");
			pgquote_table(b, t[i].schema, t[i].name);
			buf_puts(b, " TO ");
			pgquote_ident(b, role);
		}
	}
}

int
decide_readable(const struct conndoc_source *want, const struct decide_table *t,
	struct span role, struct connfault *f)
{
	struct buf b = BUF_ZERO;
	size_t i = 0;

	while (i < want->tables_n && t[i].may_enter && may_read(want, &t[i]))
		i++;
	if (i == want->tables_n)
		return 0;
	put_grants(&b, want, t, role);
	/* as the server would say it, had it been asked for a row */
	connfault_set(f, "postgres", false,
		"42501: the role may not read %.*s, which is copied; run: %.*s",
		SPAN_ARG(want->tables[i].table.text), (int)b.len - 2, b.p + 2);
	buf_fini(&b);
	return -1;
}

/* ---- what is published ---- */

static int
unpublished(const struct conndoc_table *want, const struct decide_column *c,
	const char *role, struct span publication, struct connfault *f)
{
	return connfault_set(f, "publication", false,
		"the publication %.*s does not carry the column %.*s of %.*s, "
		"which is %s; %s",
		SPAN_ARG(publication), SPAN_ARG(c->name),
		SPAN_ARG(want->table.text), role,
		c->generated ? "it is generated, use another column"
			     : "publish the whole table");
}

int
decide_published(const struct conndoc_table *want, const struct decide_table *t,
	struct span publication, struct connfault *f)
{
	const struct decide_column *c;

	for (size_t i = 0; (c = decide_key(t, i)); i++)
		if (!c->published)
			return unpublished(
				want, c, "part of its key", publication, f);
	if (want->by != CONNDOC_BY_COLUMNS)
		return 0;
	for (size_t i = 0; i < want->columns.n; i++) {
		c = column(t, want->columns.p[i]);
		if (c && !c->published)
			return unpublished(
				want, c, "in partitionBy", publication, f);
	}
	return 0;
}
