/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what the catalogue says of a sink's table and makes the plan of it. */
#ifndef QUEEN_PGSINK_FACTS_H
#define QUEEN_PGSINK_FACTS_H

#include "arena.h"
#include "connfault.h"
#include "plan.h"

struct conndoc_sink;
struct pglink;

/*
 * plan: the caller's; NULL: why says what is wrong, table_missing and the
 * refusals of plan_make among it.
 */
typedef void (*facts_fn)(void *arg, struct plan *plan,
	const struct connfault *why);

/* Embedded; one reading at a time. */
struct facts {
	const struct conndoc_sink *doc;	/* borrowed */
	facts_fn fn;
	void *arg;
	struct arena arena;
	struct plan_facts found;
	struct connfault fault;
};

void facts_init(struct facts *f, const struct conndoc_sink *doc, facts_fn fn,
	void *arg);
/* The link it reads from must be gone, or the answer have come. */
void facts_fini(struct facts *f);
/* A flight of its own on a link in pipeline mode. */
void facts_read(struct facts *f, struct pglink *k);

#endif
