/* SPDX-License-Identifier: Apache-2.0 */
/* Public keys and sets of them: which one verifies what. */
#include "jwt_fix.h"

static const char *
verdict_of(const struct jwt_conf *c, const struct jwt_keys *keys,
	const char *head, const EVP_MD *md, EVP_PKEY *key)
{
	struct buf t = token(head, "{\"sub\":\"s\"}", md, key);
	const char *v = verdict(c, keys, buf_span(&t));

	buf_fini(&t);
	return v;
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
