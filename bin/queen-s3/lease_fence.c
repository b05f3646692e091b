/* SPDX-License-Identifier: Apache-2.0 */
/* Writing under the lease, and handing it over. */
#include "lease_int.h"

#include "backoff.h"
#include "err.h"

enum {
	RELEASE_MS = 10000,
	RETRY_FIRST_MS = 100,
	RETRY_MAX_MS = 1000,
	RETRY_HURRY_MS = 250,
};

/* ---- fence ---- */

/* fn may be the end of the lease: the last thing done. */
static void
end_fence(struct lease *x, enum lease_fenced f, int64_t version,
	const struct err *e)
{
	struct lease_op *o = lease_op_take(x);
	lease_fence_fn fn = o->fn.fence;
	void *arg = o->arg;

	lease_op_free(o);
	fn(arg, f, version, e);
}

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
		lease_arm_refresh(x);
		end_fence(x, LEASE_APPLIED, version, NULL);
		return;
	case CELL_LEASE_MOVED:
		x->version = lease_version;
		if (++lease_op_first(x)->tries < LEASE_TRIES)
			send_fence(x);
		else
			end_fence(x, LEASE_RETRY, 0, NULL);
		return;
	case CELL_LEASE_LOST:
		lease_lose(x);
		break;
	case CELL_POINTER_LOST:
		break;
	}
	end_fence(x, LEASE_LOST, 0, NULL);
}

static void
send_fence(struct lease *x)
{
	struct lease_op *o = lease_op_first(x);
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
		lease_answer_later(x, on_fence_of_lost, 0);
}

void
lease_fence(struct lease *x, enum key_row pointer, struct span value,
	int64_t expect, enum key_row drop, lease_fence_fn fn, void *arg)
{
	struct span queue = span_of(x->conf.queue);
	struct lease_op *o = lease_op_new(begin_fence, arg);

	o->fn.fence = fn;
	o->expect = expect;
	key_row(&o->key, x->conf.sink, queue, pointer);
	buf_put_span(&o->value, value);
	if (drop != KEY_LEASE)
		key_row(&o->drop, x->conf.sink, queue, drop);
	lease_op_add(x, o);
}

/* ---- release ---- */

static void find_row(void *arg);

static void
end_release(struct lease *x)
{
	struct lease_op *o = lease_op_take(x);
	lease_done_fn fn = o->fn.done;
	void *arg = o->arg;

	lease_op_free(o);
	fn(arg);
}

/* False: it is given up. */
static bool
release_again(struct lease *x, const struct err *e)
{
	if (!cell_may_retry(e) || loop_now_ms(x->loop) >= x->give_up_ms)
		return false;
	x->retry_ms = backoff_next_ms(x->retry_ms, RETRY_FIRST_MS,
		x->hurry ? RETRY_HURRY_MS : RETRY_MAX_MS);
	lease_answer_later(x, find_row, x->retry_ms);
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
	struct lease_holder h;

	x->call = NULL;
	if (e) {
		if (!release_again(x, e))
			end_release(x);
		return;
	}
	h = lease_holder_of(x, r->value);
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
	lease_lose(x);
	x->retry_ms = 0;
	x->give_up_ms = loop_now_ms(x->loop) + RELEASE_MS;
	find_row(x);
}

void
lease_release(struct lease *x, lease_done_fn fn, void *arg)
{
	struct lease_op *o = lease_op_new(begin_release, arg);

	o->fn.done = fn;
	lease_op_add(x, o);
}
