/* SPDX-License-Identifier: Apache-2.0 */
/* Workflows as clients send them, and how every answer shows one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "jwrite.h"
#include "workflow_int.h"

#define JOB "{\"type\":\"a.b\",\"args\":[]}"

static const struct workflow_limits limits = { .envelope_bytes = 1000,
	.jobs = 4 };

static void
test_kinds(void **state)
{
	struct arena a = ARENA_ZERO;
	struct workflow_ask k;
	struct problem p;

	(void)state;
	assert_int_equal(
		workflow_parse(SPAN_LIT("{\"steps\":[" JOB "," JOB "],"
					"\"type\":\"chain\",\"name\":\"n\"}"),
			&limits, &a, 0, &k, &p),
		0);
	assert_int_equal(k.kind, WORKFLOW_CHAIN);
	assert_true(span_is(k.name, "n"));
	assert_int_equal(k.n, 2);
	assert_int_equal(k.members, 2);
	assert_int_equal(k.roles[1], WORKFLOW_STEP);

	assert_int_equal(workflow_parse(SPAN_LIT("{\"type\":\"group\","
						 "\"steps\":[" JOB "]}"),
				 &limits, &a, 0, &k, &p),
		0);
	assert_int_equal(k.kind, WORKFLOW_GROUP);
	assert_int_equal(k.roles[0], WORKFLOW_JOB);

	assert_int_equal(
		workflow_parse(
			SPAN_LIT("{\"type\":\"batch\",\"callbacks\":{"
				 "\"on_failure\":" JOB ",\"on_success\":null,"
				 "\"on_complete\":{\"type\":\"c\",\"args\":[],"
				 "\"options\":{\"queue\":\"q\"}}},"
				 "\"jobs\":[" JOB "," JOB "]}"),
			&limits, &a, 0, &k, &p),
		0);
	assert_int_equal(k.kind, WORKFLOW_BATCH);
	assert_int_equal(k.n, 4);
	assert_int_equal(k.members, 2);
	assert_int_equal(k.roles[2], WORKFLOW_FAILURE);
	assert_int_equal(k.roles[3], WORKFLOW_COMPLETE);
	assert_true(span_is(k.specs[3].queue, "q"));
	assert_true(span_is(k.specs[3].type, "c"));
	arena_fini(&a);
}

static void
test_refused(void **state)
{
	static const struct {
		const char *body;
		int status;
		const char *details;
	} bad[] = {
		{ "{\"jobs\":[" JOB "]}", 400, "\"field\":\"type\"" },
		{ "{\"type\":\"dag\",\"jobs\":[" JOB "]}", 400,
			"\"field\":\"type\"" },
		{ "{\"type\":\"chain\"}", 400, "\"field\":\"steps\"" },
		{ "{\"type\":\"chain\",\"steps\":[]}", 400,
			"\"field\":\"steps\"" },
		{ "{\"type\":\"group\",\"jobs\":{}}", 400,
			"\"field\":\"jobs\"" },
		{ "{\"type\":\"group\",\"jobs\":[" JOB "],\"name\":1}", 400,
			"\"field\":\"name\"" },
		{ "{\"type\":\"group\",\"jobs\":[" JOB "],"
		  "\"callbacks\":{\"on_complete\":" JOB "}}",
			400, "\"field\":\"callbacks\"" },
		{ "{\"type\":\"batch\",\"jobs\":[" JOB "]}", 400,
			"\"field\":\"callbacks\"" },
		{ "{\"type\":\"batch\",\"jobs\":[" JOB "],\"callbacks\":{}}",
			400, "\"field\":\"callbacks\"" },
		{ "{\"type\":\"batch\",\"jobs\":[" JOB "],"
		  "\"callbacks\":{\"on_end\":" JOB "}}",
			400, "\"field\":\"on_end\"" },
		{ "{\"type\":\"batch\",\"jobs\":[" JOB "],\"callbacks\":{"
		  "\"on_success\":" JOB ",\"on_success\":" JOB "}}",
			400, "\"field\":\"on_success\"" },
		{ "{\"type\":\"group\",\"jobs\":[" JOB "," JOB "," JOB "," JOB
		  "," JOB "]}",
			400, "\"field\":\"jobs\"" },
		{ "{\"type\":\"chain\",\"steps\":[" JOB
		  ",{\"type\":\"group\",\"jobs\":[" JOB "]}]}",
			422, "\"index\":1" },
		{ "{\"type\":\"chain\",\"steps\":[{\"type\":\"a\","
		  "\"args\":[],\"depends_on\":[\"b\"]}]}",
			422, "\"index\":0" },
		{ "{\"type\":\"chain\",\"steps\":[" JOB
		  ",{\"type\":\"A\",\"args\":[]}]}",
			400, "\"field\":\"type\",\"index\":1" },
		{ "{\"type\":\"batch\",\"jobs\":[" JOB "],\"callbacks\":{"
		  "\"on_success\":{\"type\":\"a\"}}}",
			400, "\"field\":\"args\",\"callback\":\"on_success\"" },
	};
	struct arena a = ARENA_ZERO;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct workflow_ask k;
		struct problem p;

		print_message("# %s\n", bad[i].body);
		assert_int_equal(workflow_parse(span_of(bad[i].body), &limits,
					 &a, 0, &k, &p),
			-1);
		assert_int_equal(p.status, bad[i].status);
		assert_true(span_is(p.details, bad[i].details));
	}
	arena_fini(&a);
}

static void
test_shown(void **state)
{
	struct workflow_head h = { .kind = SPAN_LIT("batch"), .total = 2 };
	struct workflow_job j = { .role = SPAN_LIT("job"),
		.type = SPAN_LIT("a"),
		.queue = SPAN_LIT("q"),
		.state = JOB_COMPLETED };
	struct buf b = BUF_ZERO;
	struct workflow_jobs l;
	struct jwrite w;

	(void)state;
	h.completed = 1;
	h.failed = 1;
	h.state = 2;
	h.ended_us = 1000000;
	jwrite_init(&w, &b);
	jwrite_object(&w);
	workflow_head_write(&w, &h);
	workflow_jobs_begin(&l, &w, h.kind);
	workflow_jobs_add(&l, &j);
	j.type.n = 0;
	j.state = JOB_CANCELLED;
	workflow_jobs_add(&l, &j);
	j.role = SPAN_LIT("on_failure");
	j.state = JOB_HELD;
	workflow_jobs_add(&l, &j);
	workflow_jobs_end(&l);
	jwrite_end(&w);
#define ID "\"id\":\"00000000-0000-0000-0000-000000000000\""
	buf_putc(&b, '\0');
	assert_string_equal(b.p,
		"{\"specversion\":\"1.0\"," ID ",\"type\":\"batch\","
		"\"state\":\"failed\",\"jobs_total\":2,\"jobs_completed\":1,"
		"\"jobs_failed\":1,\"created_at\":\"1970-01-01T00:00:00.000Z\","
		"\"completed_at\":\"1970-01-01T00:00:01.000Z\","
		"\"jobs\":[{" ID ",\"type\":\"a\",\"queue\":\"q\","
		"\"state\":\"completed\"},{" ID ",\"state\":\"cancelled\"}],"
		"\"callbacks\":{\"on_failure\":{" ID
		",\"state\":\"waiting\"}}}");
	buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
