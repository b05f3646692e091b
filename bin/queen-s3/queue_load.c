/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Positions of the newest checkpoint that is not ahead of the pointer, and the
 * engine.  A checkpoint is a cache: whatever is wrong with it, the queue starts
 * without one.
 */
#include "queue_int.h"

#include <string.h>

#include "err.h"

static void
new_engine(struct queue *q)
{
	const struct s3conf *f = q->x->conf;
	const struct settings *s = queue_settings(q);
	struct engine_conf c = {
		.target_bytes = f->target_mb << 20,
		.max_window_us = f->max_window_ms * 1000,
		.safe_guard_us = s->safe_guard_ms * 1000,
		.align = f->align,
		.start = f->start,
		.start_us = f->start_us,
		.fetch_concurrency = (int)s->fetch_concurrency,
	};
	struct engine_restore r = { .committed_k = q->committed.k,
		.committed_us = q->committed.end_us };

	if (q->intent_is_text && q->intent.k == q->committed.k + 1) {
		r.redo_k = q->intent.k;
		r.redo_start_us = q->intent.start_us;
		r.redo_end_us = q->intent.end_us;
	}
	queue_engine_drop(q);
	q->engine = engine_new(&c, &r);
}

void
queue_engine_drop(struct queue *q)
{
	engine_free(q->engine);
	q->engine = NULL;
	/* its name is the engine's */
	q->stats.blocked_part = 0;
	q->stats.buffered_bytes = 0;
	loop_timer_stop(&q->blocked_timer);
	if (q->budgeted)
		budget_leave(&q->budget);
	q->budgeted = false;
}

/* The process is over its memory, and this is the largest queue. */
static void
on_force(void *arg)
{
	struct queue *q = arg;

	queue_say(q, LOG_INFO, "memory budget reached",
		"buffered_bytes=%lld used_bytes=%lld limit_bytes=%lld",
		(long long)q->budget.bytes,
		(long long)budget_used(q->x->x->budget),
		(long long)budget_limit(q->x->x->budget));
	queue_force(q);
}

static void
start(struct queue *q)
{
	struct engine_stats s;

	queue_checkpoint_drop(q);
	budget_join(q->x->x->budget, &q->budget, on_force, q);
	q->budgeted = true;
	engine_stats(q->engine, &s);
	queue_say(q, queue_level(q), "queue restored",
		"committed_k=%lld redo=%s checkpoint_k=%lld positions=%llu",
		(long long)q->committed.k, s.redo ? "true" : "false",
		(long long)q->checkpoint_k,
		(unsigned long long)q->ckpt.positions);
	queue_pump(q);
}

static void
start_without(struct queue *q, const char *why)
{
	queue_say(
		q, LOG_WARN, "checkpoint not used", "error=%s", log_quote(why));
	q->checkpoint_k = -1;
	q->ckpt.positions = 0;
	new_engine(q);
	start(q);
}

/* ---- reading it ---- */

static void
read_slice(struct queue *q)
{
	struct queue_checkpoint *c = &q->ckpt;
	int64_t end_us = queue_slice_end();
	struct doc_position p;
	struct err e;
	int rc;

	do {
		for (int i = 0; i < 256; i++) {
			rc = doc_checkpoint_next(c->reader, &p, &c->doc, &e);
			if (rc != 1)
				break;
			engine_position(q->engine, p.name, p.offset, p.part);
			c->positions++;
		}
	} while (rc == 1 && !queue_slice_over(end_us));
	if (rc == 1)
		queue_turn(q, read_slice);
	else if (rc < 0)
		start_without(q, e.text);
	else if (c->doc.cell[0] && strcmp(c->doc.cell, q->x->x->cell_tag) != 0)
		/* its offsets may come to be in this cell, of other records */
		start_without(q, "it was written by another cell");
	else if (c->doc.k != c->newest)
		start_without(q, "it is not the one its key says");
	else {
		q->checkpoint_k = c->newest;
		start(q);
	}
}

static void
on_checkpoint(struct queue *q, const struct s3_answer *a)
{
	struct queue_checkpoint *c = &q->ckpt;

	if (!a || a->absent) {
		start_without(q, a ? "it is gone" : q->last_error);
		return;
	}
	buf_reset(&c->text);
	buf_put_span(&c->text, a->body);
	c->reader = doc_checkpoint_open(buf_span(&c->text));
	new_engine(q);
	read_slice(q);
}

/* ---- finding it ---- */

static void list(struct queue *q, struct span after);

static void
on_list(struct queue *q, const struct s3_answer *a)
{
	struct queue_checkpoint *c = &q->ckpt;
	struct key_of of = { q->x->conf->prefix, queue_tenant_of(q),
		queue_name_of(q) };
	bool past = false;

	if (!a) {
		start_without(q, q->last_error);
		return;
	}
	for (size_t i = 0; i < a->keys_n; i++) {
		int64_t k;

		if (!key_checkpoint_k(a->keys[i], &k))
			continue;
		past |= k > q->committed.k;
		if (k <= q->committed.k && k > c->newest)
			c->newest = k;
	}
	if (a->truncated && a->keys_n && !past) {
		list(q, a->keys[a->keys_n - 1]);
	} else if (c->newest < 0) {
		new_engine(q);
		start(q);
	} else {
		buf_reset(&c->key);
		key_checkpoint(&c->key, &of, c->newest);
		queue_get_soft(q, q->x->s3, buf_span(&c->key),
			QUEUE_CHECKPOINT_MAX, on_checkpoint);
	}
}

static void
list(struct queue *q, struct span after)
{
	struct key_of of = { q->x->conf->prefix, queue_tenant_of(q),
		queue_name_of(q) };
	struct buf prefix = BUF_ZERO;

	key_checkpoints(&prefix, &of);
	queue_list(q, buf_span(&prefix), after, true, on_list);
	buf_fini(&prefix);
}

void
queue_load(struct queue *q)
{
	queue_checkpoint_drop(q);
	q->checkpoint_k = -1;
	q->ckpt.newest = -1;
	q->ckpt.positions = 0;
	if (q->committed.k) {
		list(q, (struct span)SPAN_ZERO);
		return;
	}
	new_engine(q);
	start(q);
}
