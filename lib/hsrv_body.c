/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunked framing of RFC 9112 §7.1, fed piece by piece.  Strict: CRLF
 * only, no blanks around the size, bounded extensions and trailers, so that
 * framing costs a bounded number of bytes and no two readers can disagree.
 */
#include "hsrv_int.h"

static enum hsrv_chunk_verdict
bad(struct hsrv_chunk *k, const char *error)
{
	k->error = error;
	return HSRV_CHUNK_BAD;
}

static enum hsrv_chunk_verdict
step_size(struct hsrv_chunk *k, unsigned char c)
{
	int d = span_hex((char)c);

	if (d >= 0) {
		if (++k->digits > 16 || k->left >> 60)
			return bad(k, "chunk size too long");
		k->left = k->left << 4 | (unsigned)d;
		return HSRV_CHUNK_MORE;
	}
	if (k->digits == 0)
		return bad(k, "malformed chunk size");
	if (c == '\r')
		k->state = HSRV_CHUNK_SIZE_LF;
	else if (c == ';')
		k->state = HSRV_CHUNK_EXT;
	else
		return bad(k, "malformed chunk size");
	return HSRV_CHUNK_MORE;
}

static enum hsrv_chunk_verdict
step_ext(struct hsrv_chunk *k, unsigned char c)
{
	if (c == '\r') {
		k->state = HSRV_CHUNK_SIZE_LF;
		return HSRV_CHUNK_MORE;
	}
	if ((c < 0x20 && c != '\t') || c == 0x7f)
		return bad(k, "malformed chunk extension");
	if (++k->line > HSRV_CHUNK_LINE_MAX ||
		++k->extra > HSRV_CHUNK_EXTRA_MAX)
		return bad(k, "chunk extensions too long");
	return HSRV_CHUNK_MORE;
}

static enum hsrv_chunk_verdict
size_done(struct hsrv_chunk *k, unsigned char c, int64_t max_bytes)
{
	if (c != '\n')
		return bad(k, "malformed chunk size");
	k->line = 0;
	k->digits = 0;
	if (k->left == 0) {
		k->state = HSRV_CHUNK_TRAILER;
		return HSRV_CHUNK_MORE;
	}
	if (k->left > (uint64_t)max_bytes ||
		k->total > (uint64_t)max_bytes - k->left)
		return HSRV_CHUNK_LARGE;
	k->total += k->left;
	k->state = HSRV_CHUNK_DATA;
	return HSRV_CHUNK_MORE;
}

static enum hsrv_chunk_verdict
step_trailer(struct hsrv_chunk *k, unsigned char c)
{
	if (c == '\r') {
		k->state = HSRV_CHUNK_TRAILER_LF;
		return HSRV_CHUNK_MORE;
	}
	if (c == '\n')
		return bad(k, "malformed trailer");
	if (k->line == HSRV_CHUNK_LINE_MAX || ++k->extra > HSRV_CHUNK_EXTRA_MAX)
		return bad(k, "trailers too long");
	k->trailer[k->line++] = (char)c;
	return HSRV_CHUNK_MORE;
}

static enum hsrv_chunk_verdict
trailer_done(struct hsrv_chunk *k, unsigned char c)
{
	struct hsrv_field f;

	if (c != '\n')
		return bad(k, "malformed trailer");
	if (k->line == 0) {
		k->state = HSRV_CHUNK_END;
		return HSRV_CHUNK_DONE;
	}
	if (!hsrv_head_field(span_make(k->trailer, k->line), &f))
		return bad(k, "malformed trailer");
	k->line = 0;
	k->state = HSRV_CHUNK_TRAILER;
	return HSRV_CHUNK_MORE;
}

static void
take_data(struct hsrv_chunk *k, struct span *in, struct buf *out)
{
	size_t n = k->left < in->n ? (size_t)k->left : in->n;

	buf_put(out, in->p, n);
	*in = span_make(in->p + n, in->n - n);
	k->left -= n;
	if (k->left == 0)
		k->state = HSRV_CHUNK_DATA_CR;
}

enum hsrv_chunk_verdict
hsrv_body_chunked(struct hsrv_chunk *k, struct span *in, struct buf *out,
	int64_t max_bytes)
{
	enum hsrv_chunk_verdict v = HSRV_CHUNK_MORE;

	while (in->n && v == HSRV_CHUNK_MORE) {
		unsigned char c;

		if (k->state == HSRV_CHUNK_DATA) {
			take_data(k, in, out);
			continue;
		}
		c = (unsigned char)*in->p;
		*in = span_make(in->p + 1, in->n - 1);
		switch (k->state) {
		case HSRV_CHUNK_SIZE:
			v = step_size(k, c);
			break;
		case HSRV_CHUNK_EXT:
			v = step_ext(k, c);
			break;
		case HSRV_CHUNK_SIZE_LF:
			v = size_done(k, c, max_bytes);
			break;
		case HSRV_CHUNK_DATA_CR:
			if (c != '\r')
				return bad(k, "chunk longer than its size");
			k->state = HSRV_CHUNK_DATA_LF;
			break;
		case HSRV_CHUNK_DATA_LF:
			if (c != '\n')
				return bad(k, "chunk longer than its size");
			k->state = HSRV_CHUNK_SIZE;
			break;
		case HSRV_CHUNK_TRAILER:
			v = step_trailer(k, c);
			break;
		case HSRV_CHUNK_TRAILER_LF:
			v = trailer_done(k, c);
			break;
		case HSRV_CHUNK_DATA:
		case HSRV_CHUNK_END:
			BUG(true);
		}
	}
	return v;
}
