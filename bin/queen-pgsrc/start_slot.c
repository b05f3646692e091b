/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slot: looked at until nobody holds it, made when there is none.  Making
 * one waits for every transaction that runs, maybe for hours; a second session
 * looks whom it waits for.  Closing the first ends the wait, and what is half
 * made goes with it.
 */
#include "conndoc.h"
#include "connchild.h"
#include "ctx.h"
#include "start_int.h"

enum { LOOK_MS = 2000, PATIENCE_MS = 500, WATCH_MS = 2000 };

#define CREATING "creating the slot"
#define HELD_UP "creating the slot, which waits for a running transaction"
#define PREPARED                                                               \
	"creating the slot, which waits for a prepared transaction: see "      \
	"pg_prepared_xacts"

/* ---- whom a creation waits for ---- */

static void
on_blocker(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	int pid = why ? 0 : catalog_number(res, n);

	start_say(s, "connecting",
		pid > 0   ? HELD_UP
		: pid < 0 ? PREPARED
			  : CREATING,
		pid > 0 ? pid : 0);
	loop_timer_start(&s->watch, WATCH_MS);
}

static void
look_on(struct start *s)
{
	catalog_blocker_sql(&s->sql, s->sql_pid);
	start_query(s, &s->link_watch, on_blocker);
}

void
start_watch(void *arg)
{
	struct start *s = arg;

	if (!s->link_watch.k)
		start_dial(s, &s->link_watch, PGLINK_SQL, look_on);
	else if (pglink_is_up(s->link_watch.k))
		look_on(s);
}

/* ---- creation ---- */

static void
denied(struct start *s, const struct connfault *why)
{
	struct connfault f;

	connfault_set(&f, why->code, why->retryable,
		"%.800s; run ALTER ROLE \"%.*s\" REPLICATION, or what a managed "
		"service has for it",
		why->text, SPAN_ARG(s->doc->conn.user));
	start_fail(s, &f);
}

static void
on_created(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	struct connfault f;
	uint64_t lsn;

	loop_timer_stop(&s->watch);
	start_hang_up(&s->link_watch);
	if (connfault_is(why, "42710"))
		start_answer(s, START_FENCED, NULL);
	else if (connfault_is(why, "42501"))
		denied(s, why);
	else if (!start_worked(s, why))
		return;
	else if (catalog_created_lsn(res, n, &lsn, &f) != 0)
		start_fail(s, &f);
	else
		start_fresh(s, lsn);
}

void
start_create(struct start *s)
{
	start_say(s, "connecting", CREATING, 0);
	s->slot.failover = s->server.version >= CATALOG_FAILOVER_VERSION;
	catalog_create_slot_sql(&s->sql, s->slot_name, s->server.version);
	start_query(s, &s->link_sql, on_created);
	loop_timer_start(&s->watch, PATIENCE_MS);
}

/* ---- the one that is there ---- */

void
start_look(struct start *s, pglink_fn fn)
{
	catalog_slot_sql(&s->sql, s->slot_name);
	start_query(s, &s->link_sql, fn);
}

bool
start_has_slot(struct start *s, PGresult *const *res, int n,
	const struct connfault *why)
{
	struct connfault f;

	if (!start_worked(s, why))
		return false;
	if (catalog_slot(res, n, s->slot_name, &s->arena, &s->slot, &f) == 0)
		return true;
	start_fail(s, &f);
	return false;
}

/* Confirmed past our pointer: is it another owner's by now? */
static void
on_again(struct start *s, const struct cellkv_row *row)
{
	struct connfault f;

	if (row->version != s->version) {
		start_answer(s, START_FENCED, NULL);
		return;
	}
	decide_slot(&s->slot, s->server.database, &s->pointer, s->x->task->name,
		&f);
	start_fail(s, &f);
}

static void
on_slot(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	struct connfault f;

	if (!start_has_slot(s, res, n, why))
		return;
	switch (decide_slot(&s->slot, s->server.database,
		s->version ? &s->pointer : NULL, s->x->task->name, &f)) {
	case DECIDE_SLOT_REFUSE:
		start_fail(s, &f);
		break;
	case DECIDE_SLOT_WAIT:
		start_say(s, "waiting_for_slot", "waiting for the slot",
			s->slot.active_pid);
		start_after(s, LOOK_MS, start_slot);
		break;
	case DECIDE_SLOT_CREATE:
		start_create(s);
		break;
	case DECIDE_SLOT_ADOPT:
		start_fresh(s, s->slot.confirmed_lsn);
		break;
	case DECIDE_SLOT_USE:
		start_use(s);
		break;
	case DECIDE_SLOT_AHEAD:
		start_settle(s, on_again);
		break;
	}
}

void
start_slot(struct start *s)
{
	start_look(s, on_slot);
}
