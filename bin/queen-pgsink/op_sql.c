/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statements.  Rows come as JSON and are read by json_to_record(set) with
 * the columns' own types: what the payload does not name is not looked at,
 * not even by domains that are NOT NULL, and no value passes through jsonb,
 * which knows no -0, spacing or repeated keys.
 */
#include "buf.h"
#include "op_int.h"
#include "pgquote.h"

/* The target as `t`, the row as `n`, the old key or row as `o`. */
struct text {
	const struct plan *p;
	const uint64_t *set;
	struct buf *sql;
};

static void
put_table(struct text *t)
{
	pgquote_table(t->sql, t->p->doc->table.schema, t->p->doc->table.name);
}

/* A comma before all but the first item of a list that began at from. */
static void
next_item(struct text *t, size_t from)
{
	if (t->sql->len > from)
		buf_puts(t->sql, ", ");
}

static void
put_of(struct text *t, char alias, size_t column)
{
	buf_putc(t->sql, alias);
	buf_putc(t->sql, '.');
	pgquote_ident(t->sql, t->p->columns[column].name);
}

/* `"a", "b"` */
static void
put_names(struct text *t)
{
	size_t from = t->sql->len;

	for (size_t i = 0; i < t->p->columns_n; i++)
		if (op_has(t->set, i)) {
			next_item(t, from);
			pgquote_ident(t->sql, t->p->columns[i].name);
		}
}

static void
put_key_names(struct text *t)
{
	size_t from = t->sql->len;

	for (size_t i = 0; i < t->p->key_n; i++) {
		next_item(t, from);
		pgquote_ident(t->sql, t->p->columns[t->p->key[i]].name);
	}
}

static void
put_definition(struct text *t, size_t column)
{
	const struct plan_column *c = &t->p->columns[column];

	pgquote_ident(t->sql, c->name);
	buf_putc(t->sql, ' ');
	buf_put_span(
		t->sql, c->verbatim ? SPAN_LIT("pg_catalog.text") : c->type);
}

static void
put_row(struct text *t, const char *function)
{
	size_t from;

	buf_printf(
		t->sql, "pg_catalog.%s($1::pg_catalog.json) as n(", function);
	from = t->sql->len;
	for (size_t i = 0; i < t->p->columns_n; i++)
		if (op_has(t->set, i)) {
			next_item(t, from);
			put_definition(t, i);
		}
	buf_putc(t->sql, ')');
}

static void
put_old_key(struct text *t, const char *json)
{
	size_t from;

	buf_printf(t->sql, "pg_catalog.json_to_record(%s) as o(", json);
	from = t->sql->len;
	for (size_t i = 0; i < t->p->key_n; i++) {
		next_item(t, from);
		put_definition(t, t->p->key[i]);
	}
	buf_putc(t->sql, ')');
}

static void
put_where(struct text *t)
{
	for (size_t i = 0; i < t->p->key_n; i++) {
		buf_puts(t->sql, i ? " and " : " where ");
		put_of(t, 't', t->p->key[i]);
		buf_puts(t->sql, " = ");
		put_of(t, 'o', t->p->key[i]);
	}
}

/* Text is assigned to other text by itself, checked for length. */
static void
put_value_of(struct text *t, size_t column)
{
	const struct plan_column *c = &t->p->columns[column];

	put_of(t, 'n', column);
	if (c->verbatim && span_is(c->type, "json"))
		buf_puts(t->sql, "::pg_catalog.json");
}

static void
put_values(struct text *t)
{
	size_t from = t->sql->len;

	for (size_t i = 0; i < t->p->columns_n; i++)
		if (op_has(t->set, i)) {
			next_item(t, from);
			put_value_of(t, i);
		}
}

/* ---- each kind ---- */

static void
insert(struct text *t, const char *function)
{
	buf_puts(t->sql, "insert into ");
	put_table(t);
	buf_puts(t->sql, " (");
	put_names(t);
	buf_puts(t->sql, ") overriding system value select ");
	put_values(t);
	buf_puts(t->sql, " from ");
	put_row(t, function);
}

static void
upsert(struct text *t)
{
	size_t from;

	insert(t, "json_to_record");
	buf_puts(t->sql, " on conflict (");
	put_key_names(t);
	buf_puts(t->sql, ") do ");
	from = t->sql->len;
	for (size_t i = 0; i < t->p->columns_n; i++) {
		const struct plan_column *c = &t->p->columns[i];

		if (!op_has(t->set, i) || c->is_key || c->identity_always)
			continue;
		buf_puts(t->sql, t->sql->len > from ? ", " : "update set ");
		pgquote_ident(t->sql, c->name);
		buf_puts(t->sql, " = excluded.");
		pgquote_ident(t->sql, c->name);
	}
	if (t->sql->len == from)
		buf_puts(t->sql, "nothing");
}

static void
erase(struct text *t, const char *json)
{
	buf_puts(t->sql, "delete from ");
	put_table(t);
	buf_puts(t->sql, " as t using ");
	put_old_key(t, json);
	put_where(t);
}

static void
move(struct text *t)
{
	const char *between = " set ";

	buf_puts(t->sql, "update ");
	put_table(t);
	buf_puts(t->sql, " as t");
	for (size_t i = 0; i < t->p->columns_n; i++) {
		if (!op_has(t->set, i) || t->p->columns[i].identity_always)
			continue;
		buf_puts(t->sql, between);
		pgquote_ident(t->sql, t->p->columns[i].name);
		buf_puts(t->sql, " = ");
		put_value_of(t, i);
		between = ", ";
	}
	buf_puts(t->sql, " from ");
	put_row(t, "json_to_record");
	buf_puts(t->sql, ", ");
	put_old_key(t, "$2::pg_catalog.json");
	put_where(t);
}

/* An identity column cannot be updated, but it can be inserted. */
static void
move_identity(struct text *t)
{
	size_t from;

	buf_puts(t->sql, "with o as (");
	erase(t, "$2::pg_catalog.json");
	buf_puts(t->sql, " returning t.*) insert into ");
	put_table(t);
	buf_puts(t->sql, " (");
	from = t->sql->len;
	for (size_t i = 0; i < t->p->columns_n; i++)
		if (!t->p->columns[i].generated) {
			next_item(t, from);
			pgquote_ident(t->sql, t->p->columns[i].name);
		}
	buf_puts(t->sql, ") overriding system value select ");
	from = t->sql->len;
	for (size_t i = 0; i < t->p->columns_n; i++) {
		if (t->p->columns[i].generated)
			continue;
		next_item(t, from);
		if (op_has(t->set, i))
			put_value_of(t, i);
		else
			put_of(t, 'o', i);
	}
	buf_puts(t->sql, " from o, ");
	put_row(t, "json_to_record");
}

void
op_sql(const struct plan *p, const struct op *o, struct buf *sql)
{
	struct text t = { .p = p, .set = op_columns(o), .sql = sql };

	switch (o->kind) {
	case OP_INSERT:
		insert(&t, "json_to_recordset");
		break;
	case OP_UPSERT:
		upsert(&t);
		break;
	case OP_MOVE:
		if (p->key_is_identity)
			move_identity(&t);
		else
			move(&t);
		break;
	case OP_DELETE:
		erase(&t, "$1::pg_catalog.json");
		break;
	case OP_TRUNCATE:
		buf_puts(sql, "truncate ");
		put_table(&t);
		break;
	case OP_STATEMENT:
		buf_put_span(sql, p->doc->statement);
		break;
	}
}

void
op_sql_probe(const struct plan *p, struct buf *sql)
{
	struct text t = { .p = p, .sql = sql };

	buf_puts(sql, "explain insert into ");
	put_table(&t);
	buf_puts(sql, " (");
	put_key_names(&t);
	buf_puts(sql, ") overriding system value select * from ");
	put_old_key(&t, "'{}'::pg_catalog.json");
	buf_puts(sql, " on conflict (");
	put_key_names(&t);
	buf_puts(sql, ") do nothing");
}
