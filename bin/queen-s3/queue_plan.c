/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a window in the layout per-partition: it names every data key
 * before the first object is there.  A redo whose records became fewer finds
 * in it the keys that nobody would build again, and empties those objects, so
 * that a reader who globs sees nothing of the first try.  Its own plan names
 * them too: it may crash as well.
 */
#include "queue_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "format.h"

enum { STEPS_A_LOOK = 64 };

static void
plan_key(const struct queue *q, struct buf *out)
{
	key_plan(out, &q->w.keys, q->w.intent.k);
}

/* ---- up it goes ---- */

static void
on_plan(struct queue *q, const struct s3_answer *a)
{
	struct queue_window *w = &q->w;

	(void)a;
	object_fini(&w->object);
	object_init(&w->object);
	engine_plan_rewind(q->engine);
	queue_turn(q, queue_build_objects);
}

static void
put_plan(struct queue *q)
{
	struct buf key = BUF_ZERO;

	plan_key(q, &key);
	queue_put(q, q->w.s3, buf_span(&key), "application/zstd", &q->w.object,
		NULL, on_plan);
	buf_fini(&key);
}

static void
end_plan(struct queue *q)
{
	struct queue_window *w = &q->w;

	for (size_t i = 0; i < w->olds_n; i++)
		if (!w->olds[i]->rebuilt)
			doc_plan_add(w->plan, w->olds[i]->key);
	doc_plan_end(w->plan);
	w->plan = NULL;
	object_seal(&w->object);
	queue_build_put(q, put_plan);
}

/* ---- the keys of this try ---- */

static bool
is_planned(const void *item, const void *key)
{
	const struct queue_planned *p = item;

	return span_eq(p->key, *(const struct span *)key);
}

static void
end_part(struct queue *q)
{
	struct queue_window *w = &q->w;
	struct queue_part *p = &w->part_now;
	struct queue_planned *old;
	struct span key;

	if (!p->records)
		return;
	if (w->parts_n == w->parts_cap) {
		w->parts_cap = w->parts_cap ? w->parts_cap * 2 : 64;
		w->parts = realloc(w->parts, w->parts_cap * sizeof(*w->parts));
		if (!w->parts)
			abort();
	}
	w->parts[w->parts_n++] = *p;
	buf_reset(&w->part_key);
	queue_build_key(
		q, buf_span(&w->part_name), p->first, p->last, &w->part_key);
	key = buf_span(&w->part_key);
	doc_plan_add(w->plan, key);
	old = map_get(&w->planned, map_hash_span(key), is_planned, &key);
	if (old)
		old->rebuilt = true;
	p->records = 0;
}

static void
take(struct queue *q, const struct record *r)
{
	struct queue_window *w = &q->w;
	struct queue_part *p = &w->part_now;

	if (!p->records || !span_eq(buf_span(&w->part_name), r->partition)) {
		end_part(q);
		buf_reset(&w->part_name);
		buf_put_span(&w->part_name, r->partition);
		p->first = r->offset;
	}
	p->records++;
	p->last = r->offset;
}

static void
key_slice(struct queue *q)
{
	int64_t end_us = queue_slice_end();
	struct record r;

	do {
		for (int i = 0; i < STEPS_A_LOOK; i++) {
			if (!engine_plan_next(q->engine, &r)) {
				end_part(q);
				end_plan(q);
				return;
			}
			take(q, &r);
		}
	} while (!queue_slice_over(end_us));
	queue_turn(q, key_slice);
}

static void
begin_keys(struct queue *q)
{
	q->w.plan = doc_plan_begin(&q->w.object, q->w.intent.k);
	queue_turn(q, key_slice);
}

/* ---- the keys of an earlier try ---- */

static void
remember(struct queue_window *w, struct span key)
{
	struct queue_planned *p = arena_zalloc(&w->arena, sizeof(*p));

	p->key = arena_dup(&w->arena, key);
	if (map_get(&w->planned, map_hash_span(key), is_planned, &key))
		return;
	map_put(&w->planned, map_hash_span(key), p);
	w->olds = arena_grown(&w->arena, w->olds, w->olds_n, &w->olds_cap,
		sizeof(struct queue_planned *));
	w->olds[w->olds_n++] = p;
}

/* Without it objects of the first try might stay: twice in the lake. */
static void
old_unreadable(struct queue *q, const char *why)
{
	char text[400];

	snprintf(text, sizeof(text),
		"the plan of window %lld in the bucket cannot be used: %s",
		(long long)q->w.intent.k, why);
	queue_fail(q, text);
}

/* What it names is written over: it has to be of this window. */
static bool
is_ours(const struct queue_window *w, struct span key)
{
	struct span start = buf_span(&w->part_start);

	return key.n > start.n && memcmp(key.p, start.p, start.n) == 0;
}

/* 1: there is more; -1: it has ended as failed. */
static int
old_step(struct queue *q)
{
	struct queue_window *w = &q->w;
	struct span key;
	struct err e;
	int64_t k = 0;
	int rc = doc_plan_next(w->old, &key, &k, &e);

	if (rc == 1 && is_ours(w, key)) {
		remember(w, key);
		return 1;
	}
	if (rc == 0 && k == w->intent.k)
		return 0;
	old_unreadable(q, rc < 0 ? e.text : "it names what is not of it");
	return -1;
}

static void
old_slice(struct queue *q)
{
	struct queue_window *w = &q->w;
	int64_t end_us = queue_slice_end();
	int rc = 1;

	do {
		for (int i = 0; i < STEPS_A_LOOK && rc == 1; i++)
			rc = old_step(q);
	} while (rc == 1 && !queue_slice_over(end_us));
	if (rc == 1) {
		queue_turn(q, old_slice);
		return;
	}
	doc_plan_close(w->old);
	w->old = NULL;
	buf_fini(&w->old_text);
	if (rc == 0)
		begin_keys(q);
}

static void
on_old(struct queue *q, const struct s3_answer *a)
{
	struct queue_window *w = &q->w;

	if (a->absent) {
		begin_keys(q);
		return;
	}
	buf_put_span(&w->old_text, a->body);
	w->old = doc_plan_open(buf_span(&w->old_text));
	old_slice(q);
}

void
queue_plan(struct queue *q)
{
	struct buf key = BUF_ZERO;

	if (!q->w.redo) {
		begin_keys(q);
		return;
	}
	queue_build_start(q, &q->w.part_start);
	plan_key(q, &key);
	queue_get(q, q->w.s3, buf_span(&key), QUEUE_CHECKPOINT_MAX, on_old);
	buf_fini(&key);
}

/* ---- what is not built any more ---- */

/* Takes the number behind the last dash off the end. */
static bool
take_number(struct span *s, int64_t *out)
{
	size_t n = s->n;

	while (n && s->p[n - 1] != '-')
		n--;
	if (!n || !span_i64(span_make(s->p + n, s->n - n), out))
		return false;
	s->n = n - 1;
	return true;
}

/* Partition and offsets out of what follows the start of its key. */
static void
read_key(struct queue_window *w, struct doc_object *o)
{
	size_t start = w->part_start.len;
	struct span s = span_make(o->key.p + start, o->key.n - start);
	size_t ext =
		strlen(format_extension(w->intent.format, w->intent.codec)) + 1;
	struct buf name = BUF_ZERO;

	s.n -= s.n > ext ? ext : s.n;
	o->per_partition =
		take_number(&s, &o->last) && take_number(&s, &o->first);
	key_unescape(&name, s);
	o->partition = arena_dup(&w->arena, buf_span(&name));
	buf_fini(&name);
}

void
queue_plan_left(struct queue *q)
{
	struct queue_window *w = &q->w;
	struct queue_planned *p;

	do
		p = w->olds[w->old_at++];
	while (p->rebuilt && w->old_at < w->olds_n);
	if (p->rebuilt) {
		queue_build_objects(q);
		return;
	}
	w->entry = (struct doc_object){ .key = p->key };
	read_key(w, &w->entry);
	if (queue_build_begin(q) == 0)
		queue_build_end(q);
}
