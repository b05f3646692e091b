/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of segments to messages. */
#include "logrd.h"

#include "arena.h"
#include "buf.h"
#include "seal.h"
#include "seg.h"

enum { ROOM_KEPT_BYTES = 4 << 20 };

void
logrd_room_fini(struct logrd_room *r)
{
	buf_fini(&r->frames);
	buf_fini(&r->payload);
}

/* clear: for the opened payload. */
static int
message_read(struct span *rest, const struct seal *seal, struct buf *clear,
	struct logrd_message *m, struct err *e)
{
	int got = frame_next(rest, &m->frame, e);

	if (got == 0)
		return err_set(e, ERR_INPUT,
			"segment has fewer frames than its row says");
	if (got < 0)
		return -1;
	m->payload = m->frame.payload;
	if (!(m->frame.flags & FRAME_SEALED))
		return 0;
	buf_reset(clear);
	if (seal_open(seal, &m->frame.id, m->payload, clear, e) != 0)
		return -1;
	m->payload = buf_span(clear);
	return 0;
}

size_t
logrd_read(const struct logrd_slice *s, const struct seal *seal,
	struct arena *a, struct logrd_message *out, struct err *e)
{
	struct logrd_room room = { .frames = BUF_ZERO };
	size_t n = 0, take = s->take > 0 ? (size_t)s->take : 0;
	struct span rest, end;
	struct err past = ERR_ZERO;

	if (seg_unpack(s->blob, &room.frames, e) != 0)
		goto out;
	rest = buf_span(&room.frames);
	if (seg_skip(&rest, s->skip, e) != 0)
		goto out;
	end = rest;
	/* of a damaged tail nothing is kept but what comes before it */
	if (seg_skip(&end, s->take, &past) == 0)
		rest.n -= end.n;
	rest = arena_dup(a, rest);
	while (n < take) {
		struct logrd_message *m = &out[n];

		if (message_read(&rest, seal, &room.payload, m, e) != 0)
			break;
		if (m->frame.flags & FRAME_SEALED)
			m->payload = arena_dup(a, m->payload);
		m->offset = s->base + s->skip + (int64_t)n;
		n++;
	}
out:
	logrd_room_fini(&room);
	return n;
}

size_t
logrd_each(const struct logrd_slice *s, const struct seal *seal,
	struct logrd_room *room, logrd_fn fn, void *arg, struct err *e)
{
	size_t n = 0, take = s->take > 0 ? (size_t)s->take : 0;
	struct logrd_message m;
	struct span rest;

	buf_reset(&room->frames);
	if (seg_unpack(s->blob, &room->frames, e) != 0)
		return 0;
	rest = buf_span(&room->frames);
	if (seg_skip(&rest, s->skip, e) != 0)
		return 0;
	while (n < take &&
		message_read(&rest, seal, &room->payload, &m, e) == 0) {
		m.offset = s->base + s->skip + (int64_t)n;
		fn(arg, &m);
		n++;
	}
	if (room->frames.cap > ROOM_KEPT_BYTES ||
		room->payload.cap > ROOM_KEPT_BYTES)
		logrd_room_fini(room);
	return n;
}
