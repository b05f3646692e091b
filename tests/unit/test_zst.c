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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_shrinks_comes_back),
		cmocka_unit_test(what_does_not_shrink_is_left),
		cmocka_unit_test(corrupt_and_too_large_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
