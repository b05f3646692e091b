/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidate ring: which partitions of one (queue, group) may have work.  Pure
 * memory, no I/O; time is an argument (ms, any monotonic clock).  It may hold
 * too much, never too little: a partition leaves only when SQL found nothing
 * and no mark came since it was handed out, so no wake-up is lost.
 *
 *	idle	not tracked; costs nothing
 *	ready	may be handed out, first in first out
 *	flying	handed out once, until hot_end tells the outcome
 *	leased	waits for its time, or a release
 *	hidden	waits for its time, or 250 ms after a mark
 */
#ifndef QUEEN_HOT_H
#define QUEEN_HOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOT_MARK_MS = 250 };

enum hot_state { HOT_IDLE, HOT_READY, HOT_FLYING, HOT_LEASED, HOT_HIDDEN };

/* How a hand-out ended. */
enum hot_end {
	HOT_END_BACK, /* not looked at: keeps its place in the line */
	HOT_END_MORE, /* served, more is there: to the end of the line */
	HOT_END_LEASED, /* until the lease ends */
	HOT_END_HIDDEN, /* until it becomes visible */
	HOT_END_EMPTY, /* nothing there in a fresh snapshot */
	HOT_END_GONE, /* no such partition */
};

/* What hot_take found. */
enum hot_take {
	HOT_TAKE_NONE,
	HOT_TAKE_FRESH, /* something said that there is work */
	HOT_TAKE_PROBE, /* only its time was up */
};

struct hot;

struct hot *hot_new(void);
void hot_free(struct hot *h);

/* Each tells whether the partition became ready by it. */
/* Messages landed. */
bool hot_mark(struct hot *h, int64_t part, int64_t now_ms);
/* A lease ended and left work, or nobody knows. */
bool hot_release(struct hot *h, int64_t part);
/*
 * Lease `lease` ended and left nothing.  If it is the one known here, the
 * partition is forgotten unless marked meanwhile; else the word may be older
 * than the lease it meets, so it only lets the next mark wake the partition.
 */
bool hot_done(struct hot *h, int64_t part, int64_t lease);
/* Names the lease of one that just ended as LEASED; 0 = not known. */
void hot_lease(struct hot *h, int64_t part, int64_t lease);
/*
 * Doubts one that just ended as LEASED or HIDDEN: what was seen at asked, on a
 * clock of the caller's, may be over, and the word of it on its way.
 */
void hot_doubt(struct hot *h, int64_t part, uint64_t asked);
/* All leased and hidden ones at once. */
bool hot_release_all(struct hot *h);
/* Only the hidden ones, e.g. when a delay was changed. */
bool hot_unhide(struct hot *h);

/* Makes ready one whose time has come and names it; false: none left. */
bool hot_due(struct hot *h, int64_t now_ms, int64_t *part);
/* When the next one is due; INT64_MAX = never. */
int64_t hot_next_ms(const struct hot *h);

/* Hands out the one that waited longest; probes = also those only due. */
enum hot_take hot_take(struct hot *h, bool probes, int64_t *part);
/* The same for this one; unknown_too = also when it is idle. */
enum hot_take
hot_take_part(struct hot *h, int64_t part, bool unknown_too, bool probes);
/*
 * Hands out a doubted one that was seen at upto or before: hidden ones first,
 * the oldest first.
 */
bool hot_take_doubted(struct hot *h, uint64_t upto, int64_t *part);
/* The same for this one. */
bool hot_take_part_doubted(struct hot *h, int64_t part, uint64_t upto);
/* Ends a hand-out; until_ms for LEASED and HIDDEN.  True = ready again. */
bool hot_end(struct hot *h, int64_t part, enum hot_end end, int64_t until_ms,
	int64_t now_ms);

enum hot_state hot_state(const struct hot *h, int64_t part);
size_t hot_ready(const struct hot *h); /* without those only due */
size_t hot_probes(const struct hot *h); /* ready, but only due */
size_t hot_doubted(const struct hot *h);
size_t hot_flying(const struct hot *h);
size_t hot_count(const struct hot *h); /* all that are tracked */
/* Marks of the first n ready ones since they were last handed out. */
uint64_t hot_marks(const struct hot *h, size_t n);

#endif
