/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PostgreSQL's binary format both ways: parameters of one prepared call, and
 * values of a result.  Times are microseconds since 1970 on our side; the
 * infinities of the server are INT64_MIN and INT64_MAX.
 */
#ifndef QUEEN_PGBIN_H
#define QUEEN_PGBIN_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "qid.h"
#include "span.h"

enum { PGARGS_MAX = 64 };

/*
 * Parameters in order.  Embedded or on the stack; the pool copies nothing, it
 * takes the whole struct over (see pgpool_call), so never touch it after.
 */
struct pgargs {
	struct buf data;
	size_t at[PGARGS_MAX], len[PGARGS_MAX];
	bool null[PGARGS_MAX];
	int n;
	int open;		/* index of the array being filled, or -1 */
	uint32_t items;
};

void pgargs_init(struct pgargs *a);
void pgargs_fini(struct pgargs *a);
void pgargs_i16(struct pgargs *a, int16_t v);
void pgargs_i32(struct pgargs *a, int32_t v);
void pgargs_i64(struct pgargs *a, int64_t v);
void pgargs_bool(struct pgargs *a, bool v);
void pgargs_text(struct pgargs *a, struct span s);
void pgargs_bytea(struct pgargs *a, struct span s);
void pgargs_uuid(struct pgargs *a, const struct qid *q);
void pgargs_time(struct pgargs *a, int64_t at_us);
void pgargs_null(struct pgargs *a);

/* Element types of arrays, as the server's OIDs. */
enum pgargs_type {
	PGARGS_BOOL = 16, PGARGS_BYTEA = 17, PGARGS_I64 = 20, PGARGS_I16 = 21,
	PGARGS_I32 = 23, PGARGS_TEXT = 25, PGARGS_TIMESTAMPTZ = 1184,
	PGARGS_UUID = 2950
};

/*
 * One array parameter at a time: open, then the _item calls, then close.  An
 * array without items is sent as the empty array.
 */
void pgargs_array(struct pgargs *a, enum pgargs_type type);
void pgargs_item_i16(struct pgargs *a, int16_t v);
void pgargs_item_i32(struct pgargs *a, int32_t v);
void pgargs_item_i64(struct pgargs *a, int64_t v);
void pgargs_item_bool(struct pgargs *a, bool v);
void pgargs_item_text(struct pgargs *a, struct span s);
void pgargs_item_bytea(struct pgargs *a, struct span s);
void pgargs_item_uuid(struct pgargs *a, const struct qid *q);
void pgargs_item_time(struct pgargs *a, int64_t at_us);
void pgargs_item_null(struct pgargs *a);
void pgargs_close(struct pgargs *a);

/* Results were asked for in binary.  A wrong width is BUG. */
bool pgbin_null(const PGresult *r, int row, int col);
int16_t pgbin_i16(const PGresult *r, int row, int col);
int32_t pgbin_i32(const PGresult *r, int row, int col);
int64_t pgbin_i64(const PGresult *r, int row, int col);
bool pgbin_bool(const PGresult *r, int row, int col);
double pgbin_f64(const PGresult *r, int row, int col);
int64_t pgbin_time(const PGresult *r, int row, int col);
struct qid pgbin_uuid(const PGresult *r, int row, int col);
/* text, json, bytea: the bytes; borrowed from the result. */
struct span pgbin_bytes(const PGresult *r, int row, int col);

/* A one-dimensional array value; walked with pgbin_array_next. */
struct pgbin_array {
	struct span rest;
	int32_t left;
};
struct pgbin_array pgbin_array(const PGresult *r, int row, int col);
/* False at the end; *null tells a null element (item is empty then). */
bool pgbin_array_next(struct pgbin_array *a, struct span *item, bool *null);
int32_t pgbin_span_i32(struct span s);
int64_t pgbin_span_i64(struct span s);

#endif
