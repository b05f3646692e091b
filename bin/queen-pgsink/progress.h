/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress table of the target: how far each partition has been applied,
 * committed with the rows themselves.  Pure: statements, what a row says of a
 * message, whether a table found is one.
 */
#ifndef QUEEN_PGSINK_PROGRESS_H
#define QUEEN_PGSINK_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "span.h"

struct buf;
struct conndoc_name;
struct connfault;

/* Parameters are text; arrays in the server's notation. */
enum progress_sql {
	PROGRESS_LOCK,		/* sink, ids, names, group, cell: rows of
				 * progress_row_read, in the order of ids; what
				 * is missing is made */
	PROGRESS_MOVE,	/* sink, ids, offsets, created (us), group, cell,
			 * names */
	PROGRESS_OTHERS,	/* sink, cell: a row when another cell wrote any */
	PROGRESS_TAKE,		/* sink, cell: partition ids and names of those,
				 * locked */
	PROGRESS_REKEY,		/* sink, old ids, new ids, group or null, cell */
	PROGRESS_DROP,		/* sink, ids */
	PROGRESS_COLUMNS,	/* of the table: name and type */
	PROGRESS_FACTS,		/* regular, keyed, rights, schema */
	PROGRESS_SCHEMA,	/* creates it */
	PROGRESS_TABLE,		/* creates it */
	PROGRESS_SQLS
};
void progress_sql(const struct conndoc_name *table, enum progress_sql which,
	struct buf *out);

/* Array literals: open, items, close. */
void progress_array_open(struct buf *b);
void progress_array_i64(struct buf *b, int64_t v);
void progress_array_text(struct buf *b, struct span s);
void progress_array_close(struct buf *b);

struct progress_row {
	int64_t partition_id, offset;
	int64_t created_at_us;	/* INT64_MAX: not known, any time is below */
	int64_t group_id;	/* -1: not known, every batch's */
	struct span cell;	/* "": not known, every cell's */
};
/* Row i of PROGRESS_LOCK; borrows. */
void progress_row_read(const PGresult *res, int i, struct progress_row *out);

enum progress_is {
	PROGRESS_OURS,
	PROGRESS_NEWER,		/* of a later life of the group */
	PROGRESS_FOREIGN	/* another cell wrote it */
};
/* Where a partition stands within a transaction. */
struct progress_at {
	int64_t offset, created_at_us;
	bool moved;		/* to be written */
};
/* A row of an older life of the group is as good as none. */
enum progress_is progress_begin(const struct progress_row *row,
	int64_t group_id, struct span cell, struct progress_at *at);
/*
 * True: it has been applied before.  Else it is to be applied and is where the
 * partition stands, even when that is lower: a cell that went back in time
 * uses offsets again, with later times.
 */
bool progress_replay(struct progress_at *at, int64_t offset,
	int64_t created_at_us);

struct progress_column {
	struct span name, type;	/* type as format_type says it */
};
/*
 * Whether the table can be used; else `progress_table` with what to run.
 * No columns: there is no such table.
 */
int progress_verify(const struct conndoc_name *table,
	const struct progress_column *c, size_t n, bool keyed,
	struct connfault *f) __attribute__((warn_unused_result));
/* `progress_table`: why, and the complete DDL. */
int progress_refuse(const struct conndoc_name *table, struct connfault *f,
	const char *why);

#endif
