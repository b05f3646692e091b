/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of one sink share; a child process has one. */
#ifndef QUEEN_PGSINK_CTX_H
#define QUEEN_PGSINK_CTX_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

struct connchild;
struct connchild_task;
struct connhost_settings;
struct feed;
struct loop;
struct pgconn;
struct seal;

/* Counters of the process. */
struct counts {
	uint64_t applied, skipped, dlq, batches;
	int64_t last_applied_us;	/* 0 = never */
};

struct ctx {
	struct loop *loop;
	const struct connhost_settings *conf;
	const char *conninfo;		/* of the cell */
	struct connchild *child;
	const struct connchild_task *task;
	const struct seal *seal;	/* NULL: no key */
	/* To the cell: pops and acks; leases and all else. */
	struct pgconn *work, *side;
	char cell_tag[13];		/* 12 hex */
	struct span sink;		/* `<tenant>/<name>`: of progress rows */
	struct feed *feed;
	struct counts counts;
};

#endif
