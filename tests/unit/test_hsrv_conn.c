/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of the HTTP server: the client that leaves, parked or not;
 * listeners and drain.
 */
#include <sys/resource.h>

#include "hsrv_routes.h"

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
a_port_of_its_own_is_not_shared(void **state)
{
	struct t *t = *state;
	struct hsrv *shares;
	struct err e = ERR_ZERO;
	int port;

	shares = hsrv_new(t->loop, &t->conf);
	t->conf.own_port = true;
	t->s = hsrv_new(t->loop, &t->conf);
	assert_int_equal(hsrv_listen(t->s, "127.0.0.1", 0, &e), 0);
	port = hsrv_port(t->s);
	assert_int_equal(hsrv_listen(shares, "127.0.0.1", port, &e), -1);
	assert_int_equal(e.kind, ERR_IO);
	assert_int_equal(hsrv_listen(shares, "127.0.0.1", 0, &e), 0);
	port = hsrv_port(shares);
	assert_int_equal(hsrv_listen(t->s, "127.0.0.1", port, &e), -1);
	hsrv_free(shares);
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
		T(a_reset_right_behind_the_bytes_is_noticed),
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
		T(a_port_of_its_own_is_not_shared),
		T(out_of_descriptors_pauses_and_recovers),
		T(drain_answers_what_is_in_hand_and_closes_the_rest),
		T(drain_waits_for_who_was_only_queued),
		T(drain_without_connections_is_done_at_once),
		T(drain_ends_after_its_grace),
		T(free_ends_what_is_still_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
