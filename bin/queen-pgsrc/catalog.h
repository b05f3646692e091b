/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source's catalogue: SQL texts that ask it, and how their results are
 * read.  Every catalogue name is qualified and names are compared exactly, so
 * that neither search_path nor case changes what is found.  Holds for
 * PostgreSQL 15 and later.
 */
#ifndef QUEEN_PGSRC_CATALOG_H
#define QUEEN_PGSRC_CATALOG_H

#include <stdbool.h>

#include <libpq-fe.h>

#include "decide.h"
#include "span.h"

struct arena;
struct buf;
struct conndoc_source;
struct connfault;

/*
 * A reader takes the results of its own text, in order, and copies into the
 * arena.  -1: a result has not the shape that was asked for, *f says so.
 */

/* One result; also the pid of the asking session. */
extern const char *const catalog_server_sql;
int catalog_server(PGresult *const *res, int n, struct arena *a,
	struct decide_server *s, int *pid, struct connfault *f);

/* Tables as configured and the publication, in CATALOG_TABLES_N results. */
void catalog_tables_sql(struct buf *b, const struct conndoc_source *want,
	struct span publication);
/* *t has want->tables_n elements. */
int catalog_tables(PGresult *const *res, int n,
	const struct conndoc_source *want, struct span publication,
	struct arena *a, struct decide_table **t,
	struct decide_publication *p, struct connfault *f);

void catalog_slot_sql(struct buf *b, struct span slot);
int catalog_slot(PGresult *const *res, int n, struct span slot,
	struct arena *a, struct decide_slot *s, struct connfault *f);

/*
 * Of a slot in use: bytes of WAL behind it, wal_status, confirmed position, and
 * a table the publication does not carry whole, or null.
 */
void catalog_measure_sql(struct buf *b, struct span slot,
	const struct conndoc_source *want, struct span publication);
/* A row when both are there: then what fails to decode is older than it. */
void catalog_both_sql(struct buf *b, struct span slot, struct span publication);

enum { CATALOG_FAILOVER_VERSION = 170000 };
/* Failover where the server has it; waits for running transactions. */
void catalog_create_slot_sql(struct buf *b, struct span slot, int version);
int catalog_created_lsn(PGresult *const *res, int n, uint64_t *lsn,
	struct connfault *f);
/* No error when there is none; 55006 while it is in use. */
void catalog_drop_slot_sql(struct buf *b, struct span slot);
/* Ends the session that uses the slot. */
void catalog_end_user_sql(struct buf *b, struct span slot);
/* Unless it is for all tables: such a one was not made by us. */
void catalog_drop_publication_sql(struct buf *b, struct span publication);
void catalog_for_all_sql(struct buf *b, struct span publication);

/* Whom the session with this pid waits for; 0 nobody, -1 a prepared one. */
void catalog_blocker_sql(struct buf *b, int pid);
/* A lone number in a lone row; 0 when there is no row, or it is null. */
int catalog_number(PGresult *const *res, int n);

/* ---- the replication link ---- */

#define CATALOG_IDENTIFY "IDENTIFY_SYSTEM"
int catalog_system(PGresult *const *res, int n, struct arena *a,
	struct decide_system *s, struct connfault *f);
void catalog_history_sql(struct buf *b, uint32_t timeline);
int catalog_history(PGresult *const *res, int n, struct arena *a,
	struct span *history, struct connfault *f);

#endif
