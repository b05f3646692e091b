/* SPDX-License-Identifier: Apache-2.0 */
/* What test_jwt.c and test_jwt_keys.c share: keys, tokens, verdicts on them. */
#ifndef QUEEN_TEST_JWT_FIX_H
#define QUEEN_TEST_JWT_FIX_H

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "err.h"
#include "jwt.h"

#define SECRET "cell-test-secret-0123456789abcdef"
#define HS256                                                                  \
	"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."                                \
	"eyJzdWIiOiJzdmMtb3JkZXJzIiwicm9sZSI6InJlYWQtd3JpdGUifQ."              \
	"JIy87w66i5Ygvf_NDDh5JpEiNljgfA-px2AIm7Nd2Lg"
#define HS512                                                                  \
	"eyJhbGciOiJIUzUxMiIsInR5cCI6IkpXVCJ9."                                \
	"eyJzdWIiOiJzdmMtb3JkZXJzIiwicm9sZXMiOlsid3JpdGUtb25seSJdLCJpYXQiOj"   \
	"E3MDAwMDAwMDAsImV4cCI6NDEwMjQ0NDgwMH0."                               \
	"gGYjd_zSh8hZLJL4Axpt4EIKXDHGWVOxoqpGOIEFPSD7l6xBOXl_OxNWZ80Z9wFotd"   \
	"1chFd5RG_sxXeB-Bty8w"

enum { NOW_S = 1800000000 };

/* ---- tokens of our own ---- */

static EVP_PKEY *rsa, *rsa2, *small, *ed, *ec;
static char *rsa_pem, *small_pem, *ed_pem, *ec_pem;

static void
put64(struct buf *b, const void *p, size_t n)
{
	enum { URL = sodium_base64_VARIANT_URLSAFE_NO_PADDING };
	size_t max = sodium_base64_encoded_len(n, URL);

	sodium_bin2base64(buf_reserve(b, max), max, p, n, URL);
	b->len += max - 1;
}

static char *
pem_of(EVP_PKEY *k)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text, *copy;
	long n;

	assert_int_equal(PEM_write_bio_PUBKEY(bio, k), 1);
	n = BIO_get_mem_data(bio, &text);
	copy = strndup(text, (size_t)n);
	BIO_free(bio);
	return copy;
}

/* The signature over what the buffer holds. */
static void
put_signature(
	struct buf *b, const EVP_MD *md, EVP_PKEY *key, const char *secret)
{
	unsigned char sig[1024];
	unsigned n32 = 0;
	size_t n = sizeof(sig);

	if (key) {
		EVP_MD_CTX *c = EVP_MD_CTX_new();

		assert_int_equal(EVP_DigestSignInit(c, NULL, md, NULL, key), 1);
		assert_int_equal(EVP_DigestSign(c, sig, &n,
					 (unsigned char *)b->p, b->len),
			1);
		EVP_MD_CTX_free(c);
	} else {
		HMAC(md, secret, (int)strlen(secret), (unsigned char *)b->p,
			b->len, sig, &n32);
		n = n32;
	}
	buf_putc(b, '.');
	put64(b, sig, n);
}

static struct buf
token(const char *head, const char *claims, const EVP_MD *md, EVP_PKEY *key)
{
	struct buf b = BUF_ZERO;

	put64(&b, head, strlen(head));
	buf_putc(&b, '.');
	put64(&b, claims, strlen(claims));
	put_signature(&b, md, key, SECRET);
	return b;
}

static int
make_keys(void **state)
{
	(void)state;
	rsa = EVP_RSA_gen(2048);
	rsa2 = EVP_RSA_gen(2048);
	small = EVP_RSA_gen(1024);
	ed = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	ec = EVP_EC_gen("P-256");
	assert_true(rsa && rsa2 && small && ed && ec);
	rsa_pem = pem_of(rsa);
	small_pem = pem_of(small);
	ed_pem = pem_of(ed);
	ec_pem = pem_of(ec);
	return sodium_init() < 0;
}

static int
free_keys(void **state)
{
	(void)state;
	EVP_PKEY_free(rsa);
	EVP_PKEY_free(rsa2);
	EVP_PKEY_free(small);
	EVP_PKEY_free(ed);
	EVP_PKEY_free(ec);
	free(rsa_pem);
	free(small_pem);
	free(ed_pem);
	free(ec_pem);
	return 0;
}

static struct jwt_conf
conf(const char *algorithm)
{
	return (struct jwt_conf){ .algorithm = algorithm,
		.secret = SECRET,
		.roles_claim = "role",
		.roles_array_claim = "roles",
		.role_admin = "admin",
		.role_read_write = "read-write",
		.role_read_only = "read-only",
		.role_write_only = "write-only",
		.skew_s = 30 };
}

/* "sub roles" when accepted, else "status error"; "? ..." unknown key. */
static const char *
verdict(const struct jwt_conf *c, const struct jwt_keys *keys, struct span t)
{
	static char text[128];
	struct arena a = ARENA_ZERO;
	struct err e = ERR_ZERO;
	struct jwt_claims got = { .roles = 0 };
	struct jwt_fault f = { .status = 0 };
	enum jwt_verdict v;
	struct jwt *j;

	assert_int_equal(jwt_new(c, &j, &e), 0);
	v = jwt_verify(j, keys, t, NOW_S, &a, &got, &f);
	if (v == JWT_OK)
		snprintf(text, sizeof(text), "%.*s %u", SPAN_ARG(got.sub),
			got.roles);
	else
		snprintf(text, sizeof(text), "%s%d %s",
			v == JWT_UNKNOWN_KEY ? "? " : "", f.status, f.error);
	jwt_free(j);
	arena_fini(&a);
	return text;
}

#endif
