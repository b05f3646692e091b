/* SPDX-License-Identifier: Apache-2.0 */
#include "zst.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <zstd.h>

#include "buf.h"
#include "err.h"

static void
what_shrinks_comes_back(void **state)
{
	struct buf plain = BUF_ZERO, z = BUF_ZERO, back = BUF_ZERO;
	struct err e = ERR_ZERO;

	(void)state;
	for (int i = 0; i < 500; i++)
		buf_printf(&plain, "{\"id\":%d,\"name\":\"customer\"}", i);
	buf_puts(&z, "head");
	assert_int_equal(zst_pack(buf_span(&plain), &z), 0);
	assert_true(z.len < plain.len / 4);
	assert_memory_equal(z.p, "head", 4);
	buf_puts(&back, "x");
	assert_int_equal(
		zst_unpack(span_make(z.p + 4, z.len - 4), plain.len, &back, &e),
		0);
	assert_int_equal(back.len, plain.len + 1);
	assert_memory_equal(back.p + 1, plain.p, plain.len);
	buf_fini(&plain);
	buf_fini(&z);
	buf_fini(&back);
}

static void
what_does_not_shrink_is_left(void **state)
{
	struct buf z = BUF_ZERO;

	(void)state;
	assert_int_equal(zst_pack(span_of("abcdefghij"), &z), 1);
	assert_int_equal(zst_pack((struct span)SPAN_ZERO, &z), 1);
	assert_int_equal(zst_pack(span_of("a"), &z), 1);
	assert_int_equal(z.len, 0);
	buf_fini(&z);
}

static void
corrupt_and_too_large_are_refused(void **state)
{
	char plain[4000];
	struct buf z = BUF_ZERO, back = BUF_ZERO;
	struct err e = ERR_ZERO;

	(void)state;
	memset(plain, 'a', sizeof(plain));
	assert_int_equal(zst_pack(span_make(plain, sizeof(plain)), &z), 0);
	assert_int_equal(
		zst_unpack(buf_span(&z), sizeof(plain) - 1, &back, &e), -1);
	assert_int_equal(e.kind, ERR_LIMIT);
	for (size_t n = 0; n < z.len; n++)
		assert_int_equal(
			zst_unpack(span_make(z.p, n), sizeof(plain), &back, &e),
			-1);
	buf_putc(&z, 'x');
	assert_int_equal(
		zst_unpack(buf_span(&z), sizeof(plain), &back, &e), -1);
	assert_int_equal(
		zst_unpack(span_of("not zstd at all"), 100, &back, &e), -1);
	assert_string_equal(e.text, "corrupt zstd frame");
	assert_int_equal(back.len, 0);
	buf_fini(&z);
	buf_fini(&back);
}

/* As a stream writes it: the head does not tell the size. */
static void
a_frame_that_does_not_tell_its_size(void **state)
{
	char plain[4000], packed[4000];
	struct buf back = BUF_ZERO;
	struct err e = ERR_ZERO;
	ZSTD_CCtx *ctx = ZSTD_createCCtx();
	size_t n;

	(void)state;
	memset(plain, 'a', sizeof(plain));
	ZSTD_CCtx_setParameter(ctx, ZSTD_c_contentSizeFlag, 0);
	n = ZSTD_compress2(ctx, packed, sizeof(packed), plain, sizeof(plain));
	assert_false(ZSTD_isError(n));
	assert_int_equal(
		ZSTD_getFrameContentSize(packed, n), ZSTD_CONTENTSIZE_UNKNOWN);
	assert_int_equal(
		zst_unpack(span_make(packed, n), sizeof(plain) - 1, &back, &e),
		-1);
	assert_int_equal(e.kind, ERR_LIMIT);
	for (size_t k = 0; k < n; k++) {
		assert_int_equal(zst_unpack(span_make(packed, k), sizeof(plain),
					 &back, &e),
			-1);
		assert_int_equal(e.kind, ERR_INPUT);
	}
	assert_int_equal(back.len, 0);
	assert_int_equal(
		zst_unpack(span_make(packed, n), sizeof(plain), &back, &e), 0);
	assert_true(span_eq(buf_span(&back), span_make(plain, sizeof(plain))));
	buf_fini(&back);
	ZSTD_freeCCtx(ctx);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_shrinks_comes_back),
		cmocka_unit_test(what_does_not_shrink_is_left),
		cmocka_unit_test(corrupt_and_too_large_are_refused),
		cmocka_unit_test(a_frame_that_does_not_tell_its_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
