/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of the database for a request.  A victim of a deadlock, a
 * serialization failure or a lock timeout is sent again, up to three times;
 * then, and when the database is away, 503 `backend_error`; else 500.
 */
#ifndef QUEEN_OJS_CALL_H
#define QUEEN_OJS_CALL_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "ctx.h"
#include "pgbin.h"
#include "pgconn.h"

struct err;
struct hsrv_req;

struct call {
	const struct pgstmt *stmt;
	int lane;
	/* Writes the arguments; may be called again. */
	void (*fill)(struct hsrv_req *r, void *arg, struct pgargs *a);
	/* Set: a bundle; true = commit, false = roll back, by the verdict. */
	bool (*keep)(void *arg, const PGresult *res);
	/* The rows; has to answer, or to make another call. */
	void (*done)(struct hsrv_req *r, void *arg, const PGresult *res);
	/*
	 * NULL, or called in place of the answer when the call failed for
	 * good; call_fail gives the usual one.
	 */
	void (*failed)(struct hsrv_req *r, void *arg, const struct err *e);
	void *arg;	/* in the arena of the request */
};

/* Copies *c; the request is out of reach until done. */
void call_run(struct hsrv_req *r, const struct call *c);
/* The answer to a call that failed: 503 or 500. */
void call_fail(struct hsrv_req *r, const struct err *e);

#endif
