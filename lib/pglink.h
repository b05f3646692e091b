/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to a database of the user's, asynchronous, for one life: it
 * is dialled once, used, and gone at the first loss.  Names are looked up and
 * checked (egress), nothing is taken from PG* variables or files, every
 * session prints values the same way whatever its role is set to.
 */
#ifndef QUEEN_PGLINK_H
#define QUEEN_PGLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "span.h"

struct conndoc_conn;
struct connfault;
struct loop;
struct pglink;

enum pglink_use {
	PGLINK_SQL,		/* pglink_query */
	PGLINK_PIPELINE,	/* pglink_exec, pglink_sync */
	PGLINK_REPLICATION,	/* pglink_query, then pglink_stream */
};

struct pglink_conf {
	const struct conndoc_conn *conn;	/* borrowed until it is up */
	struct span password;		/* clear; borrowed until it is up */
	const char *application_name;	/* cut at 63 bytes */
	/* `name=value` settings beside those of every link; NULL-ended */
	const char *const *settings;
	enum pglink_use use;
	bool allow_private;		/* else egress rules hold */
	/* Whom verify-full trusts without sslRootCert; NULL: distribution's */
	const char *ca_file;		/* borrowed until it is up */
};

/* Ready for use. */
typedef void (*pglink_up_fn)(void *arg);
/*
 * It could not connect, or was lost; comes once, always later, behind the
 * callbacks of what was queued.  What is queued after the loss is not called
 * back.  Then only pglink_free is left to do.
 */
typedef void (*pglink_end_fn)(void *arg, const struct connfault *why);

struct pglink *pglink_new(struct loop *l, const struct pglink_conf *c,
	pglink_up_fn on_up, pglink_end_fn on_end, void *arg);
/* Closes; nothing in flight is called back. */
void pglink_free(struct pglink *k);
/* Its end is told to another from now on: the link has a new owner. */
void pglink_give(struct pglink *k, pglink_end_fn on_end, void *arg);
bool pglink_is_up(const struct pglink *k);
int pglink_server_version(const struct pglink *k);	/* 170002 */

/*
 * res: n results in order, borrowed until the callback returns.  why NULL on
 * success (then n > 0), else what the first failure was; res holds what came
 * before it.
 */
typedef void (*pglink_fn)(void *arg, PGresult *const *res, int n,
	const struct connfault *why);

/*
 * Simple protocol: one or more statements, results as text.  FIFO behind
 * those queued.  sql is copied; fn may be NULL.
 */
void pglink_query(struct pglink *k, const char *sql, pglink_fn fn, void *arg);

/* ---- PGLINK_PIPELINE ---- */

struct pglink_param {
	struct span text;	/* p NULL = SQL null; may hold any byte */
};
/*
 * One statement, extended protocol, in the same flight as those before and
 * behind it; all parameters are declared text.  name: prepared under it at
 * first use (unique per sql until pglink_forget, at most 40 bytes); NULL:
 * unnamed.  fn gets one result, or none and why; after a failure all up to the
 * next sync answer with code NULL and n = 0, as not done.  Answers may be held
 * back until the sync; statements outside begin and commit are committed there,
 * and a failure of that is not told.  A commit behind a failure of an earlier
 * flight succeeds with the tag ROLLBACK.
 */
void pglink_exec(struct pglink *k, const char *name, const char *sql,
	const struct pglink_param *params, int n, pglink_fn fn, void *arg);
/*
 * Within a pglink_fn that tells of a failure: its named statement did not even
 * prepare, so that it says nothing of the parameters.
 */
bool pglink_prepare_failed(const struct pglink *k);
/*
 * Prepares, runs nothing: PQnparams of the one result is the number of its
 * parameters, of which the first n are declared text.
 */
void pglink_describe(struct pglink *k, const char *sql, int n, pglink_fn fn,
	void *arg);
/* End of a flight: what failed before it does not reach behind it. */
void pglink_sync(struct pglink *k);
/* Drops all prepared statements. */
void pglink_forget(struct pglink *k);

/* ---- PGLINK_REPLICATION ---- */

/*
 * SQLSTATE of a warning and the server's function that gave it, in its place
 * among the frames.  Take a note of it and no more: the link is being read.
 */
typedef void (*pglink_warning_fn)(void *arg, const char *sqlstate,
	const char *where);
void pglink_on_warning(struct pglink *k, pglink_warning_fn fn, void *arg);

/* One CopyData from the server; false: stop reading until pglink_go_on. */
typedef bool (*pglink_data_fn)(void *arg, struct span data);
/*
 * Enters COPY BOTH.  fn tells that it began (why NULL) or was refused; then
 * on_data is called for each frame, on_drained whenever nothing more is
 * buffered here.  The end of the stream ends the link.
 */
void pglink_stream(struct pglink *k, const char *sql, pglink_fn fn,
	pglink_data_fn on_data, void (*on_drained)(void *arg), void *arg);
void pglink_go_on(struct pglink *k);
/* One CopyData to the server, buffered when the socket is full. */
void pglink_put(struct pglink *k, struct span data);
/*
 * Ends the stream in order (CopyDone) so that the server frees the slot;
 * pglink_end_fn follows, with code NULL, within limit_ms.
 */
void pglink_finish(struct pglink *k, int64_t limit_ms);

#endif
