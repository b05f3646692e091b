/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The documents of the sink: rows of queen.kv and the sidecars of the
 * bucket: manifest, checkpoint, plan.  Pure text.  What is
 * read of a row lies in the arena; of a manifest, in its text too.
 */
#ifndef QUEEN_S3_DOC_H
#define QUEEN_S3_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "s3conf.h"
#include "span.h"

struct arena;
struct buf;
struct err;

enum { DOC_INCARNATION = 16, DOC_SHA256_HEX = 64, DOC_CELL_TAG = 12 };

/* Lease and presence rows. */
struct doc_lease {
	struct span instance;
	char incarnation[DOC_INCARNATION + 1];
	int64_t since_ms;
};
void doc_lease_write(struct buf *b, const struct doc_lease *l);
/* False when it does not parse. */
bool doc_lease_read(struct span text, struct arena *a, struct doc_lease *out);

struct doc_intent {
	int64_t k, start_us, end_us; /* start_us never STAMP_NONE */
	enum s3_format format;
	enum s3_codec codec; /* in force */
	enum s3_layout layout;
	enum s3_align align;
	bool align_known; /* older ones record neither it, prefix nor bucket */
	struct span writer, prefix, bucket;
	char cell[DOC_CELL_TAG + 1]; /* tag of the cell; "" in older ones */
};
void doc_intent_write(struct buf *b, const struct doc_intent *i);
bool doc_intent_read(struct span text, struct arena *a, struct doc_intent *out);

struct doc_committed {
	int64_t k, end_us;
	struct span manifest;
	int64_t records, bytes, at_ms;
	char cell[DOC_CELL_TAG + 1];
};
void doc_committed_write(struct buf *b, const struct doc_committed *c);
/* tEnd as ISO text or as integer microseconds. */
bool doc_committed_read(
	struct span text, struct arena *a, struct doc_committed *out);

/*
 * What `queenctl s3 resume` asks of a queue that is held:
 *	{"resume":"newest","atMs":n}  or  {"resume":"prefix","prefix":p,"atMs":n}
 */
struct doc_resume {
	bool newest; /* else: under a new prefix */
	struct span prefix; /* the new one, lawful as a setting is */
	int64_t at_ms;
};
bool doc_resume_read(struct span text, struct arena *a, struct doc_resume *out);

/* ---- the bucket ---- */
struct doc_lost {
	struct span partition;
	int64_t from, to; /* inclusive */
};
struct doc_object {
	struct span key;
	int64_t bytes, records;
	char sha256[DOC_SHA256_HEX + 1];
	bool per_partition;
	struct span partition;
	int64_t first, last; /* offsets */
};
struct doc_manifest {
	struct span sink, tenant, queue, writer;
	int64_t k, start_us, end_us;
	enum s3_format format;
	enum s3_codec codec;
	enum s3_layout layout;
	struct doc_object *objects;
	size_t objects_n;
	int64_t records, bytes, partitions;
	int64_t min_us, max_us; /* without records: not there */
	struct doc_lost *lost;
	size_t lost_n;
	int64_t committed_at_us; /* wall clock, ms */
};
void doc_manifest_write(struct buf *b, const struct doc_manifest *m);
int
doc_manifest_read(struct span text, struct arena *a, struct doc_manifest *out,
	struct err *e) __attribute__((warn_unused_result));
/*
 * May the window of the intent be committed from this manifest?
 * sink, tenant, queue: ours.
 */
bool doc_manifest_is(const struct doc_manifest *m, const struct doc_intent *i,
	struct span sink, struct span tenant, struct span queue);

/*
 * Checkpoint: one zstd frame of JSON.  Written and read position by position,
 * a million of them are never a tree; the order, by name, is the caller's.
 */
struct doc_checkpoint {
	int64_t k, end_us;
	char cell[DOC_CELL_TAG + 1]; /* whose ids these are; "" in older ones */
};
struct doc_position {
	struct span name;
	int64_t offset;
	int64_t part; /* its id; -1: not known */
};
struct object;
struct doc_checkpoint_writer;
struct doc_checkpoint_writer *
doc_checkpoint_begin(struct object *out, const struct doc_checkpoint *c);
void doc_checkpoint_add(
	struct doc_checkpoint_writer *w, const struct doc_position *p);
void doc_checkpoint_end(struct doc_checkpoint_writer *w); /* frees it */

/* packed: borrowed until it is closed. */
struct doc_checkpoint_reader;
struct doc_checkpoint_reader *doc_checkpoint_open(struct span packed);
/*
 * 1: a position, borrowed until the next call; 0: that was all, and *c is set;
 * -1: truncated, garbage, over 512 MiB: what came before is void too.
 */
int doc_checkpoint_next(struct doc_checkpoint_reader *r, struct doc_position *p,
	struct doc_checkpoint *c, struct err *e)
	__attribute__((warn_unused_result));
void doc_checkpoint_close(struct doc_checkpoint_reader *r);

/* Plan of a window in the layout per-partition: its data keys, zstd. */
struct doc_plan_writer;
struct doc_plan_writer *doc_plan_begin(struct object *out, int64_t k);
void doc_plan_add(struct doc_plan_writer *w, struct span key);
void doc_plan_end(struct doc_plan_writer *w); /* frees it */
struct doc_plan_reader;
struct doc_plan_reader *doc_plan_open(struct span packed);
/* So too; *k is set at the end. */
int doc_plan_next(struct doc_plan_reader *r, struct span *key, int64_t *k,
	struct err *e) __attribute__((warn_unused_result));
void doc_plan_close(struct doc_plan_reader *r);

#endif
