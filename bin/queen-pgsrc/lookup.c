/* SPDX-License-Identifier: Apache-2.0 */
/* Looked up in the source, by the simple protocol as the copy is. */
#include "lookup.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "buf.h"
#include "err.h"
#include "pgquote.h"
#include "pgtext.h"
#include "pipeline.h"
#include "shape.h"
#include "snapshot.h"
#include "start.h"
#include "tuple.h"
#include "types.h"

/* typelem of what is subscripted otherwise (point, name) is no element. */
void
lookup_type_sql(struct buf *b, uint32_t oid)
{
	buf_printf(b,
		"select typtype, typdelim, typbasetype, case when typlen = -1 "
		"and typsubscript = 'pg_catalog.array_subscript_handler'"
		"::pg_catalog.regproc then typelem else 0 end "
		"from pg_catalog.pg_type where oid = %u",
		oid);
}

void
lookup_type(const PGresult *r, uint32_t oid, struct types_row *row)
{
	*row = (struct types_row){ .oid = oid };
	if (PQntuples(r) != 1)
		return;
	row->typtype = pgtext_char(r, 0, 0);
	row->delim = pgtext_char(r, 0, 1);
	row->base_oid = (uint32_t)pgtext_i64(r, 0, 2);
	row->elem_oid = (uint32_t)pgtext_i64(r, 0, 3);
}

/* ---- a row ---- */

static bool
is_missing(const struct pipeline_ask *ask, size_t column)
{
	return ask->row->d[column].state == DATUM_UNCHANGED;
}

static void
put_cast(struct buf *b, const struct shape_table *t,
	const struct start_table *about, struct span column)
{
	for (size_t i = 0; i < t->key_n; i++) {
		if (!span_eq(t->key[i], column))
			continue;
		buf_puts(b, "::");
		buf_put_span(b, about->key_types[i]);
	}
}

void
lookup_row_sql(struct buf *b, const struct pipeline_ask *ask,
	const struct start_table *about)
{
	const struct shape *s = ask->shape;
	const char *comma = "select ";

	buf_puts(b, "select pg_catalog.pg_current_snapshot(); ");
	for (size_t i = 0; i < s->n; i++) {
		if (!is_missing(ask, i))
			continue;
		buf_puts(b, comma);
		pgquote_ident(b, s->columns[i].name);
		comma = ", ";
	}
	buf_puts(b, about->partitioned ? " from " : " from only ");
	pgquote_table(b, s->table->schema, s->table->name);
	comma = " where ";
	for (size_t i = 0; i < s->key_n; i++) {
		const struct shape_column *c = &s->columns[s->key[i]];

		buf_puts(b, comma);
		pgquote_ident(b, c->name);
		buf_puts(b, " = ");
		pgquote_text(b, ask->row->d[s->key[i]].text);
		put_cast(b, s->table, about, c->name);
		comma = " and ";
	}
}

static void
take_row(const PGresult *r, const struct pipeline_ask *ask)
{
	int column = 0;

	if (PQntuples(r) != 1)
		return;
	for (size_t i = 0; i < ask->row->n && column < PQnfields(r); i++) {
		struct datum *d = &ask->row->d[i];

		if (!is_missing(ask, i))
			continue;
		d->state = PQgetisnull(r, 0, column) ? DATUM_NULL : DATUM_TEXT;
		d->text = pgtext_dup(r, 0, column, ask->arena);
		column++;
	}
}

/* A commit is in the WAL, and sent, before other sessions see it. */
static bool
is_visible(const PGresult *r, uint32_t xid)
{
	struct arena a = ARENA_ZERO;
	struct err e = ERR_ZERO;
	struct snapshot_seen seen;
	bool is =
		PQntuples(r) == 1 &&
		snapshot_seen_parse(pgtext_get(r, 0, 0), &a, &seen, &e) == 0 &&
		snapshot_sees(&seen, xid);

	arena_fini(&a);
	return is;
}

bool
lookup_row(PGresult *const *res, int n, uint32_t xid,
	const struct pipeline_ask *ask)
{
	if (n != 2)
		return true;
	if (!is_visible(res[0], xid))
		return false;
	take_row(res[1], ask);
	return true;
}

bool
lookup_is_in_vain(const char *sqlstate)
{
	return strncmp(sqlstate, "42", 2) == 0 ||
	       strncmp(sqlstate, "22", 2) == 0;
}
