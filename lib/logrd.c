/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of segments to messages. */
#include "logrd.h"

#include "arena.h"
#include "buf.h"
#include "seal.h"
#include "seg.h"

/* room: for the opened payload, used again and again. */
static int
message_read(struct span *rest, const struct seal *seal, struct arena *a,
	struct buf *room, struct logrd_message *m, struct err *e)
{
	struct frame f;
	int got = frame_next(rest, &f, e);

	if (got == 0)
		return err_set(e, ERR_INPUT,
			"segment has fewer frames than its row says");
	if (got < 0)
		return -1;
	m->frame = f;
	m->payload = f.payload;
	if (!(f.flags & FRAME_SEALED))
		return 0;
	buf_reset(room);
	if (seal_open(seal, &f.id, f.payload, room, e) != 0)
		return -1;
	m->payload = arena_dup(a, buf_span(room));
	return 0;
}

size_t
logrd_read(const struct logrd_slice *s, const struct seal *seal,
	struct arena *a, struct logrd_message *out, struct err *e)
{
	struct buf frames = BUF_ZERO, room = BUF_ZERO;
	size_t n = 0, take = s->take > 0 ? (size_t)s->take : 0;
	struct span rest, end;
	struct err past = ERR_ZERO;

	if (seg_unpack(s->blob, &frames, e) != 0)
		goto out;
	rest = buf_span(&frames);
	if (seg_skip(&rest, s->skip, e) != 0)
		goto out;
	end = rest;
	/* of a damaged tail nothing is kept but what comes before it */
	if (seg_skip(&end, s->take, &past) == 0)
		rest.n -= end.n;
	rest = arena_dup(a, rest);
	while (n < take) {
		if (message_read(&rest, seal, a, &room, &out[n], e) != 0)
			break;
		out[n].offset = s->base + s->skip + (int64_t)n;
		n++;
	}
out:
	buf_fini(&frames);
	buf_fini(&room);
	return n;
}
