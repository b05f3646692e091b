/* SPDX-License-Identifier: Apache-2.0 */
/* The table against a plain array: random puts and takes never differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "map.h"

enum { KEYS = 500, STEPS = 200000 };

static bool
same(const void *item, const void *key)
{
	return *(const int64_t *)item == *(const int64_t *)key;
}

static void
test_empty_table_finds_nothing(void **state)
{
	struct map m = MAP_ZERO;
	int64_t key = 1;
	size_t at = 0;

	(void)state;
	assert_null(map_get(&m, map_hash_i64(key), same, &key));
	assert_null(map_take(&m, map_hash_i64(key), same, &key));
	assert_null(map_next(&m, &at));
	map_fini(&m);
}

/* A weak hash forces long probe runs, where deletion goes wrong if it can. */
static void
test_random_changes_match_an_array(void **state)
{
	static int64_t keys[KEYS];
	static bool in[KEYS];
	struct map m = MAP_ZERO;
	size_t count = 0;

	(void)state;
	srand(7);
	for (int64_t i = 0; i < KEYS; i++)
		keys[i] = i;
	for (int step = 0; step < STEPS; step++) {
		int k = rand() % KEYS;
		uint64_t hash = (uint64_t)k % 37;

		assert_int_equal(
			map_get(&m, hash, same, &keys[k]) == &keys[k], in[k]);
		if (in[k]) {
			assert_ptr_equal(
				map_take(&m, hash, same, &keys[k]), &keys[k]);
			count--;
		} else {
			map_put(&m, hash, &keys[k]);
			count++;
		}
		in[k] = !in[k];
		assert_int_equal(m.count, count);
	}
	size_t at = 0, seen = 0;

	while (map_next(&m, &at))
		seen++;
	assert_int_equal(seen, count);
	map_fini(&m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty_table_finds_nothing),
		cmocka_unit_test(test_random_changes_match_an_array),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
