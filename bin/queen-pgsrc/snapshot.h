/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy of tables that were there before the slot, chunk by chunk, while
 * the stream goes on.  A chunk lies between two watermarks in the WAL; rows
 * the stream changes meanwhile are dropped from it, because their events say
 * it all, or nearly: columns no such event carried come as a fill.
 *
 * A transaction can be in the WAL and yet invisible to a snapshot taken
 * later, so each is judged by the chunk's own snapshot, and those not seen
 * are remembered for the chunks to come.
 */
#ifndef QUEEN_PGSRC_SNAPSHOT_H
#define QUEEN_PGSRC_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "buf.h"
#include "map.h"
#include "span.h"
#include "tuple.h"

struct err;
struct shape;

/* ---- pg_current_snapshot() ---- */

struct snapshot_seen {
	uint64_t xmin, xmax;
	uint64_t *running;	/* ascending */
	size_t n;
};

/* `xmin:xmax:xid,xid`; the array lives in the arena. */
int snapshot_seen_parse(struct span text, struct arena *a,
	struct snapshot_seen *s, struct err *e)
	__attribute__((warn_unused_result, nonnull));
/* The xid of a Begin, widened to the 64-bit number nearest to `near`. */
uint64_t snapshot_widen(uint32_t xid, uint64_t near);
bool snapshot_sees(const struct snapshot_seen *s, uint32_t xid);
/* ---- what a transaction does to keys ---- */

enum snapshot_effect {
	SNAPSHOT_PUT,		/* insert, or the key a row moved to */
	SNAPSHOT_UPDATE,	/* with columns left unchanged */
	SNAPSHOT_DELETE,	/* or the key a row moved from */
	SNAPSHOT_CLEAR,		/* truncate: every key */
};

struct snapshot_txn;	/* effects of one transaction, in order */

struct snapshot_row;
struct snapshot_chunk;

enum { SNAPSHOT_MEMORY_BYTES = 64 << 20 };

struct snapshot {
	struct snapshot_chunk *chunk;	/* held, or being read; NULL none */
	struct arena open_arena;
	struct snapshot_txn *open;	/* of the transaction being read */
	struct snapshot_txn *first, **last;	/* remembered */
	uint64_t n;			/* number of the chunk */
	struct arena seen_arena;
	struct snapshot_seen seen;	/* the last one; xmax 0 = none yet */

	size_t memory_bytes, remembered_bytes;	/* bound; in use */
	bool deaf;			/* to the rest of the open one */
	uint64_t waits;			/* see snapshot_must_wait */
	uint64_t wait_xid;		/* 0 = not known yet */
	bool ready;
};

void snapshot_init(struct snapshot *s, uint64_t first_n);
/* Forgets all; numbers of chunks go on. */
void snapshot_fini(struct snapshot *s);

/*
 * Effects of the open transaction; tables by number of the run.  `unchanged`
 * names the columns an update did not carry: by name, because the chunk may
 * have been read under a later shape than the stream has come to.
 */
void snapshot_touch(struct snapshot *s, size_t table,
	enum snapshot_effect effect, struct span key_code,
	const struct span *unchanged, size_t unchanged_n);
/* It committed: applied to the chunk, remembered as far as needed. */
void snapshot_commit(struct snapshot *s, uint32_t xid);
/* A new transaction begins; what an unfinished one did is forgotten. */
void snapshot_begin(struct snapshot *s);

/* ---- before the first chunk ---- */

/*
 * Transactions whose effects nobody remembers (they were in the WAL before
 * this process, or there were too many to keep) must be visible to whatever
 * chunk comes next.  So none is read before all have ended that had an xid:
 * take a new one (pg_current_xact_id) once the stream has begun, give it to
 * snapshot_wait, and then now and then pg_current_snapshot() to snapshot_look,
 * until this is false.  A snapshot alone will not do for the first step: its
 * xmax may be below one that is committing.  Whenever `waits` has changed, what
 * was being asked is void and it starts over; a chunk in flight is gone.
 */
bool snapshot_must_wait(const struct snapshot *s);
void snapshot_wait(struct snapshot *s, uint64_t xid);
int snapshot_look(struct snapshot *s, struct span seen_text, struct err *e)
	__attribute__((warn_unused_result, nonnull));

/* ---- a chunk ---- */

/*
 * From here watermarks of this number count; returns it.  The shape is that
 * of the rows to come, borrowed as long as there is a chunk.
 */
uint64_t snapshot_ask(struct snapshot *s, size_t table,
	const struct shape *shape, uint64_t limit_rows);
/* The rows read, in key order; copied. */
void snapshot_row(struct snapshot *s, const struct tuple *row);
/* All rows are there: remembered transactions it does not see apply. */
int snapshot_install(struct snapshot *s, struct span seen_text,
	int64_t read_at_us, struct err *e)
	__attribute__((warn_unused_result, nonnull));
/* The read failed, or its table is no longer wanted. */
void snapshot_forget(struct snapshot *s);

void snapshot_low(struct snapshot *s, uint64_t n);

enum snapshot_high {
	SNAPSHOT_NOT_OURS,	/* another life's, or a forgotten chunk's */
	SNAPSHOT_EARLY,		/* the rows are not here yet: hold it */
	SNAPSHOT_COMPLETE,	/* take what is left with snapshot_next */
};
enum snapshot_high snapshot_high(struct snapshot *s, uint64_t n);

struct snapshot_item {
	const struct tuple *row;
	struct span key_code;
	const uint64_t *fill;	/* NULL: a row; else the columns to fill */
	uint64_t seq;
};

/* In key order; false at the end. */
bool snapshot_next(struct snapshot *s, struct snapshot_item *item);

struct snapshot_chunk {
	struct arena arena;
	uint64_t n;
	size_t table;
	const struct shape *shape;
	uint64_t limit_rows;
	bool held, open;	/* rows are all here; low watermark passed */
	int64_t read_at_us;
	struct snapshot_row *rows, **rows_tail;
	struct map by_key;
	struct snapshot_row *at;
	uint64_t rows_n, seq;
	size_t bytes;
	struct span last_key;	/* of the last row read */
	struct buf code;
};

/* Was it the last chunk of its table? */
bool snapshot_is_last(const struct snapshot_chunk *c);
/* LIMIT of a table's first chunk: few, because they may be large. */
uint64_t snapshot_first_limit(uint64_t configured);
/* LIMIT of the next chunk: halved above 64 MiB, up when small. */
uint64_t snapshot_limit(const struct snapshot_chunk *c, uint64_t configured);

#endif
