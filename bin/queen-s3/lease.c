/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operation at a time, the others wait.  The version that is expected may
 * be behind the row's, after an answer that was lost: whose incarnation the row
 * names decides, and ours is in no other handle.
 */
#include "lease_int.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { REFRESH_LEAST_MS = 100 };

/* ---- operations ---- */

void
lease_op_free(struct lease_op *o)
{
	buf_fini(&o->key);
	buf_fini(&o->value);
	buf_fini(&o->drop);
	free(o);
}

struct lease_op *
lease_op_new(void (*begin)(struct lease *x), void *arg)
{
	struct lease_op *o = calloc(1, sizeof(*o));

	if (!o)
		abort();
	o->begin = begin;
	o->arg = arg;
	return o;
}

void
lease_op_add(struct lease *x, struct lease_op *o)
{
	bool idle = !lease_op_first(x);

	STAILQ_INSERT_TAIL(&x->ops, o, link);
	if (idle)
		o->begin(x);
}

struct lease_op *
lease_op_take(struct lease *x)
{
	struct lease_op *o = lease_op_first(x), *next;

	STAILQ_REMOVE_HEAD(&x->ops, link);
	next = lease_op_first(x);
	if (next)
		next->begin(x);
	return o;
}

void
lease_answer_later(struct lease *x, loop_fn fn, int64_t ms)
{
	loop_timer_fini(&x->wait);
	loop_timer_init(&x->wait, x->loop, fn, x);
	loop_timer_start(&x->wait, ms);
}

/* ---- who has it ---- */

struct lease_holder
lease_holder_of(const struct lease *x, struct span value)
{
	struct lease_holder h = { .arena = ARENA_ZERO,
		.instance = SPAN_LIT("unknown") };
	struct doc_lease doc;

	if (!doc_lease_read(value, &h.arena, &doc))
		return h;
	h.instance = doc.instance;
	h.mine = strcmp(doc.incarnation, x->incarnation) == 0;
	h.earlier = span_is(doc.instance, x->conf.instance);
	return h;
}

void
lease_lose(struct lease *x)
{
	x->version = 0;
	x->lost = true;
	loop_timer_stop(&x->refresh);
}

void
lease_arm_refresh(struct lease *x)
{
	int64_t ms = x->ttl_s * 1000 / 3;

	loop_timer_start(
		&x->refresh, ms > REFRESH_LEAST_MS ? ms : REFRESH_LEAST_MS);
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
	loop_timer_init(&x->refresh, l, lease_on_refresh_due, x);
	loop_timer_init(&x->wait, l, NULL, x);
	return x;
}

void
lease_free(struct lease *x)
{
	struct lease_op *o;

	if (!x)
		return;
	cell_cancel(x->call);
	loop_timer_fini(&x->refresh);
	loop_timer_fini(&x->wait);
	while ((o = lease_op_first(x)) != NULL) {
		STAILQ_REMOVE_HEAD(&x->ops, link);
		lease_op_free(o);
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
