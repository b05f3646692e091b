/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass of the start sequence, and the steps its files give each other.  A
 * step that ends the sequence (start_fail, start_answer) may free it: nothing
 * is done behind it.
 */
#ifndef QUEEN_PGSRC_START_INT_H
#define QUEEN_PGSRC_START_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "buf.h"
#include "catalog.h"
#include "cellkv.h"
#include "connfault.h"
#include "decide.h"
#include "loop.h"
#include "pglink.h"
#include "pointer.h"
#include "start.h"

struct conndoc;
struct ctx;
struct start;
struct start_call;

typedef void (*start_step)(struct start *s);
typedef void (*start_row_fn)(struct start *s, const struct cellkv_row *row);

/* A link being dialled or in use; k NULL: none. */
struct start_link {
	struct start *s;
	struct pglink *k;
	struct buf password;		/* clear, while it is dialled */
	start_step on_up;
};

struct start {
	struct ctx *x;
	const struct conndoc *doc;
	start_fn fn;
	void (*on_state)(void *arg);
	void *arg;
	struct start_state state;
	struct arena arena;
	struct buf sql;			/* the statement being built */
	struct loop_timer timer;	/* the next step waits for it */
	start_step next;
	const char *search_path;	/* a setting of every link */
	struct start_link link_sql, link_repl, link_watch;
	struct loop_timer watch;
	struct start_call *call;	/* of the cell, in flight */
	start_row_fn call_fn;
	bool over;			/* answered */

	struct span slot_name, publication_name;
	struct span row;		/* the pointer as it is stored */
	int64_t version;		/* of it; 0 = there is none */
	bool readable;			/* pointer is it */
	struct pointer pointer;
	char unreadable[256];		/* why it is not */

	struct decide_server server;
	int sql_pid;
	struct decide_table *tables;
	struct decide_publication publication;
	bool published;			/* the publication was written once */
	bool resync;			/* the pointer will be replaced */
	struct decide_system system;
	struct decide_slot slot;
	int drops;			/* attempts to drop the slot */
	start_step dropped;
};

/* ---- start.c ---- */
void start_say(struct start *s, const char *phase, const char *doing, int pid);
void start_after(struct start *s, int64_t ms, start_step next);
void start_fail(struct start *s, const struct connfault *f);
/* found is taken over by whom it is told. */
void start_answer(struct start *s, enum start_end end,
	struct start_found *found);
/* From the cell: fn sees the row; a failure ends the sequence. */
void start_settle(struct start *s, start_row_fn fn);
void start_put(struct start *s, struct span value, int64_t expect,
	start_row_fn fn);
void start_delete(struct start *s, int64_t expect, start_row_fn fn);
/* A loss of sql or repl ends the sequence, one of watch does not. */
void start_dial(struct start *s, struct start_link *l, enum pglink_use use,
	start_step on_up);
void start_hang_up(struct start_link *l);
/* Sends s->sql and empties it. */
void start_query(struct start *s, struct start_link *l, pglink_fn fn);
/* The results of a query that had to work; false when it ended it. */
bool start_worked(struct start *s, const struct connfault *why);

/* ---- start_tables.c: tables and publication; goes on with start_identify */
void start_tables(struct start *s);
/* ---- start_system.c: system, pointer, resync; goes on with start_slot */
void start_identify(struct start *s);
/* Are rows read, or is what is there already streamed alone? */
bool start_copies(struct start *s);
/* ---- start_slot.c: the slot, waited for or made; goes on with the next */
void start_slot(struct start *s);
/* Asks for the slot; in fn start_has_slot makes s->slot of the results. */
void start_look(struct start *s, pglink_fn fn);
/* False when it could not, which ended the sequence. */
bool start_has_slot(struct start *s, PGresult *const *res, int n,
	const struct connfault *why);
void start_create(struct start *s);
void start_watch(void *arg);
/* ---- start_ready.c: the pointer's row, then the answer */
/* A new epoch from this position of the log. */
void start_fresh(struct start *s, uint64_t lsn);
/* The pointer that is there. */
void start_use(struct start *s);

#endif
