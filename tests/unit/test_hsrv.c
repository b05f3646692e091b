/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server over real sockets: replies, order, framing, what is routed
 * where, and what the gate lets pass.
 */
#include "hsrv_routes.h"
#include "hsrv_vectors.h"

/* ---- replies ---- */

static void
a_get_is_answered_with_minimal_headers(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "GET /hello HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, "{\"ok\":true}");
	assert_true(span_is(last.head,
		"HTTP/1.1 200 OK\r\n"
		"Content-Type: application/json\r\nContent-Length: 11\r\n\r\n"));
}

static void
head_is_served_by_get_routes_without_body(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "HEAD /hello HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, head_came);
	assert_true(head_has(&last, "Content-Length: 11\r\n"));
	assert_int_equal(t->c[0].got.len, last.head.n);
	SEND(&t->c[0], "GET /hello HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, "{\"ok\":true}");
}

static void
a_204_has_no_body_and_no_length(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "GET /empty HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 204, "");
	assert_true(span_is(last.head, "HTTP/1.1 204 No Content\r\n\r\n"));
	SEND(&t->c[0], "GET /hello HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, "{\"ok\":true}");
}

static void
connection_close_and_http_1_0_are_honoured(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0),
		"GET /hello HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
	reply_is_last(t, 200, "{\"ok\":true}");
	SEND(client_open(t, 0), "GET /hello HTTP/1.0\r\n\r\n");
	reply_is_last(t, 200, "{\"ok\":true}");
	SEND(client_open(t, 0),
		"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	reply_is(t, 200, "{\"ok\":true}");
	assert_true(head_has(&last, "\r\nConnection: keep-alive\r\n"));
	SEND(&t->c[0], "GET /hello HTTP/1.0\r\n\r\n");
	reply_is_last(t, 200, "{\"ok\":true}");
}

static void
names_and_headers_reach_the_handler(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "GET /n/a%2Fb%20c?x=1&k=p+q%26 HTTP/1.1\r\n" H
				"X-Test:  v \r\n\r\n");
	reply_is(t, 200, "a/b c|p q&|v");
	assert_true(head_has(&last, "Content-Type: text/plain\r\n"));
	assert_true(head_has(&last, "X-One: 1\r\n"));
	assert_false(head_has(&last, "X-Forged"));
	assert_false(head_has(&last, "X-Two"));
	SEND(&t->c[0], "GET /rest/a/b%2Fc/ HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, "a/b/c/");
	SEND(&t->c[0], "GET http://other/n/x HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, "x");
}

static void
error_texts_are_valid_json_whatever_they_quote(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "GET /error HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, reply_came);
	assert_int_equal(last.status, 409);
	assert_memory_equal(
		last.body.p, "{\"error\":\"bad \\\"x\\\" ? 000", 24);
	assert_memory_equal(last.body.p + last.body.n - 4, "00\"}", 4);
}

static void
what_no_route_takes_goes_to_unmatched(void **state)
{
	static const char *const heads[] = {
		"GET /nope",
		"POST /hello",
		"BREW /hello",
		"OPTIONS *",
		"GET /hello/",
		"GET /n/",
		"GET /n/a/b",
		"GET /hello%2F",
	};
	struct t *t = *state;

	start(t);
	client_open(t, 0);
	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		client_send(&t->c[0], span_of(heads[i]));
		SEND(&t->c[0], " HTTP/1.1\r\n" H "\r\n");
		reply_is(t, 404, "{\"error\":\"Not Found\"}");
	}
	SEND(&t->c[0], "BREW /other HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, "{\"ok\":true}");
}

static void
drop_closes_without_an_answer(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "GET /drop HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, eof_came);
	assert_int_equal(t->c[0].got.len, 0);
}

static void
a_large_reply_to_a_slow_reader_is_whole(void **state)
{
	struct t *t = *state;

	t->big_bytes = 6 << 20;
	start(t);
	SEND(client_open(t, 0), "GET /big HTTP/1.1\r\n" H "\r\n"
				"GET /hello HTTP/1.1\r\n" H "\r\n");
	let_pass(t, 30); /* the socket is full by now */
	UNTIL(t, reply_came);
	assert_int_equal(last.body.n, 6 << 20);
	for (size_t i = 0; i < last.body.n; i++)
		if (last.body.p[i] != (char)('a' + i % 23))
			fail_msg("wrong byte at %zu", i);
	reply_is(t, 200, "{\"ok\":true}");
}

/* ---- order ---- */

static void
pipelined_requests_are_answered_in_order(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0),
		"GET /n/1 HTTP/1.1\r\n" H "\r\n"
		"POST /echo HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nab"
		"GET /nope HTTP/1.1\r\n" H "\r\n"
		"GET /n/2 HTTP/1.1\r\n" H "Connection: close\r\n\r\n"
		"GET /n/3 HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, "1");
	reply_is(t, 201, "ab");
	reply_is(t, 404, "{\"error\":\"Not Found\"}");
	reply_is_last(t, 200, "2");
}

static void
one_request_is_in_flight_at_a_time(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "GET /hold HTTP/1.1\r\n" H "\r\n"
				"GET /hello HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, one_is_held);
	SEND(&t->c[0], "GET /n/x HTTP/1.1\r\n" H "\r\n");
	let_pass(t, 20);
	assert_int_equal(t->handled, 1);
	client_read(&t->c[0]);
	assert_int_equal(t->c[0].got.len, 0);
	release(t, 0);
	reply_is(t, 200, "");
	reply_is(t, 200, "{\"ok\":true}");
	reply_is(t, 200, "x");
}

static bool
all_replies_came(struct t *t)
{
	struct reply r;

	client_read(&t->c[0]);
	while (take_reply(&t->c[0], &r, false)) {
		assert_int_equal(r.status, 200);
		t->expected--;
	}
	return t->expected == 0;
}

static void
a_long_pipeline_is_served_to_the_end(void **state)
{
	struct t *t = *state;

	start(t);
	client_open(t, 0);
	for (int i = 0; i < 1000; i++)
		SEND(&t->c[0], "GET /hello HTTP/1.1\r\n" H "\r\n");
	t->expected = 1000;
	UNTIL(t, all_replies_came);
	assert_int_equal(t->handled, 1000);
}

static void
bytes_one_by_one_make_the_same_request(void **state)
{
	static const char text[] =
		"POST /echo HTTP/1.1\r\n" H
		"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
	struct t *t = *state;

	start(t);
	client_open(t, 0);
	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		client_send(&t->c[0], span_make(text + i, 1));
		let_pass(t, 1);
	}
	reply_is(t, 201, "abcd");
}

/* ---- bodies ---- */

static void
large_bodies_arrive_whole(void **state)
{
	struct t *t = *state;
	struct buf body = BUF_ZERO, b = BUF_ZERO;
	struct hsrv_stats st;

	start(t);
	for (int i = 0; i < 5 << 20; i++)
		buf_putc(&body, (char)(i * 2654435761u >> 24));
	client_open(t, 0);
	buf_printf(&b,
		"POST /echo HTTP/1.1\r\n" H "Content-Length: %zu\r\n\r\n",
		body.len);
	buf_put_span(&b, buf_span(&body));
	send_all(t, &t->c[0], buf_span(&b));
	UNTIL(t, reply_came);
	assert_true(span_eq(last.body, buf_span(&body)));

	buf_reset(&b);
	buf_puts(&b, "POST /echo HTTP/1.1\r\n" H
		     "Transfer-Encoding: chunked\r\n\r\n");
	for (size_t at = 0, n = 1; at < body.len; at += n, n = n * 3 + 1) {
		if (n > body.len - at)
			n = body.len - at;
		buf_printf(&b, "%zx\r\n", n);
		buf_put(&b, body.p + at, n);
		buf_puts(&b, "\r\n");
	}
	buf_puts(&b, "0\r\n\r\n");
	send_all(t, &t->c[0], buf_span(&b));
	UNTIL(t, reply_came);
	assert_true(span_eq(last.body, buf_span(&body)));
	hsrv_stats(t->s, &st);
	assert_int_equal(st.body_bytes, 0);
	assert_int_equal(st.requests, 2);
	buf_fini(&body);
	buf_fini(&b);
}

static void
an_early_end_is_told(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0),
		"POST /echo HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nab");
	shutdown(t->c[0].fd, SHUT_WR);
	reply_is_last(t, 400, "{\"error\":\"request body ended early\"}");
	SEND(client_open(t, 0), "POST /echo HT");
	shutdown(t->c[0].fd, SHUT_WR);
	reply_is_last(t, 400, "{\"error\":\"request head ended early\"}");
	client_open(t, 0);
	shutdown(t->c[0].fd, SHUT_WR);
	UNTIL(t, eof_came);
	assert_int_equal(t->c[0].got.len, 0);
	assert_int_equal(t->handled, 0);
}

static void
each_refused_head_is_a_json_error_and_the_end(void **state)
{
	struct t *t = *state;
	struct vectors v;
	struct vector x;

	start(t);
	vectors_open(&v, "tests/data/http_heads.tsv");
	while (vectors_next(&v, &x)) {
		char body[200];

		if (x.verdict[0] == '0')
			continue;
		client_open(t, 0);
		send_all(t, &t->c[0], buf_span(&x.bytes));
		snprintf(body, sizeof(body), "{\"error\":\"%s\"}", x.text);
		reply_is_last(t, (int)strtol(x.verdict, NULL, 10), body);
		assert_true(
			head_has(&last, "Content-Type: application/json\r\n"));
	}
	vectors_close(&v);
	assert_int_equal(t->handled, 0);
}

static void
each_bad_chunk_is_a_json_error_and_the_end(void **state)
{
	struct t *t = *state;
	struct vectors v;
	struct vector x;

	start(t);
	vectors_open(&v, "tests/data/http_chunks.tsv");
	while (vectors_next(&v, &x)) {
		char body[200];

		if (strcmp(x.verdict, "bad") != 0)
			continue;
		SEND(client_open(t, 0), "POST /echo HTTP/1.1\r\n" H
					"Transfer-Encoding: chunked\r\n\r\n");
		send_all(t, &t->c[0], buf_span(&x.bytes));
		snprintf(body, sizeof(body), "{\"error\":\"%s\"}", x.text);
		reply_is_last(t, 400, body);
	}
	vectors_close(&v);
	assert_int_equal(t->handled, 0);
}

/* ---- gate ---- */

static void
continue_is_said_only_after_route_gate_and_size(void **state)
{
	static const struct {
		const char *head, *error;
		int status;
	} refused[] = {
		{ "POST /echo HTTP/1.1\r\nContent-Length: 99999999",
			"request body too large", 413 },
		{ "POST /nope HTTP/1.1\r\nContent-Length: 5", "Not Found",
			404 },
		{ "POST /secret HTTP/1.1\r\nContent-Length: 5",
			"Authentication required", 401 },
	};
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0),
		"POST /echo HTTP/1.1\r\n" H
		"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n");
	UNTIL(t, head_came);
	assert_true(span_is(last.head, "HTTP/1.1 100 Continue\r\n\r\n"));
	SEND(&t->c[0], "hello");
	reply_is(t, 201, "hello");
	/* the body is on its way already: not needed */
	SEND(&t->c[0],
		"POST /echo HTTP/1.1\r\n" H
		"Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello");
	reply_is(t, 201, "hello");
	for (size_t i = 0; i < 3; i++) {
		char body[80];

		snprintf(body, sizeof(body), "{\"error\":\"%s\"}",
			refused[i].error);
		client_send(client_open(t, 0), span_of(refused[i].head));
		SEND(&t->c[0], "\r\n" H "Expect: 100-continue\r\n\r\n");
		reply_is_last(t, refused[i].status, body);
	}
}

static void
the_gate_decides_before_the_body(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0),
		"POST /secret HTTP/1.1\r\n" H "Content-Length: 1000\r\n\r\n");
	reply_is_last(t, 401, "{\"error\":\"Authentication required\"}");
	assert_int_equal(t->gates, 1);
	assert_int_equal(t->handled, 0);
	/* a short body in hand is jumped over, the connection lives on */
	SEND(client_open(t, 0),
		"POST /secret HTTP/1.1\r\n" H
		"Content-Length: 5\r\n\r\nhelloGET /n/x HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 401, "{\"error\":\"Authentication required\"}");
	assert_false(head_has(&last, "Connection"));
	reply_is(t, 200, "x");
}

static void
the_gate_may_keep_a_request(void **state)
{
	struct t *t = *state;

	start(t);
	/* let go: the body is read then, the next request after it */
	SEND(client_open(t, 0),
		"POST /asked HTTP/1.1\r\n" H
		"Content-Length: 5\r\n\r\nhelloGET /n/x HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, one_is_held);
	assert_int_equal(t->handled, 0);
	hsrv_gate_pass(t->held[0]);
	reply_is(t, 201, "hello");
	reply_is(t, 200, "x");
	/* refused later: a body that was not read ends the connection */
	t->held_n = 0;
	SEND(client_open(t, 0), "POST /asked HTTP/1.1\r\n" H
				"Content-Length: 1000\r\n\r\nhello");
	UNTIL(t, one_is_held);
	hsrv_reply_error(t->held[0], 401, "Unknown key ID");
	reply_is_last(t, 401, "{\"error\":\"Unknown key ID\"}");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_get_is_answered_with_minimal_headers),
		T(head_is_served_by_get_routes_without_body),
		T(a_204_has_no_body_and_no_length),
		T(connection_close_and_http_1_0_are_honoured),
		T(names_and_headers_reach_the_handler),
		T(error_texts_are_valid_json_whatever_they_quote),
		T(what_no_route_takes_goes_to_unmatched),
		T(drop_closes_without_an_answer),
		T(a_large_reply_to_a_slow_reader_is_whole),
		T(pipelined_requests_are_answered_in_order),
		T(one_request_is_in_flight_at_a_time),
		T(a_long_pipeline_is_served_to_the_end),
		T(bytes_one_by_one_make_the_same_request),
		T(large_bodies_arrive_whole),
		T(continue_is_said_only_after_route_gate_and_size),
		T(the_gate_decides_before_the_body),
		T(the_gate_may_keep_a_request),
		T(each_refused_head_is_a_json_error_and_the_end),
		T(each_bad_chunk_is_a_json_error_and_the_end),
		T(an_early_end_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
