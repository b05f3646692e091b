/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads back what the Parquet writer wrote, from the format's description
 * alone; anything else than what it may write ends the process.
 */
#ifndef QUEEN_PARQUET_READ_H
#define QUEEN_PARQUET_READ_H

#include <snappy-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

#include "arena.h"
#include "buf.h"
#include "format.h"

#define PQ_CHECK(cond)                                                         \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,     \
				#cond);                                        \
			abort();                                               \
		}                                                              \
	} while (0)

struct pq_in {
	const uint8_t *p, *end;
};

/* A value of Thrift: a number or bool, a text, or members (of lists: id 0). */
struct pq_node {
	int id, type;
	int64_t n;
	struct span text;
	struct pq_node *kids;
	size_t kids_n, kids_cap;
};

static inline struct pq_in
pq_in(struct span s)
{
	return (struct pq_in){ (const uint8_t *)s.p,
		(const uint8_t *)s.p + s.n };
}

static inline uint8_t
pq_byte(struct pq_in *in)
{
	PQ_CHECK(in->p < in->end);
	return *in->p++;
}

static inline uint64_t
pq_varint(struct pq_in *in)
{
	uint64_t v = 0, b;
	int shift = 0;

	do {
		PQ_CHECK(shift < 64);
		b = pq_byte(in);
		v |= (b & 0x7f) << shift;
		shift += 7;
	} while (b & 0x80);
	return v;
}

static inline int64_t
pq_zigzag(struct pq_in *in)
{
	uint64_t v = pq_varint(in);

	return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

static inline struct span
pq_bytes(struct pq_in *in, size_t n)
{
	PQ_CHECK(n <= (size_t)(in->end - in->p));
	in->p += n;
	return span_make(in->p - n, n);
}

static inline struct pq_node *
pq_kid(struct pq_node *of, struct arena *a, int id, int type)
{
	of->kids = arena_grown(
		a, of->kids, of->kids_n, &of->kids_cap, sizeof(*of->kids));
	of->kids[of->kids_n] = (struct pq_node){ .id = id, .type = type };
	return &of->kids[of->kids_n++];
}

static inline void
pq_value(struct pq_in *in, struct arena *a, struct pq_node *v)
{
	uint8_t head;
	uint64_t n;
	int id = 0;

	switch (v->type) {
	case 1:
	case 2:
		v->n = v->type == 1;
		break;
	case 5:
	case 6:
		v->n = pq_zigzag(in);
		break;
	case 8:
		n = pq_varint(in);
		v->text = pq_bytes(in, n);
		break;
	case 9:
		head = pq_byte(in);
		n = head >> 4 == 15 ? pq_varint(in) : head >> 4;
		while (n-- > 0)
			pq_value(in, a, pq_kid(v, a, 0, head & 15));
		break;
	case 12:
		while ((head = pq_byte(in)) != 0) {
			PQ_CHECK(head >> 4 != 0);
			id += head >> 4;
			pq_value(in, a, pq_kid(v, a, id, head & 15));
		}
		break;
	default:
		PQ_CHECK(false);
	}
}

static inline struct pq_node
pq_struct(struct pq_in *in, struct arena *a)
{
	struct pq_node v = { .type = 12 };

	pq_value(in, a, &v);
	return v;
}

static inline const struct pq_node *
pq_get(const struct pq_node *of, int id)
{
	for (size_t i = 0; i < of->kids_n; i++)
		if (of->kids[i].id == id)
			return &of->kids[i];
	return NULL;
}

static inline int64_t
pq_int(const struct pq_node *of, int id)
{
	const struct pq_node *v = pq_get(of, id);

	PQ_CHECK(v && v->type != 8);
	return v->n;
}

/* `{1=1,4="a",5=[{},T]}`; bytes that are no ASCII as \xx. */
static inline void
pq_print(const struct pq_node *v, struct buf *b)
{
	if (v->type == 1 || v->type == 2)
		buf_putc(b, v->n ? 'T' : 'F');
	else if (v->type == 5 || v->type == 6)
		buf_printf(b, "%lld", (long long)v->n);
	else if (v->type == 8) {
		buf_putc(b, '\'');
		for (size_t i = 0; i < v->text.n; i++) {
			unsigned char c = (unsigned char)v->text.p[i];

			buf_printf(
				b, c > 0x1f && c < 0x7f ? "%c" : "\\%02x", c);
		}
		buf_putc(b, '\'');
	} else {
		buf_putc(b, v->type == 9 ? '[' : '{');
		for (size_t i = 0; i < v->kids_n; i++) {
			if (i > 0)
				buf_putc(b, ',');
			if (v->type == 12)
				buf_printf(b, "%d=", v->kids[i].id);
			pq_print(&v->kids[i], b);
		}
		buf_putc(b, v->type == 9 ? ']' : '}');
	}
}

static inline struct pq_node
pq_footer(struct span file, struct arena *a)
{
	const uint8_t *end = (const uint8_t *)file.p + file.n;
	struct pq_node v;
	struct pq_in in;
	uint32_t n;

	PQ_CHECK(file.n >= 12 && memcmp(file.p, "PAR1", 4) == 0 &&
		 memcmp(end - 4, "PAR1", 4) == 0);
	n = end[-8] | (uint32_t)end[-7] << 8 | (uint32_t)end[-6] << 16 |
	    (uint32_t)end[-5] << 24;
	PQ_CHECK(n <= file.n - 12);
	in = pq_in(span_make(end - 8 - n, n));
	v = pq_struct(&in, a);
	PQ_CHECK(in.p == in.end);
	return v;
}

static inline uint64_t
pq_bits(const uint8_t *p, size_t at, unsigned width)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < width; i++)
		v |= (uint64_t)(p[(at + i) / 8] >> (at + i) % 8 & 1) << i;
	return v;
}

/* n values of runs and groups; the input ends with them. */
static inline void
pq_hybrid(struct pq_in in, unsigned width, uint32_t *out, size_t n)
{
	size_t k = 0;

	while (in.p < in.end) {
		uint64_t head = pq_varint(&in), count = head >> 1;
		const uint8_t *p;

		PQ_CHECK(count > 0 && k < n);
		if (head & 1) {
			p = (const uint8_t *)pq_bytes(&in, count * width).p;
			for (size_t i = 0; i < count * 8; i++) {
				uint64_t v = pq_bits(p, i * width, width);

				if (k < n)
					out[k++] = (uint32_t)v;
				else
					PQ_CHECK(v == 0);
			}
		} else {
			PQ_CHECK(count <= n - k);
			p = (const uint8_t *)pq_bytes(&in, (width + 7) / 8).p;
			while (count-- > 0)
				out[k++] = (uint32_t)pq_bits(
					p, 0, (width + 7) / 8 * 8);
		}
	}
	PQ_CHECK(k == n);
}

static inline void
pq_delta(struct pq_in in, int64_t *out, size_t n)
{
	uint64_t v;

	PQ_CHECK(pq_varint(&in) == 128 && pq_varint(&in) == 4 &&
		 pq_varint(&in) == n);
	v = (uint64_t)pq_zigzag(&in);
	out[0] = (int64_t)v;
	for (size_t k = 1; k < n;) {
		uint64_t low = (uint64_t)pq_zigzag(&in);
		const char *widths = pq_bytes(&in, 4).p;

		for (int m = 0; m < 4; m++) {
			unsigned w = (uint8_t)widths[m];
			const uint8_t *p;

			PQ_CHECK(w <= 64 && (k < n || w == 0));
			p = (const uint8_t *)pq_bytes(&in, 4 * w).p;
			for (size_t i = 0; i < 32 && k < n; i++) {
				v += low + pq_bits(p, i * w, w);
				out[k++] = (int64_t)v;
			}
		}
	}
	PQ_CHECK(in.p == in.end);
}

static inline struct span
pq_plain(struct pq_in *in)
{
	const uint8_t *n = (const uint8_t *)pq_bytes(in, 4).p;

	return pq_bytes(in, n[0] | (size_t)n[1] << 8 | (size_t)n[2] << 16 |
				    (size_t)n[3] << 24);
}

static inline struct span
pq_unpack(struct span packed, size_t n, int64_t codec, struct arena *a)
{
	char *p = arena_alloc(a, n ? n : 1);
	size_t got = n;

	PQ_CHECK(codec == 1 || codec == 6);
	if (codec == 1)
		PQ_CHECK(snappy_uncompress(packed.p, packed.n, p, &got) ==
			 SNAPPY_OK);
	else
		got = ZSTD_decompress(p, n, packed.p, packed.n);
	PQ_CHECK(got == n);
	return span_make(p, n);
}

/* Values of one page into column `which` of the rows. */
static inline void
pq_page(struct pq_in in, int which, int64_t encoding, const struct span *dict,
	struct record *r, size_t n, struct arena *a)
{
	uint32_t *k = arena_zalloc(a, (n + 1) * sizeof(*k));
	int64_t *v = arena_alloc(a, n * sizeof(*v));

	if (which == 1 || which == 3) {
		PQ_CHECK(encoding == 5);
		pq_delta(in, v, n);
		for (size_t i = 0; i < n; i++)
			*(which == 1 ? &r[i].offset : &r[i].ts_us) = v[i];
		return;
	}
	PQ_CHECK(encoding == 0 || (encoding == 2 && which == 0));
	if (which == 4)
		pq_hybrid(pq_in(pq_plain(&in)), 1, k, n);
	if (encoding == 2) {
		unsigned width = pq_byte(&in);

		pq_hybrid(in, width, k, n);
	}
	for (size_t i = 0; i < n; i++) {
		struct span s = SPAN_ZERO;

		if (encoding == 2)
			s = dict[k[i]];
		else if (which != 4 || k[i])
			s = pq_plain(&in);
		if (which == 4)
			r[i].null = !k[i];
		*(which == 0         ? &r[i].partition
			: which == 2 ? &r[i].txn
				     : &r[i].payload) = s;
	}
	PQ_CHECK(encoding == 2 || in.p == in.end);
}

/* What a chunk's metadata promises of its pages. */
static inline void
pq_check_pages(const struct pq_node *meta, int64_t dicts, const int64_t *pages)
{
	const struct pq_node *counts = pq_get(meta, 13);
	int64_t seen = 0, n = 0;

	for (size_t i = 0; i < counts->kids_n; i++) {
		const struct pq_node *c = &counts->kids[i];

		PQ_CHECK(pq_int(c, 3) ==
			 (pq_int(c, 1) == 2 ? dicts : pages[pq_int(c, 2)]));
		seen += pq_int(c, 3);
	}
	for (int i = 0; i < 6; i++)
		n += pages[i];
	PQ_CHECK(seen == n + dicts);
}

static inline void
pq_chunk(struct span file, const struct pq_node *meta, int which,
	struct record *r, size_t n, struct arena *a)
{
	const struct pq_node *dict_at = pq_get(meta, 11);
	int64_t at = dict_at ? dict_at->n : pq_int(meta, 9), plain = 0;
	int64_t dicts = 0, pages[6] = { 0 };
	struct pq_in in =
		pq_in(span_make(file.p + at, (size_t)pq_int(meta, 7)));
	struct span *dict = NULL;
	size_t k = 0;

	while (in.p < in.end) {
		const uint8_t *from = in.p;
		struct pq_node h = pq_struct(&in, a);
		const struct pq_node *d = pq_get(&h, 5);
		struct span body;

		if (d)
			PQ_CHECK(
				pages[0] + pages[2] + pages[5] > 0 ||
				(const char *)from == file.p + pq_int(meta, 9));
		plain += in.p - from + pq_int(&h, 2);
		body = pq_unpack(pq_bytes(&in, (size_t)pq_int(&h, 3)),
			(size_t)pq_int(&h, 2), pq_int(meta, 4), a);
		if (!d) {
			struct pq_in names = pq_in(body);
			int64_t count;

			d = pq_get(&h, 7);
			PQ_CHECK(dicts++ == 0 && pq_int(&h, 1) == 2 &&
				 pq_int(d, 2) == 0);
			count = pq_int(d, 1);
			dict = arena_alloc(a, (size_t)count * sizeof(*dict));
			for (int64_t i = 0; i < count; i++)
				dict[i] = pq_plain(&names);
			PQ_CHECK(names.p == names.end);
			continue;
		}
		PQ_CHECK(pq_int(&h, 1) == 0 && pq_int(d, 3) == 3 &&
			 pq_int(d, 4) == 3 && pq_int(d, 1) <= 20000 &&
			 (size_t)pq_int(d, 1) <= n - k);
		pq_page(pq_in(body), which, pq_int(d, 2), dict, r + k,
			(size_t)pq_int(d, 1), a);
		pages[pq_int(d, 2)]++;
		k += (size_t)pq_int(d, 1);
	}
	PQ_CHECK(k == n && (int64_t)n == pq_int(meta, 5));
	PQ_CHECK(plain == pq_int(meta, 6));
	pq_check_pages(meta, dicts, pages);
}

/* All rows of a file. */
static inline struct record *
pq_rows(struct span file, struct arena *a, size_t *n)
{
	struct pq_node f = pq_footer(file, a);
	const struct pq_node *groups = pq_get(&f, 4);
	struct record *r;
	size_t k = 0;

	*n = (size_t)pq_int(&f, 3);
	r = arena_zalloc(a, (*n + 1) * sizeof(*r));
	for (size_t g = 0; g < groups->kids_n; g++) {
		const struct pq_node *group = &groups->kids[g];
		const struct pq_node *columns = pq_get(group, 1);
		size_t rows = (size_t)pq_int(group, 3);
		int64_t plain = 0, packed = 0;

		PQ_CHECK(columns->kids_n == 5 && rows <= *n - k);
		for (int c = 0; c < 5; c++) {
			const struct pq_node *meta =
				pq_get(&columns->kids[c], 3);

			pq_chunk(file, meta, c, r + k, rows, a);
			plain += pq_int(meta, 6);
			packed += pq_int(meta, 7);
		}
		PQ_CHECK(plain == pq_int(group, 2));
		PQ_CHECK(packed == pq_int(group, 6));
		k += rows;
	}
	PQ_CHECK(k == *n);
	return r;
}

#endif
