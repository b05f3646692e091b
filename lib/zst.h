/* SPDX-License-Identifier: Apache-2.0 */
/* zstd level 1 with contexts kept for the life of the process. */
#ifndef QUEEN_ZST_H
#define QUEEN_ZST_H

#include <stddef.h>

#include "span.h"

struct buf;
struct err;

/*
 * Appends the compressed bytes to out.  Returns 0, or 1 when the result would
 * not be smaller than the input (out unchanged).
 */
int zst_pack(struct span in, struct buf *out);
/* Appends at most max_bytes of plain bytes; -1 when corrupt or larger. */
int zst_unpack(struct span in, size_t max_bytes, struct buf *out,
	struct err *e) __attribute__((warn_unused_result));

#endif
