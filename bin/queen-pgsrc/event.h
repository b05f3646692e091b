/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a change is in the queue: the events it becomes, their JSON, their
 * ids.  Pure: bytes depend on the WAL and the shape alone, so that a change
 * seen again is the same message again.
 */
#ifndef QUEEN_PGSRC_EVENT_H
#define QUEEN_PGSRC_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"
#include "tuple.h"

struct buf;
struct err;
struct pgoutput;
struct pgoutput_truncate;
struct shape;

/* Where a change happened. */
struct event_at {
	uint64_t lsn;		/* commit record, or the high watermark */
	int64_t at_us;		/* commit, or when the chunk was read */
	uint64_t seq;
	uint32_t xid;		/* unless it comes from a snapshot */
	bool snapshot;		/* no xid; ids have an `s` */
};

struct event {
	char op;			/* c u d r */
	const struct tuple *key;	/* the row whose key and partition */
	const struct tuple *after;	/* NULL = null */
	const struct tuple *before;	/* NULL = null */
	bool before_is_key;		/* of before, the key columns alone */
};

/*
 * The one or two events of an insert, update or delete; two when the row
 * moves to another partition, old one first.  Fills in what FULL and the old
 * key know of unchanged columns, in the message itself.  0: ERR_IO, the
 * message does not fit the shape.
 */
size_t event_plan(const struct shape *s, struct pgoutput *m, struct event ev[2],
	struct err *e) __attribute__((warn_unused_result, nonnull));
/*
 * Before event_plan: must unchanged columns be read back, because the key
 * changed?  Then put what the table has into m's new row, or leave it; its key
 * is whole by now.
 */
bool event_wants_row(const struct shape *s, struct pgoutput *m);

/* After event_plan: does the row go on under another key? */
bool event_moves_key(const struct shape *s, const struct pgoutput *m);

void event_write(struct buf *b, const struct shape *s, const struct event *ev,
	const struct event_at *at);
/*
 * A fill of a snapshot: key and the columns whose bit is set in `columns`,
 * the others are named unchanged.
 */
void event_write_fill(struct buf *b, const struct shape *s,
	const struct tuple *row, const uint64_t *columns,
	const struct event_at *at);
void event_write_truncate(struct buf *b, const struct span *tables, size_t n,
	const struct pgoutput_truncate *t, const struct event_at *at);

/* `pg:<epoch>:…`; nth counts the events of one change from 0. */
void event_id(struct buf *b, const char *epoch, const struct event_at *at,
	size_t nth);
void event_fill_id(struct buf *b, const char *epoch, const struct event_at *at);

/* UTC with microseconds; any year. */
void event_time(struct buf *b, int64_t at_us);

#endif
