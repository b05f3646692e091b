/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One standalone request of key/value state.  Every route comes to the database
 * by kv_call_start alone, so that none misses a switch, a rate or a counter.
 */
#ifndef QUEEND_KV_CALL_H
#define QUEEND_KV_CALL_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "kvlimit.h"

struct hsrv_req;
struct pgargs;
struct pgstmt;

/* First member of what a route keeps of its request; lives in its arena. */
struct kv_call {
	struct hsrv_req *r;
	const struct pgstmt *stmt;
	struct kvlimit_ask ask;		/* zeros = a read */
	/* Adds the arguments behind the tenant; again when it is repeated. */
	void (*args)(struct kv_call *c, struct pgargs *a);
	/* NULL = a plain call; else commit (true) or roll back. */
	bool (*decide)(struct kv_call *c, const PGresult *res);
	/* Replies. */
	void (*answer)(struct kv_call *c, const PGresult *res);
	/* NULL, or told of a failure before it is answered. */
	void (*failed)(struct kv_call *c);
	int faults;
};

/* Asks the limits, then the database; replies whatever happens. */
void kv_call_start(struct kv_call *c);
/* From answer, before it replies: the call stored nothing after all. */
void kv_call_refund(struct kv_call *c);

#endif
