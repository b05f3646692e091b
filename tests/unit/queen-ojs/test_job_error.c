/* SPDX-License-Identifier: Apache-2.0 */
/* The error of a nack: the stored form, its names, its bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "job_error.h"

static struct arena arena;
static struct job_error err;

static int
teardown(void **state)
{
	(void)state;
	arena_fini(&arena);
	return 0;
}

static void
stored(const char *json, const char *want)
{
	struct problem p;

	if (job_error_parse(span_of(json), &arena, &err, &p) != 0)
		fail_msg("%s: %s", json, p.message);
	assert_string_equal(arena_cstr(&arena, err.stored), want);
}

static void
code_type_and_message_are_always_there(void **state)
{
	(void)state;
	stored("{}", "\"code\":\"handler_error\",\"type\":\"handler_error\","
		     "\"message\":\"\"");
	assert_true(err.retryable && err.class.n == 0);
	stored("{\"code\":\"RETRY\",\"message\":\"m\\u0000\\ud800\"}",
		"\"code\":\"RETRY\",\"type\":\"RETRY\","
		"\"message\":\"m\\u0000\\ud800\"");
	stored("{\"type\":\"Oops\",\"code\":null}",
		"\"code\":\"handler_error\",\"type\":\"Oops\","
		"\"message\":\"\"");
}

static void
the_class_of_the_language_is_the_second_choice(void **state)
{
	(void)state;
	stored("{\"code\":\"timeout\",\"retryable\":false,"
	       "\"details\":{ \"error_class\":\"io.Err\", \"n\":1.0}}",
		"\"code\":\"timeout\",\"type\":\"io.Err\",\"message\":\"\","
		"\"retryable\":false,"
		"\"details\":{ \"error_class\":\"io.Err\", \"n\":1.0}");
	assert_false(err.retryable);
	assert_true(span_is(err.class, "io.Err"));
	stored("{\"type\":\"T\",\"details\":{\"error_class\":\"C\"},\"x\":1}",
		"\"code\":\"handler_error\",\"type\":\"T\",\"message\":\"\","
		"\"details\":{\"error_class\":\"C\"}");
	assert_true(span_is(err.class, "C"));
	stored("{\"details\":{\"error_class\":null,\"\\ud800\":1}}",
		"\"code\":\"handler_error\",\"type\":\"handler_error\","
		"\"message\":\"\","
		"\"details\":{\"error_class\":null,\"\\ud800\":1}");
}

/* 50 frames, 10000 characters; a character is not a byte. */
static void
backtraces_are_cut(void **state)
{
	struct buf b = BUF_ZERO;
	struct span frame;
	struct problem p;

	(void)state;
	stored("{\"backtrace\":[\"a\\n\",\"\\ud800\",\"b\"]}",
		"\"code\":\"handler_error\",\"type\":\"handler_error\","
		"\"message\":\"\",\"backtrace\":[\"a\\n\",\"b\"]");
	buf_puts(&b, "{\"backtrace\":[\"\"");
	for (int i = 1; i < 60; i++)
		buf_printf(&b, ",\"f%d\"", i);
	buf_puts(&b, "]}");
	assert_int_equal(job_error_parse(buf_span(&b), &arena, &err, &p), 0);
	assert_non_null(strstr(arena_cstr(&arena, err.stored), "\"f49\"]"));
	buf_reset(&b);
	buf_puts(&b, "{\"backtrace\":[\"x\",\"");
	for (int i = 0; i < 10500; i++)
		buf_puts(&b, "\xc3\xa4");
	buf_puts(&b, "\",\"gone\"]}");
	assert_int_equal(job_error_parse(buf_span(&b), &arena, &err, &p), 0);
	frame = err.stored;
	assert_non_null(strstr(arena_cstr(&arena, frame), "[\"x\",\"\xc3\xa4"));
	assert_true(span_eq(
		span_make(frame.p + frame.n - 4, 4), SPAN_LIT("\xc3\xa4\"]")));
	assert_int_equal(frame.n,
		strlen("\"code\":\"handler_error\",\"type\":\"handler_error\","
		       "\"message\":\"\",\"backtrace\":[\"x\",\"\"]") +
			9999 * 2);
	buf_fini(&b);
}

static void
fields_must_be_what_they_are(void **state)
{
	static const struct {
		const char *field, *json;
	} bad[] = {
		{ "error.type", "{\"type\":1}" },
		{ "error.type", "{\"type\":\"\"}" },
		{ "error.type", "{\"type\":\"a\\u0000\"}" },
		{ "error.code", "{\"code\":[]}" },
		{ "error.message", "{\"message\":1}" },
		{ "error.retryable", "{\"retryable\":\"no\"}" },
		{ "error.details", "{\"details\":[]}" },
		{ "error.details.error_class",
			"{\"details\":{\"error_class\":7}}" },
		{ "error.backtrace", "{\"backtrace\":\"x\"}" },
		{ "error.backtrace", "{\"backtrace\":[1]}" },
	};
	char want[96];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct problem p;

		if (job_error_parse(span_of(bad[i].json), &arena, &err, &p) ==
			0)
			fail_msg("accepted: %s", bad[i].json);
		assert_int_equal(p.status, 400);
		snprintf(want, sizeof(want), "\"field\":\"%s\"", bad[i].field);
		assert_string_equal(arena_cstr(&arena, p.details), want);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_type_and_message_are_always_there),
		cmocka_unit_test(
			the_class_of_the_language_is_the_second_choice),
		cmocka_unit_test(backtraces_are_cut),
		cmocka_unit_test(fields_must_be_what_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
