/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate: paths and their levels, roles, whose request it is, and what a
 * read-only gateway lets by.  Tokens are test_jwt.c's.
 */
#include "gate.h"

#include "err.h"
#include "hsrv_routes.h"

/* ---- pure ---- */

static void
test_the_first_rule_that_fits_decides(void **state)
{
	static const struct gate_rule rules[] = {
		{ GATE_ANY, "/open", GATE_PUBLIC },
		{ GATE_GET, "/a*", GATE_READ },
		{ GATE_POST, "/a/:/b", GATE_WRITE },
		{ GATE_DELETE | GATE_POST, "/a/*", GATE_ADMIN },
	};
	static const struct {
		enum hsrv_method method;
		const char *path;
		enum gate_level level;
	} rows[] = {
		{ HSRV_OTHER, "/open", GATE_PUBLIC },
		{ HSRV_GET, "/opened", GATE_READ_WRITE },
		{ HSRV_GET, "/ope", GATE_READ_WRITE },
		{ HSRV_GET, "/a", GATE_READ },
		{ HSRV_HEAD, "/abc/d", GATE_READ },
		{ HSRV_POST, "/a", GATE_READ_WRITE },
		{ HSRV_POST, "/a/x/b", GATE_WRITE },
		{ HSRV_POST, "/a/:x/b", GATE_WRITE },
		{ HSRV_POST, "/a//b", GATE_ADMIN },
		{ HSRV_POST, "/a/x/b/", GATE_ADMIN },
		{ HSRV_POST, "/a/x/y/b", GATE_ADMIN },
		{ HSRV_DELETE, "/a/", GATE_ADMIN },
		{ HSRV_PUT, "/a/x", GATE_READ_WRITE },
		{ HSRV_GET, "", GATE_READ_WRITE },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (gate_level(rules, sizeof(rules) / sizeof(rules[0]),
			    rows[i].method,
			    span_of(rows[i].path)) != rows[i].level)
			fail_msg("%s", rows[i].path);
}

static void
test_skips(void **state)
{
	(void)state;
	assert_true(gate_skips("/a, /b/ ,/", SPAN_LIT("/a")));
	assert_true(gate_skips("/a, /b/ ,/", SPAN_LIT("/b/c/d")));
	assert_true(gate_skips("/a, /b/ ,/", SPAN_LIT("/")));
	assert_false(gate_skips("/a, /b/ ,/", SPAN_LIT("/a/x")));
	assert_false(gate_skips("/a, /b/ ,/", SPAN_LIT("/b")));
	assert_false(gate_skips("/a, /b/ ,/", SPAN_LIT("/A")));
	assert_false(gate_skips("", SPAN_LIT("/")));
	assert_false(gate_skips(NULL, SPAN_LIT("/")));
}

static void
test_levels_are_sets_of_roles(void **state)
{
	(void)state;
	assert_int_equal(gate_roles(GATE_PUBLIC), 0);
	assert_int_equal(gate_roles(GATE_READ),
		JWT_READ_ONLY | JWT_READ_WRITE | JWT_ADMIN);
	assert_int_equal(gate_roles(GATE_WRITE),
		JWT_WRITE_ONLY | JWT_READ_WRITE | JWT_ADMIN);
	assert_int_equal(
		gate_roles(GATE_READ_WRITE), JWT_READ_WRITE | JWT_ADMIN);
	assert_int_equal(gate_roles(GATE_ADMIN), JWT_ADMIN);
}

/* ---- on a server ---- */

static struct gate *the_gate;

static bool
ask(struct hsrv_req *r, int level)
{
	return gate_ask(the_gate, r, level);
}

static void
do_who(struct hsrv_req *r)
{
	char text[QID_TEXT + 1] = "";

	qid_text(gate_tenant(r), text);
	assert_int_equal(gate_subject(r).n, 0);
	assert_int_equal(gate_is_default(gate_tenant(r)),
		strcmp(text, GATE_TENANT_DEFAULT) == 0);
	buf_puts(hsrv_out(r), text);
	hsrv_reply(r, 200);
}

static const struct hsrv_route who_routes[] = {
	{ HSRV_GET, "/who", do_who, GATE_READ },
	{ HSRV_POST, "/who", do_who, GATE_WRITE },
	{ HSRV_GET, "/open", do_who, GATE_PUBLIC },
};

static enum gate_level
no_level(enum hsrv_method m, struct span path)
{
	(void)m;
	(void)path;
	return GATE_READ_WRITE;
}

static void
start_gated(struct t *t, struct gate_conf c)
{
	struct err e = ERR_ZERO;

	c.level = no_level;
	assert_int_equal(gate_new(&c, &the_gate, &e), 0);
	assert_int_equal(gate_start(the_gate, t->loop, &e), 0);
	t->conf.gate = ask;
	t->conf.routes = who_routes;
	t->conf.routes_n = sizeof(who_routes) / sizeof(*who_routes);
	start(t);
	client_open(t, 0);
}

static int
teardown_gated(void **state)
{
	gate_stop(the_gate);
	teardown(state);
	gate_free(the_gate);
	the_gate = NULL;
	return 0;
}

#define MALFORMED                                                              \
	"{\"error\":\"invalid x-queen-tenant header (must be a UUID)\"}"

static void
test_the_tenant_is_the_headers_when_a_proxy_sets_it(void **state)
{
	static const char id[] = "019a0000-0000-7000-8000-00000000000a";
	struct t *t = *state;

	start_gated(t, (struct gate_conf){
			       .tenancy_header = true, .trusted_proxy = true });
	SEND(&t->c[0],
		"GET /who HTTP/1.1\r\n" H
		"X-Queen-Tenant: 019a0000-0000-7000-8000-00000000000a\r\n\r\n");
	reply_is(t, 200, id);
	SEND(&t->c[0], "GET /who HTTP/1.1\r\n" H "x-queen-tenant:\r\n\r\n");
	reply_is(t, 200, GATE_TENANT_DEFAULT);
	SEND(&t->c[0],
		"GET /who HTTP/1.1\r\n" H
		"x-queen-tenant: 00000000-0000-0000-0000-000000000000\r\n\r\n");
	reply_is(t, 403, "{\"error\":\"forbidden\"}");
	SEND(&t->c[0], "GET /who HTTP/1.1\r\n" H "x-queen-tenant: x\r\n\r\n");
	reply_is(t, 400, MALFORMED);
	SEND(&t->c[0], "GET /who HTTP/1.1\r\n" H
		       "x-queen-tenant:\r\nX-Queen-Tenant:\r\n\r\n");
	reply_is(t, 400, MALFORMED);
	/* no tenant's */
	SEND(&t->c[0], "GET /open HTTP/1.1\r\n" H "x-queen-tenant: x\r\n\r\n");
	reply_is(t, 200, GATE_TENANT_DEFAULT);
	SEND(&t->c[0], "GET /nope HTTP/1.1\r\n" H "x-queen-tenant: x\r\n\r\n");
	reply_is(t, 404, "{\"error\":\"Not Found\"}");
}

static void
test_the_header_needs_both_settings(void **state)
{
	struct gate_conf c = { .tenancy_header = true, .level = no_level };
	struct err e = ERR_ZERO;
	struct t *t = *state;

	assert_int_equal(gate_new(&c, &the_gate, &e), -1);
	assert_int_equal(e.kind, ERR_CONFIG);
	assert_non_null(strstr(e.text, "QUEEN_KV_TRUSTED_PROXY=true"));
	start_gated(t, (struct gate_conf){ .trusted_proxy = true });
	SEND(&t->c[0],
		"GET /who HTTP/1.1\r\n" H
		"X-Queen-Tenant: 019a0000-0000-7000-8000-00000000000a\r\n\r\n");
	reply_is(t, 200, GATE_TENANT_DEFAULT);
}

static void
test_a_read_only_gateway_lets_only_reads_by(void **state)
{
	struct t *t = *state;

	start_gated(t, (struct gate_conf){ .read_only = true });
	SEND(&t->c[0], "GET /who HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, GATE_TENANT_DEFAULT);
	SEND(&t->c[0], "POST /who HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 403, "{\"error\":\"This gateway is read-only\"}");
	SEND(&t->c[0], "POST /nope HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 404, "{\"error\":\"Not Found\"}");
}

static void
test_a_token_is_asked_for_where_the_level_wants_one(void **state)
{
	struct t *t = *state;

	start_gated(t,
		(struct gate_conf){ .jwt_enabled = true,
			.jwt = { .algorithm = "HS256",
				.secret = "0123456789abcdef0123456789abcdef" },
			.skip_paths = "/skipped" });
	SEND(&t->c[0], "GET /open HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, GATE_TENANT_DEFAULT);
	SEND(&t->c[0], "GET /who HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 401, "{\"error\":\"Authentication required\"}");
	SEND(&t->c[0], "GET /nope HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 401, "{\"error\":\"Authentication required\"}");
	SEND(&t->c[0], "GET /skipped HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 404, "{\"error\":\"Not Found\"}");
	SEND(&t->c[0],
		"GET /who HTTP/1.1\r\n" H "Authorization: Bearer x\r\n\r\n");
	UNTIL(t, reply_came);
	assert_int_equal(last.status, 401);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown_gated)

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_first_rule_that_fits_decides),
		cmocka_unit_test(test_skips),
		cmocka_unit_test(test_levels_are_sets_of_roles),
		T(test_the_tenant_is_the_headers_when_a_proxy_sets_it),
		T(test_the_header_needs_both_settings),
		T(test_a_read_only_gateway_lets_only_reads_by),
		T(test_a_token_is_asked_for_where_the_level_wants_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
