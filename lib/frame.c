/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames.  The writer is hot (every message passes it once): one reservation,
 * plain copies.  The reader trusts no length.
 */
#include "frame.h"

#include <string.h>

#include "buf.h"

enum { FIXED_BYTES = 1 + 16 + 2, KNOWN_FLAGS = 7 };

static char *
put16(char *p, size_t v)
{
	p[0] = (char)(v & 0xff);
	p[1] = (char)(v >> 8 & 0xff);
	return p + 2;
}

static char *
put_bytes(char *p, const void *s, size_t n)
{
	if (n > 0)
		memcpy(p, s, n);
	return p + n;
}

void
frame_write(struct buf *b, const struct frame *f)
{
	size_t n = FIXED_BYTES + f->txn.n + f->payload.n;
	char *p;

	BUG(f->txn.n > FRAME_TXN_MAX || f->sub.n > FRAME_TXN_MAX);
	BUG(f->flags & ~KNOWN_FLAGS);
	if (f->flags & FRAME_TRACE)
		n += sizeof(f->trace.b);
	if (f->flags & FRAME_SUB)
		n += 2 + f->sub.n;
	BUG(n > UINT32_MAX);
	p = buf_reserve(b, 4 + n);
	b->len += 4 + n;
	p = put16(p, n & 0xffff);
	p = put16(p, n >> 16);
	*p++ = (char)f->flags;
	p = put_bytes(p, f->id.b, sizeof(f->id.b));
	if (f->flags & FRAME_TRACE)
		p = put_bytes(p, f->trace.b, sizeof(f->trace.b));
	p = put16(p, f->txn.n);
	p = put_bytes(p, f->txn.p, f->txn.n);
	if (f->flags & FRAME_SUB) {
		p = put16(p, f->sub.n);
		p = put_bytes(p, f->sub.p, f->sub.n);
	}
	put_bytes(p, f->payload.p, f->payload.n);
}

static bool
take(struct span *s, size_t n, struct span *out)
{
	if (s->n < n)
		return false;
	*out = span_make(s->p, n);
	s->p += n;
	s->n -= n;
	return true;
}

static bool
take_le(struct span *s, int bytes, uint32_t *out)
{
	struct span v;

	if (!take(s, (size_t)bytes, &v))
		return false;
	*out = 0;
	while (bytes-- > 0)
		*out = *out << 8 | (uint8_t)v.p[bytes];
	return true;
}

static bool
take_id(struct span *s, struct qid *id)
{
	struct span v;

	if (!take(s, sizeof(id->b), &v))
		return false;
	memcpy(id->b, v.p, sizeof(id->b));
	return true;
}

static bool
take_counted(struct span *s, struct span *out)
{
	uint32_t n;

	return take_le(s, 2, &n) && take(s, n, out);
}

int
frame_next(struct span *rest, struct frame *f, struct err *e)
{
	struct span s = *rest, body, flags;
	uint32_t n;

	if (rest->n == 0)
		return 0;
	memset(f, 0, sizeof(*f));
	if (!take_le(&s, 4, &n) || !take(&s, n, &body))
		return err_set(e, ERR_INPUT, "frame longer than its segment");
	if (!take(&body, 1, &flags))
		return err_set(e, ERR_INPUT, "empty frame");
	f->flags = (uint8_t)flags.p[0];
	if (f->flags & ~KNOWN_FLAGS)
		return err_set(
			e, ERR_INPUT, "unknown frame flags 0x%02x", f->flags);
	if (!take_id(&body, &f->id) ||
		(f->flags & FRAME_TRACE && !take_id(&body, &f->trace)) ||
		!take_counted(&body, &f->txn) ||
		(f->flags & FRAME_SUB && !take_counted(&body, &f->sub)))
		return err_set(e, ERR_INPUT, "frame shorter than its fields");
	f->payload = body;
	f->whole = span_make(rest->p, 4 + (size_t)n);
	*rest = s;
	return 1;
}
