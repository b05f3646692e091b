/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings of integers: the hybrid of runs and bits, and packed deltas. */
#include "err.h"
#include "parquet_int.h"

enum { DELTA_MINI = 32, DELTA_MINIS = PARQUET_DELTA_BLOCK / DELTA_MINI };

void
parquet_varint(struct buf *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		buf_putc(b, (char)(v | 0x80));
	buf_putc(b, (char)v);
}

uint64_t
parquet_zigzag(int64_t v)
{
	return (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0);
}

unsigned
parquet_width(uint64_t v)
{
	return v == 0 ? 0 : 64 - (unsigned)__builtin_clzll(v);
}

/* Numbers of some bits each, lowest bits first, into whole bytes. */
struct bits {
	uint8_t *p;
	uint64_t held;
	unsigned n; /* bits held, below 8 between calls */
};

static void
bits_some(struct bits *to, uint64_t v, unsigned width)
{
	to->held |= v << to->n;
	to->n += width;
	for (; to->n >= 8; to->n -= 8) {
		*to->p++ = (uint8_t)to->held;
		to->held >>= 8;
	}
}

static void
bits_put(struct bits *to, uint64_t v, unsigned width)
{
	if (width <= 32) {
		bits_some(to, v, width);
		return;
	}
	bits_some(to, v & UINT32_MAX, 32);
	bits_some(to, v >> 32, width - 32);
}

void
parquet_hybrid_begin(struct parquet_hybrid *h, unsigned width)
{
	BUG(width == 0 || width > 32);
	buf_reset(&h->out);
	buf_reset(&h->packed);
	h->width = width;
	h->n = 0;
}

void
parquet_hybrid_fini(struct parquet_hybrid *h)
{
	buf_fini(&h->out);
	buf_fini(&h->packed);
}

static void
pack_eight(struct parquet_hybrid *h)
{
	struct bits to = { (uint8_t *)buf_reserve(&h->packed, h->width), 0, 0 };

	for (size_t i = 0; i < 8; i++)
		bits_put(&to, h->eight[i], h->width);
	h->packed.len += h->width;
	h->n = 0;
}

static void
put_packed(struct parquet_hybrid *h)
{
	if (h->packed.len == 0)
		return;
	parquet_varint(&h->out, h->packed.len / h->width << 1 | 1);
	buf_put_span(&h->out, buf_span(&h->packed));
	buf_reset(&h->packed);
}

void
parquet_hybrid_run(struct parquet_hybrid *h, uint32_t v, uint32_t n)
{
	for (; h->n > 0 && n > 0; n--) {
		h->eight[h->n++] = v;
		if (h->n == 8)
			pack_eight(h);
	}
	if (n >= 8) {
		put_packed(h);
		parquet_varint(&h->out, (uint64_t)n << 1);
		for (unsigned bit = 0; bit < h->width; bit += 8)
			buf_putc(&h->out, (char)(v >> bit));
		n = 0;
	}
	for (; n > 0; n--)
		h->eight[h->n++] = v;
}

void
parquet_hybrid_end(struct parquet_hybrid *h)
{
	if (h->n > 0) {
		while (h->n < 8)
			h->eight[h->n++] = 0;
		pack_eight(h);
	}
	put_packed(h);
}

static int64_t
lowest(const int64_t *v, size_t n)
{
	int64_t low = v[0];

	for (size_t i = 1; i < n; i++)
		if (v[i] < low)
			low = v[i];
	return low;
}

/*
 * Differences are taken modulo 2^64, as readers add them.  A miniblock behind
 * the last value has width 0 and no bytes; one that begins is whole.
 */
static void
put_block(struct parquet_delta *d, struct buf *b)
{
	uint64_t low = (uint64_t)lowest(d->block, d->n);
	uint8_t *widths;
	struct bits to;

	for (uint32_t i = d->n; i < PARQUET_DELTA_BLOCK; i++)
		d->block[i] = (int64_t)low;
	parquet_varint(b, parquet_zigzag((int64_t)low));
	widths = (uint8_t *)buf_reserve(b, DELTA_MINIS + sizeof(d->block));
	to = (struct bits){ widths + DELTA_MINIS, 0, 0 };
	for (size_t m = 0; m < DELTA_MINIS; m++) {
		const int64_t *v = d->block + m * DELTA_MINI;
		uint64_t all = 0;

		for (size_t i = 0; i < DELTA_MINI; i++)
			all |= (uint64_t)v[i] - low;
		widths[m] = (uint8_t)parquet_width(all);
		for (size_t i = 0; widths[m] > 0 && i < DELTA_MINI; i++)
			bits_put(&to, (uint64_t)v[i] - low, widths[m]);
	}
	b->len += (size_t)(to.p - widths);
	d->n = 0;
}

void
parquet_delta_add(struct parquet_delta *d, int64_t v, struct buf *b)
{
	if (d->count++ == 0) {
		d->first = d->last = v;
		return;
	}
	d->block[d->n++] = (int64_t)((uint64_t)v - (uint64_t)d->last);
	d->last = v;
	if (d->n == PARQUET_DELTA_BLOCK)
		put_block(d, b);
}

size_t
parquet_delta_end(struct parquet_delta *d, struct buf *b,
	uint8_t head[PARQUET_DELTA_HEAD_MAX])
{
	struct buf h = BUF_ZERO;
	size_t n;

	if (d->n > 0)
		put_block(d, b);
	parquet_varint(&h, PARQUET_DELTA_BLOCK);
	parquet_varint(&h, DELTA_MINIS);
	parquet_varint(&h, d->count);
	parquet_varint(&h, parquet_zigzag(d->first));
	n = h.len;
	BUG(n > PARQUET_DELTA_HEAD_MAX);
	memcpy(head, h.p, n);
	buf_fini(&h);
	d->count = 0;
	return n;
}
