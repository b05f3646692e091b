/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a token, as the parts of one that bears a right signature, and
 * as a document of keys.  Nothing but a right signature may be accepted.
 */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "buf.h"
#include "err.h"
#include "jwt.h"

enum { NOW_S = 1800000000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
put64(struct buf *b, const void *p, size_t n)
{
	enum { URL = sodium_base64_VARIANT_URLSAFE_NO_PADDING };
	size_t max = sodium_base64_encoded_len(n, URL);

	sodium_bin2base64(buf_reserve(b, max), max, p, n, URL);
	b->len += max - 1;
}

static struct jwt *
checker(void)
{
	static const struct jwt_conf conf = { .algorithm = "auto",
		.secret = "s",
		.jwks_url = "http://x/",
		.audience = "a",
		.roles_claim = "role",
		.roles_array_claim = "roles",
		.role_admin = "admin" };
	struct err e = ERR_ZERO;
	struct jwt *j;

	if (jwt_new(&conf, &j, &e) != 0)
		abort();
	return j;
}

/* The input, cut at its first newline, is header and claims; we sign. */
static void
signed_by_us(const struct jwt *j, struct span s, struct arena *a)
{
	const char *nl = s.n ? memchr(s.p, '\n', s.n) : NULL;
	size_t head_n = nl ? (size_t)(nl - s.p) : 0;
	size_t rest = nl ? head_n + 1 : 0;
	unsigned char mac[EVP_MAX_MD_SIZE];
	struct jwt_claims claims;
	struct jwt_fault f;
	struct buf b = BUF_ZERO;
	unsigned n = 0;

	if (nl)
		put64(&b, s.p, head_n);
	else
		put64(&b, "{\"alg\":\"HS256\"}", 15);
	buf_putc(&b, '.');
	put64(&b, s.n ? s.p + rest : "", s.n - rest);
	HMAC(EVP_sha256(), "s", 1, (unsigned char *)b.p, b.len, mac, &n);
	buf_putc(&b, '.');
	put64(&b, mac, n);
	if (jwt_verify(j, NULL, buf_span(&b), NOW_S, a, &claims, &f) ==
			JWT_OK &&
		claims.sub.n && memchr(claims.sub.p, 0, claims.sub.n))
		abort();
	buf_fini(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span s = span_make(data, size);
	struct arena a = ARENA_ZERO;
	struct err e = ERR_ZERO;
	struct jwt_claims claims;
	struct jwt_keys *keys;
	struct jwt_fault f;
	struct jwt *j = checker();
	int rc = jwt_keys_parse(s, &keys, &e);

	if ((rc == 0) != (keys != NULL) || (rc != 0 && !e.text[0]))
		abort();
	if (jwt_verify(j, keys, s, NOW_S, &a, &claims, &f) != JWT_OK &&
		(f.status != 401 || !f.error))
		abort();
	signed_by_us(j, s, &a);
	jwt_keys_free(keys);
	jwt_free(j);
	arena_fini(&a);
	return 0;
}
