/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims, refreshes and gives back the lease row of a source; owner.h decides
 * what a row that is there means.  Invariant: one call on the row at a time,
 * so a release waits for a refresh that is under way.
 */
#include "claim.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "backoff.h"
#include "buf.h"
#include "cellkv.h"
#include "clk.h"
#include "connchild.h"
#include "connfault.h"
#include "connhost.h"
#include "ctx.h"
#include "err.h"
#include "loop.h"
#include "owner.h"
#include "qid.h"

enum { RELEASE_MS = 5000, AGAIN_MIN_MS = 100, AGAIN_MAX_MS = 1000 };

enum claim_state {
	CLAIM_WANTED, /* claims, or waits to */
	CLAIM_MINE,
	CLAIM_RELEASING,
	CLAIM_OVER, /* lost or given back */
};

/* A call under way; outlives the claim when that is freed meanwhile. */
struct claim_call {
	struct claim *claim;
	void (*answer)(struct claim *c, const struct cellkv_row *row,
		const struct err *e);
};

struct claim {
	struct ctx *x;
	struct claim_events ev;
	enum claim_state state;
	struct claim_call *call;
	struct loop_timer timer, limit; /* limit: of a release */
	int64_t version; /* of the row while it is mine */
	char incarnation[QID_TEXT_MAX];
	struct buf doc; /* what the row holds when it is mine */
	struct buf standby; /* whom it was told of last */
	bool troubled;
	void (*done)(void *arg); /* of a release */
	void *done_arg;
	int64_t again_ms;
};

static void claim_try(struct claim *c);
static void refresh(struct claim *c);
static void release_look(struct claim *c);

bool
claim_is_mine(const struct claim *c)
{
	return c->state == CLAIM_MINE;
}

static struct cellkv_key
row_key(const struct claim *c)
{
	return (struct cellkv_key){ .tenant = &c->x->task->tenant,
		.ns = "queen-pg",
		.key = c->x->lease_key };
}

static struct owner
self(const struct claim *c)
{
	return (struct owner){ .node = c->x->task->node,
		.incarnation = span_of(c->incarnation),
		.since_us = clk_wall_us() };
}

/* ---- calls ---- */

static void
on_row(void *arg, const struct cellkv_row *row, const struct err *e)
{
	struct claim_call call = *(struct claim_call *)arg;

	free(arg);
	if (!call.claim)
		return;
	call.claim->call = NULL;
	call.answer(call.claim, row, e);
}

static struct claim_call *
begin_call(
	struct claim *c, void (*answer)(struct claim *,
				 const struct cellkv_row *, const struct err *))
{
	BUG(c->call);
	c->call = malloc(sizeof(*c->call));
	if (!c->call) {
		fprintf(stderr, "out of memory: a call\n");
		abort();
	}
	*c->call = (struct claim_call){ .claim = c, .answer = answer };
	return c->call;
}

static void
put(struct claim *c, int64_t expect,
	void (*answer)(
		struct claim *, const struct cellkv_row *, const struct err *))
{
	struct cellkv_key k = row_key(c);

	cellkv_put(c->x->side, &k, buf_span(&c->doc), expect,
		owner_ttl_s(c->x->conf->lease_ttl_ms), on_row,
		begin_call(c, answer));
}

/* Whose row is it?  *node: borrowed from the arena. */
static enum owner_claim
judge(const struct claim *c, struct span doc, struct arena *a,
	struct span *node)
{
	struct owner found, me = self(c);
	bool readable = owner_parse(doc, a, &found);

	*node = readable ? found.node : SPAN_LIT("");
	return owner_judge(readable ? &found : NULL, &me);
}

static enum owner_claim
judge_only(const struct claim *c, struct span doc)
{
	struct arena a = ARENA_ZERO;
	struct span node;
	enum owner_claim is = judge(c, doc, &a, &node);

	arena_fini(&a);
	return is;
}

/* ---- what the owner of the claim is told; each may free it ---- */

static void
tell_trouble(struct claim *c, const struct err *e)
{
	struct connfault f;

	connfault_cell(&f, e);
	c->troubled = true;
	c->ev.on_trouble(c->ev.arg, &f);
}

/* The next word to the owner follows at once, and it still lives then. */
static void
tell_well(struct claim *c)
{
	if (!c->troubled)
		return;
	c->troubled = false;
	c->ev.on_trouble(c->ev.arg, NULL);
}

/* ---- claiming ---- */

static void
claim_later(struct claim *c)
{
	loop_timer_start(&c->timer,
		owner_claim_ms(c->x->conf->lease_ttl_ms, randombytes_random()));
}

static void
won(struct claim *c, int64_t version)
{
	c->version = version;
	c->state = CLAIM_MINE;
	buf_reset(&c->standby);
	loop_timer_start(&c->timer, owner_refresh_ms(c->x->conf->lease_ttl_ms));
	tell_well(c);
	c->ev.on_won(c->ev.arg);
}

static void
stand_by(struct claim *c, struct span node)
{
	bool news =
		c->standby.len == 0 || !span_eq(node, buf_span(&c->standby));

	claim_later(c);
	tell_well(c);
	if (!news)
		return;
	buf_reset(&c->standby);
	buf_put_span(&c->standby, node);
	c->ev.on_standby(c->ev.arg, buf_span(&c->standby));
}

static void
on_claimed(struct claim *c, const struct cellkv_row *row, const struct err *e)
{
	struct arena a = ARENA_ZERO;
	struct span node;
	enum owner_claim is;

	if (c->state == CLAIM_RELEASING) {
		release_look(c);
		return;
	}
	if (e) {
		claim_later(c);
		tell_trouble(c, e);
		return;
	}
	if (row->applied) {
		won(c, row->version);
		return;
	}
	if (row->version == CELLKV_ABSENT) {
		/* it was there a moment ago */
		claim_try(c);
		return;
	}
	is = judge(c, row->value, &a, &node);
	/* also a put of ours whose answer was lost */
	if (is != OWNER_STANDBY)
		put(c, row->version, on_claimed);
	else
		stand_by(c, node);
	arena_fini(&a);
}

static void
claim_try(struct claim *c)
{
	struct owner me = self(c);

	buf_reset(&c->doc);
	owner_write(&c->doc, &me);
	put(c, CELLKV_ABSENT, on_claimed);
}

/* ---- refreshing ---- */

static void
lost(struct claim *c)
{
	c->state = CLAIM_OVER;
	tell_well(c);
	c->ev.on_lost(c->ev.arg);
}

static void
on_refreshed(struct claim *c, const struct cellkv_row *row, const struct err *e)
{
	if (c->state == CLAIM_RELEASING) {
		release_look(c);
		return;
	}
	if (!e && !row->applied) {
		/* a refresh whose answer was lost is no loss */
		if (row->version != CELLKV_ABSENT &&
			judge_only(c, row->value) == OWNER_MINE) {
			c->version = row->version;
			refresh(c);
		} else {
			lost(c);
		}
		return;
	}
	loop_timer_start(&c->timer, owner_refresh_ms(c->x->conf->lease_ttl_ms));
	if (e) {
		tell_trouble(c, e);
		return;
	}
	c->version = row->version;
	tell_well(c);
}

static void
refresh(struct claim *c)
{
	put(c, c->version, on_refreshed);
}

/* ---- giving back ---- */

/* Given back, or left to end by itself. */
static void
released(struct claim *c)
{
	c->state = CLAIM_OVER;
	loop_timer_stop(&c->timer);
	loop_timer_stop(&c->limit);
	c->done(c->done_arg);
}

static void
release_again(struct claim *c)
{
	loop_timer_start(&c->timer, c->again_ms);
	c->again_ms = backoff_next_ms(c->again_ms, AGAIN_MIN_MS, AGAIN_MAX_MS);
}

/* Not there any more is as good as deleted; another version is looked at. */
static void
on_deleted(struct claim *c, const struct cellkv_row *row, const struct err *e)
{
	if (e || (!row->applied && row->version != CELLKV_ABSENT))
		release_again(c);
	else
		released(c);
}

static void
on_looked(struct claim *c, const struct cellkv_row *row, const struct err *e)
{
	struct cellkv_key k = row_key(c);

	if (e)
		release_again(c);
	else if (!row->applied || judge_only(c, row->value) != OWNER_MINE)
		released(c);
	else
		cellkv_delete(c->x->side, &k, row->version, on_row,
			begin_call(c, on_deleted));
}

static void
release_look(struct claim *c)
{
	struct cellkv_key k = row_key(c);

	cellkv_get(c->x->side, &k, on_row, begin_call(c, on_looked));
}

void
claim_release(struct claim *c, void (*done)(void *arg), void *arg)
{
	BUG(c->state == CLAIM_RELEASING);
	c->state = CLAIM_RELEASING;
	c->done = done;
	c->done_arg = arg;
	c->again_ms = AGAIN_MIN_MS;
	loop_timer_stop(&c->timer);
	loop_timer_start(&c->limit, RELEASE_MS);
	/* else it goes on when the call under way is answered */
	if (!c->call)
		release_look(c);
}

/* ---- life ---- */

/* Its answer is of no use any more. */
static void
drop_call(struct claim *c)
{
	if (c->call)
		c->call->claim = NULL;
	c->call = NULL;
}

static void
on_limit(void *arg)
{
	struct claim *c = arg;

	drop_call(c);
	released(c);
}

static void
on_timer(void *arg)
{
	struct claim *c = arg;

	switch (c->state) {
	case CLAIM_WANTED:
		claim_try(c);
		break;
	case CLAIM_MINE:
		refresh(c);
		break;
	case CLAIM_RELEASING:
		release_look(c);
		break;
	case CLAIM_OVER:
		break;
	}
}

void
claim_again(struct claim *c, int64_t wait_ms)
{
	BUG(c->state != CLAIM_OVER || c->call);
	c->state = CLAIM_WANTED;
	buf_reset(&c->standby);
	loop_timer_start(&c->timer, wait_ms);
}

struct claim *
claim_new(struct ctx *x, const struct claim_events *ev)
{
	struct claim *c = calloc(1, sizeof(*c));
	struct qid life = qid_new();

	if (!c) {
		fprintf(stderr, "out of memory: a claim\n");
		abort();
	}
	c->x = x;
	c->ev = *ev;
	qid_text(&life, c->incarnation);
	loop_timer_init(&c->timer, x->loop, on_timer, c);
	loop_timer_init(&c->limit, x->loop, on_limit, c);
	claim_try(c);
	return c;
}

void
claim_free(struct claim *c)
{
	if (!c)
		return;
	drop_call(c);
	loop_timer_fini(&c->timer);
	loop_timer_fini(&c->limit);
	buf_fini(&c->doc);
	buf_fini(&c->standby);
	free(c);
}
