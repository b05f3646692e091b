/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of the route table and of paths alone agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "level.h"
#include "route.h"

static void
test_each_route_has_the_level_of_its_path(void **state)
{
	(void)state;
	for (size_t i = 0; i < route_table_n; i++) {
		const struct hsrv_route *t = &route_table[i];
		int level = (int)level_of(t->method, span_of(t->pattern));

		if (level != t->level)
			fail_msg("%s: %d, not %d", t->pattern, t->level, level);
	}
	for (size_t i = 0; i < route_metrics_table_n; i++)
		assert_int_equal(route_metrics_table[i].level, GATE_PUBLIC);
}

static void
test_paths_nobody_serves(void **state)
{
	static const struct {
		enum hsrv_method method;
		const char *path;
		enum gate_level level;
	} rows[] = {
		{ HSRV_GET, "/nonexistent", GATE_READ_WRITE },
		{ HSRV_GET, "/", GATE_PUBLIC },
		{ HSRV_GET, "/assets/x.js", GATE_PUBLIC },
		{ HSRV_GET, "/assets", GATE_READ_WRITE },
		{ HSRV_HEAD, "/status", GATE_READ },
		{ HSRV_POST, "/status", GATE_READ_WRITE },
		{ HSRV_GET, "/api/v1/system/ephemeral", GATE_ADMIN },
		{ HSRV_OTHER, "/internal/x", GATE_ADMIN },
		{ HSRV_DELETE, "/api/v1/dlq", GATE_ADMIN },
		{ HSRV_DELETE, "/api/v1/dlq/x", GATE_READ_WRITE },
		{ HSRV_GET, "/api/v1/connectors/x", GATE_READ },
		{ HSRV_PUT, "/api/v1/connectors/x", GATE_ADMIN },
		{ HSRV_POST, "/api/v1/ephemeral/push", GATE_WRITE },
		{ HSRV_GET, "/api/v1/ephemeral/queues", GATE_READ },
		{ HSRV_POST, "/streams/v1/state/get", GATE_READ },
		{ HSRV_POST, "/streams/v1/cycle", GATE_READ_WRITE },
		{ HSRV_PUT, "/api/v1/push", GATE_WRITE },
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
		cmocka_unit_test(test_each_route_has_the_level_of_its_path),
		cmocka_unit_test(test_paths_nobody_serves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
