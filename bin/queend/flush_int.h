/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the push coalescer share: flush.c collects and fires,
 * flush_back.c takes the answers, flush_dup.c finds original message ids,
 * flush_ids.c keeps the filters (also for transactions).
 */
#ifndef QUEEND_FLUSH_INT_H
#define QUEEND_FLUSH_INT_H

#include "buf.h"
#include "ctx.h"
#include "dedup.h"
#include "flush.h"
#include "loop.h"
#include "map.h"
#include "pgbin.h"
#include "resolve.h"

struct err;

enum {
	FLUSH_PARTS_MAX = 64, /* in one call */
	FLUSH_CALL_BYTES = 1 << 20, /* raw, the first segment always fits */
	FLUSH_WAITING_MAX = 256 << 20, /* bytes of frames, all partitions */
	FLUSH_RANGES_MAX = 4, /* suspect ranges per message */
};

/* What push_v1 and bundle_v1 say of a segment. */
enum flush_verdict {
	FLUSH_V_WRITTEN,
	FLUSH_V_DUPLICATE,
	FLUSH_V_GONE,
	FLUSH_V_BEHIND,
	FLUSH_V_ENCRYPTION
};

struct flush_msg {
	struct flush_item *it;
	uint32_t bytes; /* of its frame */
};

struct flush_seg {
	struct flush_seg *next;
	struct buf frames;
	struct flush_msg *msgs;
	uint32_t n, cap;
	bool probe; /* holds an id a client chose */
	bool sealed; /* its frames are; it takes no more messages */
	uint8_t faults; /* deadlocks and the like so far */
	uint8_t moves; /* partitions it found gone */
	struct map by_hash; /* ids of clients; made when many */
};

/* A partition with something to do; gone when it has nothing. */
struct flush_part {
	int64_t id; /* first: map_is_i64 */
	struct cat_part *part;
	struct flush_seg *first, **last; /* waiting */
	struct flush_seg *flight;
	bool listed; /* in the list of ready ones */
	struct flush_part *next_ready;
	int64_t sent_verified; /* of the flight, if it probes */
	uint8_t behind;
	struct flush *flush;
	struct resolve_item again; /* after `gone` */
};

struct flush_suspect {
	int32_t seg, pos;
	int64_t lo, hi;
};

/* Suspects of a call, collected segment by segment. */
struct flush_suspects {
	struct flush_suspect *at;
	size_t n, cap;
};

struct flush {
	struct ctx *x;
	struct map parts;
	struct flush_part *ready, **ready_last;
	int calls;
	int64_t waiting_bytes;
	bool pumping; /* flush_pump waits for the turn's end */
	struct dedup *dedup;
	struct loop_timer sweep;
	int64_t db_at_us, db_at_mono_us; /* the database's clock, as seen */
	struct buf blob;
	struct flush_suspects suspects;
	struct flush_stats stats;
};

/* One call in flight. */
struct flush_call {
	struct flush *flush;
	int n;
	int64_t sent_us;
	struct flush_part *parts[FLUSH_PARTS_MAX];
};

/* flush.c */
void flush_pump_later(struct flush *f);
void flush_make_ready(struct flush *f, struct flush_part *p);
struct flush_part *flush_part_get(struct flush *f, struct cat_part *part);
void flush_part_idle(struct flush *f, struct flush_part *p);
void flush_seg_free(struct flush *f, struct flush_seg *s);
void flush_complete(struct flush_item *it, enum flush_status status);
void flush_seg_fail(struct flush *f, struct flush_seg *s);

/* flush_back.c: the pgpool_fn of a call. */
void flush_on_answer(void *call, const PGresult *res, const struct err *e);

/* flush_dup.c */
struct flush_dups;
struct flush_dups *flush_dups_new(struct flush *f);
/* The item's offset tells where the original is. */
void flush_dups_add(struct flush_dups *d, const struct cat_part *part,
	struct flush_item *it);
/* Looks them up, answers them, frees itself; nothing added = nothing asked. */
void flush_dups_start(struct flush_dups *d);

/* ---- flush_ids.c ---- */

/* What a call says about a partition's filter. */
struct flush_vouch {
	int64_t verified, covered_us;
};
struct flush_vouch flush_ids_vouch(struct flush *f, int64_t part);
void flush_ids_suspect(struct flush *f, int64_t part, int32_t seg, int32_t pos,
	const struct hash_id *id, struct flush_suspects *out);
void flush_suspects_args(struct pgargs *a, const struct flush_suspects *s);

/* What the database answered about it. */
struct flush_news {
	bool probed; /* verified was sent */
	int64_t sent_verified;
	bool has_gap;
	int64_t gap_base;
	struct span gap;
	bool written;
	int64_t base, at_us;
};
/*
 * ids: what was written, 16 bytes each; entered when there is a filter, or
 * when it was probed (then one is made).
 */
void flush_ids_learn(struct flush *f, const struct cat_part *part,
	const struct flush_news *news, const uint8_t *ids, size_t n);
/* Reads gap_base.. of a row; col of gap_base, gap follows. */
void
flush_news_gap(struct flush_news *news, const PGresult *res, int row, int col);

typedef void (*flush_paged_fn)(void *arg, const struct err *e);
/* Pages the window in; attempt: how often it was behind before, from 0. */
void flush_ids_page(struct flush *f, const struct cat_part *part, int attempt,
	flush_paged_fn done, void *arg);

#endif
