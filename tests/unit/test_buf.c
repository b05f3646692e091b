/* SPDX-License-Identifier: Apache-2.0 */
#include "buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void
put_and_skip_keep_the_bytes(void **state)
{
	struct buf b = BUF_ZERO;

	(void)state;
	buf_puts(&b, "hello ");
	buf_put_span(&b, span_of("wor"));
	buf_put(&b, "ld!", 2);
	buf_putc(&b, '.');
	assert_true(span_is(buf_span(&b), "hello world."));
	buf_skip(&b, 6);
	assert_true(span_is(buf_span(&b), "world."));
	buf_skip(&b, 6);
	assert_int_equal(b.len, 0);
	buf_fini(&b);
	assert_null(b.p);
}

static void
printf_grows_for_long_texts(void **state)
{
	struct buf b = BUF_ZERO;

	(void)state;
	buf_printf(&b, "%0200d|", 7);
	buf_printf(&b, "%05000d", 8);
	assert_int_equal(b.len, 5201);
	assert_int_equal(b.p[199], '7');
	assert_int_equal(b.p[200], '|');
	assert_int_equal(b.p[5200], '8');
	buf_fini(&b);
}

static void
reset_keeps_the_memory(void **state)
{
	struct buf b = BUF_ZERO;
	char *p;

	(void)state;
	buf_reserve(&b, 1000);
	p = b.p;
	b.len = 10;
	buf_reset(&b);
	assert_int_equal(b.len, 0);
	assert_ptr_equal(buf_reserve(&b, 1000), p);
	assert_non_null(buf_reserve(&b, 0));
	buf_fini(&b);
}

static void
wipe_frees_and_takes_nothing(void **state)
{
	struct buf b = BUF_ZERO;

	(void)state;
	buf_wipe(&b);
	buf_puts(&b, "secret");
	buf_wipe(&b);
	assert_null(b.p);
	assert_int_equal(b.len + b.cap, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(put_and_skip_keep_the_bytes),
		cmocka_unit_test(printf_grows_for_long_texts),
		cmocka_unit_test(reset_keeps_the_memory),
		cmocka_unit_test(wipe_frees_and_takes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
