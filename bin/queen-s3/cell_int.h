/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the calls on the cell.  Its files: cell.c life of pool and calls;
 * cell_rows.c rows and lists; cell_step.c what an engine asks for;
 * cell_fetch.c the records of a fetch, in slices.
 */
#ifndef QUEEN_S3_CELL_INT_H
#define QUEEN_S3_CELL_INT_H

#include "cell.h"

#include <libpq-fe.h>
#include <sys/queue.h>

#include "arena.h"
#include "logrd.h"
#include "loop.h"
#include "pgbin.h"
#include "pgconn.h"

struct pgpool;

enum cell_lane { CELL_READ, CELL_KV, CELL_LANES };
enum {
	CELL_READERS = 4, /* connections of the lane */
	/* fetches in hand, decoding included: they hold their answers */
	CELL_FETCHES = CELL_READERS,
	CELL_FETCH_BYTES = 4 << 20, /* of one, stored and raw */
	CELL_SLICE_US = 5000,
	CELL_TIMEOUT_MS = 15000,
	CELL_PAGE = 1000, /* rows of a listing */
};

struct cell {
	struct loop *loop;
	struct pgpool *pool;
	const struct seal *seal;
	int64_t guard_ms, floor_ms;
	LIST_HEAD(, cell_call) calls;
	TAILQ_HEAD(, cell_call) waiting; /* fetches */
	int fetches;
	struct logrd_room room; /* of one segment */
};

/* The rows of an answer, or why there is none; goes on, or ends the call. */
typedef void (*cell_on_fn)(
	struct cell_call *k, const PGresult *res, const struct err *e);

struct cell_call {
	LIST_ENTRY(cell_call) link;
	TAILQ_ENTRY(cell_call) wait; /* while in cell.waiting */
	struct cell *cell;
	enum { CELL_QUEUED, CELL_SENT, CELL_SLICING } at;
	bool cancelled; /* and sent: ends with its answer */
	bool fetching; /* counted in cell.fetches */
	bool removes; /* what the row answers with is there no more */
	cell_on_fn on;
	union {
		cell_step_fn step;
		cell_queues_fn queues;
		cell_sinks_fn sinks;
		cell_row_fn row;
		cell_rows_fn rows;
		cell_fence_fn fence;
	} fn;
	void *arg;
	struct arena arena;

	/* a listing, page by page */
	struct qid tenant;
	struct span prefix;
	struct cell_row *found;
	size_t found_n, found_cap;

	/* a step of an engine */
	struct engine *engine;
	const char *queue; /* in the arena */
	uint32_t id;
	size_t n;
	int64_t *part, *offset;
	int64_t at_us, since_us, after_us, after_part, safe_us;
	int32_t entry_bytes;
	bool degraded;

	/* a fetch that is being decoded */
	PGresult *res;
	int row;
	size_t entry; /* whose bounds were told, from 1 */
	bool shut; /* the rest of this entry is not to be had */
	struct loop_timer slice;
	int64_t ts_us; /* of the segment at hand */
};

struct cell_call *
cell_call_new(struct cell *c, const struct qid *tenant, void *arg);
/* Takes *args over; `on` comes later, unless the call is cancelled by then. */
void cell_send(struct cell_call *k, enum cell_lane lane, const struct pgstmt *s,
	struct pgargs *args, cell_on_fn on);
/* Out of the books; the caller has its fn and arg still to call. */
void cell_call_end(struct cell_call *k);

/* Takes its turn among the fetches. */
void cell_fetch_begin(struct cell_call *k);
void cell_fetch_next(struct cell *c);
/* The engine knows all by now; tells the caller. */
void cell_step_end(struct cell_call *k, const struct err *e);

#endif
