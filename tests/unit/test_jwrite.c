/* SPDX-License-Identifier: Apache-2.0 */
#include "jwrite.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "jspan.h"
#include "qid.h"

static struct buf b;
static struct jwrite w;

static void
start(void)
{
	buf_reset(&b);
	jwrite_init(&w, &b);
}

static void
commas_come_by_themselves(void **state)
{
	struct qid q = { .b = { 1 } };

	(void)state;
	start();
	jwrite_object(&w);
	jwrite_kv_i64(&w, "a", -5);
	jwrite_key(&w, "b");
	jwrite_array(&w);
	jwrite_i64(&w, INT64_MIN);
	jwrite_null(&w);
	jwrite_object(&w);
	jwrite_end(&w);
	jwrite_array(&w);
	jwrite_end(&w);
	jwrite_bool(&w, true);
	jwrite_end(&w);
	jwrite_kv_bool(&w, "c", false);
	jwrite_kv_null(&w, "d");
	jwrite_kv_raw(&w, "e", span_of("{\"x\": 1.0}"));
	jwrite_kv_cstr(&w, "f", NULL);
	jwrite_kv_str(&w, "g", span_of("s"));
	jwrite_key_span(&w, span_of("h\"h"));
	jwrite_qid(&w, &q);
	jwrite_key(&w, "i");
	jwrite_iso_us(&w, 0);
	jwrite_key(&w, "j");
	jwrite_iso_ms(&w, 0);
	jwrite_end(&w);
	assert_true(span_is(buf_span(&b),
		"{\"a\":-5,\"b\":[-9223372036854775808,null,{},[],true],"
		"\"c\":false,\"d\":null,\"e\":{\"x\": 1.0},\"f\":null,"
		"\"g\":\"s\",\"h\\\"h\":\"01000000-0000-0000-0000-000000000000\","
		"\"i\":\"1970-01-01T00:00:00.000000Z\","
		"\"j\":\"1970-01-01T00:00:00.000Z\"}"));
	assert_int_equal(w.depth, 0);
}

static void
doubles_have_fixed_decimals_and_no_nan(void **state)
{
	(void)state;
	start();
	jwrite_array(&w);
	jwrite_f64(&w, 1.0 / 3, 3);
	jwrite_f64(&w, NAN, 3);
	jwrite_f64(&w, -2, 0);
	jwrite_end(&w);
	assert_true(span_is(buf_span(&b), "[0.333,null,-2]"));
}

static void
escapes_what_must_be_and_nothing_else(void **state)
{
	(void)state;
	start();
	jwrite_str(&w, span_make("a\"b\\c/d\b\f\n\r\t\0\x1f\x7f\xc3\xa9", 17));
	assert_true(span_is(buf_span(&b),
		"\"a\\\"b\\\\c/d\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\xc3\xa9\""));
}

static void
any_bytes_at_any_place_come_back(void **state)
{
	struct arena a = ARENA_ZERO;
	char text[70];

	(void)state;
	for (int c = 0; c < 0x80; c++) {
		for (size_t at = 0; at < sizeof(text); at += 3) {
			struct jspan_val v;
			struct jspan j;
			struct span back;

			memset(text, 'a', sizeof(text));
			text[at] = (char)c;
			start();
			jwrite_str(&w, span_make(text, sizeof(text)));
			jspan_open(&j, buf_span(&b));
			assert_true(jspan_take(&j, &v));
			assert_true(jspan_end(&j));
			assert_true(jspan_text(&v, &a, &back));
			assert_true(
				span_eq(back, span_make(text, sizeof(text))));
		}
		arena_reset(&a);
	}
	arena_fini(&a);
}

static void
sixty_four_levels_fit(void **state)
{
	const char *what;
	size_t at;

	(void)state;
	start();
	for (int i = 0; i < 64; i++) {
		if (i % 2 == 0) {
			jwrite_array(&w);
			jwrite_i64(&w, i);
		} else {
			jwrite_object(&w);
			jwrite_key(&w, "k");
		}
	}
	jwrite_i64(&w, 1);
	for (int i = 0; i < 64; i++)
		jwrite_end(&w);
	assert_true(jspan_valid(buf_span(&b), &what, &at));
	buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commas_come_by_themselves),
		cmocka_unit_test(doubles_have_fixed_decimals_and_no_nan),
		cmocka_unit_test(escapes_what_must_be_and_nothing_else),
		cmocka_unit_test(any_bytes_at_any_place_come_back),
		cmocka_unit_test(sixty_four_levels_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
