/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks of a copy as SQL: what is sent to the source, and its answers into a
 * snapshot.  Everything goes through the simple protocol, whose text is that
 * of the types' output functions and so the stream's.
 */
#ifndef QUEEN_PGSRC_CHUNK_H
#define QUEEN_PGSRC_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "shape.h"

struct arena;
struct buf;
struct err;
struct pipeline_chunk;
struct snapshot;
struct start_table;

/* All texts are appended. */

/* A message into the WAL, outside of any transaction: `hb`, `lw:7`. */
void chunk_mark_sql(struct buf *b, const char *epoch, const char *mark,
	bool flush, int server_version);

/* The columns of a table as they are now, without a row. */
void chunk_describe_sql(struct buf *b, const struct shape_table *t,
	const struct start_table *about);
/*
 * Its answer as a shape; oids (in the arena) say what types its chunks must
 * have.  SHAPE_ASK: learn *ask, then again.
 */
enum shape_result chunk_shape(const PGresult *r, const struct shape_table *t,
	struct types *types, struct shape **s, uint32_t **oids, struct arena *a,
	uint32_t *ask, struct err *e);

/*
 * Chunk n: snapshot and rows in one transaction, then the high watermark.  The
 * low one (`lw:n`, not flushed) has to be sent before.
 */
void chunk_read_sql(struct buf *b, const struct shape_table *t,
	const struct start_table *about, const struct pipeline_chunk *c,
	const char *epoch, uint64_t n, int server_version);
/*
 * Its results into the chunk the snapshot waits for.  ERR_DB_DATA: the table
 * has other columns by now; ERR_IO: not the answer.
 */
int chunk_install(struct snapshot *s, PGresult *const *res, int n,
	const uint32_t *oids, int64_t read_at_us, struct err *e)
	__attribute__((warn_unused_result));

#endif
