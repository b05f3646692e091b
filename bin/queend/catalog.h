/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names to ids, in memory: queues with the options the process itself needs,
 * partitions and groups as they are met.  A cache: stale in the harmless
 * direction only, because SQL decides under its locks and answers `gone`.
 *
 * Queues are all here; a partition or group nobody asked for in two hours is
 * forgotten.  An entry that left the catalogue stays readable for ten minutes,
 * longer than any request lives, so pointers may be kept across one request.
 */
#ifndef QUEEND_CATALOG_H
#define QUEEND_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qid.h"
#include "span.h"

struct arena;
struct catalog;
struct ctx;
struct err;
struct ring;

/* Each begins with its id: map_is_i64. */
struct cat_queue {
	int64_t id;
	struct qid tenant;
	struct span name, namespace_name, task;
	char *labels;			/* memory of the two labels */
	int32_t lease_time_s, delayed_processing_s, window_buffer_s;
	int32_t min_pop_wait_ms, dedup_window_s;
	bool encrypted;
	bool gone;			/* deleted or forgotten */
	int64_t changed_at_us;
	struct ring *rings;		/* owned by pops: rings of its groups */
	int wants;			/* owned by pops: missing partitions */
};

struct cat_part {
	int64_t id;
	struct cat_queue *queue;
	struct span name;
	uint32_t used_min;		/* catalog's minute of the last look */
};

struct cat_group {
	int64_t id;
	struct cat_queue *queue;
	struct span name;
	bool conflated;
	bool gone;
	uint32_t used_min;
	void *ring;			/* owned by pops; set: it is in use */
};

/* e NULL = done; then the look-ups below tell.  Always called later. */
typedef void (*catalog_fn)(void *arg, const struct err *e);

struct catalog *catalog_new(struct ctx *x);
void catalog_free(struct catalog *c);
/* Loads all queues; done is called once after the first full load. */
void catalog_start(struct catalog *c, catalog_fn done, void *arg);
/* Reads what changed (a catalogue hint, the one-second scan). */
void catalog_refresh(struct catalog *c);

/* Live entries only; NULL = not known here. */
struct cat_queue *catalog_queue(struct catalog *c, const struct qid *tenant,
	struct span name);
struct cat_queue *catalog_queue_by_id(struct catalog *c, int64_t id);
struct cat_part *catalog_part(struct catalog *c, const struct cat_queue *q,
	struct span name);
struct cat_part *catalog_part_by_id(struct catalog *c, int64_t id);
/* For ids that came from outside: another tenant's is as if it were not. */
struct cat_part *catalog_part_of(struct catalog *c, const struct qid *tenant,
	int64_t id);
struct cat_group *catalog_group(struct catalog *c, const struct cat_queue *q,
	struct span name);
struct cat_group *catalog_group_by_id(struct catalog *c, int64_t id);

/*
 * Asks the database for what is missing, several at once; many callers share
 * a call.  create: insert what does not exist (queues with defaults).
 * Spans must stay valid until done.
 */
void catalog_load_queues(struct catalog *c, const struct qid *tenant,
	const struct span *names, size_t n, bool create, catalog_fn done,
	void *arg);
void catalog_load_parts(struct catalog *c, struct cat_queue *const *queues,
	const struct span *names, size_t n, bool create, catalog_fn done,
	void *arg);
void catalog_load_parts_by_id(struct catalog *c, const struct qid *tenant,
	const int64_t *ids, size_t n, catalog_fn done, void *arg);
void catalog_load_groups(struct catalog *c, struct cat_queue *const *queues,
	const struct span *names, size_t n, catalog_fn done, void *arg);
/*
 * Registers one group on several queues, insert-if-absent.  mode "all",
 * "new" or "timestamp" (with from_us).
 */
void catalog_register_groups(struct catalog *c,
	struct cat_queue *const *queues, size_t n, struct span name,
	const char *mode, int64_t from_us, bool conflated, catalog_fn done,
	void *arg);

/* Queues of a tenant with these labels (empty span = any); calls fn each. */
void catalog_match(struct catalog *c, const struct qid *tenant,
	struct span namespace_name, struct span task,
	void (*fn)(void *arg, struct cat_queue *q), void *arg);

/* SQL said gone: look again next time. */
void catalog_forget_queue(struct catalog *c, int64_t id);
void catalog_forget_part(struct catalog *c, int64_t id);
void catalog_forget_group(struct catalog *c, int64_t id);

struct catalog_stats {
	size_t queues, parts, groups, bytes;
};
void catalog_stats(const struct catalog *c, struct catalog_stats *out);

#endif
