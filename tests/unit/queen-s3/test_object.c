/* SPDX-License-Identifier: Apache-2.0 */
#include "object.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <openssl/evp.h>

enum { TOTAL = 2 * OBJECT_CHUNK_BYTES + 12345 };

static uint8_t *
noise(size_t n)
{
	uint8_t *b = malloc(n);
	uint32_t x = 2463534242u;

	assert_non_null(b);
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		b[i] = (uint8_t)x;
	}
	return b;
}

static void
assert_digests(
	const void *p, size_t n, const uint8_t sha256[], const uint8_t md5[])
{
	uint8_t want[EVP_MAX_MD_SIZE];

	assert_int_equal(EVP_Digest(p, n, want, NULL, EVP_sha256(), NULL), 1);
	assert_memory_equal(sha256, want, OBJECT_SHA256_BYTES);
	assert_int_equal(EVP_Digest(p, n, want, NULL, EVP_md5(), NULL), 1);
	assert_memory_equal(md5, want, OBJECT_MD5_BYTES);
}

static void
assert_holds(const struct object *o, const uint8_t *want, size_t n)
{
	size_t at = 0;

	assert_int_equal(o->len, n);
	for (struct span s; (s = object_at(o, at)).n > 0; at += s.n) {
		assert_true(at + s.n <= n);
		assert_memory_equal(s.p, want + at, s.n);
	}
	assert_int_equal(at, n);
}

static void
bytes_come_back_in_pieces_of_a_chunk(void **state)
{
	uint8_t *b = noise(TOTAL);
	struct object o;

	(void)state;
	object_init(&o);
	for (size_t at = 0, n = 1; at < TOTAL; at += n, n = n * 3 % 700001) {
		if (n > TOTAL - at)
			n = TOTAL - at;
		object_put(&o, b + at, n);
	}
	object_seal(&o);
	assert_holds(&o, b, TOTAL);
	assert_digests(b, TOTAL, o.sha256, o.md5);
	assert_int_equal(object_at(&o, 7).n, OBJECT_CHUNK_BYTES - 7);
	assert_int_equal(object_at(&o, TOTAL - 3).n, 3);
	object_fini(&o);
	assert_int_equal(o.len, 0);
	free(b);
}

static void
room_is_what_is_left_of_a_chunk(void **state)
{
	uint8_t *b = noise(OBJECT_CHUNK_BYTES);
	struct object o;
	size_t n;
	void *p;

	(void)state;
	object_init(&o);
	p = object_room(&o, &n);
	assert_int_equal(n, OBJECT_CHUNK_BYTES);
	memcpy(p, b, 100);
	object_took(&o, 100);
	p = object_room(&o, &n);
	assert_int_equal(n, OBJECT_CHUNK_BYTES - 100);
	memcpy(p, b + 100, n);
	object_took(&o, n);
	assert_non_null(object_room(&o, &n));
	assert_int_equal(n, OBJECT_CHUNK_BYTES);
	object_took(&o, 0);
	object_seal(&o);
	assert_int_equal(o.chunks_n, 1);
	assert_holds(&o, b, OBJECT_CHUNK_BYTES);
	assert_digests(b, OBJECT_CHUNK_BYTES, o.sha256, o.md5);
	object_fini(&o);
	free(b);
}

static void
nothing_has_the_digests_of_nothing(void **state)
{
	struct object o;
	size_t n;

	(void)state;
	object_init(&o);
	assert_non_null(object_room(&o, &n));
	object_seal(&o);
	assert_int_equal(object_at(&o, 0).n, 0);
	assert_digests("", 0, o.sha256, o.md5);
	object_fini(&o);
	object_init(&o);
	object_fini(&o);
}

static void
part_digests(const struct object *o, size_t at, size_t n,
	uint8_t sha256[OBJECT_SHA256_BYTES], uint8_t md5[OBJECT_MD5_BYTES])
{
	struct object_digest *d = object_digest_new();
	size_t step;

	for (; n > 0; at += step, n -= step)
		step = object_digest_add(d, o, at, n);
	object_digest_end(d, sha256, md5);
}

static void
parts_have_digests_of_their_own(void **state)
{
	uint8_t *b = noise(TOTAL), sha256[OBJECT_SHA256_BYTES];
	uint8_t md5[OBJECT_MD5_BYTES];
	struct object o;

	(void)state;
	object_init(&o);
	object_put(&o, b, TOTAL);
	object_seal(&o);
	part_digests(&o, 1000, OBJECT_CHUNK_BYTES, sha256, md5);
	assert_digests(b + 1000, OBJECT_CHUNK_BYTES, sha256, md5);
	part_digests(&o, TOTAL - 10, 10, sha256, md5);
	assert_digests(b + TOTAL - 10, 10, sha256, md5);
	part_digests(&o, TOTAL, 0, sha256, md5);
	assert_digests("", 0, sha256, md5);
	object_digest_free(object_digest_new());
	object_fini(&o);
	free(b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_back_in_pieces_of_a_chunk),
		cmocka_unit_test(room_is_what_is_left_of_a_chunk),
		cmocka_unit_test(nothing_has_the_digests_of_nothing),
		cmocka_unit_test(parts_have_digests_of_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
