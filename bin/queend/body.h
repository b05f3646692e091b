/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request bodies of push, ack and transaction, read in one pass.  Spans point
 * into the body or the arena.  Unknown keys are passed over, null means
 * absent, and of a key given twice the last one counts.  Errors are ERR_INPUT
 * with the whole text for the client, `bad body: ...`, naming the field.
 */
#ifndef QUEEND_BODY_H
#define QUEEND_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "qid.h"
#include "span.h"

struct arena;

/* Items, acks, operations or leases in one request. */
enum { BODY_LIST_MAX = 100000 };

/* One byte of ack_v1: what became of a message. */
enum body_status { BODY_COMPLETED, BODY_FAILED, BODY_RETRY, BODY_DLQ };

struct body_push {
	struct span queue, partition;
	struct span txn; /* empty = to be minted */
	struct span payload; /* JSON as sent */
	struct qid trace;
	bool has_trace;
};

struct body_ack {
	struct span txn, partition_id, lease_id, error;
	struct span group; /* transaction only; empty = default */
	enum body_status status;
};

int body_parse_push(struct span body, struct arena *a, struct body_push **items,
	size_t *n, struct err *e) __attribute__((warn_unused_result));

/* Group empty = not given. */
int body_parse_ack(struct span body, struct arena *a, struct span *group,
	struct body_ack *ack, struct err *e)
	__attribute__((warn_unused_result));
int body_parse_ack_batch(struct span body, struct arena *a, struct span *group,
	struct body_ack **acks, size_t *n, struct err *e)
	__attribute__((warn_unused_result));

struct body_op {
	bool is_push;
	struct body_ack ack;
	struct body_push *items; /* push: one or more */
	size_t n;
};

struct body_txn {
	struct body_op *ops;
	size_t ops_n;
	struct span *leases; /* requiredLeases */
	size_t leases_n;
	struct span kv, timers; /* riders: JSON arrays as sent; n = 0 none */
};

int body_parse_txn(struct span body, struct arena *a, struct body_txn *out,
	struct err *e) __attribute__((warn_unused_result));

/* The word of an ack; what is unknown is failed. */
enum body_status body_status_of(struct span word);

#endif
