/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lowest and highest value of a chunk.  A long text is cut: the cut of the
 * lowest sorts below it; that of the highest must be raised, at its last
 * character that has a next one of as many bytes, or readers would skip the
 * rows behind the cut.
 */
#include "parquet_int.h"

static int
compare(const struct parquet_bound *a, struct span v)
{
	size_t n = a->n < v.n ? a->n : v.n;
	int c = n > 0 ? memcmp(a->b, v.p, n) : 0;

	return c ? c : (a->n > v.n) - (a->n < v.n);
}

static void
set(struct parquet_bound *a, struct span v)
{
	a->n = (uint8_t)v.n;
	if (v.n > 0)
		memcpy(a->b, v.p, v.n);
}

/* What is equal for so long is one bound, cut. */
void
parquet_stat_text(struct parquet_stat *s, struct span v)
{
	if (v.n > PARQUET_STAT_MAX + 1)
		v.n = PARQUET_STAT_MAX + 1;
	if (!s->any || compare(&s->min, v) > 0)
		set(&s->min, v);
	if (!s->any || compare(&s->max, v) < 0)
		set(&s->max, v);
	s->any = true;
}

void
parquet_stat_i64(struct parquet_stat *s, int64_t v)
{
	if (!s->any || v < s->low)
		s->low = v;
	if (!s->any || v > s->high)
		s->high = v;
	s->any = true;
}

static struct span
cut(const struct parquet_bound *a)
{
	return span_clip(span_make(a->b, a->n), PARQUET_STAT_MAX);
}

/* The next character of as many bytes into p; false when there is none. */
static bool
raise_char(char *p, size_t n)
{
	static const uint32_t last[] = { 0, 0x7f, 0x7ff, 0xffff, 0x10ffff };
	static const uint8_t mark[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
	static const uint8_t data[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	uint32_t c;

	if (n > 4 || ((uint8_t)p[0] & ~data[n]) != mark[n])
		return false;
	c = (uint8_t)p[0] & data[n];
	for (size_t i = 1; i < n; i++)
		c = c << 6 | ((uint8_t)p[i] & 0x3f);
	if (c >= last[n])
		return false;
	c = c == 0xd7ff ? 0xe000 : c + 1;
	for (size_t i = n - 1; i > 0; i--, c >>= 6)
		p[i] = (char)(0x80 | (c & 0x3f));
	p[0] = (char)(mark[n] | c);
	return true;
}

/* Makes s, cut from something longer, sort above it; empty when it cannot. */
static struct span
above(struct span s, char out[PARQUET_STAT_MAX])
{
	size_t at;

	memcpy(out, s.p, s.n);
	s.p = out;
	for (; s.n > 0; s.n = at) {
		at = s.n - 1;
		while (at > 0 && ((uint8_t)out[at] & 0xc0) == 0x80)
			at--;
		if (raise_char(out + at, s.n - at))
			return s;
	}
	return s;
}

static void
write_texts(const struct parquet_stat *s, struct parquet_thrift *t)
{
	struct span min = cut(&s->min), max = cut(&s->max);
	bool max_whole = max.n == s->max.n;
	char raised[PARQUET_STAT_MAX];

	if (!max_whole)
		max = above(max, raised);
	if (max_whole || max.n > 0)
		parquet_t_text(t, 5, max);
	parquet_t_text(t, 6, min);
	if (max_whole || max.n > 0)
		parquet_t_bool(t, 7, max_whole);
	parquet_t_bool(t, 8, min.n == s->min.n);
}

static void
write_numbers(const struct parquet_stat *s, struct parquet_thrift *t)
{
	char min[8], max[8];

	for (size_t i = 0; i < 8; i++) {
		max[i] = (char)((uint64_t)s->high >> 8 * i);
		min[i] = (char)((uint64_t)s->low >> 8 * i);
	}
	parquet_t_text(t, 5, span_make(max, sizeof(max)));
	parquet_t_text(t, 6, span_make(min, sizeof(min)));
	parquet_t_bool(t, 7, true);
	parquet_t_bool(t, 8, true);
}

void
parquet_stat_write(const struct parquet_stat *s, int type, int64_t nulls,
	struct parquet_thrift *t, int id)
{
	parquet_t_field(t, id);
	parquet_t_i64(t, 3, nulls);
	if (s->any && type == PARQUET_INT64)
		write_numbers(s, t);
	else if (s->any)
		write_texts(s, t);
	parquet_t_close(t);
}
