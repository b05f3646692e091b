/* SPDX-License-Identifier: Apache-2.0 */
/* Retry policies: defaults, every field, every refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "retry.h"

#define POLICY(initial, coefficient, max, jitter, strategy, stop, dead)        \
	"{\"initial_ms\":" initial ",\"coefficient\":" coefficient             \
	",\"max_ms\":" max ",\"jitter\":" jitter ",\"strategy\":\"" strategy   \
	"\",\"stop\":" stop ",\"dead\":" dead "}"

static struct arena arena;

static int
teardown(void **state)
{
	(void)state;
	arena_fini(&arena);
	return 0;
}

static void
accepted(const char *json, int attempts, const char *want)
{
	struct problem p;
	struct span out;
	int n = -1;

	if (retry_parse(span_of(json), &arena, &n, &out, &p) != 0)
		fail_msg("%s: %s", json, p.message);
	assert_int_equal(n, attempts);
	assert_string_equal(arena_cstr(&arena, out), want);
}

static void
defaults_stand_for_what_is_not_given(void **state)
{
	(void)state;
	accepted("{}", 3, "");
	accepted("{\"max_attempts\":0}", 0, "");
	accepted("{\"max_attempts\":7,\"x\":1,\"jitter\":null}", 7, "");
	accepted("{\"jitter\":true}", 3,
		POLICY("1000", "2", "300000", "true", "exponential", "[]",
			"false"));
}

static void
every_field_is_taken_over(void **state)
{
	(void)state;
	accepted("{\"max_attempts\":5,\"initial_interval\":\"PT0.5S\","
		 "\"backoff_coefficient\":1.5,\"max_interval\":\"PT1H30M\","
		 "\"jitter\":false,\"backoff_strategy\":\"linear\","
		 "\"non_retryable_errors\":[\"auth.*\",\"Bad\\\"One\"],"
		 "\"on_exhaustion\":\"dead_letter\"}",
		5,
		POLICY("500", "1.5", "5400000", "false", "linear",
			"[\"auth.*\",\"Bad\\\"One\"]", "true"));
	accepted("{\"initial_interval_ms\":250,\"max_interval_ms\":250,"
		 "\"backoff_strategy\":\"none\"}",
		3,
		POLICY("250", "2", "250", "true", "constant", "[]", "false"));
	accepted("{\"initial_interval\":\"250ms\",\"backoff_coefficient\":1.0,"
		 "\"backoff_strategy\":\"polynomial\"}",
		3,
		POLICY("250", "1", "300000", "true", "polynomial", "[]",
			"false"));
}

static void
a_long_first_interval_lifts_the_default_cap_only(void **state)
{
	(void)state;
	accepted("{\"initial_interval\":\"PT10M\"}", 3,
		POLICY("600000", "2", "600000", "true", "exponential", "[]",
			"false"));
}

static void
refused(const char *json, const char *field)
{
	struct problem p;
	struct span out;
	int n;

	if (retry_parse(span_of(json), &arena, &n, &out, &p) == 0)
		fail_msg("accepted: %s", json);
	assert_int_equal(p.status, 422);
	assert_string_equal(p.code, "invalid_payload");
	assert_string_equal(p.type, "validation_error");
	if (!strstr(p.message, field))
		fail_msg("%s: %s", json, p.message);
}

static void
the_message_names_the_field(void **state)
{
	static const struct {
		const char *field, *json;
	} bad[] = {
		{ "max_attempts", "{\"max_attempts\":-1}" },
		{ "max_attempts", "{\"max_attempts\":1.5}" },
		{ "max_attempts", "{\"max_attempts\":\"3\"}" },
		{ "max_attempts", "{\"max_attempts\":2147483648}" },
		{ "initial_interval", "{\"initial_interval\":\"PT0S\"}" },
		{ "initial_interval", "{\"initial_interval\":1000}" },
		{ "initial_interval", "{\"initial_interval\":\"P1M\"}" },
		{ "initial_interval_ms", "{\"initial_interval_ms\":0}" },
		{ "max_interval", "{\"max_interval\":\"soon\"}" },
		{ "max_interval", "{\"max_interval\":\"PT0.5S\"}" },
		{ "max_interval", "{\"initial_interval\":\"PT2S\","
				  "\"max_interval_ms\":1999}" },
		{ "backoff_coefficient", "{\"backoff_coefficient\":0.9}" },
		{ "backoff_coefficient", "{\"backoff_coefficient\":\"2\"}" },
		{ "backoff_coefficient", "{\"backoff_coefficient\":1e999}" },
		{ "jitter", "{\"jitter\":1}" },
		{ "non_retryable_errors", "{\"non_retryable_errors\":\"a\"}" },
		{ "non_retryable_errors", "{\"non_retryable_errors\":[\"\"]}" },
		{ "non_retryable_errors", "{\"non_retryable_errors\":[1]}" },
		{ "non_retryable_errors",
			"{\"non_retryable_errors\":[\"a\\u0000\"]}" },
		{ "non_retryable_errors",
			"{\"non_retryable_errors\":[\"\\ud800\"]}" },
		{ "on_exhaustion", "{\"on_exhaustion\":\"keep\"}" },
		{ "backoff_strategy", "{\"backoff_strategy\":\"cubic\"}" },
		{ "backoff_strategy", "{\"backoff_strategy\":3}" },
		{ "retry", "[]" },
		{ "retry", "7" },
		{ "retry", "{\"a\"}" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused(bad[i].json, bad[i].field);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_stand_for_what_is_not_given),
		cmocka_unit_test(every_field_is_taken_over),
		cmocka_unit_test(
			a_long_first_interval_lifts_the_default_cap_only),
		cmocka_unit_test(the_message_names_the_field),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
