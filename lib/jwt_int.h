/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of jwt share. */
#ifndef QUEEN_JWT_INT_H
#define QUEEN_JWT_INT_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jspan.h"
#include "jwt.h"
#include "span.h"

enum { JWT_ED_BYTES = 32 };

enum jwt_family { JWT_HS, JWT_RS, JWT_ED };

struct jwt_alg {
	const char *name;
	enum jwt_family family;
	const EVP_MD *(*md)(void); /* NULL: the algorithm brings its own */
};

/* A public key: RSA when rsa is set, Ed25519 else. */
struct jwt_key {
	struct span kid; /* of a set; owned by it */
	EVP_PKEY *rsa;
	unsigned char ed[JWT_ED_BYTES];
};

/* NULL: not one of ours. */
const struct jwt_alg *jwt_alg_find(struct span name);
/* The signature, decoded, is the one of the text. */
bool jwt_sig_hmac(const struct jwt_alg *alg, struct span secret,
	struct span text, struct span sig);
bool jwt_sig_public(const struct jwt_alg *alg, const struct jwt_key *k,
	struct span text, struct span sig);

/* 0, or -1: not the PEM of an RSA (2048 to 8192 bits) or Ed25519 key. */
int jwt_key_of_pem(struct span pem, struct jwt_key *k);
void jwt_key_fini(struct jwt_key *k);
/* Has: by kid; without one the first that fits.  NULL: none. */
const struct jwt_key *jwt_keys_find(const struct jwt_keys *k, bool has_kid,
	struct span kid, enum jwt_family family);

/* Strict base64url: no padding, no foreign character, no stray bits. */
bool jwt_base64(struct span text, struct arena *a, struct span *out);

struct jwt_member {
	const char *name; /* NULL or empty: not wanted */
	struct jspan_val val; /* type JSPAN_NONE: absent */
};
/*
 * Reads a text that is one object and fills the members wanted.  False when
 * it is not, has a name twice, or more names than anybody needs.
 */
bool jwt_object(struct span text, struct arena *a, struct jwt_member *m,
	size_t n);

struct jwt_head {
	struct span alg, kid;
	bool has_kid;
};
bool jwt_head_parse(struct span json, struct arena *a, struct jwt_head *h);
/* NULL, or the text of the refusal. */
const char *jwt_claims_check(const struct jwt_conf *c, struct span json,
	int64_t now_s, struct arena *a, struct jwt_claims *out);

#define JWT_BAD_SIGNATURE "Invalid token signature"

#endif
