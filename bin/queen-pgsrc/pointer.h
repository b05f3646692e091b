/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pointer: how far a source's changes are in the queue.  It commits with
 * the messages it covers, by compare-and-set on its version, and is the only
 * fence there is.  This file is the document alone, no database.
 */
#ifndef QUEEN_PGSRC_POINTER_H
#define QUEEN_PGSRC_POINTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "span.h"

struct buf;
struct err;

enum { POINTER_EPOCH_MAX = 9, POINTER_CELL_MAX = 13 };

/* The moving part.  Spans are borrowed from whoever owns the place. */
struct pointer_place {
	uint64_t lsn;		/* transactions ending up to here are in */
	bool in_txn;		/* a split transaction: */
	uint64_t txn_commit_lsn;
	uint64_t txn_done;	/* raw changes of it that are in */
	bool in_snapshot;	/* a copy is going on: */
	size_t table;		/* number of the table being read */
	bool has_after;		/* else from its start */
	struct span after;	/* key code to go on behind */
	uint64_t rows;		/* `r` events of the run so far */
};

/* What a place in a table is a place by, coded as `after`; empty: not known. */
struct pointer_key {
	struct span columns;
	struct span types;	/* of them, with collations: the order */
};

/* What stays for an epoch, and the place.  Owns what it points to. */
struct pointer {
	struct arena arena;
	char epoch[POINTER_EPOCH_MAX];	/* 8 lowercase hex */
	char cell[POINTER_CELL_MAX];	/* tag of the cell, 12 hex; "" absent */
	struct span system_id, slot;
	struct span publication;	/* empty = absent */
	uint32_t timeline;		/* 0 = absent */
	struct span resynced_at;	/* empty = absent */
	struct span *tables;		/* of the snapshot run, in order */
	size_t tables_n;
	struct pointer_key *keys;	/* theirs; NULL: not known */
	struct pointer_place place;
};

#define POINTER_ZERO { .tables = NULL }

void pointer_fini(struct pointer *p);
/*
 * Key order and spacing are free, unknown members are ignored (jsonb and
 * later versions).  ERR_INPUT (code pointer_corrupt): not ours, v other than
 * 1, a member of the wrong type.  *p is then empty.
 */
int pointer_parse(struct span json, struct pointer *p, struct err *e)
	__attribute__((warn_unused_result, nonnull));
/* The document with another place than p's own. */
void pointer_write(struct buf *b, const struct pointer *p,
	const struct pointer_place *place, int64_t now_us);
/* A deep copy. */
void pointer_copy(struct pointer *to, const struct pointer *from);

bool pointer_place_same(const struct pointer_place *a,
	const struct pointer_place *b);
/* Is `p` the epoch of `ours`, at `place`?  Then our bundle has committed. */
bool pointer_is_at(const struct pointer *p, const struct pointer *ours,
	const struct pointer_place *place);

#endif
