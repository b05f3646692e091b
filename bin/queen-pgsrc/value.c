/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values.  Each kind looks whether the text has its shape and copies it;
 * what has not is a string.  Arrays live in value_array.c.
 */
#include "value.h"

#include "arena.h"
#include "buf.h"
#include "jspan.h"
#include "jwrite.h"
#include "value_int.h"

/* ---- numbers ---- */

static size_t
digits(struct span s, size_t at)
{
	size_t n = 0;

	while (at + n < s.n && s.p[at + n] >= '0' && s.p[at + n] <= '9')
		n++;
	return n;
}

/* The grammar of JSON; NaN and Infinity are outside of it. */
static bool
is_number(struct span s)
{
	size_t at = s.n > 0 && s.p[0] == '-', n = digits(s, at);

	if (n == 0 || (n > 1 && s.p[at] == '0'))
		return false;
	at += n;
	if (at < s.n && s.p[at] == '.') {
		n = digits(s, at + 1);
		if (n == 0)
			return false;
		at += 1 + n;
	}
	if (at < s.n && (s.p[at] == 'e' || s.p[at] == 'E')) {
		at++;
		at += at < s.n && (s.p[at] == '+' || s.p[at] == '-');
		n = digits(s, at);
		if (n == 0)
			return false;
		at += n;
	}
	return at == s.n;
}

/* ---- timestamps ---- */

/* `-07` at *at: the separator and two digits. */
static bool
two(struct span s, size_t *at, char before)
{
	if (*at >= s.n || s.p[*at] != before || digits(s, *at + 1) < 2)
		return false;
	*at += 3;
	return true;
}

/*
 * Length of `YYYY-MM-DD HH:MM:SS[.ffffff]`, 0 when the text does not begin
 * with one; *space is where the T goes.
 */
static size_t
timestamp_n(struct span s, size_t *space)
{
	size_t at = digits(s, 0), n;

	if (at < 4 || !two(s, &at, '-') || !two(s, &at, '-'))
		return 0;
	*space = at;
	if (!two(s, &at, ' ') || !two(s, &at, ':') || !two(s, &at, ':'))
		return 0;
	if (at < s.n && s.p[at] == '.') {
		n = digits(s, at + 1);
		if (n == 0 || n > 6)
			return 0;
		at += 1 + n;
	}
	return at;
}

/* Bytes of the offset, all of the rest: +hh, +hh:mm or +hh:mm:ss; else 0. */
static size_t
offset_n(struct span s, size_t at)
{
	size_t from = at;

	if (!two(s, &at, '+') && !two(s, &at, '-'))
		return 0;
	if (two(s, &at, ':'))
		two(s, &at, ':');
	return at == s.n ? at - from : 0;
}

static void
put_timestamp(struct buf *b, struct span s, bool zone)
{
	size_t space = 0, n = timestamp_n(s, &space), offset;

	offset = zone && n > 0 ? offset_n(s, n) : 0;
	if (n == 0 || (zone ? offset == 0 : n != s.n)) {
		/* infinity, BC */
		jwrite_quoted(b, s);
		return;
	}
	buf_putc(b, '"');
	buf_put(b, s.p, space);
	buf_putc(b, 'T');
	buf_put(b, s.p + space + 1, s.n - space - 1);
	if (offset == 3)
		buf_puts(b, ":00");
	buf_putc(b, '"');
}

/* ---- json ---- */

/* One bit per open container, object or array, on the heap. */
struct nest {
	struct buf bits;
	size_t depth;
};

static bool
nest_top(const struct nest *t)
{
	return t->bits.p[(t->depth - 1) / 8] >> ((t->depth - 1) % 8) & 1;
}

static void
nest_push(struct nest *t, bool object)
{
	size_t at = t->depth++;

	if (at / 8 == t->bits.len)
		buf_putc(&t->bits, 0);
	t->bits.p[at / 8] &= (char)~(1 << at % 8);
	t->bits.p[at / 8] |= (char)((object ? 1 : 0) << at % 8);
}

/* Steps into what is open; true when a value comes next. */
static bool
next_value(struct jspan *j, struct nest *t, struct arena *a)
{
	while (t->depth > 0) {
		struct span key;

		/* the scanner counts levels; there is no end to them here */
		j->depth = 1;
		if (nest_top(t) ? jspan_next_key(j, a, &key)
				: jspan_next_item(j))
			return true;
		if (j->error)
			return false;
		t->depth--;
	}
	return false;
}

/*
 * PostgreSQL bounds nesting by its stack, a few thousand levels; the scanner
 * by a constant below that.  Its own steps, without its count, check the rest.
 */
static bool
is_deep_json(struct span text)
{
	struct nest t = { .bits = BUF_ZERO };
	struct arena a = ARENA_ZERO;
	struct jspan_val v;
	struct jspan j;
	bool ok;

	jspan_open(&j, text);
	do {
		enum jspan_type type = jspan_peek(&j);

		if (type == JSPAN_OBJECT || type == JSPAN_ARRAY) {
			j.depth = 0;
			if (type == JSPAN_OBJECT)
				jspan_enter_object(&j);
			else
				jspan_enter_array(&j);
			nest_push(&t, type == JSPAN_OBJECT);
		} else {
			jspan_take(&j, &v);
		}
	} while (!j.error && next_value(&j, &t, &a));
	ok = jspan_end(&j);
	buf_fini(&t.bits);
	arena_fini(&a);
	return ok;
}

static struct span
trim(struct span s)
{
	while (s.n > 0 && memchr(" \t\r\n", s.p[0], 4)) {
		s.p++;
		s.n--;
	}
	while (s.n > 0 && memchr(" \t\r\n", s.p[s.n - 1], 4))
		s.n--;
	return s;
}

static void
put_json(struct buf *b, struct span text)
{
	const char *what = "";
	size_t at;

	if (jspan_valid(text, &what, &at) ||
		(span_is(span_of(what), "nested too deep") &&
			is_deep_json(text)))
		buf_put_span(b, trim(text));
	else
		jwrite_quoted(b, text);
}

/* ---- all of them ---- */

static void
put_bool(struct buf *b, struct span s)
{
	if (span_is(s, "t") || span_is(s, "true"))
		buf_puts(b, "true");
	else if (span_is(s, "f") || span_is(s, "false"))
		buf_puts(b, "false");
	else
		jwrite_quoted(b, s);
}

void
value_write(struct buf *b, const struct value_type *t, struct span text)
{
	switch (t->kind) {
	case VALUE_STRING:
		break;
	case VALUE_BOOL:
		put_bool(b, text);
		return;
	case VALUE_NUMBER:
		if (!is_number(text))
			break;
		buf_put_span(b, text);
		return;
	case VALUE_JSON:
		put_json(b, text);
		return;
	case VALUE_TIMESTAMP:
	case VALUE_TIMESTAMPTZ:
		put_timestamp(b, text, t->kind == VALUE_TIMESTAMPTZ);
		return;
	case VALUE_ARRAY:
		if (!value_put_array(b, t, text))
			break;
		return;
	}
	jwrite_quoted(b, text);
}
