/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the tools' side of a cell share: a server with the schema, a
 * loop that runs until something is so, and links to the cell.
 */
#ifndef QUEEN_TEST_CELL_FIX_H
#define QUEEN_TEST_CELL_FIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clk.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "pgconn.h"
#include "pgserver.h"
#include "qid.h"
#include "schema.h"

enum { CELL_PATIENCE_MS = 20000 };

static struct pgserver server;
static struct loop *loop;
static struct loop_timer cell_poll;
static PGconn *sql; /* beside what is tested */
static const struct qid tenant = { .b = { 1, 2, 3 } };

struct cell_wait {
	bool (*until)(void *arg);
	void *arg;
	int64_t deadline_ms;
};

static inline void
cell_on_poll(void *arg)
{
	struct cell_wait *w = arg;

	if (w->until(w->arg) || clk_mono_ms() > w->deadline_ms)
		loop_stop(loop);
	else
		loop_timer_start(&cell_poll, 2);
}

static inline void
run_until(bool (*until)(void *arg), void *arg)
{
	struct cell_wait w = { .until = until,
		.arg = arg,
		.deadline_ms = clk_mono_ms() + CELL_PATIENCE_MS };

	loop_timer_init(&cell_poll, loop, cell_on_poll, &w);
	loop_timer_start(&cell_poll, 0);
	loop_run(loop);
	loop_timer_fini(&cell_poll);
	assert_true(until(arg));
}

static inline bool
is_true(void *arg)
{
	return *(const bool *)arg;
}

static inline const char *
value_of(const char *fmt, ...)
{
	static char text[4096];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return pgserver_value(sql, text);
}

/* ---- links ---- */

static inline bool
link_is_up(void *arg)
{
	return pgconn_is_up(arg);
}

static inline void
link_on_event(void *arg, enum pgconn_event ev, const struct err *why)
{
	(void)arg;
	(void)ev;
	(void)why;
}

/* more: session settings behind ours, or NULL. */
static inline struct pgconn *
link_new(const char *conninfo, const char *more)
{
	struct pgconn *c =
		pgconn_new(loop, conninfo, "test", link_on_event, NULL);

	if (more)
		pgconn_session_add(c, more);
	run_until(link_is_up, c);
	return c;
}

/* ---- the group ---- */

static inline int
cell_start(void **state)
{
	struct schema_cell cell;
	struct err e = ERR_ZERO;

	(void)state;
	log_init("error", false);
	pgserver_init(&server);
	sql = pgserver_connect(&server, "postgres");
	if (schema_apply(sql, 5000, &cell, NULL, NULL, &e) != 0) {
		fprintf(stderr, "schema: %s\n", e.text);
		return -1;
	}
	PQclear(PQexec(sql, "set client_min_messages = warning"));
	loop = loop_new();
	return 0;
}

static inline int
cell_stop(void **state)
{
	(void)state;
	loop_free(loop);
	PQfinish(sql);
	pgserver_fini(&server);
	return 0;
}

#endif
