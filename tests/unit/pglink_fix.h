/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of pglink share: a server, one link to it, and statements
 * whose answers are waited for on the loop.
 */
#ifndef QUEEN_TEST_PGLINK_FIX_H
#define QUEEN_TEST_PGLINK_FIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clk.h"
#include "conndoc.h"
#include "connfault.h"
#include "loop.h"
#include "pglink.h"
#include "pgserver.h"

enum { PATIENCE_MS = 20000 };

static struct pgserver server;

/* One statement and what became of it. */
struct answer {
	int n, results;
	bool ok;
	struct connfault why;
	char value[160];	/* of the first result: first value, or its tag */
	size_t bytes;		/* of it */
	int order;
};

struct fix {
	struct loop *loop;
	struct pglink *k;
	struct loop_timer poll;
	bool (*until)(struct fix *f);
	int64_t deadline_ms;
	struct conndoc_conn conn;
	struct pglink_conf conf;
	PGconn *side;
	int ups, ends, answers;
	struct connfault why;
	struct answer a[16];
	const struct answer *expect;
	bool free_at_answer;
};

static struct fix *F;

static inline void
on_poll(void *arg)
{
	struct fix *f = arg;

	if (f->until(f) || clk_mono_ms() > f->deadline_ms)
		loop_stop(f->loop);
	else
		loop_timer_start(&f->poll, 2);
}

static inline void
run_until(struct fix *f, bool (*until)(struct fix *f))
{
	f->until = until;
	f->deadline_ms = clk_mono_ms() + PATIENCE_MS;
	loop_timer_start(&f->poll, 0);
	loop_run(f->loop);
	if (!until(f))
		fail_msg("in vain; the end: %s %s", f->why.code ? f->why.code
							       : "none",
			f->why.text);
}

static inline void
on_up(void *arg)
{
	struct fix *f = arg;

	f->ups++;
}

static inline void
on_end(void *arg, const struct connfault *why)
{
	struct fix *f = arg;

	f->ends++;
	f->why = *why;
}

static inline void
on_answer(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct answer *a = arg;

	a->n++;
	a->ok = why == NULL;
	a->results = n;
	a->order = F->answers++;
	if (why)
		a->why = *why;
	if (n > 0 && PQntuples(res[0]) > 0) {
		a->bytes = (size_t)PQgetlength(res[0], 0, 0);
		snprintf(a->value, sizeof(a->value), "%s",
			PQgetvalue(res[0], 0, 0));
	} else if (n > 0) {
		snprintf(a->value, sizeof(a->value), "%s", PQcmdStatus(res[0]));
	}
	if (F->free_at_answer) {
		pglink_free(F->k);
		F->k = NULL;
	}
}

static inline bool
is_up(struct fix *f)
{
	return f->ups > 0;
}

static inline bool
is_over(struct fix *f)
{
	return f->ends > 0;
}

static inline bool
is_answered(struct fix *f)
{
	return f->expect->n > 0;
}

static inline void
wait_answer(struct fix *f, const struct answer *a)
{
	f->expect = a;
	run_until(f, is_answered);
	assert_int_equal(a->n, 1);
}

/* Opens the link and waits for what comes of it. */
static inline void
dial(struct fix *f)
{
	pglink_free(f->k);
	f->ups = f->ends = 0;
	f->why = (struct connfault){ .code = NULL };
	f->k = pglink_new(f->loop, &f->conf, on_up, on_end, f);
	assert_int_equal(f->ups + f->ends, 0); /* never from inside */
}

static inline void
dial_up(struct fix *f)
{
	dial(f);
	run_until(f, is_up);
	assert_true(pglink_is_up(f->k));
}

static inline void
refused(struct fix *f, const char *code, bool retryable, const char *words)
{
	dial(f);
	run_until(f, is_over);
	assert_int_equal(f->ups, 0);
	assert_string_equal(f->why.code, code);
	if (f->why.retryable != retryable || !strstr(f->why.text, words))
		fail_msg("%d %s", f->why.retryable, f->why.text);
}

static inline struct answer *
query(struct fix *f, const char *sql)
{
	struct answer *a = &f->a[0];

	memset(a, 0, sizeof(*a));
	pglink_query(f->k, sql, on_answer, a);
	assert_int_equal(a->n, 0);
	wait_answer(f, a);
	return a;
}

static inline void
value_is(struct fix *f, const char *sql, const char *value)
{
	struct answer *a = query(f, sql);

	if (!a->ok)
		fail_msg("%s: %s", sql, a->why.text);
	assert_string_equal(a->value, value);
}

static inline int
setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));

	*state = F = f;
	f->loop = loop_new();
	loop_timer_init(&f->poll, f->loop, on_poll, f);
	if (server.pid)
		f->side = pgserver_connect(&server, "postgres");
	f->conn = (struct conndoc_conn){ .host = SPAN_LIT("127.0.0.1"),
		.database = SPAN_LIT("postgres"),
		.user = SPAN_LIT("postgres"),
		.ssl = CONNDOC_PREFER,
		.port = server.port,
		.connect_timeout_ms = 10000 };
	f->conf = (struct pglink_conf){ .conn = &f->conn,
		.application_name = "queen-pg/0 test",
		.allow_private = true };
	return 0;
}

static inline int
teardown(void **state)
{
	struct fix *f = *state;

	pglink_free(f->k);
	loop_timer_fini(&f->poll);
	loop_free(f->loop);
	PQfinish(f->side);
	free(f);
	return 0;
}

#define LINK_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
