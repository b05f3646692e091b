/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of timer_ops.h alone. */
#ifndef QUEEND_TIMER_OPS_INT_H
#define QUEEND_TIMER_OPS_INT_H

#include "jspan.h"
#include "timer_ops.h"

struct timer_reader {
	const struct ctx *x;
	const struct qid *tenant;
	struct arena *a;
	struct timer_ops *o;
	struct fault *f;
	size_t at; /* operation being read, for messages */
};

/* What was given, before the kind of the operation is known. */
struct timer_given {
	struct jspan_val op, queue, key, delay, txn, payload, partition, zstd,
		encrypted;
};

/* 400 timers_bad_request, or as told: -1. */
int timer_ops_refuse(
	struct timer_reader *r, const char *reason, const char *what);
int timer_ops_refuse_as(struct timer_reader *r, int status, const char *error,
	const char *reason, const char *what);

/* Payload to frame; names, txn and queue are read.  0, or -1 refused. */
int timer_ops_frame(struct timer_reader *r, const struct timer_given *g,
	struct timer_op *op) __attribute__((warn_unused_result));

#endif
