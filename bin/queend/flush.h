/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The push coalescer.  Messages go into the open segment of their partition;
 * when a connection of the push lane is free, one call carries up to 64
 * ready partitions or 1 MiB.  A partition has one segment in flight at a
 * time, so its messages keep the order in which they were added.  Nothing
 * lingers: what is ready is sent at the end of the turn.
 */
#ifndef QUEEND_FLUSH_H
#define QUEEND_FLUSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hash.h"
#include "qid.h"
#include "span.h"

struct cat_part;
struct ctx;
struct flush;
struct flush_group;

enum flush_status {
	FLUSH_WAITING,
	FLUSH_QUEUED,
	FLUSH_DUPLICATE,
	FLUSH_FAILED
};

/* One message; the caller's memory, alive until the group is done. */
struct flush_item {
	/* set by the caller */
	struct flush_group *group;
	struct span txn, payload, sub;
	struct hash_id hash;
	bool minted; /* txn is the id we made */
	struct qid id; /* duplicate: becomes the original's */
	/* the answer */
	enum flush_status status;
	bool unsealed; /* failed: the queue wants it sealed, there is no key */
	/* ours */
	struct flush_item *follower; /* same id, same segment */
	int64_t offset; /* duplicate: of the original */
};

/* Items that are answered together, e.g. one request. */
struct flush_group {
	size_t pending; /* counted up by flush_add */
	void (*done)(struct flush_group *g);
};

struct flush *flush_new(struct ctx *x);
void flush_free(struct flush *f);

/*
 * Takes an item for a partition.  done is called when the group has nothing
 * pending any more, never from inside this call; an item over the bound of
 * waiting bytes fails at once and is not counted.
 */
void flush_add(struct flush *f, struct cat_part *part, struct flush_item *it);

struct flush_stats {
	size_t partitions; /* with work waiting or in flight */
	int64_t waiting_bytes;
	int calls; /* in flight */
	size_t filters, filter_bytes;
	uint64_t evicted;
	uint64_t suspects, gaps, behind, duplicates;
};
void flush_stats(const struct flush *f, struct flush_stats *out);

#endif
