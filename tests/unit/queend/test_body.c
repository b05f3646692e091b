/* SPDX-License-Identifier: Apache-2.0 */
/* Request bodies: what is read, and the exact text of each refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "body.h"

#define ASSERT_SPAN(s, text)                                                   \
	do {                                                                   \
		struct span got = (s);                                         \
		assert_int_equal(got.n, strlen(text));                         \
		if (got.n)                                                     \
			assert_memory_equal(got.p, text, got.n);               \
	} while (0)

static struct arena arena;

static int
teardown(void **state)
{
	(void)state;
	arena_fini(&arena);
	return 0;
}

static size_t
push_ok(const char *text, struct body_push **items)
{
	struct err e = ERR_ZERO;
	size_t n;

	if (body_parse_push(span_of(text), &arena, items, &n, &e) != 0)
		fail_msg("%s: %s", text, e.text);
	return n;
}

static void
push_reads_every_field(void **state)
{
	struct body_push *p;

	(void)state;
	assert_int_equal(push_ok("{\"items\":[]}", &p), 0);
	assert_int_equal(
		push_ok(" { \"x\":[1,{}], \"items\" : [ {\"queue\":"
			"\"q\", \"payload\" : {\"a\": 1.50 , \"b\":\"\\u0000\"} } , "
			"{\"payload\":null,\"partition\":\"p\",\"transactionId\":"
			"\"t\\u00e9\\/\",\"queue\":\"r\",\"traceId\":\"x\","
			"\"data\":1}]}",
			&p),
		2);
	ASSERT_SPAN(p[0].queue, "q");
	ASSERT_SPAN(p[0].partition, "Default");
	ASSERT_SPAN(p[0].txn, "");
	ASSERT_SPAN(p[0].payload, "{\"a\": 1.50 , \"b\":\"\\u0000\"}");
	ASSERT_SPAN(p[1].queue, "r");
	ASSERT_SPAN(p[1].partition, "p");
	ASSERT_SPAN(p[1].txn, "t\xc3\xa9/");
	ASSERT_SPAN(p[1].payload, "null");
	assert_false(p[1].has_trace);
}

static void
null_is_absent_and_the_last_of_two_keys_counts(void **state)
{
	struct body_push *p;

	(void)state;
	assert_int_equal(
		push_ok("{\"items\":[{\"queue\":\"a\",\"queue\":\"b\","
			"\"partition\":null,\"transactionId\":null,\"payload\":1,"
			"\"payload\":2}]}",
			&p),
		1);
	ASSERT_SPAN(p[0].queue, "b");
	ASSERT_SPAN(p[0].partition, "Default");
	ASSERT_SPAN(p[0].txn, "");
	ASSERT_SPAN(p[0].payload, "2");
	assert_int_equal(push_ok("{\"items\":[{\"queue\":\"q\",\"payload\":1}],"
				 "\"items\":[]}",
				 &p),
		0);
}

struct refusal {
	const char *body, *text;
};

static const struct refusal push_refusals[] = {
	{ "[]", "bad body: it must be a JSON object" },
	{ "3", "bad body: it must be a JSON object" },
	{ "{}", "bad body: items is required" },
	{ "{\"items\":{}}", "bad body: items must be an array" },
	{ "{\"items\":[1]}", "bad body: items[0] must be an object" },
	{ "{\"items\":[{\"payload\":1}]}",
		"bad body: items[0].queue is required" },
	{ "{\"items\":[{\"queue\":null,\"payload\":1}]}",
		"bad body: items[0].queue is required" },
	{ "{\"items\":[{\"queue\":7,\"payload\":1}]}",
		"bad body: items[0].queue must be a string" },
	{ "{\"items\":[{\"queue\":\"\",\"payload\":1}]}",
		"bad body: items[0].queue is empty" },
	{ "{\"items\":[{\"queue\":\"q\",\"payload\":1},{\"queue\":\"q\"}]}",
		"bad body: items[1].payload is required" },
	{ "{\"items\":[{\"queue\":\"q\",\"data\":1}]}",
		"bad body: items[0].payload is required" },
	{ "{\"items\":[{\"queue\":\"q\",\"payload\":1,\"partition\":\"\"}]}",
		"bad body: items[0].partition is empty" },
	{ "{\"items\":[{\"queue\":\"q\",\"payload\":1,\"partition\":[]}]}",
		"bad body: items[0].partition must be a string" },
	{ "{\"items\":[{\"queue\":\"q\",\"payload\":1,"
	  "\"transactionId\":\"a\\u001fb\"}]}",
		"bad body: items[0].transactionId holds a control character "
		"(0x1f)" },
	{ "{\"items\":[{\"queue\":\"q\\u0000\",\"payload\":1}]}",
		"bad body: items[0].queue holds a control character (0x00)" },
	{ "{\"items\":[{\"queue\":\"\\ud800\",\"payload\":1}]}",
		"bad body: items[0].queue holds half of a surrogate pair" },
	{ "{\"items\":[{\"queue\":\"q\",\"payload\":1,"
	  "\"transactionId\":5}]}",
		"bad body: items[0].transactionId must be a string" },
};

static void
push_names_what_is_wrong(void **state)
{
	struct body_push *p;
	size_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(push_refusals) / sizeof(*push_refusals);
		i++) {
		const struct refusal *r = &push_refusals[i];
		struct err e = ERR_ZERO;

		assert_int_equal(
			body_parse_push(span_of(r->body), &arena, &p, &n, &e),
			-1);
		assert_string_equal(e.text, r->text);
		assert_int_equal(e.kind, ERR_INPUT);
	}
}

static void
what_is_no_json_tells_the_offset(void **state)
{
	static const char *const bodies[] = { "", "{", "{\"items\":[",
		"{\"items\""
		":[{\"queue\":\"q\",\"payload\":{\"a\":}}]}",
		"{\"items\":[]} x",
		"{\"items\":[{\"queue\":\"q\",\"payload\":01}]}", "nul",
		"{\"items\":[{\"queue\":\"\xff\",\"payload\":1}]}" };
	struct body_push *p;
	size_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
		struct err e = ERR_ZERO;

		assert_int_equal(
			body_parse_push(span_of(bodies[i]), &arena, &p, &n, &e),
			-1);
		assert_memory_equal(e.text, "bad body: ", 10);
		if (!strstr(e.text, " at offset "))
			fail_msg("%s: %s", bodies[i], e.text);
	}
}

static void
names_end_at_1024_bytes(void **state)
{
	char name[1100], body[1300], want[128];
	static const char *const fields[] = { "queue", "partition",
		"transactionId" };
	struct body_push *p;
	struct err e = ERR_ZERO;
	size_t n;

	(void)state;
	for (int k = 0; k < 3; k++)
		for (int len = 1024; len <= 1025; len++) {
			memset(name, 'n', (size_t)len);
			name[len] = '\0';
			snprintf(body, sizeof(body),
				"{\"items\":[{\"queue\":"
				"\"q\",\"payload\":1,\"%s\":\"%s\"}]}",
				fields[k], name);
			snprintf(want, sizeof(want),
				"bad body: items[0].%s "
				"is longer than 1024 bytes",
				fields[k]);
			int rc = body_parse_push(
				span_of(body), &arena, &p, &n, &e);

			assert_int_equal(rc, len == 1024 ? 0 : -1);
			if (rc != 0)
				assert_string_equal(e.text, want);
		}
}

static void
status_words_are_the_table(void **state)
{
	static const struct {
		const char *word;
		enum body_status status;
	} words[] = { { "completed", BODY_COMPLETED },
		{ "success", BODY_COMPLETED }, { "acked", BODY_COMPLETED },
		{ "ok", BODY_COMPLETED }, { "retry", BODY_RETRY },
		{ "dlq", BODY_DLQ }, { "failed", BODY_FAILED },
		{ "", BODY_FAILED }, { "FAILED", BODY_FAILED },
		{ "nack", BODY_FAILED }, { "Completed", BODY_FAILED },
		{ "OK", BODY_FAILED }, { "DLQ", BODY_FAILED } };

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		assert_int_equal(body_status_of(span_of(words[i].word)),
			words[i].status);
}

static void
acks_read_every_field(void **state)
{
	struct body_ack one, *all;
	struct span group;
	struct err e = ERR_ZERO;
	size_t n;

	(void)state;
	assert_int_equal(
		body_parse_ack(
			span_of("{\"transactionId\":\"t\","
				"\"partitionId\":\"p\",\"consumerGroup\":\"g\",\"leaseId\":"
				"\"l\",\"status\":\"retry\",\"error\":\"a\\u0000b\"}"),
			&arena, &group, &one, &e),
		0);
	ASSERT_SPAN(one.txn, "t");
	ASSERT_SPAN(one.partition_id, "p");
	ASSERT_SPAN(group, "g");
	ASSERT_SPAN(one.lease_id, "l");
	ASSERT_SPAN(one.error, "a b");
	assert_int_equal(one.status, BODY_RETRY);
	assert_int_equal(
		body_parse_ack(
			span_of("{\"status\":null,\"error\":"
				"null,\"leaseId\":null,\"consumerGroup\":null}"),
			&arena, &group, &one, &e),
		0);
	assert_int_equal(one.status, BODY_COMPLETED);
	assert_int_equal(group.n + one.error.n + one.lease_id.n, 0);
	assert_int_equal(
		body_parse_ack_batch(
			span_of("{\"acknowledgments\":["
				"{\"transactionId\":\"a\",\"consumerGroup\":9},{}],"
				"\"consumerGroup\":\"g\"}"),
			&arena, &group, &all, &n, &e),
		0);
	assert_int_equal(n, 2);
	ASSERT_SPAN(all[0].txn, "a");
	ASSERT_SPAN(all[1].txn, "");
	ASSERT_SPAN(group, "g");
}

static void
acks_name_what_is_wrong(void **state)
{
	static const struct refusal list[] = {
		{ "{}", "bad body: acknowledgments is required" },
		{ "{\"acknowledgments\":3}",
			"bad body: acknowledgments must be an array" },
		{ "{\"acknowledgments\":[[]]}",
			"bad body: acknowledgments[0] must be an object" },
		{ "{\"acknowledgments\":[{},{\"transactionId\":1}]}",
			"bad body: acknowledgments[1].transactionId must be a "
			"string" },
		{ "{\"acknowledgments\":[{\"status\":1}]}",
			"bad body: acknowledgments[0].status must be a "
			"string" },
		{ "{\"acknowledgments\":[],\"consumerGroup\":\"\\n\"}",
			"bad body: consumerGroup holds a control character "
			"(0x0a)" },
	};
	struct body_ack *all;
	struct span group;
	size_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
		struct err e = ERR_ZERO;

		assert_int_equal(body_parse_ack_batch(span_of(list[i].body),
					 &arena, &group, &all, &n, &e),
			-1);
		assert_string_equal(e.text, list[i].text);
	}
}

static void
transactions_read_nested_and_flat_pushes_and_acks(void **state)
{
	struct body_txn t;
	struct err e = ERR_ZERO;

	(void)state;
	assert_int_equal(
		body_parse_txn(
			span_of("{\"operations\":[{\"queue\":"
				"\"a\",\"data\":{\"o\":77},\"type\":\"push\"},{\"type\":"
				"\"push\",\"items\":[{\"queue\":\"b\",\"data\":1,\"payload\":2,"
				"\"traceId\":\"0198f2c1-4d3a-7000-8000-000000000001\"},"
				"{\"queue\":\"c\",\"traceId\":\"no\"}]},{\"type\":\"ack\","
				"\"transactionId\":\"x\",\"consumerGroup\":\"g\",\"status\":"
				"\"dlq\"}],\"requiredLeases\":[\"l1\",\"l2\"],\"kv\":null,"
				"\"timers\":null}"),
			&arena, &t, &e),
		0);
	assert_int_equal(t.ops_n, 3);
	assert_true(t.ops[0].is_push);
	assert_int_equal(t.ops[0].n, 1);
	ASSERT_SPAN(t.ops[0].items[0].payload, "{\"o\":77}");
	assert_int_equal(t.ops[1].n, 2);
	ASSERT_SPAN(t.ops[1].items[0].payload, "2");
	assert_true(t.ops[1].items[0].has_trace);
	ASSERT_SPAN(t.ops[1].items[1].payload, "{}");
	assert_false(t.ops[1].items[1].has_trace);
	assert_false(t.ops[2].is_push);
	ASSERT_SPAN(t.ops[2].ack.group, "g");
	assert_int_equal(t.ops[2].ack.status, BODY_DLQ);
	assert_int_equal(t.leases_n, 2);
	ASSERT_SPAN(t.leases[1], "l2");
}

static void
transactions_name_what_is_wrong(void **state)
{
	static const struct refusal list[] = {
		{ "{}", "bad body: operations is required" },
		{ "{\"operations\":{}}",
			"bad body: operations must be an array" },
		{ "{\"operations\":[{}]}",
			"bad body: operations[0].type is required" },
		{ "{\"operations\":[{\"type\":\"pull\"}]}",
			"bad body: operations[0].type must be \"push\" or "
			"\"ack\", not \"pull\"" },
		{ "{\"operations\":[{\"type\":\"push\"}]}",
			"bad body: operations[0].queue is required" },
		{ "{\"operations\":[{\"type\":\"push\",\"items\":[{\"queue\":"
		  "\"q\"},{}]}]}",
			"bad body: operations[0].items[1].queue is required" },
		{ "{\"operations\":[{\"type\":\"push\",\"items\":7}]}",
			"bad body: operations[0].items must be an array" },
		{ "{\"operations\":[],\"requiredLeases\":\"x\"}",
			"bad body: requiredLeases must be an array" },
		{ "{\"operations\":[],\"requiredLeases\":[null]}",
			"bad body: requiredLeases[0] must be a string" },
		{ "{\"operations\":[],\"kv\":{}}",
			"bad body: kv must be an array" },
		{ "{\"operations\":[],\"timers\":7}",
			"bad body: timers must be an array" },
	};
	struct body_txn t;

	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
		struct err e = ERR_ZERO;

		assert_int_equal(
			body_parse_txn(span_of(list[i].body), &arena, &t, &e),
			-1);
		assert_string_equal(e.text, list[i].text);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(push_reads_every_field),
		cmocka_unit_test(
			null_is_absent_and_the_last_of_two_keys_counts),
		cmocka_unit_test(push_names_what_is_wrong),
		cmocka_unit_test(what_is_no_json_tells_the_offset),
		cmocka_unit_test(names_end_at_1024_bytes),
		cmocka_unit_test(status_words_are_the_table),
		cmocka_unit_test(acks_read_every_field),
		cmocka_unit_test(acks_name_what_is_wrong),
		cmocka_unit_test(
			transactions_read_nested_and_flat_pushes_and_acks),
		cmocka_unit_test(transactions_name_what_is_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
