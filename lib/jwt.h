/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signed tokens: compact JWS with HS*, RS* and EdDSA (Ed25519), checked
 * against a secret, a PEM key or a set of public keys from a JWKS document.
 * The header's `alg` picks the kind of key, the setting which are allowed;
 * a public key is never used as a secret, and `none` does not exist.
 *
 * Pure: no I/O, the clock is an argument.  jwks.h fetches sets of keys.
 */
#ifndef QUEEN_JWT_H
#define QUEEN_JWT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct arena;
struct err;
struct jwt;
struct jwt_keys;

enum { JWT_TOKEN_MAX_BYTES = 16 * 1024, JWT_DOCUMENT_MAX_BYTES = 1 << 20 };

/* Bits: a token may hold several. */
enum jwt_role {
	JWT_ADMIN = 1,
	JWT_READ_WRITE = 2,
	JWT_READ_ONLY = 4,
	JWT_WRITE_ONLY = 8,
};

/*
 * Settings; NULL is the same as empty.  Borrowed as long as the jwt lives, but
 * for the secret, which is copied to guarded memory: wipe it then.
 */
struct jwt_conf {
	const char *algorithm;	/* JWT_ALGORITHM */
	const char *secret;
	const char *public_key;	/* PEM text */
	const char *jwks_url;	/* only whether there is one */
	const char *issuer, *audience;
	const char *roles_claim, *roles_array_claim;
	const char *role_admin, *role_read_write;
	const char *role_read_only, *role_write_only;
	int64_t skew_s;
};

struct jwt_claims {
	struct span sub;	/* n = 0: none; lives in the arena */
	unsigned roles;		/* of enum jwt_role */
};

/* What to answer: the status and the text of `error`, a literal. */
struct jwt_fault {
	int status;
	const char *error;
};

enum jwt_verdict {
	JWT_OK,
	JWT_REFUSED,		/* fault says why */
	/*
	 * No key with the token's `kid`, and a set of keys is in use: fault is
	 * the 401 to answer unless a fresh set (jwks_refetch) brings it.
	 */
	JWT_UNKNOWN_KEY,
};

/*
 * -1: ERR_CONFIG for what must end the boot (algorithm, no key for it).  A
 * PEM that is no key is remembered, and answered with 500 per request.
 */
int jwt_new(const struct jwt_conf *c, struct jwt **out, struct err *e)
	__attribute__((warn_unused_result));
void jwt_free(struct jwt *j);
/* Keys of a JWKS document are of use: there is a URL and RS* or EdDSA. */
bool jwt_wants_keys(const struct jwt *j);
/* True for a value JWT_ALGORITHM may have. */
bool jwt_algorithm_known(const char *setting);
/* True when the setting accepts tokens with this `alg`. */
bool jwt_algorithm_allows(const char *setting, struct span alg);

/*
 * The value of an Authorization header without `Bearer `; the whole value
 * when it does not begin so.
 */
struct span jwt_of_header(struct span authorization);
/*
 * keys: the newest set, NULL when there is none.  *claims are filled on
 * JWT_OK, *fault otherwise.
 */
enum jwt_verdict jwt_verify(const struct jwt *j, const struct jwt_keys *keys,
	struct span token, int64_t now_s, struct arena *a,
	struct jwt_claims *claims, struct jwt_fault *fault);

/* The public keys of a JWKS document; what is of no use is left out. */
int jwt_keys_parse(struct span document, struct jwt_keys **out, struct err *e)
	__attribute__((warn_unused_result));
void jwt_keys_free(struct jwt_keys *k);
size_t jwt_keys_count(const struct jwt_keys *k);

#endif
