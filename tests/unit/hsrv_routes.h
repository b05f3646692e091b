/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What test_hsrv.c, test_hsrv_bounds.c and test_hsrv_conn.c share: the routes
 * of the server, its fixture and the conditions a test waits for.
 */
#ifndef QUEEN_TEST_HSRV_ROUTES_H
#define QUEEN_TEST_HSRV_ROUTES_H

#include "hsrv_client.h"

/* ---- routes ---- */

static inline void
do_hello(struct hsrv_req *r)
{
	struct t *t = hsrv_ctx(r);

	t->handled++;
	buf_puts(hsrv_out(r), "{\"ok\":true}");
	hsrv_reply(r, 200);
}

static inline void
do_echo(struct hsrv_req *r)
{
	struct t *t = hsrv_ctx(r);

	t->handled++;
	buf_put_span(hsrv_out(r), hsrv_body(r));
	hsrv_reply(r, 201);
}

static inline void
do_empty(struct hsrv_req *r)
{
	hsrv_reply(r, 204);
}

static inline void
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

static inline void
do_hold(struct hsrv_req *r)
{
	struct t *t = hsrv_ctx(r);

	t->handled++;
	t->held[t->held_n++] = r;
}

static inline void
on_gone(struct hsrv_req *r)
{
	struct t *t = hsrv_ctx(r);

	assert_true(hsrv_is_gone(r));
	t->gone++;
	hsrv_drop(r);
}

static inline void
do_park(struct hsrv_req *r)
{
	do_hold(r);
	hsrv_park(r, on_gone);
}

static inline void
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

static inline void
do_error(struct hsrv_req *r)
{
	hsrv_reply_error(r, 409, "bad \"%s\" \xff %0600d", "x", 7);
}

static inline void
do_none(struct hsrv_req *r)
{
	assert_int_equal(hsrv_body(r).n, 0);
	hsrv_reply_error(r, 404, "Not Found");
}

static inline void
do_drop(struct hsrv_req *r)
{
	hsrv_drop(r);
}

static inline bool
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

static inline void
start(struct t *t)
{
	struct err e = ERR_ZERO;

	t->s = hsrv_new(t->loop, &t->conf);
	if (hsrv_listen(t->s, "127.0.0.1", 0, &e) < 0)
		fail_msg("%s", e.text);
}

static inline int
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

static inline int
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

static inline bool
reply_came(struct t *t)
{
	client_read(&t->c[0]);
	return take_reply(&t->c[0], &last, false);
}

static inline bool
head_came(struct t *t)
{
	client_read(&t->c[0]);
	return take_reply(&t->c[0], &last, true);
}

static inline bool
eof_came(struct t *t)
{
	client_read(&t->c[0]);
	return t->c[0].eof;
}

static inline bool
reply_1_came(struct t *t)
{
	client_read(&t->c[1]);
	return take_reply(&t->c[1], &last, false);
}

static inline bool
one_is_held(struct t *t)
{
	return t->held_n == 1;
}

static inline bool
two_are_held(struct t *t)
{
	return t->held_n == 2;
}

static inline bool
one_is_gone(struct t *t)
{
	return t->gone == 1;
}

static inline bool
no_connection(struct t *t)
{
	struct hsrv_stats st;

	hsrv_stats(t->s, &st);
	return st.connections == 0;
}

static inline void
reply_is(struct t *t, int status, const char *body)
{
	UNTIL(t, reply_came);
	if (last.status != status || !span_is(last.body, body))
		fail_msg("%d %.*s", last.status, SPAN_ARG(last.body));
}

/* The answer, whole, then the end without a reset. */
static inline void
reply_is_last(struct t *t, int status, const char *body)
{
	reply_is(t, status, body);
	assert_true(head_has(&last, "\r\nConnection: close\r\n"));
	UNTIL(t, eof_came);
	assert_false(t->c[0].reset);
}

static inline void
release(struct t *t, int i)
{
	hsrv_reply(t->held[i], 200);
}

static inline void
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

#endif
