/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A PostgreSQL server of a test's own: a folder in memory or under /tmp, a
 * free port on loopback, trust for everybody but the role `guarded` (password
 * by scram).  It dies with the test program.  A helper that fails prints why
 * and exits.
 */
#ifndef QUEEN_TEST_PGSERVER_H
#define QUEEN_TEST_PGSERVER_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <sys/types.h>

struct pgserver {
	char bin[256], dir[64], conninfo[256];
	int port;
	pid_t pid; /* 0 = not running */
	uid_t uid; /* who it runs as */
	gid_t gid;
};

void pgserver_init(struct pgserver *s); /* initdb and start */
/* Of the next servers: NULL the distribution's, else build/pg's `17`. */
bool pgserver_choose(const char *version); /* false: it is not there */
void pgserver_start(struct pgserver *s); /* again, same port */
void pgserver_stop(struct pgserver *s); /* immediate: a crash */
void pgserver_fini(struct pgserver *s); /* stops and removes all */

/* A synchronous link beside the one that is tested. */
PGconn *pgserver_connect(const struct pgserver *s, const char *database);
void pgserver_run(PGconn *c, const char *sql);
/* First value of the result as text, in a static buffer; "" for none. */
const char *pgserver_value(PGconn *c, const char *sql);

#endif
