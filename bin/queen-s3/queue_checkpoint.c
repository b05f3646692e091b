/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Positions for the next owner.  The text is made between two windows; it goes
 * up beside the next one.  Best effort: the next one comes.
 */
#include "queue_int.h"

#include <string.h>

#include "err.h"

enum { POSITIONS_A_LOOK = 256 };

void
queue_checkpoint_drop(struct queue *q)
{
	struct queue_checkpoint *c = &q->ckpt;

	if (c->req)
		s3_cancel(c->req);
	c->req = NULL;
	if (c->writer)
		doc_checkpoint_end(c->writer);
	c->writer = NULL;
	if (c->reader)
		doc_checkpoint_close(c->reader);
	c->reader = NULL;
	object_fini(&c->object);
	object_init(&c->object);
	buf_fini(&c->text);
}

static void
begin(struct queue *q, int64_t k, int64_t end_us)
{
	struct queue_checkpoint *c = &q->ckpt;
	struct key_of of = { q->x->conf->prefix, queue_tenant_of(q),
		queue_name_of(q) };

	queue_checkpoint_drop(q);
	c->doc = (struct doc_checkpoint){ .k = k, .end_us = end_us };
	memcpy(c->doc.cell, q->x->x->cell_tag, sizeof(c->doc.cell));
	buf_reset(&c->key);
	key_checkpoint(&c->key, &of, k);
	c->writer = doc_checkpoint_begin(&c->object, &c->doc);
}

static void
end(struct queue *q)
{
	doc_checkpoint_end(q->ckpt.writer);
	q->ckpt.writer = NULL;
	object_seal(&q->ckpt.object);
}

/* ---- of none ---- */

static void
on_empty(struct queue *q, const struct s3_answer *a)
{
	queue_next_fn fn = q->ckpt.after;

	(void)a;
	queue_checkpoint_drop(q);
	fn(q);
}

void
queue_checkpoint_empty(
	struct queue *q, int64_t k, int64_t end_us, queue_next_fn fn)
{
	begin(q, k, end_us);
	end(q);
	q->ckpt.after = fn;
	queue_put(q, q->x->s3, buf_span(&q->ckpt.key), "application/zstd",
		&q->ckpt.object, NULL, on_empty);
}

/* ---- of the engine ---- */

static void
on_put(void *arg, const struct s3_answer *a, const struct s3_error *e)
{
	struct queue *q = arg;

	(void)a;
	q->ckpt.req = NULL;
	if (e)
		queue_say(q, LOG_WARN, "checkpoint not written",
			"k=%lld error=%s", (long long)q->ckpt.doc.k,
			log_quote(e->text));
	else
		q->checkpoint_k = q->ckpt.doc.k;
	queue_checkpoint_drop(q);
	/* a drain waits for it */
	if (queue_draining(q) && q->phase == QUEUE_RUN)
		queue_pump(q);
}

static void
write_slice(struct queue *q)
{
	struct queue_checkpoint *c = &q->ckpt;
	int64_t end_us = queue_slice_end();
	struct doc_position p;

	do {
		for (int i = 0; i < POSITIONS_A_LOOK; i++) {
			if (engine_positions_next(
				    q->engine, &p.name, &p.part, &p.offset)) {
				doc_checkpoint_add(c->writer, &p);
				continue;
			}
			engine_positions_end(q->engine);
			end(q);
			c->req = s3_put(q->x->s3, buf_span(&c->key),
				"application/zstd", &c->object, NULL, on_put,
				q);
			queue_pump(q);
			return;
		}
	} while (!queue_slice_over(end_us));
	queue_turn(q, write_slice);
}

static void
sort_slice(struct queue *q)
{
	if (!engine_positions_ready(q->engine)) {
		queue_turn(q, sort_slice);
		return;
	}
	begin(q, q->committed.k, q->committed.end_us);
	queue_turn(q, write_slice);
}

void
queue_checkpoint(struct queue *q)
{
	bool due = q->committed.k % queue_settings(q)->checkpoint_every == 0;

	/* one that is still on its way up is nearly as good */
	if (due && !q->ckpt.req && engine_may_checkpoint(q->engine))
		sort_slice(q);
	else
		queue_pump(q);
}
