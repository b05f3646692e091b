/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows.  They lie in KV as jsonb, so members come back in any order; what
 * a later version adds is not minded.
 */
#include "doc.h"

#include <stddef.h>
#include <string.h>

#include "arena.h"
#include "doc_int.h"
#include "jwrite.h"
#include "stamp.h"

/* ---- members ---- */

static bool
take_text(struct jspan *j, struct arena *a, struct span *out)
{
	struct jspan_val v;

	if (!jspan_take(j, &v))
		return false;
	return jspan_text(&v, a, out) || jspan_fail(j, "expected a string");
}

static bool
take_i64(struct jspan *j, int64_t *out)
{
	struct jspan_val v;

	if (!jspan_take(j, &v))
		return false;
	return jspan_i64(&v, out) || jspan_fail(j, "expected a whole number");
}

/* Years 0000 to 9999, which are all that the text can say. */
#define TIME_MIN_US INT64_C(-62167219200000000)
#define TIME_MAX_US INT64_C(253402300799999999)

static bool
take_time(struct jspan *j, struct arena *a, int64_t *out)
{
	struct span s;

	if (jspan_peek(j) != JSPAN_STRING)
		return take_i64(j, out) &&
		       ((*out >= TIME_MIN_US && *out <= TIME_MAX_US) ||
			       jspan_fail(j, "expected a time"));
	return take_text(j, a, &s) &&
	       (stamp_parse(s, out) || jspan_fail(j, "expected a time"));
}

static bool
take_hex(struct jspan *j, struct arena *a, char *out, size_t n)
{
	struct span s;

	if (!take_text(j, a, &s))
		return false;
	if (s.n != n)
		return jspan_fail(j, "expected hex digits");
	for (size_t i = 0; i < n; i++)
		if (span_hex(s.p[i]) < 0)
			return jspan_fail(j, "expected hex digits");
	memcpy(out, s.p, n);
	out[n] = '\0';
	return true;
}

static bool
take_word(struct jspan *j, struct arena *a, enum doc_type t, void *at)
{
	struct span s;
	bool ok = false;

	if (!take_text(j, a, &s))
		return false;
	switch (t) {
	case DOC_FORMAT:
		ok = s3conf_format_of(s, at);
		break;
	case DOC_CODEC:
		ok = s3conf_codec_of(s, at);
		break;
	case DOC_LAYOUT:
		ok = s3conf_layout_of(s, at);
		break;
	default:
		ok = s3conf_align_of(s, at);
	}
	return ok || jspan_fail(j, "unknown word");
}

static bool
take(struct jspan *j, struct arena *a, const struct doc_field *f, void *base)
{
	void *at = (char *)base + f->at;

	switch (f->type) {
	case DOC_TEXT:
		return take_text(j, a, at);
	case DOC_I64:
		return take_i64(j, at);
	case DOC_COUNT:
		return take_i64(j, at) &&
		       ((*(int64_t *)at >= 0 &&
				*(int64_t *)at <= DOC_COUNT_MAX) ||
			       jspan_fail(j, "not a count"));
	case DOC_TIME:
		return take_time(j, a, at);
	case DOC_HEX16:
		return take_hex(j, a, at, DOC_INCARNATION);
	case DOC_HEX64:
		return take_hex(j, a, at, DOC_SHA256_HEX);
	case DOC_TAG:
		return take_hex(j, a, at, DOC_CELL_TAG);
	case DOC_WITH:
		return f->with(j, a, base);
	default:
		return take_word(j, a, f->type, at);
	}
}

bool
doc_fields(struct jspan *j, struct arena *a, const struct doc_field *f,
	size_t n, void *base, uint64_t *seen)
{
	struct jspan_val skipped;
	uint64_t came = 0;
	struct span key;
	size_t i;

	if (!jspan_enter_object(j))
		return false;
	while (jspan_next_key(j, a, &key)) {
		for (i = 0; i < n && !span_is(key, f[i].name); i++)
			;
		if (i == n) {
			jspan_take(j, &skipped);
			continue;
		}
		came |= UINT64_C(1) << i;
		take(j, a, &f[i], base);
	}
	for (i = 0; i < n; i++)
		if (f[i].needed && !(came & UINT64_C(1) << i))
			jspan_fail(j, "a member is missing");
	if (seen)
		*seen = came;
	return !j->error;
}

bool
doc_text(struct span text, struct arena *a, const struct doc_field *f, size_t n,
	void *base, uint64_t *seen)
{
	struct jspan j;

	/* a row is gone after its callback */
	jspan_open(&j, arena_dup(a, text));
	return doc_fields(&j, a, f, n, base, seen) && jspan_end(&j);
}

enum s3_codec
doc_codec_in_force(enum s3_format f, enum s3_codec c, struct span writer)
{
	static const char snappy[] = "snappy";
	enum { N = sizeof(snappy) - 1 };

	if (f == S3_PARQUET && c == S3_PLAIN && writer.n >= N &&
		memmem(writer.p, writer.n, snappy, N))
		return S3_SNAPPY;
	return c;
}

/* ---- lease ---- */

void
doc_lease_write(struct buf *b, const struct doc_lease *l)
{
	struct jwrite w;

	jwrite_init(&w, b);
	jwrite_object(&w);
	jwrite_kv_str(&w, "instance", l->instance);
	jwrite_kv_cstr(&w, "incarnation", l->incarnation);
	jwrite_kv_i64(&w, "sinceMs", l->since_ms);
	jwrite_end(&w);
}

bool
doc_lease_read(struct span text, struct arena *a, struct doc_lease *out)
{
	static const struct doc_field fields[] = {
		DOC_FIELD(doc_lease, "instance", DOC_TEXT, true, instance),
		DOC_FIELD(
			doc_lease, "incarnation", DOC_HEX16, true, incarnation),
		DOC_FIELD(doc_lease, "sinceMs", DOC_I64, true, since_ms),
	};

	return doc_text(text, a, fields, DOC_COUNT_OF(fields), out, NULL);
}

/* ---- intent ---- */

void
doc_intent_write(struct buf *b, const struct doc_intent *i)
{
	struct jwrite w;

	jwrite_init(&w, b);
	jwrite_object(&w);
	jwrite_kv_i64(&w, "k", i->k);
	jwrite_kv_i64(&w, "tStart", i->start_us);
	jwrite_kv_i64(&w, "tEnd", i->end_us);
	jwrite_kv_cstr(&w, "format", s3conf_format_name(i->format));
	jwrite_kv_cstr(&w, "compression", s3conf_codec_name(i->codec));
	jwrite_kv_cstr(&w, "layout", s3conf_layout_name(i->layout));
	jwrite_kv_str(&w, "writer", i->writer);
	if (i->prefix.n)
		jwrite_kv_str(&w, "prefix", i->prefix);
	if (i->bucket.n)
		jwrite_kv_str(&w, "bucket", i->bucket);
	if (i->align_known)
		jwrite_kv_cstr(&w, "align", s3conf_align_name(i->align));
	if (i->cell[0])
		jwrite_kv_cstr(&w, "cell", i->cell);
	jwrite_end(&w);
}

bool
doc_intent_read(struct span text, struct arena *a, struct doc_intent *out)
{
	enum { ALIGN_AT = 7 };
	static const struct doc_field fields[] = {
		DOC_FIELD(doc_intent, "k", DOC_COUNT, true, k),
		DOC_FIELD(doc_intent, "tStart", DOC_TIME, true, start_us),
		DOC_FIELD(doc_intent, "tEnd", DOC_TIME, true, end_us),
		DOC_FIELD(doc_intent, "format", DOC_FORMAT, true, format),
		DOC_FIELD(doc_intent, "compression", DOC_CODEC, true, codec),
		DOC_FIELD(doc_intent, "layout", DOC_LAYOUT, true, layout),
		DOC_FIELD(doc_intent, "writer", DOC_TEXT, true, writer),
		[ALIGN_AT] =
			DOC_FIELD(doc_intent, "align", DOC_ALIGN, false, align),
		DOC_FIELD(doc_intent, "prefix", DOC_TEXT, false, prefix),
		DOC_FIELD(doc_intent, "bucket", DOC_TEXT, false, bucket),
		DOC_FIELD(doc_intent, "cell", DOC_TAG, false, cell),
	};
	uint64_t seen;

	*out = (struct doc_intent){ .k = 0 };
	if (!doc_text(text, a, fields, DOC_COUNT_OF(fields), out, &seen))
		return false;
	out->align_known = seen & UINT64_C(1) << ALIGN_AT;
	out->codec = doc_codec_in_force(out->format, out->codec, out->writer);
	/* a prefix goes into keys, a bucket into the name of a host */
	if (out->prefix.n && !s3conf_prefix_ok(out->prefix))
		return false;
	if (out->bucket.n && !s3conf_bucket_ok(out->bucket))
		return false;
	return out->k > 0 && out->start_us < out->end_us;
}

/* ---- committed ---- */

void
doc_committed_write(struct buf *b, const struct doc_committed *c)
{
	struct jwrite w;

	jwrite_init(&w, b);
	jwrite_object(&w);
	jwrite_kv_i64(&w, "k", c->k);
	/* a text: the hold of the retention reads it */
	jwrite_key(&w, "tEnd");
	jwrite_iso_us(&w, c->end_us);
	jwrite_kv_str(&w, "manifest", c->manifest);
	jwrite_kv_i64(&w, "records", c->records);
	jwrite_kv_i64(&w, "bytes", c->bytes);
	jwrite_kv_i64(&w, "committedAtMs", c->at_ms);
	if (c->cell[0])
		jwrite_kv_cstr(&w, "cell", c->cell);
	jwrite_end(&w);
}

bool
doc_committed_read(struct span text, struct arena *a, struct doc_committed *out)
{
	static const struct doc_field fields[] = {
		DOC_FIELD(doc_committed, "k", DOC_COUNT, true, k),
		DOC_FIELD(doc_committed, "tEnd", DOC_TIME, true, end_us),
		DOC_FIELD(doc_committed, "manifest", DOC_TEXT, false, manifest),
		DOC_FIELD(doc_committed, "records", DOC_COUNT, false, records),
		DOC_FIELD(doc_committed, "bytes", DOC_COUNT, false, bytes),
		DOC_FIELD(
			doc_committed, "committedAtMs", DOC_I64, false, at_ms),
		DOC_FIELD(doc_committed, "cell", DOC_TAG, false, cell),
	};

	*out = (struct doc_committed){ .k = 0 };
	return doc_text(text, a, fields, DOC_COUNT_OF(fields), out, NULL) &&
	       out->k > 0;
}

/* ---- resume ---- */

bool
doc_resume_read(struct span text, struct arena *a, struct doc_resume *out)
{
	struct raw {
		struct span resume, prefix;
		int64_t at_ms;
	} r = { .at_ms = 0 };
	static const struct doc_field fields[] = {
		DOC_FIELD(raw, "resume", DOC_TEXT, true, resume),
		DOC_FIELD(raw, "prefix", DOC_TEXT, false, prefix),
		DOC_FIELD(raw, "atMs", DOC_I64, true, at_ms),
	};

	if (!doc_text(text, a, fields, DOC_COUNT_OF(fields), &r, NULL))
		return false;
	*out = (struct doc_resume){
		.newest = span_is(r.resume, "newest"),
		.prefix = r.prefix,
		.at_ms = r.at_ms,
	};
	return out->newest ||
	       (span_is(r.resume, "prefix") && s3conf_prefix_ok(r.prefix));
}
