/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of queen-pgsrc; conf.c holds the table, lib/conf.h the parser. */
#ifndef QUEEN_PGSRC_SETTINGS_H
#define QUEEN_PGSRC_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"

struct settings {
	/* connectors */
	bool connectors;		/* false: run none, exit 0 */
	int64_t threads;		/* checked; without effect */
	int64_t reload_ms;
	int64_t lease_ttl_ms;
	int64_t shutdown_grace_ms;
	bool allow_private;
	/* server */
	char *listen;			/* host:port; empty = none */
	char *server_id;		/* NULL = host name */
	/* postgres: the cell's */
	char *pg_conninfo, *pg_host, *pg_user, *pg_password, *pg_database;
	char *pg_db;
	int64_t pg_port;
	bool pg_use_ssl, pg_ssl_reject_unauthorized;
	char *pg_ssl_root_cert;
	/* security */
	char *encryption_key, *encryption_old_keys;
	char *ca_file;			/* NULL = the distribution's */
	/* logging */
	char *rust_log, *log_level;
	bool log_json;
};

extern const struct conf_item conf_items[];
extern const size_t conf_items_n;

#endif
