/* SPDX-License-Identifier: Apache-2.0 */
/* What a source leaves behind in its database, removed. */
#ifndef QUEEN_PGSRC_TEARDOWN_H
#define QUEEN_PGSRC_TEARDOWN_H

struct start;

/*
 * Drops the slot, ending the session that uses it if need be; done when there
 * is none.  Only for one that is ours, by whoever holds the lease.
 */
void teardown_slot(struct start *s, void (*done)(struct start *s));
/* Slot, managed publication, pointer; answers START_TORN_DOWN. */
void teardown(struct start *s);

#endif
