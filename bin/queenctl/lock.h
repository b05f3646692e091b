/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lease on a key/value row: taken by a put that expects no row, kept by puts
 * that expect the version of the last one, given back by a delete that does.
 * Whoever holds it is told by the row's value, so an answer that was lost on
 * the way is found out by the next request.
 */
#ifndef QUEENCTL_LOCK_H
#define QUEENCTL_LOCK_H

#include <stdint.h>

#include "buf.h"
#include "qid.h"

struct ctl;

enum { LOCK_NOTE = 256 };

struct lock {
	struct ctl *ctl;
	const char *ns, *name;
	int64_t ttl_ms;
	struct buf path;
	char holder[QID_TEXT_MAX];	/* who we are, in the row's value */
	const char *program;		/* of the command, for those who look */
	int64_t version;		/* of our row */
	int64_t token;			/* version it was taken with */
	int64_t ends_ms;		/* lock_now_ms: may be another's then */
	long status;			/* HTTP, of the last answer; 0 = none */
	char note[LOCK_NOTE];		/* why it is not certain */
};

enum lock_verdict {
	LOCK_MINE,
	LOCK_HELD,		/* another's; or ours no more */
	LOCK_UNSURE,		/* no answer, or a server's error: note */
	LOCK_REFUSED,		/* wrong name, not allowed: note */
};

/* A clock that goes on while the machine sleeps. */
int64_t lock_now_ms(void);
void lock_init(struct lock *l, struct ctl *c, const char *ns, const char *name,
	int64_t ttl_ms, const char *program);
void lock_fini(struct lock *l);
/* One request each, of timeout_ms at most. */
enum lock_verdict lock_take(struct lock *l, int64_t timeout_ms);
enum lock_verdict lock_renew(struct lock *l, int64_t timeout_ms);
/* LOCK_MINE = it was given back. */
enum lock_verdict lock_give(struct lock *l, int64_t timeout_ms);
/* Whether there is a row: LOCK_HELD, or LOCK_MINE = free to be taken. */
enum lock_verdict lock_look(struct lock *l, int64_t timeout_ms);
/* CTL_ code of the last refusal. */
int lock_code(const struct lock *l);

#endif
