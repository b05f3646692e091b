/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other processes do, learned in two ways: hints, and the change scan
 * that makes good for lost ones.  Once a second it reads the partitions
 * written since the scan before (less 3 s), the repair notes and the queue
 * catalogue, every 30 s the last 120 s again; a new LISTEN connection walks
 * every ring.
 */
#ifndef QUEEND_CHANGE_H
#define QUEEND_CHANGE_H

#include <stdint.h>

#include "cellscan.h"

struct changes;
struct ctx;

/* Dials the LISTEN connection (ctx.hint) and starts scanning. */
struct changes *changes_new(struct ctx *x);
void changes_free(struct changes *c);
/* A mark of this partition came by announcement or hint. */
void changes_heard(struct changes *c, int64_t queue_id, int64_t part_id);

void changes_stats(const struct changes *c, struct cellscan_stats *out);

#endif
