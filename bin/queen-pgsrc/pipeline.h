/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From messages of the stream to units in the queue: transactions in order,
 * what the queue has already is dropped, large ones are cut, the snapshot's
 * rows take their place.  Pure: it never waits.  Where it needs the source
 * (a type, a row) it says so and takes nothing more until it has it.
 */
#ifndef QUEEN_PGSRC_PIPELINE_H
#define QUEEN_PGSRC_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "buf.h"
#include "bundle.h"
#include "map.h"
#include "pgoutput.h"
#include "pointer.h"
#include "snapshot.h"
#include "span.h"
#include "types.h"
#include "unit.h"

struct err;
struct shape;
struct shape_table;

struct pipeline_conf {
	const struct shape_table *tables;	/* borrowed, as all of it */
	size_t tables_n;
	struct bundle_limits limits;
	uint64_t chunk_rows;
	bool emit_truncate;
};

struct pipeline {
	const struct pipeline_conf *conf;
	struct pointer pointer;		/* identity; its place is the start */
	struct pointer_place tail;	/* once all that is queued is in */
	struct buf tail_key;		/* tail.after points here */
	struct unit_queue queue;
	struct types types;
	struct map relations;		/* OID -> struct relation */
	struct snapshot snapshot;

	bool in_txn, covered;
	struct pgoutput_begin begin;
	uint64_t raw, skip;		/* changes seen; to be skipped */
	bool produced;			/* an event, or resumed */
	struct unit *open;		/* messages of it not queued yet */

	struct arena arena;		/* of one message */
	struct buf scratch;
	struct pgoutput held;		/* being taken */
	bool has_row;			/* what was read back is in it */
	bool reshaped;			/* see pipeline_wants_restart */
	uint64_t found_lsn;		/* WAL behind what the start found */

	uint64_t chunk_rows;		/* LIMIT of the next chunk */
	bool has_advanced;
	int64_t advanced_ms;		/* last step on an idle stream */
	uint64_t transactions, messages, snapshot_rows, truncates_skipped;
};

/* Takes a copy of the pointer.  first_chunk: random. */
void pipeline_init(struct pipeline *p, const struct pipeline_conf *conf,
	const struct pointer *pointer, uint64_t first_chunk);
void pipeline_fini(struct pipeline *p);

enum pipeline_result {
	PIPELINE_OK,
	PIPELINE_ASK_TYPE,	/* learn ask_type, then pipeline_resume */
	PIPELINE_ASK_ROW,	/* read it back, then pipeline_resume */
	PIPELINE_ASK_CHUNK,	/* install or forget it, then resume */
	PIPELINE_CHANGED,	/* code relation_changed */
	PIPELINE_BAD,		/* code io */
};

struct pipeline_ask {
	uint32_t type_oid;
	const struct shape *shape;	/* ASK_ROW: of the table, */
	struct tuple *row;	/* with the new key; put what is unchanged */
	struct arena *arena;	/* for its texts */
};

/* One pgoutput message.  data stays valid until it was not an ASK. */
enum pipeline_result pipeline_feed(struct pipeline *p, struct span data,
	int64_t now_ms, struct pipeline_ask *ask, struct err *e);
/* The same message again, now that what was asked is there. */
enum pipeline_result pipeline_resume(struct pipeline *p, int64_t now_ms,
	struct pipeline_ask *ask, struct err *e);
/* The server's WAL ends at lsn and everything before it was fed. */
void pipeline_idle(struct pipeline *p, uint64_t lsn, int64_t now_ms);

/*
 * Tables were found as they are at this position; what is older may have other
 * columns, what is newer must not without a new start.
 */
void pipeline_found_at(struct pipeline *p, uint64_t lsn);
/*
 * A table changed its columns while it is being copied, and all that came
 * before is in the queue: start over from the pointer, so that the rest of
 * the copy is read with the columns it has now.
 */
bool pipeline_wants_restart(const struct pipeline *p);

/* ---- snapshot ---- */

/*
 * Which chunk to read next; false: none now.  Tables no longer configured
 * are stepped over.  Call snapshot_ask with what it says.
 */
struct pipeline_chunk {
	size_t run_table;
	const struct shape_table *table;
	bool has_after;		/* else from its start */
	struct span after;	/* key code */
	uint64_t limit_rows;
};
bool pipeline_next_chunk(struct pipeline *p,
	struct pipeline_chunk *c);

#endif
