/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log reader of the tools: the messages of a slice of one segment, as the pop
 * and the fetch of SQL give it, payloads in the clear.
 */
#ifndef QUEEN_LOGRD_H
#define QUEEN_LOGRD_H

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "frame.h"

struct arena;
struct err;
struct seal;

struct logrd_slice {
	struct span blob;
	int64_t base; /* offset of the segment's first message */
	int32_t skip, take; /* messages */
};

struct logrd_message {
	int64_t offset;
	struct frame frame; /* as stored */
	struct span payload; /* in the clear */
};

/*
 * Reads the slice into out, which has room for take messages; what they point
 * at lies in the arena, which grows by the bytes of those messages alone.
 * Returns how many there are: up to the first one that is damaged or does not
 * open, and *e says why that is.
 */
size_t logrd_read(const struct logrd_slice *s, const struct seal *seal,
	struct arena *a, struct logrd_message *out, struct err *e);

/*
 * The same, one after the other and without a copy: a message lasts until fn
 * returns.  room is used again and again.
 */
struct logrd_room {
	struct buf frames, payload;
};
void logrd_room_fini(struct logrd_room *r);
typedef void (*logrd_fn)(void *arg, const struct logrd_message *m);
size_t logrd_each(const struct logrd_slice *s, const struct seal *seal,
	struct logrd_room *room, logrd_fn fn, void *arg, struct err *e);

#endif
