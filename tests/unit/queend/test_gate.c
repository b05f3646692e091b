/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of the route table and of paths alone agree; skips; roles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gate.h"
#include "jwt.h"
#include "route.h"

static void
test_each_route_has_the_level_of_its_path(void **state)
{
	(void)state;
	for (size_t i = 0; i < route_table_n; i++) {
		const struct hsrv_route *t = &route_table[i];
		int level = gate_level(t->method, span_of(t->pattern));

		if (level != t->level)
			fail_msg("%s: %d, not %d", t->pattern, t->level, level);
	}
	for (size_t i = 0; i < route_metrics_table_n; i++)
		assert_int_equal(route_metrics_table[i].level, ROUTE_PUBLIC);
}

static void
test_paths_nobody_serves(void **state)
{
	static const struct {
		enum hsrv_method method;
		const char *path;
		int level;
	} rows[] = {
		{ HSRV_GET, "/nonexistent", ROUTE_READ_WRITE },
		{ HSRV_GET, "/", ROUTE_PUBLIC },
		{ HSRV_GET, "/assets/x.js", ROUTE_PUBLIC },
		{ HSRV_GET, "/assets", ROUTE_READ_WRITE },
		{ HSRV_HEAD, "/status", ROUTE_READ },
		{ HSRV_POST, "/status", ROUTE_READ_WRITE },
		{ HSRV_GET, "/api/v1/system/ephemeral", ROUTE_ADMIN },
		{ HSRV_OTHER, "/internal/x", ROUTE_ADMIN },
		{ HSRV_DELETE, "/api/v1/dlq", ROUTE_ADMIN },
		{ HSRV_DELETE, "/api/v1/dlq/x", ROUTE_READ_WRITE },
		{ HSRV_GET, "/api/v1/connectors/x", ROUTE_READ },
		{ HSRV_PUT, "/api/v1/connectors/x", ROUTE_ADMIN },
		{ HSRV_POST, "/api/v1/ephemeral/push", ROUTE_WRITE },
		{ HSRV_GET, "/api/v1/ephemeral/queues", ROUTE_READ },
		{ HSRV_POST, "/streams/v1/state/get", ROUTE_READ },
		{ HSRV_POST, "/streams/v1/cycle", ROUTE_READ_WRITE },
		{ HSRV_PUT, "/api/v1/push", ROUTE_WRITE },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (gate_level(rows[i].method, span_of(rows[i].path)) !=
			rows[i].level)
			fail_msg("%s", rows[i].path);
}

static void
test_skips(void **state)
{
	(void)state;
	assert_true(gate_skips("/a, /b/ ,/", SPAN_LIT("/a")));
	assert_true(gate_skips("/a, /b/ ,/", SPAN_LIT("/b/c/d")));
	assert_true(gate_skips("/a, /b/ ,/", SPAN_LIT("/")));
	assert_false(gate_skips("/a, /b/ ,/", SPAN_LIT("/a/x")));
	assert_false(gate_skips("/a, /b/ ,/", SPAN_LIT("/b")));
	assert_false(gate_skips("/a, /b/ ,/", SPAN_LIT("/A")));
	assert_false(gate_skips("", SPAN_LIT("/")));
	assert_false(gate_skips(NULL, SPAN_LIT("/")));
}

static void
test_levels_are_sets_of_roles(void **state)
{
	(void)state;
	assert_int_equal(gate_roles(ROUTE_PUBLIC), 0);
	assert_int_equal(gate_roles(ROUTE_READ),
		JWT_READ_ONLY | JWT_READ_WRITE | JWT_ADMIN);
	assert_int_equal(gate_roles(ROUTE_WRITE),
		JWT_WRITE_ONLY | JWT_READ_WRITE | JWT_ADMIN);
	assert_int_equal(
		gate_roles(ROUTE_READ_WRITE), JWT_READ_WRITE | JWT_ADMIN);
	assert_int_equal(gate_roles(ROUTE_ADMIN), JWT_ADMIN);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_route_has_the_level_of_its_path),
		cmocka_unit_test(test_paths_nobody_serves),
		cmocka_unit_test(test_skips),
		cmocka_unit_test(test_levels_are_sets_of_roles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
