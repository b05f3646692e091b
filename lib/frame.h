/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message as stored.  All integers little-endian:
 *	u32 body_len, u8 flags (1 trace id, 2 producer sub, 4 sealed payload),
 *	16 message id, [16 trace id], u16 + transaction id,
 *	[u16 + producer sub], payload = rest of the body, verbatim.
 */
#ifndef QUEEN_FRAME_H
#define QUEEN_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "qid.h"
#include "span.h"

struct buf;

enum { FRAME_TRACE = 1, FRAME_SUB = 2, FRAME_SEALED = 4 };
enum { FRAME_TXN_MAX = 65535 };

struct frame {
	uint8_t flags;
	struct qid id, trace;
	struct span txn;	/* transaction id */
	struct span sub;	/* producer subject */
	struct span payload;	/* JSON text */
	struct span whole;	/* the frame with its length, set by parse */
};

void frame_write(struct buf *b, const struct frame *f);
/*
 * Takes the next frame off *rest; spans borrow from it.  1 = got one, 0 = end,
 * -1 = corrupt.
 */
int frame_next(struct span *rest, struct frame *f, struct err *e)
	__attribute__((warn_unused_result));

#endif
