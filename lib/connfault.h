/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong with a connector, as its status shows it: a code of
 * queen-connector(5), one sentence that holds the fix, and whether it may
 * pass by itself.  Never holds a password or a payload.
 */
#ifndef QUEEN_CONNFAULT_H
#define QUEEN_CONNFAULT_H

#include <stdbool.h>

#include <libpq-fe.h>

struct err;

enum { CONNFAULT_TEXT_MAX = 1024 };

struct connfault {
	const char *code;	/* a literal; NULL = nothing went wrong */
	bool retryable;
	char sqlstate[6];	/* "" unless a server said it */
	char text[CONNFAULT_TEXT_MAX + 1];	/* whole UTF-8 characters */
};

/* Returns -1, so that callers write `return connfault_set(...)`. */
int connfault_set(struct connfault *f, const char *code, bool retryable,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/*
 * Code `postgres`: `SQLSTATE: message (detail). hint`, from a failed result,
 * retryable by its class.  Code `io`, retryable: no server said it (or res is
 * NULL), the connection broke or carried nonsense.
 */
int connfault_result(struct connfault *f, const PGresult *res,
	const PGconn *conn);
/* Code `queen`: an answer of the cell. */
int connfault_cell(struct connfault *f, const struct err *e);

/* Did a server say this SQLSTATE?  f may be NULL: nothing went wrong. */
bool connfault_is(const struct connfault *f, const char *sqlstate);
/*
 * SQLSTATEs that pass by themselves: classes 08 and 53, 57P01 to 57P03,
 * 40001, 40P01, 55006; "" (the link broke) too.
 */
bool connfault_is_transient(const char *sqlstate);

#endif
