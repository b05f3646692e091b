/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parent of the connectors of one kind on a node: reads their documents,
 * keeps one process for each, hands them hints of new messages, writes their
 * status, and serves health and metrics.  It does no work of theirs, so that
 * what one of them suffers is its own.
 */
#ifndef QUEEN_CONNHOST_H
#define QUEEN_CONNHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conndoc.h"

struct conf_item;
struct err;
struct seal;

/* argv[1] of a connector's process; its task comes over descriptor 3. */
#define CONNHOST_CHILD "--child"
enum { CONNHOST_FD = 3, CONNHOST_TAG_MAX = 13 };

struct connhost_settings {
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

struct connhost_tool {
	enum conndoc_kind kind;
	const char *name;		/* queen-pgsrc, queen-pgsink */
	const char *purpose;		/* for --help, `\n`-ended */
	const char *listen_name;	/* variable of the listener */
	const struct conf_item *items;	/* of struct connhost_settings */
	size_t items_n;
	/* One connector, by CONNHOST_FD, until it has left; the exit code. */
	int (*child)(const struct connhost_settings *conf,
		const char *conninfo, const struct seal *seal);
};

/* The whole program; the exit code. */
int connhost_main(const struct connhost_tool *t, int argc, char **argv);

#endif
