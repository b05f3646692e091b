/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lost hints would have told: the change scan and the repair notes of the
 * cell.  Once a second the partitions written since the scan before (less
 * 3 s) are read, every 30 s those of the last 120 s again, and the notes of
 * cursors that were moved.  One per process, whatever link it has.
 *
 * It tells changes only: who begins to wait for a queue reads all that is
 * pending itself (group_pending_v1), and so again when the LISTEN connection
 * is new or HINT_RESYNC came (lib/hint).
 */
#ifndef QUEEN_CELLSCAN_H
#define QUEEN_CELLSCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "pgconn.h"

struct cellscan;
struct pgargs;

struct cellscan_face {
	/*
	 * Queues one call on a link to the cell and takes *args over, as
	 * pgpool_call does; fn(fn_arg) is called once and always later.
	 */
	void (*call)(void *arg, const struct pgstmt *s, struct pgargs *args,
		pgconn_result_fn fn, void *fn_arg);
	/* Does anybody here wait for this queue?  NULL: for every one. */
	bool (*wants)(void *arg, int64_t queue_id);
	/* Messages landed in this partition. */
	void (*on_mark)(void *arg, int64_t queue_id, int64_t part_id);
	/* A group's cursor was moved; part_id 0 = every partition. */
	void (*on_moved)(void *arg, int64_t queue_id, int64_t group_id,
		int64_t part_id);
	/* Database clock less ours, now and then; may be NULL. */
	void (*on_clock)(void *arg, int64_t offset_us);
	void *arg;
};

struct cellscan *cellscan_new(const struct cellscan_face *face, int64_t now_ms);
/* No answer of a call is to come any more: after its link. */
void cellscan_free(struct cellscan *c);
/* Once a second; now_ms: monotonic. */
void cellscan_tick(struct cellscan *c, int64_t now_ms);
/* Messages landed, and a hint or an announcement told: saves a mark. */
void cellscan_heard(struct cellscan *c, int64_t queue_id, int64_t part_id);

struct cellscan_stats {
	uint64_t scans, rows, marks, failures;
	int64_t last_ms; /* duration of the last scan */
};
void cellscan_stats(const struct cellscan *c, struct cellscan_stats *out);

#endif
