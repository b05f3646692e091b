/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of one source share; a child process has one. */
#ifndef QUEEN_PGSRC_CTX_H
#define QUEEN_PGSRC_CTX_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

struct connchild;
struct connchild_task;
struct connhost_settings;
struct loop;
struct pgconn;
struct seal;

struct ctx {
	struct loop *loop;
	const struct connhost_settings *conf;
	const char *conninfo;		/* of the cell */
	struct connchild *child;
	const struct connchild_task *task;
	const struct seal *seal;	/* NULL: no key */
	/*
	 * The two connections to the cell: bundles alone, and all else, which
	 * must not wait behind a bundle in doubt.
	 */
	struct pgconn *work, *side;
	char cell_tag[13];		/* 12 hex; "" until known */
	struct span pointer_key, lease_key;	/* in namespace queen-pg */
};

#endif
