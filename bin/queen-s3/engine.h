/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The windows of one queue: which records are in window k, and what
 * has to be read before it may close.  Pure: it reads nothing and knows no
 * clock; every time is a stamp that the cell answered.  The caller asks for
 * the next step, does it, and tells the answer; several may be outstanding.
 */
#ifndef QUEEN_S3_ENGINE_H
#define QUEEN_S3_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"
#include "s3conf.h"
#include "span.h"
#include "stamp.h"

enum {
	ENGINE_ENTRIES = 1024, /* of a fetch or a seek */
	ENGINE_ENTRY_BYTES = 1 << 20,
	ENGINE_PAGE = 1000, /* partitions of a page */
	ENGINE_SWEEP_EVERY = 30, /* passes, from one full one to the next */
	ENGINE_SLACK_US = 2000000, /* of discovery, below the window start */
	ENGINE_PRUNE_WINDOWS = 60,
	ENGINE_RECORD_WEIGHT = 64,
};

struct engine;

struct engine_conf {
	int64_t target_bytes, max_window_us, safe_guard_us;
	enum s3_align align;
	enum s3_start start;
	int64_t start_us; /* S3_TIMESTAMP */
	int fetch_concurrency;
};
/* What the rows of the cell say at the start. */
struct engine_restore {
	int64_t committed_k; /* 0: none */
	int64_t committed_us; /* its end */
	int64_t redo_k; /* committed_k + 1, or 0: no redo */
	int64_t redo_start_us, redo_end_us;
};
struct engine *
engine_new(const struct engine_conf *c, const struct engine_restore *r);
void engine_free(struct engine *e);
/* A position of a checkpoint, before the first step; part -1: not known. */
void engine_position(
	struct engine *e, struct span name, int64_t offset, int64_t part);

/* ---- what to do ---- */
enum engine_what {
	ENGINE_WAIT, /* for an answer that is outstanding */
	ENGINE_IDLE, /* one discovery interval, then engine_woken */
	ENGINE_BUSY, /* with itself, in slices: again in the next turn */
	ENGINE_DISCOVER, /* a page */
	ENGINE_SEEK, /* first offsets stamped at or after at_us */
	ENGINE_FETCH,
	ENGINE_CLOSE, /* engine_window is to be committed */
	ENGINE_MISSING, /* the queue is not there, and nothing of it is left */
	ENGINE_DRAINED,
};
struct engine_step {
	enum engine_what what;
	uint32_t call; /* to answer by; never 0 */
	/*
	 * DISCOVER: since STAMP_NONE = all, in the order of ids after after_part;
	 * else in that of (last write, id) after the pair.  The first page of
	 * either: after_us STAMP_NONE, after_part 0.
	 */
	int64_t since_us, after_us, after_part;
	/* SEEK, FETCH; borrowed until the next engine call */
	size_t n;
	const int64_t *part, *offset;
	int64_t at_us; /* SEEK */
	int32_t entry_bytes; /* FETCH: of one entry; its first record always */
};
void engine_next(struct engine *e, struct engine_step *s);
void engine_woken(struct engine *e);

/* ---- answers ---- */
/* Nothing came of it: to be tried again (the caller waits before that). */
void engine_on_failed(struct engine *e, uint32_t call);
/*
 * DISCOVER: there is no such queue.  What is buffered goes on to close, what
 * was not read is lost; one that is made again under the name is read.
 */
void engine_on_missing(
	struct engine *e, uint32_t call, int64_t safe_us, bool degraded);

struct engine_found {
	int64_t part;
	struct span name;
	int64_t last_offset; /* -1: never written */
	int64_t log_start;
	int64_t last_write_us;
};
/* safe_us STAMP_NONE: none can be told now.  full: there may be more. */
void engine_on_page(struct engine *e, uint32_t call, int64_t safe_us,
	bool degraded, const struct engine_found *rows, size_t n, bool full);

enum engine_verdict { ENGINE_OK, ENGINE_GONE, ENGINE_RANGE };
/* offset: of the first at or after, else last + 1; gone: no such partition. */
void engine_on_seek(
	struct engine *e, uint32_t call, size_t i, bool gone, int64_t offset);
/* high: the next offset to be assigned.  Then its records, in order. */
void engine_on_entry(struct engine *e, uint32_t call, size_t i,
	enum engine_verdict v, int64_t high, int64_t log_start);
/* r->partition is ignored; everything is copied. */
void engine_on_record(
	struct engine *e, uint32_t call, size_t i, const struct record *r);
/* The record at this offset cannot be opened; key_id -1: damaged. */
void engine_on_blocked(struct engine *e, uint32_t call, size_t i,
	int64_t offset, int64_t ts_us, int key_id);
/* The end of the answer of a seek or fetch. */
void engine_on_done(struct engine *e, uint32_t call);

/* ---- the window in its commit sequence ---- */
struct engine_window {
	int64_t k, start_us, end_us;
	bool redo;
	int64_t records, partitions; /* before plan_ready: 0 */
	int64_t min_us, max_us;
};
void engine_window(const struct engine *e, struct engine_window *w);
/* Sorts its partitions by name, a slice per call; true when it is done. */
bool engine_plan_ready(struct engine *e);
/* From its first record on, again and again. */
void engine_plan_rewind(struct engine *e);
/* In the order (partition, ts, offset); borrowed; false at the end. */
bool engine_plan_next(struct engine *e, struct record *r);
/* Lost ranges it carries; without a window in hand, all.  False at the end. */
bool engine_lost_next(struct engine *e, size_t *at, struct span *name,
	int64_t *from, int64_t *to);
/*
 * Another owner wrote the window, without this part of the range that was told
 * last (at, as it is now): it goes with the next one.
 */
void engine_lost_keep(struct engine *e, size_t at, int64_t from, int64_t to);
/* The pointer is written: the next window begins. */
void engine_committed(struct engine *e);

/*
 * Positions for a checkpoint, in the order of names; the same slices.  From
 * the first engine_positions_ready to engine_positions_end no window closes,
 * all else goes on.  engine_may_checkpoint: between windows, and not before
 * the first whole pass.
 */
bool engine_may_checkpoint(const struct engine *e);
bool engine_positions_ready(struct engine *e);
bool engine_positions_next(
	struct engine *e, struct span *name, int64_t *part, int64_t *offset);
/* After the last one, or sooner; then engine_next once more. */
void engine_positions_end(struct engine *e);

/* ---- from outside ---- */
void engine_force(struct engine *e); /* close as soon as it is legal */
/* No new reads; one window, if it is worth it; then ENGINE_DRAINED. */
void engine_drain(struct engine *e);

struct engine_stats {
	int64_t committed_k;
	int64_t safe_us, complete_us; /* STAMP_NONE: not known */
	int64_t lag_us; /* -1: not known */
	bool degraded, filling, redo, missing;
	int64_t buffered_bytes; /* weight */
	int64_t partitions; /* tracked */
	int64_t discovered; /* of the last whole full sweep */
	uint64_t stepped_over, pages;
	/* a partition that cannot be opened; part 0: none */
	int64_t blocked_part;
	struct span blocked_name;
	int64_t blocked_offset;
	int blocked_key_id;
};
void engine_stats(const struct engine *e, struct engine_stats *out);

#endif
