/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables, then the publication, then the tables once more as it publishes
 * them: one that has no usable identity is never published.
 */
#include "conndoc.h"
#include "ctx.h"
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
	if (span_is(span_of(f.sqlstate), "42501"))
		decide_publication_denied(
			&s->doc->source, s->tables, &s->publication, &f);
	/* 42710: another node was faster, and made the same */
	f.retryable = f.retryable || span_is(span_of(f.sqlstate), "42710");
	start_fail(s, &f);
}

static bool
usable(struct start *s, struct connfault *f)
{
	const struct conndoc_source *d = &s->doc->source;

	for (size_t i = 0; i < d->tables_n; i++)
		if (decide_table(&d->tables[i], &s->tables[i], f) != 0)
			return false;
	return true;
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
			start_identify(s);
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
