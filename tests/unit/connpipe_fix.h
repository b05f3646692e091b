/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of both ends share: an end that keeps what it was told. */
#ifndef QUEEN_TEST_CONNPIPE_FIX_H
#define QUEEN_TEST_CONNPIPE_FIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/socket.h>

#include "buf.h"
#include "connpipe.h"
#include "loop.h"

struct got {
	struct loop *loop;
	enum connpipe_kind kinds[64];
	size_t n, stop_at;
	struct buf last; /* body of the last frame */
	struct buf status; /* of the last status */
	bool ended, counts_only;
	size_t before; /* length of the body before the last */
};

static void
on_frame(void *arg, enum connpipe_kind kind, struct span body)
{
	struct got *g = arg;

	assert_true(g->counts_only || g->n < 64);
	g->kinds[g->n++ % 64] = kind;
	g->before = g->last.len;
	buf_reset(&g->last);
	buf_put_span(&g->last, body);
	if (kind == CONNPIPE_STATUS) {
		buf_reset(&g->status);
		buf_put_span(&g->status, body);
	}
	if (g->n == g->stop_at)
		loop_stop(g->loop);
}

static void
on_end(void *arg)
{
	struct got *g = arg;

	assert_false(g->ended);
	g->ended = true;
	loop_stop(g->loop);
}

static struct connpipe *
pipe_to(struct got *g, int fd)
{
	struct connpipe_events ev = {
		.on_frame = on_frame, .on_end = on_end, .arg = g
	};

	return connpipe_new(g->loop, fd, &ev);
}

static void
got_fini(struct got *g)
{
	buf_fini(&g->last);
	buf_fini(&g->status);
}

/* Until n frames came. */
static void
run_until(struct got *g, size_t n)
{
	g->stop_at = n;
	if (g->n < n)
		loop_run(g->loop);
	assert_int_equal(g->n, n);
}

static void
pair(int fds[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
}

#endif
