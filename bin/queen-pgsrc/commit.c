/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One bundle at a time, from its units to a verdict that stands.  bundle.h
 * says what each answer means, here it is done; commit_call.c asks.
 *
 * What is told to the owner comes last in every function: it may free us.
 */
#include "commit.h"

#include <stdio.h>
#include <stdlib.h>

#include "clk.h"
#include "commit_int.h"
#include "connchild.h"
#include "connfault.h"
#include "ctx.h"
#include "err.h"
#include "names.h"
#include "pgconn.h"
#include "unit.h"

enum { ANSWER_MS = 60000 };

static void bundle_send(struct commit *c);

/* ---- telling ---- */

static void
fail(struct commit *c, const struct connfault *f)
{
	c->ev.on_fault(c->ev.arg, f);
}

void
commit_trouble(struct commit *c, const struct connfault *f)
{
	c->troubled = true;
	c->ev.on_trouble(c->ev.arg, f);
}

static void
next_in(struct commit *c, int64_t ms, void (*next)(struct commit *c))
{
	c->next = next;
	loop_timer_start(&c->timer, ms);
}

static void
on_timer(void *arg)
{
	struct commit *c = arg;

	c->next(c);
}

const struct pointer_place *
commit_cover(const struct commit *c)
{
	const struct unit *u = TAILQ_FIRST(&c->queue->list);

	for (size_t i = 1; i < c->queue->in_flight; i++)
		u = TAILQ_NEXT(u, link);
	return &u->cover;
}

static void
settled(struct commit *c, int64_t version)
{
	batch_announce(&c->batch, c->x->child);
	batch_fini(&c->batch);
	c->version = version;
	c->lsn = commit_cover(c)->lsn;
	c->busy = false;
	unit_queue_settle(c->queue);
	if (c->troubled) {
		c->troubled = false;
		c->ev.on_trouble(c->ev.arg, NULL);
	}
	c->ev.on_settled(c->ev.arg);
}

/* ---- what to do next ---- */

static void
fenced(struct commit *c)
{
	struct connfault f;

	connfault_set(&f, "fenced", true,
		"another owner moved the pointer; this one starts anew");
	fail(c, &f);
}

static void
refused(struct commit *c)
{
	struct connfault f = c->refusal; /* what we own may go */

	fail(c, &f);
}

void
commit_act(struct commit *c, enum bundle_act a, int64_t version)
{
	switch (a) {
	case BUNDLE_GO_ON:
		settled(c, version);
		break;
	case BUNDLE_READ:
		next_in(c, c->bundle.wait_ms, commit_ask);
		break;
	case BUNDLE_ENSURE:
		names_forget(c->names, c->batch.parts, c->batch.parts_n);
		/* fallthrough */
	case BUNDLE_RESEND:
		next_in(c, c->bundle.wait_ms, bundle_send);
		break;
	case BUNDLE_SEAL:
		names_reread(c->names);
		next_in(c, 0, bundle_send);
		break;
	case BUNDLE_FENCED:
		fenced(c);
		break;
	case BUNDLE_STOP:
		refused(c);
		break;
	}
}

void
commit_answered(struct commit *c, enum bundle_answer answer)
{
	commit_act(c, bundle_on_answer(&c->bundle, answer, 0), c->next_version);
}

static void
refuse(struct commit *c, const char *why)
{
	connfault_set(&c->refusal, "queen_refused", false,
		"the cell refuses messages: %s; nothing is skipped", why);
	commit_answered(c, BUNDLE_REFUSED);
}

void
commit_not_done(struct commit *c, const struct err *e)
{
	struct connfault f;

	connfault_cell(&f, e);
	if (e->kind == ERR_DB_DATA || e->kind == ERR_INPUT) {
		refuse(c, e->text);
	} else if (!f.retryable) {
		fail(c, &f);
	} else {
		commit_answered(c, BUNDLE_SLOW_DOWN);
		commit_trouble(c, &f);
	}
}

/* ---- before the call ---- */

static void
pack(struct commit *c)
{
	if (batch_pack(&c->batch, c->x->seal, names_hash_key(c->names)))
		commit_call(c);
	else
		next_in(c, 0, pack);
}

static void
pack_begin(struct commit *c)
{
	const struct names_part *p = batch_unsealable(&c->batch, c->x->seal);
	char why[CONNFAULT_TEXT_MAX];

	if (!p) {
		pack(c);
		return;
	}
	snprintf(why, sizeof(why),
		"set QUEEN_ENCRYPTION_KEY to the key of the cell, for there "
		"is none here and queue %.*s takes sealed messages only",
		SPAN_ARG(p->queue->name));
	refuse(c, why);
}

static void
on_names(void *arg, const struct err *e)
{
	struct commit *c = arg;

	if (e)
		commit_not_done(c, e);
	else
		pack_begin(c);
}

static void
bundle_send(struct commit *c)
{
	struct batch *b = &c->batch;

	if (b->n == 0 || names_known(c->names, b->parts, b->parts_n))
		pack_begin(c);
	else
		names_load(c->names, b->parts, b->parts_n, on_names, c);
}

static void
bundle_begin(struct commit *c)
{
	struct err e = ERR_ZERO;

	if (batch_init(&c->batch, c->queue, c->names, &e) != 0)
		refuse(c, e.text);
	else
		bundle_send(c);
}

void
commit_send(struct commit *c)
{
	BUG(c->busy);
	bundle_take(c->queue, c->limits);
	c->busy = true;
	c->bundle = (struct bundle)BUNDLE_ZERO;
	buf_reset(&c->doc);
	pointer_write(&c->doc, &c->pointer, commit_cover(c), clk_wall_us());
	next_in(c, 0, bundle_begin);
}

/* ---- life ---- */

bool
commit_is_busy(const struct commit *c)
{
	return c->busy;
}

uint64_t
commit_lsn(const struct commit *c)
{
	return c->lsn;
}

struct commit *
commit_new(struct ctx *x, struct unit_queue *q,
	const struct bundle_limits *limits, const struct pointer *pointer,
	int64_t version, const struct commit_events *ev)
{
	struct commit *c = calloc(1, sizeof(*c));

	if (!c) {
		fprintf(stderr, "out of memory: the commits of a source\n");
		abort();
	}
	c->x = x;
	c->queue = q;
	c->limits = limits;
	c->ev = *ev;
	c->names = names_new(x);
	pointer_copy(&c->pointer, pointer);
	c->version = version;
	c->lsn = pointer->place.lsn;
	loop_timer_init(&c->timer, x->loop, on_timer, c);
	pgconn_limit(x->work, ANSWER_MS);
	return c;
}

void
commit_free(struct commit *c)
{
	if (!c)
		return;
	commit_leave(c);
	loop_timer_fini(&c->timer);
	batch_fini(&c->batch);
	names_free(c->names);
	pointer_fini(&c->pointer);
	buf_fini(&c->doc);
	free(c);
}
