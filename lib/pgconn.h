/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a process reaches PostgreSQL: the conninfo from the settings, the
 * synchronous link used at boot, and one asynchronous link that the pool and
 * the LISTEN connection are made of.
 */
#ifndef QUEEN_PGCONN_H
#define QUEEN_PGCONN_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"

struct loop;

/* The PG_* settings every tool has; NULL or 0 = left to libpq. */
struct pgconn_conf {
	const char *conninfo;	/* QUEEN_PG_CONNINFO; wins over the rest */
	const char *host, *user, *password, *database;
	int64_t port;
	bool use_ssl, reject_unauthorized;
	const char *ssl_root_cert;	/* PEM content */
};

/*
 * One conninfo string, allocated: what is unset is left to libpq; gssencmode
 * off; client_encoding UTF8.  The PEM goes to an unlinked memory file.
 * Password `postgres` only when the server asks and libpq found none.
 * NULL with ERR_CONFIG when QUEEN_PG_CONNINFO does not parse.
 */
char *pgconn_info(const struct pgconn_conf *c, struct err *e);

/*
 * Boot only: connects synchronously within timeout_ms and applies the session
 * settings.  NULL with ERR_IO (unreachable) or ERR_AUTH; the text never holds
 * the password.
 */
PGconn *pgconn_open_sync(const char *conninfo, const char *application_name,
	int64_t timeout_ms, struct err *e);

/*
 * The statements every pooled session starts with (STORE "Plans"): generic
 * plans, no seqscan/bitmapscan/jit, idle_in_transaction_session_timeout,
 * UTC, and one large allocation that raises glibc's trim threshold.
 */
extern const char *const pgconn_session_sql;

/* Fills *e from a failed result or connection, SQLSTATE included. */
int pgconn_err(struct err *e, const PGresult *res, const PGconn *conn);

/* ---- one asynchronous connection ---- */
struct pgconn;
enum pgconn_event {
	PGCONN_UP,		/* session settings applied, ready */
	PGCONN_DOWN,		/* lost; a new attempt is scheduled */
};
typedef void (*pgconn_event_fn)(void *arg, enum pgconn_event ev,
	const struct err *why);
typedef void (*pgconn_notify_fn)(void *arg, const PGnotify *n);

/*
 * Dials at once and again after every loss, backoff 100 ms doubling to 5 s
 * with jitter; names are resolved through evdns and handed over as hostaddr.
 */
struct pgconn *pgconn_new(struct loop *l, const char *conninfo,
	const char *application_name, pgconn_event_fn on_event, void *arg);
void pgconn_free(struct pgconn *c);
void pgconn_on_notify(struct pgconn *c, pgconn_notify_fn fn, void *arg);
bool pgconn_is_up(const struct pgconn *c);
int pgconn_backend_pid(const struct pgconn *c);
/* Drops the link at once and dials again (a statement in doubt). */
void pgconn_reset(struct pgconn *c);

#endif
