/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of the route table and of paths alone agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "level.h"
#include "route.h"

static void
test_every_route_of_jobs_and_streams_has_its_level(void **state)
{
	(void)state;
	for (size_t i = 0; i < route_table_n; i++) {
		const struct hsrv_route *t = &route_table[i];
		int level = (int)level_of(t->method, span_of(t->pattern));

		if (level != t->level)
			fail_msg("%s: %d, not %d", t->pattern, t->level, level);
	}
}

static void
test_what_queen_ojs_does_not_serve(void **state)
{
	static const struct {
		enum hsrv_method method;
		const char *path;
		enum gate_level level;
	} rows[] = {
		{ HSRV_GET, "/", GATE_READ },
		{ HSRV_HEAD, "/ojs/v1/queues/a.b/nothing", GATE_READ },
		{ HSRV_OTHER, "/", GATE_READ_WRITE },
		{ HSRV_OTHER, "/ojs/v1/jobs", GATE_READ_WRITE },
		{ HSRV_PUT, "/ojs/v1/jobs", GATE_READ_WRITE },
		{ HSRV_POST, "/ojs/v1/jobs/", GATE_READ_WRITE },
		{ HSRV_POST, "/ojs/v1/jobs/batch", GATE_WRITE },
		{ HSRV_POST, "/ojs/v1/queues/a.b/messages", GATE_WRITE },
		{ HSRV_POST, "/ojs/v1/queues//messages", GATE_READ_WRITE },
		{ HSRV_DELETE, "/ojs/v1/queues/a.b", GATE_ADMIN },
		{ HSRV_DELETE, "/ojs/v1/queues/a/dlq", GATE_READ_WRITE },
		{ HSRV_GET, "/ojs/v1/admin/stats", GATE_ADMIN },
		{ HSRV_OTHER, "/healthz", GATE_PUBLIC },
		{ HSRV_GET, "/healthz/x", GATE_READ },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (level_of(rows[i].method, span_of(rows[i].path)) !=
			rows[i].level)
			fail_msg("%s", rows[i].path);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_every_route_of_jobs_and_streams_has_its_level),
		cmocka_unit_test(test_what_queen_ojs_does_not_serve),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
