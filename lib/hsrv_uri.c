/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request targets: percent-escapes, route patterns, query keys.  Segments are
 * split before they are decoded, so %2F is a character of a name, never a
 * separator.  Everything decoded here passed hsrv_uri_check before.
 */
#include "hsrv_int.h"

/* UTF-8 one byte at a time: how many continuation bytes, in what range. */
struct utf8 {
	int more;
	unsigned char lo, hi;
};

static bool
utf8_step(struct utf8 *u, unsigned char c)
{
	if (u->more) {
		if (c < u->lo || c > u->hi)
			return false;
		u->more--;
		u->lo = 0x80;
		u->hi = 0xbf;
		return true;
	}
	u->lo = 0x80;
	u->hi = 0xbf;
	if (c < 0x80)
		return true;
	if (c >= 0xc2 && c <= 0xdf)
		u->more = 1;
	else if (c >= 0xe0 && c <= 0xef)
		u->more = 2;
	else if (c >= 0xf0 && c <= 0xf4)
		u->more = 3;
	else
		return false;
	/* overlong forms, surrogates, beyond U+10FFFF */
	if (c == 0xe0)
		u->lo = 0xa0;
	else if (c == 0xed)
		u->hi = 0x9f;
	else if (c == 0xf0)
		u->lo = 0x90;
	else if (c == 0xf4)
		u->hi = 0x8f;
	return true;
}

size_t
hsrv_uri_utf8_prefix(struct span s)
{
	struct utf8 u = { .more = 0 };
	size_t whole = 0;

	for (size_t i = 0; i < s.n; i++) {
		if (!utf8_step(&u, (unsigned char)s.p[i]))
			break;
		if (u.more == 0)
			whole = i + 1;
	}
	return whole;
}

const char *
hsrv_uri_check(struct span raw)
{
	struct utf8 u = { .more = 0 };

	if (raw.n == 0 || !memchr(raw.p, '%', raw.n))
		return NULL; /* the target itself is plain ASCII */
	for (size_t i = 0; i < raw.n; i++) {
		unsigned char c = (unsigned char)raw.p[i];

		if (c == '%') {
			int hi = i + 2 < raw.n ? span_hex(raw.p[i + 1]) : -1;
			int lo = i + 2 < raw.n ? span_hex(raw.p[i + 2]) : -1;

			if (hi < 0 || lo < 0)
				return "malformed percent-encoding";
			c = (unsigned char)(hi << 4 | lo);
			if (c == 0)
				return "%00 is not allowed";
			i += 2;
		}
		if (!utf8_step(&u, c))
			return "percent-encoding is not UTF-8";
	}
	return u.more ? "percent-encoding is not UTF-8" : NULL;
}

/* A copy in the arena, or raw itself when there is nothing to do. */
static struct span
decode(struct span raw, bool plus_is_space, struct arena *a)
{
	char *out;
	size_t n = 0;

	if (raw.n == 0 ||
		(!memchr(raw.p, '%', raw.n) &&
			!(plus_is_space && memchr(raw.p, '+', raw.n))))
		return raw;
	out = arena_alloc(a, raw.n);
	for (size_t i = 0; i < raw.n; i++) {
		char c = raw.p[i];

		if (c == '%' && i + 2 < raw.n) {
			int hi = span_hex(raw.p[i + 1]),
			    lo = span_hex(raw.p[i + 2]);

			BUG(hi < 0 || lo < 0); /* hsrv_uri_check */
			c = (char)(unsigned char)(hi << 4 | lo);
			i += 2;
		} else if (c == '+' && plus_is_space) {
			c = ' ';
		}
		out[n++] = c;
	}
	return span_make(out, n);
}

/* One segment of the path against one of the pattern. */
static bool
literal_is(struct span seg, const char *pat, size_t n, struct arena *a)
{
	if (memchr(seg.p, '%', seg.n))
		seg = decode(seg, false, a);
	return seg.n == n && memcmp(seg.p, pat, n) == 0;
}

int
hsrv_uri_match(const char *pattern, struct span path, struct arena *a,
	struct span params[HSRV_PARAMS_MAX])
{
	const char *pat = pattern, *p = path.p, *end = path.p + path.n;
	int n = 0;

	for (;;) {
		const char *pe, *se;
		struct span seg;

		if (*pat == '\0' || p == end) {
			if (*pat != '\0' || p != end)
				return -1;
			break;
		}
		if (*pat != '/' || *p != '/')
			return -1;
		pat++;
		p++;
		if (*pat == '*' || *pat == ':')
			BUG(n == HSRV_PARAMS_MAX);
		if (*pat == '*') {
			seg = span_make(p, (size_t)(end - p));
			if (seg.n == 0)
				return -1;
			params[n++] = seg;
			break;
		}
		pe = strchrnul(pat, '/');
		se = p == end ? end : memchr(p, '/', (size_t)(end - p));
		if (!se)
			se = end;
		seg = span_make(p, (size_t)(se - p));
		if (*pat == ':') {
			if (seg.n == 0)
				return -1;
			params[n++] = seg;
		} else if (!literal_is(seg, pat, (size_t)(pe - pat), a)) {
			return -1;
		}
		pat = pe;
		p = se;
	}
	for (int i = 0; i < n; i++)
		params[i] = decode(params[i], false, a);
	return n;
}

bool
hsrv_uri_query(
	struct span query, const char *key, struct arena *a, struct span *out)
{
	const char *p, *end, *amp;

	if (query.n == 0)
		return false; /* and p may be NULL */
	end = query.p + query.n;
	for (p = query.p; p < end; p = amp + 1) {
		const char *eq;
		struct span k;

		amp = memchr(p, '&', (size_t)(end - p));
		if (!amp)
			amp = end;
		eq = memchr(p, '=', (size_t)(amp - p));
		k = span_make(p, (size_t)((eq ? eq : amp) - p));
		if (!span_is(decode(k, true, a), key))
			continue;
		*out = eq ? decode(span_make(eq + 1, (size_t)(amp - eq - 1)),
				    true, a)
			  : span_make(amp, 0);
		return true;
	}
	return false;
}
