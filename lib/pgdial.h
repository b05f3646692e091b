/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attempt to reach PostgreSQL without blocking: the host name through
 * evdns, the handshake through PQconnectPoll, both under a time limit.  The
 * building block of pgconn.
 */
#ifndef QUEEN_PGDIAL_H
#define QUEEN_PGDIAL_H

#include <libpq-fe.h>
#include <stdint.h>

#include "err.h"

struct loop;
struct pgdial;

/* A conninfo string taken apart, for PQconnectStartParams. */
enum { PGDIAL_WORDS_MAX = 80 };
struct pgdial_words {
	PQconninfoOption *opts;
	const char *key[PGDIAL_WORDS_MAX], *value[PGDIAL_WORDS_MAX];
	int n;
};
/* Fails with ERR_CONFIG; the text never repeats the string. */
int pgdial_words_init(struct pgdial_words *w, const char *conninfo,
	const char *application_name, struct err *e)
	__attribute__((warn_unused_result));
/* NULL when unset or empty. */
const char *pgdial_words_get(const struct pgdial_words *w, const char *key);
/* Replaces or adds; key and value are borrowed. */
void
pgdial_words_set(struct pgdial_words *w, const char *key, const char *value);
void pgdial_words_fini(struct pgdial_words *w);

/*
 * The documented PG_PASSWORD: worth one more attempt when the server asked
 * for a password and libpq knew none.
 */
#define PGDIAL_PASSWORD "postgres"

/* Swallows what the server says by the way; libpq would print it. */
void pgdial_no_notice(void *arg, const PGresult *r);

/* conn: connected, the caller owns it now; NULL on failure, then why. */
typedef void (*pgdial_fn)(void *arg, PGconn *conn, const struct err *why);

struct pgdial *pgdial_new(struct loop *l, const char *conninfo,
	const char *application_name, pgdial_fn fn, void *arg);
void pgdial_free(struct pgdial *d);
/* Answers by fn, once and always later.  Not while one is going on. */
void pgdial_start(struct pgdial *d);
/* Ends the attempt without an answer. */
void pgdial_stop(struct pgdial *d);

#endif
