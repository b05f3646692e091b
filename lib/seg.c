/* SPDX-License-Identifier: Apache-2.0 */
/* Segment blobs: a header that says how the frames behind it are packed. */
#include "seg.h"

#include "buf.h"
#include "zst.h"

enum { HEADER_BYTES = 2 };

void
seg_pack(struct span frames, struct buf *out)
{
	size_t at = out->len;

	buf_putc(out, SEG_VERSION);
	buf_putc(out, SEG_CODEC_ZSTD);
	if (frames.n >= SEG_ZSTD_FROM_BYTES && zst_pack(frames, out) == 0)
		return;
	out->p[at + 1] = SEG_CODEC_NONE;
	buf_put_span(out, frames);
}

int
seg_unpack(struct span blob, struct buf *out, struct err *e)
{
	struct span rest;

	if (blob.n < HEADER_BYTES)
		return err_set(e, ERR_INPUT, "segment of %zu bytes", blob.n);
	if (blob.p[0] != SEG_VERSION)
		return err_set(e, ERR_INPUT, "unknown segment version %d",
			(uint8_t)blob.p[0]);
	rest = span_make(blob.p + HEADER_BYTES, blob.n - HEADER_BYTES);
	switch (blob.p[1]) {
	case SEG_CODEC_NONE:
		if (rest.n > SEG_RAW_MAX_BYTES)
			return err_set(
				e, ERR_LIMIT, "segment of %zu bytes", rest.n);
		buf_put_span(out, rest);
		return 0;
	case SEG_CODEC_ZSTD:
		return zst_unpack(rest, SEG_RAW_MAX_BYTES, out, e);
	default:
		return err_set(e, ERR_INPUT, "unknown segment codec %d",
			(uint8_t)blob.p[1]);
	}
}

int
seg_skip(struct span *frames, int64_t n, struct err *e)
{
	while (n-- > 0) {
		const uint8_t *p = (const uint8_t *)frames->p;
		size_t len;

		if (frames->n < 4)
			return err_set(e, ERR_INPUT,
				"segment has fewer frames than its row says");
		len = 4 + ((size_t)p[0] | (size_t)p[1] << 8 |
				  (size_t)p[2] << 16 | (size_t)p[3] << 24);
		if (len > frames->n)
			return err_set(
				e, ERR_INPUT, "frame longer than its segment");
		frames->p += len;
		frames->n -= len;
	}
	return 0;
}
