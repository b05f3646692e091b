/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest: one per committed window, and the proof that its upload was
 * finished.  Only committedAt is of the wall clock.
 */
#include <stddef.h>

#include "arena.h"
#include "doc_int.h"
#include "err.h"
#include "jwrite.h"

/* ---- writing ---- */

static void
write_object(struct jwrite *w, const struct doc_object *o)
{
	jwrite_object(w);
	jwrite_kv_str(w, "key", o->key);
	jwrite_kv_i64(w, "bytes", o->bytes);
	jwrite_kv_i64(w, "records", o->records);
	jwrite_kv_cstr(w, "sha256", o->sha256);
	if (o->per_partition) {
		jwrite_kv_str(w, "partition", o->partition);
		jwrite_kv_i64(w, "firstOffset", o->first);
		jwrite_kv_i64(w, "lastOffset", o->last);
	}
	jwrite_end(w);
}

static void
write_lists(struct jwrite *w, const struct doc_manifest *m)
{
	jwrite_key(w, "objects");
	jwrite_array(w);
	for (size_t i = 0; i < m->objects_n; i++)
		write_object(w, &m->objects[i]);
	jwrite_end(w);
	jwrite_kv_i64(w, "records", m->records);
	jwrite_kv_i64(w, "bytes", m->bytes);
	jwrite_kv_i64(w, "partitions", m->partitions);
	if (m->records > 0) {
		jwrite_kv_i64(w, "minTs", m->min_us);
		jwrite_kv_i64(w, "maxTs", m->max_us);
	}
	jwrite_key(w, "lost");
	jwrite_array(w);
	for (size_t i = 0; i < m->lost_n; i++) {
		jwrite_object(w);
		jwrite_kv_str(w, "partition", m->lost[i].partition);
		jwrite_kv_i64(w, "from", m->lost[i].from);
		jwrite_kv_i64(w, "to", m->lost[i].to);
		jwrite_end(w);
	}
	jwrite_end(w);
}

void
doc_manifest_write(struct buf *b, const struct doc_manifest *m)
{
	struct jwrite w;

	jwrite_init(&w, b);
	jwrite_object(&w);
	jwrite_kv_str(&w, "sink", m->sink);
	jwrite_kv_str(&w, "tenant", m->tenant);
	jwrite_kv_str(&w, "queue", m->queue);
	jwrite_kv_i64(&w, "k", m->k);
	jwrite_kv_i64(&w, "tStart", m->start_us);
	jwrite_kv_i64(&w, "tEnd", m->end_us);
	jwrite_kv_cstr(&w, "format", s3conf_format_name(m->format));
	jwrite_kv_cstr(&w, "compression", s3conf_codec_name(m->codec));
	jwrite_kv_cstr(&w, "layout", s3conf_layout_name(m->layout));
	write_lists(&w, m);
	jwrite_kv_str(&w, "writer", m->writer);
	jwrite_key(&w, "committedAt");
	jwrite_iso_us(&w, m->committed_at_us / 1000 * 1000);
	jwrite_end(&w);
}

/* ---- reading ---- */

static bool
read_objects(struct jspan *j, struct arena *a, void *base)
{
	enum { PARTITION_AT = 4 };
	static const struct doc_field fields[] = {
		DOC_FIELD(doc_object, "key", DOC_TEXT, true, key),
		DOC_FIELD(doc_object, "bytes", DOC_COUNT, true, bytes),
		DOC_FIELD(doc_object, "records", DOC_COUNT, true, records),
		DOC_FIELD(doc_object, "sha256", DOC_HEX64, true, sha256),
		[PARTITION_AT] = DOC_FIELD(
			doc_object, "partition", DOC_TEXT, false, partition),
		DOC_FIELD(doc_object, "firstOffset", DOC_I64, false, first),
		DOC_FIELD(doc_object, "lastOffset", DOC_I64, false, last),
	};
	struct doc_manifest *m = base;
	size_t cap = 0;

	m->objects_n = 0;
	if (!jspan_enter_array(j))
		return false;
	while (jspan_next_item(j)) {
		struct doc_object o = { .bytes = 0 };
		uint64_t seen;

		if (!doc_fields(j, a, fields, DOC_COUNT_OF(fields), &o, &seen))
			return false;
		o.per_partition = seen & UINT64_C(1) << PARTITION_AT;
		m->objects = arena_grown(a, cap ? m->objects : NULL,
			m->objects_n, &cap, sizeof(o));
		m->objects[m->objects_n++] = o;
	}
	return !j->error;
}

static bool
read_lost(struct jspan *j, struct arena *a, void *base)
{
	static const struct doc_field fields[] = {
		DOC_FIELD(doc_lost, "partition", DOC_TEXT, true, partition),
		DOC_FIELD(doc_lost, "from", DOC_COUNT, true, from),
		DOC_FIELD(doc_lost, "to", DOC_COUNT, true, to),
	};
	struct doc_manifest *m = base;
	size_t cap = 0;

	m->lost_n = 0;
	if (!jspan_enter_array(j))
		return false;
	while (jspan_next_item(j)) {
		struct doc_lost l;

		if (!doc_fields(j, a, fields, DOC_COUNT_OF(fields), &l, NULL))
			return false;
		m->lost = arena_grown(
			a, cap ? m->lost : NULL, m->lost_n, &cap, sizeof(l));
		m->lost[m->lost_n++] = l;
	}
	return !j->error;
}

int
doc_manifest_read(struct span text, struct arena *a, struct doc_manifest *out,
	struct err *e)
{
	static const struct doc_field fields[] = {
		DOC_FIELD(doc_manifest, "sink", DOC_TEXT, true, sink),
		DOC_FIELD(doc_manifest, "tenant", DOC_TEXT, false, tenant),
		DOC_FIELD(doc_manifest, "queue", DOC_TEXT, true, queue),
		DOC_FIELD(doc_manifest, "k", DOC_COUNT, true, k),
		DOC_FIELD(doc_manifest, "tStart", DOC_TIME, true, start_us),
		DOC_FIELD(doc_manifest, "tEnd", DOC_TIME, true, end_us),
		DOC_FIELD(doc_manifest, "format", DOC_FORMAT, true, format),
		DOC_FIELD(doc_manifest, "compression", DOC_CODEC, true, codec),
		DOC_FIELD(doc_manifest, "layout", DOC_LAYOUT, true, layout),
		{ .name = "objects", DOC_WITH, true, .with = read_objects },
		DOC_FIELD(doc_manifest, "records", DOC_COUNT, true, records),
		DOC_FIELD(doc_manifest, "bytes", DOC_COUNT, true, bytes),
		DOC_FIELD(doc_manifest, "partitions", DOC_COUNT, false,
			partitions),
		DOC_FIELD(doc_manifest, "minTs", DOC_I64, false, min_us),
		DOC_FIELD(doc_manifest, "maxTs", DOC_I64, false, max_us),
		{ .name = "lost", DOC_WITH, false, .with = read_lost },
		DOC_FIELD(doc_manifest, "writer", DOC_TEXT, true, writer),
		DOC_FIELD(doc_manifest, "committedAt", DOC_TIME, false,
			committed_at_us),
	};
	struct jspan j;

	*out = (struct doc_manifest){ .k = 0 };
	jspan_open(&j, text);
	if (!doc_fields(&j, a, fields, DOC_COUNT_OF(fields), out, NULL) ||
		!jspan_end(&j))
		return err_set(e, ERR_INPUT, "not a manifest: %s at byte %zu",
			j.error, j.error_at);
	out->codec = doc_codec_in_force(out->format, out->codec, out->writer);
	return 0;
}

bool
doc_manifest_is(const struct doc_manifest *m, const struct doc_intent *i,
	struct span sink, struct span tenant, struct span queue)
{
	return m->k == i->k && m->start_us == i->start_us &&
	       m->end_us == i->end_us && m->format == i->format &&
	       m->codec == i->codec && m->layout == i->layout &&
	       span_eq(m->writer, i->writer) && span_eq(m->sink, sink) &&
	       span_eq(m->tenant, tenant) && span_eq(m->queue, queue);
}
