/* SPDX-License-Identifier: Apache-2.0 */
/* What the boot of every server has in common: it may block, and end. */
#ifndef QUEEN_BOOT_H
#define QUEEN_BOOT_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "pgconn.h"

struct err;
struct schema_cell;

enum { BOOT_HOST_MAX = 256 };

/* Logs it as the reason of the end; returns the code. */
int boot_fatal(int code, const char *text);
/* Exit code of a failed boot. */
int boot_code(const struct err *e);
/*
 * What holds passwords leaves no core and shows its memory and environment to
 * nobody; it may open as many files as the system lets it.
 */
void boot_harden(void);

/*
 * host:port, the last colon parts them; an IPv6 host may stand in brackets.
 * False when it is none.
 */
bool boot_listen(const char *text, char host[BOOT_HOST_MAX], int64_t *port);
/* The same, or empty; name: of the variable, for the refusal. */
int boot_check_listen(const char *name, const char *text, struct err *e)
	__attribute__((warn_unused_result));

/*
 * How to reach the cell, by the settings of any tool: their structs have these
 * fields under the same names.
 */
#define BOOT_PGCONN_CONF(s)                                                    \
	((struct pgconn_conf){                                                 \
		.conninfo = (s)->pg_conninfo,                                  \
		.host = (s)->pg_host,                                          \
		.port = (s)->pg_port,                                          \
		.user = (s)->pg_user,                                          \
		.password = (s)->pg_password,                                  \
		.database = (s)->pg_database && *(s)->pg_database              \
				    ? (s)->pg_database                         \
				    : (s)->pg_db,                              \
		.use_ssl = (s)->pg_use_ssl,                                    \
		.reject_unauthorized = (s)->pg_ssl_reject_unauthorized,        \
		.ssl_root_cert = (s)->pg_ssl_root_cert,                        \
	})

/* The cell, for questions before the loop runs; NULL with *e. */
PGconn *boot_open(const char *conninfo, const char *tool, struct err *e);
/*
 * Waits up to a minute for the schema.  ERR_CONFIG: another major;
 * ERR_DB_RETRY: it did not come.
 */
int boot_schema(PGconn *pg, struct schema_cell *cell, struct err *e)
	__attribute__((warn_unused_result));

#endif
