/* SPDX-License-Identifier: Apache-2.0 */
/* A session of the sink with its target, as setup and workers open it. */
#ifndef QUEEN_PGSINK_SESSION_H
#define QUEEN_PGSINK_SESSION_H

#include "buf.h"
#include "pglink.h"

struct connfault;
struct ctx;

/* Embedded; zeroed is closed. */
struct session {
	struct pglink *link;
	struct buf password;	/* clear, until the link is up */
	char idle[64];
	const char *settings[4];
	pglink_up_fn on_up;
	pglink_end_fn on_end;
	void *arg;
};

/*
 * Dials in pipeline mode; who: `setup` or a worker's number, part of the
 * application name.  on_end: only session_close is left to do.  -1: `unseal`.
 */
int session_open(struct session *s, struct ctx *x, const char *who,
	pglink_up_fn on_up, pglink_end_fn on_end, void *arg,
	struct connfault *f) __attribute__((warn_unused_result));
/* Nothing in flight is called back. */
void session_close(struct session *s);

#endif
