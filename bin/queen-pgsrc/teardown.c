/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a slot.  Its session is ended only here, where whoever asked has
 * given the slot up: everywhere else one waits for it.
 */
#include "teardown.h"

#include "conndoc.h"
#include "connchild.h"
#include "ctx.h"
#include "log.h"
#include "start_int.h"

enum { DROP_TRIES = 20, DROP_WAIT_MS = 250 };

/* ---- the slot ---- */

static void drop(struct start *s);

static void
on_ended(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	struct connfault f;

	(void)res;
	(void)n;
	if (!why) {
		start_after(s, DROP_WAIT_MS, drop);
		return;
	}
	f = *why;
	if (connfault_is(why, "42501"))
		connfault_set(&f, "postgres", false,
			"%s: another role's session uses the slot; run SELECT "
			"pg_terminate_backend(active_pid) FROM "
			"pg_replication_slots WHERE slot_name = '%.*s'",
			why->text, SPAN_ARG(s->slot_name));
	start_fail(s, &f);
}

static void
on_dropped(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;

	(void)res;
	(void)n;
	if (!why) {
		s->dropped(s);
	} else if (connfault_is(why, "55006") && ++s->drops < DROP_TRIES) {
		catalog_end_user_sql(&s->sql, s->slot_name);
		start_query(s, &s->link_sql, on_ended);
	} else {
		start_fail(s, why);
	}
}

static void
drop(struct start *s)
{
	catalog_drop_slot_sql(&s->sql, s->slot_name);
	start_query(s, &s->link_sql, on_dropped);
}

void
teardown_slot(struct start *s, void (*done)(struct start *s))
{
	s->drops = 0;
	s->dropped = done;
	drop(s);
}

/* ---- a deletion ---- */

static void
on_forgotten(struct start *s, const struct cellkv_row *row)
{
	/* gone already is as good: a lost answer of an earlier try */
	start_answer(s,
		row->applied || !row->version ? START_TORN_DOWN : START_FENCED,
		NULL);
}

static void
forget_pointer(struct start *s)
{
	if (s->version)
		start_delete(s, s->version, on_forgotten);
	else
		start_answer(s, START_TORN_DOWN, NULL);
}

static void
on_unpublished(
	void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	struct connfault f;

	(void)res;
	(void)n;
	if (!why) {
		forget_pointer(s);
		return;
	}
	f = *why;
	if (connfault_is(why, "42501"))
		connfault_set(&f, "publication", false,
			"%s: run DROP PUBLICATION \"%.*s\" as its owner",
			why->text, SPAN_ARG(s->publication_name));
	start_fail(s, &f);
}

static void
on_for_all(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;

	if (!start_worked(s, why))
		return;
	if (catalog_number(res, n)) {
		forget_pointer(s);
		return;
	}
	catalog_drop_publication_sql(&s->sql, s->publication_name);
	start_query(s, &s->link_sql, on_unpublished);
}

static void
unpublish(struct start *s)
{
	if (!s->doc->source.manage_publication) {
		forget_pointer(s);
		return;
	}
	start_say(s, "connecting", "dropping the publication", 0);
	catalog_for_all_sql(&s->sql, s->publication_name);
	start_query(s, &s->link_sql, on_for_all);
}

/* Who reads from a slot has a pointer: this connector never did. */
static bool
is_anothers(const struct start *s)
{
	return s->slot.found && s->slot.active_pid && s->slot.has_confirmed &&
	       !s->version;
}

static void
on_slot(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	struct connfault f;

	if (!start_has_slot(s, res, n, why))
		return;
	if (is_anothers(s)) {
		log_line(LOG_WARN, "source",
			"the slot is another's and left as it is",
			"connector=%.*s pid=%d", SPAN_ARG(s->x->task->name),
			s->slot.active_pid);
		forget_pointer(s);
		return;
	}
	if (!s->slot.found ||
		decide_slot_is_ours(&s->slot, s->server.database, &f) == 0) {
		teardown_slot(s, unpublish);
		return;
	}
	log_line(LOG_WARN, "source", "the slot is left as it is", "reason=%s",
		log_quote(f.text));
	unpublish(s);
}

void
teardown(struct start *s)
{
	struct connfault f;

	if (s->server.in_recovery) {
		decide_server(&s->server, &f);
		start_fail(s, &f);
		return;
	}
	if (!s->doc->drop_slot) {
		forget_pointer(s);
		return;
	}
	start_say(s, "connecting", "dropping the slot", 0);
	start_look(s, on_slot);
}
