/* SPDX-License-Identifier: Apache-2.0 */
/* What catalog.c (entries) and catalog_load.c (asking the database) share. */
#ifndef QUEEND_CATALOG_INT_H
#define QUEEND_CATALOG_INT_H

#include "catalog.h"
#include "ctx.h"
#include "loop.h"
#include "map.h"

/* The kinds of question; each has at most one call in flight. */
enum catalog_ask {
	CATALOG_ASK_QUEUES,
	CATALOG_ASK_PARTS,
	CATALOG_ASK_PARTS_BY_ID,
	CATALOG_ASK_GROUPS,
	CATALOG_ASK_REGISTER,
	CATALOG_ASKS
};

struct catalog_load;
struct catalog_grave;

struct catalog_line {
	struct catalog *catalog;
	struct catalog_load *first, **last;	/* waiting, oldest first */
	struct catalog_load *flying;		/* in the call */
	struct loop_timer retry;
	bool stalled;				/* retry is running */
};

struct catalog {
	struct ctx *x;
	struct map queues_by_name, queues_by_id;
	struct map parts_by_name, parts_by_id;
	struct map groups_by_name, groups_by_id;
	size_t bytes;
	struct catalog_grave *graves, **graves_end;
	struct loop_timer bury_timer;
	uint32_t minute;			/* since it exists */
	size_t parts_at, groups_at;		/* where the sweep goes on */
	struct catalog_line lines[CATALOG_ASKS];
	/* the scan of queen.queues */
	bool scanning, scan_again, loaded;
	int64_t scan_since_us, scan_after, scan_newest_us, overlap_next_ms;
	catalog_fn on_loaded;
	void *on_loaded_arg;
};

/* A queue as a row describes it. */
struct catalog_queue_row {
	int64_t id;
	struct qid tenant;
	struct span name, namespace_name, task;
	int32_t lease_time_s, delayed_processing_s, window_buffer_s;
	int32_t min_pop_wait_ms, dedup_window_s;
	bool encrypted;
	int64_t changed_at_us;
};

/* Insert or bring up to date. */
struct cat_queue *catalog_put_queue(struct catalog *c,
	const struct catalog_queue_row *row);
struct cat_part *catalog_put_part(struct catalog *c, struct cat_queue *q,
	int64_t id, struct span name);
struct cat_group *catalog_put_group(struct catalog *c, struct cat_queue *q,
	int64_t id, struct span name, bool conflated);

void catalog_load_init(struct catalog *c);
void catalog_load_fini(struct catalog *c);

#endif
