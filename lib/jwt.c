/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of checks: header, algorithm, key, signature, claims; the first
 * failure answers.  Nothing of a token is believed before its signature but
 * `alg` and `kid`, and these only pick among what the settings allow.
 */
#include "jwt.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "err.h"
#include "jwt_int.h"

#define SETTINGS "HS256 HS384 HS512 RS256 RS384 RS512 EdDSA auto"

struct jwt {
	struct jwt_conf conf;
	char *guarded; /* memory of libsodium, NULL without a secret */
	struct span secret; /* in it */
	bool has_pem, pem_bad;
	struct jwt_key pem;
};

static bool
given(const char *s)
{
	return s && *s;
}

bool
jwt_algorithm_known(const char *setting)
{
	return strcmp(setting, "auto") == 0 || jwt_alg_find(span_of(setting));
}

bool
jwt_algorithm_allows(const char *setting, struct span name)
{
	const struct jwt_alg *alg = jwt_alg_find(name);

	if (!alg)
		return false;
	if (strcmp(setting, "auto") == 0 || span_is(name, setting))
		return true;
	/* the widest setting of its family */
	return strcmp(setting, "RS256") == 0 && alg->family == JWT_RS;
}

static int
check_conf(const struct jwt_conf *c, struct err *e)
{
	const struct jwt_alg *alg;
	bool is_public;

	if (!given(c->algorithm) || !jwt_algorithm_known(c->algorithm))
		return err_set(
			e, ERR_CONFIG, "JWT_ALGORITHM is not one of " SETTINGS);
	alg = jwt_alg_find(span_of(c->algorithm));
	is_public = given(c->public_key) || given(c->jwks_url);
	if (alg && alg->family != JWT_HS && !is_public)
		return err_set(e, ERR_CONFIG,
			"JWT_ALGORITHM=%s needs JWT_PUBLIC_KEY or JWT_JWKS_URL",
			alg->name);
	if (!is_public && !given(c->secret))
		return err_set(e, ERR_CONFIG,
			"JWT_ALGORITHM=%s needs one of JWT_SECRET, "
			"JWT_PUBLIC_KEY, JWT_JWKS_URL",
			c->algorithm);
	return 0;
}

/* Locked, kept out of core dumps, never written again, zeroed when freed. */
static void
guard_secret(struct jwt *j, struct span secret)
{
	j->conf.secret = NULL;
	if (secret.n == 0)
		return;
	j->guarded = sodium_malloc(secret.n);
	if (!j->guarded)
		abort();
	memcpy(j->guarded, secret.p, secret.n);
	sodium_mprotect_readonly(j->guarded);
	j->secret = span_make(j->guarded, secret.n);
}

int
jwt_new(const struct jwt_conf *c, struct jwt **out, struct err *e)
{
	struct jwt *j;

	*out = NULL;
	if (check_conf(c, e) != 0)
		return -1;
	if (sodium_init() < 0)
		return err_set(e, ERR_BUG, "libsodium does not start");
	j = calloc(1, sizeof(*j));
	if (!j)
		abort();
	j->conf = *c;
	guard_secret(j, span_of(c->secret));
	j->has_pem = given(c->public_key);
	if (j->has_pem)
		j->pem_bad = jwt_key_of_pem(span_of(c->public_key), &j->pem);
	*out = j;
	return 0;
}

void
jwt_free(struct jwt *j)
{
	if (!j)
		return;
	jwt_key_fini(&j->pem);
	sodium_free(j->guarded);
	free(j);
}

bool
jwt_wants_keys(const struct jwt *j)
{
	const struct jwt_alg *alg = jwt_alg_find(span_of(j->conf.algorithm));

	return given(j->conf.jwks_url) && (!alg || alg->family != JWT_HS);
}

struct span
jwt_of_header(struct span v)
{
	if (v.n > 7 && strncasecmp(v.p, "bearer ", 7) == 0)
		return span_make(v.p + 7, v.n - 7);
	return v;
}

struct parts {
	struct span head, claims, sig;
	struct span text; /* what is signed */
};

static bool
split(struct span token, struct parts *p)
{
	const char *dot, *dot2, *end = token.p + token.n;

	if (token.n == 0 || token.n > JWT_TOKEN_MAX_BYTES)
		return false;
	dot = memchr(token.p, '.', token.n);
	if (!dot)
		return false;
	dot2 = memchr(dot + 1, '.', (size_t)(end - dot - 1));
	if (!dot2 || memchr(dot2 + 1, '.', (size_t)(end - dot2 - 1)))
		return false;
	p->head = span_make(token.p, (size_t)(dot - token.p));
	p->claims = span_make(dot + 1, (size_t)(dot2 - dot - 1));
	p->sig = span_make(dot2 + 1, (size_t)(end - dot2 - 1));
	p->text = span_make(token.p, (size_t)(dot2 - token.p));
	return true;
}

static enum jwt_verdict
refuse(struct jwt_fault *f, int status, const char *error)
{
	*f = (struct jwt_fault){ .status = status, .error = error };
	return JWT_REFUSED;
}

/* The public key for the token; the configured one wins over the set. */
static enum jwt_verdict
find_key(const struct jwt *j, const struct jwt_keys *keys,
	const struct jwt_alg *alg, const struct jwt_head *h,
	const struct jwt_key **k, struct jwt_fault *f)
{
	bool is_rs = alg->family == JWT_RS;

	if (j->has_pem) {
		*k = &j->pem;
		if (!j->pem_bad && is_rs == (j->pem.rsa != NULL))
			return JWT_OK;
		return refuse(f, 500,
			is_rs ? "invalid RSA public key PEM"
			      : "invalid Ed public key PEM");
	}
	*k = jwt_keys_find(keys, h->has_kid, h->kid, alg->family);
	if (*k)
		return JWT_OK;
	refuse(f, 401, "Unknown key ID");
	return jwt_wants_keys(j) ? JWT_UNKNOWN_KEY : JWT_REFUSED;
}

/* JWT_OK: signed by the key the settings want. */
static enum jwt_verdict
check_signature(const struct jwt *j, const struct jwt_keys *keys,
	const struct parts *p, struct arena *a, struct jwt_fault *f)
{
	const struct jwt_alg *alg;
	const struct jwt_key *k = NULL;
	struct jwt_head h;
	struct span json, sig;
	enum jwt_verdict v;
	bool good;

	if (!jwt_base64(p->head, a, &json) || !jwt_head_parse(json, a, &h))
		return refuse(f, 401, "Bad token header");
	if (!jwt_algorithm_allows(j->conf.algorithm, h.alg))
		return refuse(f, 401, "Unsupported token algorithm");
	alg = jwt_alg_find(h.alg);
	if (alg->family == JWT_HS) {
		if (j->secret.n == 0)
			return refuse(f, 500, "HS secret not configured");
	} else {
		v = find_key(j, keys, alg, &h, &k, f);
		if (v != JWT_OK)
			return v;
	}
	good = jwt_base64(p->sig, a, &sig) &&
	       (k ? jwt_sig_public(alg, k, p->text, sig)
		  : jwt_sig_hmac(alg, j->secret, p->text, sig));
	return good ? JWT_OK : refuse(f, 401, JWT_BAD_SIGNATURE);
}

enum jwt_verdict
jwt_verify(const struct jwt *j, const struct jwt_keys *keys, struct span token,
	int64_t now_s, struct arena *a, struct jwt_claims *claims,
	struct jwt_fault *fault)
{
	struct jwt_claims got = { .roles = 0 };
	enum jwt_verdict v;
	const char *why;
	struct parts p;
	struct span json;

	if (!split(token, &p))
		return refuse(fault, 401, "Bad token header");
	v = check_signature(j, keys, &p, a, fault);
	if (v != JWT_OK)
		return v;
	if (!jwt_base64(p.claims, a, &json))
		return refuse(fault, 401, JWT_BAD_SIGNATURE);
	why = jwt_claims_check(&j->conf, json, now_s, a, &got);
	if (why)
		return refuse(fault, 401, why);
	*claims = got;
	return JWT_OK;
}
