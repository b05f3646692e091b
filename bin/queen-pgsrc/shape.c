/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a Relation message to a shape, and what a row is called by it: its
 * partition and its key code.
 */
#include "shape.h"

#include <stdlib.h>

#include "buf.h"
#include "err.h"
#include "hash.h"
#include "jwrite.h"
#include "pgoutput.h"
#include "types.h"
#include "value.h"

/* Number of the column of that name; r->n when there is none. */
static size_t
column_of(const struct pgoutput_relation *r, struct span name)
{
	size_t i = 0;

	while (i < r->n && !span_eq(r->columns[i].name, name))
		i++;
	return i;
}

static bool
is_in(const size_t *list, size_t n, size_t column)
{
	for (size_t i = 0; i < n; i++) {
		if (list[i] == column)
			return true;
	}
	return false;
}

/*
 * The columns flagged in the message, those of the resolved key first and in
 * its order.  FULL flags every column: then the resolved key alone.
 */
static int
set_key(struct shape *s, const struct pgoutput_relation *r, struct err *e)
{
	const struct shape_table *t = s->table;

	s->key = arena_alloc(&s->arena, r->n * sizeof(*s->key));
	for (size_t i = 0; i < t->key_n; i++) {
		size_t c = column_of(r, t->key[i]);

		if (c < r->n && r->columns[c].key)
			s->key[s->key_n++] = c;
		else if (s->full)
			return err_set(e, ERR_CONFIG,
				"%.*s has no key column %.*s any more",
				SPAN_ARG(t->label), SPAN_ARG(t->key[i]));
	}
	for (size_t c = 0; !s->full && c < r->n; c++) {
		if (r->columns[c].key && !is_in(s->key, s->key_n, c))
			s->key[s->key_n++] = c;
	}
	if (s->key_n == 0)
		return err_set(e, ERR_CONFIG,
			"%.*s has no key column any more: set a replica "
			"identity, then resync",
			SPAN_ARG(t->label));
	return 0;
}

/* A delete has to name its partition: without FULL it brings the key alone. */
static int
set_by(struct shape *s, const struct pgoutput_relation *r, struct err *e)
{
	const struct shape_table *t = s->table;

	if (t->by != SHAPE_BY_COLUMNS) {
		s->by = s->key;
		s->by_n = t->by == SHAPE_BY_KEY ? s->key_n : 0;
		return 0;
	}
	s->by = arena_alloc(&s->arena, t->by_n * sizeof(*s->by));
	for (size_t i = 0; i < t->by_n; i++) {
		size_t c = column_of(r, t->by_columns[i]);

		if (c == r->n || (!s->full && !is_in(s->key, s->key_n, c)))
			return err_set(e, ERR_CONFIG,
				"%.*s has no partition column %.*s %s",
				SPAN_ARG(t->label), SPAN_ARG(t->by_columns[i]),
				c == r->n ? "any more" : "in its key any more");
		s->by[s->by_n++] = c;
	}
	return 0;
}

static struct span
json_key(struct arena *a, struct span name)
{
	struct buf b = BUF_ZERO;
	struct span s;

	jwrite_quoted(&b, name);
	buf_putc(&b, ':');
	s = arena_dup(a, buf_span(&b));
	buf_fini(&b);
	return s;
}

static bool
set_columns(struct shape *s, const struct pgoutput_relation *r,
	struct types *types, uint32_t *ask)
{
	s->n = r->n;
	s->columns = arena_alloc(&s->arena, r->n * sizeof(*s->columns));
	for (size_t i = 0; i < r->n; i++) {
		struct shape_column *c = &s->columns[i];

		c->type = types_get(types, r->columns[i].type_oid, ask);
		if (!c->type)
			return false;
		c->name = arena_dup(&s->arena, r->columns[i].name);
		c->json_key = json_key(&s->arena, c->name);
	}
	return true;
}

enum shape_result
shape_new(const struct shape_table *table, const struct pgoutput_relation *r,
	struct types *types, struct shape **out, uint32_t *ask, struct err *e)
{
	struct arena a = ARENA_ZERO;
	struct shape *s = arena_zalloc(&a, sizeof(*s));
	enum shape_result rc = SHAPE_OK;

	s->arena = a;
	s->table = table;
	s->oid = r->oid;
	s->full = r->identity == 'f';
	if (!set_columns(s, r, types, ask))
		rc = SHAPE_ASK;
	else if (set_key(s, r, e) != 0 || set_by(s, r, e) != 0)
		rc = SHAPE_CHANGED;
	if (rc == SHAPE_OK)
		*out = s;
	else
		shape_free(s);
	return rc;
}

void
shape_free(struct shape *s)
{
	struct arena a;

	if (!s)
		return;
	/* it lies in its own arena */
	a = s->arena;
	arena_fini(&a);
}

static bool
same_list(const size_t *a, size_t a_n, const size_t *b, size_t b_n)
{
	return a_n == b_n && memcmp(a, b, a_n * sizeof(*a)) == 0;
}

bool
shape_is_as_found(const struct shape *s)
{
	const struct shape_table *t = s->table;

	if (t->columns && t->columns_n != s->n)
		return false;
	for (size_t i = 0; t->columns && i < s->n; i++) {
		if (!span_eq(t->columns[i], s->columns[i].name))
			return false;
	}
	return true;
}

bool
shape_same(const struct shape *a, const struct shape *b)
{
	if (a->n != b->n || a->full != b->full || a->table != b->table ||
		!same_list(a->key, a->key_n, b->key, b->key_n) ||
		!same_list(a->by, a->by_n, b->by, b->by_n))
		return false;
	for (size_t i = 0; i < a->n; i++) {
		/* types of one cache: one pointer per meaning */
		if (!span_eq(a->columns[i].name, b->columns[i].name) ||
			a->columns[i].type != b->columns[i].type)
			return false;
	}
	return true;
}

/* ---- what a row is called ---- */

static void
put_escaped(struct buf *b, struct span s)
{
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] == '|' || s.p[i] == '\\')
			buf_putc(b, '\\');
		buf_putc(b, s.p[i]);
	}
}

void
shape_partition(const struct shape *s, const struct tuple *row, struct buf *b)
{
	size_t from = b->len;
	char hex[65];

	if (s->by_n == 0) {
		buf_puts(b, "all");
		return;
	}
	for (size_t i = 0; i < s->by_n; i++) {
		const struct datum *d = &row->d[s->by[i]];

		if (i > 0)
			buf_putc(b, '|');
		if (d->state != DATUM_TEXT)
			buf_puts(b, "\\N");
		else if (s->by_n == 1)
			buf_put_span(b, d->text);
		else
			put_escaped(b, d->text);
	}
	if (b->len - from <= SHAPE_PARTITION_MAX)
		return;
	hash_sha256_hex(span_make(b->p + from, b->len - from), hex);
	b->len = from;
	buf_putc(b, '~');
	buf_put(b, hex, 32);
}

void
shape_key_code(const struct shape *s, const struct tuple *row, struct buf *b)
{
	for (size_t i = 0; i < s->key_n; i++) {
		if (i > 0)
			buf_putc(b, '\0');
		buf_put_span(b, row->d[s->key[i]].text);
	}
}
