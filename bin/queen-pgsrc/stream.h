/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of a source that has started: the walsender's frames into the
 * pipeline, its units into the cell, chunks of the snapshot, rows and types
 * that are asked for, status updates, heartbeats.
 */
#ifndef QUEEN_PGSRC_STREAM_H
#define QUEEN_PGSRC_STREAM_H

#include <stdbool.h>
#include <stdint.h>

struct connfault;
struct ctx;
struct jwrite;
struct start_found;
struct stream;

/* Counters of the process, over all its runs: of what is committed. */
struct stream_counts {
	uint64_t transactions, messages, bundles, snapshot_rows;
	uint64_t truncates_skipped;
	int64_t last_commit_us;		/* of the source; 0 = none */
};

enum stream_end {
	STREAM_STOPPED,		/* stream_stop was asked */
	STREAM_RESTART,		/* nothing is wrong: start from the pointer */
	STREAM_FAILED,		/* why says it */
};

/* The run is over; always later.  why is NULL unless it failed. */
typedef void (*stream_end_fn)(void *arg, enum stream_end end,
	const struct connfault *why);

/* Takes found over. */
struct stream *stream_new(struct ctx *x, struct start_found *found,
	struct stream_counts *counts, stream_end_fn on_end, void *arg);
/*
 * Takes nothing more, lets the bundle in flight settle, says a last time what
 * is committed, frees the slot; on_end within grace_ms.
 */
void stream_stop(struct stream *s, int64_t grace_ms);
void stream_free(struct stream *s);
/* Members of the status block: slot to lastCommitAt. */
void stream_write_detail(const struct stream *s, struct jwrite *w);
uint64_t stream_lag_bytes(const struct stream *s);
uint64_t stream_pointer_lsn(const struct stream *s);

#endif
