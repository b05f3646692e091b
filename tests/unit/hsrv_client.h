/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server with a few routes and raw non-blocking clients, all on one loop:
 * a test sends bytes, runs the loop until a condition holds, and looks.
 */
#ifndef QUEEN_TEST_HSRV_CLIENT_H
#define QUEEN_TEST_HSRV_CLIENT_H

#include <netinet/in.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "clk.h"
#include "hsrv.h"
#include "loop.h"

enum { CLIENTS_MAX = 8, HELD_MAX = 64 };

struct client {
	int fd;
	struct buf got;
	size_t seen;		/* consumed by replies */
	bool eof, reset;
};

struct reply {
	int status;
	struct span head, body;
};

struct t {
	struct loop *loop;
	struct hsrv *s;
	struct hsrv_conf conf;
	struct client c[CLIENTS_MAX];
	struct loop_timer tick;
	bool (*until)(struct t *);
	int64_t give_up_ms;
	bool timed_out;
	size_t big_bytes;		/* of /big */
	int handled, gates, begun, gone, drained, expected;
	struct hsrv_req *held[HELD_MAX];
	int held_n;
};

static inline void
client_read(struct client *c)
{
	while (c->fd >= 0 && !c->eof) {
		ssize_t n = recv(c->fd, buf_reserve(&c->got, 65536), 65536,
			MSG_DONTWAIT);

		if (n > 0) {
			c->got.len += (size_t)n;
			continue;
		}
		if (n == 0)
			c->eof = true;
		else if (errno != EAGAIN)
			c->eof = c->reset = true;
		break;
	}
}

static inline void
on_tick(void *arg)
{
	struct t *t = arg;

	if (t->until(t)) {
		loop_stop(t->loop);
		return;
	}
	if (clk_mono_ms() > t->give_up_ms) {
		t->timed_out = true;
		loop_stop(t->loop);
		return;
	}
	loop_timer_start(&t->tick, 1);
}

/* Runs the loop until the condition holds, at most 10 s. */
static inline void
run_until(struct t *t, bool (*cond)(struct t *), const char *what)
{
	t->until = cond;
	t->timed_out = false;
	t->give_up_ms = clk_mono_ms() + 10000;
	loop_timer_start(&t->tick, 0);
	loop_run(t->loop);
	if (t->timed_out)
		fail_msg("waited in vain for: %s", what);
}

#define UNTIL(t, cond) run_until(t, cond, #cond)

static inline int64_t *
pass_until_ms(void)
{
	static int64_t at;

	return &at;
}

static inline bool
time_passed(struct t *t)
{
	(void)t;
	return clk_mono_ms() >= *pass_until_ms();
}

/* For what must *not* happen in a time. */
static inline void
let_pass(struct t *t, int ms)
{
	*pass_until_ms() = clk_mono_ms() + ms;
	UNTIL(t, time_passed);
}

static inline int
client_fd(int port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static inline void
client_close(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	buf_fini(&c->got);
	*c = (struct client){ .fd = -1 };
}

static inline struct client *
client_open(struct t *t, int i)
{
	client_close(&t->c[i]);
	t->c[i].fd = client_fd(hsrv_port(t->s));
	return &t->c[i];
}

static inline void
client_reset(struct client *c)
{
	struct linger l = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	client_close(c);
}

static inline void
client_send(struct client *c, struct span s)
{
	assert_int_equal(send(c->fd, s.p, s.n, MSG_NOSIGNAL), (ssize_t)s.n);
}

#define SEND(c, text) client_send(c, SPAN_LIT(text))
#define H "Host: h\r\n"

/* The next whole reply in what came, or false.  head_only: a HEAD request. */
static inline bool
take_reply(struct client *c, struct reply *r, bool head_only)
{
	struct span in = span_make(c->got.p + c->seen, c->got.len - c->seen);
	const char *end, *len;
	size_t n;

	if (c->got.len == c->seen)
		return false;
	end = memmem(in.p, in.n, "\r\n\r\n", 4);
	if (!end)
		return false;
	r->head = span_make(in.p, (size_t)(end + 4 - in.p));
	r->status = (int)strtol(in.p + strlen("HTTP/1.1 "), NULL, 10);
	len = memmem(in.p, r->head.n, "Content-Length: ", 16);
	n = len && !head_only ? strtoul(len + 16, NULL, 10) : 0;
	if (in.n < r->head.n + n)
		return false;
	r->body = span_make(end + 4, n);
	c->seen += r->head.n + n;
	return true;
}

static inline bool
head_has(const struct reply *r, const char *text)
{
	return memmem(r->head.p, r->head.n, text, strlen(text)) != NULL;
}

#endif
