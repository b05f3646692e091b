/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations of crons: both forms, defaults, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "cron_int.h"

enum { ROOM = 1 << 20 };

static struct arena a;

static int
teardown(void **state)
{
	(void)state;
	arena_fini(&a);
	return 0;
}

static struct cron_body
parse(const char *text)
{
	struct cron_body c;
	struct problem p;

	memset(&c, 0, sizeof(c));
	if (cron_body_parse(span_of(text), ROOM, &a, 0, &c, &p) < 0)
		fail_msg("%s: %s", text, p.message);
	return c;
}

static void
both_forms_make_the_same_job(void **state)
{
	struct cron_body c = parse(
		"{\"name\":\"nightly\",\"expression\":\"0 3 * * *\","
		"\"timezone\":\"Europe/Rome\",\"overlap_policy\":\"enqueue\","
		"\"enabled\":false,\"job_template\":{\"type\":\"x.y\","
		"\"args\":[1],\"meta\":{\"m\":2},\"options\":{\"queue\":"
		"\"q1\",\"priority\":3}}}");
	struct cron_body flat = parse(
		"{\"options\":{\"queue\":\"q1\",\"priority\":3},"
		"\"name\":\"nightly\",\"cron\":\"0 3 * * *\",\"type\":\"x.y\","
		"\"meta\":{\"m\":2},\"args\":[1]}");

	(void)state;
	assert_true(span_is(c.name, "nightly"));
	assert_true(span_is(c.expression, "0 3 * * *"));
	assert_int_equal(c.when.hours, 1 << 3);
	assert_true(span_is(c.zone, "Europe/Rome"));
	assert_true(span_is(c.overlap, "enqueue"));
	assert_false(c.enabled);
	assert_true(span_is(c.shown,
		"\"type\":\"x.y\",\"args\":[1],\"options\":{\"queue\":\"q1\","
		"\"priority\":3},\"job_template\":{\"type\":\"x.y\","
		"\"args\":[1],\"meta\":{\"m\":2},\"options\":{\"queue\":"
		"\"q1\",\"priority\":3}}"));

	assert_true(span_is(flat.expression, "0 3 * * *"));
	assert_true(span_is(flat.zone, "UTC"));
	assert_true(span_is(flat.overlap, "skip"));
	assert_true(flat.enabled);
	assert_true(span_eq(flat.spec.type, c.spec.type));
	assert_true(span_is(flat.spec.queue, "q1"));
	assert_true(span_eq(flat.spec.doc, c.spec.doc));
	assert_int_equal(flat.spec.rank, -3);
	assert_true(span_is(flat.shown,
		"\"type\":\"x.y\",\"args\":[1],\"options\":{\"queue\":\"q1\","
		"\"priority\":3},\"job_template\":{\"options\":{\"queue\":"
		"\"q1\",\"priority\":3},\"type\":\"x.y\",\"meta\":{\"m\":2},"
		"\"args\":[1]}"));
}

#define JOB "\"type\":\"x\",\"args\":[]"

static void
bad_registrations_name_their_member(void **state)
{
	static const struct {
		const char *text, *field, *says;
	} all[] = {
		{ "{" JOB ",\"cron\":\"* * * * *\"}", "name", "missing" },
		{ "{\"name\":\"\"," JOB ",\"cron\":\"* * * * *\"}", "name",
			"1 to 255" },
		{ "{\"name\":7," JOB ",\"cron\":\"* * * * *\"}", "name",
			"string" },
		{ "{\"name\":\"a\\nb\"," JOB ",\"cron\":\"* * * * *\"}", "name",
			"control" },
		{ "{\"name\":\"a\"," JOB "}", "expression", "missing" },
		{ "{\"name\":\"a\"," JOB ",\"expression\":5}", "expression",
			"string" },
		{ "{\"name\":\"a\"," JOB ",\"expression\":\"* * * *\"}",
			"expression", "five fields" },
		{ "{\"name\":\"a\"," JOB ",\"cron\":\"61 * * * *\"}", "cron",
			"minute" },
		{ "{\"name\":\"a\"," JOB ",\"cron\":\"@daily\","
		  "\"overlap_policy\":\"maybe\"}",
			"overlap_policy", "skip" },
		{ "{\"name\":\"a\"," JOB ",\"cron\":\"@daily\","
		  "\"timezone\":2}",
			"timezone", "string" },
		{ "{\"name\":\"a\"," JOB ",\"cron\":\"@daily\","
		  "\"enabled\":\"yes\"}",
			"enabled", "true or false" },
		{ "{\"name\":\"a\",\"cron\":\"@daily\",\"job_template\":[]}",
			"job_template", "object" },
		{ "{\"name\":\"a\",\"cron\":\"@daily\",\"job_template\":{"
		  "\"args\":[]}}",
			"type", "missing" },
		{ "{\"name\":\"a\",\"cron\":\"@daily\",\"type\":\"x\"}", "args",
			"missing" },
		{ "{\"name\":\"a\",\"cron\":\"@daily\"," JOB
		  ",\"id\":\"0195f000-0000-7000-8000-000000000001\"}",
			"id", "template" },
		{ "{\"name\":\"a\",\"cron\":\"@daily\",\"job_template\":{" JOB
		  ",\"options\":{\"scheduled_at\":\"+PT5S\"}}}",
			"scheduled_at", "template" },
		{ "{\"name\":\"a\",\"cron\":\"@daily\",\"job_template\":{" JOB
		  ",\"options\":{\"delay_until\":\"+PT5S\"}}}",
			"delay_until", "template" },
		{ "{\"name\":\"a\",\"cron\":\"@daily\"," JOB
		  ",\"expires_at\":\"2099-12-31T23:59:59Z\"}",
			"expires_at", "template" },
		{ "{\"name\":\"a\",\"cron\":\"@daily\"," JOB
		  ",\"options\":{\"unique\":{\"period\":1}}}",
			"period", "duration" },
	};
	struct cron_body c;
	char details[64];

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		struct problem p;

		memset(&c, 0, sizeof(c));
		if (cron_body_parse(
			    span_of(all[i].text), ROOM, &a, 0, &c, &p) == 0)
			fail_msg("%s", all[i].text);
		snprintf(details, sizeof(details), "\"field\":\"%s\"",
			all[i].field);
		assert_int_equal(p.status, 400);
		assert_string_equal(p.code, "invalid_request");
		if (!span_is(p.details, details) ||
			!strstr(p.message, all[i].says))
			fail_msg("%s: %.*s: %s", all[i].text,
				SPAN_ARG(p.details), p.message);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_forms_make_the_same_job),
		cmocka_unit_test(bad_registrations_name_their_member),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
