/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of a window, in slices, one after the other, each freed when it
 * is up; then the manifest.
 */
#include "queue_int.h"

#include <stdio.h>
#include <string.h>

#include "clk.h"
#include "err.h"
#include "format.h"

enum { BYTES_A_LOOK = 1 << 17, RECORD_BYTES = 256 };

/* ---- one object ---- */

int
queue_build_begin(struct queue *q)
{
	struct queue_window *w = &q->w;
	struct format_of of = { w->intent.format, w->intent.codec,
		queue_name_of(q), queue_tenant_of(q) };
	char text[400];
	struct err e;

	object_fini(&w->object);
	object_init(&w->object);
	w->format = format_new(&of, &w->object, &e);
	if (w->format)
		return 0;
	snprintf(text, sizeof(text),
		"window %lld was begun as %s with %s, which cannot be made: %s",
		(long long)w->intent.k, s3conf_format_name(of.format),
		s3conf_codec_name(of.codec), e.text);
	queue_fail(q, text);
	return -1;
}

static struct key_window
key_window_of(const struct queue_window *w)
{
	return (struct key_window){ w->intent.k, w->intent.start_us,
		w->intent.end_us, w->intent.align, w->intent.format,
		w->intent.codec };
}

void
queue_build_key(const struct queue *q, struct span partition, int64_t first,
	int64_t last, struct buf *out)
{
	const struct queue_window *w = &q->w;
	struct key_window kw = key_window_of(w);
	struct key_part part = { partition, first, last };

	key_data(out, &w->keys, &kw,
		w->intent.layout == S3_PER_PARTITION ? &part : NULL);
}

void
queue_build_start(const struct queue *q, struct buf *out)
{
	const struct queue_window *w = &q->w;
	struct key_window kw = key_window_of(w);

	key_data(out, &w->keys, &kw, NULL);
	out->len -= strlen(format_extension(kw.format, kw.codec)) + 1;
	buf_puts(out, "-p-");
}

/* ---- going up ---- */

static void
hex_of(const uint8_t *p, size_t n, char *out)
{
	for (size_t i = 0; i < n; i++)
		snprintf(out + 2 * i, 3, "%02x", p[i]);
}

/* What the manifest says of the object. */
static void
list_object(struct queue_window *w)
{
	struct doc_manifest *m = &w->manifest;
	struct doc_object *o = &w->entry;

	o->bytes = (int64_t)w->object.len;
	hex_of(w->object.sha256, OBJECT_SHA256_BYTES, o->sha256);
	m->objects = arena_grown(&w->arena, m->objects, m->objects_n,
		&w->objects_cap, sizeof(*o));
	m->objects[m->objects_n++] = *o;
	m->records += o->records;
	m->bytes += o->bytes;
}

static void
on_part(void *arg, int n)
{
	struct queue *q = arg;

	(void)n;
	settings_crash(queue_settings(q), CRASH_MID_UPLOAD);
}

static void
on_object(struct queue *q, const struct s3_answer *a)
{
	struct queue_window *w = &q->w;

	(void)a;
	settings_crash(queue_settings(q), CRASH_MID_UPLOAD);
	list_object(w);
	object_fini(&w->object);
	object_init(&w->object);
	w->part++;
	queue_turn(q, queue_build_objects);
}

static void
put_object(struct queue *q)
{
	struct queue_window *w = &q->w;

	queue_put(q, w->s3, w->entry.key, format_content_type(w->intent.format),
		&w->object, on_part, on_object);
}

void
queue_build_put(struct queue *q, queue_next_fn fn)
{
	struct queue_window *w = &q->w;

	if (!w->redo || w->looked) {
		fn(q);
		return;
	}
	w->looked = true;
	queue_window_look(q, fn);
}

void
queue_build_end(struct queue *q)
{
	struct queue_window *w = &q->w;
	struct err e;
	int rc;

	rc = format_finish(w->format, &e);
	if (rc > 0) {
		queue_turn(q, queue_build_end);
		return;
	}
	w->entry.records = format_records(w->format);
	format_free(w->format);
	w->format = NULL;
	if (rc < 0)
		queue_fail(q, e.text);
	else
		queue_build_put(q, put_object);
}

/* ---- the manifest ---- */

static void
on_manifest(struct queue *q, const struct s3_answer *a)
{
	(void)a;
	settings_crash(queue_settings(q), CRASH_AFTER_UPLOAD);
	queue_window_commit(q);
}

static void
put_manifest(struct queue *q)
{
	struct queue_window *w = &q->w;
	struct buf text = BUF_ZERO;

	w->manifest.committed_at_us = clk_wall_us() / 1000 * 1000;
	doc_manifest_write(&text, &w->manifest);
	object_put(&w->object, text.p, text.len);
	object_seal(&w->object);
	buf_fini(&text);
	queue_put(q, w->s3, buf_span(&w->manifest_key), "application/json",
		&w->object, NULL, on_manifest);
}

/* ---- records ---- */

static bool
next_record(struct queue *q, struct record *r)
{
	const struct queue_window *w = &q->w;

	if (w->intent.layout == S3_PER_PARTITION &&
		format_records(w->format) == w->parts[w->part].records)
		return false;
	return engine_plan_next(q->engine, r);
}

static void
add(struct queue *q, const struct record *r)
{
	struct queue_window *w = &q->w;
	struct err e;

	if (w->intent.layout == S3_PER_PARTITION && !format_records(w->format))
		w->entry.partition = arena_dup(&w->arena, r->partition);
	if (format_add(w->format, r, &e) < 0)
		queue_fail(q, e.text);
}

static void
end_object(struct queue *q)
{
	struct queue_window *w = &q->w;
	struct buf key = BUF_ZERO;

	queue_build_key(
		q, w->entry.partition, w->entry.first, w->entry.last, &key);
	w->entry.key = arena_dup(&w->arena, buf_span(&key));
	buf_fini(&key);
	queue_build_end(q);
}

static void
build_slice(struct queue *q)
{
	int64_t end_us = queue_slice_end();
	struct record r;

	do {
		for (size_t n = 0; n < BYTES_A_LOOK && !q->ending;
			n += RECORD_BYTES + r.payload.n) {
			if (!next_record(q, &r)) {
				end_object(q);
				return;
			}
			add(q, &r);
		}
	} while (!q->ending && !queue_slice_over(end_us));
	if (!q->ending)
		queue_turn(q, build_slice);
}

static void
begin_object(struct queue *q)
{
	struct queue_window *w = &q->w;

	w->entry = (struct doc_object){ .key = SPAN_ZERO };
	if (w->intent.layout == S3_PER_PARTITION) {
		w->entry.per_partition = true;
		w->entry.first = w->parts[w->part].first;
		w->entry.last = w->parts[w->part].last;
	}
	if (queue_build_begin(q) == 0)
		build_slice(q);
}

void
queue_build_objects(struct queue *q)
{
	struct queue_window *w = &q->w;

	if (w->part < w->parts_n)
		begin_object(q);
	else if (w->old_at < w->olds_n)
		queue_plan_left(q);
	else
		queue_build_put(q, put_manifest);
}

/* ---- the whole ---- */

static void
take_lost(struct queue *q)
{
	struct queue_window *w = &q->w;
	struct doc_manifest *m = &w->manifest;
	struct doc_lost l;
	size_t at = 0;

	while (engine_lost_next(q->engine, &at, &l.partition, &l.from, &l.to)) {
		l.partition = arena_dup(&w->arena, l.partition);
		m->lost = arena_grown(
			&w->arena, m->lost, m->lost_n, &w->lost_cap, sizeof(l));
		m->lost[m->lost_n++] = l;
	}
}

static void
begin_manifest(struct queue *q)
{
	struct queue_window *w = &q->w;
	char writer[FORMAT_WRITER_MAX];
	struct engine_window ew;

	engine_window(q->engine, &ew);
	w->manifest = (struct doc_manifest){
		.sink = span_of(q->x->conf->sink),
		.tenant = queue_tenant_of(q),
		.queue = queue_name_of(q),
		.k = w->intent.k,
		.start_us = w->intent.start_us,
		.end_us = w->intent.end_us,
		.format = w->intent.format,
		.codec = w->intent.codec,
		.layout = w->intent.layout,
		.partitions = ew.partitions,
		.min_us = ew.min_us,
		.max_us = ew.max_us,
	};
	w->manifest.writer =
		arena_dup(&w->arena, span_of(format_writer(w->intent.format,
					     w->intent.codec, writer)));
	take_lost(q);
}

static void
sort_slice(struct queue *q)
{
	struct queue_window *w = &q->w;

	if (!engine_plan_ready(q->engine)) {
		queue_turn(q, sort_slice);
		return;
	}
	begin_manifest(q);
	if (w->intent.layout == S3_PER_PARTITION) {
		queue_plan(q);
		return;
	}
	/* one object, even of a redo that has no record left */
	w->parts_n = 1;
	queue_build_objects(q);
}

void
queue_build(struct queue *q)
{
	q->state = QUEUE_UPLOAD;
	queue_turn(q, sort_slice);
}
