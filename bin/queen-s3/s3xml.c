/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over the text.  An element counts when its end follows its start
 * with text alone in between.  Names are compared without their prefix; the
 * nesting is counted, names of ends are compared for what we read only.
 */
#include "s3xml.h"

#include <string.h>

#include "arena.h"

struct scan {
	struct s3xml *x;
	struct arena *a;
	struct span rest;
	size_t depth;
	struct span open, value; /* the last start, and the text after it */
	bool leaf; /* nothing but text since then */
	bool bad;
	struct span *keys;
	size_t keys_cap;
};

static bool
is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* The text up to mark, which is passed; false when it does not come. */
static bool
until(struct scan *s, const char *mark, struct span *out)
{
	size_t n = strlen(mark);
	const char *at =
		s->rest.n ? memmem(s->rest.p, s->rest.n, mark, n) : NULL;

	if (!at)
		return false;
	*out = span_make(s->rest.p, (size_t)(at - s->rest.p));
	s->rest = span_make(at + n, s->rest.n - out->n - n);
	return true;
}

/* ---- entities ---- */

static size_t
put_utf8(char *to, uint32_t c)
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 63));
		to[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 63));
	to[2] = (char)(0x80 | (c >> 6 & 63));
	to[3] = (char)(0x80 | (c & 63));
	return 4;
}

/* `#34` or `#x22`; false when it is no character. */
static bool
number(struct span s, uint32_t *out)
{
	uint32_t base = s.n > 1 && s.p[1] == 'x' ? 16 : 10, c = 0;
	size_t i = base == 16 ? 2 : 1;

	if (i >= s.n)
		return false;
	for (; i < s.n; i++) {
		int digit = span_hex(s.p[i]);

		if (digit < 0 || (uint32_t)digit >= base)
			return false;
		c = c * base + (uint32_t)digit;
		if (c > 0x10ffff)
			return false;
	}
	*out = c;
	return c > 0 && (c < 0xd800 || c > 0xdfff);
}

/* What stands between & and ;. */
static bool
entity(struct span s, uint32_t *out)
{
	static const struct {
		const char *name;
		char c;
	} all[] = { { "quot", '"' }, { "amp", '&' }, { "lt", '<' },
		{ "gt", '>' }, { "apos", '\'' } };

	if (s.n > 0 && s.p[0] == '#')
		return number(s, out);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (span_is(s, all[i].name)) {
			*out = (unsigned char)all[i].c;
			return true;
		}
	return false;
}

/* One that is unknown stays as it is; none grows by being decoded. */
static struct span
decoded(struct arena *a, struct span s)
{
	char *to = arena_alloc(a, s.n + 1);
	size_t n = 0;

	for (size_t i = 0; i < s.n; i++) {
		size_t left = s.n - i - 1;
		const char *end = s.p[i] == '&' ? memchr(s.p + i + 1, ';',
							  left < 10 ? left : 10)
						: NULL;
		uint32_t c;

		if (end && entity(span_make(s.p + i + 1,
					  (size_t)(end - s.p) - i - 1),
				   &c)) {
			n += put_utf8(to + n, c);
			i = (size_t)(end - s.p);
		} else {
			to[n++] = s.p[i];
		}
	}
	return span_make(to, n);
}

/* ---- elements ---- */

static void
take(struct scan *s, struct span *to, struct span text)
{
	if (!to->n)
		*to = decoded(
			s->a, span_clip(span_trim(text), S3XML_VALUE_MAX));
}

static void
take_key(struct scan *s, struct span text)
{
	struct s3xml *x = s->x;

	if (x->keys_n == S3XML_KEYS_MAX) {
		x->truncated = true;
		return;
	}
	s->keys = arena_grown(
		s->a, s->keys, x->keys_n, &s->keys_cap, sizeof(struct span));
	/* spaces at its ends are part of a key */
	s->keys[x->keys_n++] = decoded(s->a, span_clip(text, S3XML_VALUE_MAX));
	x->keys = s->keys;
}

static void
take_element(struct scan *s)
{
	struct s3xml *x = s->x;
	struct span name = s->open, text = s->value;

	if (span_is(name, "Key"))
		take_key(s, text);
	else if (span_is(name, "UploadId"))
		take(s, &x->upload_id, text);
	else if (span_is(name, "ETag"))
		take(s, &x->etag, text);
	else if (span_is(name, "Code"))
		take(s, &x->code, text);
	else if (span_is(name, "Message"))
		take(s, &x->message, text);
	else if (span_is(name, "Region"))
		take(s, &x->region, text);
	else if (span_is(name, "IsTruncated"))
		x->truncated |= span_is(span_trim(text), "true");
}

/* The name of a tag, without attributes and prefix. */
static struct span
tag_name(struct span tag)
{
	size_t n = 0;
	const char *colon;

	while (n < tag.n && !is_space(tag.p[n]) && tag.p[n] != '/')
		n++;
	colon = n ? memchr(tag.p, ':', n) : NULL;
	if (!colon)
		return span_make(tag.p, n);
	return span_make(colon + 1, n - (size_t)(colon - tag.p) - 1);
}

static void
on_start(struct scan *s, struct span tag)
{
	struct span name = tag_name(tag);

	if (!name.n || (s->depth == 0 && s->x->root.n)) {
		s->bad = true;
		return;
	}
	if (s->depth == 0)
		s->x->root = arena_dup(s->a, span_clip(name, S3XML_VALUE_MAX));
	if (tag.p[tag.n - 1] == '/') {
		s->leaf = false;
		return;
	}
	s->depth++;
	s->open = name;
	s->value = (struct span)SPAN_ZERO;
	s->leaf = true;
}

static void
on_end(struct scan *s, struct span tag)
{
	if (s->depth == 0 || (s->leaf && !span_eq(s->open, tag_name(tag)))) {
		s->bad = true;
		return;
	}
	if (s->leaf)
		take_element(s);
	s->leaf = false;
	s->depth--;
}

/* Behind a `<`; false at the end of what can be read. */
static bool
on_tag(struct scan *s)
{
	struct span inside;

	if (s->rest.n >= 3 && memcmp(s->rest.p, "!--", 3) == 0)
		return until(s, "-->", &inside);
	if (s->rest.n >= 1 && s->rest.p[0] == '?')
		return until(s, "?>", &inside);
	if (!until(s, ">", &inside))
		return false;
	if (inside.n > 0 && inside.p[0] == '/')
		on_end(s, span_make(inside.p + 1, inside.n - 1));
	else if (inside.n == 0 || inside.p[0] != '!')
		on_start(s, inside);
	else
		s->bad = true; /* no service declares or escapes anything */
	return !s->bad;
}

void
s3xml_read(struct s3xml *x, struct arena *a, struct span text)
{
	struct scan s = { .x = x, .a = a, .rest = text };
	struct span between;

	memset(x, 0, sizeof(*x));
	while (until(&s, "<", &between)) {
		if (s.leaf && !s.value.n)
			s.value = between;
		if (!on_tag(&s))
			return;
	}
	x->whole = s.depth == 0 && x->root.n > 0 && span_trim(s.rest).n == 0;
}
