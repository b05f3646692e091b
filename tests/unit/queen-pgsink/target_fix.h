/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for the tests of sessions with one: a server, a document, batches
 * made by the test, and a worker's session that is driven to its answers.
 */
#ifndef QUEEN_TEST_TARGET_FIX_H
#define QUEEN_TEST_TARGET_FIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "clk.h"
#include "conndoc.h"
#include "connchild.h"
#include "connfault.h"
#include "ctx.h"
#include "feed.h"
#include "log.h"
#include "loop.h"
#include "pgserver.h"
#include "connhost.h"
#include "setup.h"
#include "target.h"

enum { PATIENCE_MS = 20000 };

static struct pgserver server;
static struct loop *loop;
static PGconn *sql;

static struct connhost_settings settings = { .allow_private = true };
static struct conndoc doc;
static struct connchild_task task;
static struct ctx x;
static struct target *target, *other;

/* The last answer. */
static bool answered;
static enum target_end end;
static const struct feed_result *results;
static struct connfault fault;

/* ---- waiting ---- */

static inline void
on_patience(void *arg)
{
	(void)arg;
	fail_msg("no answer within %d ms", PATIENCE_MS);
}

static inline void
await(void)
{
	struct loop_timer patience;

	loop_timer_init(&patience, loop, on_patience, NULL);
	loop_timer_start(&patience, PATIENCE_MS);
	if (!answered)
		loop_run(loop);
	loop_timer_fini(&patience);
	assert_true(answered);
}

static inline void
keep_fault(const struct connfault *why)
{
	fault.code = NULL;
	if (why)
		fault = *why;
	answered = true;
	loop_stop(loop);
}

static inline void
on_target(void *arg, enum target_end e, const struct feed_result *r,
	const struct connfault *why)
{
	(void)arg;
	end = e;
	results = r;
	keep_fault(why);
}

static inline void
on_setup(void *arg, const struct connfault *why)
{
	(void)arg;
	keep_fault(why);
}

/* ---- batches ---- */

static struct feed_batch *batch;

static inline void
batch_new(void)
{
	feed_batch_free(batch);
	batch = calloc(1, sizeof(*batch));
	assert_non_null(batch);
	batch->group_id = 5;
	batch->parts =
		arena_zalloc(&batch->arena, 100 * sizeof(struct feed_part));
	batch->messages =
		arena_zalloc(&batch->arena, 4000 * sizeof(struct feed_message));
}

/* One more message of the partition, which is the last one or a new one. */
__attribute__((format(printf, 3, 4))) static inline void
add(int64_t part, int64_t offset, const char *fmt, ...)
{
	struct feed_message *m = &batch->messages[batch->n];
	char text[65536];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (batch->parts_n == 0 ||
		batch->parts[batch->parts_n - 1].id != part) {
		batch->parts[batch->parts_n++] = (struct feed_part){ .id = part,
			.name = arena_printf(
				&batch->arena, "p\"%lld", (long long)part),
			.first = batch->n };
	}
	batch->parts[batch->parts_n - 1].n++;
	batch->n++;
	*m = (struct feed_message){ .part = batch->parts_n - 1,
		.offset = offset,
		.created_at_us = 1790935200000001 + offset,
		.txn = arena_printf(&batch->arena, "t%lld", (long long)offset),
		.payload = arena_dup(&batch->arena, span_of(text)) };
}

/* ---- driving ---- */

static inline void
give(struct target *t)
{
	answered = false;
	target_apply(t, batch, on_target, NULL);
}

static inline enum target_end
apply(void)
{
	give(target);
	await();
	return end;
}

/* The batch is done with, and all of it. */
static inline void
apply_all(void)
{
	assert_int_equal(apply(), TARGET_DONE);
	for (size_t i = 0; i < batch->parts_n; i++) {
		assert_int_equal(results[i].done, batch->parts[i].n);
		assert_false(results[i].dlq);
	}
	target_forget(target);
}

/* Code of setup's fault, "" when it is fine. */
static inline const char *
set_up(void)
{
	struct setup *s = setup_new(&x, on_setup, NULL);

	answered = false;
	await();
	setup_free(s);
	return fault.code ? fault.code : "";
}

static inline const char *
value(const char *text)
{
	return pgserver_value(sql, text);
}

/* ---- cmocka ---- */

static inline int
group_setup(void **state)
{
	(void)state;
	log_init("error", false);
	pgserver_init(&server);
	sql = pgserver_connect(&server, "postgres");
	PQclear(PQexec(sql, "set client_min_messages = warning"));
	loop = loop_new();
	return 0;
}

static inline int
group_teardown(void **state)
{
	(void)state;
	loop_free(loop);
	PQfinish(sql);
	pgserver_fini(&server);
	return 0;
}

static inline int
test_setup(void **state)
{
	(void)state;
	value("drop schema if exists queen cascade; drop schema public cascade;"
	      " create schema public;"
	      " create table t (id int primary key, n int check (n < 100))");
	memset(&doc, 0, sizeof(doc));
	doc.kind = CONNDOC_SINK;
	doc.conn = (struct conndoc_conn){ .host = SPAN_LIT("127.0.0.1"),
		.database = SPAN_LIT("postgres"),
		.user = SPAN_LIT("postgres"),
		.ssl = CONNDOC_DISABLE,
		.port = server.port,
		.connect_timeout_ms = 10000 };
	doc.sink = (struct conndoc_sink){ .queue = SPAN_LIT("q"),
		.table = { SPAN_LIT("public.t"), SPAN_LIT("public"),
			SPAN_LIT("t") },
		.mode = CONNDOC_APPEND,
		.batch = 500,
		.workers = 1,
		.lease_s = 60,
		.max_attempts = 2,
		.progress_table = { SPAN_LIT("queen.sink_progress"),
			SPAN_LIT("queen"), SPAN_LIT("sink_progress") },
		.create_progress_table = true };
	task = (struct connchild_task){ .name = SPAN_LIT("orders"),
		.doc = &doc };
	x = (struct ctx){ .loop = loop,
		.conf = &settings,
		.task = &task,
		.cell_tag = "00000000000a",
		.sink = SPAN_LIT("tenant/orders") };
	target = target_new(&x, 1);
	other = target_new(&x, 2);
	batch_new();
	return 0;
}

static inline int
test_teardown(void **state)
{
	(void)state;
	target_free(target);
	target_free(other);
	feed_batch_free(batch);
	batch = NULL;
	return 0;
}

#endif
