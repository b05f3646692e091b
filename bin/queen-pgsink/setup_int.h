/* SPDX-License-Identifier: Apache-2.0 */
/* Inside setup: setup.c has the way through, setup_mode.c what a mode needs. */
#ifndef QUEEN_PGSINK_SETUP_INT_H
#define QUEEN_PGSINK_SETUP_INT_H

#include <stdbool.h>
#include <stddef.h>

#include "arena.h"
#include "connfault.h"
#include "facts.h"
#include "loop.h"
#include "session.h"
#include "setup.h"

struct conndoc_sink;
struct ctx;
struct plan;
struct progress_column;
struct takeover;

struct setup {
	struct ctx *x;
	const struct conndoc_sink *doc;
	setup_fn fn;
	void *arg;
	struct session session;
	struct facts facts;
	struct plan *plan;
	struct takeover *takeover;
	struct loop_timer done;
	struct connfault fault;
	bool over;		/* done will tell, or told */
	/* the progress table */
	struct arena arena;
	struct progress_column *columns;
	size_t columns_n;
	bool created;	/* tried to */
	bool looked_again;
	struct connfault create_fault;
};

/* The way is over: fault, when it is set, says why. */
void setup_finish(struct setup *s);
void setup_fail(struct setup *s, const struct connfault *why);
/* The last step: rows of another cell. */
void setup_take_over(struct setup *s);

/* setup_mode.c: then the last step. */
void setup_check_mode(struct setup *s);

#endif
