/* SPDX-License-Identifier: Apache-2.0 */
/* Settings, the form of a token, its claims. */
#include "jwt_fix.h"

static const char *
verdict_hs(const struct jwt_conf *c, const char *head, const char *claims)
{
	struct buf t = token(head, claims, EVP_sha256(), NULL);
	const char *v = verdict(c, NULL, buf_span(&t));

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
	};

	return cmocka_run_group_tests(tests, make_keys, free_keys);
}
