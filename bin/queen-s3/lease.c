/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operation at a time, the others wait.  The version that is expected may
 * be behind the row's, after an answer that was lost: whose incarnation the row
 * names decides, and ours is in no other handle.
 */
#include "lease.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "arena.h"
#include "backoff.h"
#include "buf.h"
#include "cell.h"
#include "clk.h"
#include "doc.h"
#include "err.h"
#include "loop.h"

enum {
	REFRESH_LEAST_MS = 100,
	RELEASE_MS = 10000,
	RETRY_FIRST_MS = 100,
	RETRY_MAX_MS = 1000,
	RETRY_HURRY_MS = 250,
	TRIES_MAX = 3, /* of one operation, while the row moves */
};

struct op {
	STAILQ_ENTRY(op) link;
	void (*begin)(struct lease *x);
	union {
		lease_look_fn look;
		lease_fence_fn fence;
		lease_done_fn done;
	} fn;
	void *arg;
	int tries;
	/* of a fence */
	struct buf key, value, drop;
	int64_t expect;
};

struct lease {
	struct loop *loop;
	struct lease_conf conf;
	int64_t ttl_s;
	struct buf key, doc;
	char incarnation[DOC_INCARNATION + 1];
	int64_t version; /* as last told; 0: not held */
	bool lost, hurry;

	STAILQ_HEAD(, op) ops; /* the first one is under way */
	struct cell_call *call;
	struct loop_timer refresh;
	bool refreshing; /* one is among the ops */
	struct loop_timer wait; /* of the first one */
	int64_t retry_ms, give_up_ms;
};

/* ---- operations ---- */

static void
op_free(struct op *o)
{
	buf_fini(&o->key);
	buf_fini(&o->value);
	buf_fini(&o->drop);
	free(o);
}

static struct op *
first(struct lease *x)
{
	return STAILQ_FIRST(&x->ops);
}

static struct op *
op_new(void (*begin)(struct lease *x), void *arg)
{
	struct op *o = calloc(1, sizeof(*o));

	if (!o)
		abort();
	o->begin = begin;
	o->arg = arg;
	return o;
}

static void
op_add(struct lease *x, struct op *o)
{
	bool idle = !first(x);

	STAILQ_INSERT_TAIL(&x->ops, o, link);
	if (idle)
		o->begin(x);
}

/* The first one is over and the caller's; the next one begins. */
static struct op *
op_take(struct lease *x)
{
	struct op *o = first(x), *next;

	STAILQ_REMOVE_HEAD(&x->ops, link);
	next = first(x);
	if (next)
		next->begin(x);
	return o;
}

/* fn may be the end of the lease: the last thing done. */
static void
end_look(struct lease *x, enum lease_seen s, struct span holder,
	const struct err *e)
{
	struct op *o = op_take(x);
	lease_look_fn fn = o->fn.look;
	void *arg = o->arg;

	op_free(o);
	fn(arg, s, holder, e);
}

static void
end_fence(struct lease *x, enum lease_fenced f, int64_t version,
	const struct err *e)
{
	struct op *o = op_take(x);
	lease_fence_fn fn = o->fn.fence;
	void *arg = o->arg;

	op_free(o);
	fn(arg, f, version, e);
}

/* What has nothing to ask answers later all the same. */
static void
begin_later(struct lease *x, loop_fn fn, int64_t ms)
{
	loop_timer_fini(&x->wait);
	loop_timer_init(&x->wait, x->loop, fn, x);
	loop_timer_start(&x->wait, ms);
}

/* ---- who has it ---- */

struct holder {
	struct arena arena;
	struct span instance;
	bool mine; /* of this handle */
	bool earlier; /* of this instance */
};

static struct holder
holder_of(const struct lease *x, struct span value)
{
	struct holder h = { .arena = ARENA_ZERO,
		.instance = SPAN_LIT("unknown") };
	struct doc_lease doc;

	if (!doc_lease_read(value, &h.arena, &doc))
		return h;
	h.instance = doc.instance;
	h.mine = strcmp(doc.incarnation, x->incarnation) == 0;
	h.earlier = span_is(doc.instance, x->conf.instance);
	return h;
}

static void
lose(struct lease *x)
{
	x->version = 0;
	x->lost = true;
	loop_timer_stop(&x->refresh);
}

static void
arm_refresh(struct lease *x)
{
	int64_t ms = x->ttl_s * 1000 / 3;

	loop_timer_start(
		&x->refresh, ms > REFRESH_LEAST_MS ? ms : REFRESH_LEAST_MS);
}

/* ---- look ---- */

static void
on_looked(void *arg, const struct cell_row *r, const struct err *e)
{
	struct lease *x = arg;
	enum lease_seen s = LEASE_FREE;
	struct holder h = { .arena = ARENA_ZERO };

	x->call = NULL;
	if (!e && r->found) {
		h = holder_of(x, r->value);
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
	struct op *o = op_new(begin_look, arg);

	o->fn.look = fn;
	op_add(x, o);
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
	struct holder h;

	x->call = NULL;
	if (e) {
		end_look(x, LEASE_FREE, (struct span)SPAN_ZERO, e);
		return;
	}
	if (r->found) {
		x->version = r->version;
		arm_refresh(x);
		end_look(x, LEASE_MINE, span_of(x->conf.instance), NULL);
		return;
	}
	h = holder_of(x, r->value);
	if (h.earlier && r->version && ++first(x)->tries < TRIES_MAX)
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
		begin_later(x, on_claim_of_lost, 0);
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
	struct op *o = op_new(begin_claim, arg);

	o->fn.look = fn;
	op_add(x, o);
}

/* ---- refresh ---- */

static void
end_refresh(void *arg)
{
	struct lease *x = arg;

	x->refreshing = false;
	op_free(op_take(x));
}

/* What failed is tried again at the next tick. */
static void
on_refreshed(void *arg, const struct cell_row *r, const struct err *e)
{
	struct lease *x = arg;
	struct holder h;

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
	h = holder_of(x, r->value);
	arena_fini(&h.arena);
	if (h.mine && r->version) {
		x->version = r->version;
		if (++first(x)->tries < TRIES_MAX)
			put_row(x, x->version, on_refreshed);
		else
			end_refresh(x);
		return;
	}
	lose(x);
	end_refresh(x);
	x->conf.on_lost(x->conf.arg);
}

static void
begin_refresh(struct lease *x)
{
	if (x->version)
		put_row(x, x->version, on_refreshed);
	else
		begin_later(x, end_refresh, 0);
}

static void
on_refresh_due(void *arg)
{
	struct lease *x = arg;

	arm_refresh(x);
	if (x->refreshing)
		return;
	x->refreshing = true;
	op_add(x, op_new(begin_refresh, NULL));
}

/* ---- fence ---- */

static void send_fence(struct lease *x);

static void
on_fenced(void *arg, enum cell_fenced verdict, int64_t lease_version,
	int64_t version, const struct err *e)
{
	struct lease *x = arg;

	x->call = NULL;
	if (e) {
		end_fence(x, LEASE_RETRY, 0, e);
		return;
	}
	switch (verdict) {
	case CELL_APPLIED:
		x->version = lease_version;
		arm_refresh(x);
		end_fence(x, LEASE_APPLIED, version, NULL);
		return;
	case CELL_LEASE_MOVED:
		x->version = lease_version;
		if (++first(x)->tries < TRIES_MAX)
			send_fence(x);
		else
			end_fence(x, LEASE_RETRY, 0, NULL);
		return;
	case CELL_LEASE_LOST:
		lose(x);
		break;
	case CELL_POINTER_LOST:
		break;
	}
	end_fence(x, LEASE_LOST, 0, NULL);
}

static void
send_fence(struct lease *x)
{
	struct op *o = first(x);
	const struct cell_fence f = {
		.lease_key = buf_span(&x->key),
		.lease_value = buf_span(&x->doc),
		.lease_expect = x->version,
		.lease_ttl_s = x->ttl_s,
		.key = buf_span(&o->key),
		.value = buf_span(&o->value),
		.expect = o->expect,
		.drop = buf_span(&o->drop),
	};

	x->call = cell_fence(x->conf.cell, x->conf.tenant, &f, on_fenced, x);
}

static void
on_fence_of_lost(void *arg)
{
	end_fence(arg, LEASE_LOST, 0, NULL);
}

static void
begin_fence(struct lease *x)
{
	if (x->version)
		send_fence(x);
	else
		begin_later(x, on_fence_of_lost, 0);
}

void
lease_fence(struct lease *x, enum key_row pointer, struct span value,
	int64_t expect, enum key_row drop, lease_fence_fn fn, void *arg)
{
	struct span queue = span_of(x->conf.queue);
	struct op *o = op_new(begin_fence, arg);

	o->fn.fence = fn;
	o->expect = expect;
	key_row(&o->key, x->conf.sink, queue, pointer);
	buf_put_span(&o->value, value);
	if (drop != KEY_LEASE)
		key_row(&o->drop, x->conf.sink, queue, drop);
	op_add(x, o);
}

/* ---- release ---- */

static void find_row(void *arg);

static void
end_release(struct lease *x)
{
	struct op *o = op_take(x);
	lease_done_fn fn = o->fn.done;
	void *arg = o->arg;

	op_free(o);
	fn(arg);
}

/* False: it is given up. */
static bool
release_again(struct lease *x, const struct err *e)
{
	bool may = e->kind == ERR_DB_RETRY || e->kind == ERR_DB_UNKNOWN ||
		   e->kind == ERR_IO || e->kind == ERR_LIMIT;

	if (!may || loop_now_ms(x->loop) >= x->give_up_ms)
		return false;
	x->retry_ms = backoff_next_ms(x->retry_ms, RETRY_FIRST_MS,
		x->hurry ? RETRY_HURRY_MS : RETRY_MAX_MS);
	begin_later(x, find_row, x->retry_ms);
	return true;
}

static void
on_deleted(void *arg, const struct cell_row *r, const struct err *e)
{
	struct lease *x = arg;

	(void)r;
	x->call = NULL;
	if (!e || !release_again(x, e))
		end_release(x);
}

/* At the version it has: the one we know may be behind. */
static void
on_found(void *arg, const struct cell_row *r, const struct err *e)
{
	struct lease *x = arg;
	struct holder h;

	x->call = NULL;
	if (e) {
		if (!release_again(x, e))
			end_release(x);
		return;
	}
	h = holder_of(x, r->value);
	arena_fini(&h.arena);
	if (r->found && h.mine)
		x->call = cell_delete(x->conf.cell, x->conf.tenant,
			buf_span(&x->key), r->version, on_deleted, x);
	else
		end_release(x);
}

static void
find_row(void *arg)
{
	struct lease *x = arg;

	x->call = cell_get(
		x->conf.cell, x->conf.tenant, buf_span(&x->key), on_found, x);
}

static void
begin_release(struct lease *x)
{
	lose(x);
	x->retry_ms = 0;
	x->give_up_ms = loop_now_ms(x->loop) + RELEASE_MS;
	find_row(x);
}

void
lease_release(struct lease *x, lease_done_fn fn, void *arg)
{
	struct op *o = op_new(begin_release, arg);

	o->fn.done = fn;
	op_add(x, o);
}

/* ---- life ---- */

struct lease *
lease_new(struct loop *l, const struct lease_conf *c)
{
	unsigned char bytes[DOC_INCARNATION / 2];
	struct lease *x = calloc(1, sizeof(*x));

	if (!x)
		abort();
	x->loop = l;
	x->conf = *c;
	x->ttl_s = c->ttl_ms < 2000 ? 1 : c->ttl_ms / 1000;
	randombytes_buf(bytes, sizeof(bytes));
	sodium_bin2hex(
		x->incarnation, sizeof(x->incarnation), bytes, sizeof(bytes));
	key_row(&x->key, c->sink, span_of(c->queue), KEY_LEASE);
	STAILQ_INIT(&x->ops);
	loop_timer_init(&x->refresh, l, on_refresh_due, x);
	loop_timer_init(&x->wait, l, find_row, x);
	return x;
}

void
lease_free(struct lease *x)
{
	struct op *o;

	if (!x)
		return;
	cell_cancel(x->call);
	loop_timer_fini(&x->refresh);
	loop_timer_fini(&x->wait);
	while ((o = first(x)) != NULL) {
		STAILQ_REMOVE_HEAD(&x->ops, link);
		op_free(o);
	}
	buf_fini(&x->key);
	buf_fini(&x->doc);
	free(x);
}

void
lease_hurry(struct lease *x)
{
	x->hurry = true;
}
