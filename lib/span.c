/* SPDX-License-Identifier: Apache-2.0 */
/* Hash and numbers of byte slices. */
#include "span.h"

/* Folds the 128-bit product: every input bit reaches every output bit. */
static uint64_t
mix(uint64_t a, uint64_t b)
{
	__extension__ unsigned __int128 m = (unsigned __int128)a * b;

	return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static uint64_t
load64(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

uint64_t
span_hash(struct span s, uint64_t seed)
{
	/* a factor that can be made zero from outside would hide the other */
	const uint64_t k0 = 0x9e3779b97f4a7c15u ^ seed;
	const uint64_t k1 = 0xd6e8feb86659fd93u ^ (seed << 32 | seed >> 32);
	uint64_t h = mix(s.n ^ k0, k1), tail = 0;
	const char *p = s.p;
	size_t n = s.n;

	for (; n >= 16; p += 16, n -= 16)
		h = mix(load64(p) ^ h ^ k0, load64(p + 8) ^ k1);
	if (n >= 8) {
		h = mix(load64(p) ^ h ^ k1, k0);
		p += 8;
		n -= 8;
	}
	if (n > 0)
		memcpy(&tail, p, n);
	return mix(tail ^ h, k1);
}

bool
span_i64(struct span s, int64_t *out)
{
	bool minus = s.n > 0 && s.p[0] == '-';
	size_t i = minus ? 1 : 0;
	uint64_t v = 0, limit = (uint64_t)INT64_MAX + (minus ? 1 : 0);

	if (i == s.n)
		return false;
	for (; i < s.n; i++) {
		unsigned d = (unsigned)(unsigned char)s.p[i] - '0';

		if (d > 9 || v > (limit - d) / 10)
			return false;
		v = v * 10 + d;
	}
	*out = minus ? (int64_t)(0 - v) : (int64_t)v;
	return true;
}

static bool
is_white(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

struct span
span_trim(struct span s)
{
	while (s.n && is_white(s.p[0])) {
		s.p++;
		s.n--;
	}
	while (s.n && is_white(s.p[s.n - 1]))
		s.n--;
	return s;
}

struct span
span_clip(struct span s, size_t max)
{
	if (s.n <= max)
		return s;
	while (max > 0 && ((unsigned char)s.p[max] & 0xc0) == 0x80)
		max--;
	return span_make(s.p, max);
}

int
span_hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
