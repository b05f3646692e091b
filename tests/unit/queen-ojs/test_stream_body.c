/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of stream requests: what is taken, what is refused and how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "stream_body.h"

enum { LIMIT = 1048576 };

static struct arena a;
static struct problem p;

static int
teardown(void **state)
{
	(void)state;
	arena_fini(&a);
	return 0;
}

static void
assert_span(struct span s, const char *text)
{
	assert_string_equal(arena_cstr(&a, s), text);
}

static void
assert_problem(int status, const char *code, const char *details)
{
	assert_int_equal(p.status, status);
	assert_string_equal(p.code, code);
	if (details)
		assert_span(p.details, details);
	else
		assert_int_equal(p.details.n, 0);
}

/* ---- append ---- */

static void
test_message(void **state)
{
	struct stream_message m = { .id = SPAN_ZERO };

	(void)state;
	assert_int_equal(
		stream_body_append(
			SPAN_LIT("{\"extra\":[1],\"type\":\"a.b \\u00e9\","
				 "\"payload\":{ \"n\": 1.50, \"n\":2e9 },"
				 "\"headers\":{\"trace\" :\"x\"},"
				 "\"id\":\"one\"}"),
			&a, LIMIT, &m, &p),
		0);
	assert_span(m.type, "a.b \xc3\xa9");
	assert_span(m.payload, "{ \"n\": 1.50, \"n\":2e9 }");
	assert_span(m.headers, "{\"trace\" :\"x\"}");
	assert_span(m.id, "one");
	m = (struct stream_message){ .id = SPAN_ZERO };
	assert_int_equal(
		stream_body_append(SPAN_LIT("{\"type\":\"x\",\"payload\":null,"
					    "\"id\":null,\"headers\":null}"),
			&a, LIMIT, &m, &p),
		0);
	assert_span(m.payload, "null");
	assert_int_equal(m.id.n + m.headers.n, 0);
}

static void
test_bad_messages(void **state)
{
	static const struct {
		const char *body, *code, *details;
	} bad[] = {
		{ "", "invalid_payload", NULL },
		{ "[]", "invalid_payload", NULL },
		{ "{\"type\":\"x\",\"payload\":1", "invalid_payload", NULL },
		{ "{\"type\":\"x\",\"payload\":01}", "invalid_payload", NULL },
		{ "{\"type\":\"x\",\"payload\":1}x", "invalid_payload", NULL },
		{ "{}", "invalid_request", "\"field\":\"type\"" },
		{ "{\"type\":null,\"payload\":1}", "invalid_request",
			"\"field\":\"type\"" },
		{ "{\"type\":\"\",\"payload\":1}", "invalid_request",
			"\"field\":\"type\"" },
		{ "{\"type\":7,\"payload\":1}", "invalid_request",
			"\"field\":\"type\"" },
		{ "{\"type\":\"a\\nb\",\"payload\":1}", "invalid_request",
			"\"field\":\"type\"" },
		{ "{\"type\":\"a\\u0085b\",\"payload\":1}", "invalid_request",
			"\"field\":\"type\"" },
		{ "{\"type\":\"a\\ud800b\",\"payload\":1}", "invalid_request",
			"\"field\":\"type\"" },
		{ "{\"type\":\"x\"}", "invalid_request",
			"\"field\":\"payload\"" },
		{ "{\"type\":\"x\",\"payload\":1,\"headers\":[]}",
			"invalid_request", "\"field\":\"headers\"" },
		{ "{\"type\":\"x\",\"payload\":1,\"id\":\"\"}",
			"invalid_request", "\"field\":\"id\"" },
		{ "{\"type\":\"x\",\"payload\":1,\"id\":1}", "invalid_request",
			"\"field\":\"id\"" },
		{ "{\"type\":\"x\",\"payload\":1,\"id\":\"\\u0000\"}",
			"invalid_request", "\"field\":\"id\"" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct stream_message m = { .id = SPAN_ZERO };

		print_message("# %s\n", bad[i].body);
		assert_int_equal(stream_body_append(span_of(bad[i].body), &a,
					 LIMIT, &m, &p),
			-1);
		assert_problem(400, bad[i].code, bad[i].details);
	}
}

/* One object, then n - 1 lists within. */
static int
nested(int n)
{
	struct stream_message m = { .id = SPAN_ZERO };
	struct buf b = BUF_ZERO;
	int rc;

	buf_puts(&b, "{\"type\":\"[[[\",\"payload\":");
	for (int i = 1; i < n; i++)
		buf_putc(&b, '[');
	for (int i = 1; i < n; i++)
		buf_putc(&b, ']');
	buf_putc(&b, '}');
	rc = stream_body_append(buf_span(&b), &a, LIMIT, &m, &p);
	buf_fini(&b);
	return rc;
}

static void
test_depth(void **state)
{
	(void)state;
	assert_int_equal(nested(32), 0);
	assert_int_equal(nested(33), -1);
	assert_problem(400, "invalid_payload", NULL);
}

/* {"type":"x","id":ID,"headers":{"h":H},"payload":P} of these lengths. */
static int
sized(size_t type_n, const char *id, size_t id_n, size_t headers_n,
	size_t body_n)
{
	struct stream_message m = { .id = SPAN_ZERO };
	struct buf b = BUF_ZERO;
	int rc;

	buf_puts(&b, "{\"type\":\"");
	while (type_n--)
		buf_putc(&b, 'x');
	buf_puts(&b, "\",\"id\":\"");
	while (id_n--)
		buf_puts(&b, id);
	buf_puts(&b, "\",\"headers\":{\"h\":\"");
	for (size_t n = 8; n < headers_n; n++)
		buf_putc(&b, 'h');
	buf_puts(&b, "\"},\"payload\":\"");
	while (b.len + 2 < body_n)
		buf_putc(&b, 'p');
	buf_puts(&b, "\"}");
	rc = stream_body_append(buf_span(&b), &a, LIMIT, &m, &p);
	buf_fini(&b);
	return rc;
}

static void
test_sizes(void **state)
{
	(void)state;
	assert_int_equal(sized(255, "\xc3\xa9", 255, 65536, LIMIT), 0);
	assert_int_equal(sized(256, "i", 1, 8, 100), -1);
	assert_problem(400, "invalid_request", "\"field\":\"type\"");
	assert_int_equal(sized(1, "\xc3\xa9", 256, 8, 100), -1);
	assert_problem(400, "invalid_request", "\"field\":\"id\"");
	assert_int_equal(sized(1, "i", 1, 65537, 100), -1);
	assert_problem(413, "envelope_too_large",
		"\"field\":\"headers\",\"size\":65537,\"limit\":65536");
	assert_int_equal(sized(1, "i", 1, 8, LIMIT + 1), -1);
	assert_problem(413, "envelope_too_large",
		"\"field\":\"message\",\"size\":1048577,\"limit\":1048576");
}

static int
batch_of(int n, struct stream_message **m, size_t *got)
{
	struct buf b = BUF_ZERO;
	struct span body;

	buf_puts(&b, "{\"messages\":[");
	for (int i = 0; i < n; i++)
		buf_printf(&b, "%s{\"type\":\"t\",\"payload\":%d}",
			i ? "," : "", i);
	buf_puts(&b, "]}");
	body = arena_dup(&a, buf_span(&b));
	buf_fini(&b);
	return stream_body_append_batch(body, &a, LIMIT, m, got, &p);
}

static void
test_batches(void **state)
{
	struct stream_message *m;
	size_t n;

	(void)state;
	assert_int_equal(batch_of(1000, &m, &n), 0);
	assert_int_equal(n, 1000);
	assert_span(m[0].payload, "0");
	assert_span(m[999].payload, "999");
	assert_int_equal(batch_of(1200, &m, &n), -1);
	assert_problem(
		413, "batch_too_large", "\"max\":1000,\"batch_size\":1200");
	assert_int_equal(batch_of(0, &m, &n), -1);
	assert_problem(400, "invalid_request", "\"field\":\"messages\"");
}

static void
test_bad_batches(void **state)
{
	static const struct {
		const char *body, *code, *details;
	} bad[] = {
		{ "{}", "invalid_request", "\"field\":\"messages\"" },
		{ "{\"messages\":null}", "invalid_request",
			"\"field\":\"messages\"" },
		{ "{\"messages\":{}}", "invalid_request",
			"\"field\":\"messages\"" },
		{ "{\"messages\":[7]}", "invalid_request",
			"\"field\":\"messages\",\"index\":0" },
		{ "{\"messages\":[{\"type\":\"x\",\"payload\":1},{}]}",
			"invalid_request", "\"field\":\"type\",\"index\":1" },
		{ "{\"messages\":[{\"type\":\"x\"}]}", "invalid_request",
			"\"field\":\"payload\",\"index\":0" },
		{ "{\"messages\":[{\"type\":\"x\",\"payload\":1},]}",
			"invalid_payload", NULL },
		{ "7", "invalid_payload", NULL },
	};
	struct stream_message *m;
	size_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		print_message("# %s\n", bad[i].body);
		assert_int_equal(stream_body_append_batch(span_of(bad[i].body),
					 &a, LIMIT, &m, &n, &p),
			-1);
		assert_problem(400, bad[i].code, bad[i].details);
	}
	/* of a member given twice the last one counts */
	assert_int_equal(stream_body_append_batch(
				 SPAN_LIT("{\"messages\":[{\"type\":\"a\","
					  "\"payload\":1}],\"messages\":[{"
					  "\"type\":\"b\",\"payload\":2}]}"),
				 &a, LIMIT, &m, &n, &p),
		0);
	assert_int_equal(n, 1);
	assert_span(m[0].type, "b");
}

/* ---- consumers ---- */

static void
test_subscribe(void **state)
{
	static const struct {
		const char *body, *from;
	} good[] = {
		{ "{\"consumer\":\"a-B_9\"}", "" },
		{ "{\"consumer\":\"a\",\"from_tick\":null}", "" },
		{ "{\"consumer\":\"a\",\"from_tick\":0}", "0" },
		{ "{\"consumer\":\"a\",\"from_tick\":\"17\"}", "17" },
		{ "{\"consumer\":\"a\",\"from_tick\":9223372036854775807}",
			"9223372036854775807" },
		{ "{\"consumer\":\"a\",\"from_tick\":\"now\"}", "now" },
	};
	static const char *const bad[] = { "-1", "1.5", "\"later\"", "\"\"",
		"[]", "true", "9223372036854775808", "\"-1\"", "1e3" };
	struct stream_subscribe s;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(stream_body_subscribe(
					 span_of(good[i].body), &a, &s, &p),
			0);
		assert_span(s.from, good[i].from);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct span body = arena_printf(
			&a, "{\"consumer\":\"a\",\"from_tick\":%s}", bad[i]);

		print_message("# %s\n", bad[i]);
		assert_int_equal(stream_body_subscribe(body, &a, &s, &p), -1);
		assert_problem(
			400, "invalid_request", "\"field\":\"from_tick\"");
	}
}

static void
test_names(void **state)
{
	static const char *const bad[] = { "\"\"", "\"a.b\"", "\"-a\"",
		"\"_a\"", "\"a b\"", "\"\xc3\xa9\"", "\"a\\u0000\"", "7" };
	char long_name[130];
	struct stream_subscribe s;

	(void)state;
	memset(long_name, 'n', sizeof(long_name));
	assert_true(stream_body_name_ok(span_make(long_name, 128)));
	assert_false(stream_body_name_ok(span_make(long_name, 129)));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct span body =
			arena_printf(&a, "{\"consumer\":%s}", bad[i]);

		print_message("# %s\n", bad[i]);
		assert_int_equal(stream_body_subscribe(body, &a, &s, &p), -1);
		assert_problem(
			400, "invalid_request", "\"field\":\"consumer\"");
	}
	assert_int_equal(stream_body_subscribe(SPAN_LIT("{}"), &a, &s, &p), -1);
	assert_problem(400, "invalid_request", "\"field\":\"consumer\"");
}

static void
test_receive(void **state)
{
	static const struct {
		const char *more, *field;
	} bad[] = {
		{ "\"max\":0", "max" },
		{ "\"max\":100001", "max" },
		{ "\"max\":1.5", "max" },
		{ "\"max\":\"many\"", "max" },
		{ "\"wait_ms\":-1", "wait_ms" },
		{ "\"wait_ms\":\"PT1S\"", "wait_ms" },
		{ "\"member\":\"m.1\"", "member" },
		{ "\"member\":\"m\",\"dead_interval_ms\":999",
			"dead_interval_ms" },
		{ "\"dead_interval_ms\":1000", "dead_interval_ms" },
	};
	struct stream_receive s;

	(void)state;
	assert_int_equal(stream_body_receive(
				 SPAN_LIT("{\"consumer\":\"c\"}"), &a, &s, &p),
		0);
	assert_int_equal(s.max, 100000);
	assert_int_equal(s.wait_ms + s.dead_ms + (int64_t)s.member.n, 0);
	assert_int_equal(
		stream_body_receive(
			SPAN_LIT("{\"consumer\":\"c\",\"member\":\"m1\","
				 "\"max\":\"7\",\"wait_ms\":60000,"
				 "\"dead_interval_ms\":1000}"),
			&a, &s, &p),
		0);
	assert_span(s.member, "m1");
	assert_int_equal(s.max, 7);
	assert_int_equal(s.wait_ms, 60000);
	assert_int_equal(s.dead_ms, 1000);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct span body = arena_printf(
			&a, "{\"consumer\":\"c\",%s}", bad[i].more);

		print_message("# %s\n", bad[i].more);
		assert_int_equal(stream_body_receive(body, &a, &s, &p), -1);
		assert_problem(400, "invalid_request",
			arena_cstr(&a, arena_printf(&a, "\"field\":\"%s\"",
					       bad[i].field)));
	}
}

/* ---- ends ---- */

static void
test_ack(void **state)
{
	struct stream_end s;

	(void)state;
	assert_int_equal(
		stream_body_ack(
			SPAN_LIT("{\"queue\":\"q\",\"batch_id\":\"12\","
				 "\"consumer\":\"c\",\"member\":\"m\"}"),
			&a, &s, &p),
		0);
	assert_span(s.queue, "q");
	assert_int_equal(s.batch, 12);
	assert_span(s.consumer, "c");
	assert_span(s.member, "m");
	assert_int_equal(
		stream_body_ack(SPAN_LIT("{\"batch_id\":1}"), &a, &s, &p), -1);
	assert_problem(400, "invalid_request", "\"field\":\"queue\"");
	assert_int_equal(stream_body_ack(SPAN_LIT("{\"queue\":\"Q\","
						  "\"batch_id\":1}"),
				 &a, &s, &p),
		-1);
	assert_problem(400, "invalid_request", "\"field\":\"queue\"");
	assert_int_equal(
		stream_body_ack(SPAN_LIT("{\"queue\":\"q\"}"), &a, &s, &p), -1);
	assert_problem(400, "invalid_request", "\"field\":\"batch_id\"");
}

static void
test_nack(void **state)
{
	static const struct {
		const char *value;
		int64_t ms;
	} delays[] = { { "\"30s\"", 30000 }, { "30", 30000 }, { "0", 0 },
		{ "\"PT0.5S\"", 500 }, { "\"720h\"", 2592000000 },
		{ "2592000", 2592000000 }, { "null", -1 } };
	static const char *const bad[] = { "-1", "1.5", "\"\"", "\"soon\"",
		"\"-1s\"", "2592001", "\"721h\"", "\"30\"", "{}" };
	struct stream_end s;

	(void)state;
	for (size_t i = 0; i < sizeof(delays) / sizeof(delays[0]); i++) {
		struct span body = arena_printf(&a,
			"{\"queue\":\"q\",\"batch_id\":1,\"seq\":5,"
			"\"retry_after\":%s}",
			delays[i].value);

		assert_int_equal(stream_body_nack(body, &a, &s, &p), 0);
		assert_int_equal(s.retry_ms, delays[i].ms);
		assert_int_equal(s.seq, 5);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct span body = arena_printf(&a,
			"{\"queue\":\"q\",\"batch_id\":1,\"seq\":5,"
			"\"retry_after\":%s}",
			bad[i]);

		print_message("# %s\n", bad[i]);
		assert_int_equal(stream_body_nack(body, &a, &s, &p), -1);
		assert_problem(
			400, "invalid_request", "\"field\":\"retry_after\"");
	}
	assert_int_equal(stream_body_nack(SPAN_LIT("{\"queue\":\"q\","
						   "\"batch_id\":1}"),
				 &a, &s, &p),
		-1);
	assert_problem(400, "invalid_request", "\"field\":\"message_id\"");
}

static void
test_reasons(void **state)
{
	struct stream_end s;
	char text[2001];

	(void)state;
	memset(text, 'r', sizeof(text));
	for (int n = 2000; n <= 2001; n++) {
		struct span body = arena_printf(&a,
			"{\"queue\":\"q\",\"batch_id\":1,\"message_id\":\"m\","
			"\"reason\":\"\\n%.*s\"}",
			n - 1, text);

		assert_int_equal(
			stream_body_nack(body, &a, &s, &p), n == 2000 ? 0 : -1);
	}
	assert_problem(400, "invalid_request", "\"field\":\"reason\"");
	assert_int_equal(
		stream_body_nack(
			SPAN_LIT("{\"queue\":\"q\",\"batch_id\":1,\"seq\":1,"
				 "\"reason\":\"a\\u0000\"}"),
			&a, &s, &p),
		-1);
	assert_problem(400, "invalid_request", "\"field\":\"reason\"");
	assert_int_equal(
		stream_body_nack(
			SPAN_LIT("{\"queue\":\"q\",\"batch_id\":1,\"seq\":1,"
				 "\"reason\":\"\"}"),
			&a, &s, &p),
		0);
	assert_int_equal(s.reason.n, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_message),
		cmocka_unit_test(test_bad_messages),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_bad_batches),
		cmocka_unit_test(test_subscribe),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_receive),
		cmocka_unit_test(test_ack),
		cmocka_unit_test(test_nack),
		cmocka_unit_test(test_reasons),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
