/* SPDX-License-Identifier: Apache-2.0 */
#include "db.h"

#include <stdlib.h>
#include <string.h>

#include "cell.h"
#include "cmd.h"
#include "conf.h"
#include "ctl.h"
#include "pgconn.h"

enum { CONNECT_MS = 10000 };

struct settings {
	char *conninfo, *host, *user, *password, *database, *db;
	int64_t port;
	bool use_ssl, reject_unauthorized;
	char *ssl_root_cert;
};

#define AT(field) offsetof(struct settings, field)

/* The part of queend's table that says where the database is. */
static const struct conf_item items[] = {
	{ "QUEEN_PG_CONNINFO", CONF_STR, AT(conninfo), .secret = true,
		.help = "libpq connection string" },
	{ "PG_HOST", CONF_STR, AT(host), .help = "host or socket folder" },
	{ "PG_PORT", CONF_INT, AT(port), .min = 1, .max = 65535,
		.help = "port" },
	{ "PG_USER", CONF_STR, AT(user), .help = "role" },
	{ "PG_PASSWORD", CONF_STR, AT(password), .secret = true,
		.help = "password" },
	{ "PG_DATABASE", CONF_STR, AT(database), .help = "database" },
	{ "PG_DB", CONF_STR, AT(db), .help = "older name of PG_DATABASE" },
	{ "PG_USE_SSL", CONF_BOOL, AT(use_ssl), .dflt = "false",
		.help = "require TLS" },
	{ "PG_SSL_REJECT_UNAUTHORIZED", CONF_BOOL, AT(reject_unauthorized),
		.dflt = "true", .help = "verify the certificate" },
	{ "PG_SSL_ROOT_CERT", CONF_STR, AT(ssl_root_cert),
		.help = "PEM text of a certificate authority" },
};

enum { ITEMS_N = sizeof(items) / sizeof(items[0]) };

static bool
is_told(void)
{
	static const char *const names[] = { "QUEEN_PG_CONNINFO",
		"QUEEN_PG_CONNINFO_FILE", "PG_HOST", "PG_PORT", "PG_DATABASE",
		"PG_DB", "PG_USER", "PGHOST", "PGHOSTADDR", "PGPORT",
		"PGDATABASE", "PGSERVICE" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *v = getenv(names[i]);

		if (v && *v)
			return true;
	}
	return false;
}

/* The database of a private cell: 1 = taken, 0 = none runs. */
static int
take_cell(const char *dir, struct pgconn_conf *c, struct cell_running *run,
	struct err *e)
{
	char last[CELL_PATH];
	struct cell cell;

	if (!dir && !cell_last(last))
		return 0;
	if (cell_locate(&cell, dir ? dir : last, e) != 0)
		return -1;
	if (!cell_is_running(&cell, run) || !run->pg_host[0]) {
		err_set(e, ERR_IO, "the cell in %s is not up", cell.dir);
		return dir ? -1 : 0;
	}
	*c = (struct pgconn_conf){ .host = run->pg_host,
		.user = run->pg_user,
		.database = run->pg_database };
	return 1;
}

static char *
make_conninfo(const struct cmd_call *a, struct settings *s, struct err *e)
{
	const char *typed = cmd_str(a, "conninfo"), *dir = cmd_str(a, "dir");
	struct pgconn_conf c = { .conninfo = typed };
	struct cell_running run;

	if (!typed && (dir || !is_told())) {
		int rc = take_cell(dir, &c, &run, e);

		if (rc < 0)
			return NULL;
		if (rc == 1)
			return pgconn_info(&c, e);
	}
	if (!typed) {
		if (conf_load(items, ITEMS_N, s, e) != 0)
			return NULL;
		c = (struct pgconn_conf){ .conninfo = s->conninfo,
			.host = s->host,
			.port = s->port,
			.user = s->user,
			.password = s->password,
			.database = s->database && *s->database ? s->database
								: s->db,
			.use_ssl = s->use_ssl,
			.reject_unauthorized = s->reject_unauthorized,
			.ssl_root_cert = s->ssl_root_cert };
	}
	return pgconn_info(&c, e);
}

PGconn *
db_open(const struct cmd_call *a, int *code)
{
	struct settings s = { .conninfo = NULL };
	struct err e = ERR_ZERO;
	PGconn *pg = NULL;
	char *info = make_conninfo(a, &s, &e);

	if (info)
		pg = pgconn_open_sync(info, "queenctl", CONNECT_MS, &e);
	if (!pg) {
		/* a refused login is an unreachable database, not a 401 */
		*code = e.kind == ERR_CONFIG || e.kind == ERR_INPUT
				? CTL_USER
				: CTL_SERVER;
		ctl_fail(*code, "%s%s", e.text,
			cmd_str(a, "conninfo") || cmd_str(a, "dir") || is_told()
				? ""
				: "; name the database with --conninfo or "
				  "PG_HOST, or start a cell: queenctl up");
	}
	if (info)
		explicit_bzero(info, strlen(info));
	free(info);
	conf_fini(items, ITEMS_N, &s);
	return pg;
}

PGresult *
db_query(PGconn *pg, const char *sql, int n, const char *const *params)
{
	PGresult *res = PQexecParams(pg, sql, n, NULL, params, NULL, NULL, 0);
	struct err e = ERR_ZERO;

	if (PQresultStatus(res) == PGRES_TUPLES_OK ||
		PQresultStatus(res) == PGRES_COMMAND_OK)
		return res;
	pgconn_err(&e, res, pg);
	PQclear(res);
	ctl_fail(CTL_SERVER, "%s", e.text);
	return NULL;
}
