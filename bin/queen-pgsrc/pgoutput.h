/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of PostgreSQL's pgoutput plugin, protocol version 1, text values.
 * A message is consumed exactly or refused: every count is checked against
 * the bytes that are left before anything is allocated, a byte too many is as
 * wrong as one too few, names and values are UTF-8.  Spans borrow from the
 * message, arrays live in the arena.
 */
#ifndef QUEEN_PGSRC_PGOUTPUT_H
#define QUEEN_PGSRC_PGOUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"
#include "tuple.h"

struct arena;
struct err;

enum pgoutput_kind {
	PGOUTPUT_OTHER,		/* a tag we do not know, not looked into */
	PGOUTPUT_BEGIN, PGOUTPUT_COMMIT, PGOUTPUT_ORIGIN,
	PGOUTPUT_RELATION, PGOUTPUT_TYPE,
	PGOUTPUT_INSERT, PGOUTPUT_UPDATE, PGOUTPUT_DELETE, PGOUTPUT_TRUNCATE,
	PGOUTPUT_MESSAGE,
};

struct pgoutput_begin {
	uint64_t final_lsn;	/* of the commit record */
	int64_t at_us;		/* commit time, since 1970 */
	uint32_t xid;
};

struct pgoutput_commit {
	uint64_t commit_lsn, end_lsn;
	int64_t at_us;
};

struct pgoutput_origin {
	uint64_t lsn;
	struct span name;
};

struct pgoutput_column {
	struct span name;
	uint32_t type_oid;
	int32_t typmod;
	bool key;		/* part of the replica identity */
};

struct pgoutput_relation {
	uint32_t oid;
	struct span schema, name;	/* schema never empty */
	char identity;			/* relreplident: d n f i */
	struct pgoutput_column *columns;
	size_t n;
};

struct pgoutput_type {
	uint32_t oid;
	struct span schema, name;
};

enum pgoutput_old {
	PGOUTPUT_OLD_NONE,
	PGOUTPUT_OLD_KEY,	/* key columns; the others read NULL */
	PGOUTPUT_OLD_ROW,	/* replica identity FULL */
};

/* Insert, update or delete. */
struct pgoutput_change {
	uint32_t relation;
	enum pgoutput_old old_kind;
	struct tuple old, new;	/* new is absent for a delete */
};

struct pgoutput_truncate {
	uint32_t *relations;
	size_t n;
	bool cascade, restart_identity;
};

struct pgoutput_message {
	bool transactional;
	uint64_t lsn;
	struct span prefix, content;
};

struct pgoutput {
	enum pgoutput_kind kind;
	union {
		struct pgoutput_begin begin;
		struct pgoutput_commit commit;
		struct pgoutput_origin origin;
		struct pgoutput_relation relation;
		struct pgoutput_type type;
		struct pgoutput_change change;
		struct pgoutput_truncate truncate;
		struct pgoutput_message message;
	};
};

/* ERR_IO, with tag and byte offset in the text, when it is malformed. */
int pgoutput_parse(struct span data, struct arena *a, struct pgoutput *m,
	struct err *e) __attribute__((warn_unused_result, nonnull));

#endif
