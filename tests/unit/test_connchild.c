/* SPDX-License-Identifier: Apache-2.0 */
/* A connector's process as its parent sees it: words, marks, the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buf.h"
#include "clk.h"
#include "connchild.h"
#include "conndoc.h"
#include "connfault.h"
#include "connpipe.h"
#include "connpipe_fix.h"
#include "err.h"
#include "jwrite.h"
#include "log.h"
#include "loop.h"

static const char source[] =
	"{\"kind\":\"source\",\"enabled\":true,\"connection\":{\"host\":\"h\","
	"\"database\":\"d\",\"user\":\"u\"},\"source\":{\"tables\":[{\"table\":"
	"\"t\",\"queue\":\"q\"}]},\"updatedAt\":\"2026-10-02T09:59:58.000000Z\"}";

struct unit {
	struct got got; /* the parent's side */
	struct connpipe *parent;
	struct connchild *child;
	int64_t marks[8];
	size_t marks_n, mark_calls;
	int64_t grace_ms; /* of the stop; -1 = none */
	bool leaves;
};

static void
write_detail(void *arg, struct jwrite *w)
{
	(void)arg;
	jwrite_kv_cstr(w, "slot", "queen_a");
}

static void
write_metrics(void *arg, struct jwrite *w)
{
	(void)arg;
	jwrite_kv_i64(w, "queen_pg_source_messages_total", 5);
}

static void
on_marks(void *arg, const int64_t *parts, size_t n)
{
	struct unit *u = arg;

	u->mark_calls++;
	for (size_t i = 0; i < n && u->marks_n < 8; i++)
		u->marks[u->marks_n++] = parts[i];
	loop_stop(u->got.loop);
}

static void
on_stop(void *arg, int64_t grace_ms)
{
	struct unit *u = arg;

	assert_int_equal(u->grace_ms, -1);
	u->grace_ms = grace_ms;
	if (u->leaves)
		connchild_leave(u->child, true);
	else
		loop_stop(u->got.loop);
}

static void
unit_start(struct unit *u, const char *doc, struct err *e)
{
	struct connchild_face face = { .write_detail = write_detail,
		.write_metrics = write_metrics,
		.on_marks = on_marks,
		.on_stop = on_stop };
	struct connpipe_task t = { .version = 9,
		.grace_ms = 4321,
		.name = SPAN_LIT("a"),
		.node = SPAN_LIT("n1"),
		.cell_tag = SPAN_LIT("0123456789ab"),
		.doc = span_of(doc) };
	struct buf b = BUF_ZERO;
	int fds[2];

	memset(u, 0, sizeof(*u));
	u->grace_ms = -1;
	u->got.loop = loop_new();
	pair(fds);
	u->parent = pipe_to(&u->got, fds[0]);
	connpipe_write_task(&b, &t);
	connpipe_send(u->parent, CONNPIPE_TASK, buf_span(&b));
	buf_fini(&b);
	u->child = connchild_open(u->got.loop, fds[1], &face, e);
	if (u->child)
		connchild_set_arg(u->child, u);
	else
		close(fds[1]);
}

static void
unit_end(struct unit *u)
{
	connchild_free(u->child);
	connpipe_free(u->parent);
	got_fini(&u->got);
	loop_free(u->got.loop);
}

static bool
says(struct unit *u, const char *text)
{
	buf_putc(&u->got.status, '\0');
	u->got.status.len--;
	return strstr(u->got.status.p, text) != NULL;
}

static void
test_a_child_says_what_it_is_at(void **state)
{
	struct connfault f = { .code = NULL };
	struct err e = ERR_ZERO;
	struct unit u;

	(void)state;
	unit_start(&u, source, &e);
	assert_non_null(u.child);
	const struct connchild_task *t = connchild_task(u.child);

	assert_true(span_is(t->name, "a") && span_is(t->node, "n1"));
	assert_true(span_is(t->cell_tag, "0123456789ab"));
	assert_true(t->version == 9 && t->doc->source.tables_n == 1);
	run_until(&u.got, 1);
	assert_true(says(&u, "{\"phase\":\"starting\",\"since\":\"2"));
	assert_true(says(&u, "\"error\":null,\"lastError\":null,"
			     "\"restarts\":0,\"errors\":0,\"detail\":{\"slot\":"
			     "\"queen_a\"},\"metrics\":{\"queen_pg_source_"
			     "messages_total\":5}}"));
	int64_t first_ms = clk_mono_ms();

	connfault_set(&f, "postgres", true, "28P01: wrong");
	connchild_error(u.child, &f, 2000);
	connchild_restarted(u.child);
	connchild_touch(u.child);
	/* not at once */
	run_until(&u.got, 2);
	assert_in_range(clk_mono_ms() - first_ms, 180, 5000);
	assert_true(says(&u, "\"phase\":\"error\""));
	assert_true(says(&u, "\"error\":{\"code\":\"postgres\",\"message\":"
			     "\"28P01: wrong\",\"at\":\"2"));
	assert_true(says(&u, "\"retryInMs\":"));
	assert_true(says(&u, "\"restarts\":1,\"errors\":1,"));
	connfault_set(&f, "dlq", false, "partition p offset 3: no");
	connchild_note(u.child, &f);
	connchild_phase(u.child, "streaming");
	run_until(&u.got, 3);
	assert_true(says(&u, "\"phase\":\"streaming\""));
	assert_true(says(&u, "\"error\":null,\"lastError\":{\"code\":\"dlq\""));
	assert_false(says(&u, "retryInMs"));
	assert_true(says(&u, "\"restarts\":1,\"errors\":1,"));
	unit_end(&u);
}

static void
test_a_child_hears_and_leaves(void **state)
{
	const int64_t parts[] = { 11, 12 };
	struct err e = ERR_ZERO;
	struct unit u;
	int64_t v;

	(void)state;
	unit_start(&u, source, &e);
	run_until(&u.got, 1);
	connchild_watch(u.child, 42);
	connchild_announce(u.child, 42, parts, 0); /* nothing to tell */
	connchild_announce(u.child, 42, parts, 2);
	run_until(&u.got, 3);
	assert_int_equal(u.got.kinds[1], CONNPIPE_WATCH);
	assert_int_equal(u.got.kinds[2], CONNPIPE_ANNOUNCE);
	connpipe_send_parts(u.parent, CONNPIPE_MARKS, 42, parts, 2);
	loop_run(u.got.loop);
	assert_true(u.marks_n == 2 && u.marks[1] == 12);
	connpipe_send_parts(u.parent, CONNPIPE_MARKS, 42, NULL, 0);
	loop_run(u.got.loop);
	assert_true(u.marks_n == 2 && u.mark_calls == 2);
	u.leaves = true;
	connpipe_send_number(u.parent, CONNPIPE_STOP, 1500);
	loop_run(u.got.loop);
	assert_int_equal(u.grace_ms, 1500);
	connpipe_drain(u.parent);
	assert_int_equal(u.got.n, 5);
	assert_int_equal(u.got.kinds[3], CONNPIPE_STATUS);
	assert_true(says(&u, "\"phase\":\"torn_down\""));
	assert_int_equal(u.got.kinds[4], CONNPIPE_LEAVE);
	assert_true(connpipe_read_number(buf_span(&u.got.last), &v) && v == 1);
	connchild_touch(u.child); /* no more */
	unit_end(&u);
}

/* A parent that does not read costs a bounded memory, and is told later. */
static void
test_a_parent_that_does_not_read(void **state)
{
	static int64_t parts[CONNPIPE_PARTS_MAX];
	struct err e = ERR_ZERO;
	struct unit u;
	size_t sent = 0;

	(void)state;
	unit_start(&u, source, &e);
	run_until(&u.got, 1);
	/* 32 KiB each; the socket holds some, 4 MiB wait */
	for (int i = 0; i < 1000; i++)
		connchild_announce(u.child, 42, parts, CONNPIPE_PARTS_MAX);
	u.got.counts_only = true;
	do {
		sent = u.got.n;
		connpipe_drain(u.parent);
		event_base_loop(loop_base(u.got.loop), EVLOOP_NONBLOCK);
	} while (u.got.n > sent);
	assert_in_range(u.got.n, 100, 200);
	assert_true(u.got.last.len > 8);
	connchild_announce(u.child, 42, parts, 1);
	connpipe_drain(u.parent);
	assert_int_equal(u.got.n, sent + 2);
	assert_int_equal(u.got.last.len, 16);
	assert_int_equal(u.got.before, 8);
	unit_end(&u);
}

/* The parent going away is a stop, with the grace of the task, once. */
static void
test_a_child_without_parent_stops(void **state)
{
	struct err e = ERR_ZERO;
	struct unit u;

	(void)state;
	unit_start(&u, source, &e);
	run_until(&u.got, 1);
	connpipe_free(u.parent);
	u.parent = NULL;
	loop_run(u.got.loop);
	assert_int_equal(u.grace_ms, 4321);
	connchild_leave(u.child, false);
	unit_end(&u);
	unit_start(&u, "{\"kind\":\"source\"}", &e);
	assert_null(u.child);
	assert_int_equal(e.kind, ERR_INPUT);
	unit_end(&u);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_child_says_what_it_is_at),
		cmocka_unit_test(test_a_child_hears_and_leaves),
		cmocka_unit_test(test_a_parent_that_does_not_read),
		cmocka_unit_test(test_a_child_without_parent_stops),
	};

	log_init("error", false);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
