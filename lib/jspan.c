/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scanner.  A pointer walks once over the bytes; strings are skipped
 * sixteen bytes at a time as long as nothing in them needs a look.  Nesting
 * is a bit per level on the stack, never recursion, so no input can exhaust
 * the stack.  Every scan_ function returns the place behind what it read, or
 * NULL after having set the error.
 */
#include "jspan.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "arena.h"

static const char *
fail(struct jspan *j, const char *at, const char *what)
{
	if (!j->error) {
		j->error = what;
		j->error_at = (size_t)(at - j->start);
	}
	return NULL;
}

static const char *
skip_ws(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	return p;
}

/* ---- UTF-8 (RFC 3629) ---- */

static bool
is_tail(const char *p)
{
	return ((unsigned char)*p & 0xc0) == 0x80;
}

/*
 * Bytes of the sequence that starts with a byte >= 0x80, or 0.  Refused:
 * overlong forms, surrogates, above U+10FFFF.
 */
static int
utf8_len(const char *p, const char *end)
{
	unsigned char c = (unsigned char)p[0], d;

	if (c < 0xc2 || c > 0xf4 || end - p < 2)
		return 0;
	d = (unsigned char)p[1];
	if (c < 0xe0)
		return is_tail(p + 1) ? 2 : 0;
	if (c < 0xf0) {
		if (end - p < 3 || !is_tail(p + 1) || !is_tail(p + 2))
			return 0;
		if ((c == 0xe0 && d < 0xa0) || (c == 0xed && d >= 0xa0))
			return 0;
		return 3;
	}
	if (end - p < 4 || !is_tail(p + 1) || !is_tail(p + 2) ||
		!is_tail(p + 3))
		return 0;
	if ((c == 0xf0 && d < 0x90) || (c == 0xf4 && d >= 0x90))
		return 0;
	return 4;
}

bool
jspan_utf8(struct span s)
{
	const char *p = s.p ? s.p : "", *end = p + s.n;

	while (p < end) {
		int n;

		while (end - p >= 8) {
			uint64_t v;

			memcpy(&v, p, sizeof(v));
			if (v & UINT64_C(0x8080808080808080))
				break;
			p += 8;
		}
		if (p == end)
			break;
		if (!(*p & 0x80)) {
			p++;
			continue;
		}
		n = utf8_len(p, end);
		if (n == 0)
			return false;
		p += n;
	}
	return true;
}

/* ---- strings ---- */

/* First byte that is a quote, a backslash, a control or not ASCII. */
static const char *
skip_plain(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"');
	const __m128i slash = _mm_set1_epi8('\\');
	const __m128i space = _mm_set1_epi8(' ');

	while (end - p >= 16) {
		__m128i v;
		int m;

		memcpy(&v, p, sizeof(v));
		/* Signed: below a space are the controls and 0x80 to 0xff. */
		m = _mm_movemask_epi8(_mm_or_si128(_mm_cmplt_epi8(v, space),
			_mm_or_si128(_mm_cmpeq_epi8(v, quote),
				_mm_cmpeq_epi8(v, slash))));
		if (m != 0)
			return p + __builtin_ctz((unsigned)m);
		p += 16;
	}
#else
	const uint64_t ones = UINT64_C(0x0101010101010101);
	const uint64_t tops = ones * 0x80;

	while (end - p >= 8) {
		uint64_t v, q, s, m;

		memcpy(&v, p, sizeof(v));
		q = v ^ ones * '"';
		s = v ^ ones * '\\';
		m = v | (v - ones * ' ') | ((q - ones) & ~q) |
		    ((s - ones) & ~s);
		/* A borrow can mark too much, never too little. */
		if (m & tops)
			break;
		p += 8;
	}
#endif
	while (p < end && (signed char)*p >= ' ' && *p != '"' && *p != '\\')
		p++;
	return p;
}

static int
hex4(const char *p)
{
	int v = 0;

	for (int i = 0; i < 4; i++) {
		int c = (unsigned char)p[i];

		if (c >= '0' && c <= '9')
			c -= '0';
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			c = (c | 0x20) - 'a' + 10;
		else
			return -1;
		v = v << 4 | c;
	}
	return v;
}

/* p at the backslash. */
static const char *
scan_escape(struct jspan *j, const char *p)
{
	if (j->end - p < 2)
		return fail(j, j->end, "unexpected end of a string");
	switch (p[1]) {
	case '"':
	case '\\':
	case '/':
	case 'b':
	case 'f':
	case 'n':
	case 'r':
	case 't':
		return p + 2;
	case 'u':
		if (j->end - p < 6)
			return fail(j, j->end, "unexpected end of a string");
		if (hex4(p + 2) < 0)
			return fail(j, p, "bad \\u escape");
		return p + 6;
	default:
		return fail(j, p, "bad escape");
	}
}

/* p at the opening quote. */
static const char *
scan_string(struct jspan *j, const char *p, bool *escaped)
{
	for (p++;;) {
		int n;

		p = skip_plain(p, j->end);
		if (p == j->end)
			return fail(j, p, "unexpected end of a string");
		if (*p == '"')
			return p + 1;
		if (*p == '\\') {
			*escaped = true;
			p = scan_escape(j, p);
			if (!p)
				return NULL;
			continue;
		}
		if ((unsigned char)*p < 0x20)
			return fail(j, p, "control character in a string");
		n = utf8_len(p, j->end);
		if (n == 0)
			return fail(j, p, "invalid UTF-8");
		p += n;
	}
}

/* ---- numbers and words ---- */

static const char *
skip_digits(const char *p, const char *end)
{
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

static const char *
scan_number(struct jspan *j, const char *p)
{
	const char *end = j->end, *from = p, *q;

	if (*p == '-')
		p++;
	q = skip_digits(p, end);
	if (q == p || (*p == '0' && q > p + 1))
		return fail(j, from, "bad number");
	p = q;
	if (p < end && *p == '.') {
		q = skip_digits(p + 1, end);
		if (q == p + 1)
			return fail(j, from, "bad number");
		p = q;
	}
	if (p < end && (*p == 'e' || *p == 'E')) {
		p++;
		if (p < end && (*p == '+' || *p == '-'))
			p++;
		q = skip_digits(p, end);
		if (q == p)
			return fail(j, from, "bad number");
		p = q;
	}
	return p;
}

static const char *
scan_word(struct jspan *j, const char *p, const char *word, size_t n)
{
	if ((size_t)(j->end - p) < n || memcmp(p, word, n) != 0)
		return fail(j, p, "expected a value");
	return p + n;
}

static enum jspan_type
type_of(char c)
{
	switch (c) {
	case '{':
		return JSPAN_OBJECT;
	case '[':
		return JSPAN_ARRAY;
	case '"':
		return JSPAN_STRING;
	case 't':
	case 'f':
		return JSPAN_BOOL;
	case 'n':
		return JSPAN_NULL;
	default:
		return c == '-' || (c >= '0' && c <= '9') ? JSPAN_NUMBER
							  : JSPAN_NONE;
	}
}

static const char *
scan_scalar(struct jspan *j, const char *p, bool *escaped)
{
	switch (type_of(*p)) {
	case JSPAN_STRING:
		return scan_string(j, p, escaped);
	case JSPAN_NUMBER:
		return scan_number(j, p);
	case JSPAN_BOOL:
		return *p == 't' ? scan_word(j, p, "true", 4)
				 : scan_word(j, p, "false", 5);
	case JSPAN_NULL:
		return scan_word(j, p, "null", 4);
	default:
		return fail(j, p, "expected a value");
	}
}

/* ---- whole values ---- */

/* Key and colon of a member; the value comes next. */
static const char *
scan_key(struct jspan *j, const char *p)
{
	bool escaped = false;

	p = skip_ws(p, j->end);
	if (p == j->end)
		return fail(j, p, "unexpected end of an object");
	if (*p != '"')
		return fail(j, p, "expected a key");
	p = scan_string(j, p, &escaped);
	if (!p)
		return NULL;
	p = skip_ws(p, j->end);
	if (p == j->end || *p != ':')
		return fail(j, p, "expected ':'");
	return p + 1;
}

/* Which of the open containers are objects, a bit per level. */
struct nest {
	uint64_t object[(JSPAN_DEPTH_MAX + 64) / 64];
	int depth;
};

static bool
in_object(const struct nest *t)
{
	return t->object[t->depth / 64] >> (t->depth % 64) & 1;
}

/*
 * Behind a value: closes containers up to a comma, or all of them.  After a
 * comma p stands where the next value starts.
 */
static const char *
scan_after(struct jspan *j, const char *p, struct nest *t)
{
	while (t->depth > 0) {
		bool obj = in_object(t);

		p = skip_ws(p, j->end);
		if (p == j->end)
			return fail(j, p,
				obj ? "unexpected end of an object"
				    : "unexpected end of an array");
		if (*p == ',')
			return obj ? scan_key(j, p + 1) : p + 1;
		if (*p != (obj ? '}' : ']'))
			return fail(j, p,
				obj ? "expected ',' or '}'"
				    : "expected ',' or ']'");
		p++;
		t->depth--;
	}
	return p;
}

/*
 * p at { or [.  *empty: it was closed at once; otherwise p stands where the
 * first value starts.
 */
static const char *
scan_open(struct jspan *j, const char *p, struct nest *t, bool *empty)
{
	bool obj = *p == '{';
	uint64_t bit;

	if (j->depth + t->depth >= JSPAN_DEPTH_MAX)
		return fail(j, p, "nested too deep");
	t->depth++;
	bit = UINT64_C(1) << (t->depth % 64);
	if (obj)
		t->object[t->depth / 64] |= bit;
	else
		t->object[t->depth / 64] &= ~bit;
	p = skip_ws(p + 1, j->end);
	*empty = p < j->end && *p == (obj ? '}' : ']');
	if (*empty) {
		t->depth--;
		return p + 1;
	}
	return obj ? scan_key(j, p) : p;
}

/* p at { or [; iterative over everything inside. */
static const char *
scan_container(struct jspan *j, const char *p)
{
	struct nest t;
	bool escaped, empty;

	t.depth = 0;
	t.object[0] = 0;
	do {
		p = skip_ws(p, j->end);
		if (p == j->end)
			return fail(j, p, "unexpected end");
		if (*p == '{' || *p == '[') {
			p = scan_open(j, p, &t, &empty);
			if (p && !empty)
				continue;
		} else {
			p = scan_scalar(j, p, &escaped);
		}
		if (p)
			p = scan_after(j, p, &t);
	} while (p && t.depth > 0);
	return p;
}

/* ---- the interface ---- */

void
jspan_open(struct jspan *j, struct span body)
{
	static const char nothing[1];

	j->start = j->p = body.p ? body.p : nothing;
	j->end = j->start + body.n;
	j->depth = 0;
	j->first = false;
	j->error = NULL;
	j->error_at = 0;
}

bool
jspan_fail(struct jspan *j, const char *what)
{
	fail(j, j->p, what);
	return false;
}

enum jspan_type
jspan_peek(struct jspan *j)
{
	if (j->error)
		return JSPAN_NONE;
	j->p = skip_ws(j->p, j->end);
	return j->p == j->end ? JSPAN_NONE : type_of(*j->p);
}

bool
jspan_take(struct jspan *j, struct jspan_val *v)
{
	enum jspan_type type = jspan_peek(j);
	const char *p = j->p;

	v->type = JSPAN_NONE;
	v->escaped = false;
	if (j->error)
		return false;
	if (p == j->end)
		return jspan_fail(j, "unexpected end");
	if (type == JSPAN_OBJECT || type == JSPAN_ARRAY)
		p = scan_container(j, p);
	else
		p = scan_scalar(j, p, &v->escaped);
	if (!p)
		return false;
	v->type = type;
	v->truth = *j->p == 't';
	v->raw = span_make(j->p, (size_t)(p - j->p));
	j->p = p;
	return true;
}

static bool
enter(struct jspan *j, enum jspan_type type, const char *what)
{
	enum jspan_type got = jspan_peek(j);

	if (j->error)
		return false;
	if (got != type)
		return jspan_fail(j, j->p == j->end ? "unexpected end" : what);
	if (j->depth >= JSPAN_DEPTH_MAX)
		return jspan_fail(j, "nested too deep");
	j->p++;
	j->depth++;
	j->first = true;
	return true;
}

bool
jspan_enter_object(struct jspan *j)
{
	return enter(j, JSPAN_OBJECT, "expected an object");
}

bool
jspan_enter_array(struct jspan *j)
{
	return enter(j, JSPAN_ARRAY, "expected an array");
}

/* True when a member follows; leaves the container at its closing byte. */
static bool
more(struct jspan *j, char close, const char *at_end, const char *expected)
{
	bool first = j->first;

	if (j->error)
		return false;
	j->first = false;
	j->p = skip_ws(j->p, j->end);
	if (j->p == j->end)
		return jspan_fail(j, at_end);
	if (*j->p == close) {
		j->p++;
		j->depth--;
		return false;
	}
	if (first)
		return true;
	if (*j->p != ',')
		return jspan_fail(j, expected);
	j->p++;
	return true;
}

bool
jspan_next_item(struct jspan *j)
{
	return more(
		j, ']', "unexpected end of an array", "expected ',' or ']'");
}

bool
jspan_next_name(struct jspan *j, struct jspan_val *v)
{
	const char *p;

	*v = (struct jspan_val){ .type = JSPAN_STRING };
	if (!more(j, '}', "unexpected end of an object", "expected ',' or '}'"))
		return false;
	p = skip_ws(j->p, j->end);
	j->p = p;
	if (p == j->end)
		return jspan_fail(j, "unexpected end of an object");
	if (*p != '"')
		return jspan_fail(j, "expected a key");
	p = scan_string(j, p, &v->escaped);
	if (!p)
		return false;
	v->raw = span_make(j->p, (size_t)(p - j->p));
	p = skip_ws(p, j->end);
	j->p = p;
	if (p == j->end || *p != ':')
		return jspan_fail(j, "expected ':'");
	j->p++;
	return true;
}

bool
jspan_next_key(struct jspan *j, struct arena *a, struct span *key)
{
	struct jspan_val v;

	if (!jspan_next_name(j, &v))
		return false;
	if (jspan_text(&v, a, key))
		return true;
	j->p = v.raw.p;
	return jspan_fail(j, "lone surrogate in a key");
}

bool
jspan_end(struct jspan *j)
{
	if (j->error)
		return false;
	j->p = skip_ws(j->p, j->end);
	return j->p == j->end || jspan_fail(j, "trailing data");
}

/* ---- values ---- */

static char *
put_utf8(char *o, unsigned c)
{
	if (c < 0x80) {
		*o++ = (char)c;
	} else if (c < 0x800) {
		*o++ = (char)(0xc0 | c >> 6);
		*o++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*o++ = (char)(0xe0 | c >> 12);
		*o++ = (char)(0x80 | (c >> 6 & 0x3f));
		*o++ = (char)(0x80 | (c & 0x3f));
	} else {
		*o++ = (char)(0xf0 | c >> 18);
		*o++ = (char)(0x80 | (c >> 12 & 0x3f));
		*o++ = (char)(0x80 | (c >> 6 & 0x3f));
		*o++ = (char)(0x80 | (c & 0x3f));
	}
	return o;
}

/*
 * *p at the u of an escape known to be well formed; moved behind it, and
 * behind the low half of a pair.  -1 for a lone surrogate.
 */
static long
take_unicode(const char **p, const char *end)
{
	long c = hex4(*p + 1), low;

	*p += 5;
	if (c < 0xd800 || c > 0xdfff)
		return c;
	if (c > 0xdbff || end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u')
		return -1;
	low = hex4(*p + 2);
	if (low < 0xdc00 || low > 0xdfff)
		return -1;
	*p += 6;
	return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

bool
jspan_text(const struct jspan_val *v, struct arena *a, struct span *out)
{
	static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
	const char *p, *end;
	char *o;

	if (v->type != JSPAN_STRING)
		return false;
	p = v->raw.p + 1;
	end = v->raw.p + v->raw.n - 1;
	if (!v->escaped) {
		*out = span_make(p, (size_t)(end - p));
		return true;
	}
	/* An escape is never shorter than what it stands for. */
	o = arena_alloc(a, (size_t)(end - p));
	out->p = o;
	while (p < end) {
		const char *name;

		if (*p != '\\') {
			*o++ = *p++;
			continue;
		}
		p++;
		name = strchr(from, *p);
		if (*p == 'u') {
			long c = take_unicode(&p, end);

			if (c < 0)
				return false;
			o = put_utf8(o, (unsigned)c);
		} else {
			*o++ = name ? to[name - from] : *p;
			p++;
		}
	}
	out->n = (size_t)(o - out->p);
	return true;
}

bool
jspan_i64(const struct jspan_val *v, int64_t *out)
{
	return v->type == JSPAN_NUMBER && span_i64(v->raw, out);
}

bool
jspan_valid(struct span s, const char **what, size_t *at)
{
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, s);
	if (jspan_take(&j, &v) && jspan_end(&j))
		return true;
	*what = j.error;
	*at = j.error_at;
	return false;
}
