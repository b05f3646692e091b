/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Array literals as array_out prints them: optional bounds, braces down to
 * one depth in all places, elements bare or quoted with backslashes.  Only
 * what it can print is an array; the rest stays text.
 */
#include "value_int.h"

#include "buf.h"
#include "value.h"

enum { DIMENSIONS_MAX = 6 };

struct reader {
	const char *p, *end;
	const struct value_type *t;
	struct buf *out;
	struct buf text; /* of one quoted element */
	int depth, leaf; /* where elements are, 0 = not known */
	size_t n[DIMENSIONS_MAX + 1]; /* members in the open brace */
	size_t width[DIMENSIONS_MAX + 1]; /* of the first brace; 0 = none */
};

static bool
is_at(const struct reader *r, char c)
{
	return r->p < r->end && *r->p == c;
}

static bool
skip_number(struct reader *r)
{
	const char *from;

	if (is_at(r, '-'))
		r->p++;
	for (from = r->p; r->p < r->end && *r->p >= '0' && *r->p <= '9';)
		r->p++;
	return r->p > from;
}

/* `[-2:3][1:2]=`; how many of them, -1 when it is malformed. */
static int
skip_bounds(struct reader *r)
{
	int n = 0;

	while (is_at(r, '[')) {
		r->p++;
		if (!skip_number(r) || !is_at(r, ':'))
			return -1;
		r->p++;
		if (!skip_number(r) || !is_at(r, ']'))
			return -1;
		r->p++;
		n++;
	}
	if (n > 0 && (!is_at(r, '=') || ++r->p == r->end))
		return -1;
	return n;
}

static bool
put_quoted(struct reader *r)
{
	const char *from = ++r->p;
	bool escaped = false;

	buf_reset(&r->text);
	for (; r->p < r->end && *r->p != '"'; r->p++) {
		if (*r->p != '\\')
			continue;
		buf_put(&r->text, from, (size_t)(r->p - from));
		escaped = true;
		from = ++r->p;
		if (r->p == r->end)
			return false;
	}
	if (r->p == r->end)
		return false;
	if (escaped) {
		buf_put(&r->text, from, (size_t)(r->p - from));
		value_write(r->out, r->t->elem, buf_span(&r->text));
	} else {
		value_write(r->out, r->t->elem,
			span_make(from, (size_t)(r->p - from)));
	}
	r->p++;
	return true;
}

static bool
put_bare(struct reader *r)
{
	struct span s = { .p = r->p };

	while (r->p < r->end && *r->p != r->t->delim && *r->p != '}') {
		if (memchr("\"\\{ ", *r->p, 4))
			return false;
		r->p++;
	}
	s.n = (size_t)(r->p - s.p);
	if (s.n == 0)
		return false;
	if (span_is(s, "NULL"))
		buf_puts(r->out, "null");
	else
		value_write(r->out, r->t->elem, s);
	return true;
}

static bool
open_brace(struct reader *r)
{
	/* braces below the first element: ragged */
	if (r->depth == (r->leaf ? r->leaf : DIMENSIONS_MAX))
		return false;
	r->n[++r->depth] = 0;
	buf_putc(r->out, '[');
	r->p++;
	return true;
}

/* As many members as its neighbours have, or it is no array. */
static bool
close_brace(struct reader *r)
{
	size_t n = r->n[r->depth], *width = &r->width[r->depth];

	if (n == 0 || (*width && *width != n))
		return false;
	*width = n;
	r->depth--;
	buf_putc(r->out, ']');
	r->p++;
	return true;
}

static bool
put_element(struct reader *r)
{
	if (r->depth == 0 || (r->leaf && r->leaf != r->depth))
		return false;
	r->leaf = r->depth;
	r->n[r->depth]++;
	return is_at(r, '"') ? put_quoted(r) : put_bare(r);
}

/* Behind a member: closing braces, then a delimiter or the end. */
static bool
after_member(struct reader *r)
{
	while (r->depth > 0 && is_at(r, '}')) {
		if (!close_brace(r))
			return false;
		if (r->depth > 0)
			r->n[r->depth]++;
	}
	if (r->depth == 0)
		return r->p == r->end;
	if (!is_at(r, r->t->delim))
		return false;
	buf_putc(r->out, ',');
	r->p++;
	return true;
}

static bool
put_members(struct reader *r)
{
	do {
		while (is_at(r, '{')) {
			if (!open_brace(r))
				return false;
		}
		if (!put_element(r) || !after_member(r))
			return false;
	} while (r->depth > 0);
	return true;
}

bool
value_put_array(struct buf *b, const struct value_type *t, struct span text)
{
	struct reader r = { .p = text.p,
		.end = text.p + text.n,
		.t = t,
		.out = b,
		.text = BUF_ZERO };
	size_t at = b->len;
	int bounds;
	bool ok;

	if (span_is(text, "{}")) {
		buf_puts(b, "[]");
		return true;
	}
	bounds = text.n > 0 ? skip_bounds(&r) : -1;
	ok = bounds >= 0 && put_members(&r) && (!bounds || bounds == r.leaf);
	if (!ok)
		b->len = at;
	buf_fini(&r.text);
	return ok;
}
