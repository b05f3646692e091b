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
struct pgargs;

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
 * The statements every session starts with (STORE "Plans"): generic plans, no
 * seqscan/bitmapscan/jit, idle_in_transaction_session_timeout, UTC.
 */
extern const char *const pgconn_session_sql;
/*
 * For pgconn_session_add of a link with much to do: one large allocation that
 * raises glibc's trim threshold.  It costs the backend 3 ms.
 */
extern const char *const pgconn_heap_sql;

/* Fills *e from a failed result or connection, SQLSTATE included. */
int pgconn_err(struct err *e, const PGresult *res, const PGconn *conn);

/* ---- one asynchronous connection ---- */
struct pgconn;
enum pgconn_event {
	PGCONN_UP,		/* session settings applied, ready */
	PGCONN_DOWN,		/* lost, or a dial failed; dialled again later */
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
/* Dials now instead of at the end of the backoff; else no effect. */
void pgconn_hurry(struct pgconn *c);
/*
 * More SQL for every new session, run after pgconn_session_sql and before
 * PGCONN_UP (a `set` or a `listen`).  Copied; call right after pgconn_new.
 */
void pgconn_session_add(struct pgconn *c, const char *sql);
/* Drops the link when a statement has no answer for so long; 0 = never. */
void pgconn_limit(struct pgconn *c, int64_t unanswered_ms);

/* Declared once, static; prepared per connection at first use. */
struct pgstmt {
	const char *name;	/* unique in the process */
	const char *sql;	/* parameters $1..$n, types by inference */
};

/*
 * res: the rows, borrowed until the callback returns, NULL on failure.  err:
 * NULL on success.  ERR_DB_UNKNOWN = sent, and the answer was lost.
 */
typedef void (*pgconn_result_fn)(void *arg, const PGresult *res,
	const struct err *err);
/*
 * Queues one statement behind those in flight on this link, in FIFO order;
 * parameters and results are binary.  args may be NULL, else it is taken over
 * (init'd again, empty).  fn may be NULL; it is called once and always later,
 * but never after pgconn_free.  A link that is down answers ERR_DB_RETRY.
 */
void pgconn_send(struct pgconn *c, const char *sql, struct pgargs *args,
	pgconn_result_fn fn, void *arg);
/*
 * The same with a statement prepared at first use; begin = `begin` in front of
 * it, in the same flush.  *args is only read.
 */
void pgconn_call(struct pgconn *c, const struct pgstmt *s, bool begin,
	const struct pgargs *args, pgconn_result_fn fn, void *arg);
/* Inside a pgconn_result_fn with rows: the caller becomes their owner. */
PGresult *pgconn_take_result(struct pgconn *c);
/* Statements queued or in flight. */
int pgconn_pending(const struct pgconn *c);

#endif
