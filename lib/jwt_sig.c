/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one table of algorithms, and the three ways to check a signature.  What
 * the boot accepts and what a request accepts both come from the table.
 */
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <sodium.h>

#include "jwt_int.h"

static const struct jwt_alg ALGS[] = {
	{ "HS256", JWT_HS, EVP_sha256 },
	{ "HS384", JWT_HS, EVP_sha384 },
	{ "HS512", JWT_HS, EVP_sha512 },
	{ "RS256", JWT_RS, EVP_sha256 },
	{ "RS384", JWT_RS, EVP_sha384 },
	{ "RS512", JWT_RS, EVP_sha512 },
	{ "EdDSA", JWT_ED, NULL },
};

const struct jwt_alg *
jwt_alg_find(struct span name)
{
	for (size_t i = 0; i < sizeof(ALGS) / sizeof(*ALGS); i++)
		if (span_is(name, ALGS[i].name))
			return &ALGS[i];
	return NULL;
}

static const unsigned char *
bytes(struct span s)
{
	return (const unsigned char *)s.p;
}

bool
jwt_sig_hmac(const struct jwt_alg *alg, struct span secret, struct span text,
	struct span sig)
{
	unsigned char mac[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	bool good;

	good = HMAC(alg->md(), secret.p, (int)secret.n, bytes(text), text.n,
		       mac, &n) &&
	       sig.n == n && CRYPTO_memcmp(mac, sig.p, n) == 0;
	OPENSSL_cleanse(mac, sizeof(mac));
	return good;
}

static bool
rsa_verify(const struct jwt_alg *alg, EVP_PKEY *key, struct span text,
	struct span sig)
{
	EVP_MD_CTX *c = EVP_MD_CTX_new();
	bool good;

	/* PKCS #1 v1.5 is what a plain RSA key does unless told otherwise. */
	good = c && EVP_DigestVerifyInit(c, NULL, alg->md(), NULL, key) == 1 &&
	       EVP_DigestVerify(c, bytes(sig), sig.n, bytes(text), text.n) == 1;
	EVP_MD_CTX_free(c);
	ERR_clear_error();
	return good;
}

bool
jwt_sig_public(const struct jwt_alg *alg, const struct jwt_key *k,
	struct span text, struct span sig)
{
	if (k->rsa)
		return alg->family == JWT_RS &&
		       rsa_verify(alg, k->rsa, text, sig);
	return alg->family == JWT_ED && sig.n == crypto_sign_BYTES &&
	       crypto_sign_verify_detached(
		       bytes(sig), bytes(text), text.n, k->ed) == 0;
}
