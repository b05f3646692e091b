/* SPDX-License-Identifier: Apache-2.0 */
#include "jspan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "buf.h"
#include "clk.h"
#include "frame.h"
#include "seg.h"

/*
 * The law of payloads: random JSON that goes through scanner, frame and
 * segment comes back byte for byte.
 */
enum { ROUNDS = 300, ITEMS = 40 };

static uint64_t seed;

static uint32_t
rnd(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 20) % below;
}

static void
put_ws(struct buf *b)
{
	static const char ws[] = " \t\r\n";

	while (rnd(4) == 0)
		buf_putc(b, ws[rnd(4)]);
}

static void
put_string(struct buf *b)
{
	static const char *const pieces[] = { "a", "queen", "\\\"", "\\\\",
		"\\/", "\\n", "\\u0000", "\\ud834\\udd1e", "\\uD800",
		"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\x7f", " ",
		"0123456789abcdef0123456789" };

	buf_putc(b, '"');
	for (uint32_t n = rnd(8); n > 0; n--)
		buf_puts(b, pieces[rnd(sizeof(pieces) / sizeof(pieces[0]))]);
	buf_putc(b, '"');
}

static void
put_scalar(struct buf *b)
{
	static const char *const plain[] = { "null", "true", "false", "0", "-0",
		"1.50", "-1e400", "12345678901234567890123", "0.1E+2", "1e-7" };
	uint32_t k = rnd(14);

	if (k < 10)
		buf_puts(b, plain[k]);
	else
		put_string(b);
}

static void
put_value(struct buf *b, int depth)
{
	uint32_t kind = depth > 6 ? 0 : rnd(4);
	uint32_t n = rnd(5);

	put_ws(b);
	if (kind < 2) {
		put_scalar(b);
	} else {
		buf_putc(b, kind == 2 ? '[' : '{');
		put_ws(b);
		for (uint32_t i = 0; i < n; i++) {
			if (i > 0)
				buf_putc(b, ',');
			if (kind == 3) {
				put_ws(b);
				put_string(b);
				put_ws(b);
				buf_putc(b, ':');
			}
			put_value(b, depth + 1);
		}
		buf_putc(b, kind == 2 ? ']' : '}');
	}
	put_ws(b);
}

static struct span
trimmed(struct span s)
{
	while (s.n > 0 && strchr(" \t\r\n", s.p[0])) {
		s.p++;
		s.n--;
	}
	while (s.n > 0 && strchr(" \t\r\n", s.p[s.n - 1]))
		s.n--;
	return s;
}

static void
one_round(void)
{
	struct buf body = BUF_ZERO, frames = BUF_ZERO, blob = BUF_ZERO;
	struct buf back = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct qid ids[ITEMS];
	struct span sent[ITEMS], rest;
	size_t from[ITEMS], to[ITEMS];
	struct jspan_val v;
	struct frame f;
	struct jspan j;
	int n = 1 + (int)rnd(ITEMS);

	buf_putc(&body, '[');
	for (int i = 0; i < n; i++) {
		if (i > 0)
			buf_putc(&body, ',');
		from[i] = body.len;
		put_value(&body, 0);
		to[i] = body.len;
	}
	buf_putc(&body, ']');
	jspan_open(&j, buf_span(&body));
	assert_true(jspan_enter_array(&j));
	for (int i = 0; i < n; i++) {
		sent[i] = trimmed(span_make(body.p + from[i], to[i] - from[i]));
		assert_true(jspan_next_item(&j));
		if (!jspan_take(&j, &v))
			fail_msg("%s at %zu", j.error, j.error_at);
		ids[i] = qid_new();
		f = (struct frame){
			.id = ids[i], .txn = SPAN_LIT("txn"), .payload = v.raw
		};
		frame_write(&frames, &f);
	}
	assert_false(jspan_next_item(&j));
	assert_true(jspan_end(&j));
	seg_pack(buf_span(&frames), &blob);
	assert_int_equal(seg_unpack(buf_span(&blob), &back, &e), 0);
	rest = buf_span(&back);
	for (int i = 0; i < n; i++) {
		assert_int_equal(frame_next(&rest, &f, &e), 1);
		assert_memory_equal(&f.id, &ids[i], sizeof(ids[i]));
		assert_true(span_eq(f.payload, sent[i]));
	}
	assert_int_equal(frame_next(&rest, &f, &e), 0);
	buf_fini(&body);
	buf_fini(&frames);
	buf_fini(&blob);
	buf_fini(&back);
}

static void
random_json_survives_scan_store_and_read(void **state)
{
	const char *given = getenv("QUEEN_TEST_SEED");

	(void)state;
	seed = given ? strtoull(given, NULL, 10) : (uint64_t)clk_wall_us() | 1;
	print_message("# QUEEN_TEST_SEED=%llu\n", (unsigned long long)seed);
	for (int i = 0; i < ROUNDS; i++)
		one_round();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_json_survives_scan_store_and_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
