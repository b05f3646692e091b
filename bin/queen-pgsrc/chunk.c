/* SPDX-License-Identifier: Apache-2.0 */
/* The SQL of a copy: names are quoted, keys are literals cast to their type. */
#include "chunk.h"

#include <inttypes.h>
#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "err.h"
#include "pgoutput.h"
#include "pgquote.h"
#include "pgtext.h"
#include "pipeline.h"
#include "snapshot.h"
#include "start.h"

/* ---- marks ---- */

/*
 * Before 17 nothing flushes a message by itself, and what is not flushed is
 * not sent: there the commit behind a second one does it.
 */
void
chunk_mark_sql(struct buf *b, const char *epoch, const char *mark, bool flush,
	int server_version)
{
	bool can_flush = server_version >= 170000;

	buf_printf(b,
		"select pg_catalog.pg_logical_emit_message(false, "
		"'queen:%s', '%s'%s)",
		epoch, mark, flush && can_flush ? ", true" : "");
	if (flush && !can_flush)
		buf_puts(b, "; select pg_catalog.pg_logical_emit_message(true,"
			    " 'queen', 'flush')");
}

/* ---- the table ---- */

static void
put_names(struct buf *b, const struct span *names, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			buf_puts(b, ", ");
		pgquote_ident(b, names[i]);
	}
}

static void
put_select(struct buf *b, const struct shape_table *t,
	const struct start_table *about)
{
	buf_puts(b, "select ");
	put_names(b, about->columns, about->columns_n);
	/* the rows of children are those of other tables to the stream */
	buf_puts(b, about->partitioned ? " from " : " from only ");
	pgquote_table(b, t->schema, t->name);
}

void
chunk_describe_sql(struct buf *b, const struct shape_table *t,
	const struct start_table *about)
{
	put_select(b, t, about);
	buf_puts(b, " limit 0");
}

/* As if identity were FULL: the key is the configured one, in its order. */
enum shape_result
chunk_shape(const PGresult *r, const struct shape_table *t, struct types *types,
	struct shape **s, uint32_t **oids, struct arena *a, uint32_t *ask,
	struct err *e)
{
	size_t n = (size_t)PQnfields(r);
	struct pgoutput_relation rel = { .schema = t->schema,
		.name = t->name,
		.identity = 'f',
		.columns = arena_zalloc(a, n * sizeof(*rel.columns)),
		.n = n };

	*oids = arena_alloc(a, n * sizeof(**oids));
	for (size_t i = 0; i < n; i++) {
		struct pgoutput_column *c = &rel.columns[i];

		c->name = span_of(PQfname(r, (int)i));
		c->type_oid = PQftype(r, (int)i);
		c->key = true;
		(*oids)[i] = c->type_oid;
	}
	return shape_new(t, &rel, types, s, ask, e);
}

/* ---- a chunk ---- */

/* `('7'::integer, E'a\\b'::text)`, from the key code. */
static void
put_key(struct buf *b, const struct start_table *about, size_t n,
	struct span code)
{
	buf_putc(b, '(');
	for (size_t i = 0; i < n; i++) {
		const char *end = i + 1 < n ? memchr(code.p, '\0', code.n)
					    : code.p + code.n;
		size_t len = (size_t)(end - code.p);

		if (i > 0)
			buf_puts(b, ", ");
		pgquote_text(b, span_make(code.p, len));
		buf_puts(b, "::");
		buf_put_span(b, about->key_types[i]);
		if (i + 1 < n)
			code = span_make(end + 1, code.n - len - 1);
	}
	buf_putc(b, ')');
}

void
chunk_read_sql(struct buf *b, const struct shape_table *t,
	const struct start_table *about, const struct pipeline_chunk *c,
	const char *epoch, uint64_t n, int server_version)
{
	char mark[32];

	buf_puts(b, "begin isolation level repeatable read read only; "
		    "select pg_catalog.pg_current_snapshot(); ");
	put_select(b, t, about);
	if (c->has_after) {
		buf_puts(b, " where (");
		put_names(b, t->key, t->key_n);
		buf_puts(b, ") > ");
		put_key(b, about, t->key_n, c->after);
	}
	buf_puts(b, " order by ");
	put_names(b, t->key, t->key_n);
	buf_printf(b, " limit %" PRIu64 "; commit; ", c->limit_rows);
	snprintf(mark, sizeof(mark), "hw:%" PRIu64, n);
	chunk_mark_sql(b, epoch, mark, true, server_version);
}

enum { RESULT_SNAPSHOT = 1, RESULT_ROWS = 2, RESULTS_MIN = 5 };

static bool
has_types(const PGresult *r, const struct shape *s, const uint32_t *oids)
{
	if ((size_t)PQnfields(r) != s->n)
		return false;
	for (size_t i = 0; i < s->n; i++) {
		if (PQftype(r, (int)i) != oids[i])
			return false;
	}
	return true;
}

static void
put_row(struct snapshot *s, const PGresult *r, int row, struct tuple *t)
{
	for (size_t i = 0; i < t->n; i++) {
		int c = (int)i;
		bool null = PQgetisnull(r, row, c);

		t->d[i].state = null ? DATUM_NULL : DATUM_TEXT;
		t->d[i].text = pgtext_get(r, row, c);
	}
	snapshot_row(s, t);
}

int
chunk_install(struct snapshot *s, PGresult *const *res, int n,
	const uint32_t *oids, int64_t read_at_us, struct err *e)
{
	const PGresult *rows = n >= RESULTS_MIN ? res[RESULT_ROWS] : NULL;
	struct arena a = ARENA_ZERO;
	struct tuple t = { .n = s->chunk->shape->n };
	int rc;

	if (!rows || PQntuples(res[RESULT_SNAPSHOT]) != 1)
		return err_set(e, ERR_IO, "a chunk came with %d results", n);
	if (!has_types(rows, s->chunk->shape, oids))
		return err_set(e, ERR_DB_DATA,
			"%.*s changed its columns while it is being copied",
			SPAN_ARG(s->chunk->shape->table->label));
	t.d = arena_alloc(&a, t.n * sizeof(*t.d));
	for (int i = 0; i < PQntuples(rows); i++)
		put_row(s, rows, i, &t);
	arena_fini(&a);
	rc = snapshot_install(
		s, pgtext_get(res[RESULT_SNAPSHOT], 0, 0), read_at_us, e);
	return rc;
}
