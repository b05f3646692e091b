/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A window from its close to its pointer: intent, objects and
 * manifest, pointer.  Everything of it is a function of the intent, which for
 * a redo is the row's and not the settings'.
 */
#include "queue_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "err.h"
#include "format.h"

/* ---- its place ---- */

void
queue_window_drop(struct queue *q)
{
	struct queue_window *w = &q->w;
	struct buf key = w->manifest_key;

	format_free(w->format);
	object_fini(&w->object);
	if (w->plan)
		doc_plan_end(w->plan);
	if (w->old)
		doc_plan_close(w->old);
	map_fini(&w->planned);
	free(w->parts);
	buf_fini(&w->part_name);
	buf_fini(&w->part_key);
	buf_fini(&w->part_start);
	buf_fini(&w->old_text);
	s3_free(w->s3_own);
	arena_reset(&w->arena);
	buf_reset(&key);
	*w = (struct queue_window){ .arena = w->arena, .manifest_key = key };
	object_init(&w->object);
}

static bool
other_bucket(struct queue *q, struct span bucket)
{
	struct queue_window *w = &q->w;
	struct s3conf there = *q->x->conf;
	struct s3_conf c = {
		.sink = &there,
		.log_tenant = q->x->log_tenant,
		.counts = q->x->requests,
		.ca_file = queue_settings(q)->ca_file,
		.multipart_bytes = queue_settings(q)->multipart_threshold_mb
				   << 20,
	};
	char text[400];
	struct err e;

	there.bucket = arena_cstr(&w->arena, bucket);
	w->s3 = w->s3_own = s3_new(queue_loop(q), &c, &e);
	if (!w->s3) {
		snprintf(text, sizeof(text),
			"window %lld was begun in bucket %s, which cannot be "
			"used: %s",
			(long long)w->intent.k, there.bucket, e.text);
		queue_fail(q, text);
		return false;
	}
	queue_say(q, LOG_WARN, "window goes on in the bucket it was begun in",
		"k=%lld bucket=%s", (long long)w->intent.k,
		log_quote(there.bucket));
	return true;
}

bool
queue_window_place(struct queue *q, const struct doc_intent *i)
{
	struct queue_window *w = &q->w;
	const struct s3conf *conf = q->x->conf;

	queue_window_drop(q);
	w->intent = *i;
	w->intent.writer = arena_dup(&w->arena, i->writer);
	if (!i->align_known)
		w->intent.align = conf->align;
	w->keys = (struct key_of){
		.prefix = i->prefix.n ? arena_cstr(&w->arena, i->prefix)
				      : conf->prefix,
		.tenant = queue_tenant_of(q),
		.queue = queue_name_of(q),
	};
	key_manifest(&w->manifest_key, &w->keys, i->k);
	w->s3 = q->x->s3;
	if (i->bucket.n && !span_is(i->bucket, conf->bucket))
		return other_bucket(q, i->bucket);
	return true;
}

/* ---- a manifest that is there ---- */

static int
compare_lost(const void *x, const void *y)
{
	const struct doc_lost *a = x, *b = y;
	size_t an = a->partition.n, bn = b->partition.n, n = an < bn ? an : bn;
	int d = n ? memcmp(a->partition.p, b->partition.p, n) : 0;

	if (d == 0)
		d = (an > bn) - (an < bn);
	return d ? d : (a->from > b->from) - (a->from < b->from);
}

/* The first of its ranges of that name; they are sorted. */
static size_t
first_lost(const struct doc_manifest *m, struct span name)
{
	struct doc_lost key = { .partition = name, .from = INT64_MIN };
	size_t lo = 0, hi = m->lost_n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (compare_lost(&m->lost[mid], &key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* What the manifest does not tell of a range. */
static void
keep_rest(struct queue *q, size_t at, struct doc_lost l)
{
	const struct doc_manifest *m = &q->w.manifest;

	for (size_t i = first_lost(m, l.partition); i < m->lost_n; i++) {
		const struct doc_lost *told = &m->lost[i];

		if (!span_eq(told->partition, l.partition) || told->from > l.to)
			break;
		if (told->to < l.from)
			continue;
		if (told->from > l.from)
			engine_lost_keep(q->engine, at, l.from, told->from - 1);
		l.from = told->to + 1;
	}
	if (l.from <= l.to)
		engine_lost_keep(q->engine, at, l.from, l.to);
}

/* It is not what this engine would have written. */
static void
keep_lost(struct queue *q)
{
	struct doc_manifest *m = &q->w.manifest;
	struct doc_lost l;
	size_t at = 0;

	if (m->lost_n)
		qsort(m->lost, m->lost_n, sizeof(*m->lost), compare_lost);
	while (engine_lost_next(q->engine, &at, &l.partition, &l.from, &l.to))
		keep_rest(q, at, l);
}

void
queue_window_found(struct queue *q, const struct doc_manifest *m)
{
	struct queue_window *w = &q->w;
	struct doc_manifest *to = &w->manifest;

	*to = *m;
	to->objects = NULL;
	to->objects_n = 0;
	to->lost = arena_alloc(
		&w->arena, (m->lost_n ? m->lost_n : 1) * sizeof(*m->lost));
	for (size_t i = 0; i < m->lost_n; i++) {
		to->lost[i] = m->lost[i];
		to->lost[i].partition =
			arena_dup(&w->arena, m->lost[i].partition);
	}
	if (q->engine)
		keep_lost(q);
	queue_say(q, LOG_INFO, "window was uploaded already", "k=%lld",
		(long long)m->k);
	queue_window_commit(q);
}

static void
on_look(struct queue *q, const struct s3_answer *a)
{
	struct queue_window *w = &q->w;
	queue_next_fn fn = w->put_after_look;
	struct arena scratch = ARENA_ZERO;
	struct doc_manifest m;
	struct err e;
	bool found;

	found = !a->absent &&
		doc_manifest_read(a->body, &scratch, &m, &e) == 0 &&
		doc_manifest_is(&m, &w->intent, span_of(q->x->conf->sink),
			queue_tenant_of(q), queue_name_of(q));
	if (found)
		queue_window_found(q, &m);
	else
		fn(q);
	arena_fini(&scratch);
}

void
queue_window_look(struct queue *q, queue_next_fn fn)
{
	q->w.put_after_look = fn;
	queue_get(q, q->w.s3, buf_span(&q->w.manifest_key), QUEUE_MANIFEST_MAX,
		on_look);
}

/* ---- the intent ---- */

static void
on_intent(struct queue *q)
{
	settings_crash(queue_settings(q), CRASH_AFTER_INTENT);
	queue_build(q);
}

static void
begin_fresh(struct queue *q, const struct engine_window *ew)
{
	const struct s3conf *conf = q->x->conf;
	char writer[FORMAT_WRITER_MAX];
	struct buf value = BUF_ZERO;
	struct doc_intent i = {
		.k = ew->k,
		.start_us = ew->start_us,
		.end_us = ew->end_us,
		.format = conf->format,
		.codec = s3conf_codec(conf),
		.layout = conf->layout,
		.align = conf->align,
		.align_known = true,
		.prefix = span_of(conf->prefix),
		.bucket = span_of(conf->bucket),
	};

	i.writer = span_of(format_writer(i.format, i.codec, writer));
	memcpy(i.cell, q->x->x->cell_tag, sizeof(i.cell));
	if (!queue_window_place(q, &i))
		return;
	doc_intent_write(&value, &i);
	q->state = QUEUE_INTENT;
	queue_fence(q, KEY_INTENT, &value, &q->intent_version, KEY_LEASE,
		on_intent);
}

void
queue_window_begin(struct queue *q)
{
	struct engine_window ew;

	engine_window(q->engine, &ew);
	q->phase = QUEUE_WINDOW;
	if (!ew.redo) {
		begin_fresh(q, &ew);
		return;
	}
	if (!queue_window_place(q, &q->intent))
		return;
	q->w.redo = true;
	queue_build(q);
}

/* ---- the pointer ---- */

void
queue_say_lost(struct queue *q, int64_t k, const struct doc_lost *l)
{
	struct buf name = BUF_ZERO;

	buf_put_span(&name, l->partition);
	*buf_reserve(&name, 1) = '\0';
	q->counts.lost += (uint64_t)(l->to - l->from + 1);
	queue_say(q, LOG_WARN, "records lost before they were read",
		"k=%lld partition=%s from=%lld to=%lld", (long long)k,
		log_quote(name.p), (long long)l->from, (long long)l->to);
	buf_fini(&name);
}

static void
say_committed(struct queue *q)
{
	const struct doc_manifest *m = &q->w.manifest;
	char iso[CLK_ISO_MAX], lag[32] = "-";

	if (queue_lag_us(q) >= 0)
		snprintf(lag, sizeof(lag), "%.1f",
			(double)queue_lag_us(q) / 1e6);
	queue_say(q, LOG_INFO, "window committed",
		"k=%lld records=%lld bytes=%lld end=%s lag_s=%s lost=%zu",
		(long long)m->k, (long long)m->records, (long long)m->bytes,
		clk_iso_us(m->end_us, iso), lag, m->lost_n);
	for (size_t i = 0; i < m->lost_n; i++)
		queue_say_lost(q, m->k, &m->lost[i]);
}

static void
on_committed(struct queue *q)
{
	const struct doc_manifest *m = &q->w.manifest;

	q->known_k = q->committed.k;
	q->known_us = q->committed.end_us;
	q->counts.windows++;
	q->counts.records += (uint64_t)m->records;
	q->counts.bytes += (uint64_t)m->bytes;
	if (q->engine) {
		engine_committed(q->engine);
		queue_observe(q);
	}
	say_committed(q);
	q->on_window(q->arg, q, m->records, m->bytes);
	settings_crash(queue_settings(q), CRASH_AFTER_COMMIT);
	queue_window_drop(q);
	if (queue_draining(q) && !q->engine)
		queue_finish(q, q->stopping ? QUEUE_DRAINED : QUEUE_RELEASED);
	else if (!q->engine || (!q->guarded && !queue_draining(q)))
		queue_guard(q);
	else
		queue_checkpoint(q);
}

void
queue_window_commit(struct queue *q)
{
	struct queue_window *w = &q->w;
	struct doc_committed *c = &q->committed;
	struct buf value = BUF_ZERO;

	settings_crash(queue_settings(q), CRASH_BEFORE_COMMIT);
	q->state = QUEUE_COMMIT;
	*c = (struct doc_committed){
		.k = w->manifest.k,
		.end_us = w->manifest.end_us,
		.manifest = buf_span(&w->manifest_key),
		.records = w->manifest.records,
		.bytes = w->manifest.bytes,
		.at_ms = clk_wall_us() / 1000,
	};
	memcpy(c->cell, q->x->x->cell_tag, sizeof(c->cell));
	doc_committed_write(&value, c);
	/* the key is of the window, which ends before the next one is told */
	c->manifest = (struct span)SPAN_ZERO;
	queue_fence(q, KEY_COMMITTED, &value, &q->committed_version, KEY_LEASE,
		on_committed);
}
