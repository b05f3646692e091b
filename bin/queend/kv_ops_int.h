/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of kv_ops.h alone. */
#ifndef QUEEND_KV_OPS_INT_H
#define QUEEND_KV_OPS_INT_H

#include "jspan.h"
#include "kv_ops.h"

struct settings;

struct kv_reader {
	const struct settings *conf;
	struct arena *a;
	struct kv_ops *o;
	struct fault *f;
	bool in_bundle;
	size_t at; /* operation being read, for messages */
};

/* What was given, before the kind of the operation is known. */
struct kv_given {
	struct jspan_val op, ns, key, prefix, keys, value, ttl, forever, expect,
		required, delta, min, max, after, limit, keys_only;
};

/* 400 kv_bad_request, the operation named in front: -1. */
int kv_ops_refuse(struct kv_reader *r, const char *reason, const char *fmt,
	...) __attribute__((format(printf, 3, 4)));
/* 413: -1. */
int kv_ops_refuse_size(struct kv_reader *r, const char *reason,
	const char *what, int64_t limit);
/* What was given to an operation.  0, or -1 refused. */
int kv_ops_read_op(struct kv_reader *r, const struct kv_given *g,
	struct kv_op *op) __attribute__((warn_unused_result));

#endif
