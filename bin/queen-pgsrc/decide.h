/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a start makes of what it found in the source: pure functions from facts
 * to a decision, or to a fault whose sentence holds the fix.  catalog.h finds
 * the facts.  Nothing here is remembered, so a start that is repeated decides
 * the same.
 */
#ifndef QUEEN_PGSRC_DECIDE_H
#define QUEEN_PGSRC_DECIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pointer.h"
#include "span.h"

struct arena;
struct buf;
struct conndoc_source;
struct conndoc_table;
struct connfault;

/* Those that return int: 0, or -1 and *f is set. */

/* ---- the server ---- */

struct decide_server {
	int version;			/* 170002 */
	struct span wal_level;
	bool on_demand;			/* replica is enough, a slot raises it */
	bool in_recovery;
	struct span database;
};
int decide_server(const struct decide_server *s, struct connfault *f);

/* ---- tables ---- */

struct decide_column {
	struct span name, type;		/* type as format_type spells it */
	bool generated, published;
	size_t key_pos;			/* from 1, in key order; 0 none */
	struct span operators;		/* schema of its > , if not pg_catalog */
	struct span order;		/* type and collation, no modifier */
	bool may_read;			/* the role, or its table as a whole */
};

struct decide_leaf {
	struct span schema, name;
	char kind, identity;
	bool covers;	/* what it logs of an old row holds the root's key */
};

struct decide_table {
	struct span schema, name;
	bool found;
	uint32_t oid;
	char kind, persistence, identity;	/* relkind and so on */
	bool has_children;		/* by inheritance, not as partitions */
	struct span ancestor;		/* configured too, it is a part of */
	bool may_enter;			/* the role, its schema */
	struct decide_column *columns;	/* in table order */
	size_t columns_n;
	struct decide_leaf *leaves;
	size_t leaves_n;
	/* in the publication */
	bool member;			/* named in it */
	bool listed;			/* with a column list */
	bool published;			/* whichever way */
	struct span filter;		/* a row filter; empty = none */
};

/* Before the publication: one that lacks an identity must not be published. */
int decide_table(const struct conndoc_table *want,
	const struct decide_table *t, struct connfault *f);
/* May the role read what is copied?  The grants it lacks, of all tables. */
int decide_readable(const struct conndoc_source *want,
	const struct decide_table *t, struct span role, struct connfault *f);
/* Behind it: what the stream will carry. */
int decide_published(const struct conndoc_table *want,
	const struct decide_table *t, struct span publication,
	struct connfault *f);
/* The column at this place of the key; NULL behind the last. */
const struct decide_column *decide_key(const struct decide_table *t,
	size_t pos);
/* The key as a pointer has it. */
struct pointer_key decide_pointer_key(const struct decide_table *t,
	struct arena *a);

/* ---- the publication ---- */

struct decide_publication {
	struct span name;
	bool found, all_tables, schemas;	/* schemas: some are in it */
	bool inserts, updates, deletes, truncates, via_root;
	bool generated;			/* publishes generated columns */
	int64_t others;			/* tables in it that are not ours */
};

enum decide_publish {
	DECIDE_KEEP,
	DECIDE_WRITE,			/* run what was put into sql */
	DECIDE_REFUSE,			/* *f is set */
};
enum decide_publish decide_publication(const struct conndoc_source *want,
	const struct decide_table *t, const struct decide_publication *p,
	struct buf *sql, struct connfault *f);
/* Why it could not be written: 42501, else as the server says. */
void decide_publication_denied(const struct conndoc_source *want,
	const struct decide_table *t, const struct decide_publication *p,
	struct connfault *f);

/* ---- slot and pointer ---- */

struct decide_slot {
	struct span name;
	bool found, logical, temporary, two_phase, failover;
	struct span plugin, database;
	int active_pid;			/* 0 = free */
	struct span wal_status, invalidation;	/* empty = none */
	bool has_confirmed;
	uint64_t confirmed_lsn;
};

enum decide_slot_act {
	DECIDE_SLOT_REFUSE,		/* *f is set */
	DECIDE_SLOT_WAIT,		/* held by active_pid */
	DECIDE_SLOT_CREATE,		/* and a pointer */
	DECIDE_SLOT_ADOPT,		/* a pointer at its confirmed place */
	DECIDE_SLOT_USE,
	DECIDE_SLOT_AHEAD,		/* *f is set; unless the pointer moved */
};
/* p NULL: there is no pointer. */
enum decide_slot_act decide_slot(const struct decide_slot *s,
	struct span database, const struct pointer *p, struct span connector,
	struct connfault *f);
/* Is it one that a connector could have made here?  Else it is kept. */
int decide_slot_is_ours(const struct decide_slot *s, struct span database,
	struct connfault *f);

/* What IDENTIFY_SYSTEM says. */
struct decide_system {
	struct span id;
	uint32_t timeline;
	uint64_t lsn;
};
/* Does the pointer belong to this system, and to what is asked for? */
int decide_pointer(const struct pointer *p, const struct decide_system *sys,
	struct span slot, struct span publication, struct span connector,
	struct connfault *f);
/* Is the history of the server's timeline needed? */
bool decide_wants_history(const struct pointer *p,
	const struct decide_system *sys);
/* history: a timeline history file; empty when not wanted. */
int decide_timeline(const struct pointer *p, const struct decide_system *sys,
	struct span history, struct span connector, struct connfault *f);
/*
 * Where the copy is at in this table, is that a place by the key of today?
 * Else rows would be missing, and nobody would know.
 */
int decide_after(const struct pointer *p, const struct decide_table *t,
	struct span connector, struct arena *a, struct connfault *f);
/* Another cell wrote it, and nobody said what to do. */
int decide_cell_changed(const struct pointer *p, struct span connector,
	struct connfault *f);

/* requested_at later than resynced_at; either may be empty. */
bool decide_resync_due(struct span requested_at, struct span resynced_at);
/*
 * Of a pointer that may not parse: when its epoch answered a resync, so that
 * an old request does not pass for the fix of it.
 */
struct span decide_resynced_at(struct span json, struct arena *a);

#endif
