/* SPDX-License-Identifier: Apache-2.0 */
/* Plans without a server, and messages for them. */
#ifndef QUEEN_TEST_OP_FIX_H
#define QUEEN_TEST_OP_FIX_H

#include "arena.h"
#include "connfault.h"
#include "feed.h"
#include "op.h"
#include "plan.h"

#define OP_FIX_N(a) (sizeof(a) / sizeof(*(a)))

static const struct feed_part op_fix_part = { .id = 42,
	.name = { "p\"1", 3 },
	.n = 1 };

static inline struct feed_message
op_fix_message(struct span payload)
{
	return (struct feed_message){ .offset = 7,
		.created_at_us = 1790935200000001, /* 2026-10-02 10:00 UTC */
		.txn = { "t-1", 3 },
		.payload = payload };
}

/* The table of most tests: a key, plain columns, all special ones. */
static const struct plan_column op_fix_columns[] = {
	{ .name = { "id", 2 }, .type = { "integer", 7 } },
	{ .name = { "n", 1 }, .type = { "numeric(10,2)", 13 } },
	{ .name = { "Odd \"name\"", 10 }, .type = { "text", 4 } },
	{ .name = { "twice", 5 }, .type = { "integer", 7 }, .generated = true },
	{ .name = { "no", 2 },
		.type = { "bigint", 6 },
		.identity_always = true },
	{ .name = { "doc", 3 }, .type = { "json", 4 } },
	{ .name = { "raw", 3 }, .type = { "text", 4 } },
};
static const struct span op_fix_id[] = { { "id", 2 } };
static const struct span op_fix_no[] = { { "no", 2 } };

static inline struct plan_facts
op_fix_facts(const struct span *key)
{
	return (struct plan_facts){ .oid = 1,
		.columns = op_fix_columns,
		.columns_n = OP_FIX_N(op_fix_columns),
		.key = key,
		.key_n = key ? 1 : 0 };
}

static inline struct conndoc_sink
op_fix_doc(enum conndoc_mode mode)
{
	return (struct conndoc_sink){ .mode = mode,
		.table = { { "s.t", 3 }, { "s", 1 }, { "t", 1 } } };
}

#endif
