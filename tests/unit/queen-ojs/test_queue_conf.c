/* SPDX-License-Identifier: Apache-2.0 */
/* Names of queues, and what a body may say of their configuration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "arena.h"
#include "queue.h"
#include "queue_int.h"

static void
test_names(void **state)
{
	static const char *const good[] = { "a", "0", "pdf", "a.b-c", "a..b",
		"9-", "a." };
	static const char *const bad[] = { "", ".a", "-a", "A", "aB", "a_b",
		"a b", "a/b", "\xc3\xa4", "a\n" };
	char text[130];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(queue_name_ok(span_of(good[i])));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(queue_name_ok(span_of(bad[i])));
	memset(text, 'x', sizeof(text));
	assert_true(queue_name_ok(span_make(text, 128)));
	assert_false(queue_name_ok(span_make(text, 129)));
}

static void
test_values(void **state)
{
	struct arena a = ARENA_ZERO;
	struct queue_conf c;
	struct problem p;

	(void)state;
	assert_int_equal(queue_conf_parse(SPAN_LIT(" {\"max_retries\":0,"
						   "\"retention\":\"84h\","
						   "\"job_retention_ms\":1000,"
						   "\"max_jobs\":null,"
						   "\"visibility_timeout_ms\":5"
						   "} "),
				 false, &a, &c, &p),
		0);
	assert_true(c.given[QUEUE_MAX_RETRIES] && !c.null[QUEUE_MAX_RETRIES]);
	assert_int_equal(c.value[QUEUE_MAX_RETRIES], 0);
	assert_int_equal(c.value[QUEUE_RETENTION], 302400000);
	assert_int_equal(c.value[QUEUE_JOB_RETENTION], 1000);
	assert_int_equal(c.value[QUEUE_VISIBILITY], 5);
	assert_true(c.given[QUEUE_MAX_JOBS] && c.null[QUEUE_MAX_JOBS]);
	assert_false(c.given[QUEUE_MAX_EVENTS] || c.given[QUEUE_DEAD_MAX] ||
		     c.given[QUEUE_DEAD_RETENTION]);
	assert_int_equal(c.name.n, 0);

	assert_int_equal(queue_conf_parse(SPAN_LIT("{\"name\":\"a\\u002eb\"}"),
				 true, &a, &c, &p),
		0);
	assert_true(span_is(c.name, "a.b"));
	arena_fini(&a);
}

static void
test_refused(void **state)
{
	static const struct {
		const char *body, *details;
		bool named;
	} bad[] = {
		{ "{\"max_retries\":-1}", "\"field\":\"max_retries\"", false },
		{ "{\"max_retries\":1001}", "\"field\":\"max_retries\"",
			false },
		{ "{\"max_retries\":1.5}", "\"field\":\"max_retries\"", false },
		{ "{\"max_retries\":\"5\"}", "\"field\":\"max_retries\"",
			false },
		{ "{\"retention\":\"0s\"}", "\"field\":\"retention\"", false },
		{ "{\"retention\":\"999ms\"}", "\"field\":\"retention\"",
			false },
		{ "{\"retention\":\"3651d\"}", "\"field\":\"retention\"",
			false },
		{ "{\"retention\":0.5}", "\"field\":\"retention\"", false },
		{ "{\"retention\":9223372036854776}", "\"field\":\"retention\"",
			false },
		{ "{\"retention_ms\":\"1h\"}", "\"field\":\"retention_ms\"",
			false },
		{ "{\"max_jobs_ms\":1}", "\"field\":\"max_jobs_ms\"", false },
		{ "{\"name\":\"a\"}", "\"field\":\"name\"", false },
		{ "{\"x\\\"y\":1}", "\"field\":\"x\\\"y\"", false },
		{ "{}", "\"field\":\"name\"", true },
		{ "{\"name\":null}", "\"field\":\"name\"", true },
		{ "{\"name\":\"A\"}", "\"field\":\"name\"", true },
	};
	struct arena a = ARENA_ZERO;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct queue_conf c;
		struct problem p;

		print_message("# %s\n", bad[i].body);
		assert_int_equal(queue_conf_parse(span_of(bad[i].body),
					 bad[i].named, &a, &c, &p),
			-1);
		assert_int_equal(p.status, 400);
		assert_string_equal(p.code, "invalid_request");
		assert_true(span_is(p.details, bad[i].details));
	}
	arena_fini(&a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
