/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait for work: parked without a connection, woken by hints,
 * and by one look per process and second at all queues somebody waits for.
 */
#ifndef QUEEN_OJS_WAIT_H
#define QUEEN_OJS_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct ctx;
struct hsrv_req;
struct waits;

enum { WAIT_MAX_MS = 5000 };
enum wait_kind { WAIT_JOBS, WAIT_EVENTS };

/* In the arena of the request, zeroed at first. */
struct wait {
	struct hsrv_req *req;
	enum wait_kind kind;
	/* ids of the queues; 0 = one that does not exist yet */
	const int64_t *queue_ids;
	size_t queues_n;
	int64_t deadline_ms;	/* monotonic */
	/* tries again; last: has to answer, whatever it finds */
	void (*again)(struct wait *w, bool last);

	TAILQ_ENTRY(wait) link;
	bool parked;
	bool missed;	/* a hint came while it was away */
};

struct waits *waits_new(struct ctx *x);
void waits_free(struct waits *ws);
/* Drain: all that is parked tries for the last time. */
void waits_drain(struct waits *ws);

/*
 * Before the first try: from here on a hint is not missed, also while the
 * request is in a call.  Ends with wait_end, or when the client is gone.
 */
void wait_begin(struct waits *ws, struct wait *w);
/*
 * Nothing was found: parks until a hint, a look, the deadline.  again() may
 * come in the next turn when something came meanwhile; after the deadline
 * or in a drain this must not be called: false, answer now.
 */
bool wait_park(struct waits *ws, struct wait *w);
/* more: there may be jobs left, for the next in line. */
void wait_end(struct waits *ws, struct wait *w, bool more);

/* Something came into a queue here: wakes, and tells the other processes. */
void waits_tell(struct waits *ws, enum wait_kind kind, int64_t queue_id);
/* A queue was made, dropped, paused or resumed. */
void waits_tell_queue(struct waits *ws, int64_t queue_id);
int waits_parked(const struct waits *ws);

#endif
