/* SPDX-License-Identifier: Apache-2.0 */
/* The table against a plain array: random puts and takes never differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "map.h"

enum { KEYS = 500, STEPS = 200000 };

static void
test_empty_table_finds_nothing(void **state)
{
	struct map m = MAP_ZERO;
	int64_t key = 1;
	size_t at = 0;

	(void)state;
	assert_null(map_get(&m, map_hash_i64(key), map_is_i64, &key));
	assert_null(map_take(&m, map_hash_i64(key), map_is_i64, &key));
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
			map_get(&m, hash, map_is_i64, &keys[k]) == &keys[k],
			in[k]);
		if (in[k]) {
			assert_ptr_equal(
				map_take(&m, hash, map_is_i64, &keys[k]),
				&keys[k]);
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

/* Without the secret these lie in one slot, and every look walks all. */
static void
test_chosen_keys_do_not_share_a_slot(void **state)
{
	unsigned char hit[1024] = { 0 };
	unsigned used = 0;
	char name[16];

	(void)state;
	/* the first factor of the first block of a keyless span_hash is 0 */
	for (int i = 0; i < 1024; i++) {
		uint64_t zero = 16 ^ 0x9e3779b97f4a7c15u, any = (uint64_t)i;

		memcpy(name, &zero, sizeof(zero));
		memcpy(name + 8, &any, sizeof(any));
		hit[map_hash_span(span_make(name, sizeof(name))) & 1023] = 1;
	}
	for (int i = 0; i < 1024; i++)
		used += hit[i];
	assert_in_range(used, 500, 800);
}

static void
test_hash_of_numbers_stays_and_spreads(void **state)
{
	unsigned char hit[1024] = { 0 };
	unsigned used = 0;

	(void)state;
	for (int64_t i = 0; i < 1024; i++) {
		assert_true(map_hash_i64(i) == map_hash_i64(i));
		hit[map_hash_i64(i) & 1023] = 1;
	}
	for (int i = 0; i < 1024; i++)
		used += hit[i];
	assert_in_range(used, 500, 800);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty_table_finds_nothing),
		cmocka_unit_test(test_random_changes_match_an_array),
		cmocka_unit_test(test_chosen_keys_do_not_share_a_slot),
		cmocka_unit_test(test_hash_of_numbers_stays_and_spreads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
