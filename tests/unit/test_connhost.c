/* SPDX-License-Identifier: Apache-2.0 */
/* What a tool of connectors decides before its loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "connhost_int.h"
#include "err.h"

static void
test_node(void **state)
{
	struct err e = ERR_ZERO;
	char longest[130];
	char *node;

	(void)state;
	memset(longest, 'n', sizeof(longest));
	longest[129] = '\0';
	assert_null(connhost_node(longest, &e));
	assert_int_equal(e.kind, ERR_CONFIG);
	longest[128] = '\0';
	node = connhost_node(longest, &e);
	assert_string_equal(node, longest);
	free(node);
	node = connhost_node("", &e);
	assert_true(node && node[0]);
	free(node);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
