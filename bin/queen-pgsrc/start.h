/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the document to a slot that can be streamed: pointer, server, tables,
 * publication, slot, in an order that never leaves a published table without
 * an identity or a slot older than its publication.  Also what a resync and a
 * deletion do.  Nothing is decided twice: the decisions are pure functions of
 * decide.h, this is the way through them.
 */
#ifndef QUEEN_PGSRC_START_H
#define QUEEN_PGSRC_START_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "pointer.h"
#include "shape.h"
#include "span.h"

struct connfault;
struct ctx;
struct pglink;
struct start;

/* A table as found in the source; shape_table first, as the pipeline has it. */
struct start_table {
	uint32_t oid;
	bool partitioned;	/* else read FROM ONLY: children are others */
	struct span *columns;	/* published, in table order: what pgoutput sends */
	size_t columns_n;
	struct span *key_types;	/* format_type of the key's columns */
};

/* All a run needs; owned by whoever has it, start_found_free. */
struct start_found {
	struct arena arena;
	struct shape_table *tables;	/* as configured, resolved */
	struct start_table *about;	/* same order */
	size_t tables_n;
	struct span slot, publication;
	char system_id[24];
	uint32_t timeline;
	int server_version;
	bool failover;			/* of the slot */
	struct pointer pointer;
	int64_t version;		/* of the pointer's row */
	struct pglink *sql, *repl;	/* up; the stream not begun */
};
void start_found_free(struct start_found *f);

enum start_end {
	START_READY,		/* found is set */
	START_TORN_DOWN,	/* the deletion is done but for the document */
	START_FENCED,		/* another owner moved the pointer */
	START_STALE,		/* the document is not the stored one */
	START_FAILED,		/* fault says it */
};
typedef void (*start_fn)(void *arg, enum start_end end,
	struct start_found *found, const struct connfault *fault);

/* What it is at, for the status. */
struct start_state {
	const char *phase;	/* `connecting` or `waiting_for_slot` */
	const char *doing;	/* a literal, e.g. `creating the slot` */
	int active_pid;		/* holder of the slot, or whom it waits for */
};

/*
 * Goes through §12.2 once and answers by fn, always later.  It waits for a
 * held slot itself (two seconds apart) for as long as it is let.
 */
struct start *start_new(struct ctx *x, start_fn fn, void *arg);
/* Called with the arg of start_new whenever the state has changed. */
void start_on_state(struct start *s, void (*fn)(void *arg));
const struct start_state *start_state(const struct start *s);
/* Ends it without an answer, e.g. when the lease is lost or on a stop. */
void start_free(struct start *s);

#endif
