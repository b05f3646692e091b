/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of key/value state and of timers: whatever the bytes, the
 * reader ends, a refusal is one of its own, and what it took is inside its
 * bounds.  The first byte chooses: a call or a bundle.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "catalog.h"
#include "ctx.h"
#include "err.h"
#include "fault.h"
#include "frame.h"
#include "jspan.h"
#include "kv_ops.h"
#include "loop.h"
#include "settings.h"
#include "timer_ops.h"

enum { PAYLOAD_MAX = 65536 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check(bool holds)
{
	if (!holds)
		abort();
}

static void
check_refusal(const struct fault *f)
{
	check(f->status == 400 || f->status == 403 || f->status == 413);
	check(f->error && f->error[0]);
	check(jspan_utf8(span_of(f->detail)));
	check(!f->reason || jspan_utf8(span_of(f->reason)));
}

static void
check_text(struct span s, size_t max)
{
	check(s.n > 0 && s.n <= max && jspan_utf8(s));
	check(!memchr(s.p, 0, s.n));
}

static void
check_json(struct span s)
{
	const char *what;
	size_t at;

	if (s.n)
		check(jspan_valid(s, &what, &at));
}

static void
check_kv(const struct kv_ops *o, const struct settings *c, bool in_bundle)
{
	int64_t writes = 0, keys = 0;

	check(o->n <= (size_t)(in_bundle ? 64 : c->kv_max_ops));
	for (size_t i = 0; i < o->n; i++) {
		const struct kv_op *op = &o->v[i];

		check(kv_ops_is_namespace(op->ns));
		if (op->kind != KV_GET_MANY)
			check_text(op->key, (size_t)c->kv_max_key_bytes);
		for (size_t k = 0; k < op->keys_n; k++)
			check_text(op->keys[k], (size_t)c->kv_max_key_bytes);
		check(!in_bundle || op->kind != KV_GET_PREFIX);
		check(op->kind != KV_PUT || op->value.n > 0);
		check((int64_t)op->value_bytes <= c->kv_max_value_bytes);
		check_json(op->value);
		check_json(op->delta);
		check(op->expect >= -1);
		check(op->ttl_s >= 0 && op->ttl_s <= 3153600000);
		writes += op->kind >= KV_PUT;
		keys += (int64_t)op->keys_n;
	}
	check(o->writes == writes && o->rows <= writes);
	check(keys <= (in_bundle ? 256 : c->kv_max_keys));
}

static void
check_timers(const struct timer_ops *o, const struct settings *c)
{
	int64_t schedules = 0;

	check(o->n <= (size_t)c->timers_max_ops);
	for (size_t i = 0; i < o->n; i++) {
		const struct timer_op *op = &o->v[i];
		struct span rest = op->frame;
		struct frame f;
		struct err e;

		check_text(op->queue, 512);
		check_text(op->key, 512);
		if (op->cancel)
			continue;
		schedules++;
		check_text(op->partition, 1024);
		check(op->delay_ms <= (double)c->timers_max_horizon_s * 1e3);
		check(op->payload.n <= PAYLOAD_MAX);
		check_json(op->payload);
		check(frame_next(&rest, &f, &e) == 1 && rest.n == 0);
		check(span_eq(f.txn, op->txn) &&
			span_eq(f.payload, op->payload));
	}
	check(o->schedules == schedules);
}

static void
read_both(struct ctx *x, struct span body, bool in_bundle)
{
	static const struct qid tenant = { .b = { [15] = 1 } };
	struct arena a = ARENA_ZERO;
	struct timer_ops timers;
	struct kv_ops kv;
	struct fault f;

	if (kv_ops_parse(body, in_bundle, x, &a, &kv, &f) != 0)
		check_refusal(&f);
	else
		check_kv(&kv, x->conf, in_bundle);
	memset(&timers, 0, sizeof(timers));
	if (timer_ops_parse(
		    body, x, &tenant, SPAN_LIT("who"), &a, &timers, &f) != 0)
		check_refusal(&f);
	else
		check_timers(&timers, x->conf);
	arena_fini(&a);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct settings conf = {
		.kv_max_ops = 256,
		.kv_max_keys = 1024,
		.kv_max_value_bytes = 65536,
		.kv_max_key_bytes = 512,
		.kv_max_read_bytes = 4194304,
		.kv_prefix_limit = 1000,
		.max_body_bytes = 67108864,
		.timers_max_ops = 256,
		.timers_max_horizon_s = 7776000,
		.timers_max_payload_bytes = PAYLOAD_MAX,
	};
	static struct ctx x = { .conf = &conf };
	bool in_bundle = size > 0 && (data[0] & 1);
	struct span body;

	if (size == 0)
		return 0;
	if (!x.loop) {
		x.loop = loop_new();
		x.catalog = catalog_new(&x);
	}
	body = span_make(data + 1, size - 1);
	read_both(&x, body, in_bundle);
	return 0;
}
