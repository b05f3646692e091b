/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server may put on every reply of the HTTP server, the errors that no
 * handler sees included, and how `unmatched` tells 404 from 405.
 */
#include "hsrv_routes.h"
#include "hsrv_vectors.h"

/* ---- a server with a form of its own ---- */

static void
begin(struct hsrv_req *r)
{
	struct t *t = hsrv_ctx(r);
	struct span id;

	t->begun++;
	hsrv_set_type(r, "application/own+json");
	hsrv_add_header(r, "Own", "1");
	if (hsrv_header(r, "X-Test", &id))
		hsrv_add_header(r, "X-Test", arena_cstr(hsrv_arena(r), id));
}

static void
own_error(struct hsrv_req *r, int status, const char *text)
{
	assert_int_equal(hsrv_out(r)->len, 0);
	hsrv_set_type(r, "application/own+json");
	assert_string_equal(hsrv_added_header(r, "Own"), "1");
	assert_null(hsrv_added_header(r, "X-Other"));
	buf_printf(hsrv_out(r), "<%d %s>", status, text);
}

static void
own_unmatched(struct hsrv_req *r)
{
	const char *allow = hsrv_allow(r);

	if (allow)
		hsrv_add_header(r, "Allow", allow);
	hsrv_reply_error(r, allow ? 405 : 404, "method %d", hsrv_method(r));
}

static int
setup_own(void **state)
{
	struct t *t;

	setup(state);
	t = *state;
	t->conf.begin = begin;
	t->conf.error = own_error;
	t->conf.unmatched = own_unmatched;
	return 0;
}

/* ---- tests ---- */

static void
every_reply_has_type_and_headers_of_begin(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0),
		"GET /hello HTTP/1.1\r\n" H "X-Test: me\r\n\r\n");
	reply_is(t, 200, "{\"ok\":true}");
	assert_true(span_is(last.head,
		"HTTP/1.1 200 OK\r\n"
		"Content-Type: application/own+json\r\nContent-Length: 11\r\n"
		"Own: 1\r\nX-Test: me\r\n\r\n"));
	SEND(&t->c[0], "GET /empty HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 204, "");
	assert_true(head_has(&last, "\r\nOwn: 1\r\n"));
	/* what a handler sets is its own */
	SEND(&t->c[0], "GET /n/a HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, "a");
	assert_true(head_has(&last, "Content-Type: text/plain\r\n"));
	SEND(&t->c[0], "POST /secret HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 401, "<401 Authentication required>");
	SEND(&t->c[0], "GET /error HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, reply_came);
	assert_memory_equal(last.body.p, "<409 bad \"x\" ? 000", 18);
	assert_int_equal(t->begun, 5);
}

static void
each_refused_head_has_the_own_form(void **state)
{
	struct t *t = *state;
	struct vectors v;
	struct vector x;
	int n = 0;

	start(t);
	vectors_open(&v, "tests/data/http_heads.tsv");
	while (vectors_next(&v, &x)) {
		char body[200];

		if (x.verdict[0] == '0')
			continue;
		client_open(t, 0);
		send_all(t, &t->c[0], buf_span(&x.bytes));
		snprintf(body, sizeof(body), "<%s %s>", x.verdict, x.text);
		reply_is_last(t, (int)strtol(x.verdict, NULL, 10), body);
		assert_true(head_has(
			&last, "Content-Type: application/own+json\r\n"));
		assert_true(head_has(&last, "\r\nOwn: 1\r\n"));
		assert_int_equal(t->begun, ++n);
	}
	vectors_close(&v);
	assert_true(n > 20);
}

static void
size_and_time_errors_have_the_own_form(void **state)
{
	struct t *t = *state;

	t->conf.head_timeout_ms = t->conf.body_timeout_ms = 30;
	start(t);
	SEND(client_open(t, 0), "POST /echo HTTP/1.1\r\n" H
				"Content-Length: 104857600\r\n\r\n");
	reply_is(t, 413, "<413 request body too large>");
	assert_true(head_has(&last, "\r\nOwn: 1\r\n"));
	SEND(client_open(t, 0), "GET /hel");
	reply_is_last(t, 408, "<408 request head took too long>");
	assert_true(head_has(&last, "\r\nOwn: 1\r\n"));
	SEND(client_open(t, 0),
		"POST /echo HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\na");
	reply_is_last(t, 408, "<408 request body took too long>");
	SEND(client_open(t, 0), "POST /echo HTTP/1.1\r\n" H
				"Transfer-Encoding: chunked\r\n\r\nx");
	reply_is_last(t, 400, "<400 malformed chunk size>");
	SEND(client_open(t, 0), "GET /hel");
	shutdown(t->c[0].fd, SHUT_WR);
	reply_is_last(t, 400, "<400 request head ended early>");
	assert_int_equal(t->begun, 5);
}

static void
unmatched_tells_an_unknown_path_from_a_wrong_method(void **state)
{
	static const struct {
		const char *head, *allow;
	} wrong[] = {
		{ "POST /hello", "Allow: GET, HEAD\r\n" },
		{ "ASSERT /hold", "Allow: GET, HEAD, POST\r\n" },
		{ "get /n/a%2Fb", "Allow: GET, HEAD\r\n" },
		{ "DELETE /echo?x", "Allow: POST\r\n" },
		{ "GET /other", "Allow: \r\n" },
	};
	struct t *t = *state;

	start(t);
	client_open(t, 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		client_send(&t->c[0], span_of(wrong[i].head));
		SEND(&t->c[0], " HTTP/1.1\r\n" H "\r\n");
		UNTIL(t, reply_came);
		assert_int_equal(last.status, 405);
		assert_true(head_has(&last, wrong[i].allow));
	}
	SEND(&t->c[0], "ASSERT / HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 404, "<404 method 5>");
	assert_false(head_has(&last, "Allow"));
	SEND(&t->c[0], "OPTIONS * HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 404, "<404 method 5>");
	SEND(&t->c[0], "GET /n/a/b HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 404, "<404 method 0>");
}

static void
a_body_of_a_get_is_read_and_not_looked_at(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0),
		"GET /hello HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello"
		"GET /n/x HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
		"1\r\na\r\n0\r\n\r\nGET /n/y HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, "{\"ok\":true}");
	reply_is(t, 200, "x");
	reply_is(t, 200, "y");
	SEND(&t->c[0], "GET /hello HTTP/1.1\r\n" H
		       "Content-Length: 104857600\r\n\r\n");
	reply_is(t, 413, "<413 request body too large>");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup_own, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_reply_has_type_and_headers_of_begin),
		T(each_refused_head_has_the_own_form),
		T(size_and_time_errors_have_the_own_form),
		T(unmatched_tells_an_unknown_path_from_a_wrong_method),
		T(a_body_of_a_get_is_read_and_not_looked_at),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
