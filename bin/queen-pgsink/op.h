/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message as operations on the target.  Pure; values are spliced from the
 * payload's own characters and converted by the server.
 */
#ifndef PGSINK_OP_H
#define PGSINK_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct arena;
struct buf;
struct feed_message;
struct feed_part;
struct plan;

enum op_kind {
	OP_INSERT,	/* append: $1 a JSON array of rows */
	OP_UPSERT,	/* $1 a row */
	OP_MOVE,	/* $1 the new row, $2 the old key; 0 rows: then_upsert */
	OP_DELETE,	/* $1 the key */
	OP_TRUNCATE,
	OP_STATEMENT,	/* sql: $1..$n, text or null */
};

enum { OP_PARAMS_MAX = 256 };

struct op {
	enum op_kind kind;
	uint64_t *columns;	/* set of column numbers, one bit each */
	struct span *params;	/* p NULL = SQL null */
	size_t params_n;
};

/*
 * What one message does; for append a row whose neighbours of the same column
 * set may be joined (op_join).  False: a data error, *why (in the arena) is
 * filed as `payload: why`.
 */
bool op_of(const struct plan *p, const struct feed_part *part,
	const struct feed_message *m, struct arena *a, struct op *out,
	struct span *why);
/* Same statement for both, and both may be one of it (append alone). */
bool op_joins(const struct op *a, const struct op *b);

/* The statement of an op's kind and columns. */
void op_sql(const struct plan *p, const struct op *o, struct buf *sql);

#endif
