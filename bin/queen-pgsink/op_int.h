/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside op: op.c maps payloads, op_cdc.c events, op_param.c parameters;
 * op_row.c gathers the columns of a row, op_sql.c writes statements.
 */
#ifndef QUEEN_PGSINK_OP_INT_H
#define QUEEN_PGSINK_OP_INT_H

#include "arena.h"
#include "feed.h"
#include "jspan.h"
#include "op.h"
#include "plan.h"

/* One message on its way; the first failure stays. */
struct op_make {
	const struct plan *p;
	const struct feed_part *part;
	const struct feed_message *m;
	struct arena *a;
	struct span why;
};

/* Sets why and returns false. */
bool op_fail(struct op_make *k, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* So too with what is wrong with the JSON. */
bool op_fail_json(struct op_make *k, const struct jspan *j);

/* jspan_take of values that may nest deeper than it follows. */
bool op_take(struct jspan *j, struct jspan_val *v);

/* ---- op_row.c: sets of columns and a row's values ---- */

size_t op_words(const struct plan *p);
static inline bool
op_has(const uint64_t *set, size_t column)
{
	return set[column / 64] >> (column % 64) & 1;
}

/* Kind and an empty set behind it, which is returned. */
uint64_t *op_shape(struct op_make *k, struct op *o, enum op_kind kind);
/* The set within the shape. */
const uint64_t *op_columns(const struct op *o);
/* All columns but those of the key that are not in the set (may be NULL). */
uint64_t *op_not_missing(struct op_make *k, const uint64_t *set);
void op_set(struct op_make *k, uint64_t *set, size_t column, struct span json);
/*
 * The members of the object that comes next that are columns to be written
 * and not in skip (may be NULL).
 */
bool op_read(struct op_make *k, struct jspan *j, uint64_t *set,
	const uint64_t *skip);
/* Fails with the key columns that are not in the set. */
bool op_whole_key(struct op_make *k, const uint64_t *set);
/* `{"a":1,...}` in the arena. */
struct span op_row(struct op_make *k, const uint64_t *set);
void op_params(struct op_make *k, struct op *o, size_t n);

/* ---- the modes ---- */

bool op_event(struct op_make *k, struct op *o);
bool op_statement(struct op_make *k, struct op *o);
/* A field of the message as text, the payload as it stands. */
struct span op_field(struct op_make *k, enum conndoc_meta m);

#endif
