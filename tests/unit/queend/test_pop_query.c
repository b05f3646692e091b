/* SPDX-License-Identifier: Apache-2.0 */
/* The query of a pop, as a table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "pop_query.h"

struct pair {
	const char *key, *value;
};

static bool
get(const void *src, const char *key, struct span *out)
{
	for (const struct pair *p = src; p->key; p++) {
		if (strcmp(p->key, key) == 0) {
			*out = span_of(p->value);
			return true;
		}
	}
	return false;
}

static const struct pop_defaults DEFAULTS = { .timeout_ms = 30000,
	.subscription_mode = "new" };

static int
parse(const struct pair *pairs, struct pop_query *q, struct err *e)
{
	const char *code;

	return pop_query_parse(q, &DEFAULTS, get, pairs, &code, e);
}

#define Q(...) ((const struct pair[]){ __VA_ARGS__, { NULL, NULL } })

static void
test_absent_values_have_their_defaults(void **state)
{
	struct pop_query q;
	struct err e = ERR_ZERO;

	(void)state;
	assert_int_equal(parse(Q({ "x", "y" }), &q, &e), 0);
	assert_int_equal(q.batch, 200);
	assert_int_equal(q.partitions, 1);
	assert_false(q.partitions_given);
	assert_false(q.auto_ack || q.wait || q.conflation);
	assert_int_equal(q.timeout_ms, 30000);
	assert_int_equal(q.lease_s, 0);
	assert_true(span_is(q.group, "__QUEUE_MODE__"));
	assert_true(q.queue_mode);
	assert_string_equal(q.mode, "all");
}

static void
test_numbers_are_clamped_as_written(void **state)
{
	struct pop_query q;
	struct err e = ERR_ZERO;

	(void)state;
	assert_int_equal(parse(Q({ "batch", "0" }, { "partitions", "-3" },
				       { "leaseSeconds", "-1" },
				       { "timeout", "999999999999" }),
				 &q, &e),
		0);
	assert_int_equal(q.batch, 1);
	assert_int_equal(q.partitions, 0);
	assert_true(q.partitions_given);
	assert_int_equal(q.lease_s, 0);
	assert_int_equal(q.timeout_ms, 300000);
	assert_int_equal(
		parse(Q({ "timeout", "0" }, { "batch", "7" }), &q, &e), 0);
	assert_int_equal(q.timeout_ms, 0);
	assert_int_equal(q.batch, 7);
}

static void
test_wrong_types_name_the_parameter(void **state)
{
	static const struct {
		const char *key, *value, *text;
	} bad[] = {
		{ "batch", "", "bad query: batch is not an integer" },
		{ "batch", "1e3", "bad query: batch is not an integer" },
		{ "batch", " 1", "bad query: batch is not an integer" },
		{ "batch", "2147483648", "bad query: batch is out of range" },
		{ "partitions", "two",
			"bad query: partitions is not an integer" },
		{ "timeout", "-1", "bad query: timeout is out of range" },
		{ "leaseSeconds", "9999999999",
			"bad query: leaseSeconds is out of range" },
		{ "wait", "", "bad query: wait is neither true nor false" },
		{ "wait", "True", "bad query: wait is neither true nor false" },
		{ "autoAck", "1",
			"bad query: autoAck is neither true nor false" },
		{ "conflation", "0",
			"bad query: conflation is neither true nor false" },
		{ "autopilot", "x",
			"bad query: autopilot is neither true nor false" },
		{ "consumerGroup", "a\x1f",
			"consumerGroup holds a control character (0x1f)" },
		{ "namespace", "\xff", "namespace is not UTF-8" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct pop_query q;
		struct err e = ERR_ZERO;

		assert_int_equal(
			parse(Q({ bad[i].key, bad[i].value }), &q, &e), -1);
		assert_string_equal(e.text, bad[i].text);
		assert_int_equal(e.kind, ERR_INPUT);
	}
}

static void
test_conflation_needs_a_group_and_no_auto_ack(void **state)
{
	struct pop_query q;
	struct err e = ERR_ZERO;
	const char *code;

	(void)state;
	assert_int_equal(pop_query_parse(&q, &DEFAULTS, get,
				 Q({ "conflation", "true" }), &code, &e),
		-1);
	assert_string_equal(code, "conflation_requires_group");
	assert_int_equal(pop_query_parse(&q, &DEFAULTS, get,
				 Q({ "conflation", "true" },
					 { "consumerGroup", "__QUEUE_MODE__" }),
				 &code, &e),
		-1);
	assert_string_equal(code, "conflation_requires_group");
	assert_int_equal(
		pop_query_parse(&q, &DEFAULTS, get,
			Q({ "conflation", "true" }, { "consumerGroup", "g" },
				{ "autoAck", "true" }),
			&code, &e),
		-1);
	assert_string_equal(code, "conflation_with_auto_ack");
	assert_int_equal(
		pop_query_parse(&q, &DEFAULTS, get,
			Q({ "conflation", "true" }, { "consumerGroup", "g" }),
			&code, &e),
		0);
	assert_null(code);
	assert_true(q.conflation);
}

static void
test_start_of_a_new_group(void **state)
{
	static const struct {
		const char *mode, *from, *want;
	} rows[] = {
		{ NULL, NULL, "new" },
		{ "", "", "new" },
		{ "new", NULL, "new" },
		{ "new-only", NULL, "new" },
		{ "all", NULL, "all" },
		{ "banana", NULL, "all" },
		{ "NEW", NULL, "all" },
		{ "all", "now", "new" },
		{ "all", "banana", "new" },
		{ "all", "2026-09-03T11:02:44Z", "timestamp" },
		{ "new", "2026-09-03T11:02:44+02:00", "timestamp" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct pair pairs[4] = { { "consumerGroup", "g" } };
		struct pop_query q;
		struct err e = ERR_ZERO;
		int n = 1;

		if (rows[i].mode)
			pairs[n++] = (struct pair){ "subscriptionMode",
				rows[i].mode };
		if (rows[i].from)
			pairs[n++] = (struct pair){ "subscriptionFrom",
				rows[i].from };
		assert_int_equal(parse(pairs, &q, &e), 0);
		assert_string_equal(q.mode, rows[i].want);
	}
}

static void
test_queue_mode_always_starts_at_the_beginning(void **state)
{
	struct pop_query q;
	struct err e = ERR_ZERO;

	(void)state;
	assert_int_equal(parse(Q({ "subscriptionMode", "new" },
				       { "subscriptionFrom", "now" },
				       { "consumerGroup", "" }),
				 &q, &e),
		0);
	assert_string_equal(q.mode, "all");
	assert_true(q.queue_mode);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_absent_values_have_their_defaults),
		cmocka_unit_test(test_numbers_are_clamped_as_written),
		cmocka_unit_test(test_wrong_types_name_the_parameter),
		cmocka_unit_test(test_conflation_needs_a_group_and_no_auto_ack),
		cmocka_unit_test(test_start_of_a_new_group),
		cmocka_unit_test(
			test_queue_mode_always_starts_at_the_beginning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
