/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session of one worker.  A batch goes piece by piece as isolate.h says;
 * what it knows of the pieces outlives a lost session, so a batch given again
 * goes on where it was.  The table is looked at when a session begins, once a
 * second, and whenever a failure may have come from its shape.
 */
#include "target.h"

#include <stdio.h>
#include <stdlib.h>

#include "apply.h"
#include "arena.h"
#include "clk.h"
#include "conndoc.h"
#include "connchild.h"
#include "connfault.h"
#include "ctx.h"
#include "err.h"
#include "facts.h"
#include "feed.h"
#include "isolate.h"
#include "log.h"
#include "loop.h"
#include "pglink.h"
#include "plan.h"
#include "session.h"
#include "stmts.h"

/* Longer than this no member is left out for a column that is there. */
enum { LOOK_EVERY_MS = 1000 };

struct target {
	struct ctx *x;
	char who[16];
	struct session session;
	struct facts facts;
	struct plan *plan; /* of this session */
	int64_t looked_ms; /* 0 = look before the next piece */
	bool looking;
	struct stmts stmts;
	struct apply apply;
	struct loop_timer pause, soon;
	bool stopping;
	/* the batch in hand, until another is given */
	struct feed_batch *batch;
	struct isolate *isolate;
	bool waiting; /* the delay of this piece is over */
	struct arena arena;
	int64_t dropped_group; /* of the last batch that was dropped */
	/* the answer that is due */
	target_fn fn;
	void *arg;
	enum target_end end;
	struct connfault fault;
	const struct feed_result *results;
};

static void step(struct target *t);

/* ---- answers ---- */

static void
on_soon(void *arg)
{
	struct target *t = arg;
	target_fn fn = t->fn;

	if (!fn)
		return;
	t->fn = NULL;
	fn(t->arg, t->end, t->results,
		t->end == TARGET_DONE ? NULL : &t->fault);
}

static void
answer(struct target *t, enum target_end end, const struct connfault *why)
{
	t->end = end;
	if (why)
		t->fault = *why;
	loop_timer_stop(&t->pause);
	loop_timer_start(&t->soon, 0);
}

static void
done(struct target *t)
{
	t->results = isolate_results(t->isolate);
	answer(t, TARGET_DONE, NULL);
}

/*
 * Nothing of it is acknowledged: who has the later life of the group has it.
 * If the next batch is of the same life, taken after this one, then it is the
 * cell that went back, and the later life never was.
 */
static void
drop(struct target *t)
{
	t->dropped_group = t->batch->group_id;
	log_line(LOG_WARN, "sink",
		"a batch of an earlier life of the group is left alone",
		"connector=%.*s messages=%zu", SPAN_ARG(t->x->task->name),
		t->batch->n);
	t->results = arena_zalloc(
		&t->arena, t->batch->parts_n * sizeof(struct feed_result));
	answer(t, TARGET_DONE, NULL);
}

static bool
is_busy(const struct target *t)
{
	return t->fn && !loop_timer_pending(&t->soon);
}

/* ---- the session and the table ---- */

static void
forget_plan(struct target *t)
{
	plan_free(t->plan);
	t->plan = NULL;
	stmts_forget(&t->stmts);
	t->looked_ms = 0;
}

static void
close_session(struct target *t)
{
	session_close(&t->session);
	t->looking = false;
	forget_plan(t);
}

static void
on_end(void *arg, const struct connfault *why)
{
	struct target *t = arg;
	struct connfault fault = *why;

	if (apply_is_running(&t->apply))
		apply_lost(&t->apply, &fault);
	close_session(t);
	if (is_busy(t))
		answer(t, TARGET_AGAIN, &fault);
}

static void
on_facts(void *arg, struct plan *plan, const struct connfault *why)
{
	struct target *t = arg;
	bool is_fatal;

	t->looking = false;
	if (!plan) {
		/* what setup would refuse; else it passes, or is the server's */
		is_fatal = why->code && !why->retryable &&
			   why->sqlstate[0] == '\0';
		if (why->code && pglink_is_up(t->session.link))
			answer(t, is_fatal ? TARGET_OVER : TARGET_AGAIN, why);
		return;
	}
	t->looked_ms = clk_mono_ms();
	if (t->plan && plan_same(t->plan, plan) &&
		!plan_outgrown(t->plan, plan)) {
		plan_free(plan);
	} else {
		if (t->plan)
			pglink_forget(t->session.link);
		stmts_forget(&t->stmts);
		plan_free(t->plan);
		t->plan = plan;
	}
	step(t);
}

static void
look(struct target *t)
{
	t->looking = true;
	facts_read(&t->facts, t->session.link);
}

static void
on_up(void *arg)
{
	struct target *t = arg;

	/* a commit that is told must be one that stays */
	pglink_exec(t->session.link, NULL,
		"select pg_catalog.set_config('synchronous_commit', 'on',"
		" false) where pg_catalog.current_setting("
		"'synchronous_commit') = 'off'",
		NULL, 0, NULL, NULL);
	pglink_sync(t->session.link);
	step(t);
}

static void
dial(struct target *t)
{
	struct connfault f;

	if (session_open(&t->session, t->x, t->who, on_up, on_end, t, &f) != 0)
		answer(t, TARGET_OVER, &f);
}

/* ---- pieces ---- */

static void
count(struct target *t)
{
	struct counts *c = &t->x->counts;

	c->applied += t->apply.applied;
	c->skipped += t->apply.skipped;
	if (t->apply.applied > 0)
		c->last_applied_us = clk_wall_us();
}

/* Setup says what is wrong with it, or makes it anew. */
static void
progress_gone(struct target *t)
{
	struct connfault f;

	connfault_set(&f, "progress_table", true, "%s", t->apply.fault.text);
	answer(t, TARGET_OVER, &f);
}

static void
piece_failed(struct target *t)
{
	struct apply *a = &t->apply;
	enum isolate_end is = isolate_class(a->fault.sqlstate, a->own);

	if (is == ISOLATE_DATA) {
		if (a->culprit.text.n == 0)
			a->culprit.text = span_of(a->fault.text);
		isolate_ended(t->isolate, is, &a->culprit);
		step(t);
		return;
	}
	isolate_ended(t->isolate, is, NULL);
	if (is == ISOLATE_ENVIRONMENT && t->session.link &&
		pglink_is_up(t->session.link)) {
		pglink_forget(t->session.link);
		forget_plan(t);
	}
	if (a->no_progress)
		progress_gone(t);
	else
		answer(t, TARGET_AGAIN, &a->fault);
}

static void
on_apply(void *arg, enum apply_end end)
{
	struct target *t = arg;

	t->waiting = false;
	switch (end) {
	case APPLY_COMMITTED:
		count(t);
		isolate_ended(t->isolate, ISOLATE_COMMITTED, NULL);
		step(t);
		return;
	case APPLY_FAILED:
		piece_failed(t);
		return;
	case APPLY_NEWER:
		drop(t);
		return;
	case APPLY_FOREIGN:
		answer(t, TARGET_OVER, &t->apply.fault);
		return;
	}
}

static void
run_piece(struct target *t, const struct isolate_piece *p)
{
	struct apply_with with = { .x = t->x,
		.link = t->session.link,
		.plan = t->plan,
		.stmts = &t->stmts,
		.batch = t->batch,
		.lost_future = t->batch->group_id == t->dropped_group };

	apply_start(&t->apply, &with, p);
}

static void
on_pause(void *arg)
{
	step(arg);
}

static bool
must_look(const struct target *t)
{
	return !t->plan || t->looked_ms == 0 ||
	       clk_mono_ms() - t->looked_ms > LOOK_EVERY_MS;
}

static void
step(struct target *t)
{
	struct isolate_piece p;

	if (!is_busy(t) || t->looking || apply_is_running(&t->apply))
		return;
	if (!isolate_next(t->isolate, &p) || t->stopping) {
		done(t);
	} else if (!t->session.link) {
		dial(t);
	} else if (!pglink_is_up(t->session.link)) {
		return; /* dialling, or its end is about to be told */
	} else if (p.delay_ms > 0 && !t->waiting) {
		t->waiting = true;
		loop_timer_start(&t->pause, p.delay_ms);
	} else if (must_look(t)) {
		look(t);
	} else {
		run_piece(t, &p);
	}
}

/* ---- from outside ---- */

struct target *
target_new(struct ctx *x, int worker_no)
{
	struct target *t = calloc(1, sizeof(*t));

	BUG(!t);
	t->x = x;
	snprintf(t->who, sizeof(t->who), "%d", worker_no);
	loop_timer_init(&t->pause, x->loop, on_pause, t);
	loop_timer_init(&t->soon, x->loop, on_soon, t);
	facts_init(&t->facts, &x->task->doc->sink, on_facts, t);
	apply_init(&t->apply, x->loop, on_apply, t);
	return t;
}

void
target_free(struct target *t)
{
	if (!t)
		return;
	session_close(&t->session);
	apply_fini(&t->apply);
	facts_fini(&t->facts);
	plan_free(t->plan);
	stmts_fini(&t->stmts);
	isolate_free(t->isolate);
	loop_timer_fini(&t->pause);
	loop_timer_fini(&t->soon);
	arena_fini(&t->arena);
	free(t);
}

void
target_apply(struct target *t, struct feed_batch *b, target_fn fn, void *arg)
{
	BUG(t->fn);
	t->fn = fn;
	t->arg = arg;
	if (t->batch != b) {
		target_forget(t);
		t->batch = b;
		if (b->group_id > t->dropped_group)
			t->dropped_group = 0;
		t->isolate = isolate_new(b, t->x->task->doc->sink.max_attempts);
	}
	step(t);
}

void
target_forget(struct target *t)
{
	isolate_free(t->isolate);
	t->isolate = NULL;
	t->batch = NULL;
	arena_reset(&t->arena);
}

void
target_stop(struct target *t)
{
	t->stopping = true;
	if (loop_timer_pending(&t->pause)) {
		loop_timer_stop(&t->pause);
		step(t);
	} else if (is_busy(t) && !apply_is_running(&t->apply)) {
		close_session(t);
		done(t);
	}
}
