/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public keys: out of PEM, and sets of them out of JWKS documents.  RSA from
 * 2048 bits (RFC 7518) to 8192, so that one check stays cheap.
 */
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/decoder.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "err.h"
#include "jwt_int.h"

enum {
	KEYS_MAX = 1000,
	RSA_BITS_MIN = 2048,
	RSA_BITS_MAX = 8192,
	RSA_E_BITS_MAX = 33,
};

struct jwt_keys {
	struct arena arena; /* the kids */
	struct jwt_key *items;
	size_t n, cap;
};

void
jwt_key_fini(struct jwt_key *k)
{
	EVP_PKEY_free(k->rsa);
	*k = (struct jwt_key){ .rsa = NULL };
}

static bool
rsa_is_sound(const EVP_PKEY *p)
{
	BIGNUM *e = NULL;
	int bits = EVP_PKEY_get_bits(p);
	bool good;

	good = EVP_PKEY_get_base_id(p) == EVP_PKEY_RSA &&
	       bits >= RSA_BITS_MIN && bits <= RSA_BITS_MAX &&
	       EVP_PKEY_get_bn_param(p, OSSL_PKEY_PARAM_RSA_E, &e) == 1 &&
	       BN_is_odd(e) && !BN_is_one(e) &&
	       BN_num_bits(e) <= RSA_E_BITS_MAX;
	BN_free(e);
	return good;
}

int
jwt_key_of_pem(struct span pem, struct jwt_key *k)
{
	const unsigned char *p = (const unsigned char *)pem.p;
	size_t left = pem.n, n = JWT_ED_BYTES;
	EVP_PKEY *key = NULL;
	OSSL_DECODER_CTX *c;
	bool good = false;

	*k = (struct jwt_key){ .rsa = NULL };
	c = OSSL_DECODER_CTX_new_for_pkey(
		&key, "PEM", NULL, NULL, EVP_PKEY_PUBLIC_KEY, NULL, NULL);
	if (c && OSSL_DECODER_from_data(c, &p, &left) == 1 && key) {
		good = true;
		if (rsa_is_sound(key))
			k->rsa = key;
		else
			good = EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519 &&
			       EVP_PKEY_get_raw_public_key(key, k->ed, &n) ==
				       1 &&
			       n == JWT_ED_BYTES;
	}
	if (!k->rsa)
		EVP_PKEY_free(key);
	OSSL_DECODER_CTX_free(c);
	ERR_clear_error();
	return good ? 0 : -1;
}

static EVP_PKEY *
rsa_build(const BIGNUM *n, const BIGNUM *e)
{
	OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
	EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
	OSSL_PARAM *params = NULL;
	EVP_PKEY *key = NULL;

	if (b && c && OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_N, n) &&
		OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_E, e))
		params = OSSL_PARAM_BLD_to_param(b);
	if (params && EVP_PKEY_fromdata_init(c) == 1 &&
		EVP_PKEY_fromdata(c, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
		key = NULL;
	OSSL_PARAM_free(params);
	OSSL_PARAM_BLD_free(b);
	EVP_PKEY_CTX_free(c);
	return key;
}

static EVP_PKEY *
rsa_of_jwk(struct span n_bytes, struct span e_bytes)
{
	BIGNUM *n, *e;
	EVP_PKEY *key = NULL;

	/* one more for the zero some write in front */
	if (n_bytes.n > RSA_BITS_MAX / 8 + 1 || e_bytes.n > 8)
		return NULL;
	n = BN_bin2bn((const unsigned char *)n_bytes.p, (int)n_bytes.n, NULL);
	e = BN_bin2bn((const unsigned char *)e_bytes.p, (int)e_bytes.n, NULL);
	if (n && e && BN_is_odd(n))
		key = rsa_build(n, e);
	BN_free(n);
	BN_free(e);
	if (key && !rsa_is_sound(key)) {
		EVP_PKEY_free(key);
		key = NULL;
	}
	ERR_clear_error();
	return key;
}

static bool
bytes_of(const struct jspan_val *v, struct arena *a, struct span *out)
{
	struct span text;

	return v->type == JSPAN_STRING && jspan_text(v, a, &text) &&
	       jwt_base64(text, a, out);
}

static bool
text_is(const struct jspan_val *v, struct arena *a, const char *want)
{
	struct span text;

	return v->type == JSPAN_STRING && jspan_text(v, a, &text) &&
	       span_is(text, want);
}

/* False: of no use to us. */
static bool
key_of_jwk(struct span json, struct arena *a, struct jwt_key *k)
{
	enum { KTY, KID, N, E, CRV, X, MEMBERS };
	struct jwt_member m[MEMBERS] = { { .name = "kty" }, { .name = "kid" },
		{ .name = "n" }, { .name = "e" }, { .name = "crv" },
		{ .name = "x" } };
	struct span n, e;

	*k = (struct jwt_key){ .kid = SPAN_LIT("") };
	if (!jwt_object(json, a, m, MEMBERS))
		return false;
	if (m[KID].val.type != JSPAN_NONE &&
		(m[KID].val.type != JSPAN_STRING ||
			!jspan_text(&m[KID].val, a, &k->kid)))
		return false;
	if (text_is(&m[KTY].val, a, "RSA")) {
		if (bytes_of(&m[N].val, a, &n) && bytes_of(&m[E].val, a, &e))
			k->rsa = rsa_of_jwk(n, e);
		return k->rsa != NULL;
	}
	if (!text_is(&m[KTY].val, a, "OKP") ||
		!text_is(&m[CRV].val, a, "Ed25519") ||
		!bytes_of(&m[X].val, a, &n) || n.n != JWT_ED_BYTES)
		return false;
	memcpy(k->ed, n.p, JWT_ED_BYTES);
	return true;
}

static int
add_keys(
	struct jwt_keys *set, struct span array, struct arena *a, struct err *e)
{
	struct jspan_val v;
	struct jwt_key k;
	struct jspan j;

	jspan_open(&j, array);
	if (!jspan_enter_array(&j))
		return err_set(e, ERR_INPUT, "`keys` is not an array");
	while (jspan_next_item(&j) && jspan_take(&j, &v)) {
		if (v.type != JSPAN_OBJECT || !key_of_jwk(v.raw, a, &k))
			continue;
		if (set->n == KEYS_MAX) {
			jwt_key_fini(&k);
			return err_set(
				e, ERR_LIMIT, "more than %d keys", KEYS_MAX);
		}
		k.kid = arena_dup(&set->arena, k.kid);
		set->items = arena_grown(&set->arena, set->items, set->n,
			&set->cap, sizeof(*set->items));
		set->items[set->n++] = k;
	}
	return 0;
}

int
jwt_keys_parse(struct span document, struct jwt_keys **out, struct err *e)
{
	struct jwt_member m[] = { { .name = "keys" } };
	struct arena a = ARENA_ZERO;
	struct jwt_keys *set;
	int rc;

	*out = NULL;
	if (document.n > JWT_DOCUMENT_MAX_BYTES)
		return err_set(e, ERR_LIMIT, "longer than 1 MiB");
	set = calloc(1, sizeof(*set));
	if (!set)
		abort();
	if (!jwt_object(document, &a, m, 1))
		rc = err_set(e, ERR_INPUT, "not a JSON object");
	else if (m[0].val.type == JSPAN_NONE)
		rc = err_set(e, ERR_INPUT, "no `keys` in it");
	else
		rc = add_keys(set, m[0].val.raw, &a, e);
	arena_fini(&a);
	if (rc != 0)
		jwt_keys_free(set);
	else
		*out = set;
	return rc;
}

void
jwt_keys_free(struct jwt_keys *k)
{
	if (!k)
		return;
	for (size_t i = 0; i < k->n; i++)
		jwt_key_fini(&k->items[i]);
	arena_fini(&k->arena);
	free(k);
}

size_t
jwt_keys_count(const struct jwt_keys *k)
{
	return k ? k->n : 0;
}

const struct jwt_key *
jwt_keys_find(const struct jwt_keys *k, bool has_kid, struct span kid,
	enum jwt_family family)
{
	for (size_t i = 0; k && i < k->n; i++) {
		/* of two with one kid the last counts, as in a map */
		const struct jwt_key *key =
			&k->items[has_kid ? k->n - 1 - i : i];

		if ((key->rsa != NULL) == (family == JWT_RS) &&
			(!has_kid || span_eq(key->kid, kid)))
			return key;
	}
	return NULL;
}
