/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run is setup, then workers until one meets what an operator must mend;
 * then all stop and the next run begins after a while.  The cell's side (links
 * and feed) is one for all runs, so that the group exists from the first
 * moment on.
 */
#include "sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "backoff.h"
#include "conndoc.h"
#include "connchild.h"
#include "connfault.h"
#include "ctx.h"
#include "err.h"
#include "feed.h"
#include "jwrite.h"
#include "loop.h"
#include "pgconn.h"
#include "setup.h"
#include "worker.h"

enum {
	LADDER_FIRST_MS = 1000,
	LADDER_MAX_MS = 30000,
	SPREAD_PERCENT = 10,
	CALM_MS = 60000,
};

struct sink {
	struct ctx *x;
	struct arena arena;
	struct span group;
	struct setup *setup;
	struct worker **workers; /* NULL: none run */
	size_t workers_n, stopped_n;
	bool stopping, left;
	struct connfault over; /* code: why this run ends */
	int64_t ladder_ms; /* the last step; 0 = none */
	struct loop_timer again, grace, calm;
	bool failed_before;
};

static void run(void *arg);

static const struct conndoc_sink *
doc_of(const struct sink *s)
{
	return &s->x->task->doc->sink;
}

/* ---- the end ---- */

static void
leave(void *arg)
{
	struct sink *s = arg;

	if (s->left)
		return;
	s->left = true;
	connchild_leave(s->x->child, false);
}

static void
settle(struct sink *s)
{
	feed_settle(s->x->feed, leave, s);
}

/* ---- between runs ---- */

/* What an operator must mend is not tried more often than it is looked at. */
static int64_t
next_step(struct sink *s, const struct connfault *why)
{
	if (!why->retryable)
		return LADDER_MAX_MS;
	s->ladder_ms =
		backoff_next_ms(s->ladder_ms, LADDER_FIRST_MS, LADDER_MAX_MS);
	return backoff_spread_ms(s->ladder_ms, SPREAD_PERCENT);
}

static void
run_failed(struct sink *s, const struct connfault *why)
{
	/* nothing but another document, or a start with the key, helps */
	bool waits = strcmp(why->code, "unseal") == 0;
	int64_t ms = waits ? 0 : next_step(s, why);

	s->failed_before = true;
	connchild_error(s->x->child, why, ms);
	if (!waits)
		loop_timer_start(&s->again, ms);
}

/* ---- workers ---- */

static void
free_workers(struct sink *s)
{
	for (size_t i = 0; s->workers && i < s->workers_n; i++)
		worker_free(s->workers[i]);
	free(s->workers);
	s->workers = NULL;
}

static bool
is_any_failing(const struct sink *s)
{
	for (size_t i = 0; s->workers && i < s->workers_n; i++)
		if (s->workers[i] && worker_is_failing(s->workers[i]))
			return true;
	return false;
}

static void
on_failing(void *arg, const struct connfault *why, int64_t retry_ms)
{
	struct sink *s = arg;

	connchild_error(s->x->child, why, retry_ms);
}

static void
on_well(void *arg)
{
	struct sink *s = arg;

	if (!is_any_failing(s) && !s->over.code && !s->stopping)
		connchild_phase(s->x->child, "running");
}

static void
on_noted(void *arg, const struct connfault *why)
{
	struct sink *s = arg;

	connchild_note(s->x->child, why);
}

static void
stop_workers(struct sink *s)
{
	for (size_t i = 0; i < s->workers_n; i++)
		worker_stop(s->workers[i]);
}

static void
on_over(void *arg, const struct connfault *why)
{
	struct sink *s = arg;

	if (s->over.code || s->stopping)
		return;
	s->over = *why;
	stop_workers(s);
}

static void
on_stopped(void *arg)
{
	struct sink *s = arg;
	struct connfault why = s->over;

	if (++s->stopped_n < s->workers_n)
		return;
	free_workers(s);
	s->over.code = NULL;
	if (s->stopping)
		settle(s);
	else
		run_failed(s, &why);
}

static void
start_workers(struct sink *s)
{
	struct worker_face face = { .failing = on_failing,
		.well = on_well,
		.noted = on_noted,
		.over = on_over,
		.stopped = on_stopped,
		.arg = s };

	s->workers_n = (size_t)doc_of(s)->workers;
	s->stopped_n = 0;
	s->workers = calloc(s->workers_n, sizeof(struct worker *));
	BUG(!s->workers);
	for (size_t i = 0; i < s->workers_n; i++)
		s->workers[i] = worker_new(s->x, (int)i + 1, &face);
}

/* ---- a run ---- */

static void
on_setup(void *arg, const struct connfault *why)
{
	struct sink *s = arg;

	if (why)
		run_failed(s, why);
	setup_free(s->setup);
	s->setup = NULL;
	if (why)
		return;
	s->ladder_ms = 0;
	connchild_phase(s->x->child, "running");
	start_workers(s);
}

static void
run(void *arg)
{
	struct sink *s = arg;

	if (s->failed_before)
		connchild_restarted(s->x->child);
	s->setup = setup_new(s->x, on_setup, s);
}

/* ---- the cell's side ---- */

static void
on_link(void *arg, enum pgconn_event ev, const struct err *why)
{
	struct sink *s = arg;

	/* who waits for an answer tells what it means */
	(void)why;
	if (ev == PGCONN_DOWN)
		feed_forget(s->x->feed);
}

static void
on_watch(void *arg, int64_t queue_id)
{
	struct sink *s = arg;

	connchild_watch(s->x->child, queue_id);
}

static void
on_complain(void *arg, const struct connfault *why)
{
	struct sink *s = arg;

	connchild_complain(s->x->child, why);
	/* it is told again while it lasts */
	loop_timer_start(&s->calm, CALM_MS);
}

static void
on_calm(void *arg)
{
	struct sink *s = arg;

	if (s->workers && !is_any_failing(s))
		connchild_well(s->x->child);
}

static void
open_cell(struct sink *s)
{
	struct ctx *x = s->x;
	struct feed_face face = {
		.watch = on_watch, .complain = on_complain, .arg = s
	};
	char name[96];

	snprintf(name, sizeof(name), "queen-pgsink %.*s",
		SPAN_ARG(x->task->name));
	x->work = pgconn_new(x->loop, x->conninfo, name, on_link, s);
	x->side = pgconn_new(x->loop, x->conninfo, name, on_link, s);
	pgconn_session_add(x->work, pgconn_heap_sql);
	x->feed = feed_new(x, &face);
}

struct sink *
sink_new(struct ctx *x)
{
	struct sink *s = calloc(1, sizeof(*s));
	char tenant[QID_TEXT_MAX];

	BUG(!s);
	s->x = x;
	snprintf(x->cell_tag, sizeof(x->cell_tag), "%.*s",
		SPAN_ARG(x->task->cell_tag));
	x->sink = arena_printf(&s->arena, "%s/%.*s",
		qid_text(&x->task->tenant, tenant), SPAN_ARG(x->task->name));
	s->group = conndoc_group(doc_of(s), x->task->name, &s->arena);
	loop_timer_init(&s->again, x->loop, run, s);
	loop_timer_init(&s->grace, x->loop, leave, s);
	loop_timer_init(&s->calm, x->loop, on_calm, s);
	open_cell(s);
	loop_timer_start(&s->again, 0);
	return s;
}

void
sink_stop(struct sink *s, int64_t grace_ms)
{
	if (s->stopping)
		return;
	s->stopping = true;
	loop_timer_stop(&s->again);
	loop_timer_start(&s->grace, grace_ms);
	setup_free(s->setup);
	s->setup = NULL;
	if (s->workers)
		stop_workers(s);
	else
		settle(s);
}

void
sink_free(struct sink *s)
{
	if (!s)
		return;
	loop_timer_fini(&s->again);
	loop_timer_fini(&s->grace);
	loop_timer_fini(&s->calm);
	setup_free(s->setup);
	free_workers(s);
	/* no answer may come to a feed that is going */
	pgconn_free(s->x->work);
	pgconn_free(s->x->side);
	feed_free(s->x->feed);
	arena_fini(&s->arena);
	free(s);
}

/* ---- what is shown ---- */

void
sink_write_detail(void *arg, struct jwrite *w)
{
	const struct sink *s = arg;
	const struct counts *c = &s->x->counts;
	const struct conndoc_sink *d = doc_of(s);

	jwrite_kv_str(w, "queue", d->queue);
	jwrite_kv_str(w, "group", s->group);
	jwrite_kv_str(w, "table", d->table.text);
	jwrite_kv_cstr(w, "mode", conndoc_mode_word(d->mode));
	jwrite_kv_i64(w, "workers", d->workers);
	jwrite_kv_i64(w, "applied", (int64_t)c->applied);
	jwrite_kv_i64(w, "skipped", (int64_t)c->skipped);
	jwrite_kv_i64(w, "dlq", (int64_t)c->dlq);
	jwrite_kv_i64(w, "batches", (int64_t)c->batches);
	jwrite_key(w, "lastAppliedAt");
	if (c->last_applied_us)
		jwrite_iso_us(w, c->last_applied_us);
	else
		jwrite_null(w);
}

void
sink_write_metrics(void *arg, struct jwrite *w)
{
	const struct sink *s = arg;
	const struct counts *c = &s->x->counts;

	jwrite_kv_i64(w, "queen_pg_sink_applied_total", (int64_t)c->applied);
	jwrite_kv_i64(w, "queen_pg_sink_skipped_total", (int64_t)c->skipped);
	jwrite_kv_i64(w, "queen_pg_sink_dlq_total", (int64_t)c->dlq);
	jwrite_kv_i64(w, "queen_pg_sink_batches_total", (int64_t)c->batches);
}

void
sink_on_marks(void *arg, const int64_t *parts, size_t n)
{
	const struct sink *s = arg;

	feed_mark(s->x->feed, parts, n);
}
