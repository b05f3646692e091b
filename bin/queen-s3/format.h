/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records into the bytes of one object: JSONL or Parquet.
 * The same records in the same order give the same bytes in every process.
 */
#ifndef QUEEN_S3_FORMAT_H
#define QUEEN_S3_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "s3conf.h"
#include "span.h"

struct err;
struct object;

enum { FORMAT_WRITER_MAX = 96 };

/* One record of a window; borrowed. */
struct record {
	struct span partition, txn;
	int64_t offset, ts_us;
	struct span payload; /* as stored */
	bool null; /* stored empty */
};

struct format_of {
	enum s3_format format;
	enum s3_codec codec; /* JSONL: not snappy; Parquet: zstd, snappy */
	struct span queue, tenant; /* into the footer of Parquet */
};

/* `queen-s3/<version> jsonl+zstd/1.5.4`; returns out. */
char *
format_writer(enum s3_format f, enum s3_codec c, char out[FORMAT_WRITER_MAX]);
const char *format_extension(enum s3_format f, enum s3_codec c);
const char *format_content_type(enum s3_format f);

struct format;
/* out: borrowed, not sealed yet.  NULL with ERR_CONFIG: no such codec. */
struct format *
format_new(const struct format_of *o, struct object *out, struct err *e);
/* -1 with ERR_BUG: out of the order (partition, ts, offset), or finished. */
int format_add(struct format *f, const struct record *r, struct err *e)
	__attribute__((warn_unused_result));
/*
 * The last bytes, a step of a few milliseconds per call.  1: call again, it
 * may be in a later turn of the loop; 0: the object is sealed.
 */
int format_finish(struct format *f, struct err *e)
	__attribute__((warn_unused_result));
void format_free(struct format *f);
int64_t format_records(const struct format *f);

#endif
