/* SPDX-License-Identifier: Apache-2.0 */
#include "frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "buf.h"

static struct frame
sample(uint8_t flags)
{
	struct frame f = { .flags = flags,
		.txn = SPAN_LIT("txn-1"),
		.sub = SPAN_LIT("sub"),
		.payload = SPAN_LIT("{\"a\": 1}") };

	memset(f.id.b, 0x11, sizeof(f.id.b));
	memset(f.trace.b, 0x22, sizeof(f.trace.b));
	return f;
}

static void
the_layout_is_as_documented(void **state)
{
	static const char expected[] =
		"\x29\0\0\0\3"
		"\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11"
		"\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22"
		"\2\0ab\0\0[]";
	struct frame f = sample(FRAME_TRACE | FRAME_SUB);
	struct buf b = BUF_ZERO;

	(void)state;
	f.txn = span_of("ab");
	f.sub = span_of("");
	f.payload = span_of("[]");
	frame_write(&b, &f);
	assert_int_equal(b.len, sizeof(expected) - 1);
	assert_memory_equal(b.p, expected, b.len);
	buf_fini(&b);
}

static void
every_flag_combination_comes_back(void **state)
{
	struct buf b = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct span rest;
	struct frame g;

	(void)state;
	for (int flags = 0; flags < 8; flags++) {
		struct frame f = sample((uint8_t)flags);

		frame_write(&b, &f);
	}
	rest = buf_span(&b);
	for (int flags = 0; flags < 8; flags++) {
		struct frame f = sample((uint8_t)flags);
		const char *at = rest.p;

		assert_int_equal(frame_next(&rest, &g, &e), 1);
		assert_int_equal(g.flags, flags);
		assert_memory_equal(&g.id, &f.id, 16);
		assert_true(span_is(g.txn, "txn-1"));
		assert_true(span_is(g.payload, "{\"a\": 1}"));
		assert_true(span_is(g.sub, flags & FRAME_SUB ? "sub" : ""));
		assert_int_equal(g.trace.b[0], flags & FRAME_TRACE ? 0x22 : 0);
		assert_ptr_equal(g.whole.p, at);
		assert_ptr_equal(g.whole.p + g.whole.n, rest.p);
	}
	assert_int_equal(frame_next(&rest, &g, &e), 0);
	buf_fini(&b);
}

static void
every_cut_is_corrupt(void **state)
{
	struct frame f = sample(FRAME_TRACE | FRAME_SUB), g;
	struct buf b = BUF_ZERO;
	struct err e = ERR_ZERO;

	(void)state;
	frame_write(&b, &f);
	for (size_t n = 1; n < b.len; n++) {
		struct span rest = span_make(b.p, n);

		assert_int_equal(frame_next(&rest, &g, &e), -1);
		assert_int_equal(e.kind, ERR_INPUT);
		assert_int_equal(rest.n, n);
	}
	buf_fini(&b);
}

static void
lying_lengths_are_corrupt(void **state)
{
	struct frame f = sample(FRAME_TRACE | FRAME_SUB), g;
	struct buf b = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct span rest;

	(void)state;
	frame_write(&b, &f);
	for (uint32_t n = 0; n < 45; n++) {
		b.p[0] = (char)n;
		rest = buf_span(&b);
		assert_int_equal(frame_next(&rest, &g, &e), -1);
	}
	buf_reset(&b);
	frame_write(&b, &f);
	b.p[4] = 8;
	rest = buf_span(&b);
	assert_int_equal(frame_next(&rest, &g, &e), -1);
	assert_string_equal(e.text, "unknown frame flags 0x08");
	b.p[3] = (char)0xff;
	rest = buf_span(&b);
	assert_int_equal(frame_next(&rest, &g, &e), -1);
	assert_string_equal(e.text, "frame longer than its segment");
	buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_layout_is_as_documented),
		cmocka_unit_test(every_flag_combination_comes_back),
		cmocka_unit_test(every_cut_is_corrupt),
		cmocka_unit_test(lying_lengths_are_corrupt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
