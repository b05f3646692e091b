/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of doc share. */
#ifndef QUEEN_S3_DOC_INT_H
#define QUEEN_S3_DOC_INT_H

#include <stddef.h>

#include "buf.h"
#include "doc.h"
#include "jspan.h"

/*
 * Members of one object by a table: unknown ones are skipped, those that are
 * required must be there, and a wrong type is corruption, never a default.
 */
enum doc_type {
	DOC_TEXT, /* struct span, in the arena or the text */
	DOC_I64,
	DOC_COUNT, /* int64_t, 0..DOC_COUNT_MAX */
	DOC_TIME, /* int64_t: `...Z` or integer microseconds */
	DOC_FORMAT,
	DOC_CODEC,
	DOC_LAYOUT,
	DOC_ALIGN,
	DOC_HEX16, /* char[n + 1], exactly so many digits */
	DOC_HEX64,
	DOC_TAG, /* cell tag */
	DOC_WITH /* by `with` */
};
/* Tenants write the rows: a number may be added to. */
#define DOC_COUNT_MAX INT64_C(1000000000000000)
struct doc_field {
	const char *name;
	enum doc_type type;
	bool needed;
	size_t at;
	bool (*with)(struct jspan *j, struct arena *a, void *base);
};
#define DOC_FIELD(struct_, name_, type_, needed_, field_)                      \
	{                                                                      \
		.name = name_, .type = type_, .needed = needed_,               \
		.at = offsetof(struct struct_, field_)                         \
	}
#define DOC_COUNT_OF(fields) (sizeof(fields) / sizeof((fields)[0]))
/* *seen: a bit per field that came; may be NULL. */
bool doc_fields(struct jspan *j, struct arena *a, const struct doc_field *f,
	size_t n, void *base, uint64_t *seen);
/* The whole text is one such object; nothing read points into it. */
bool doc_text(struct span text, struct arena *a, const struct doc_field *f,
	size_t n, void *base, uint64_t *seen);
/* Older writers named Snappy in Parquet only in the writer string. */
enum s3_codec
doc_codec_in_force(enum s3_format f, enum s3_codec c, struct span writer);

/* ---- one zstd frame of JSON, as a stream ---- */
enum { DOC_DECODED_MAX = 512 << 20 };
struct doc_pack;
struct doc_pack *doc_pack_new(struct object *out);
/* To write into; then doc_pack_more, which empties it now and then. */
struct buf *doc_pack_buf(struct doc_pack *p);
void doc_pack_more(struct doc_pack *p);
void doc_pack_end(struct doc_pack *p); /* the rest; frees it */

/*
 * An object of which one member is a list: its items come one by one, what is
 * beside it by doc_fields, at the end.
 */
struct doc_unpack;
struct doc_unpack *doc_unpack_new(struct span packed, const char *list);
/* 1: an item, borrowed until the next call; 0: the end; -1. */
int doc_unpack_item(struct doc_unpack *u, struct span *item, struct err *e)
	__attribute__((warn_unused_result));
/* After the end: the object without its list, as JSON. */
struct span doc_unpack_rest(const struct doc_unpack *u);
void doc_unpack_free(struct doc_unpack *u);

#endif
