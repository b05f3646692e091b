/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One input of ack_v1: the items of one request that name the same partition
 * and lease.  Shared by acks and transactions, which send the same arrays and
 * read the same rows.
 */
#ifndef QUEEND_ACK_JOB_H
#define QUEEND_ACK_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "body.h"
#include "hash.h"
#include "pgbin.h"
#include "qid.h"
#include "span.h"

struct acks;
struct arena;
struct cat_group;
struct cat_part;
struct ctx;

enum { ACK_JOB_ROUNDS = 3 };

struct ack_item {
	struct ack_item *next; /* of the job */
	struct hash_id hash;
	enum body_status status;
	struct span text; /* `error` of the client; may be empty */
	/* the answer */
	bool success, noop, dlq, released;
	const char *error; /* NULL, or a text that stays */
	int64_t conflated; /* -1 = not there */
};

/* Bytes of `items`; up to COMMITTED a transaction may commit. */
enum {
	ACK_ITEM_SUCCESS,
	ACK_ITEM_NOOP,
	ACK_ITEM_COMMITTED,
	ACK_ITEM_UNRESOLVABLE,
	ACK_ITEM_STALE
};

enum ack_verdict {
	ACK_RELEASED,
	ACK_KEPT,
	ACK_NO_CONSUMER,
	ACK_STALE,
	ACK_NEEDS_FRAME,
	ACK_GONE
};

/* A frame that SQL asked for; a null one files the row without data. */
struct ack_frame {
	int64_t off;
	struct span frame;
	bool null;
	struct hash_id txn;
};

struct ack_job {
	struct ack_job *next;
	struct arena *arena; /* of the request */
	struct cat_part *part;
	struct cat_group *group;
	int64_t part_id, group_id;
	bool leased;
	struct qid_lease lease;
	struct ack_item *first, **last;
	size_t n;
	bool plain; /* all completed */
	struct ack_frame frames[ACK_JOB_ROUNDS];
	int frames_n;
	/* the answer */
	int64_t dead; /* offset filed, or -1 */
	int64_t conflated;
	uint8_t faults;
	bool renewed; /* its group was looked up again */
	void (*done)(struct ack_job *j);
	void *owner;
	struct acks *acks; /* the coalescer it is in */
};

extern const char *const ack_job_no_consumer;
extern const char *const ack_job_bad_lease;
extern const char *const ack_job_failed;
extern const char *const ack_job_pool;

/* Where ack_v1's columns from `committed` on are in a result. */
struct ack_cols {
	int dead, dropped, conflated, more, off, base, blob, items;
};

void ack_job_init(struct ack_job *j, struct arena *a);
void ack_job_add(struct ack_job *j, struct ack_item *it);
/* The arrays a_group .. d_id, in this order; jobs sorted by the caller. */
void ack_job_args(struct pgargs *a, struct ack_job *const *jobs, size_t n);
/* Ascending by (partition, group): for qsort over struct ack_job *. */
int ack_job_cmp(const void *a, const void *b);

/* The same error for every item. */
void ack_job_fail(struct ack_job *j, const char *error);
/* Fills the items from a row with any verdict but needs_frame and gone. */
void ack_job_read(struct ack_job *j, enum ack_verdict v, const PGresult *res,
	int row, const struct ack_cols *c);
/*
 * Cuts the frame asked for; false after the last round.  A segment that
 * cannot be opened gives a null frame: a lane that stands still is worse.
 */
bool ack_job_cut(struct ctx *x, struct ack_job *j, const PGresult *res, int row,
	const struct ack_cols *c);

#endif
