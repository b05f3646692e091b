/* SPDX-License-Identifier: Apache-2.0 */
#include "jwt.h"

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

static const char *
verdict_hs(const struct jwt_conf *c, const char *head, const char *claims)
{
	struct buf t = token(head, claims, EVP_sha256(), NULL);
	const char *v = verdict(c, NULL, buf_span(&t));

	buf_fini(&t);
	return v;
}

static const char *
verdict_of(const struct jwt_conf *c, const struct jwt_keys *keys,
	const char *head, const EVP_MD *md, EVP_PKEY *key)
{
	struct buf t = token(head, "{\"sub\":\"s\"}", md, key);
	const char *v = verdict(c, keys, buf_span(&t));

	buf_fini(&t);
	return v;
}

/* ---- the vectors of the reference ---- */

static void
known_tokens(void **state)
{
	struct jwt_conf c = conf("HS256");
	(void)state;

	assert_string_equal(verdict(&c, NULL, SPAN_LIT(HS256)), "svc-orders 2");
	assert_string_equal(verdict(&c, NULL, SPAN_LIT(HS512)),
		"401 Unsupported token algorithm");
	c.algorithm = "HS512";
	assert_string_equal(verdict(&c, NULL, SPAN_LIT(HS512)), "svc-orders 8");
	assert_string_equal(verdict(&c, NULL, SPAN_LIT(HS256)),
		"401 Unsupported token algorithm");
	c.algorithm = "auto";
	assert_string_equal(verdict(&c, NULL, SPAN_LIT(HS256)), "svc-orders 2");
	assert_string_equal(verdict(&c, NULL, SPAN_LIT(HS512)), "svc-orders 8");
	c.secret = "another";
	assert_string_equal(verdict(&c, NULL, SPAN_LIT(HS256)),
		"401 Invalid token signature");
}

static void
bearer_is_stripped(void **state)
{
	static const char *const cases[][2] = {
		{ "Bearer abc", "abc" },
		{ "bEARER abc", "abc" },
		{ "Bearer ", "Bearer " },
		{ "Bearer  abc", " abc" },
		{ "Bearerabc", "Bearerabc" },
		{ "abc", "abc" },
		{ "", "" },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_true(span_is(
			jwt_of_header(span_of(cases[i][0])), cases[i][1]));
}

/* ---- settings ---- */

static const char *const ALGS[] = { "HS256", "HS384", "HS512", "RS256", "RS384",
	"RS512", "EdDSA" };

static void
one_table_of_algorithms(void **state)
{
	static const char *const settings[] = { "HS256", "HS384", "HS512",
		"RS256", "RS384", "RS512", "EdDSA", "auto", "hs256", "none", "",
		"ES256", "PS256", "Auto", "HS256 " };
	static const char *const allowed[] = { "1000000", "0100000", "0010000",
		"0001110", "0000100", "0000010", "0000001", "1111111", "", "",
		"", "", "", "", "" };
	(void)state;

	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		struct jwt_conf c = conf(settings[i]);
		struct err e = ERR_ZERO;
		struct jwt *j;
		int rc;

		c.public_key = rsa_pem;
		rc = jwt_new(&c, &j, &e);
		jwt_free(j);
		/* what the boot accepts is what a request can accept */
		assert_int_equal(rc == 0, *allowed[i] != '\0');
		assert_int_equal(
			jwt_algorithm_known(settings[i]), *allowed[i] != '\0');
		for (size_t k = 0; rc == 0 && k < 7; k++)
			assert_int_equal(jwt_algorithm_allows(
						 settings[i], span_of(ALGS[k])),
				allowed[i][k] == '1');
		assert_false(
			jwt_algorithm_allows(settings[i], SPAN_LIT("none")));
		assert_false(
			jwt_algorithm_allows(settings[i], span_of("auto")));
	}
}

static void
boot_refuses_a_setting_without_key(void **state)
{
	static const struct {
		const char *algorithm, *secret, *pem, *url, *text;
	} cases[] = {
		{ "HS256", "", "", "",
			"JWT_ALGORITHM=HS256 needs one of JWT_SECRET, "
			"JWT_PUBLIC_KEY, JWT_JWKS_URL" },
		{ "auto", NULL, NULL, NULL,
			"JWT_ALGORITHM=auto needs one of JWT_SECRET, "
			"JWT_PUBLIC_KEY, JWT_JWKS_URL" },
		{ "RS256", "s", "", "",
			"JWT_ALGORITHM=RS256 needs JWT_PUBLIC_KEY or "
			"JWT_JWKS_URL" },
		{ "EdDSA", "s", NULL, NULL,
			"JWT_ALGORITHM=EdDSA needs JWT_PUBLIC_KEY or "
			"JWT_JWKS_URL" },
		{ "hs256", "s", "", "",
			"JWT_ALGORITHM is not one of HS256 HS384 HS512 RS256 "
			"RS384 RS512 EdDSA auto" },
		{ "HS256", "", "", "http://x/", NULL },
		{ "auto", "", "p", "", NULL },
		{ "RS512", "", "", "http://x/", NULL },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct jwt_conf c = conf(cases[i].algorithm);
		struct err e = ERR_ZERO;
		struct jwt *j;
		int rc;

		c.secret = cases[i].secret;
		c.public_key = cases[i].pem;
		c.jwks_url = cases[i].url;
		rc = jwt_new(&c, &j, &e);
		jwt_free(j);
		assert_int_equal(rc, cases[i].text ? -1 : 0);
		assert_string_equal(e.text, cases[i].text ? cases[i].text : "");
		assert_int_equal(e.kind, cases[i].text ? ERR_CONFIG : ERR_NONE);
	}
}

static void
key_sets_are_of_use_to_public_keys_only(void **state)
{
	static const struct {
		const char *algorithm, *url;
		bool wants;
	} cases[] = { { "HS256", "http://x/", false },
		{ "auto", "http://x/", true }, { "RS384", "http://x/", true },
		{ "EdDSA", "http://x/", true }, { "auto", "", false } };
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct jwt_conf c = conf(cases[i].algorithm);
		struct err e = ERR_ZERO;
		struct jwt *j;

		c.jwks_url = cases[i].url;
		assert_int_equal(jwt_new(&c, &j, &e), 0);
		assert_int_equal(jwt_wants_keys(j), cases[i].wants);
		jwt_free(j);
	}
}

/* ---- header and form ---- */

static void
bad_forms_are_bad_headers(void **state)
{
	static const char *const texts[] = { "", ".", "..", "...", "a.b", "e30",
		"e30.e30", "e30.e30.x", "e30.e30.x.y", "!!!!.e30.x",
		"e30=.e30.x", "W10.e30.x", "Bearer " HS256, " " HS256 };
	static const char *const heads[] = { "", "[]", "1", "{", "{}",
		"{\"alg\":1}", "{\"alg\":null}", "{\"alg\":\"HS256\"",
		"{\"alg\":\"HS256\"} x", "{\"alg\":\"HS256\",\"kid\":7}",
		"{\"alg\":\"HS256\",\"kid\":null}",
		"{\"alg\":\"HS256\",\"alg\":\"HS256\"}",
		"{\"alg\":\"HS256\",\"\\u0061lg\":\"HS256\"}",
		"{\"alg\":\"HS256\",\"x\":1,\"x\":1}",
		"{\"alg\":\"HS256\",\"crit\":[\"b64\"],\"b64\":false}",
		"{\"alg\":\"HS256\",\"x\":\"\xff\"}",
		"{\"alg\":\"HS256\",\"kid\":\"\xc0\x80\"}",
		"{\"alg\":\"HS256\",\"\xed\xa0\x80\":1}",
		"{\"alg\":\"\xef\xbb\xbfHS256\xff\"}",
		"\xef\xbb\xbf{\"alg\":\"HS256\"}", "{\"alg\":[\"HS256\"]}",
		"{\"ALG\":\"HS256\"}",
		"{\"alg\":\"HS256\",\"kid\":\"a\",\"kid\":\"b\"}",
		"{\"alg\":\"none\",\"alg\":\"HS256\"}",
		"{\"alg\":\"HS256\",\"crit\":[]}" };
	struct jwt_conf c = conf("auto");
	(void)state;

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		assert_string_equal(verdict(&c, NULL, span_of(texts[i])),
			"401 Bad token header");
	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++)
		assert_string_equal(
			verdict_hs(&c, heads[i], "{}"), "401 Bad token header");
	assert_string_equal(
		verdict_hs(&c, " {\"x\":[{}],\"alg\":\"HS256\"} ", "{}"), " 0");
}

/* A good token of exactly n bytes: header and claims share the filling, as
 * three bytes of one make four characters. */
static struct buf
token_of_bytes(size_t n)
{
	for (size_t head_n = 0; head_n < 4; head_n++)
		for (size_t sub = 11900; sub < 12400; sub++) {
			struct buf head = BUF_ZERO, json = BUF_ZERO, t;

			buf_puts(&head, "{\"alg\":\"HS256\"");
			for (size_t i = 0; i < head_n; i++)
				buf_putc(&head, ' ');
			buf_puts(&head, "}");
			buf_putc(&head, '\0');
			buf_puts(&json, "{\"sub\":\"s\",\"role\":\"admin\"");
			for (size_t i = 0; i < sub; i++)
				buf_putc(&json, ' ');
			buf_puts(&json, "}");
			buf_putc(&json, '\0');
			t = token(head.p, json.p, EVP_sha256(), NULL);
			buf_fini(&head);
			buf_fini(&json);
			if (t.len == n)
				return t;
			buf_fini(&t);
		}
	fail();
	return (struct buf)BUF_ZERO;
}

static void
sizes_are_bounded(void **state)
{
	struct jwt_conf c = conf("HS256");
	struct buf t, json = BUF_ZERO;
	(void)state;

	t = token("{\"alg\":\"HS256\"}", "{}", EVP_sha256(), NULL);
	while (t.len <= JWT_TOKEN_MAX_BYTES)
		buf_putc(&t, 'A');
	assert_string_equal(
		verdict(&c, NULL, buf_span(&t)), "401 Bad token header");
	t.len = JWT_TOKEN_MAX_BYTES;
	assert_string_equal(
		verdict(&c, NULL, buf_span(&t)), "401 Invalid token signature");
	buf_fini(&t);
	/* the longest good one, and one that is a byte longer */
	t = token_of_bytes(JWT_TOKEN_MAX_BYTES);
	assert_string_equal(verdict(&c, NULL, buf_span(&t)), "s 1");
	buf_fini(&t);
	t = token_of_bytes(JWT_TOKEN_MAX_BYTES + 1);
	assert_string_equal(
		verdict(&c, NULL, buf_span(&t)), "401 Bad token header");
	buf_fini(&t);
	/* nesting beyond the scanner's bound, and many names */
	buf_puts(&json, "{\"x\":");
	for (int i = 0; i < 2000; i++)
		buf_putc(&json, '[');
	buf_putc(&json, '\0');
	assert_string_equal(verdict_hs(&c, "{\"alg\":\"HS256\"}", json.p),
		"401 Invalid token signature");
	/* the same in the header, which is read before the signature */
	buf_reset(&json);
	buf_puts(&json, "{\"alg\":\"HS256\",\"x\":");
	for (int i = 0; i < 2000; i++)
		buf_putc(&json, '[');
	for (int i = 0; i < 2000; i++)
		buf_putc(&json, ']');
	buf_puts(&json, "}");
	buf_putc(&json, '\0');
	assert_string_equal(
		verdict_hs(&c, json.p, "{}"), "401 Bad token header");
	buf_reset(&json);
	for (int i = 0; i < 129; i++)
		buf_printf(&json, "%c\"x%d\":1", i ? ',' : '{', i);
	buf_puts(&json, "}");
	buf_putc(&json, '\0');
	assert_string_equal(verdict_hs(&c, "{\"alg\":\"HS256\"}", json.p),
		"401 Invalid token signature");
	buf_fini(&json);
}

/* A token of three texts that are put together as they are, and signed. */
static const char *
verdict_raw(const struct jwt_conf *c, const char *head64, const char *claims64,
	const char *after)
{
	struct buf b = BUF_ZERO;
	const char *v;

	buf_printf(&b, "%s.%s", head64, claims64);
	put_signature(&b, EVP_sha256(), NULL, SECRET);
	buf_puts(&b, after);
	v = verdict(c, NULL, buf_span(&b));
	buf_fini(&b);
	return v;
}

/* Each well signed, so that nothing but the spelling is in the way. */
static void
base64_has_one_spelling(void **state)
{
#define HEAD "eyJhbGciOiJIUzI1NiJ9"
	static const struct {
		const char *head, *claims, *after, *want;
	} cases[] = {
		{ HEAD, "e30", "", " 0" },
		/* padding, which base64url of tokens has not */
		{ HEAD, "e30=", "", "401 Invalid token signature" },
		{ HEAD, "e30", "=", "401 Invalid token signature" },
		{ HEAD "====", "e30", "", "401 Bad token header" },
		{ "eyJhbGciOiJIUzI1NiIgfQ==", "e30", "",
			"401 Bad token header" },
		{ "eyJhbGciOiJIUzI1NiIgfQ", "e30", "", " 0" },
		/* bits behind the last byte */
		{ HEAD, "e31", "", "401 Invalid token signature" },
		{ "eyJhbGciOiJIUzI1NiIgfR", "e30", "", "401 Bad token header" },
		/* a single character left over */
		{ HEAD, "e30AA", "", "401 Invalid token signature" },
		/* blanks and the other alphabet: {"a":"??>"} */
		{ HEAD, "e3 0", "", "401 Invalid token signature" },
		{ HEAD, "e30\n", "", "401 Invalid token signature" },
		{ HEAD, "eyJhIjoiPz8-In0", "", " 0" },
		{ HEAD, "eyJhIjoiPz8+In0", "", "401 Invalid token signature" },
		{ HEAD, "eyJhIjoiPz8%2BIn0", "",
			"401 Invalid token signature" },
		{ HEAD, "", "", "401 Invalid token signature" },
	};
#undef HEAD
	struct jwt_conf c = conf("HS256");
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(verdict_raw(&c, cases[i].head,
					    cases[i].claims, cases[i].after),
			cases[i].want);
}

static void
foreign_algorithms_are_refused(void **state)
{
	static const char *const names[] = { "none", "None", "NONE", "",
		"hs256", "HS256 ", "HS256\\u0000", "ES256", "ES512", "PS256",
		"RS1", "HS1", "ES256K", "auto", "Ed25519", "RSA-OAEP" };
	struct jwt_conf c = conf("auto");
	(void)state;

	c.public_key = rsa_pem;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char head[64];

		snprintf(head, sizeof(head), "{\"alg\":\"%s\"}", names[i]);
		assert_string_equal(verdict_hs(&c, head, "{}"),
			"401 Unsupported token algorithm");
	}
	/* no signature at all */
	assert_string_equal(
		verdict(&c, NULL, SPAN_LIT("eyJhbGciOiJub25lIn0.e30.")),
		"401 Unsupported token algorithm");
	assert_string_equal(
		verdict(&c, NULL, SPAN_LIT("eyJhbGciOiJIUzI1NiJ9.e30.")),
		"401 Invalid token signature");
}

/* ---- claims ---- */

static void
claims_are_checked(void **state)
{
	static const struct {
		const char *claims, *want;
	} cases[] = {
		{ "{}", " 0" },
		{ "{\"exp\":1799999971}", " 0" }, /* now - 29 */
		{ "{\"exp\":1799999970}", " 0" },
		{ "{\"exp\":1799999969}", "401 Token has expired" },
		{ "{\"exp\":1799999970.9}", " 0" },
		{ "{\"exp\":1799999969.9}", "401 Token has expired" },
		{ "{\"exp\":1.8e9}", " 0" },
		{ "{\"exp\":0}", "401 Token has expired" },
		{ "{\"exp\":-0.5}", "401 Token has expired" },
		{ "{\"exp\":1e999}", " 0" },
		{ "{\"exp\":-1e999}", "401 Token has expired" },
		{ "{\"exp\":99999999999999999999}", " 0" },
		{ "{\"exp\":\"4102444800\"}", "401 Invalid token signature" },
		{ "{\"exp\":null}", "401 Invalid token signature" },
		{ "{\"nbf\":true}", "401 Invalid token signature" },
		{ "{\"iat\":[1]}", "401 Invalid token signature" },
		{ "{\"nbf\":1800000030}", " 0" },
		{ "{\"nbf\":1800000030.9}", " 0" },
		{ "{\"nbf\":1800000031}", "401 Token not yet valid" },
		{ "{\"nbf\":9223372036854775807}", "401 Token not yet valid" },
		{ "{\"iat\":1800000030}", " 0" },
		{ "{\"iat\":1800000031}", "401 Token issued in the future" },
		{ "{\"iat\":-9223372036854775808}", " 0" },
		{ "{\"exp\":1,\"nbf\":1800000031}", "401 Token has expired" },
		{ "{\"iat\":1800000031,\"nbf\":1800000031}",
			"401 Token not yet valid" },
		{ "{\"sub\":\"a\"}", "a 0" },
		{ "{\"sub\":\"\\u00e9\"}", "\xc3\xa9 0" },
		{ "{\"sub\":\"\"}", " 0" },
		{ "{\"sub\":null}", " 0" },
		{ "{\"sub\":1}", "401 Invalid token signature" },
		{ "{\"sub\":\"a\\u0000b\"}", "401 Invalid token signature" },
		{ "{\"sub\":\"\\ud800\"}", "401 Invalid token signature" },
		{ "{\"sub\":\"a\",\"sub\":\"b\"}",
			"401 Invalid token signature" },
		{ "{\"sub\":\"a\",\"s\\u0075b\":\"b\"}",
			"401 Invalid token signature" },
		{ "", "401 Invalid token signature" },
		{ "[]", "401 Invalid token signature" },
		{ "{}{}", "401 Invalid token signature" },
		{ "{\"a\":\"\xff\"}", "401 Invalid token signature" },
		{ "{\"role\":\"admin\"}", " 1" },
		{ "{\"role\":\"read-write\"}", " 2" },
		{ "{\"role\":\"read-only\"}", " 4" },
		{ "{\"role\":\"write-only\"}", " 8" },
		{ "{\"role\":\"Admin\"}", " 0" },
		{ "{\"role\":[\"admin\"]}", " 0" },
		{ "{\"role\":\"\"}", " 0" },
		{ "{\"roles\":\"admin\"}", " 0" },
		{ "{\"roles\":[1,\"read-only\",null,[\"admin\"],"
		  "\"write-only\"]}",
			" 12" },
		{ "{\"role\":\"admin\",\"roles\":[\"read-only\"]}", " 5" },
		{ "{\"x\":{\"role\":\"admin\"}}", " 0" },
		/* a second one, of whatever, could be the one others read */
		{ "{\"role\":\"read-only\",\"role\":\"admin\"}",
			"401 Invalid token signature" },
		{ "{\"roles\":[],\"r\\u006fles\":[\"admin\"]}",
			"401 Invalid token signature" },
		{ "{\"exp\":4102444800,\"exp\":1}",
			"401 Invalid token signature" },
		{ "{\"x\":1,\"x\":1}", "401 Invalid token signature" },
		{ "{\"sub\":\"\xc0\xaf\"}", "401 Invalid token signature" },
		{ "{\"sub\":\"\xed\xa0\x80\"}", "401 Invalid token signature" },
		{ "{\"\xff\":1}", "401 Invalid token signature" },
		{ "\xef\xbb\xbf{}", "401 Invalid token signature" },
		{ "{\"exp\":1799999970.0000001}", " 0" },
		{ "{\"exp\":NaN}", "401 Invalid token signature" },
		{ "{\"exp\":{}}", "401 Invalid token signature" },
		{ "{\"nbf\":\"\"}", "401 Invalid token signature" },
		{ "{\"iat\":1.8e9}", " 0" },
		{ "{\"iat\":1.9e9}", "401 Token issued in the future" },
		{ "null", "401 Invalid token signature" },
		{ "{\"a\":1,}", "401 Invalid token signature" },
	};
	struct jwt_conf c = conf("HS256");
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(
			verdict_hs(&c, "{\"alg\":\"HS256\"}", cases[i].claims),
			cases[i].want);
}

static void
issuer_and_audience_are_checked(void **state)
{
	static const struct {
		const char *claims, *want;
	} cases[] = {
		{ "{\"iss\":\"me\",\"aud\":\"cell\"}", " 0" },
		{ "{\"iss\":\"me\",\"aud\":[1,\"x\",\"cell\"]}", " 0" },
		{ "{\"aud\":\"cell\"}", "401 Invalid token issuer" },
		{ "{\"iss\":\"Me\",\"aud\":\"cell\"}",
			"401 Invalid token issuer" },
		{ "{\"iss\":[\"me\"],\"aud\":\"cell\"}",
			"401 Invalid token issuer" },
		{ "{\"iss\":\"me\"}", "401 Invalid token audience" },
		{ "{\"iss\":\"me\",\"aud\":[]}", "401 Invalid token audience" },
		{ "{\"iss\":\"me\",\"aud\":[[\"cell\"]]}",
			"401 Invalid token audience" },
		{ "{\"iss\":\"me\",\"aud\":\"cells\"}",
			"401 Invalid token audience" },
		{ "{\"iss\":\"you\",\"exp\":1}", "401 Token has expired" },
	};
	struct jwt_conf c = conf("HS256");
	(void)state;

	c.issuer = "me";
	c.audience = "cell";
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(
			verdict_hs(&c, "{\"alg\":\"HS256\"}", cases[i].claims),
			cases[i].want);
}

static void
role_claims_are_literal_names(void **state)
{
	struct jwt_conf c = conf("HS256");
	(void)state;

	c.roles_claim = "realm.role";
	c.roles_array_claim = "realm.role";
	c.role_admin = "";
	assert_string_equal(verdict_hs(&c, "{\"alg\":\"HS256\"}",
				    "{\"realm.role\":\"read-only\"}"),
		" 4");
	assert_string_equal(verdict_hs(&c, "{\"alg\":\"HS256\"}",
				    "{\"realm.role\":[\"read-only\",\"\"]}"),
		" 4");
	assert_string_equal(verdict_hs(&c, "{\"alg\":\"HS256\"}",
				    "{\"realm\":{\"role\":\"read-only\"}}"),
		" 0");
	c.roles_claim = c.roles_array_claim = "";
	assert_string_equal(
		verdict_hs(&c, "{\"alg\":\"HS256\"}", "{\"\":\"read-only\"}"),
		" 0");
}

/* ---- public keys ---- */

static void
pem_keys_verify(void **state)
{
	struct jwt_conf c = conf("auto");
	(void)state;

	c.public_key = rsa_pem;
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"RS256\",\"kid\":\"any\"}",
			EVP_sha256(), rsa),
		"s 0");
	/* both families at once, each with its key */
	assert_string_equal(verdict(&c, NULL, SPAN_LIT(HS256)), "svc-orders 2");
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"RS384\"}", EVP_sha384(), rsa),
		"s 0");
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"RS512\"}", EVP_sha512(), rsa),
		"s 0");
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"RS512\"}", EVP_sha256(), rsa),
		"401 Invalid token signature");
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"RS256\"}", EVP_sha256(), rsa2),
		"401 Invalid token signature");
	c.public_key = ed_pem;
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"EdDSA\"}", NULL, ed), "s 0");
	c.algorithm = "RS384";
	c.public_key = rsa_pem;
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"RS384\"}", EVP_sha384(), rsa),
		"s 0");
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"RS256\"}", EVP_sha256(), rsa),
		"401 Unsupported token algorithm");
}

static void
keys_without_use_answer_500(void **state)
{
	static const char RS[] = "{\"alg\":\"RS256\"}";
	static const char ED[] = "{\"alg\":\"EdDSA\"}";
	const char *bad[] = {
		"x", small_pem, ec_pem,
		"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
	};
	struct jwt_conf c = conf("auto");
	struct jwt_keys *set;
	struct err e = ERR_ZERO;
	(void)state;

	assert_int_equal(
		jwt_keys_parse(SPAN_LIT("{\"keys\":[]}"), &set, &e), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		c.public_key = bad[i];
		/* also with a set at hand: there is no way around a bad PEM */
		c.jwks_url = i ? "http://x/" : NULL;
		assert_string_equal(verdict_of(&c, set, RS, EVP_sha256(), rsa),
			"500 invalid RSA public key PEM");
		assert_string_equal(verdict_of(&c, set, ED, NULL, ed),
			"500 invalid Ed public key PEM");
	}
	c.public_key = ed_pem;
	assert_string_equal(verdict_of(&c, set, RS, EVP_sha256(), rsa),
		"500 invalid RSA public key PEM");
	c.public_key = rsa_pem;
	assert_string_equal(verdict_of(&c, set, ED, NULL, ed),
		"500 invalid Ed public key PEM");
	c.secret = "";
	assert_string_equal(verdict(&c, set, SPAN_LIT(HS256)),
		"500 HS secret not configured");
	c.secret = "s";
	c.public_key = NULL;
	c.jwks_url = NULL;
	assert_string_equal(verdict_of(&c, NULL, RS, EVP_sha256(), rsa),
		"401 Unknown key ID");
	jwt_keys_free(set);
}

/* HMAC with no key at all is easily made. */
static void
an_empty_secret_signs_nothing(void **state)
{
	struct jwt_conf c = conf("auto");
	struct buf b = BUF_ZERO;
	(void)state;

	c.secret = "";
	c.public_key = rsa_pem;
	put64(&b, "{\"alg\":\"HS256\"}", 15);
	buf_puts(&b, ".");
	put64(&b, "{\"role\":\"admin\"}", 16);
	put_signature(&b, EVP_sha256(), NULL, "");
	assert_string_equal(verdict(&c, NULL, buf_span(&b)),
		"500 HS secret not configured");
	buf_fini(&b);
}

/* The header says one kind, the signature is of the other. */
static void
keys_of_the_other_kind_do_not_verify(void **state)
{
	struct jwt_conf c = conf("auto");
	(void)state;

	c.public_key = rsa_pem;
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"RS256\"}", NULL, ed),
		"401 Invalid token signature");
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"HS256\"}", EVP_sha256(), rsa),
		"401 Invalid token signature");
	c.public_key = ed_pem;
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"EdDSA\"}", EVP_sha256(), rsa),
		"401 Invalid token signature");
}

/* A token signed with the public PEM as if it were a secret. */
static void
a_public_key_is_no_secret(void **state)
{
	struct jwt_conf c = conf("auto");
	struct buf b = BUF_ZERO;
	(void)state;

	c.public_key = rsa_pem;
	put64(&b, "{\"alg\":\"HS256\"}", 15);
	buf_puts(&b, ".");
	put64(&b, "{}", 2);
	put_signature(&b, EVP_sha256(), NULL, rsa_pem);
	assert_string_equal(
		verdict(&c, NULL, buf_span(&b)), "401 Invalid token signature");
	c.secret = "";
	assert_string_equal(verdict(&c, NULL, buf_span(&b)),
		"500 HS secret not configured");
	c.algorithm = "RS256";
	assert_string_equal(verdict(&c, NULL, buf_span(&b)),
		"401 Unsupported token algorithm");
	buf_fini(&b);
}

/* Any one character of a token replaced by any other: refused. */
static void
refuse_each_change(const struct jwt_conf *c, struct buf *t)
{
	static const char with[] = "Aa0-_.=B";
	struct arena a = ARENA_ZERO;
	struct err e = ERR_ZERO;
	struct jwt_claims got;
	struct jwt_fault f;
	struct jwt *j;

	assert_int_equal(jwt_new(c, &j, &e), 0);
	assert_int_equal(
		jwt_verify(j, NULL, buf_span(t), NOW_S, &a, &got, &f), JWT_OK);
	for (size_t i = 0; i < t->len; i++)
		for (size_t k = 0; k < sizeof(with); k++) {
			char was = t->p[i];

			if (was == with[k])
				continue;
			t->p[i] = with[k];
			assert_int_equal(jwt_verify(j, NULL, buf_span(t), NOW_S,
						 &a, &got, &f),
				JWT_REFUSED);
			assert_int_equal(f.status, 401);
			t->p[i] = was;
			arena_reset(&a);
		}
	for (size_t n = 0; n < t->len; n++)
		assert_int_equal(jwt_verify(j, NULL, span_make(t->p, n), NOW_S,
					 &a, &got, &f),
			JWT_REFUSED);
	jwt_free(j);
	arena_fini(&a);
}

static void
no_character_may_change(void **state)
{
	static const char claims[] = "{\"sub\":\"s\",\"role\":\"admin\"}";
	struct jwt_conf c = conf("auto");
	struct buf t;
	(void)state;

	t = token("{\"alg\":\"HS256\"}", claims, EVP_sha256(), NULL);
	refuse_each_change(&c, &t);
	buf_fini(&t);
	t = token("{\"alg\":\"HS512\"}", claims, EVP_sha512(), NULL);
	refuse_each_change(&c, &t);
	buf_fini(&t);
	c.algorithm = "RS256";
	c.public_key = rsa_pem;
	t = token("{\"alg\":\"RS256\"}", claims, EVP_sha256(), rsa);
	refuse_each_change(&c, &t);
	buf_fini(&t);
	c.algorithm = "EdDSA";
	c.public_key = ed_pem;
	t = token("{\"alg\":\"EdDSA\"}", claims, NULL, ed);
	refuse_each_change(&c, &t);
	buf_fini(&t);
}

/* ---- key sets ---- */

static void
put_rsa(struct buf *b, EVP_PKEY *k, const char *more)
{
	unsigned char bytes[512];
	BIGNUM *n = NULL;

	EVP_PKEY_get_bn_param(k, OSSL_PKEY_PARAM_RSA_N, &n);
	BN_bn2bin(n, bytes);
	buf_puts(b, "{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"");
	put64(b, bytes, (size_t)BN_num_bytes(n));
	buf_printf(b, "\"%s}", more);
	BN_free(n);
}

static void
put_ed(struct buf *b, const char *more)
{
	unsigned char x[32];
	size_t n = sizeof(x);

	assert_int_equal(EVP_PKEY_get_raw_public_key(ed, x, &n), 1);
	buf_puts(b, "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"");
	put64(b, x, n);
	buf_printf(b, "\"%s}", more);
}

static struct jwt_keys *
set_of(struct buf *b)
{
	struct err e = ERR_ZERO;
	struct jwt_keys *set;

	assert_int_equal(jwt_keys_parse(buf_span(b), &set, &e), 0);
	buf_fini(b);
	return set;
}

static void
keys_are_found_by_kid(void **state)
{
	struct jwt_conf c = conf("auto");
	struct buf b = BUF_ZERO;
	struct jwt_keys *set;
	(void)state;

	c.jwks_url = "http://x/";
	buf_puts(&b, "{\"x\":1,\"keys\":[");
	put_ed(&b, ",\"kid\":\"one\",\"use\":\"sig\"");
	buf_puts(&b, ",");
	put_rsa(&b, rsa, ",\"kid\":\"one\"");
	buf_puts(&b, ",");
	put_rsa(&b, rsa2, ",\"kid\":\"\\u0074wo\"");
	buf_puts(&b, ",");
	put_ed(&b, "");
	buf_puts(&b, "]}");
	set = set_of(&b);
	assert_int_equal(jwt_keys_count(set), 4);
	assert_int_equal(jwt_keys_count(NULL), 0);

	assert_string_equal(
		verdict_of(&c, set, "{\"alg\":\"RS256\",\"kid\":\"one\"}",
			EVP_sha256(), rsa),
		"s 0");
	assert_string_equal(
		verdict_of(&c, set, "{\"alg\":\"EdDSA\",\"kid\":\"one\"}", NULL,
			ed),
		"s 0");
	assert_string_equal(
		verdict_of(&c, set, "{\"alg\":\"RS256\",\"kid\":\"two\"}",
			EVP_sha256(), rsa2),
		"s 0");
	assert_string_equal(
		verdict_of(&c, set, "{\"alg\":\"RS256\",\"kid\":\"two\"}",
			EVP_sha256(), rsa),
		"401 Invalid token signature");
	/* a kid of another kind of key, an unknown one, the empty one */
	assert_string_equal(
		verdict_of(&c, set, "{\"alg\":\"EdDSA\",\"kid\":\"two\"}", NULL,
			ed),
		"? 401 Unknown key ID");
	assert_string_equal(
		verdict_of(&c, set, "{\"alg\":\"RS256\",\"kid\":\"three\"}",
			EVP_sha256(), rsa),
		"? 401 Unknown key ID");
	assert_string_equal(
		verdict_of(
			&c, set, "{\"alg\":\"EdDSA\",\"kid\":\"\"}", NULL, ed),
		"s 0");
	/* without a kid: the first of the kind */
	assert_string_equal(
		verdict_of(&c, set, "{\"alg\":\"RS256\"}", EVP_sha256(), rsa),
		"s 0");
	assert_string_equal(
		verdict_of(&c, set, "{\"alg\":\"RS256\"}", EVP_sha256(), rsa2),
		"401 Invalid token signature");
	assert_string_equal(
		verdict_of(&c, NULL, "{\"alg\":\"EdDSA\"}", NULL, ed),
		"? 401 Unknown key ID");
	jwt_keys_free(set);
}

static void
the_configured_key_wins_over_the_set(void **state)
{
	struct jwt_conf c = conf("auto");
	struct buf b = BUF_ZERO;
	struct jwt_keys *set;
	(void)state;

	c.jwks_url = "http://x/";
	c.public_key = rsa_pem;
	buf_puts(&b, "{\"keys\":[");
	put_rsa(&b, rsa2, ",\"kid\":\"k\"");
	buf_puts(&b, "]}");
	set = set_of(&b);
	assert_string_equal(
		verdict_of(&c, set, "{\"alg\":\"RS256\",\"kid\":\"k\"}",
			EVP_sha256(), rsa2),
		"401 Invalid token signature");
	jwt_keys_free(set);
}

static void
keys_of_no_use_are_left_out(void **state)
{
	static const char *const keys[] = { "1", "null", "[]", "{}",
		"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"AA\"}",
		"{\"kty\":\"oct\",\"k\":\"AAAA\"}",
		"{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}",
		"{\"kty\":\"RSA\",\"n\":\"\",\"e\":\"\"}",
		"{\"kty\":\"RSA\",\"e\":\"AQAB\"}",
		"{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AAAA\"}",
		"{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"!\"}",
		"{\"kty\":\"OKP\",\"crv\":\"X25519\",\"x\":"
		"\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}" };
	struct buf b = BUF_ZERO;
	struct jwt_keys *set;
	(void)state;

	buf_puts(&b, "{\"keys\":[");
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		buf_printf(&b, "%s,", keys[i]);
	put_rsa(&b, small, "");
	buf_puts(&b, ",");
	put_ed(&b, ",\"kid\":7");
	buf_puts(&b, ",");
	put_ed(&b, ",\"x\":\"AAAA\"");
	buf_puts(&b, ",");
	put_ed(&b, ",\"kid\":\"good\"");
	buf_puts(&b, "]}");
	set = set_of(&b);
	assert_int_equal(jwt_keys_count(set), 1);
	jwt_keys_free(set);
}

static void
documents_that_are_none(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "", "not a JSON object" },
		{ "[]", "not a JSON object" },
		{ "<html>", "not a JSON object" },
		{ "{\"keys\":[]", "not a JSON object" },
		{ "{\"keys\":[],\"keys\":[]}", "not a JSON object" },
		{ "{}", "no `keys` in it" },
		{ "{\"keys\":{}}", "`keys` is not an array" },
	};
	static char big[JWT_DOCUMENT_MAX_BYTES + 1];
	struct jwt_keys *set;
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct err e = ERR_ZERO;

		assert_int_equal(
			jwt_keys_parse(span_of(cases[i].text), &set, &e), -1);
		assert_null(set);
		assert_string_equal(e.text, cases[i].want);
	}
	struct err e = ERR_ZERO;

	assert_int_equal(
		jwt_keys_parse(span_make(big, sizeof(big)), &set, &e), -1);
	assert_string_equal(e.text, "longer than 1 MiB");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_tokens),
		cmocka_unit_test(bearer_is_stripped),
		cmocka_unit_test(one_table_of_algorithms),
		cmocka_unit_test(boot_refuses_a_setting_without_key),
		cmocka_unit_test(key_sets_are_of_use_to_public_keys_only),
		cmocka_unit_test(bad_forms_are_bad_headers),
		cmocka_unit_test(sizes_are_bounded),
		cmocka_unit_test(base64_has_one_spelling),
		cmocka_unit_test(foreign_algorithms_are_refused),
		cmocka_unit_test(claims_are_checked),
		cmocka_unit_test(issuer_and_audience_are_checked),
		cmocka_unit_test(role_claims_are_literal_names),
		cmocka_unit_test(pem_keys_verify),
		cmocka_unit_test(keys_without_use_answer_500),
		cmocka_unit_test(a_public_key_is_no_secret),
		cmocka_unit_test(an_empty_secret_signs_nothing),
		cmocka_unit_test(keys_of_the_other_kind_do_not_verify),
		cmocka_unit_test(no_character_may_change),
		cmocka_unit_test(keys_are_found_by_kid),
		cmocka_unit_test(the_configured_key_wins_over_the_set),
		cmocka_unit_test(keys_of_no_use_are_left_out),
		cmocka_unit_test(documents_that_are_none),
	};

	return cmocka_run_group_tests(tests, make_keys, free_keys);
}
