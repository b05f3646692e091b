/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a batch.  There may be a hundred thousand: they are written
 * straight from the rows into memory of the right size, some turns of the loop
 * long.
 */
#include "ctx.h"
#include "hsrv.h"
#include "loop.h"
#include "pgpool.h"
#include "stream.h"
#include "stream_int.h"

enum {
	ROWS_PER_TURN = 1000,
	BYTES_PER_TURN = 2 << 20,
	MESSAGE_ROOM = 160 /* of the members that each message has */
};

/* So that the answer is never moved while it grows. */
static size_t
room_for(const PGresult *res)
{
	size_t n = 0;

	for (int i = 1; i < PQntuples(res); i++) {
		n += MESSAGE_ROOM;
		for (int col = 1; col <= 4; col++)
			n += (size_t)PQgetlength(res, i, col);
	}
	return n;
}

static void
write_turn(void *arg)
{
	struct stream_rows *w = arg;
	struct ctx *x = ctx_of(w->req);
	struct buf *b = hsrv_out(w->req);
	size_t full = b->len + BYTES_PER_TURN;
	int rows_n = PQntuples(w->rows), until = w->row + ROWS_PER_TURN;

	/* A drain waits for nobody who takes another turn. */
	for (; w->row < rows_n &&
		(x->stopping || (w->row < until && b->len < full));
		w->row++) {
		if (w->row > 1)
			buf_putc(b, ',');
		stream_write_message(b, w->rows, w->row, 0, w->payload);
	}
	if (w->row < rows_n) {
		loop_later(x->loop, write_turn, w);
		return;
	}
	PQclear(w->rows);
	buf_puts(b, "]}");
	hsrv_reply(w->req, 200);
}

void
stream_reply_rows(struct stream_rows *w)
{
	struct buf *b = hsrv_out(w->req);

	w->rows = pgpool_take_result(ctx_of(w->req)->pool);
	w->row = 1;
	buf_puts(b, ",\"messages\":[");
	buf_reserve(b, room_for(w->rows));
	write_turn(w);
}
