/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment blob: 2-byte header (version 1, codec 0 none or 1 zstd), then
 * frames.  No zstd below 512 bytes or when it does not shrink.
 */
#ifndef QUEEN_SEG_H
#define QUEEN_SEG_H

#include "frame.h"

enum {
	SEG_VERSION = 1, SEG_CODEC_NONE = 0, SEG_CODEC_ZSTD = 1,
	SEG_ZSTD_FROM_BYTES = 512,
	SEG_RAW_CAP_BYTES = 1 << 20,	/* a larger single frame goes alone */
	SEG_RAW_MAX_BYTES = 1 << 30	/* what we are willing to unpack */
};

/* Appends the blob of these frames to out. */
void seg_pack(struct span frames, struct buf *out);
/* Appends the frames of this blob to out; raw_bytes as stored in the row. */
int seg_unpack(struct span blob, struct buf *out, struct err *e)
	__attribute__((warn_unused_result));
/* Skips n frames; -1 when corrupt or fewer. */
int seg_skip(struct span *frames, int64_t n, struct err *e)
	__attribute__((warn_unused_result));

#endif
