/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way to say that something changed: wakes what this process has
 * parked and hints the other processes.  Called after the commit, never
 * inside a data transaction.  Losing a hint costs latency only.
 */
#ifndef QUEEND_ANNOUNCE_H
#define QUEEND_ANNOUNCE_H

#include <stdint.h>

struct ctx;

/* Messages landed in a partition. */
void announce_messages(struct ctx *x, int64_t queue_id, int64_t part_id);
/*
 * Work of a group came back: nack, seek, lease end, group delete.
 * group_id 0 = every group, part_id 0 = every partition.
 */
void announce_released(struct ctx *x, int64_t queue_id, int64_t group_id,
	int64_t part_id);
/* A lease ended and left nothing to deliver; lease_no 0 = not known. */
void announce_done(struct ctx *x, int64_t queue_id, int64_t group_id,
	int64_t part_id, int64_t lease_no);
/* A cursor moved backwards or a start changed: walk the group's backlog. */
void announce_moved(struct ctx *x, int64_t queue_id, int64_t group_id,
	int64_t part_id);
/* A queue was created, configured or deleted. */
void announce_catalog(struct ctx *x, int64_t queue_id);
/* A flag of queen.flags was set. */
void announce_flags(struct ctx *x);

#endif
