/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the pointer a place in this server's log?  And does it count at all: a
 * resync that was asked for takes its place, whatever it says.
 */
#include "conndoc.h"
#include "connchild.h"
#include "ctx.h"
#include "start_int.h"
#include "teardown.h"

/* ---- resync ---- */

static void
on_resync_slot(
	void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	struct connfault f;

	if (!start_has_slot(s, res, n, why))
		return;
	if (s->slot.found &&
		decide_slot_is_ours(&s->slot, s->server.database, &f) != 0)
		start_fail(s, &f);
	else
		teardown_slot(s, start_create);
}

static void
resync(struct start *s)
{
	s->resync = true;
	start_say(s, "connecting", "dropping the slot for a resync", 0);
	start_look(s, on_resync_slot);
}

static bool
of_another_cell(const struct start *s)
{
	return s->readable && s->pointer.cell[0] &&
	       !span_is(span_of(s->x->cell_tag), s->pointer.cell);
}

static bool
resync_due(struct start *s)
{
	struct span done = SPAN_ZERO;

	if (of_another_cell(s) &&
		conndoc_takeover_in(s->doc, span_of(s->x->cell_tag)) ==
			CONNDOC_RESET)
		return true;
	if (s->version)
		done = s->readable ? s->pointer.resynced_at
				   : decide_resynced_at(s->row, &s->arena);
	return decide_resync_due(s->doc->resync_requested_at, done);
}

bool
start_copies(struct start *s)
{
	if (resync_due(s))
		return true;
	return s->version ? s->readable && s->pointer.place.in_snapshot
			  : s->doc->source.snapshot == CONNDOC_INITIAL;
}

/* ---- the pointer ---- */

static void
judge_timeline(struct start *s, struct span history)
{
	struct connfault f;

	if (s->version && decide_timeline(&s->pointer, &s->system, history,
				  s->x->task->name, &f) != 0)
		start_fail(s, &f);
	else
		start_slot(s);
}

static void
on_history(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	struct span history = SPAN_ZERO;
	struct connfault f;

	if (!start_worked(s, why))
		return;
	if (catalog_history(res, n, &s->arena, &history, &f) != 0)
		start_fail(s, &f);
	else
		judge_timeline(s, history);
}

static int
judge_pointer(struct start *s, struct connfault *f)
{
	struct span name = s->x->task->name;

	if (!s->readable)
		return connfault_set(f, "pointer_corrupt", false,
			"the pointer cannot be read (%s): upgrade if a later "
			"version wrote it, else ask for a new copy with: "
			"queenctl connector resync %.*s",
			s->unreadable, SPAN_ARG(name));
	if (of_another_cell(s) &&
		conndoc_takeover_in(s->doc, span_of(s->x->cell_tag)) !=
			CONNDOC_ADOPT)
		return decide_cell_changed(&s->pointer, name, f);
	return decide_pointer(&s->pointer, &s->system, s->slot_name,
		s->publication_name, name, f);
}

static void
judge(struct start *s)
{
	struct connfault f;

	if (resync_due(s)) {
		resync(s);
	} else if (s->version && judge_pointer(s, &f) != 0) {
		start_fail(s, &f);
	} else if (s->version &&
		   decide_wants_history(&s->pointer, &s->system)) {
		catalog_history_sql(&s->sql, s->system.timeline);
		start_query(s, &s->link_repl, on_history);
	} else {
		judge_timeline(s, (struct span)SPAN_ZERO);
	}
}

/* ---- the replication link ---- */

static void
on_system(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	struct connfault f;

	if (!start_worked(s, why))
		return;
	if (catalog_system(res, n, &s->arena, &s->system, &f) != 0)
		start_fail(s, &f);
	else
		judge(s);
}

static void
on_repl_up(struct start *s)
{
	buf_puts(&s->sql, CATALOG_IDENTIFY);
	start_query(s, &s->link_repl, on_system);
}

void
start_identify(struct start *s)
{
	start_say(s, "connecting", "opening the replication link", 0);
	start_dial(s, &s->link_repl, PGLINK_REPLICATION, on_repl_up);
}
