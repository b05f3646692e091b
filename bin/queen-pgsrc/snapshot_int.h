/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of the snapshot. */
#ifndef QUEEN_PGSRC_SNAPSHOT_INT_H
#define QUEEN_PGSRC_SNAPSHOT_INT_H

#include "snapshot.h"

struct snapshot_change {
	struct snapshot_change *next;
	size_t table;
	enum snapshot_effect kind;
	struct span key;
	struct span *unchanged;	/* names of columns */
	size_t unchanged_n;
};

/* Open: in the arena; remembered: one block of memory. */
struct snapshot_txn {
	struct snapshot_txn *next;
	uint32_t xid;
	size_t bytes;		/* of it as one block */
	size_t n;
	struct snapshot_change *first, **last;
};

/* Drops and folds the rows of the chunk that it touched. */
void snapshot_apply(struct snapshot_chunk *c, const struct snapshot_txn *t);
/* Forgets those remembered that the snapshot sees, or all of them. */
void snapshot_trim(struct snapshot *s, const struct snapshot_seen *seen);
/* Takes the text as the snapshot that judges from now on. */
int snapshot_judge(struct snapshot *s, struct span seen_text, struct err *e)
	__attribute__((warn_unused_result, nonnull));

#endif
