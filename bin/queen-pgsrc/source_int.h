/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of a source's life. */
#ifndef QUEEN_PGSRC_SOURCE_INT_H
#define QUEEN_PGSRC_SOURCE_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "buf.h"
#include "ctx.h"
#include "loop.h"
#include "pointer.h"
#include "source.h"
#include "stream.h"

struct claim;
struct start;

enum source_state {
	SOURCE_CONNECTS,	/* to the cell */
	SOURCE_DISABLED,
	SOURCE_CLAIMS,
	SOURCE_STARTS,
	SOURCE_STREAMS,
	SOURCE_WAITS,	/* with the lease, for the next start */
	SOURCE_RELEASES,
};

struct source {
	struct ctx *x;
	struct arena arena;		/* the ctx's names */
	enum source_state state;
	struct claim *claim;
	struct start *start;
	struct stream *stream;
	struct stream_counts counts;
	struct loop_timer timer;
	int64_t retry_ms;	/* 0 = no failure so far */
	int64_t began_ms;	/* this run */
	int64_t gone_ms;	/* last time the slot was called gone; 0 = never */
	int64_t anew_ms;	/* last time a run wanted another; 0 = never */
	int64_t again_ms;	/* behind a release: claim again */
	bool lost;	/* the lease is another's */
	bool stopping, torn_down;
	struct buf owner, resynced_at;
	/* of the last run; system_id "" = there was none */
	char system_id[24], epoch[POINTER_EPOCH_MAX];
	uint64_t pointer_lsn;
};

#endif
