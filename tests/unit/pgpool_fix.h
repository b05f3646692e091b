/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What test_pgpool.c and test_pgpool_calls.c share: a server, a pool on it,
 * and operations whose answers are waited for on the loop.
 */
#ifndef QUEEN_TEST_PGPOOL_FIX_H
#define QUEEN_TEST_PGPOOL_FIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "clk.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "pgpool.h"
#include "pgserver.h"

enum { TIMEOUT_MS = 400, LANES = 2, PATIENCE_MS = 20000 };

static struct pgserver server;

/* One operation and what became of it. */
struct answer {
	int n;
	bool ok;
	struct err err;
	int64_t value; /* first column of the first row, when it is a bigint */
	int64_t at_ms;
	int order;
};

struct fix {
	struct loop *loop;
	struct pgpool *pool;
	PGconn *side;
	struct loop_timer poll;
	bool (*until)(struct fix *f);
	int64_t deadline_ms;
	int turns, answers, idles;
	struct answer a[8];
	bool commit;
	int decided;
	struct answer *expect;
	int expect_n;
};

static struct fix *F;

static inline void
on_poll(void *arg)
{
	struct fix *f = arg;

	f->turns++;
	if (f->until(f) || clk_mono_ms() > f->deadline_ms)
		loop_stop(f->loop);
	else
		loop_timer_start(&f->poll, 5);
}

static inline void
run_until(struct fix *f, bool (*until)(struct fix *f))
{
	f->until = until;
	f->turns = 0;
	f->deadline_ms = clk_mono_ms() + PATIENCE_MS;
	loop_timer_start(&f->poll, 0);
	loop_run(f->loop);
	assert_true(until(f));
}

static inline void
on_answer(void *arg, const PGresult *res, const struct err *err)
{
	struct answer *a = arg;

	a->n++;
	a->ok = err == NULL;
	a->order = F->answers++;
	a->at_ms = clk_mono_ms();
	if (err != NULL) {
		a->err = *err;
		assert_null(res);
	} else if (PQntuples(res) > 0 && PQftype(res, 0) == 20) {
		a->value = pgbin_i64(res, 0, 0);
	}
}

static inline bool
decide(void *arg, const PGresult *res)
{
	struct answer *a = arg;

	assert_int_equal(a->n, 0);
	assert_int_equal(PQntuples(res), 1);
	F->decided++;
	return F->commit;
}

static inline bool
all_answered(struct fix *f)
{
	for (int i = 0; i < f->expect_n; i++)
		if (f->expect[i].n == 0)
			return false;
	return true;
}

static inline void
wait_answers(struct fix *f, struct answer *a, int n)
{
	f->expect = a;
	f->expect_n = n;
	run_until(f, all_answered);
	for (int i = 0; i < n; i++)
		assert_int_equal(a[i].n, 1);
}

static inline bool
all_up(struct fix *f)
{
	struct pgpool_stats s;

	pgpool_stats(f->pool, &s);
	return s.up == s.size;
}

static inline bool
none_up(struct fix *f)
{
	return !pgpool_is_up(f->pool);
}

static inline void
open_pool(struct fix *f, const char *conninfo, int64_t timeout_ms)
{
	struct pgpool_conf c = { .conninfo = conninfo,
		.application_name = "pool",
		.lanes_n = LANES,
		.conns = { 1, 2 },
		.stmt_timeout_ms = timeout_ms };

	f->loop = loop_new();
	loop_timer_init(&f->poll, f->loop, on_poll, f);
	f->pool = pgpool_new(f->loop, &c);
}

static inline int
setup(void **state)
{
	struct fix *f = calloc(1, sizeof *f);

	*state = F = f;
	f->side = pgserver_connect(&server, "postgres");
	open_pool(f, server.conninfo, TIMEOUT_MS);
	run_until(f, all_up);
	return 0;
}

static inline int
teardown(void **state)
{
	struct fix *f = *state;

	pgpool_free(f->pool);
	loop_timer_fini(&f->poll);
	loop_free(f->loop);
	PQfinish(f->side);
	free(f);
	return 0;
}

static inline void
call(struct fix *f, int lane, const struct pgstmt *s, struct answer *a)
{
	struct pgargs args;

	pgargs_init(&args);
	pgpool_call(f->pool, lane, s, &args, on_answer, a);
	assert_int_equal(a->n, 0); /* never from inside */
}

static const struct pgstmt one = { "one", "select 1::bigint" };
static const struct pgstmt pid = { "pid", "select pg_backend_pid()::bigint" };

static inline int64_t
backend_pid(struct fix *f)
{
	struct answer a = { .n = 0 };

	call(f, 0, &pid, &a);
	wait_answers(f, &a, 1);
	assert_true(a.ok);
	return a.value;
}

static inline int
group_setup(void **state)
{
	(void)state;
	log_init("error", false);
	pgserver_init(&server);
	return 0;
}

static inline int
group_teardown(void **state)
{
	(void)state;
	pgserver_fini(&server);
	return 0;
}

#define POOL_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
