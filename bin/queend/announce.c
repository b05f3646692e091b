/* SPDX-License-Identifier: Apache-2.0 */
/* Tells this process first, then the others. */
#include "announce.h"

#include "change.h"
#include "ctx.h"
#include "hint.h"
#include "pop.h"

static void
tell(struct ctx *x, enum hint_kind kind, int64_t queue_id, int64_t group_id,
	int64_t part_id)
{
	/* NULL while the parts are being set up */
	if (x->hint)
		hint_send(x->hint, kind, queue_id, group_id, part_id);
}

void
announce_messages(struct ctx *x, int64_t queue_id, int64_t part_id)
{
	if (x->changes)
		changes_heard(x->changes, queue_id, part_id);
	if (x->pops)
		pops_mark(x->pops, queue_id, part_id);
	tell(x, HINT_MESSAGES, queue_id, 0, part_id);
}

void
announce_released(
	struct ctx *x, int64_t queue_id, int64_t group_id, int64_t part_id)
{
	if (x->pops)
		pops_released(x->pops, queue_id, group_id, part_id);
	tell(x, HINT_RELEASED, queue_id, group_id, part_id);
}

void
announce_done(struct ctx *x, int64_t queue_id, int64_t group_id,
	int64_t part_id, int64_t lease_no)
{
	if (x->pops)
		pops_done(x->pops, queue_id, group_id, part_id, lease_no);
	tell(x, HINT_DONE, queue_id, group_id, part_id);
}

void
announce_moved(
	struct ctx *x, int64_t queue_id, int64_t group_id, int64_t part_id)
{
	if (x->pops)
		pops_moved(x->pops, queue_id, group_id, part_id);
	tell(x, HINT_MOVED, queue_id, group_id, part_id);
}

void
announce_catalog(struct ctx *x, int64_t queue_id)
{
	if (x->pops)
		pops_catalog(x->pops, queue_id);
	tell(x, HINT_CATALOG, queue_id, 0, 0);
}

void
announce_flags(struct ctx *x)
{
	tell(x, HINT_FLAGS, 0, 0, 0);
}
