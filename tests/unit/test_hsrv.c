/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server over real sockets: order, framing, deadlines, memory, the
 * parked client that leaves, drain.  Deadlines are shortened by hsrv_conf.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>

#include "hsrv_client.h"
#include "hsrv_vectors.h"

/* ---- routes ---- */

static void
do_hello(struct hsrv_req *r)
{
	struct t *t = hsrv_ctx(r);

	t->handled++;
	buf_puts(hsrv_out(r), "{\"ok\":true}");
	hsrv_reply(r, 200);
}

static void
do_echo(struct hsrv_req *r)
{
	struct t *t = hsrv_ctx(r);

	t->handled++;
	buf_put_span(hsrv_out(r), hsrv_body(r));
	hsrv_reply(r, 201);
}

static void
do_empty(struct hsrv_req *r)
{
	hsrv_reply(r, 204);
}

static void
do_big(struct hsrv_req *r)
{
	struct t *t = hsrv_ctx(r);

	struct buf *out = hsrv_out(r);
	char *p = buf_reserve(out, t->big_bytes);

	for (size_t i = 0; i < t->big_bytes; i++)
		p[i] = (char)('a' + i % 23);
	out->len = t->big_bytes;
	hsrv_reply(r, 200);
}

static void
do_hold(struct hsrv_req *r)
{
	struct t *t = hsrv_ctx(r);

	t->handled++;
	t->held[t->held_n++] = r;
}

static void
on_gone(struct hsrv_req *r)
{
	struct t *t = hsrv_ctx(r);

	assert_true(hsrv_is_gone(r));
	t->gone++;
	hsrv_drop(r);
}

static void
do_park(struct hsrv_req *r)
{
	do_hold(r);
	hsrv_park(r, on_gone);
}

static void
do_name(struct hsrv_req *r)
{
	struct span q;

	buf_put_span(hsrv_out(r), hsrv_param(r, 0));
	if (hsrv_query(r, "k", &q)) {
		buf_putc(hsrv_out(r), '|');
		buf_put_span(hsrv_out(r), q);
	}
	if (hsrv_header(r, "x-TEST", &q)) {
		buf_putc(hsrv_out(r), '|');
		buf_put_span(hsrv_out(r), q);
	}
	hsrv_set_type(r, "text/plain");
	hsrv_add_header(r, "X-One", "1");
	hsrv_add_header(r, "X-Forged", "1\r\nX-Two: 2");
	hsrv_reply(r, 200);
}

static void
do_error(struct hsrv_req *r)
{
	hsrv_reply_error(r, 409, "bad \"%s\" \xff %0600d", "x", 7);
}

static void
do_none(struct hsrv_req *r)
{
	assert_int_equal(hsrv_body(r).n, 0);
	hsrv_reply_error(r, 404, "Not Found");
}

static void
do_drop(struct hsrv_req *r)
{
	hsrv_drop(r);
}

static bool
gate(struct hsrv_req *r, int level)
{
	struct t *t = hsrv_ctx(r);

	t->gates++;
	if (level == HSRV_NO_ROUTE || level == 0)
		return true;
	if (level == 2) {
		t->held[t->held_n++] = r;
		return false;
	}
	hsrv_reply_error(r, 401, "Authentication required");
	return false;
}

static const struct hsrv_route routes[] = {
	{ HSRV_GET, "/hello", do_hello, 0 },
	{ HSRV_POST, "/echo", do_echo, 0 },
	{ HSRV_POST, "/secret", do_echo, 1 },
	{ HSRV_POST, "/asked", do_echo, 2 },
	{ HSRV_GET, "/empty", do_empty, 0 },
	{ HSRV_GET, "/big", do_big, 0 },
	{ HSRV_GET, "/hold", do_hold, 0 },
	{ HSRV_POST, "/hold", do_hold, 0 },
	{ HSRV_GET, "/park", do_park, 0 },
	{ HSRV_GET, "/n/:name", do_name, 0 },
	{ HSRV_GET, "/rest/*rest", do_name, 0 },
	{ HSRV_GET, "/error", do_error, 0 },
	{ HSRV_GET, "/drop", do_drop, 0 },
	{ HSRV_OTHER, "/other", do_hello, 0 },
};

/* ---- fixture ---- */

static void
start(struct t *t)
{
	struct err e = ERR_ZERO;

	t->s = hsrv_new(t->loop, &t->conf);
	if (hsrv_listen(t->s, "127.0.0.1", 0, &e) < 0)
		fail_msg("%s", e.text);
}

static int
setup(void **state)
{
	struct t *t = calloc(1, sizeof(*t));

	t->loop = loop_new();
	loop_timer_init(&t->tick, t->loop, on_tick, t);
	t->conf = (struct hsrv_conf){
		.routes = routes,
		.routes_n = sizeof(routes) / sizeof(*routes),
		.gate = gate,
		.unmatched = do_none,
		.ctx = t,
		.max_body_bytes = 8 << 20,
		.memory_bytes = 64 << 20,
	};
	for (int i = 0; i < CLIENTS_MAX; i++)
		t->c[i].fd = -1;
	*state = t;
	return 0;
}

static int
teardown(void **state)
{
	struct t *t = *state;

	for (int i = 0; i < CLIENTS_MAX; i++)
		client_close(&t->c[i]);
	hsrv_free(t->s);
	loop_timer_fini(&t->tick);
	loop_free(t->loop);
	free(t);
	return 0;
}

/* ---- conditions ---- */

static struct reply last;

static bool
reply_came(struct t *t)
{
	client_read(&t->c[0]);
	return take_reply(&t->c[0], &last, false);
}

static bool
head_came(struct t *t)
{
	client_read(&t->c[0]);
	return take_reply(&t->c[0], &last, true);
}

static bool
eof_came(struct t *t)
{
	client_read(&t->c[0]);
	return t->c[0].eof;
}

static bool
reply_1_came(struct t *t)
{
	client_read(&t->c[1]);
	return take_reply(&t->c[1], &last, false);
}

static bool
one_is_held(struct t *t)
{
	return t->held_n == 1;
}

static bool
two_are_held(struct t *t)
{
	return t->held_n == 2;
}

static bool
one_is_gone(struct t *t)
{
	return t->gone == 1;
}

static bool
no_connection(struct t *t)
{
	struct hsrv_stats st;

	hsrv_stats(t->s, &st);
	return st.connections == 0;
}

static void
reply_is(struct t *t, int status, const char *body)
{
	UNTIL(t, reply_came);
	if (last.status != status || !span_is(last.body, body))
		fail_msg("%d %.*s", last.status, SPAN_ARG(last.body));
}

/* The answer, whole, then the end without a reset. */
static void
reply_is_last(struct t *t, int status, const char *body)
{
	reply_is(t, status, body);
	assert_true(head_has(&last, "\r\nConnection: close\r\n"));
	UNTIL(t, eof_came);
	assert_false(t->c[0].reset);
}

static void
release(struct t *t, int i)
{
	hsrv_reply(t->held[i], 200);
}

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
send_all(struct t *t, struct client *c, struct span s)
{
	while (s.n) {
		ssize_t n = send(c->fd, s.p, s.n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			s = span_make(s.p + n, s.n - (size_t)n);
			continue;
		}
		assert_int_equal(errno, EAGAIN);
		let_pass(t, 1);
	}
}

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
too_large_is_413_before_the_body_and_arrives(void **state)
{
	struct t *t = *state;
	struct buf junk = BUF_ZERO;

	start(t);
	SEND(client_open(t, 0), "POST /echo HTTP/1.1\r\n" H
				"Content-Length: 104857600\r\n\r\n");
	reply_is(t, 413, "{\"error\":\"request body too large\"}");
	/* a client that goes on sending still reads it */
	SEND(client_open(t, 0), "POST /echo HTTP/1.1\r\n" H
				"Content-Length: 104857600\r\n\r\n");
	for (int i = 0; i < 200 << 10; i++)
		buf_putc(&junk, 'x');
	send_all(t, &t->c[0], buf_span(&junk));
	let_pass(t, 20);
	send_all(t, &t->c[0], span_make("xxxx", 4));
	reply_is(t, 413, "{\"error\":\"request body too large\"}");
	shutdown(t->c[0].fd, SHUT_WR);
	UNTIL(t, eof_came);
	assert_false(t->c[0].reset);
	assert_int_equal(t->handled, 0);
	/* chunks: as soon as a size promises too much */
	SEND(client_open(t, 0),
		"POST /echo HTTP/1.1\r\n" H
		"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n800000\r\n");
	reply_is_last(t, 413, "{\"error\":\"request body too large\"}");
	buf_fini(&junk);
}

static void
lingering_ends_after_its_time(void **state)
{
	struct t *t = *state;
	int64_t from;

	t->conf.linger_ms = 100;
	start(t);
	SEND(client_open(t, 0), "POST /echo HTTP/1.1\r\n" H
				"Content-Length: 104857600\r\n\r\n");
	reply_is(t, 413, "{\"error\":\"request body too large\"}");
	from = clk_mono_ms();
	UNTIL(t, no_connection);
	assert_in_range(clk_mono_ms() - from, 50, 9000);
}

static void
lingering_ends_after_256_kib(void **state)
{
	struct t *t = *state;
	char junk[4096] = { 0 };
	size_t sent = 0;

	t->conf.linger_ms = 60000;
	start(t);
	SEND(client_open(t, 0), "POST /echo HTTP/1.1\r\n" H
				"Content-Length: 104857600\r\n\r\n");
	while (sent < 64 << 20) {
		ssize_t n = send(t->c[0].fd, junk, sizeof(junk),
			MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN)
			break;
		sent += n > 0 ? (size_t)n : 0;
		let_pass(t, 0);
	}
	assert_in_range(sent, 256 << 10, 32 << 20);
	assert_true(no_connection(t));
}

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

static bool
one_connection(struct t *t)
{
	struct hsrv_stats st;

	hsrv_stats(t->s, &st);
	return st.connections == 1;
}

static void
a_reset_right_behind_the_bytes_is_noticed(void **state)
{
	static const char *const parts[] = {
		"GET /hel",
		"POST /echo HTTP/1.1\r\n" H "Content-Length: 100000\r\n\r\nabc",
		"GET /hello HTTP/1.1\r\n" H "\r\n",
		"GET /hello HTTP/1.1\r\n" H "\r\nGET",
		"POST /echo HTTP/1.1\r\n" H "Content-Length: x\r\n\r\n",
	};
	struct t *t = *state;

	t->conf.head_timeout_ms = t->conf.body_timeout_ms = 60000;
	t->conf.linger_ms = 60000;
	start(t);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		client_open(t, 0);
		UNTIL(t, one_connection);
		/* both are there when the server looks */
		client_send(&t->c[0], span_of(parts[i]));
		client_reset(&t->c[0]);
		UNTIL(t, no_connection);
	}
}

/* ---- deadlines ---- */

/* One more byte every few ms until the server has had enough. */
static bool
trickle_until_reply(struct t *t)
{
	static int n;

	if (++n % 8 == 0)
		send(t->c[0].fd, "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	return reply_came(t);
}

static void
the_head_deadline_counts_from_its_first_byte(void **state)
{
	struct t *t = *state;
	int64_t from;

	t->conf.head_timeout_ms = 200;
	start(t);
	client_open(t, 0);
	let_pass(t, 250); /* idle time does not count */
	from = clk_mono_ms();
	SEND(&t->c[0], "GET /hello HTTP/1.1\r\nX: ");
	UNTIL(t, trickle_until_reply);
	assert_int_equal(last.status, 408);
	assert_true(span_is(
		last.body, "{\"error\":\"request head took too long\"}"));
	assert_in_range(clk_mono_ms() - from, 150, 9000);
}

static void
the_body_deadline_is_not_restarted_per_byte(void **state)
{
	struct t *t = *state;
	int64_t from;

	t->conf.body_timeout_ms = 200;
	start(t);
	from = clk_mono_ms();
	SEND(client_open(t, 0),
		"POST /echo HTTP/1.1\r\n" H "Content-Length: 1000000\r\n\r\n");
	UNTIL(t, trickle_until_reply);
	assert_int_equal(last.status, 408);
	assert_true(span_is(
		last.body, "{\"error\":\"request body took too long\"}"));
	assert_in_range(clk_mono_ms() - from, 150, 9000);
}

static void
received_bytes_extend_the_body_deadline(void **state)
{
	struct t *t = *state;
	char part[32 << 10];
	int64_t from;

	t->conf.body_timeout_ms = 50;
	start(t);
	from = clk_mono_ms();
	SEND(client_open(t, 0),
		"POST /echo HTTP/1.1\r\n" H "Content-Length: 1000000\r\n\r\n");
	memset(part, 'x', sizeof(part));
	client_send(&t->c[0], span_make(part, sizeof(part)));
	UNTIL(t, reply_came);
	assert_int_equal(last.status, 408);
	/* 50 ms and half a second for 32 KiB */
	assert_in_range(clk_mono_ms() - from, 500, 9000);
}

static void
idle_connections_are_closed_in_time(void **state)
{
	struct t *t = *state;
	int64_t from = clk_mono_ms();

	t->conf.idle_timeout_ms = 150;
	start(t);
	client_open(t, 0);
	UNTIL(t, eof_came);
	assert_in_range(clk_mono_ms() - from, 140, 9000);
	assert_int_equal(t->c[0].got.len, 0);
	/* and after a request again from zero; a held request is not idle */
	SEND(client_open(t, 0), "GET /hold HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, one_is_held);
	let_pass(t, 250);
	release(t, 0);
	reply_is(t, 200, "");
	from = clk_mono_ms();
	UNTIL(t, eof_came);
	assert_in_range(clk_mono_ms() - from, 100, 9000);
}

static void
a_reader_that_stalls_is_closed(void **state)
{
	struct t *t = *state;
	int64_t from = clk_mono_ms();

	t->conf.write_timeout_ms = 150;
	t->big_bytes = 32 << 20;
	start(t);
	SEND(client_open(t, 0), "GET /big HTTP/1.1\r\n" H "\r\n");
	let_pass(t, 30);
	UNTIL(t, no_connection);
	assert_in_range(clk_mono_ms() - from, 140, 9000);
}

static bool
one_of_two_is_left(struct t *t)
{
	struct hsrv_stats st;

	hsrv_stats(t->s, &st);
	return st.accepted == 2 && st.connections == 1;
}

static void
unread_replies_above_the_bound_cost_the_slowest_its_connection(void **state)
{
	struct t *t = *state;

	t->conf.memory_bytes = 40 << 20;
	t->big_bytes = 32 << 20;
	start(t);
	SEND(client_open(t, 0), "GET /big HTTP/1.1\r\n" H "\r\n");
	let_pass(t, 30);
	SEND(client_open(t, 1), "GET /big HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, one_of_two_is_left);
	/* the younger is read to its end */
	UNTIL(t, reply_1_came);
	assert_int_equal(last.status, 200);
	assert_int_equal(last.body.n, 32 << 20);
}

/* ---- memory ---- */

static int64_t
body_bytes(struct t *t)
{
	struct hsrv_stats st;

	hsrv_stats(t->s, &st);
	return st.body_bytes;
}

static void
post_hold(struct t *t, int i, size_t n)
{
	struct buf b = BUF_ZERO;

	buf_printf(&b,
		"POST /hold HTTP/1.1\r\n" H "Content-Length: %zu\r\n\r\n", n);
	client_send(client_open(t, i), buf_span(&b));
	let_pass(t, 5);
	buf_reset(&b);
	memset(buf_reserve(&b, n), 'x', n);
	b.len = n;
	send_all(t, &t->c[i], buf_span(&b));
	buf_fini(&b);
}

static void
above_the_memory_bound_reading_pauses_and_resumes(void **state)
{
	struct t *t = *state;

	t->conf.memory_bytes = 100000;
	t->conf.memory_wait_ms = 5000;
	/* while it waits for memory the client's own clock stands still */
	t->conf.body_timeout_ms = 300;
	start(t);
	post_hold(t, 0, 100000);
	UNTIL(t, one_is_held);
	assert_int_equal(body_bytes(t), 100000);
	post_hold(t, 1, 100000);
	let_pass(t, 500);
	assert_int_equal(t->held_n, 1);
	assert_int_equal(body_bytes(t), 100000);
	/* requests without a body are served all the while */
	SEND(client_open(t, 2), "GET /hello HTTP/1.1\r\n" H "\r\n");
	let_pass(t, 5);
	assert_int_equal(t->handled, 2);
	release(t, 0);
	UNTIL(t, two_are_held);
	assert_int_equal(hsrv_body(t->held[1]).n, 100000);
	release(t, 1);
	UNTIL(t, reply_1_came);
	assert_int_equal(last.status, 200);
	assert_int_equal(body_bytes(t), 0);
}

static void
waiting_too_long_for_memory_is_503(void **state)
{
	struct t *t = *state;
	int64_t from;

	t->conf.memory_bytes = 100000;
	t->conf.memory_wait_ms = 150;
	start(t);
	post_hold(t, 1, 100000);
	UNTIL(t, one_is_held);
	from = clk_mono_ms();
	post_hold(t, 0, 50000);
	reply_is(t, 503,
		"{\"error\":\"no memory for request bodies, try later\"}");
	assert_true(head_has(&last, "Connection: close\r\n"));
	assert_in_range(clk_mono_ms() - from, 140, 9000);
	release(t, 0);
	assert_int_equal(body_bytes(t), 0);
}

static void
pipelined_bytes_count_as_memory(void **state)
{
	struct t *t = *state;
	char junk[60000];

	t->conf.memory_bytes = 50000;
	t->conf.memory_wait_ms = 100;
	start(t);
	memset(junk, 'x', sizeof(junk));
	SEND(client_open(t, 1), "GET /hold HTTP/1.1\r\n" H "\r\n");
	client_send(&t->c[1], span_make(junk, sizeof(junk)));
	UNTIL(t, one_is_held);
	post_hold(t, 0, 50000);
	reply_is(t, 503,
		"{\"error\":\"no memory for request bodies, try later\"}");
	client_reset(&t->c[1]);
	let_pass(t, 5);
	release(t, 0);
	post_hold(t, 1, 40000);
	UNTIL(t, two_are_held);
}

static size_t
heap_bytes(void)
{
#ifdef __SANITIZE_ADDRESS__
	return 0;
#else
	return mallinfo2().uordblks + mallinfo2().hblkhd;
#endif
}

static void
an_announced_length_costs_nothing(void **state)
{
	struct t *t = *state;
	size_t before;

	t->conf.max_body_bytes = INT64_C(1) << 40;
	start(t);
	client_open(t, 0);
	let_pass(t, 5);
	before = heap_bytes();
	SEND(&t->c[0], "POST /echo HTTP/1.1\r\n" H
		       "Content-Length: 99999999999\r\n\r\nx");
	let_pass(t, 20);
	assert_int_equal(body_bytes(t), 1);
	assert_in_range(heap_bytes() - before, 0, 64 << 10);
}

static bool
all_accepted(struct t *t)
{
	struct hsrv_stats st;

	hsrv_stats(t->s, &st);
	return st.connections == t->held_n;
}

static void
five_thousand_idle_connections_are_cheap(void **state)
{
	struct t *t = *state;
	struct rlimit old, all;
	int n = 5000, *fds;
	size_t before, each;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	all = old;
	all.rlim_cur = all.rlim_max;
	setrlimit(RLIMIT_NOFILE, &all);
	if (all.rlim_cur < 10100)
		n = (int)(all.rlim_cur - 100) / 2;
	fds = calloc((size_t)n, sizeof(*fds));
	start(t);
	before = heap_bytes();
	for (int i = 0; i < n; i++) {
		fds[i] = client_fd(hsrv_port(t->s));
		client_send(&(struct client){ .fd = fds[i] },
			SPAN_LIT("GET /hello HTTP/1.1\r\n" H "\r\n"));
		if (i % 500 == 499) {
			t->held_n = i + 1;
			UNTIL(t, all_accepted);
		}
	}
	let_pass(t, 5);
	assert_int_equal(t->handled, n);
	each = (heap_bytes() - before) / (size_t)n;
	print_message("%d idle connections, %zu bytes each\n", n, each);
	assert_in_range(each, 0, 8192);
	for (int i = 0; i < n; i++)
		close(fds[i]);
	free(fds);
	UNTIL(t, no_connection);
	setrlimit(RLIMIT_NOFILE, &old);
}

/* ---- parked ---- */

static void
park_one(struct t *t)
{
	SEND(client_open(t, 0), "GET /park HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, one_is_held);
}

static void
a_parked_client_that_closes_is_noticed(void **state)
{
	struct t *t = *state;
	struct hsrv_stats st;

	start(t);
	park_one(t);
	hsrv_stats(t->s, &st);
	assert_int_equal(st.parked, 1);
	client_close(&t->c[0]);
	UNTIL(t, one_is_gone);
	let_pass(t, 5);
	assert_int_equal(t->gone, 1);
	hsrv_stats(t->s, &st);
	assert_int_equal(st.parked, 0);
	assert_int_equal(st.connections, 0);
}

static void
a_parked_client_that_resets_is_noticed(void **state)
{
	struct t *t = *state;

	start(t);
	park_one(t);
	client_reset(&t->c[0]);
	UNTIL(t, one_is_gone);
	assert_true(no_connection(t));
}

static void
a_half_closed_client_counts_as_gone_while_parked(void **state)
{
	struct t *t = *state;

	start(t);
	park_one(t);
	shutdown(t->c[0].fd, SHUT_WR);
	UNTIL(t, one_is_gone);
	UNTIL(t, eof_came);
	assert_int_equal(t->c[0].got.len, 0);
}

static void
a_half_closed_client_is_answered_when_not_parked(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "GET /hold HTTP/1.1\r\n" H "\r\n");
	shutdown(t->c[0].fd, SHUT_WR);
	UNTIL(t, one_is_held);
	let_pass(t, 5);
	assert_false(hsrv_is_gone(t->held[0]));
	release(t, 0);
	reply_is(t, 200, "");
	UNTIL(t, eof_came);
}

static void
pipelined_bytes_do_not_hide_that_a_client_left(void **state)
{
	struct t *t = *state;
	char junk[8192];
	int64_t cpu;

	memset(junk, 'x', sizeof(junk));
	start(t);
	/* some arrive with the request, some later, more than we would read */
	SEND(client_open(t, 0), "GET /park HTTP/1.1\r\n" H "\r\nGET /hello HT");
	UNTIL(t, one_is_held);
	while (send(t->c[0].fd, junk, sizeof(junk),
		       MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	cpu = clock();
	let_pass(t, 200);
	/* waiting, not spinning */
	assert_in_range((clock() - cpu) * 1000 / CLOCKS_PER_SEC, 0, 100);
	assert_int_equal(t->gone, 0);
	shutdown(t->c[0].fd, SHUT_WR);
	client_reset(&t->c[0]);
	UNTIL(t, one_is_gone);
}

static void
a_pipelined_request_waits_behind_a_parked_one(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "GET /park HTTP/1.1\r\n" H "\r\n"
				"GET /n/x HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, one_is_held);
	SEND(&t->c[0], "GET /n/y HTTP/1.1\r\n" H "\r\n");
	let_pass(t, 5);
	release(t, 0);
	reply_is(t, 200, "");
	reply_is(t, 200, "x");
	reply_is(t, 200, "y");
	assert_int_equal(t->gone, 0);
}

static void
a_client_that_left_before_the_park_is_told_after_it(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "GET /hold HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, one_is_held);
	client_close(&t->c[0]);
	let_pass(t, 5);
	assert_int_equal(t->gone, 0);
	hsrv_park(t->held[0], on_gone);
	assert_int_equal(t->gone, 0); /* never from inside the call */
	UNTIL(t, one_is_gone);
}

static void
after_unpark_nobody_is_told(void **state)
{
	struct t *t = *state;

	start(t);
	park_one(t);
	hsrv_unpark(t->held[0]);
	client_close(&t->c[0]);
	let_pass(t, 20);
	assert_int_equal(t->gone, 0);
	/* parked again: now it is due, once */
	hsrv_park(t->held[0], on_gone);
	hsrv_unpark(t->held[0]);
	let_pass(t, 5);
	assert_int_equal(t->gone, 0);
	hsrv_park(t->held[0], on_gone);
	UNTIL(t, one_is_gone);
	let_pass(t, 5);
	assert_int_equal(t->gone, 1);
}

static void
a_reset_is_known_without_parking(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "GET /hold HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, one_is_held);
	client_reset(&t->c[0]);
	let_pass(t, 20);
	assert_true(hsrv_is_gone(t->held[0]));
	release(t, 0);
	assert_true(no_connection(t));
}

/* ---- listeners and drain ---- */

static void
names_ipv6_and_bad_addresses(void **state)
{
	struct t *t = *state;
	struct err e = ERR_ZERO;
	struct sockaddr_in6 sa = { .sin6_family = AF_INET6,
		.sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd, port;

	t->s = hsrv_new(t->loop, &t->conf);
	assert_int_equal(hsrv_listen(t->s, "localhost", 0, &e), 0);
	port = hsrv_port(t->s);
	assert_true(port > 0);
	SEND(client_open(t, 0), "GET /hello HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, "{\"ok\":true}");
	/* SO_REUSEPORT: a second process may share the port */
	assert_int_equal(hsrv_listen(t->s, "127.0.0.1", port, &e), 0);
	assert_int_equal(hsrv_listen(t->s, "no.such.host.invalid", 0, &e), -1);
	assert_int_equal(e.kind, ERR_IO);
	assert_non_null(strstr(e.text, "no.such.host.invalid"));
	assert_int_equal(hsrv_listen(t->s, "192.0.2.1", 0, &e), -1);
	assert_int_equal(e.kind, ERR_IO);
	if (hsrv_listen(t->s, "::1", port, &e) < 0)
		return; /* a machine without IPv6 */
	sa.sin6_port = htons((uint16_t)port);
	fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	client_close(&t->c[0]);
	t->c[0].fd = fd;
	SEND(&t->c[0], "GET /hello HTTP/1.1\r\n" H "\r\n");
	reply_is(t, 200, "{\"ok\":true}");
}

static void
out_of_descriptors_pauses_and_recovers(void **state)
{
	struct t *t = *state;
	struct rlimit old, low;
	int64_t cpu;
	int next;

	start(t);
	client_open(t, 0);
	next = dup(0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = (rlim_t)next;
	setrlimit(RLIMIT_NOFILE, &low);
	SEND(&t->c[0], "GET /hello HTTP/1.1\r\n" H "\r\n");
	cpu = clock();
	let_pass(t, 250);
	assert_in_range((clock() - cpu) * 1000 / CLOCKS_PER_SEC, 0, 100);
	assert_true(no_connection(t));
	setrlimit(RLIMIT_NOFILE, &old);
	reply_is(t, 200, "{\"ok\":true}");
}

static void
on_drained(void *arg)
{
	struct t *t = arg;

	t->drained++;
}

static bool
is_drained(struct t *t)
{
	return t->drained == 1;
}

static void
drain_answers_what_is_in_hand_and_closes_the_rest(void **state)
{
	struct t *t = *state;
	int port;

	start(t);
	port = hsrv_port(t->s);
	SEND(client_open(t, 2), "GET /hello HTTP/1.1\r\n" H "\r\n");
	SEND(client_open(t, 0), "GET /hold HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, one_is_held);
	let_pass(t, 5);
	/* still in the accept queue, with a request */
	SEND(client_open(t, 1), "GET /n/late HTTP/1.1\r\n" H "\r\n");
	hsrv_drain(t->s, 5000, on_drained, t);
	UNTIL(t, reply_1_came);
	assert_true(span_is(last.body, "late"));
	assert_true(head_has(&last, "Connection: close\r\n"));
	let_pass(t, 5);
	client_read(&t->c[2]);
	assert_true(t->c[2].eof && !t->c[2].reset); /* was idle */
	assert_int_equal(t->drained, 0);
	release(t, 0);
	reply_is_last(t, 200, "");
	UNTIL(t, is_drained);
	client_close(&t->c[0]);
	t->c[0].fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(
		connect(t->c[0].fd,
			(struct sockaddr *)&(struct sockaddr_in){
				.sin_family = AF_INET,
				.sin_port = htons((uint16_t)port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK) },
			sizeof(struct sockaddr_in)),
		-1);
	let_pass(t, 5);
	assert_int_equal(t->drained, 1);
}

static void
drain_waits_for_who_was_only_queued(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 1), "GET /hello HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, reply_1_came);
	SEND(client_open(t, 0), "GET /hold HTTP/1.1\r\n" H "\r\n");
	hsrv_drain(t->s, 5000, on_drained, t);
	UNTIL(t, one_is_held);
	let_pass(t, 20);
	assert_int_equal(t->drained, 0);
	release(t, 0);
	reply_is_last(t, 200, "");
	UNTIL(t, is_drained);
}

static void
drain_without_connections_is_done_at_once(void **state)
{
	struct t *t = *state;

	start(t);
	hsrv_drain(t->s, 60000, on_drained, t);
	assert_int_equal(t->drained, 0);
	UNTIL(t, is_drained);
}

static void
drain_ends_after_its_grace(void **state)
{
	struct t *t = *state;
	int64_t from = clk_mono_ms();

	start(t);
	SEND(client_open(t, 0), "GET /hold HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, one_is_held);
	hsrv_drain(t->s, 100, on_drained, t);
	UNTIL(t, is_drained);
	assert_in_range(clk_mono_ms() - from, 90, 9000);
	release(t, 0);
	reply_is_last(t, 200, "");
	let_pass(t, 20);
	assert_int_equal(t->drained, 1);
}

static void
free_ends_what_is_still_open(void **state)
{
	struct t *t = *state;

	start(t);
	SEND(client_open(t, 0), "GET /park HTTP/1.1\r\n" H "\r\n");
	UNTIL(t, one_is_held);
	SEND(client_open(t, 1),
		"POST /echo HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nab");
	client_open(t, 2);
	let_pass(t, 5);
	hsrv_free(t->s);
	t->s = NULL;
	UNTIL(t, eof_came);
	assert_int_equal(t->gone, 0);
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
		T(too_large_is_413_before_the_body_and_arrives),
		T(lingering_ends_after_its_time),
		T(lingering_ends_after_256_kib),
		T(continue_is_said_only_after_route_gate_and_size),
		T(the_gate_decides_before_the_body),
		T(the_gate_may_keep_a_request),
		T(each_refused_head_is_a_json_error_and_the_end),
		T(each_bad_chunk_is_a_json_error_and_the_end),
		T(an_early_end_is_told),
		T(a_reset_right_behind_the_bytes_is_noticed),
		T(the_head_deadline_counts_from_its_first_byte),
		T(the_body_deadline_is_not_restarted_per_byte),
		T(received_bytes_extend_the_body_deadline),
		T(idle_connections_are_closed_in_time),
		T(a_reader_that_stalls_is_closed),
		T(unread_replies_above_the_bound_cost_the_slowest_its_connection),
		T(above_the_memory_bound_reading_pauses_and_resumes),
		T(waiting_too_long_for_memory_is_503),
		T(pipelined_bytes_count_as_memory),
		T(an_announced_length_costs_nothing),
		T(five_thousand_idle_connections_are_cheap),
		T(a_parked_client_that_closes_is_noticed),
		T(a_parked_client_that_resets_is_noticed),
		T(a_half_closed_client_counts_as_gone_while_parked),
		T(a_half_closed_client_is_answered_when_not_parked),
		T(pipelined_bytes_do_not_hide_that_a_client_left),
		T(a_pipelined_request_waits_behind_a_parked_one),
		T(a_client_that_left_before_the_park_is_told_after_it),
		T(after_unpark_nobody_is_told),
		T(a_reset_is_known_without_parking),
		T(names_ipv6_and_bad_addresses),
		T(out_of_descriptors_pauses_and_recovers),
		T(drain_answers_what_is_in_hand_and_closes_the_rest),
		T(drain_waits_for_who_was_only_queued),
		T(drain_without_connections_is_done_at_once),
		T(drain_ends_after_its_grace),
		T(free_ends_what_is_still_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
