/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed calls on the key/value state of the cell, for the tools: pointers,
 * leases, flags.  One call, one commit.
 */
#ifndef QUEEN_CELLKV_H
#define QUEEN_CELLKV_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

struct err;
struct pgconn;
struct qid;

enum { CELLKV_ANY = -1, CELLKV_ABSENT = 0, CELLKV_FOREVER = 0 };

struct cellkv_row {
	bool applied;		/* get: found */
	int64_t version;	/* of the row now; 0 = there is none */
	struct span value;	/* of the row now, where the call tells it */
};
/* row: borrowed until the callback returns; NULL on failure. */
typedef void (*cellkv_fn)(void *arg, const struct cellkv_row *row,
	const struct err *e);

struct cellkv_key {
	const struct qid *tenant;
	const char *ns;
	struct span key;
};

void cellkv_get(struct pgconn *c, const struct cellkv_key *k, cellkv_fn fn,
	void *arg);
/* expect: a version, CELLKV_ABSENT or CELLKV_ANY; ttl_s or CELLKV_FOREVER. */
void cellkv_put(struct pgconn *c, const struct cellkv_key *k, struct span value,
	int64_t expect, int64_t ttl_s, cellkv_fn fn, void *arg);
void cellkv_delete(struct pgconn *c, const struct cellkv_key *k,
	int64_t expect, cellkv_fn fn, void *arg);
/*
 * What the row is once nobody holds it: waits for a transaction that wrote
 * it, or is about to create it, and has not ended (a COMMIT in doubt).
 */
void cellkv_settle(struct pgconn *c, const struct cellkv_key *k, cellkv_fn fn,
	void *arg);

#endif
