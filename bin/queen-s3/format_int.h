/* SPDX-License-Identifier: Apache-2.0 */
/* What the two formats share. */
#ifndef QUEEN_S3_FORMAT_INT_H
#define QUEEN_S3_FORMAT_INT_H

#include <zstd.h>

enum { FORMAT_ZSTD_LEVEL = 1 };

/*
 * A context with the level set and no checksum; one is kept for the next
 * object, because making one costs more than packing a small object.
 */
ZSTD_CCtx *format_zstd_take(void);
void format_zstd_give(ZSTD_CCtx *z); /* accepts NULL */

#endif
