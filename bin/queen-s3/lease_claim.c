/* SPDX-License-Identifier: Apache-2.0 */
/* Whose the row is, and that it stays ours. */
#include "lease_int.h"

#include <string.h>

#include "clk.h"

/* fn may be the end of the lease: the last thing done. */
static void
end_look(struct lease *x, enum lease_seen s, struct span holder,
	const struct err *e)
{
	struct lease_op *o = lease_op_take(x);
	lease_look_fn fn = o->fn.look;
	void *arg = o->arg;

	lease_op_free(o);
	fn(arg, s, holder, e);
}

/* ---- look ---- */

static void
on_looked(void *arg, const struct cell_row *r, const struct err *e)
{
	struct lease *x = arg;
	enum lease_seen s = LEASE_FREE;
	struct lease_holder h = { .arena = ARENA_ZERO };

	x->call = NULL;
	if (!e && r->found) {
		h = lease_holder_of(x, r->value);
		s = h.earlier ? LEASE_MINE : LEASE_OTHER;
	}
	end_look(x, s, h.instance, e);
	arena_fini(&h.arena);
}

static void
begin_look(struct lease *x)
{
	x->call = cell_get(
		x->conf.cell, x->conf.tenant, buf_span(&x->key), on_looked, x);
}

void
lease_look(struct lease *x, lease_look_fn fn, void *arg)
{
	struct lease_op *o = lease_op_new(begin_look, arg);

	o->fn.look = fn;
	lease_op_add(x, o);
}

/* ---- claim ---- */

static void
put_row(struct lease *x, int64_t expect, cell_row_fn fn)
{
	x->call = cell_put(x->conf.cell, x->conf.tenant, buf_span(&x->key),
		buf_span(&x->doc), expect, x->ttl_s, fn, x);
}

static void
on_claimed(void *arg, const struct cell_row *r, const struct err *e)
{
	struct lease *x = arg;
	struct lease_holder h;

	x->call = NULL;
	if (e) {
		end_look(x, LEASE_FREE, (struct span)SPAN_ZERO, e);
		return;
	}
	if (r->found) {
		x->version = r->version;
		lease_arm_refresh(x);
		end_look(x, LEASE_MINE, span_of(x->conf.instance), NULL);
		return;
	}
	h = lease_holder_of(x, r->value);
	if (h.earlier && r->version && ++lease_op_first(x)->tries < LEASE_TRIES)
		put_row(x, r->version, on_claimed);
	else
		end_look(x, LEASE_OTHER, h.instance, NULL);
	arena_fini(&h.arena);
}

static void
on_claim_of_lost(void *arg)
{
	end_look(arg, LEASE_OTHER, SPAN_LIT("unknown"), NULL);
}

static void
begin_claim(struct lease *x)
{
	struct doc_lease doc = {
		.instance = span_of(x->conf.instance),
		.since_ms = clk_wall_us() / 1000,
	};

	if (x->lost) {
		lease_answer_later(x, on_claim_of_lost, 0);
		return;
	}
	memcpy(doc.incarnation, x->incarnation, sizeof(doc.incarnation));
	buf_reset(&x->doc);
	doc_lease_write(&x->doc, &doc);
	put_row(x, CELL_ABSENT, on_claimed);
}

void
lease_claim(struct lease *x, lease_look_fn fn, void *arg)
{
	struct lease_op *o = lease_op_new(begin_claim, arg);

	o->fn.look = fn;
	lease_op_add(x, o);
}

/* ---- refresh ---- */

static void
end_refresh(void *arg)
{
	struct lease *x = arg;

	x->refreshing = false;
	lease_op_free(lease_op_take(x));
}

/* What failed is tried again at the next tick. */
static void
on_refreshed(void *arg, const struct cell_row *r, const struct err *e)
{
	struct lease *x = arg;
	struct lease_holder h;

	x->call = NULL;
	if (e) {
		end_refresh(x);
		return;
	}
	if (r->found) {
		x->version = r->version;
		end_refresh(x);
		return;
	}
	h = lease_holder_of(x, r->value);
	arena_fini(&h.arena);
	if (h.mine && r->version) {
		x->version = r->version;
		if (++lease_op_first(x)->tries < LEASE_TRIES)
			put_row(x, x->version, on_refreshed);
		else
			end_refresh(x);
		return;
	}
	lease_lose(x);
	end_refresh(x);
	x->conf.on_lost(x->conf.arg);
}

static void
begin_refresh(struct lease *x)
{
	if (x->version)
		put_row(x, x->version, on_refreshed);
	else
		lease_answer_later(x, end_refresh, 0);
}

void
lease_on_refresh_due(void *arg)
{
	struct lease *x = arg;

	lease_arm_refresh(x);
	if (x->refreshing)
		return;
	x->refreshing = true;
	lease_op_add(x, lease_op_new(begin_refresh, NULL));
}
