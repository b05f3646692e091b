/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Due work of the cell: retention, purge of what was deleted, cleanup of idle
 * partitions, old counters.  One process at a time does a cycle, held by a
 * claim row; each step is one bounded commit.
 */
#ifndef QUEEND_MAINT_H
#define QUEEND_MAINT_H

struct ctx;
struct maint;

struct maint *maint_new(struct ctx *x);
/* A claim in hand is left to its lease. */
void maint_free(struct maint *m);

#endif
