/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the transaction share: txn.c reads, resolves and answers,
 * txn_call.c sends the bundle and acts on its verdicts.
 */
#ifndef QUEEND_TXN_INT_H
#define QUEEND_TXN_INT_H

#include "ack_job.h"
#include "body.h"
#include "buf.h"
#include "ctx.h"
#include "flush_int.h"
#include "kv_ops.h"
#include "kvlimit.h"
#include "resolve.h"
#include "timer_ops.h"

/* One pushed item; a follower repeats the id of an earlier one. */
struct txn_push {
	const struct body_push *body;
	struct span txn;
	struct qid id;
	struct hash_id hash;
	bool minted;
	struct txn_push *leader; /* NULL = itself */
	struct cat_part *part;
};

/* The segment for one partition. */
struct txn_seg {
	struct cat_part *part;
	struct txn_push **items; /* in the order of the request */
	size_t n;
	bool probe, sealed;
	int64_t sent_verified;
	struct span frames;
};

struct txn_ack {
	const struct body_ack *body;
	struct span group;
	int64_t part_id;
	struct ack_item item;
	struct ack_job *job;
};

struct txn {
	struct ctx *x;
	struct hsrv_req *req;
	struct arena *arena;
	struct body_txn body;
	struct qid id; /* of the call */

	struct txn_push *pushes;
	struct resolve_item *names; /* aligned with pushes */
	size_t pushes_n;
	struct txn_seg *segs;
	size_t segs_n;

	struct txn_ack *acks;
	struct ack_job **jobs; /* ascending by (partition, group) */
	size_t acks_n, jobs_n;

	struct qid_lease *leases;
	size_t leases_n;

	/* riders; n = 0 none */
	struct kv_ops kv;
	struct timer_ops timers;
	struct kvlimit_ask ask;
	bool charged, misaligned;
	int lost; /* row of the lost required operation; -1 = none */
	int rest; /* first row of a result that is no rider's */

	struct flush_suspects suspects;
	int faults, gone, behind; /* repeats so far */
	bool committed;
};

/* txn.c */
void txn_reject(struct txn *t, const char *reason, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Nothing was sent: a plain error instead of a result. */
void txn_no_pool(struct txn *t, const struct err *e);
/* Refused before anything was sent, or rolled back. */
void txn_refuse(
	struct txn *t, int status, const char *reason, struct span error);
void txn_reject_lost(struct txn *t, const PGresult *res);
/* res NULL = nothing was sent. */
void txn_done(struct txn *t, const PGresult *res);
/* Looks names up again after something was gone, then sends. */
void txn_resolve(struct txn *t);

/* txn_call.c: segments made anew, then sent. */
void txn_send(struct txn *t);

/* txn_rider.c.  Read, admit: false after having answered. */
bool txn_rider_read(struct txn *t);
bool txn_rider_admit(struct txn *t);
void txn_rider_refund(struct txn *t);
bool txn_rider_any(const struct txn *t);
/* After a failure: a timer must be sealed and is now; send again. */
bool txn_rider_seal(struct txn *t, const struct err *e);
void txn_rider_args(struct pgargs *a, const struct txn *t);
/* Nothing but `kv`: kv_apply_v1 itself is called, its arguments these. */
bool txn_rider_kv_alone(const struct txn *t);
void txn_rider_kv_args(struct pgargs *a, const struct txn *t);
/* Finds the rows of riders; false = not to be committed. */
bool txn_rider_index(struct txn *t, const PGresult *res);
void txn_rider_committed(struct txn *t, const PGresult *res);
void txn_rider_write(struct jwrite *w, const struct txn *t, int64_t index,
	const PGresult *res);
void txn_rider_write_lost(
	struct jwrite *w, const struct txn *t, const PGresult *res);
/* Its `kv` had all the same result, for the metrics. */
void txn_rider_count(const struct txn *t, enum kvlimit_result result);
/* The reason of a rollback by an error of the database. */
const char *txn_rider_reason(const struct txn *t, const struct err *e);

#endif
