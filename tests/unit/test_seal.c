/* SPDX-License-Identifier: Apache-2.0 */
#include "seal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "buf.h"
#include "err.h"
#include "qid.h"

#define K1 "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define K2 "FFffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffFF"
#define ZERO "0000000000000000000000000000000000000000000000000000000000000000"

/* First bytes of their SHA-256 (sha256sum). */
enum { ID1 = 0x63, ID2 = 0xaf, ID_ZERO = 0x66 };

static struct seal *
ring(const char *key, const char *old)
{
	struct seal *s;
	struct err e = ERR_ZERO;

	assert_int_equal(seal_new(key, old, &s, &e), 0);
	return s;
}

static void
no_keys_no_ring(void **state)
{
	uint8_t ids[SEAL_KEYS_MAX];
	(void)state;

	assert_null(ring(NULL, NULL));
	assert_null(ring("", ""));
	assert_int_equal(seal_key_id(NULL), SEAL_NO_KEY);
	assert_int_equal(seal_ids(NULL, ids), 0);
}

static void
the_id_is_the_first_byte_of_sha256(void **state)
{
	struct seal *s = ring(K1, " " K2 ", " ZERO "\n");
	uint8_t ids[SEAL_KEYS_MAX];
	(void)state;

	assert_int_equal(seal_key_id(s), ID1);
	assert_int_equal(seal_ids(s, ids), 3);
	assert_int_equal(ids[0], ID1);
	assert_int_equal(ids[1], ID2);
	assert_int_equal(ids[2], ID_ZERO);
	seal_free(s);
	s = ring(NULL, K2);
	assert_int_equal(seal_key_id(s), SEAL_NO_KEY);
	assert_int_equal(seal_ids(s, ids), 1);
	seal_free(s);
}

static void
malformed_keys_are_named(void **state)
{
	static const struct {
		const char *key, *old, *text;
	} cases[] = {
		{ "secret", NULL,
			"QUEEN_ENCRYPTION_KEY is not a key (expected "
			"64 hex characters)" },
		{ K1 "0", NULL,
			"QUEEN_ENCRYPTION_KEY is not a key (expected "
			"64 hex characters)" },
		{ &K1[1], NULL,
			"QUEEN_ENCRYPTION_KEY is not a key (expected "
			"64 hex characters)" },
		{ NULL, K2 "," K2,
			"QUEEN_ENCRYPTION_OLD_KEYS (key 2) has the key id 175 "
			"of another key; make a new one" },
		{ "x" K1, NULL,
			"QUEEN_ENCRYPTION_KEY is not a key (expected "
			"64 hex characters)" },
		{ "zz0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c"
		  "1d1e1f",
			NULL,
			"QUEEN_ENCRYPTION_KEY is not a key "
			"(expected 64 hex characters)" },
		{ K1, K2 ",",
			"QUEEN_ENCRYPTION_OLD_KEYS (key 2) is not a key "
			"(expected 64 hex characters)" },
		{ K1, K2 "," K1,
			"QUEEN_ENCRYPTION_OLD_KEYS (key 2) has the "
			"key id 99 of another key; make a new one" },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct err e = ERR_ZERO;
		struct seal *s;

		assert_int_equal(
			seal_new(cases[i].key, cases[i].old, &s, &e), -1);
		assert_null(s);
		assert_int_equal(e.kind, ERR_CONFIG);
		assert_string_equal(e.text, cases[i].text);
	}
}

/* A list as long as there is room, without the key of KEY and with it. */
static void
there_is_room_for_so_many_keys(void **state)
{
	struct buf list = BUF_ZERO;
	struct err e = ERR_ZERO;
	bool taken[256] = { false };
	uint8_t ids[SEAL_KEYS_MAX];
	struct seal *s = NULL, *one;
	int n = 0;
	(void)state;

	for (int i = 0; n < SEAL_KEYS_MAX; i++) {
		char hex[65];

		snprintf(hex, sizeof(hex), "%064x", i);
		one = ring(hex, NULL);
		int id = seal_key_id(one);

		seal_free(one);
		if (taken[id] || id == ID1)
			continue;
		taken[id] = true;
		buf_printf(&list, "%s%s", n++ ? "," : "", hex);
	}
	buf_putc(&list, '\0');
	s = ring(NULL, list.p);
	assert_int_equal(seal_ids(s, ids), SEAL_KEYS_MAX);
	seal_free(s);
	assert_int_equal(seal_new(K1, list.p, &s, &e), -1);
	assert_null(s);
	assert_string_equal(
		e.text, "QUEEN_ENCRYPTION_OLD_KEYS: more than 64 keys");
	buf_fini(&list);
}

static void
what_goes_in_comes_out(void **state)
{
	static const char big[70000] = { 'x', 0, '\n' };
	const struct span texts[] = { SPAN_ZERO, SPAN_LIT("1"),
		SPAN_LIT("{\"hello\":\"world\",\"n\":42}"),
		{ big, sizeof(big) } };
	struct seal *s = ring(K1, NULL);
	struct qid id = qid_new();
	(void)state;

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct buf box = BUF_ZERO, again = BUF_ZERO, out = BUF_ZERO;
		struct err e = ERR_ZERO;

		buf_puts(&out, "before");
		seal_box(s, &id, texts[i], &box);
		seal_box(s, &id, texts[i], &again);
		assert_int_equal(box.len, texts[i].n + SEAL_OVERHEAD_BYTES);
		assert_int_equal((uint8_t)box.p[0], ID1);
		assert_memory_not_equal(
			box.p + 1, again.p + 1, SEAL_NONCE_BYTES);
		assert_int_equal(
			seal_open(s, &id, buf_span(&box), &out, &e), 0);
		assert_memory_equal(out.p, "before", 6);
		assert_true(
			span_eq(span_make(out.p + 6, out.len - 6), texts[i]));
		buf_fini(&box);
		buf_fini(&again);
		buf_fini(&out);
	}
	seal_free(s);
}

/* Of XChaCha20-Poly1305 (IETF), by libsodium from another language. */
static void
a_box_made_elsewhere_opens(void **state)
{
	static const uint8_t box[] = { 0x63, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5,
		0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf,
		0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0x3e, 0xce,
		0x62, 0x78, 0xdb, 0x31, 0xcb, 0x8e, 0x5b, 0x4d, 0x5a, 0xe6,
		0x03, 0x5c, 0xc7, 0xe2, 0x17, 0x88, 0xf1, 0x0e, 0x90, 0x32,
		0xf8, 0xa4, 0xe5, 0xf1, 0x28, 0x93, 0xc9, 0x43, 0xd8, 0x2e,
		0x9f, 0xe6, 0xb1, 0x5f, 0xef, 0x3b, 0x18, 0x1a };
	struct qid id;
	struct seal *s = ring(K1, NULL);
	struct buf out = BUF_ZERO;
	struct err e = ERR_ZERO;
	(void)state;

	for (int i = 0; i < 16; i++)
		id.b[i] = (uint8_t)(0x80 + i);
	assert_int_equal(
		seal_open(s, &id, span_make(box, sizeof(box)), &out, &e), 0);
	assert_true(span_is(buf_span(&out), "{\"hello\":\"world\",\"n\":42}"));
	buf_fini(&out);
	seal_free(s);
}

static void
every_byte_is_guarded(void **state)
{
	struct seal *s = ring(K1, K2);
	struct qid id = qid_new(), other = id;
	struct buf box = BUF_ZERO, out = BUF_ZERO;
	struct err e = ERR_ZERO;
	(void)state;

	seal_box(s, &id, SPAN_LIT("{\"a\":1}"), &box);
	for (size_t i = 0; i < box.len * 8; i++) {
		box.p[i / 8] ^= (char)(1 << i % 8);
		assert_int_equal(
			seal_open(s, &id, buf_span(&box), &out, &e), -1);
		assert_int_equal(e.kind, ERR_DB_DATA);
		assert_int_equal(out.len, 0);
		box.p[i / 8] ^= (char)(1 << i % 8);
	}
	for (size_t n = 0; n < box.len; n++)
		assert_int_equal(
			seal_open(s, &id, span_make(box.p, n), &out, &e), -1);
	for (int i = 0; i < 16; i++) {
		other.b[i] ^= 1;
		assert_int_equal(
			seal_open(s, &other, buf_span(&box), &out, &e), -1);
		other.b[i] ^= 1;
	}
	assert_string_equal(
		e.text, "sealed with key id 99, but does not open with it");
	assert_int_equal(seal_open(s, &id, buf_span(&box), &out, &e), 0);
	buf_fini(&box);
	buf_fini(&out);
	seal_free(s);
}

static void
an_old_key_opens_and_another_does_not(void **state)
{
	struct seal *first = ring(K1, NULL), *second = ring(K2, K1);
	struct seal *stranger = ring(ZERO, NULL);
	struct qid id = qid_new();
	struct buf box = BUF_ZERO, out = BUF_ZERO;
	struct err e = ERR_ZERO;
	(void)state;

	seal_box(first, &id, SPAN_LIT("7"), &box);
	assert_int_equal(seal_open(second, &id, buf_span(&box), &out, &e), 0);
	assert_true(span_is(buf_span(&out), "7"));
	assert_int_equal(
		seal_open(stranger, &id, buf_span(&box), &out, &e), -1);
	assert_string_equal(
		e.text, "sealed with key id 99, which is not loaded");
	assert_int_equal(seal_open(NULL, &id, buf_span(&box), &out, &e), -1);
	buf_reset(&box);
	seal_box(second, &id, SPAN_LIT("7"), &box);
	assert_int_equal((uint8_t)box.p[0], ID2);
	buf_fini(&box);
	buf_fini(&out);
	seal_free(first);
	seal_free(second);
	seal_free(stranger);
}

static void
secrets_open_in_their_place(void **state)
{
	struct seal *s = ring(K1, K2), *stranger = ring(ZERO, NULL);
	struct span here = SPAN_LIT("source/t/n"),
		    there = SPAN_LIT("source/t/m");
	struct buf text = BUF_ZERO, out = BUF_ZERO;
	struct err e = ERR_ZERO;
	(void)state;

	seal_secret(s, here, SPAN_LIT("geheim"), &text);
	assert_int_equal(text.len, (2 + 24 + 16 + 6) / 3 * 4);
	assert_int_equal(
		seal_secret_open(s, here, buf_span(&text), &out, &e), 0);
	assert_true(span_is(buf_span(&out), "geheim"));
	buf_reset(&out);
	assert_int_equal(
		seal_secret_open(s, there, buf_span(&text), &out, &e), -1);
	assert_int_equal(
		seal_secret_open(stranger, here, buf_span(&text), &out, &e),
		-1);
	assert_string_equal(
		e.text, "sealed with key id 99, which is not loaded");
	/* AW.. is 0x01 in front, Ag.. is 0x02 */
	assert_memory_equal(text.p, "AW", 2);
	for (size_t i = 0; i < text.len; i++) {
		char was = text.p[i];

		text.p[i] = was == 'A' ? 'B' : 'A';
		assert_int_equal(
			seal_secret_open(s, here, buf_span(&text), &out, &e),
			-1);
		text.p[i] = was;
	}
	assert_int_equal(
		seal_secret_open(s, here, span_make(text.p, 8), &out, &e), -1);
	assert_int_equal(seal_secret_open(s, here, SPAN_LIT(""), &out, &e), -1);
	assert_int_equal(
		seal_secret_open(s, here, SPAN_LIT("a b!"), &out, &e), -1);
	assert_string_equal(e.text, "sealed secret is not base64");
	assert_int_equal(
		seal_secret_open(s, here, SPAN_LIT("Ag=="), &out, &e), -1);
	assert_string_equal(
		e.text, "sealed secret has version 2, this program reads 1");
	assert_int_equal(
		seal_secret_open(s, here, SPAN_LIT("AQ=="), &out, &e), -1);
	assert_int_equal(out.len, 0);
	buf_fini(&text);
	buf_fini(&out);
	seal_free(s);
	seal_free(stranger);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_keys_no_ring),
		cmocka_unit_test(the_id_is_the_first_byte_of_sha256),
		cmocka_unit_test(malformed_keys_are_named),
		cmocka_unit_test(there_is_room_for_so_many_keys),
		cmocka_unit_test(what_goes_in_comes_out),
		cmocka_unit_test(a_box_made_elsewhere_opens),
		cmocka_unit_test(every_byte_is_guarded),
		cmocka_unit_test(an_old_key_opens_and_another_does_not),
		cmocka_unit_test(secrets_open_in_their_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
