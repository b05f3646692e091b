/* SPDX-License-Identifier: Apache-2.0 */
#include "seg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "buf.h"

static struct buf frames, blob, back;
static struct err e;

static void
make_frames(int n, const char *payload)
{
	buf_reset(&frames);
	buf_reset(&blob);
	buf_reset(&back);
	for (int i = 0; i < n; i++) {
		struct frame f = { .id = qid_new(),
			.txn = SPAN_LIT("t"),
			.payload = span_of(payload) };

		frame_write(&frames, &f);
	}
}

static void
comes_back(int codec)
{
	seg_pack(buf_span(&frames), &blob);
	assert_int_equal(blob.p[0], SEG_VERSION);
	assert_int_equal(blob.p[1], codec);
	assert_int_equal(seg_unpack(buf_span(&blob), &back, &e), 0);
	assert_true(span_eq(buf_span(&back), buf_span(&frames)));
}

static void
small_segments_are_stored_plain(void **state)
{
	(void)state;
	make_frames(1, "{}");
	comes_back(SEG_CODEC_NONE);
	assert_int_equal(blob.len, frames.len + 2);
	make_frames(0, "");
	comes_back(SEG_CODEC_NONE);
}

static void
larger_ones_are_compressed(void **state)
{
	(void)state;
	make_frames(100, "{\"customer\":\"somebody\",\"amount\":12}");
	comes_back(SEG_CODEC_ZSTD);
	assert_true(blob.len < frames.len / 2);
}

static void
what_does_not_shrink_is_stored_plain(void **state)
{
	uint64_t x = 88172645463325252u;

	(void)state;
	make_frames(0, "");
	for (int i = 0; i < 4000; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		buf_putc(&frames, (char)x);
	}
	comes_back(SEG_CODEC_NONE);
}

static void
packing_appends(void **state)
{
	(void)state;
	make_frames(1, "{}");
	buf_puts(&blob, "before");
	seg_pack(buf_span(&frames), &blob);
	assert_int_equal(blob.p[6], SEG_VERSION);
	assert_int_equal(blob.p[7], SEG_CODEC_NONE);
}

static void
plain_segments_may_be_concatenated(void **state)
{
	(void)state;
	make_frames(2, "[1]");
	buf_put(&blob, "\1\0", 2);
	buf_put_span(&blob, buf_span(&frames));
	buf_put_span(&blob, buf_span(&frames));
	assert_int_equal(seg_unpack(buf_span(&blob), &back, &e), 0);
	assert_int_equal(back.len, 2 * frames.len);
}

static void
bad_blobs_are_refused(void **state)
{
	static const struct {
		const char *p;
		size_t n;
		const char *text;
	} rows[] = {
		{ "", 0, "segment of 0 bytes" },
		{ "\1", 1, "segment of 1 bytes" },
		{ "\2\0", 2, "unknown segment version 2" },
		{ "\1\2", 2, "unknown segment codec 2" },
		{ "\1\1", 2, "corrupt zstd frame" },
		{ "\1\1zz", 4, "corrupt zstd frame" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(
			seg_unpack(span_make(rows[i].p, rows[i].n), &back, &e),
			-1);
		assert_string_equal(e.text, rows[i].text);
	}
}

static void
skip_counts_frames(void **state)
{
	struct span rest;
	struct frame f;

	(void)state;
	make_frames(5, "{}");
	rest = buf_span(&frames);
	assert_int_equal(seg_skip(&rest, 3, &e), 0);
	assert_int_equal(frame_next(&rest, &f, &e), 1);
	assert_int_equal(seg_skip(&rest, 1, &e), 0);
	assert_int_equal(rest.n, 0);
	assert_int_equal(seg_skip(&rest, 0, &e), 0);
	assert_int_equal(seg_skip(&rest, 1, &e), -1);
	rest = span_make(frames.p, frames.len - 1);
	assert_int_equal(seg_skip(&rest, 5, &e), -1);
	buf_fini(&frames);
	buf_fini(&blob);
	buf_fini(&back);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_segments_are_stored_plain),
		cmocka_unit_test(larger_ones_are_compressed),
		cmocka_unit_test(what_does_not_shrink_is_stored_plain),
		cmocka_unit_test(packing_appends),
		cmocka_unit_test(plain_segments_may_be_concatenated),
		cmocka_unit_test(bad_blobs_are_refused),
		cmocka_unit_test(skip_counts_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
