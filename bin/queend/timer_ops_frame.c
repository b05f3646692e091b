/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the payload of a schedule to the finished frame of its message: decoded,
 * inflated, checked, and sealed where the queue wants it.
 */
#include <sodium.h>
#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "catalog.h"
#include "ctx.h"
#include "err.h"
#include "frame.h"
#include "jspan.h"
#include "keyring.h"
#include "settings.h"
#include "timer_ops_int.h"
#include "zst.h"

static int
read_flag(struct timer_reader *r, const struct jspan_val *v, const char *what,
	bool *out)
{
	*out = v->type == JSPAN_BOOL && v->truth;
	if (v->type == JSPAN_NONE || v->type == JSPAN_NULL ||
		v->type == JSPAN_BOOL)
		return 0;
	return timer_ops_refuse(r, "timers_bad_request", what);
}

static int
too_large(struct timer_reader *r)
{
	return timer_ops_refuse_as(r, 413, "payload_too_large",
		"timers_payload_too_large", "the payload is too large");
}

/* Whether inflating it failed for its size or for what it is. */
static int
inflate(struct timer_reader *r, struct span *payload)
{
	size_t max = (size_t)r->x->conf->timers_max_payload_bytes;
	struct buf plain = BUF_ZERO;
	struct err e;
	int rc = zst_unpack(*payload, max, &plain, &e);

	if (rc == 0)
		*payload = arena_dup(r->a, buf_span(&plain));
	buf_fini(&plain);
	if (rc == 0)
		return 0;
	return e.kind == ERR_LIMIT
		       ? too_large(r)
		       : timer_ops_refuse(r, "timers_payload_not_zstd",
				 "payload is not compressed with zstd");
}

static int
read_payload(
	struct timer_reader *r, const struct timer_given *g, struct span *out)
{
	size_t max = (size_t)r->x->conf->timers_max_payload_bytes;
	struct span text;
	const char *what;
	bool zstd, encrypted;
	size_t n, at;
	char *room;

	if (read_flag(r, &g->zstd, "payloadZstd must be a boolean", &zstd) ||
		read_flag(r, &g->encrypted, "encrypted must be a boolean",
			&encrypted))
		return -1;
	if (encrypted)
		return timer_ops_refuse(r, "timers_encrypted_conflict",
			"payloads are sealed by the broker, where the queue "
			"wants it");
	if (g->payload.type != JSPAN_STRING ||
		!jspan_text(&g->payload, r->a, &text))
		return timer_ops_refuse(r, "timers_payload_required",
			"payload must be a base64 string");
	if (text.n / 4 * 3 > max + 2)
		return too_large(r);
	room = arena_alloc(r->a, text.n / 4 * 3 + 3);
	if (sodium_base642bin((unsigned char *)room, text.n / 4 * 3 + 3, text.p,
		    text.n, NULL, &n, NULL,
		    sodium_base64_VARIANT_ORIGINAL) != 0)
		return timer_ops_refuse(r, "timers_payload_not_base64",
			"payload must be standard base64 with padding");
	*out = span_make(room, n);
	if (n > max)
		return too_large(r);
	if (zstd && inflate(r, out) < 0)
		return -1;
	if (!jspan_valid(*out, &what, &at))
		return timer_ops_refuse(r, "timers_payload_not_json",
			"payload must be the base64 of a JSON text");
	return 0;
}

/* The message as it will be appended; again when it must be sealed after all. */
static void
write_frame(const struct ctx *x, struct arena *a, struct span sub,
	struct timer_op *op)
{
	struct frame f = {
		.id = op->id, .txn = op->txn, .payload = op->payload
	};
	struct buf room = BUF_ZERO, whole = BUF_ZERO;

	if (sub.n) {
		f.flags |= FRAME_SUB;
		f.sub = sub;
	}
	if (op->sealed)
		keyring_seal(x, &f, &room);
	frame_write(&whole, &f);
	op->frame = arena_dup(a, buf_span(&whole));
	buf_fini(&whole);
	buf_fini(&room);
}

int
timer_ops_frame(struct timer_reader *r, const struct timer_given *g,
	struct timer_op *op)
{
	const struct cat_queue *q =
		catalog_queue(r->x->catalog, r->tenant, op->queue);

	if (read_payload(r, g, &op->payload) < 0)
		return -1;
	if (q && q->encrypted && !keyring_seals(r->x))
		return timer_ops_refuse_as(r, 500, "timers_error",
			"encryption_required",
			"the queue wants sealed payloads and there is no key");
	op->id = qid_new();
	op->sealed = q && q->encrypted;
	hash_id(r->x->hash_key, op->txn, &op->hash);
	write_frame(r->x, r->a, r->o->sub, op);
	r->o->bytes += op->frame.n;
	/* inflated payloads may be many times what was sent */
	return r->o->bytes > (size_t)r->x->conf->max_body_bytes ? too_large(r)
								: 0;
}

/* The operation that timer_apply_v1 complains of, or NULL. */
static const struct timer_op *
find_bare(const struct timer_ops *o, const struct err *e)
{
	static const char what[] = "encryption_required: operation ";
	const char *text = strstr(e->text, what);
	unsigned long at;

	if (!text)
		return NULL;
	at = strtoul(text + sizeof(what) - 1, NULL, 10);
	return at < o->n && !o->v[at].cancel && !o->v[at].sealed ? &o->v[at]
								 : NULL;
}

bool
timer_ops_seal(struct timer_ops *o, struct ctx *x, const struct qid *tenant,
	struct arena *a, const struct err *e)
{
	const struct timer_op *bare = find_bare(o, e);

	if (!bare || !keyring_must_seal(
			     x, catalog_queue(x->catalog, tenant, bare->queue)))
		return false;
	struct span queue = bare->queue;

	for (size_t i = 0; i < o->n; i++) {
		struct timer_op *op = &o->v[i];

		if (op->cancel || op->sealed || !span_eq(op->queue, queue))
			continue;
		op->sealed = true;
		write_frame(x, a, o->sub, op);
	}
	return true;
}
