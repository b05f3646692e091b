/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A push request: read, names resolved, messages given to the coalescer,
 * answered when the last of them is.  Of items with one transaction id in one
 * partition the first is the leader; the others follow its outcome and never
 * reach the coalescer.
 */
#include "push.h"

#include <string.h>

#include "arena.h"
#include "body.h"
#include "catalog.h"
#include "clk.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "flush.h"
#include "hsrv.h"
#include "jwrite.h"
#include "keyring.h"
#include "map.h"
#include "resolve.h"

struct item {
	struct flush_item flush;
	struct item *leader; /* NULL = itself */
	const struct cat_part *part;
};

struct push {
	struct flush_group group; /* first: the coalescer hands it back */
	struct ctx *x;
	struct hsrv_req *req;
	struct body_push *body;
	struct resolve_item *names;
	struct item *items;
	size_t n;
	int64_t began_us;
};

/* ---- answering ---- */

static enum flush_status
status_of(const struct item *it)
{
	if (!it->leader)
		return it->flush.status;
	return it->leader->flush.status == FLUSH_FAILED ? FLUSH_FAILED
							: FLUSH_DUPLICATE;
}

static const char *
word_of(enum flush_status s)
{
	switch (s) {
	case FLUSH_QUEUED:
		return "queued";
	case FLUSH_DUPLICATE:
		return "duplicate";
	default:
		return "failed";
	}
}

static void
write_answer(struct push *p)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(p->req));
	jwrite_array(&w);
	for (size_t i = 0; i < p->n; i++) {
		const struct item *it = &p->items[i];
		const struct item *of = it->leader ? it->leader : it;

		jwrite_object(&w);
		jwrite_kv_i64(&w, "index", (int64_t)i);
		jwrite_key(&w, "message_id");
		jwrite_qid(&w, &of->flush.id);
		jwrite_kv_str(&w, "transaction_id", it->flush.txn);
		jwrite_kv_str(&w, "queueName", p->names[i].queue);
		jwrite_kv_cstr(&w, "status", word_of(status_of(it)));
		if (of->flush.unsealed)
			jwrite_kv_cstr(&w, "error", "encryption_required");
		jwrite_end(&w);
	}
	jwrite_end(&w);
}

struct tally {
	int64_t queue_id;
	int messages;
};

/* One request per queue it wrote to; few queues per request. */
static void
count_queues(struct push *p)
{
	struct arena *a = hsrv_arena(p->req);
	struct tally *of = arena_alloc(a, (p->n + 1) * sizeof(*of));
	size_t queues = 0, at = 0;

	for (size_t i = 0; i < p->n; i++) {
		const struct item *it = &p->items[i];

		if (it->leader || it->flush.status != FLUSH_QUEUED)
			continue;
		int64_t id = it->part->queue->id;

		if (!queues || of[at].queue_id != id) {
			for (at = 0; at < queues; at++)
				if (of[at].queue_id == id)
					break;
			if (at == queues)
				of[queues++] = (struct tally){ .queue_id = id };
		}
		of[at].messages++;
	}
	for (size_t i = 0; i < queues; i++)
		count_push(p->x, of[i].queue_id, 1, of[i].messages);
}

static void
on_done(struct flush_group *g)
{
	struct push *p = (struct push *)g;

	count_queues(p);
	write_answer(p);
	count_latency(p->x, COUNT_PUSH, clk_mono_us() - p->began_us);
	hsrv_reply(p->req, 201);
}

/* ---- handing over ---- */

static bool
same_address(const void *item, const void *key)
{
	const struct item *a = item, *b = key;

	return a->part == b->part && memcmp(&a->flush.hash, &b->flush.hash,
					     sizeof(a->flush.hash)) == 0;
}

static void
make_item(struct push *p, size_t i)
{
	const struct body_push *b = &p->body[i];
	struct item *it = &p->items[i];
	struct flush_item *f = &it->flush;

	it->leader = NULL;
	it->part = p->names[i].part;
	*f = (struct flush_item){ .group = &p->group,
		.id = qid_new(),
		.txn = b->txn,
		.payload = b->payload,
		.sub = ctx_subject(p->req),
		.minted = b->txn.n == 0,
		.status = FLUSH_FAILED };
	if (f->minted) {
		char *text = arena_alloc(hsrv_arena(p->req), QID_TEXT_MAX);

		qid_text(&f->id, text);
		f->txn = span_make(text, QID_TEXT);
	}
	hash_id(p->x->hash_key, f->txn, &f->hash);
}

/* The item that came first with this id in this partition. */
static struct item *
leader_of(struct map *leaders, struct item *it)
{
	uint64_t h;

	if (it->flush.minted || !it->part)
		return NULL;
	memcpy(&h, it->flush.hash.b, sizeof(h));
	struct item *first = map_get(leaders, h, same_address, it);

	if (!first)
		map_put(leaders, h, it);
	return first;
}

static void
hand_over(struct push *p)
{
	struct map leaders = MAP_ZERO;

	p->group.pending = 1; /* ours, until all are added */
	p->group.done = on_done;
	for (size_t i = 0; i < p->n; i++) {
		struct item *it = &p->items[i];

		make_item(p, i);
		it->leader = leader_of(&leaders, it);
		/* no partition: its name could not be resolved */
		if (!it->part || it->leader)
			continue;
		if (it->part->queue->encrypted && !keyring_seals(p->x)) {
			it->flush.unsealed = true;
			continue;
		}
		flush_add(p->x->flush, p->names[i].part, &it->flush);
	}
	map_fini(&leaders);
	if (--p->group.pending == 0)
		on_done(&p->group);
}

static void
on_resolved(void *arg, const struct err *e)
{
	(void)e; /* what has no partition answers `failed` */
	hand_over(arg);
}

void
push_post(struct hsrv_req *r)
{
	struct ctx *x = ctx_of(r);
	struct arena *a = hsrv_arena(r);
	struct push *p = arena_zalloc(a, sizeof(*p));
	struct err e = ERR_ZERO;

	p->x = x;
	p->req = r;
	p->began_us = clk_mono_us();
	if (body_parse_push(hsrv_body(r), a, &p->body, &p->n, &e) != 0) {
		hsrv_reply_error(r, 400, "%s", e.text);
		return;
	}
	if (x->push_maintenance) {
		hsrv_reply_error(r, 503, "push maintenance is on");
		return;
	}
	p->names = arena_alloc(a, (p->n + 1) * sizeof(*p->names));
	p->items = arena_alloc(a, (p->n + 1) * sizeof(*p->items));
	for (size_t i = 0; i < p->n; i++)
		p->names[i] = (struct resolve_item){ .queue = p->body[i].queue,
			.partition = p->body[i].partition };
	if (resolve_known(x, ctx_tenant(r), p->names, p->n))
		hand_over(p);
	else
		resolve_start(x, ctx_tenant(r), p->names, p->n, on_resolved, p);
}
