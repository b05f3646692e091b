/* SPDX-License-Identifier: Apache-2.0 */
/* Moving a group's position: shared by cg, partition, replay and apply. */
#ifndef QUEENCTL_SEEK_H
#define QUEENCTL_SEEK_H

#include <stdbool.h>
#include <stdint.h>

#include "timearg.h"

struct client_reply;
struct ctl;

struct seek {
	const char *group, *queue;
	const char *partition;		/* NULL = all */
	struct timearg to;
};

/* Fills s->to; an exit code with the message printed when it is no target. */
int seek_target(struct seek *s, const char *to);
/* Sends it; the reply is the caller's to free. */
int seek_send(struct ctl *c, const struct seek *s, struct client_reply *r);

#endif
