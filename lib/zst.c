/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstd level 1.  The contexts are kept: making one costs more than packing a
 * small segment.  Output sizes are bounded before anything is allocated.
 */
#include "zst.h"

#include <stdbool.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "buf.h"
#include "err.h"

enum { LEVEL = 1 };

int
zst_pack(struct span in, struct buf *out)
{
	static ZSTD_CCtx *ctx;
	size_t n;

	if (!ctx)
		ctx = ZSTD_createCCtx();
	BUG(!ctx);
	if (in.n < 2)
		return 1;
	/* Room for less than the input: what does not fit is not smaller. */
	n = ZSTD_compressCCtx(
		ctx, buf_reserve(out, in.n), in.n - 1, in.p, in.n, LEVEL);
	if (ZSTD_isError(n))
		return 1;
	out->len += n;
	return 0;
}

int
zst_unpack(struct span in, size_t max_bytes, struct buf *out, struct err *e)
{
	static ZSTD_DCtx *ctx;
	unsigned long long n;
	bool told;
	size_t got;

	if (!ctx)
		ctx = ZSTD_createDCtx();
	BUG(!ctx);
	n = ZSTD_getFrameContentSize(in.p, in.n);
	if (n == ZSTD_CONTENTSIZE_ERROR ||
		ZSTD_findFrameCompressedSize(in.p, in.n) != in.n)
		return err_set(e, ERR_INPUT, "corrupt zstd frame");
	/* a frame written as a stream does not tell */
	told = n != ZSTD_CONTENTSIZE_UNKNOWN;
	if (told && n > max_bytes)
		return err_set(e, ERR_LIMIT,
			"%llu bytes unpacked, more than %zu", n, max_bytes);
	if (!told)
		n = max_bytes;
	got = ZSTD_decompressDCtx(
		ctx, buf_reserve(out, (size_t)n), (size_t)n, in.p, in.n);
	if (ZSTD_getErrorCode(got) == ZSTD_error_dstSize_tooSmall && !told)
		return err_set(e, ERR_LIMIT, "more than %zu bytes unpacked",
			max_bytes);
	if (ZSTD_isError(got) || (told && got != n))
		return err_set(e, ERR_INPUT, "corrupt zstd frame");
	out->len += got;
	return 0;
}
