/* SPDX-License-Identifier: Apache-2.0 */
/* The database itself, for the commands that need no server. */
#ifndef QUEENCTL_DB_H
#define QUEENCTL_DB_H

#include <libpq-fe.h>

struct cmd_call;

/*
 * Connects by --conninfo, QUEEN_PG_CONNINFO, PG_* or libpq's own variables;
 * without any, to the cell of --dir or the one `up` last started.  NULL with
 * the message printed and *code set (CTL_SERVER = unreachable).
 */
PGconn *db_open(const struct cmd_call *a, int *code);
/* Rows of a query with text parameters; NULL with the message printed. */
PGresult *db_query(PGconn *pg, const char *sql, int n,
	const char *const *params);

#endif
