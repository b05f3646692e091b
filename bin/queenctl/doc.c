/* SPDX-License-Identifier: Apache-2.0 */
#include "doc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "err.h"

int
doc_check(struct span s, struct err *e)
{
	const char *what;
	size_t at;

	if (jspan_valid(s, &what, &at))
		return 0;
	return err_set(e, ERR_INPUT, "not JSON: %s at byte %zu", what, at);
}

struct jspan_val
doc_val(struct span s)
{
	struct jspan_val v = { .type = JSPAN_NONE };
	struct jspan j;

	jspan_open(&j, s);
	if (!jspan_take(&j, &v))
		v.type = JSPAN_NONE;
	return v;
}

bool
doc_get(struct span object, struct span key, struct arena *a,
	struct jspan_val *v)
{
	struct span k;
	struct jspan j;

	jspan_open(&j, object);
	if (jspan_peek(&j) != JSPAN_OBJECT || !jspan_enter_object(&j))
		return false;
	while (jspan_next_key(&j, a, &k)) {
		if (!jspan_take(&j, v))
			return false;
		if (span_eq(k, key))
			return true;
	}
	return false;
}

static bool
walk(struct span doc, struct span path, struct arena *a, struct jspan_val *v)
{
	*v = doc_val(doc);
	if (span_is(path, "."))
		return v->type != JSPAN_NONE;
	while (path.n) {
		const char *dot = memchr(path.p, '.', path.n);
		size_t n = dot ? (size_t)(dot - path.p) : path.n;

		if (!doc_get(v->raw, span_make(path.p, n), a, v))
			return false;
		path.p += n + (dot != NULL);
		path.n -= n + (dot != NULL);
	}
	return v->type != JSPAN_NONE;
}

bool
doc_path(
	struct span doc, const char *path, struct arena *a, struct jspan_val *v)
{
	while (*path) {
		size_t n = strcspn(path, "|");

		if (walk(doc, span_make(path, n), a, v) &&
			v->type != JSPAN_NULL)
			return true;
		path += n + (path[n] == '|');
	}
	return false;
}

void
doc_open(struct jspan *j, struct span array)
{
	jspan_open(j, array);
	if (jspan_peek(j) != JSPAN_ARRAY || !jspan_enter_array(j))
		jspan_fail(j, "not an array");
}

bool
doc_next(struct jspan *j, struct jspan_val *v)
{
	return !j->error && jspan_next_item(j) && jspan_take(j, v);
}

size_t
doc_count(struct span s)
{
	struct jspan_val v;
	struct jspan j;
	size_t n = 0;

	jspan_open(&j, s);
	if (jspan_peek(&j) == JSPAN_OBJECT) {
		struct arena a = ARENA_ZERO;
		struct span key;

		if (jspan_enter_object(&j))
			while (jspan_next_key(&j, &a, &key) &&
				jspan_take(&j, &v))
				n++;
		arena_fini(&a);
		return n;
	}
	for (doc_open(&j, s); doc_next(&j, &v);)
		n++;
	return n;
}

const char *
doc_text(const struct jspan_val *v, struct arena *a)
{
	struct span s = v->raw;

	/* a lone surrogate has no text: it stays escaped */
	if (v->type == JSPAN_STRING && !jspan_text(v, a, &s))
		s = span_make(v->raw.p + 1, v->raw.n - 2);
	return arena_cstr(a, s);
}

const char *
doc_str(struct span doc, const char *path, const char *dflt, struct arena *a)
{
	struct jspan_val v;

	return doc_path(doc, path, a, &v) ? doc_text(&v, a) : dflt;
}

int64_t
doc_i64(struct span doc, const char *path, int64_t dflt, struct arena *a)
{
	struct jspan_val v;
	int64_t n;

	return doc_path(doc, path, a, &v) && jspan_i64(&v, &n) ? n : dflt;
}

bool
doc_true(struct span doc, const char *path, struct arena *a)
{
	struct jspan_val v;

	return doc_path(doc, path, a, &v) && v.type == JSPAN_BOOL && v.truth;
}

/* ---- re-indenting: tokens are copied, only white space changes ---- */

static const char *
copy_string(struct buf *out, const char *p, const char *end)
{
	const char *from = p++;

	while (p < end && *p != '"')
		p += *p == '\\' ? 2 : 1;
	p = p < end ? p + 1 : end;
	buf_put(out, from, (size_t)(p - from));
	return p;
}

static void
new_line(struct buf *out, int indent, int depth)
{
	if (indent == 0)
		return;
	buf_putc(out, '\n');
	for (int i = 0; i < indent * depth; i++)
		buf_putc(out, ' ');
}

static const char *
skip_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	return p;
}

void
doc_indent(struct buf *out, struct span s, int n)
{
	const char *p = s.p, *end = s.p + s.n;
	int depth = 0;

	while ((p = skip_space(p, end)) < end) {
		char c = *p;

		if (c == '"') {
			p = copy_string(out, p, end);
			continue;
		}
		p++;
		if (c == '{' || c == '[') {
			const char *next = skip_space(p, end);

			buf_putc(out, c);
			if (next < end && (*next == '}' || *next == ']')) {
				buf_putc(out, *next);
				p = next + 1;
				continue;
			}
			new_line(out, n, ++depth);
		} else if (c == '}' || c == ']') {
			new_line(out, n, --depth);
			buf_putc(out, c);
		} else if (c == ',') {
			buf_putc(out, c);
			new_line(out, n, depth);
		} else if (c == ':') {
			buf_puts(out, n ? ": " : ":");
		} else {
			buf_putc(out, c);
		}
	}
}

const char *
doc_number(struct span raw, struct arena *a)
{
	char *s = arena_cstr(a, raw);
	char *dot = strchr(s, '.');

	if (strpbrk(s, "eE")) {
		double d = strtod(s, NULL);

		if (isfinite(d) && d == trunc(d) && fabs(d) < 1e15)
			return arena_printf(a, "%.0f%c", d, '\0').p;
		return s;
	}
	if (!dot)
		return s;
	char *end = s + strlen(s);

	while (end[-1] == '0')
		end--;
	*(end - 1 == dot ? dot : end) = '\0';
	return s;
}
