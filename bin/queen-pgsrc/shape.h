/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of a table now: its columns as the last Relation message gave
 * them, which of them are the key and which name the partition.  A tuple is
 * only ever read with the shape that came before it.
 */
#ifndef QUEEN_PGSRC_SHAPE_H
#define QUEEN_PGSRC_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "span.h"
#include "tuple.h"

struct buf;
struct err;
struct pgoutput_relation;
struct types;
struct value_type;

enum shape_by { SHAPE_BY_KEY, SHAPE_BY_NOTHING, SHAPE_BY_COLUMNS };

/* A table of the connector's document; borrowed, outlives every shape. */
struct shape_table {
	struct span schema, name;
	struct span label;		/* `schema.name`, as events spell it */
	struct span queue;
	enum shape_by by;
	const struct span *by_columns;	/* SHAPE_BY_COLUMNS */
	size_t by_n;
	const struct span *key;		/* as resolved at start, in key order */
	size_t key_n;
	const struct span *columns;	/* at start too; NULL: not known */
	size_t columns_n;
};

struct shape_column {
	struct span name;
	struct span json_key;		/* `"name":`, ready to write */
	const struct value_type *type;
};

struct shape {
	struct arena arena;		/* holds all it points to, itself too */
	const struct shape_table *table;
	uint32_t oid;
	bool full;			/* replica identity FULL */
	struct shape_column *columns;
	size_t n;
	size_t *key, key_n;		/* column numbers, in key order */
	size_t *by, by_n;		/* of the partition; none: `all` */
};

enum shape_result {
	SHAPE_OK,
	SHAPE_ASK,		/* a type is unknown: learn *ask, try again */
	SHAPE_CHANGED,		/* code relation_changed, e says why */
};

/* *s is the caller's to free with shape_free, and set by SHAPE_OK alone. */
enum shape_result shape_new(const struct shape_table *table,
	const struct pgoutput_relation *r, struct types *types,
	struct shape **s, uint32_t *ask, struct err *e);
void shape_free(struct shape *s);

/* Has it the columns of the start? */
bool shape_is_as_found(const struct shape *s);
/* Same columns, types, key and identity: nothing would be read differently. */
bool shape_same(const struct shape *a, const struct shape *b);

enum { SHAPE_PARTITION_MAX = 128 };

/*
 * The partition a row belongs to, appended to the buffer.  Its columns are
 * all present in the row.
 */
void shape_partition(const struct shape *s, const struct tuple *row,
	struct buf *b);
/* Key texts joined by NUL: what rows are told apart by, within a table. */
void shape_key_code(const struct shape *s, const struct tuple *row,
	struct buf *b);

#endif
