/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress rows that another cell wrote: the cell was restored, and partitions
 * have other ids.  What the document asks for in this cell is done to all of
 * them in one transaction of the target, or the sink stops.
 */
#ifndef QUEEN_PGSINK_TAKEOVER_H
#define QUEEN_PGSINK_TAKEOVER_H

struct connfault;
struct ctx;
struct pglink;
struct takeover;

/* why NULL: no row of another cell is left. */
typedef void (*takeover_fn)(void *arg, const struct connfault *why);

/* k: in pipeline mode, outside of a transaction.  fn comes later, once. */
struct takeover *takeover_new(struct ctx *x, struct pglink *k,
	takeover_fn fn, void *arg);
/* When the link is gone, or fn came; within fn too. */
void takeover_free(struct takeover *t);
/* `cell_changed`: other is the tag that the row has. */
int takeover_refuse(const struct ctx *x, struct connfault *f,
	const char *other);

#endif
