/* SPDX-License-Identifier: Apache-2.0 */
/* Unique policies and rate limits: what they mean, and what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "unique.h"

static struct arena a;

static int
teardown(void **state)
{
	(void)state;
	arena_fini(&a);
	return 0;
}

#define ARGS "[1, {\"b\": 2, \"a\": 1.0, \"a\": 1e0, \"c\": 3}, {\"d\": 4}]"
#define META "{\"tenant\": \"x\", \"trace\": \"t-1\"}"

static const char *
policy_of(const char *raw, const char *args, const char *meta)
{
	struct unique_of of = {
		.type = SPAN_LIT("mail.send"),
		.queue = SPAN_LIT("mails"),
		.args = span_of(args),
		.meta = span_of(meta),
	};
	struct span out = SPAN_ZERO;
	struct problem p;

	if (unique_parse(span_of(raw), &of, &a, &out, &p) < 0)
		fail_msg("%s: %s", raw, p.message);
	return arena_cstr(&a, out);
}

static const char *
policy(const char *raw)
{
	return policy_of(raw, ARGS, META);
}

#define REST ",\"period_ms\":null,\"states\":[0,1,2,3,4],\"on\":\"reject\"}"

static void
the_key_is_made_of_what_is_chosen(void **state)
{
	(void)state;
	assert_string_equal(policy("{}"),
		"{\"key\":\"{\\\"type\\\":\\\"mail.send\\\"}\"" REST);
	/* The type is always a part, and both names of the field are good. */
	assert_string_equal(policy("{\"key\":[\"queue\"]}"),
		"{\"key\":\"{\\\"queue\\\":\\\"mails\\\",\\\"type\\\":"
		"\\\"mail.send\\\"}\"" REST);
	assert_string_equal(policy("{\"keys\":[\"args\",\"type\"]}"),
		"{\"key\":\"{\\\"args\\\":[1,{\\\"a\\\":1,\\\"b\\\":2,"
		"\\\"c\\\":3},{\\\"d\\\":4}],\\\"type\\\":\\\"mail.send\\\"}"
		"\"" REST);
	assert_string_equal(
		policy("{\"keys\":[\"meta\"],\"meta_keys\":[\"tenant\","
		       "\"none\"]}"),
		"{\"key\":\"{\\\"meta\\\":{\\\"tenant\\\":\\\"x\\\"},"
		"\\\"type\\\":\\\"mail.send\\\"}\"" REST);
	/* Nulls are absent; what is unknown is ignored. */
	assert_string_equal(policy("{\"keys\":null,\"period\":null,\"x\":[]}"),
		policy("{}"));
}

static void
args_keys_choose_in_the_first_object(void **state)
{
	static const char first[] =
		"{\"key\":\"{\\\"args\\\":{\\\"a\\\":1,\\\"c\\\":3},"
		"\\\"type\\\":\\\"mail.send\\\"}\"" REST;

	(void)state;
	assert_string_equal(policy("{\"keys\":[\"type\",\"args\"],"
				   "\"args_keys\":[\"c\",\"d\",\"\\u0061\"]}"),
		first);
	assert_string_equal(policy("{\"args_keys\":[\"a\",\"c\"]}"), first);
	/* Without an object all arguments count. */
	assert_string_equal(
		policy_of("{\"args_keys\":[\"a\"]}", "[1,[{\"a\":2}]]", ""),
		"{\"key\":\"{\\\"args\\\":[1,[{\\\"a\\\":2}]],\\\"type\\\":"
		"\\\"mail.send\\\"}\"" REST);
	assert_string_equal(policy_of("{\"meta_keys\":[\"a\"]}", "[]", ""),
		"{\"key\":\"{\\\"meta\\\":{},\\\"type\\\":\\\"mail.send\\\"}"
		"\"" REST);
}

static void
window_states_and_conflict(void **state)
{
	(void)state;
	assert_non_null(strstr(policy("{\"period\":\"PT1M\","
				      "\"states\":[\"completed\",\"active\","
				      "\"discarded\",\"cancelled\"],"
				      "\"on_conflict\":\"ignore\"}"),
		",\"period_ms\":60000,\"states\":[1,5,6,7],"
		"\"on\":\"ignore\"}"));
	assert_non_null(strstr(policy("{\"on_conflict\":\"replace\"}"),
		"\"on\":\"replace\"}"));
	assert_non_null(
		strstr(policy("{\"on_conflict\":\"replace_except_schedule\"}"),
			"\"on\":\"replace_except_schedule\"}"));
}

struct refusal {
	const char *raw, *field;
};

static void
check_refused(const struct refusal *v, const struct problem *p)
{
	char details[64];

	snprintf(details, sizeof(details), "\"field\":\"%s\"", v->field);
	assert_int_equal(p->status, 400);
	assert_string_equal(p->code, "invalid_request");
	assert_true(span_is(p->details, details));
	assert_non_null(strstr(p->message, v->field));
}

static void
bad_policies_name_their_member(void **state)
{
	static const struct refusal all[] = {
		{ "[]", "unique" },
		{ "true", "unique" },
		{ "{\"keys\":\"type\"}", "keys" },
		{ "{\"keys\":[]}", "keys" },
		{ "{\"keys\":[\"type\",\"id\"]}", "keys" },
		{ "{\"key\":[1]}", "key" },
		{ "{\"keys\":[\"meta\"]}", "meta_keys" },
		{ "{\"meta_keys\":[]}", "meta_keys" },
		{ "{\"args_keys\":{\"a\":1}}", "args_keys" },
		{ "{\"args_keys\":[\"\"]}", "args_keys" },
		{ "{\"args_keys\":[null]}", "args_keys" },
		{ "{\"args_keys\":[\"\\ud800\"]}", "args_keys" },
		{ "{\"period\":60}", "period" },
		{ "{\"period\":\"P1M\"}", "period" },
		{ "{\"period\":\"PT0S\"}", "period" },
		{ "{\"states\":[]}", "states" },
		{ "{\"states\":[\"held\"]}", "states" },
		{ "{\"states\":[\"running\"]}", "states" },
		{ "{\"on_conflict\":\"raise\"}", "on_conflict" },
		{ "{\"on_conflict\":0}", "on_conflict" },
	};
	struct unique_of of = { .type = SPAN_LIT("t"),
		.args = SPAN_LIT("[1e999]") };
	struct problem p;
	struct span out;
	char many[512];
	int n;

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		assert_int_equal(
			unique_parse(span_of(all[i].raw), &of, &a, &out, &p),
			-1);
		check_refused(&all[i], &p);
	}
	n = snprintf(many, sizeof(many), "{\"args_keys\":[");
	for (int i = 0; i < 32; i++)
		n += snprintf(many + n, sizeof(many) - (size_t)n, "\"k\",");
	snprintf(many + n, sizeof(many) - (size_t)n, "\"k\"]}");
	assert_int_equal(unique_parse(span_of(many), &of, &a, &out, &p), -1);
	check_refused(&(struct refusal){ many, "args_keys" }, &p);
	/* No double, no canonical form. */
	assert_int_equal(unique_parse(SPAN_LIT("{\"keys\":[\"args\"]}"), &of,
				 &a, &out, &p),
		-1);
	check_refused(&(struct refusal){ "", "unique" }, &p);
}

/* ---- rate limits ---- */

static const char *
rate(const char *raw)
{
	struct problem p;
	struct span out;

	if (rate_parse(span_of(raw), &a, &out, &p) < 0)
		fail_msg("%s: %s", raw, p.message);
	return arena_cstr(&a, out);
}

static void
both_forms_of_a_rate_limit(void **state)
{
	(void)state;
	assert_string_equal(rate("{\"max_per_second\":1}"),
		"{\"key\":\"\",\"max\":1,\"period_ms\":1000,"
		"\"concurrency\":null}");
	assert_string_equal(
		rate("{\"key\":\"api \\u00e9\",\"concurrency\":4,\"rate\":"
		     "{\"limit\":100,\"period\":\"PT1M\"},"
		     "\"on_limit\":\"wait\",\"x\":0}"),
		"{\"key\":\"api \xc3\xa9\",\"max\":100,\"period_ms\":60000,"
		"\"concurrency\":4}");
	/* As many, but one by one. */
	assert_string_equal(
		rate("{\"throttle\":{\"limit\":3,\"period\":\"PT1S\"}}"),
		"{\"key\":\"\",\"max\":1,\"period_ms\":334,"
		"\"concurrency\":null}");
	assert_string_equal(rate("{\"concurrency\":1,\"rate\":null}"),
		"{\"key\":\"\",\"max\":null,\"period_ms\":null,"
		"\"concurrency\":1}");
}

static void
bad_rate_limits_name_their_member(void **state)
{
	static const struct refusal all[] = {
		{ "[]", "rate_limit" },
		{ "{}", "rate_limit" },
		{ "{\"key\":\"a\"}", "rate_limit" },
		{ "{\"max_per_second\":0}", "max_per_second" },
		{ "{\"max_per_second\":1.5}", "max_per_second" },
		{ "{\"max_per_second\":\"1\"}", "max_per_second" },
		{ "{\"max_per_second\":1000001}", "max_per_second" },
		{ "{\"concurrency\":0}", "concurrency" },
		{ "{\"key\":\"\",\"concurrency\":1}", "key" },
		{ "{\"key\":\"a\\u0000\",\"concurrency\":1}", "key" },
		{ "{\"key\":7,\"concurrency\":1}", "key" },
		{ "{\"rate\":5}", "rate" },
		{ "{\"rate\":{\"limit\":5}}", "rate" },
		{ "{\"rate\":{\"period\":\"PT1S\"}}", "rate" },
		{ "{\"rate\":{\"limit\":0,\"period\":\"PT1S\"}}", "rate" },
		{ "{\"rate\":{\"limit\":1,\"period\":\"P1Y\"}}", "rate" },
		{ "{\"rate\":{\"limit\":1,\"period\":\"PT0S\"}}", "rate" },
		{ "{\"throttle\":[]}", "throttle" },
		{ "{\"max_per_second\":1,\"rate\":{\"limit\":1,\"period\":"
		  "\"PT1S\"}}",
			"rate" },
		{ "{\"concurrency\":1,\"on_limit\":\"drop\"}", "on_limit" },
	};
	struct problem p;
	struct span out;

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		if (rate_parse(span_of(all[i].raw), &a, &out, &p) == 0)
			fail_msg("%s", all[i].raw);
		check_refused(&all[i], &p);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_key_is_made_of_what_is_chosen),
		cmocka_unit_test(args_keys_choose_in_the_first_object),
		cmocka_unit_test(window_states_and_conflict),
		cmocka_unit_test(bad_policies_name_their_member),
		cmocka_unit_test(both_forms_of_a_rate_limit),
		cmocka_unit_test(bad_rate_limits_name_their_member),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
