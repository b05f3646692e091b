/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message as an operation on the target.  Pure; values are spliced from the
 * payload's own characters and converted by the server.
 */
#ifndef QUEEN_PGSINK_OP_H
#define QUEEN_PGSINK_OP_H

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
	OP_INSERT,	/* append: $1 the array of op_join */
	OP_UPSERT,	/* $1 a row */
	OP_MOVE,	/* $1 the new row, $2 the old key; see otherwise */
	OP_DELETE,	/* $1 the key */
	OP_TRUNCATE,
	OP_STATEMENT,	/* sql: $1..$n, text or null */
};

enum { OP_JOIN_MAX_BYTES = 16 << 20 };

struct op {
	enum op_kind kind;
	/*
	 * Kind and columns as bytes: ops of equal shape have the same
	 * statement under one plan.  A key of prepared statements.
	 */
	struct span shape;
	struct span *params;	/* p NULL = SQL null; may hold any byte */
	size_t params_n;
	struct op *otherwise;	/* move: instead, when it moved no row */
};

/*
 * What one message does.  False: a data error, *why (in the arena) is filed
 * as `payload: why`.  Spans of the op lie in the arena or in the message.
 */
bool op_of(const struct plan *p, const struct feed_part *part,
	const struct feed_message *m, struct arena *a, struct op *out,
	struct span *why);

/*
 * How many of the n ops, from the first on, are one statement: neighbours of
 * append with the same columns, up to OP_JOIN_MAX_BYTES together.  At least 1.
 */
size_t op_run(const struct op *ops, size_t n);
/* $1 of a run of OP_INSERT, appended. */
void op_join(const struct op *ops, size_t n, struct buf *out);

/* The statement of an op's shape; all parameters are text. */
void op_sql(const struct plan *p, const struct op *o, struct buf *sql);
/*
 * EXPLAIN of an upsert of the key columns (upsert and cdc): 42P10 when no
 * unique index is on exactly these.
 */
void op_sql_probe(const struct plan *p, struct buf *sql);

#endif
