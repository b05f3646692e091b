/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass: the value of each member is made canonical at the end of the
 * buffer, and when its object is whole the members are put in order.
 */
#include "jcs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "jspan.h"
#include "jwrite.h"

struct member {
	struct span name; /* decoded */
	size_t at, n; /* its value in the buffer */
	size_t order; /* as it came */
};

/* ---- names ---- */

/* By UTF-16 code units. */
static int
compare(struct span a, struct span b)
{
	size_t n = a.n < b.n ? a.n : b.n, i = 0;
	unsigned char c, d;

	while (i < n && a.p[i] == b.p[i])
		i++;
	if (i == n)
		return (a.n > b.n) - (a.n < b.n);
	c = (unsigned char)a.p[i];
	d = (unsigned char)b.p[i];
	/*
	 * UTF-8 sorts by code point.  In UTF-16 what needs four bytes there
	 * is a pair of surrogates, which come before U+E000 and behind.
	 */
	if (c >= 0xee && d >= 0xee && (c >= 0xf0) != (d >= 0xf0))
		return c >= 0xf0 ? -1 : 1;
	return c < d ? -1 : 1;
}

static int
by_name(const void *x, const void *y)
{
	const struct member *a = x, *b = y;
	int c = compare(a->name, b->name);

	return c ? c : (a->order > b->order) - (a->order < b->order);
}

/* ---- numbers ---- */

/* One more in the last digit; false when all of them are nines. */
static bool
next_up(char *text)
{
	for (char *p = strchr(text, 'e') - 1; p >= text; p--) {
		if (*p == '.')
			continue;
		if (*p != '9') {
			++*p;
			return true;
		}
		*p = '0';
	}
	return false;
}

/*
 * Do p + 1 digits mean v?  Below a power of two doubles lie closer than above
 * it: what is nearest may be another, and the next one up still mean it.
 */
static bool
digits_mean(double v, int p, char *text, size_t room)
{
	int e;

	snprintf(text, room, "%.*e", p, v);
	if (strtod(text, NULL) == v)
		return true;
	return frexp(v, &e) == 0.5 && next_up(text) && strtod(text, NULL) == v;
}

/* The fewest digits that still mean v; *point: 0.DIGITS times ten to it. */
static int
shortest(double v, char digits[20], int *point)
{
	/* What 15 digits can tell has no shorter form but those zeros. */
	int from = fabs(v) < 2.3e-308 ? 0 : 14, n = 0;
	char text[40];

	while (from <= 16 && !digits_mean(v, from, text, sizeof(text)))
		from++;
	for (const char *s = text; *s != 'e'; s++) {
		if (*s >= '0' && *s <= '9')
			digits[n++] = *s;
	}
	*point = (int)strtol(strchr(text, 'e') + 1, NULL, 10) + 1;
	while (n > 1 && digits[n - 1] == '0')
		n--;
	return n;
}

char *
jcs_number(double v, char out[JCS_NUMBER_MAX])
{
	char digits[20], *o = out;
	int n, point;

	if (v == 0) {
		memcpy(out, "0", 2);
		return out;
	}
	if (fabs(v) < 1e15 && v == floor(v)) {
		snprintf(out, JCS_NUMBER_MAX, "%lld", (long long)v);
		return out;
	}
	if (v < 0)
		*o++ = '-';
	n = shortest(fabs(v), digits, &point);
	if (point > 21 || point <= -6) {
		*o++ = digits[0];
		if (n > 1)
			*o++ = '.';
		memcpy(o, digits + 1, (size_t)n - 1);
		o += n - 1;
		snprintf(o, (size_t)(out + JCS_NUMBER_MAX - o), "e%+d",
			point - 1);
		return out;
	}
	if (point <= 0) {
		memcpy(o, "0.000000", (size_t)(2 - point));
		o += 2 - point;
	}
	for (int i = 0; i < n || i < point; i++) {
		if (i == point && i > 0)
			*o++ = '.';
		*o++ = i < n ? digits[i] : '0';
	}
	*o = '\0';
	return out;
}

static bool
put_number(struct jspan *j, const struct jspan_val *v, struct arena *a,
	struct buf *b)
{
	double d = strtod(arena_cstr(a, v->raw), NULL);
	char text[JCS_NUMBER_MAX];

	if (!isfinite(d))
		return jspan_fail(j, "number out of range");
	buf_puts(b, jcs_number(d, text));
	return true;
}

/* ---- values ---- */

static bool
put_value(struct jspan *j, struct arena *a, struct buf *b, int depth);

static bool
put_scalar(struct jspan *j, struct arena *a, struct buf *b)
{
	struct jspan_val v;
	struct span text;

	if (!jspan_take(j, &v))
		return false;
	switch (v.type) {
	case JSPAN_NUMBER:
		return put_number(j, &v, a, b);
	case JSPAN_STRING:
		if (!jspan_text(&v, a, &text))
			return jspan_fail(j, "lone surrogate in a string");
		jwrite_quoted(b, text);
		return true;
	default:
		buf_put_span(b, v.raw);
		return true;
	}
}

static bool
put_array(struct jspan *j, struct arena *a, struct buf *b, int depth)
{
	bool first = true;

	if (!jspan_enter_array(j))
		return false;
	buf_putc(b, '[');
	for (; jspan_next_item(j); first = false) {
		if (!first)
			buf_putc(b, ',');
		if (!put_value(j, a, b, depth + 1))
			return false;
	}
	buf_putc(b, ']');
	return !j->error;
}

/* The members, whose values stand in b from base on, in their order. */
static void
put_members(struct buf *b, size_t base, struct member *m, size_t n)
{
	struct buf sorted = BUF_ZERO;

	if (n > 0)
		qsort(m, n, sizeof(*m), by_name);
	buf_putc(&sorted, '{');
	for (size_t i = 0; i < n; i++) {
		if (i + 1 < n && span_eq(m[i].name, m[i + 1].name))
			continue;
		if (sorted.len > 1)
			buf_putc(&sorted, ',');
		jwrite_quoted(&sorted, m[i].name);
		buf_putc(&sorted, ':');
		buf_put(&sorted, b->p + m[i].at, m[i].n);
	}
	buf_putc(&sorted, '}');
	b->len = base;
	buf_put_span(b, buf_span(&sorted));
	buf_fini(&sorted);
}

static bool
put_object(struct jspan *j, struct arena *a, struct buf *b, int depth)
{
	struct member *m = NULL;
	size_t base = b->len, n = 0, cap = 0;
	struct span name;

	if (!jspan_enter_object(j))
		return false;
	while (jspan_next_key(j, a, &name)) {
		size_t at = b->len;

		if (!put_value(j, a, b, depth + 1))
			return false;
		m = arena_grown(a, m, n, &cap, sizeof(*m));
		m[n] = (struct member){ name, at, b->len - at, n };
		n++;
	}
	if (j->error)
		return false;
	put_members(b, base, m, n);
	return true;
}

static bool
put_value(struct jspan *j, struct arena *a, struct buf *b, int depth)
{
	enum jspan_type type = jspan_peek(j);

	if (type != JSPAN_OBJECT && type != JSPAN_ARRAY)
		return put_scalar(j, a, b);
	if (depth == JCS_DEPTH_MAX)
		return jspan_fail(j, "nested too deep");
	return type == JSPAN_OBJECT ? put_object(j, a, b, depth)
				    : put_array(j, a, b, depth);
}

bool
jcs_put(struct buf *b, struct span json, struct arena *a, const char **why)
{
	size_t base = b->len;
	struct jspan j;

	jspan_open(&j, json);
	if (put_value(&j, a, b, 0) && jspan_end(&j))
		return true;
	b->len = base;
	*why = j.error;
	return false;
}
