/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parquet: format version 1, data pages V1, five columns.  The
 * pages of a row group are held compressed until it closes; nothing else of
 * it is.
 */
#ifndef QUEEN_S3_PARQUET_H
#define QUEEN_S3_PARQUET_H

#include <stdint.h>

struct err;
struct format_of;
struct object;
struct record;

/* REVISION: bytes of equal records differ from those of the one before. */
enum { PARQUET_REVISION = 1, PARQUET_GROUP_ROWS = 100000 };

struct parquet;
/* out is borrowed.  NULL with ERR_CONFIG: no codec of pages. */
struct parquet *parquet_new(const struct format_of *o, int64_t group_rows,
	struct object *out, struct err *e);
int parquet_add(struct parquet *p, const struct record *r, struct err *e)
	__attribute__((warn_unused_result));
int parquet_finish(struct parquet *p, struct err *e)
	__attribute__((warn_unused_result));
void parquet_free(struct parquet *p);

#endif
