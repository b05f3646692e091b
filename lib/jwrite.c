/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON into a buffer.  Misuse (a value without its key, one level too many)
 * is a mistake of ours and aborts; no value can make bad JSON.
 */
#include "jwrite.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "buf.h"
#include "clk.h"
#include "err.h"
#include "qid.h"

enum { DEPTH_MAX = 64 };

static uint64_t
level(const struct jwrite *w)
{
	return UINT64_C(1) << (w->depth - 1);
}

/* Before every value: the comma, unless a key has written it. */
static void
begin(struct jwrite *w)
{
	if (w->keyed) {
		w->keyed = false;
		return;
	}
	if (w->depth == 0)
		return;
	BUG(w->objects & level(w));
	if (w->filled & level(w))
		buf_putc(w->b, ',');
	w->filled |= level(w);
}

void
jwrite_init(struct jwrite *w, struct buf *b)
{
	*w = (struct jwrite){ .b = b };
}

static void
down(struct jwrite *w, char c, bool object)
{
	begin(w);
	BUG(w->depth == DEPTH_MAX);
	w->depth++;
	w->filled &= ~level(w);
	if (object)
		w->objects |= level(w);
	else
		w->objects &= ~level(w);
	buf_putc(w->b, c);
}

void
jwrite_object(struct jwrite *w)
{
	down(w, '{', true);
}

void
jwrite_array(struct jwrite *w)
{
	down(w, '[', false);
}

void
jwrite_end(struct jwrite *w)
{
	BUG(w->depth == 0 || w->keyed);
	buf_putc(w->b, w->objects & level(w) ? '}' : ']');
	w->depth--;
}

static void
begin_key(struct jwrite *w)
{
	BUG(w->depth == 0 || w->keyed || !(w->objects & level(w)));
	if (w->filled & level(w))
		buf_putc(w->b, ',');
	w->filled |= level(w);
	w->keyed = true;
}

void
jwrite_key(struct jwrite *w, const char *key)
{
	size_t n = strlen(key);
	char *p;

	begin_key(w);
	p = buf_reserve(w->b, n + 3);
	p[0] = '"';
	memcpy(p + 1, key, n);
	p[n + 1] = '"';
	p[n + 2] = ':';
	w->b->len += n + 3;
}

void
jwrite_key_span(struct jwrite *w, struct span key)
{
	begin_key(w);
	jwrite_quoted(w->b, key);
	buf_putc(w->b, ':');
}

/* Length of the run in front that needs no escape. */
static size_t
plain_run(const char *s, size_t n)
{
	size_t i = 0;
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"');
	const __m128i slash = _mm_set1_epi8('\\');
	const __m128i top = _mm_set1_epi8(0x1f);

	for (; n - i >= 16; i += 16) {
		__m128i v;
		int m;

		memcpy(&v, s + i, sizeof(v));
		m = _mm_movemask_epi8(
			_mm_or_si128(_mm_cmpeq_epi8(_mm_min_epu8(v, top), v),
				_mm_or_si128(_mm_cmpeq_epi8(v, quote),
					_mm_cmpeq_epi8(v, slash))));
		if (m != 0)
			return i + (size_t)__builtin_ctz((unsigned)m);
	}
#endif
	while (i < n && (unsigned char)s[i] >= 0x20 && s[i] != '"' &&
		s[i] != '\\')
		i++;
	return i;
}

static void
escape(struct buf *b, struct span s)
{
	static const char names[] = "\"\\\b\f\n\r\t", shown[] = "\"\\bfnrt";

	while (s.n > 0) {
		size_t n = plain_run(s.p, s.n);
		const char *name;
		char c;

		buf_put(b, s.p, n);
		s.p += n;
		s.n -= n;
		if (s.n == 0)
			return;
		c = *s.p++;
		s.n--;
		name = memchr(names, c, sizeof(names) - 1);
		if (name) {
			buf_putc(b, '\\');
			buf_putc(b, shown[name - names]);
		} else {
			buf_printf(b, "\\u%04x", (unsigned char)c);
		}
	}
}

void
jwrite_quoted(struct buf *b, struct span s)
{
	buf_putc(b, '"');
	escape(b, s);
	buf_putc(b, '"');
}

void
jwrite_str(struct jwrite *w, struct span s)
{
	begin(w);
	jwrite_quoted(w->b, s);
}

static void
jwrite_cstr(struct jwrite *w, const char *s)
{
	if (s)
		jwrite_str(w, span_of(s));
	else
		jwrite_null(w);
}

void
jwrite_raw(struct jwrite *w, struct span json)
{
	begin(w);
	buf_put_span(w->b, json);
}

void
jwrite_i64(struct jwrite *w, int64_t v)
{
	uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
	char tmp[20];
	size_t i = sizeof(tmp);

	begin(w);
	do {
		tmp[--i] = (char)('0' + u % 10);
		u /= 10;
	} while (u > 0);
	if (v < 0)
		buf_putc(w->b, '-');
	buf_put(w->b, tmp + i, sizeof(tmp) - i);
}

void
jwrite_f64(struct jwrite *w, double v, int decimals)
{
	size_t at;
	char *comma;

	if (!isfinite(v)) {
		jwrite_null(w);
		return;
	}
	begin(w);
	at = w->b->len;
	buf_printf(w->b, "%.*f", decimals, v);
	/* A tool that speaks to people may have set a locale. */
	comma = memchr(w->b->p + at, ',', w->b->len - at);
	if (comma)
		*comma = '.';
}

void
jwrite_bool(struct jwrite *w, bool v)
{
	begin(w);
	if (v)
		buf_put(w->b, "true", 4);
	else
		buf_put(w->b, "false", 5);
}

void
jwrite_null(struct jwrite *w)
{
	begin(w);
	buf_put(w->b, "null", 4);
}

/* Text known to need no escape. */
static void
put_plain(struct jwrite *w, const char *s, size_t n)
{
	char *p;

	begin(w);
	p = buf_reserve(w->b, n + 2);
	p[0] = '"';
	memcpy(p + 1, s, n);
	p[n + 1] = '"';
	w->b->len += n + 2;
}

void
jwrite_qid(struct jwrite *w, const struct qid *q)
{
	char text[QID_TEXT_MAX];

	put_plain(w, qid_text(q, text), QID_TEXT);
}

void
jwrite_iso_us(struct jwrite *w, int64_t at_us)
{
	char text[CLK_ISO_MAX];

	clk_iso_us(at_us, text);
	put_plain(w, text, strlen(text));
}

void
jwrite_iso_ms(struct jwrite *w, int64_t at_us)
{
	char text[CLK_ISO_MAX];

	clk_iso_ms(at_us, text);
	put_plain(w, text, strlen(text));
}

void
jwrite_kv_str(struct jwrite *w, const char *key, struct span s)
{
	jwrite_key(w, key);
	jwrite_str(w, s);
}

void
jwrite_kv_cstr(struct jwrite *w, const char *key, const char *s)
{
	jwrite_key(w, key);
	jwrite_cstr(w, s);
}

void
jwrite_kv_i64(struct jwrite *w, const char *key, int64_t v)
{
	jwrite_key(w, key);
	jwrite_i64(w, v);
}

void
jwrite_kv_bool(struct jwrite *w, const char *key, bool v)
{
	jwrite_key(w, key);
	jwrite_bool(w, v);
}

void
jwrite_kv_null(struct jwrite *w, const char *key)
{
	jwrite_key(w, key);
	jwrite_null(w);
}

void
jwrite_kv_raw(struct jwrite *w, const char *key, struct span json)
{
	jwrite_key(w, key);
	jwrite_raw(w, json);
}
