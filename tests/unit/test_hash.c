/* SPDX-License-Identifier: Apache-2.0 */
#include "hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Reference values: SipHash-2-4 with 128 bits, vectors of its authors. */
static void
hash_id_is_siphash_2_4_128(void **state)
{
	static const uint8_t expected0[] = { 0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25,
		0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93 };
	static const uint8_t expected1[] = { 0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99,
		0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45 };
	uint8_t key[HASH_KEY_BYTES];
	struct hash_id h;

	(void)state;
	for (int i = 0; i < HASH_KEY_BYTES; i++)
		key[i] = (uint8_t)i;
	hash_id(key, (struct span)SPAN_ZERO, &h);
	assert_memory_equal(h.b, expected0, 16);
	hash_id(key, span_make("\0", 1), &h);
	assert_memory_equal(h.b, expected1, 16);
}

static void
sha256_in_hex(void **state)
{
	char out[65];

	(void)state;
	hash_sha256_hex((struct span)SPAN_ZERO, out);
	assert_string_equal(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b"
				 "934ca495991b7852b855");
	hash_sha256_hex(span_of("abc"), out);
	assert_string_equal(out, "ba7816bf8f01cfea414140de5dae2223b00361a39617"
				 "7a9cb410ff61f20015ad");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hash_id_is_siphash_2_4_128),
		cmocka_unit_test(sha256_in_hex),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
