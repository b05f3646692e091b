/* SPDX-License-Identifier: Apache-2.0 */
/* Inside apply: apply.c has the transaction, apply_ops.c what is done in it. */
#ifndef QUEEN_PGSINK_APPLY_INT_H
#define QUEEN_PGSINK_APPLY_INT_H

#include <stdbool.h>

#include <libpq-fe.h>

#include "apply.h"

struct connfault;

/*
 * True when the transaction has failed; the first failure in order is the one
 * that counts.  own: of a message's own statement, or of COMMIT.
 */
bool apply_failed(struct apply *a, const struct connfault *why, bool own);
/* A pglink_fn for what only must not fail. */
void apply_on_step(void *arg, PGresult *const *res, int n,
	const struct connfault *why);
/* Rolls back; then fn is called with this end. */
void apply_give_up(struct apply *a, enum apply_end end);
/* All messages are sent. */
void apply_commit(struct apply *a);

/* apply_ops.c: sends what is next; a loop_fn. */
void apply_pump(void *arg);

#endif
