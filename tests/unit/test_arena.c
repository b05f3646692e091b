/* SPDX-License-Identifier: Apache-2.0 */
#include "arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void
blocks_are_aligned_and_apart(void **state)
{
	struct arena a = ARENA_ZERO;
	char *last = NULL;

	(void)state;
	for (size_t n = 0; n < 3000; n += 7) {
		char *p = arena_alloc(&a, n);

		assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
		memset(p, 0xee, n);
		if (last)
			assert_int_equal(*last, 'k');
		last = arena_alloc(&a, 1);
		*last = 'k';
	}
	arena_fini(&a);
	assert_int_equal(a.total_bytes, 0);
}

static void
a_large_block_does_not_end_the_open_chunk(void **state)
{
	struct arena a = ARENA_ZERO;
	char *first, *big, *second;

	(void)state;
	first = arena_alloc(&a, 16);
	big = arena_alloc(&a, 1 << 20);
	second = arena_alloc(&a, 16);
	memset(big, 1, 1 << 20);
	assert_ptr_equal(second, first + 16);
	arena_fini(&a);
}

static void
a_large_block_may_come_first(void **state)
{
	struct arena a = ARENA_ZERO;

	(void)state;
	memset(arena_alloc(&a, 100000), 1, 100000);
	memset(arena_alloc(&a, 10), 2, 10);
	arena_reset(&a);
	memset(arena_alloc(&a, 100000), 1, 100000);
	arena_reset(&a);
	memset(arena_alloc(&a, 10), 2, 10);
	arena_fini(&a);
}

static void
reset_keeps_one_chunk(void **state)
{
	struct arena a = ARENA_ZERO;
	size_t one;

	(void)state;
	arena_alloc(&a, 100);
	one = a.total_bytes;
	for (int i = 0; i < 100; i++)
		arena_alloc(&a, 1000);
	assert_true(a.total_bytes > one);
	arena_reset(&a);
	assert_int_equal(a.total_bytes, one);
	arena_fini(&a);
}

static void
copies_are_terminated(void **state)
{
	struct arena a = ARENA_ZERO;
	struct span s;

	(void)state;
	assert_string_equal(arena_cstr(&a, span_make("abcdef", 3)), "abc");
	assert_string_equal(arena_cstr(&a, (struct span)SPAN_ZERO), "");
	s = arena_printf(&a, "%s-%d", "x", 12);
	assert_true(span_is(s, "x-12"));
	assert_true(span_is(arena_dup(&a, s), "x-12"));
	assert_memory_equal(arena_zalloc(&a, 4), "\0\0\0\0", 4);
	arena_fini(&a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_aligned_and_apart),
		cmocka_unit_test(a_large_block_does_not_end_the_open_chunk),
		cmocka_unit_test(a_large_block_may_come_first),
		cmocka_unit_test(reset_keeps_one_chunk),
		cmocka_unit_test(copies_are_terminated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
