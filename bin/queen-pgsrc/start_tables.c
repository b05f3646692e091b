/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables, then the publication, then the tables once more as it publishes
 * them: one that has no usable identity is never published.
 */
#include <string.h>

#include "conndoc.h"
#include "ctx.h"
#include "pgquote.h"
#include "start_int.h"

static void
on_written(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	struct connfault f;

	(void)res;
	(void)n;
	if (!why) {
		start_tables(s);
		return;
	}
	f = *why;
	if (connfault_is(why, "42501"))
		decide_publication_denied(
			&s->doc->source, s->tables, &s->publication, &f);
	/* 42710: another node was faster, and made the same */
	f.retryable = f.retryable || connfault_is(why, "42710");
	start_fail(s, &f);
}

static bool
usable(struct start *s, struct connfault *f)
{
	const struct conndoc_source *d = &s->doc->source;

	for (size_t i = 0; i < d->tables_n; i++)
		if (decide_table(&d->tables[i], &s->tables[i], f) != 0)
			return false;
	/* a stream alone needs no right to read */
	return !start_copies(s) ||
	       decide_readable(d, s->tables, s->doc->conn.user, f) == 0;
}

static bool
carried(struct start *s, struct connfault *f)
{
	const struct conndoc_source *d = &s->doc->source;

	for (size_t i = 0; i < d->tables_n; i++)
		if (decide_published(&d->tables[i], &s->tables[i],
			    s->publication_name, f) != 0)
			return false;
	return true;
}

/* ---- the way to the operators of keys ---- */

static void
on_path(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;

	(void)res;
	(void)n;
	if (start_worked(s, why))
		start_identify(s);
}

/* Once each. */
static void
add_schema(struct buf *path, struct span schema)
{
	struct buf q = BUF_ZERO;

	/* with its comma, which a quoted name never has before a quote alone */
	buf_putc(&q, ',');
	pgquote_ident(&q, schema);
	if (!memmem(path->p, path->len, q.p, q.len))
		buf_put_span(path, buf_span(&q));
	buf_fini(&q);
}

/*
 * A chunk goes on behind a key with `>`, which for a type of an extension is
 * found by search_path alone; text's would be taken instead, in another order.
 */
static void
set_path(struct start *s)
{
	struct buf path = BUF_ZERO;

	buf_puts(&path, "search_path=pg_catalog");
	for (size_t i = 0; i < s->doc->source.tables_n; i++) {
		const struct decide_column *c;

		for (size_t k = 0; (c = decide_key(&s->tables[i], k)); k++)
			if (c->operators.n)
				add_schema(&path, c->operators);
	}
	if (span_is(buf_span(&path), s->search_path)) {
		start_identify(s);
	} else {
		s->search_path = arena_cstr(&s->arena, buf_span(&path));
		buf_printf(&s->sql, "set %s", s->search_path);
		start_query(s, &s->link_sql, on_path);
	}
	buf_fini(&path);
}

/* ---- the publication ---- */

static void
publish(struct start *s)
{
	struct connfault f;

	if (s->published) {
		connfault_set(&f, "publication", true,
			"the publication %.*s was changed by somebody else "
			"meanwhile; let one alone manage it, or set "
			"managePublication to false",
			SPAN_ARG(s->publication_name));
		start_fail(s, &f);
		return;
	}
	s->published = true;
	start_say(s, "connecting", "writing the publication", 0);
	start_query(s, &s->link_sql, on_written);
}

static void
on_tables(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	struct connfault f;

	if (!start_worked(s, why))
		return;
	if (catalog_tables(res, n, &s->doc->source, s->publication_name,
		    &s->arena, &s->tables, &s->publication, &f) != 0 ||
		!usable(s, &f)) {
		start_fail(s, &f);
		return;
	}
	switch (decide_publication(
		&s->doc->source, s->tables, &s->publication, &s->sql, &f)) {
	case DECIDE_WRITE:
		publish(s);
		return;
	case DECIDE_KEEP:
		if (carried(s, &f)) {
			set_path(s);
			return;
		}
		break;
	case DECIDE_REFUSE:
		break;
	}
	start_fail(s, &f);
}

void
start_tables(struct start *s)
{
	start_say(s, "connecting", "looking at the tables", 0);
	catalog_tables_sql(&s->sql, &s->doc->source, s->publication_name);
	start_query(s, &s->link_sql, on_tables);
}
