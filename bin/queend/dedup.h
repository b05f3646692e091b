/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process remembers of the transaction ids of the partitions it
 * writes, so that SQL need not look each of them up.  A filter vouches: every
 * id of the partition with an offset up to `verified` and a time from
 * `covered` on is in it.  It may take a new id for an old one (SQL looks),
 * never an old one for new.  Pure: no I/O, time is an argument, and it is the
 * database's time.
 *
 * Ids lie in blocks of consecutive offsets, at most 4096 in each: a few exact
 * hashes at first, a bloom later.  Blooms of full size stand behind a front, a
 * bloom over up to sixteen of them made of the other half of the hash.  Blocks
 * are closed by time too, so that what leaves the window is dropped.
 */
#ifndef QUEEND_DEDUP_H
#define QUEEND_DEDUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hash.h"

struct dedup;
struct dedup_filter;

struct dedup_range {
	int64_t lo, hi; /* offsets, both included */
};

enum { DEDUP_BLOCK_IDS = 4096 };

struct dedup *dedup_new(size_t max_bytes);
void dedup_free(struct dedup *d);

/* The filter of a partition, or NULL. */
struct dedup_filter *dedup_find(struct dedup *d, int64_t part);
/* As find; makes an empty one. */
struct dedup_filter *dedup_open(struct dedup *d, int64_t part);
void dedup_drop(struct dedup *d, int64_t part);

/* False for a filter that vouches for nothing yet. */
bool dedup_is_ready(const struct dedup_filter *f);
/* -1 when it vouches for nothing. */
int64_t dedup_verified(const struct dedup_filter *f);
int64_t dedup_covered_us(const struct dedup_filter *f);

/* Forgets all: from here on it vouches for offsets from `first` on. */
void dedup_restart(struct dedup *d, struct dedup_filter *f, int64_t first,
	int64_t covered_us);
/*
 * n ids of 16 bytes at offsets base.., written not later than at_us.  What is
 * already vouched for is passed over; false (and nothing done) when the ids
 * would leave a hole.
 */
bool dedup_add(struct dedup *d, struct dedup_filter *f, int64_t base,
	const uint8_t *ids, size_t n, int64_t at_us, int64_t window_us);
/* Nothing that counts lies below first: go on there. */
void dedup_skip_to(struct dedup_filter *f, int64_t first, int64_t covered_us);
/* Drops blocks that left the window. */
void dedup_expire(struct dedup *d, struct dedup_filter *f, int64_t now_us,
	int64_t window_us);
/*
 * Where the id may be; 0 = it is new as far as this filter vouches.  At most
 * max ranges; the last is widened when there would be more.
 */
int dedup_suspects(const struct dedup_filter *f, const struct hash_id *id,
	struct dedup_range *out, int max);
/*
 * Expires the next filters, at most `steps`, by the window each saw last, and
 * forgets the empty ones; goes on where it stopped, round and round.
 */
void dedup_sweep(struct dedup *d, int64_t now_us, size_t steps);

struct dedup_stats {
	size_t filters, bytes;
	uint64_t evicted;
};
void dedup_stats(const struct dedup *d, struct dedup_stats *out);

#endif
