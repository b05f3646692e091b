/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segment and frame decoder on any bytes; what is a frame must be written
 * back byte for byte, and skipping must agree with reading.
 */
#include <stdint.h>
#include <stdlib.h>

#include "buf.h"
#include "frame.h"
#include "seg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf raw = BUF_ZERO, again = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct span rest, skipped;
	struct frame f;
	int64_t n = 0;
	int rc;

	/* What a damaged length may claim is bounded by another test. */
	if (seg_unpack(span_make(data, size), &raw, &e) < 0)
		goto out;
	rest = buf_span(&raw);
	while ((rc = frame_next(&rest, &f, &e)) > 0) {
		buf_reset(&again);
		frame_write(&again, &f);
		if (!span_eq(buf_span(&again), f.whole))
			abort();
		n++;
	}
	skipped = buf_span(&raw);
	if (seg_skip(&skipped, n, &e) < 0 || skipped.p != rest.p)
		abort();
	if ((rc == 0) != (rest.n == 0))
		abort();
out:
	buf_fini(&raw);
	buf_fini(&again);
	return 0;
}
