/* SPDX-License-Identifier: Apache-2.0 */
/* Frames between a parent and a connector's process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buf.h"
#include "connpipe.h"
#include "connpipe_fix.h"
#include "err.h"
#include "loop.h"

static void
test_bodies_come_back(void **state)
{
	int64_t parts[CONNPIPE_PARTS_MAX], queue = 0;
	struct connpipe_task t = { .version = 7,
		.grace_ms = 1500,
		.name = SPAN_LIT("a"),
		.node = SPAN_LIT(""),
		.cell_tag = SPAN_LIT("0123456789ab"),
		.doc = SPAN_LIT("{}") };
	struct connpipe_task back;
	struct buf b = BUF_ZERO;
	size_t n = 1;

	(void)state;
	connpipe_write_task(&b, &t);
	assert_true(connpipe_read_task(buf_span(&b), &back));
	assert_int_equal(back.version, 7);
	assert_int_equal(back.grace_ms, 1500);
	assert_true(span_is(back.name, "a") && span_is(back.node, ""));
	assert_true(span_is(back.cell_tag, "0123456789ab"));
	assert_true(span_is(back.doc, "{}"));
	for (size_t i = 0; i < b.len; i++)
		assert_false(connpipe_read_task(span_make(b.p, i), &back));
	buf_putc(&b, 'x');
	assert_false(connpipe_read_task(buf_span(&b), &back));
	assert_true(connpipe_read_parts(
		span_make("\1\0\0\0\0\0\0\0", 8), &queue, parts, &n));
	assert_true(queue == 1 && n == 0);
	assert_false(connpipe_read_parts(
		span_make("\1\0\0\0\0\0\0\0\1", 9), &queue, parts, &n));
	assert_false(connpipe_read_number(SPAN_LIT("1234567"), &queue));
	buf_fini(&b);
}

/* More than the socket holds, and more parts than a frame does. */
static void
test_large_frames_wait_for_the_reader(void **state)
{
	struct got g = { .loop = loop_new() };
	struct buf big = BUF_ZERO;
	int64_t *parts = calloc(5000, sizeof(*parts)), queue;
	int64_t back[CONNPIPE_PARTS_MAX];
	size_t n;
	int fds[2];

	(void)state;
	pair(fds);
	struct connpipe *up = pipe_to(&g, fds[0]), *down = pipe_to(&g, fds[1]);

	memset(buf_reserve(&big, 3 << 20), 'x', 3 << 20);
	big.len = 3 << 20;
	connpipe_send(up, CONNPIPE_STATUS, buf_span(&big));
	assert_true(connpipe_unsent_bytes(up) > 0);
	parts[4999] = 77;
	connpipe_send_number(up, CONNPIPE_LEAVE, 1);
	connpipe_send_parts(up, CONNPIPE_ANNOUNCE, 5, parts, 5000);
	run_until(&g, 4);
	assert_int_equal(g.kinds[0], CONNPIPE_STATUS);
	assert_int_equal(g.status.len, 3 << 20);
	assert_int_equal(g.kinds[1], CONNPIPE_LEAVE);
	assert_int_equal(g.kinds[3], CONNPIPE_ANNOUNCE);
	assert_true(connpipe_read_parts(buf_span(&g.last), &queue, back, &n));
	assert_true(queue == 5 && n == 5000 - CONNPIPE_PARTS_MAX);
	assert_int_equal(back[n - 1], 77);
	connpipe_free(up);
	loop_run(g.loop);
	assert_true(g.ended);
	connpipe_free(down);
	buf_fini(&big);
	free(parts);
	got_fini(&g);
	loop_free(g.loop);
}

static void
test_nonsense_is_the_end(void **state)
{
	static const struct {
		const char *p;
		size_t n, frames;
	} cases[] = {
		{ "\0\0\0\0\x63", 5, 0 }, /* no such kind */
		{ "\0\0\0\0\0", 5, 0 },
		{ "\xff\xff\xff\xff\1", 5, 0 }, /* too long */
		{ "\1\0\0\0\4x\0\0\0\0\x7f", 11, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct got g = { .loop = loop_new() };
		int fds[2];

		pair(fds);
		struct connpipe *p = pipe_to(&g, fds[0]);

		/* byte by byte, so that heads arrive in pieces */
		for (size_t k = 0; k < cases[i].n; k++) {
			assert_int_equal(write(fds[1], cases[i].p + k, 1), 1);
			connpipe_drain(p);
		}
		assert_true(g.ended);
		assert_int_equal(g.n, cases[i].frames);
		connpipe_send_number(p, CONNPIPE_STOP, 1); /* no harm */
		connpipe_free(p);
		close(fds[1]);
		got_fini(&g);
		loop_free(g.loop);
	}
}

static void
test_the_task_is_waited_for(void **state)
{
	struct err e = ERR_ZERO;
	struct buf b = BUF_ZERO;
	int fds[2];

	(void)state;
	pair(fds);
	assert_int_equal(connpipe_first(fds[0], CONNPIPE_TASK, 20, &b, &e), -1);
	assert_int_equal(e.kind, ERR_IO);
	assert_int_equal(write(fds[1], "\2\0\0\0\1{}", 7), 7);
	assert_int_equal(
		connpipe_first(fds[0], CONNPIPE_TASK, 1000, &b, &e), 0);
	assert_true(span_is(buf_span(&b), "{}"));
	assert_int_equal(write(fds[1], "\0\0\0\0\2", 5), 5);
	assert_int_equal(
		connpipe_first(fds[0], CONNPIPE_TASK, 1000, &b, &e), -1);
	assert_int_equal(e.kind, ERR_INPUT);
	close(fds[1]);
	assert_int_equal(
		connpipe_first(fds[0], CONNPIPE_TASK, 1000, &b, &e), -1);
	close(fds[0]);
	buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bodies_come_back),
		cmocka_unit_test(test_large_frames_wait_for_the_reader),
		cmocka_unit_test(test_nonsense_is_the_end),
		cmocka_unit_test(test_the_task_is_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
