/* SPDX-License-Identifier: Apache-2.0 */
/* Envelopes: what is read, what is kept as sent, and each refusal. */
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
#include "job.h"
#include "job_int.h"

/* 2026-03-01T09:00:00Z */
#define NOW INT64_C(1772355600000000)
#define ID "019a0f10-6b20-7a01-8f3e-5d1c2b3a4950"
#define MAX ((size_t)1048576)

static struct arena arena;
static struct job_spec spec;
static struct problem problem;

static int
teardown(void **state)
{
	(void)state;
	arena_fini(&arena);
	return 0;
}

static int
parse(const char *json)
{
	memset(&problem, 0, sizeof(problem));
	return job_spec_parse(span_of(json), MAX, &arena, NOW, &spec, &problem);
}

static void
same(struct span s, const char *want)
{
	assert_string_equal(arena_cstr(&arena, s), want);
}

static void
doc_is(const char *json, const char *doc)
{
	if (parse(json) != 0)
		fail_msg("%s: %s", json, problem.message);
	same(spec.doc, doc);
}

static void
a_minimal_envelope_takes_the_defaults(void **state)
{
	(void)state;
	doc_is("{\"type\":\"a.b\",\"args\":[]}", "\"args\":[],\"meta\":{}");
	same(spec.type, "a.b");
	same(spec.queue, "default");
	assert_int_equal(spec.id.b[6] >> 4, 7);
	assert_int_equal(spec.rank, 0);
	assert_int_equal(spec.max_attempts, 3);
	assert_true(spec.due_us == 0 && spec.expires_us == 0);
	assert_true(spec.timeout_ms == 0 && spec.lease_ms == 0);
	assert_false(spec.pending);
	assert_int_equal(spec.policy.n + spec.unique.n + spec.rate.n, 0);
}

static void
the_documented_push(void **state)
{
	(void)state;
	doc_is("{\"type\":\"invoice.render\",\"args\":[8812,{\"lang\":\"it\"}],"
	       "\"meta\":{\"tenant_id\":\"t-40\"},\"x_origin\":\"billing\","
	       "\"options\":{\"queue\":\"pdf\",\"priority\":5,"
	       "\"timeout_ms\":120000,\"visibility_timeout_ms\":180000,"
	       "\"tags\":[\"nightly\"],\"retry\":{\"max_attempts\":4,"
	       "\"initial_interval\":\"PT2S\",\"max_interval\":\"PT1M\"}}}",
		"\"args\":[8812,{\"lang\":\"it\"}],"
		"\"meta\":{\"tenant_id\":\"t-40\"},\"x_origin\":\"billing\","
		"\"timeout_ms\":120000,\"visibility_timeout_ms\":180000,"
		"\"retry\":{\"max_attempts\":4,\"initial_interval\":\"PT2S\","
		"\"max_interval\":\"PT1M\"},\"tags\":[\"nightly\"]");
	same(spec.queue, "pdf");
	assert_int_equal(spec.rank, -5);
	assert_int_equal(spec.max_attempts, 4);
	assert_true(spec.timeout_ms == 120000 && spec.lease_ms == 180000);
}

/* Order, duplicates, escapes, white space and numbers are the client's. */
static void
what_the_client_sent_is_kept_byte_for_byte(void **state)
{
	(void)state;
	doc_is("{ \"z\" : 1.50e+2 , \"z\":null,\"\\ud800\":\"\\udc00\","
	       "\"type\":\"t\", \"args\" : [ 1.0, \"\\u0000\", {\"b\":1,"
	       "\"a\":2,\"a\":3} ],\"meta\":{\"n\":null} }",
		"\"args\":[ 1.0, \"\\u0000\", {\"b\":1,\"a\":2,\"a\":3} ],"
		"\"meta\":{\"n\":null},\"z\":1.50e+2,\"z\":null,"
		"\"\\ud800\":\"\\udc00\"");
	/* a name may be written with escapes; the last of a name counts */
	doc_is("{\"\\u0074ype\":\"x\",\"type\":\"y\",\"args\":[]}",
		"\"args\":[],\"meta\":{}");
	same(spec.type, "y");
}

static void
what_the_server_owns_is_dropped(void **state)
{
	(void)state;
	doc_is("{\"type\":\"t\",\"args\":[],\"state\":\"completed\","
	       "\"attempt\":9,\"max_attempts\":9,\"created_at\":1,"
	       "\"enqueued_at\":1,\"started_at\":1,\"completed_at\":1,"
	       "\"cancelled_at\":1,\"discarded_at\":1,\"activated_at\":1,"
	       "\"next_attempt_at\":1,\"retry_delay_ms\":1,\"error\":1,"
	       "\"errors\":1,\"result\":1,\"worker_id\":1,"
	       "\"lease_expires_at\":1,\"previous_state\":1,"
	       "\"parent_results\":1,\"workflow_id\":1,\"deduplicated\":1}",
		"\"args\":[],\"meta\":{}");
	assert_int_equal(spec.max_attempts, 3);
}

static void
null_is_absent_outside_args_and_meta(void **state)
{
	(void)state;
	doc_is("{\"type\":\"t\",\"args\":[null],\"id\":null,\"queue\":null,"
	       "\"meta\":null,\"priority\":null,\"timeout\":null,"
	       "\"timeout_ms\":null,\"scheduled_at\":null,\"expires_at\":null,"
	       "\"retry\":null,\"unique\":null,\"rate_limit\":null,"
	       "\"schema\":null,\"tags\":null,\"pending\":null,"
	       "\"specversion\":null,\"options\":null}",
		"\"args\":[null],\"meta\":{}");
	same(spec.queue, "default");
}

static void
options_win_and_unknown_ones_stay_there(void **state)
{
	(void)state;
	doc_is("{\"options\":{\"queue\":\"b\",\"priority\":-7,\"pending\":true,"
	       "\"metadata\":{\"test_directive\":\"quiet\"},\"type\":\"x\","
	       "\"schema\":\"s\",\"timeout_ms\":null},\"type\":\"t\","
	       "\"args\":[],\"queue\":\"a\",\"priority\":7,"
	       "\"timeout_ms\":5}",
		"\"args\":[],\"meta\":{},\"timeout_ms\":5,\"schema\":\"s\","
		"\"pending\":true,\"options\":{\"metadata\":"
		"{\"test_directive\":\"quiet\"},\"type\":\"x\"}");
	same(spec.type, "t");
	same(spec.queue, "b");
	assert_int_equal(spec.rank, 7);
	assert_true(spec.pending);
	assert_int_equal(spec.timeout_ms, 5);
}

static void
lengths_in_seconds_or_milliseconds(void **state)
{
	(void)state;
	doc_is("{\"type\":\"t\",\"args\":[],\"timeout\":1.5,"
	       "\"visibility_timeout\":\"PT2M\"}",
		"\"args\":[],\"meta\":{},\"timeout\":1.5,\"timeout_ms\":1500,"
		"\"visibility_timeout\":\"PT2M\","
		"\"visibility_timeout_ms\":120000");
	/* within one place milliseconds count, across places the options */
	doc_is("{\"type\":\"t\",\"args\":[],\"timeout\":9,\"timeout_ms\":8,"
	       "\"visibility_timeout_ms\":7,"
	       "\"options\":{\"visibility_timeout\":6}}",
		"\"args\":[],\"meta\":{},\"timeout_ms\":8,"
		"\"visibility_timeout\":6,\"visibility_timeout_ms\":6000");
	doc_is("{\"type\":\"t\",\"args\":[],\"timeout\":1e-9}",
		"\"args\":[],\"meta\":{},\"timeout\":1e-9,\"timeout_ms\":1");
}

static void
moments_are_shown_as_written_relative_ones_resolved(void **state)
{
	(void)state;
	doc_is("{\"type\":\"t\",\"args\":[],"
	       "\"scheduled_at\":\"2026-03-01T10:00:00+01:00\","
	       "\"expires_at\":\"2099-12-31T23:59:59Z\"}",
		"\"scheduled_at\":\"2026-03-01T10:00:00+01:00\","
		"\"expires_at\":\"2099-12-31T23:59:59Z\","
		"\"args\":[],\"meta\":{}");
	assert_true(spec.due_us == NOW);
	assert_true(spec.expires_us == INT64_C(4102444799000000));
	doc_is("{\"type\":\"t\",\"args\":[],\"scheduled_at\":\"+PT1S\","
	       "\"options\":{\"delay_until\":\"+PT5S\","
	       "\"expires_at\":\"+P1D\"}}",
		"\"scheduled_at\":\"2026-03-01T09:00:05.000Z\","
		"\"expires_at\":\"2026-03-02T09:00:00.000Z\","
		"\"args\":[],\"meta\":{}");
	assert_true(spec.due_us == NOW + 5000000);
	/* before 1970 is past, and not never */
	assert_int_equal(parse("{\"type\":\"t\",\"args\":[],"
			       "\"expires_at\":\"1960-01-01T00:00:00Z\"}"),
		0);
	assert_true(spec.expires_us == 1);
}

static void
policies_are_read_and_shown(void **state)
{
	(void)state;
	doc_is("{\"type\":\"t\",\"args\":[1],\"retry\":{\"max_attempts\":1},"
	       "\"unique\":{\"keys\":[\"type\"]},"
	       "\"rate_limit\":{\"max_per_second\":1}}",
		"\"args\":[1],\"meta\":{},\"retry\":{\"max_attempts\":1},"
		"\"unique\":{\"keys\":[\"type\"]},"
		"\"rate_limit\":{\"max_per_second\":1}");
	assert_int_equal(spec.max_attempts, 1);
	assert_true(spec.policy.n == 0 && spec.unique.n && spec.rate.n);
}

/* ---- refusals ---- */

static void
refused(const char *json, int status, const char *code, const char *field)
{
	char details[64];

	if (parse(json) == 0)
		fail_msg("accepted: %s", json);
	if (problem.status != status || strcmp(problem.code, code) != 0)
		fail_msg("%s: %d %s %s", json, problem.status, problem.code,
			problem.message);
	if (!field)
		return;
	snprintf(details, sizeof(details), "\"field\":\"%s\"", field);
	same(problem.details, details);
}

static void
what_is_no_object_is_no_payload(void **state)
{
	static const char *const bad[] = { "", "[]", "null", "1", "\"x\"",
		"{\"type\":\"t\"", "{\"type\":\"t\",}", "{} x",
		"{\"type\":\"\xff\"}" };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused(bad[i], 400, "invalid_payload", NULL);
}

static void
fields_must_be_what_they_are(void **state)
{
	static const struct {
		const char *field, *values; /* separated by spaces */
	} bad[] = {
		{ "type", "null \"\" \"A\" \"1a\" \"a.\" \".a\" \"a..b\" "
			  "\"a@b\" \"a!\" \"a.1\" \"a.-b\" 1 [] \"\\ud800\"" },
		{ "args", "null {} \"x\" 1 true" },
		{ "queue", "\"\" \"A\" \".a\" \"-a\" \"a_b\" \"a/b\" 1 []" },
		{ "id", "\"\" \"x\" 1 "
			"\"019A0F10-6B20-7A01-8F3E-5D1C2B3A4950\" "
			"\"019a0f10-6b20-4a01-8f3e-5d1c2b3a4950\" "
			"\"019a0f10-6b20-7a01-cf3e-5d1c2b3a4950\" "
			"\"019a0f106b207a018f3e5d1c2b3a4950\"" },
		{ "meta", "[] 1 \"x\"" },
		{ "options", "[] 1 \"x\"" },
		{ "priority", "-101 101 1.5 \"1\" true 1e1" },
		{ "tags", "{} \"x\" [1] [null] [\"a\",[]]" },
		{ "pending", "1 \"true\" []" },
		{ "timeout", "0 -1 \"x\" [] true 1e99 \"PT0S\" \"P1Y\"" },
		{ "timeout_ms", "0 -1 1.5 \"5\" 99999999999999" },
		{ "visibility_timeout", "0 {} \"\"" },
		{ "visibility_timeout_ms", "0 -5 true" },
		{ "scheduled_at", "1 \"\" \"x\" \"2026-01-01T00:00:00\" "
				  "\"2026-01-01\" \"+1\" \"PT5S\"" },
		{ "delay_until", "1 \"soon\"" },
		{ "expires_at", "1 \"2026-13-01T00:00:00Z\" \"+P1Y\"" },
	};
	char json[256], values[512], *rest;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(values, sizeof(values), "%s", bad[i].values);
		for (char *v = strtok_r(values, " ", &rest); v;
			v = strtok_r(NULL, " ", &rest)) {
			/* the last one of a name counts */
			snprintf(json, sizeof(json),
				"{\"type\":\"t\",\"args\":[],\"%s\":%s}",
				bad[i].field, v);
			refused(json, 400, "invalid_request", bad[i].field);
		}
	}
	refused("{\"args\":[]}", 400, "invalid_request", "type");
	refused("{\"type\":\"t\"}", 400, "invalid_request", "args");
	refused("{\"type\":\"t t\",\"args\":[]}", 400, "invalid_request",
		"type");
}

static void
names_of_every_allowed_form(void **state)
{
	static const char *const good[] = { "t", "retry.test.max-attempts",
		"a_1.b-2.c", "a-", "a_" };
	char json[512], name[300];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		snprintf(json, sizeof(json),
			"{\"type\":\"%s\",\"args\":[],\"queue\":\"0a.b-c.\","
			"\"id\":\"" ID "\"}",
			good[i]);
		assert_int_equal(parse(json), 0);
		same(spec.type, good[i]);
		same(spec.queue, "0a.b-c.");
	}
	memset(name, 'a', sizeof(name));
	for (int n = 255; n < 257; n++) {
		snprintf(json, sizeof(json), "{\"type\":\"%.*s\",\"args\":[]}",
			n, name);
		assert_int_equal(parse(json), n == 255 ? 0 : -1);
	}
	for (int n = 128; n < 130; n++) {
		snprintf(json, sizeof(json),
			"{\"type\":\"t\",\"args\":[],\"queue\":\"%.*s\"}", n,
			name);
		assert_int_equal(parse(json), n == 128 ? 0 : -1);
	}
}

static void
other_versions_and_policies_are_422(void **state)
{
	(void)state;
	refused("{\"type\":\"t\",\"args\":[],\"specversion\":\"2.0\"}", 422,
		"unsupported", NULL);
	refused("{\"type\":\"t\",\"args\":[],\"specversion\":1.0}", 422,
		"unsupported", NULL);
	assert_int_equal(parse("{\"type\":\"t\",\"args\":[],"
			       "\"specversion\":\"1.0\"}"),
		0);
	refused("{\"type\":\"t\",\"args\":[],"
		"\"retry\":{\"max_attempts\":-1}}",
		422, "invalid_payload", "retry.max_attempts");
	assert_string_equal(problem.type, "validation_error");
	refused("{\"type\":\"t\",\"args\":[],\"retry\":[]}", 422,
		"invalid_payload", "retry");
	refused("{\"type\":\"t\",\"args\":[],\"unique\":7}", 400,
		"invalid_request", NULL);
	refused("{\"type\":\"t\",\"args\":[],\"rate_limit\":7}", 400,
		"invalid_request", NULL);
}

static void
sizes_have_their_limits(void **state)
{
	struct buf b = BUF_ZERO;
	char tail[64];

	(void)state;
	buf_puts(&b, "{\"type\":\"t\",\"args\":[\"");
	while (b.len < 999)
		buf_putc(&b, 'x');
	buf_puts(&b, "\"]} ");
	for (size_t max = b.len - 1; max >= b.len - 2; max--) {
		int rc = job_spec_parse(
			buf_span(&b), max, &arena, NOW, &spec, &problem);

		assert_int_equal(rc, max == b.len - 1 ? 0 : -1);
	}
	assert_int_equal(problem.status, 413);
	assert_string_equal(problem.code, "envelope_too_large");
	snprintf(tail, sizeof(tail), "\"size\":%zu,\"limit\":%zu", b.len - 1,
		b.len - 2);
	same(problem.details, tail);
	for (size_t n = 65536; n <= 65537; n++) {
		buf_reset(&b);
		buf_puts(&b, "{\"type\":\"t\",\"args\":[],\"meta\":{\"k\":\"");
		for (size_t i = 0; i < n - 8; i++)
			buf_putc(&b, 'x');
		buf_puts(&b, "\"}}");
		assert_int_equal(job_spec_parse(buf_span(&b), MAX, &arena, NOW,
					 &spec, &problem),
			n == 65536 ? 0 : -1);
	}
	assert_int_equal(problem.status, 413);
	same(problem.details, "\"size\":65537,\"limit\":65536");
	buf_fini(&b);
}

static void
nesting_has_its_limit(void **state)
{
	char json[256];

	(void)state;
	for (int n = 31; n <= 32; n++) {
		snprintf(json, sizeof(json), "{\"type\":\"t\",\"args\":%.*s", n,
			"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[");
		snprintf(json + strlen(json), sizeof(json) - strlen(json),
			"%.*s}", n, "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
		assert_int_equal(parse(json), n == 31 ? 0 : -1);
	}
	assert_string_equal(problem.code, "invalid_payload");
	assert_true(job_depth_ok(SPAN_LIT("[\"[[[\\\"[[\"]"), 1));
	assert_false(job_depth_ok(SPAN_LIT("[1,{}]"), 1));
}

static void
arrays_hold_what_was_read_and_null_for_the_rest(void **state)
{
	struct job_spec two[2];
	struct pgargs a;

	(void)state;
	assert_int_equal(parse("{\"type\":\"t\",\"args\":[]}"), 0);
	two[0] = spec;
	assert_int_equal(parse("{\"type\":\"u\",\"args\":[],\"timeout_ms\":7,"
			       "\"expires_at\":\"+PT1S\",\"priority\":3}"),
		0);
	two[1] = spec;
	pgargs_init(&a);
	job_spec_args(&a, two, 2);
	assert_int_equal(a.n, 14);
	/* 20 bytes of array head, then length and value, or -1 alone */
	assert_int_equal(a.len[0], 20 + 2 * 20);
	assert_int_equal(a.len[1], 20 + 2 * 5);
	assert_int_equal(a.len[4], 20 + 2 * 6);
	assert_int_equal(a.len[6], 20 + 2 * 4);
	assert_int_equal(a.len[8], 20 + 4 + 12);
	assert_int_equal(a.len[9], 20 + 4 + 12);
	assert_int_equal(a.len[13], 20 + 2 * 4);
	pgargs_fini(&a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_minimal_envelope_takes_the_defaults),
		cmocka_unit_test(the_documented_push),
		cmocka_unit_test(what_the_client_sent_is_kept_byte_for_byte),
		cmocka_unit_test(what_the_server_owns_is_dropped),
		cmocka_unit_test(null_is_absent_outside_args_and_meta),
		cmocka_unit_test(options_win_and_unknown_ones_stay_there),
		cmocka_unit_test(lengths_in_seconds_or_milliseconds),
		cmocka_unit_test(
			moments_are_shown_as_written_relative_ones_resolved),
		cmocka_unit_test(policies_are_read_and_shown),
		cmocka_unit_test(what_is_no_object_is_no_payload),
		cmocka_unit_test(fields_must_be_what_they_are),
		cmocka_unit_test(names_of_every_allowed_form),
		cmocka_unit_test(other_versions_and_policies_are_422),
		cmocka_unit_test(sizes_have_their_limits),
		cmocka_unit_test(nesting_has_its_limit),
		cmocka_unit_test(
			arrays_hold_what_was_read_and_null_for_the_rest),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
