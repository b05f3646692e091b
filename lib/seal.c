/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key ring.  Keys lie in guarded memory of libsodium: locked, kept out of
 * core dumps, zeroed when freed.  No error text holds a byte of a key.
 */
#include "seal.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "err.h"
#include "qid.h"

enum { KEY_BYTES = crypto_aead_xchacha20poly1305_ietf_KEYBYTES };

_Static_assert(crypto_aead_xchacha20poly1305_ietf_NPUBBYTES == SEAL_NONCE_BYTES,
	"a 192-bit nonce");
_Static_assert(
	1 + SEAL_NONCE_BYTES + crypto_aead_xchacha20poly1305_ietf_ABYTES ==
		SEAL_OVERHEAD_BYTES,
	"key id, nonce, tag");

struct key {
	uint8_t id;
	unsigned char bytes[KEY_BYTES];
};

struct seal {
	struct key *keys; /* guarded memory */
	size_t n;
	bool seals; /* with keys[0] */
};

static const char *const NEWEST = "QUEEN_ENCRYPTION_KEY";
static const char *const OLD = "QUEEN_ENCRYPTION_OLD_KEYS";

/* at: place in the list from 1, 0 = no list. */
static int
add_key(struct seal *s, struct span hex, const char *name, int at,
	struct err *e)
{
	struct key *k = &s->keys[s->n];
	unsigned char digest[crypto_hash_sha256_BYTES];
	char where[24] = "";
	size_t len;

	if (at)
		snprintf(where, sizeof(where), " (key %d)", at);
	if (s->n == SEAL_KEYS_MAX)
		return err_set(e, ERR_CONFIG, "%s: more than %d keys", name,
			SEAL_KEYS_MAX);
	if (hex.n != 2 * KEY_BYTES ||
		sodium_hex2bin(k->bytes, KEY_BYTES, hex.p, hex.n, NULL, &len,
			NULL) != 0 ||
		len != KEY_BYTES)
		return err_set(e, ERR_CONFIG,
			"%s%s is not a key (expected %d hex characters)", name,
			where, 2 * KEY_BYTES);
	crypto_hash_sha256(digest, k->bytes, KEY_BYTES);
	k->id = digest[0];
	for (size_t i = 0; i < s->n; i++)
		if (s->keys[i].id == k->id)
			return err_set(e, ERR_CONFIG,
				"%s%s has the key id %d of another key; make a "
				"new one",
				name, where, k->id);
	s->n++;
	return 0;
}

static int
add_list(struct seal *s, struct span list, struct err *e)
{
	for (int at = 1;; at++) {
		const char *comma = memchr(list.p, ',', list.n);
		size_t n = comma ? (size_t)(comma - list.p) : list.n;

		if (add_key(s, span_trim(span_make(list.p, n)), OLD, at, e) !=
			0)
			return -1;
		if (!comma)
			return 0;
		list = span_make(comma + 1, list.n - n - 1);
	}
}

int
seal_new(const char *key, const char *old, struct seal **out, struct err *e)
{
	bool seals = key && *key, opens = old && *old;
	struct seal *s;
	int rc = 0;

	*out = NULL;
	if (!seals && !opens)
		return 0;
	if (sodium_init() < 0)
		return err_set(e, ERR_BUG, "libsodium does not start");
	s = calloc(1, sizeof(*s));
	if (!s)
		abort();
	s->keys = sodium_allocarray(SEAL_KEYS_MAX, sizeof(*s->keys));
	if (!s->keys)
		abort();
	s->seals = seals;
	if (seals)
		rc = add_key(s, span_trim(span_of(key)), NEWEST, 0, e);
	if (rc == 0 && opens)
		rc = add_list(s, span_of(old), e);
	if (rc != 0) {
		seal_free(s);
		return rc;
	}
	sodium_mprotect_readonly(s->keys);
	*out = s;
	return 0;
}

void
seal_free(struct seal *s)
{
	if (!s)
		return;
	sodium_free(s->keys);
	free(s);
}

int
seal_key_id(const struct seal *s)
{
	return s && s->seals ? s->keys[0].id : SEAL_NO_KEY;
}

size_t
seal_ids(const struct seal *s, uint8_t out[SEAL_KEYS_MAX])
{
	size_t n = s ? s->n : 0;

	for (size_t i = 0; i < n; i++)
		out[i] = s->keys[i].id;
	return n;
}

/* Cannot fail: the length is bounded far below the cipher's bound. */
static void
box(const struct seal *s, struct span bound, struct span payload,
	struct buf *out)
{
	size_t n = SEAL_OVERHEAD_BYTES + payload.n;
	unsigned char *p;

	BUG(seal_key_id(s) == SEAL_NO_KEY);
	p = (unsigned char *)buf_reserve(out, n);
	p[0] = s->keys[0].id;
	randombytes_buf(p + 1, SEAL_NONCE_BYTES);
	crypto_aead_xchacha20poly1305_ietf_encrypt(p + 1 + SEAL_NONCE_BYTES,
		NULL, (const unsigned char *)payload.p, payload.n,
		(const unsigned char *)bound.p, bound.n, NULL, p + 1,
		s->keys[0].bytes);
	out->len += n;
}

static const struct key *
find_key(const struct seal *s, uint8_t id)
{
	for (size_t i = 0; s && i < s->n; i++)
		if (s->keys[i].id == id)
			return &s->keys[i];
	return NULL;
}

static int
unbox(const struct seal *s, struct span bound, struct span sealed,
	struct buf *out, struct err *e)
{
	const unsigned char *p = (const unsigned char *)sealed.p;
	const struct key *k;
	size_t n;

	if (sealed.n < SEAL_OVERHEAD_BYTES)
		return err_set(e, ERR_DB_DATA, "sealed payload cut short");
	n = sealed.n - SEAL_OVERHEAD_BYTES;
	k = find_key(s, p[0]);
	if (!k)
		return err_set(e, ERR_DB_DATA,
			"sealed with key id %d, which is not loaded", p[0]);
	if (crypto_aead_xchacha20poly1305_ietf_decrypt(
		    (unsigned char *)buf_reserve(out, n + 1), NULL, NULL,
		    p + 1 + SEAL_NONCE_BYTES, sealed.n - 1 - SEAL_NONCE_BYTES,
		    (const unsigned char *)bound.p, bound.n, p + 1,
		    k->bytes) != 0)
		return err_set(e, ERR_DB_DATA,
			"sealed with key id %d, but does not open with it",
			p[0]);
	out->len += n;
	return 0;
}

void
seal_box(const struct seal *s, const struct qid *message_id,
	struct span payload, struct buf *out)
{
	box(s, span_make(message_id->b, sizeof(message_id->b)), payload, out);
}

int
seal_open(const struct seal *s, const struct qid *message_id,
	struct span sealed, struct buf *out, struct err *e)
{
	return unbox(s, span_make(message_id->b, sizeof(message_id->b)), sealed,
		out, e);
}

void
seal_secret(const struct seal *s, struct span place, struct span secret,
	struct buf *out)
{
	struct buf raw = BUF_ZERO;
	size_t cap;

	buf_putc(&raw, SEAL_SECRET_VERSION);
	box(s, place, secret, &raw);
	cap = sodium_base64_ENCODED_LEN(
		raw.len, sodium_base64_VARIANT_ORIGINAL);
	sodium_bin2base64(buf_reserve(out, cap), cap,
		(const unsigned char *)raw.p, raw.len,
		sodium_base64_VARIANT_ORIGINAL);
	out->len += cap - 1; /* its NUL */
	buf_fini(&raw);
}

int
seal_secret_open(const struct seal *s, struct span place, struct span text,
	struct buf *out, struct err *e)
{
	struct buf raw = BUF_ZERO;
	const char *end = NULL;
	size_t n = 0;
	int rc;

	buf_reserve(&raw, text.n + 1);
	if (text.n == 0 ||
		sodium_base642bin((unsigned char *)raw.p, text.n, text.p,
			text.n, NULL, &n, &end,
			sodium_base64_VARIANT_ORIGINAL) != 0 ||
		end != text.p + text.n)
		rc = err_set(e, ERR_DB_DATA, "sealed secret is not base64");
	else if (raw.p[0] != SEAL_SECRET_VERSION)
		rc = err_set(e, ERR_DB_DATA,
			"sealed secret has version %d, this program reads %d",
			(unsigned char)raw.p[0], SEAL_SECRET_VERSION);
	else
		rc = unbox(s, place, span_make(raw.p + 1, n - 1), out, e);
	buf_fini(&raw);
	return rc;
}
