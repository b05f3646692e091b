/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV operations of a request: read from JSON, checked, sent as the arrays of
 * queen.kv_apply_v1, and its rows written as JSON.  For /api/v1/kv and for the
 * `kv` array of a transaction.  Spans point into the body or the arena.
 */
#ifndef QUEEND_KV_OPS_H
#define QUEEND_KV_OPS_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct arena;
struct ctx;
struct err;
struct fault;
struct jwrite;
struct pgargs;

/* As kv_apply_v1 numbers them; putIfAbsent is a put with expect 0. */
enum kv_kind {
	KV_GET, KV_GET_MANY, KV_GET_PREFIX, KV_PUT, KV_DELETE, KV_INCR
};

struct kv_op {
	enum kv_kind kind;
	struct span name;		/* of the op, as sent */
	struct span ns, key;		/* key: getPrefix has its prefix here */
	struct span *keys;		/* getMany */
	size_t keys_n;
	struct span value;		/* JSON as sent; n = 0 none */
	size_t value_bytes;		/* of value or delta, printed compactly */
	struct span delta, min, max;	/* JSON numbers; n = 0 none */
	struct span after;
	int64_t expect;			/* -1 = none */
	int64_t ttl_s;			/* 0 = forever */
	int32_t limit;
	bool required, keys_only;
	int row, rows_end;		/* rows of the result (kv_ops_index) */
};

struct kv_ops {
	struct kv_op *v;
	size_t n;
	/* what limits are about: upper bounds of what the call adds */
	int64_t writes;			/* operations that write at all */
	int64_t rows;			/* that may add a row */
	int64_t bytes;			/* of values, serialized */
	int64_t keys;
	bool required;			/* one is: the call needs a bundle */
};

/* Where a result has the columns of kv_apply_v1. */
struct kv_cols {
	int ord, row_no, verdict, reason, key, value, version, expires_at,
		updated_at;
};

/* The rule of namespaces. */
bool kv_ops_is_namespace(struct span s);
/* Reads and checks a JSON array of operations.  0, or -1 with *f filled. */
int kv_ops_parse(struct span json, bool in_bundle, const struct ctx *x,
	struct arena *a, struct kv_ops *o, struct fault *f)
	__attribute__((warn_unused_result));
/*
 * The arguments p_read_bytes and k_op .. m_key of kv_apply_v1, 16 of them.
 * o may have no operations.
 */
void kv_ops_args(struct pgargs *a, const struct kv_ops *o,
	const struct ctx *x);
/* Of kv_one_v1, p_op .. p_max: an operation on one key. */
void kv_ops_args_one(struct pgargs *a, const struct kv_op *op);

/*
 * Rows [from, to) are those of kv_apply_v1; finds each operation's.  False
 * when an answer is missing (misaligned).
 */
bool kv_ops_index(struct kv_ops *o, const PGresult *res,
	const struct kv_cols *c, int from, int to)
	__attribute__((warn_unused_result));
/* The row of a lost `required` in [from, to), or -1: then all is void. */
int kv_ops_lost(const PGresult *res, const struct kv_cols *c, int from,
	int to);
/* Index of the operation of a row. */
size_t kv_ops_of_row(const PGresult *res, const struct kv_cols *c, int row);
/*
 * The members of element i inside an open object, from "op" on (index, type
 * and opIndex are the caller's).
 */
void kv_ops_write(struct jwrite *w, const struct kv_ops *o, size_t i,
	const PGresult *res, const struct kv_cols *c);
/*
 * The members failedIndex, kvReason, version, value of a lost `required`;
 * none when they are larger than 4 KiB.
 */
void kv_ops_write_lost(struct jwrite *w, const struct kv_ops *o,
	int64_t failed_index, const PGresult *res, const struct kv_cols *c,
	int row);
/* What an error of the call means to the client. */
void kv_ops_fault(const struct err *e, struct fault *f);

#endif
