/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pipeline asks the source for while it holds a message: a row of
 * pg_type, and the row whose key moved without the values stored out of line.
 */
#ifndef QUEEN_PGSRC_LOOKUP_H
#define QUEEN_PGSRC_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

struct buf;
struct pipeline_ask;
struct start_table;
struct types_row;

/* Texts are appended. */

void lookup_type_sql(struct buf *b, uint32_t oid);
void lookup_type(const PGresult *r, uint32_t oid, struct types_row *row);

/* A snapshot, then only the columns the change did not carry. */
void lookup_row_sql(struct buf *b, const struct pipeline_ask *ask,
	const struct start_table *about);
/*
 * Puts them into the row; nothing when the row is gone.  False: xid, which the
 * change is of, was not visible yet, so another row may have answered, or none:
 * to be asked again.
 */
bool lookup_row(PGresult *const *res, int n, uint32_t xid,
	const struct pipeline_ask *ask) __attribute__((warn_unused_result));
/*
 * May the row stay as it is after this error?  Columns or types the stream
 * knows may be gone by now, and what comes later says so.
 */
bool lookup_is_in_vain(const char *sqlstate);

#endif
