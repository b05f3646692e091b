/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which messages of a batch go into the next transaction.  All at once at
 * first; after a data error in ever smaller pieces, in order, down to the one
 * message that cannot be applied, which is tried again and then filed as a
 * dead letter, whereupon the rest of its partition is left alone.  Pure: it
 * is told how each transaction ended and remembers what was committed, also
 * over a loss of the connection.
 */
#ifndef QUEEN_PGSINK_ISOLATE_H
#define QUEEN_PGSINK_ISOLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct feed_batch;
struct feed_result;
struct isolate;

enum { ISOLATE_TEXT_MAX = 2000 };	/* characters of what is filed */

/* A range of the batch's messages: one transaction with its progress rows. */
struct isolate_piece {
	size_t first, n;
	int64_t delay_ms;	/* to wait before it */
	bool alone;		/* isolating: nothing is pipelined */
};

enum isolate_end {
	ISOLATE_COMMITTED,
	ISOLATE_DATA,		/* what data broke; rolled back */
	ISOLATE_TRANSIENT,	/* rolled back: the same piece again */
	ISOLATE_ENVIRONMENT,	/* so too, after a look at the table */
};

/* Of ISOLATE_DATA. */
struct isolate_culprit {
	/*
	 * The messages of the statement that failed, as a range of the batch's;
	 * n = 0: unknown (it failed at COMMIT).
	 */
	size_t first, n;
	bool unasked;		/* unreadable payload, no server said it */
	struct span text;	/* `SQLSTATE: message (detail)`, or
				 * `payload: reason`; cut when too long */
};

/* The batch is borrowed: its parts and their numbers of messages. */
struct isolate *isolate_new(const struct feed_batch *b, int64_t max_attempts);
void isolate_free(struct isolate *s);

/*
 * The piece to run now; the same one until isolate_ended tells of it.  False:
 * the batch is through.
 */
bool isolate_next(const struct isolate *s, struct isolate_piece *out);
/* culprit: with ISOLATE_DATA alone, else NULL. */
void isolate_ended(struct isolate *s, enum isolate_end end,
	const struct isolate_culprit *culprit);
/*
 * What became of each part so far, one per part: also of a batch that is not
 * through.  Borrowed, valid until the next call or isolate_free.
 */
const struct feed_result *isolate_results(struct isolate *s);

/*
 * What a failed statement means.  own: it was a message's own, or COMMIT; else
 * BEGIN, a prepare or a statement of the progress table, which never are a
 * matter of data.  sqlstate "" or NULL: the link broke.
 */
enum isolate_end isolate_class(const char *sqlstate, bool own);

#endif
