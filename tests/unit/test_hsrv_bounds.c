/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounds of the HTTP server: sizes, deadlines and memory.  Deadlines are
 * shortened by hsrv_conf.
 */
#include <errno.h>
#include <malloc.h>
#include <sys/resource.h>

#include "hsrv_routes.h"

/* ---- sizes ---- */

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
	t->conf.busy_status = 429; /* a server may say it so */
	start(t);
	memset(junk, 'x', sizeof(junk));
	SEND(client_open(t, 1), "GET /hold HTTP/1.1\r\n" H "\r\n");
	client_send(&t->c[1], span_make(junk, sizeof(junk)));
	UNTIL(t, one_is_held);
	post_hold(t, 0, 50000);
	reply_is(t, 429,
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

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(too_large_is_413_before_the_body_and_arrives),
		T(lingering_ends_after_its_time),
		T(lingering_ends_after_256_kib),
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
