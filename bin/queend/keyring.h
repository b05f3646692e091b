/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of this process (ctx.seal) and what is done with them: proven
 * against the cell at boot, named to SQL, put to frames.  Nothing here ever
 * falls back to clear text.
 */
#ifndef QUEEND_KEYRING_H
#define QUEEND_KEYRING_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

struct buf;
struct cat_queue;
struct ctx;
struct err;
struct frame;
struct pgargs;

/*
 * Boot: ERR_CONFIG when the newest key of the cell is not among ours, or ours
 * is another than the cell knows under its id.  The first process with a key
 * makes it known.
 */
int keyring_prove(const struct ctx *x, PGconn *pg, struct err *e)
	__attribute__((warn_unused_result));

/* Can this process write to a queue that wants sealed payloads? */
bool keyring_seals(const struct ctx *x);
/*
 * SQL said `encryption_required`: corrects the cached flag (q NULL: the queue
 * is not known here yet); false when there is no key, so that the write must
 * be refused.
 */
bool keyring_must_seal(struct ctx *x, struct cat_queue *q);

/* The ids of all keys, an array argument. */
void keyring_args(struct pgargs *a, const struct ctx *x);
/* An item of an array of key ids: of the key that seals, or null. */
void keyring_item(struct pgargs *a, const struct ctx *x, bool sealed);

/* Seals the payload, which then lies in room (emptied before). */
void keyring_seal(const struct ctx *x, struct frame *f, struct buf *room);
/*
 * Opens the payload of a sealed frame, which then lies in room (emptied
 * before) until its next use; the flag stays and tells that it was sealed.
 * A clear frame is left as it is.
 */
int keyring_open(const struct ctx *x, struct frame *f, struct buf *room,
	struct err *e) __attribute__((warn_unused_result));

#endif
