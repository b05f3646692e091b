/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server, slot and pointer.  A slot that is gone, invalid or elsewhere is never
 * made anew by itself: changes would be missing and nobody would know.
 */
#include "decide.h"

#include "arena.h"
#include "clk.h"
#include "connfault.h"
#include "jspan.h"
#include "pointer.h"
#include "wal.h"

enum { VERSION_MIN = 150000 };

/* The end of a sentence about what only a new copy mends. */
#define RESYNC "ask for a new copy with: queenctl connector resync %.*s"

/* ---- the server ---- */

int
decide_server(const struct decide_server *s, struct connfault *f)
{
	if (s->version < VERSION_MIN)
		return connfault_set(f, "version", false,
			"the server is PostgreSQL %d; upgrade it to 15 or "
			"later",
			s->version / 10000);
	if (!span_is(s->wal_level, "logical") &&
		!(s->on_demand && span_is(s->wal_level, "replica")))
		return connfault_set(f, "wal_level", false,
			"wal_level is %.*s; run ALTER SYSTEM SET wal_level = "
			"logical, then restart the server (a managed service "
			"has a parameter for it)",
			SPAN_ARG(s->wal_level));
	if (s->in_recovery)
		return connfault_set(f, "not_primary", true,
			"the server is a standby; set connection.host to the "
			"primary");
	return 0;
}

/* ---- the slot ---- */

static int
mismatch(const struct decide_slot *s, const char *is, struct span what,
	struct connfault *f)
{
	return connfault_set(f, "slot_mismatch", false,
		"the slot %.*s %s%.*s; set source.slot to another name, or "
		"drop it: SELECT pg_drop_replication_slot('%.*s')",
		SPAN_ARG(s->name), is, SPAN_ARG(what), SPAN_ARG(s->name));
}

int
decide_slot_is_ours(
	const struct decide_slot *s, struct span database, struct connfault *f)
{
	struct span none = SPAN_LIT("");

	if (!s->logical)
		return mismatch(s, "is a physical one", none, f);
	if (!span_is(s->plugin, "pgoutput"))
		return mismatch(s, "has the output plugin ", s->plugin, f);
	if (!span_eq(s->database, database))
		return mismatch(s, "belongs to the database ", s->database, f);
	if (s->temporary)
		return mismatch(s, "is a temporary one", none, f);
	if (s->two_phase)
		return mismatch(s, "decodes two-phase commits early", none, f);
	return 0;
}

/* What keeps it from happening again. */
static const char *
remedy(const struct decide_slot *s)
{
	if (span_is(s->invalidation, "idle_timeout"))
		return "raise idle_replication_slot_timeout";
	if (span_is(s->invalidation, "wal_level_insufficient"))
		return "keep wal_level at logical";
	if (span_is(s->invalidation, "rows_removed"))
		return "set hot_standby_feedback on the standby";
	return "raise max_slot_wal_keep_size";
}

static enum decide_slot_act
invalidated(
	const struct decide_slot *s, struct span connector, struct connfault *f)
{
	struct span why = s->invalidation.n ? s->invalidation
			  : s->wal_status.n ? s->wal_status
					    : SPAN_LIT("it has no position");

	connfault_set(f, "slot_invalidated", false,
		"the slot %.*s can not be read any more (%.*s): %s, then " RESYNC,
		SPAN_ARG(s->name), SPAN_ARG(why), remedy(s),
		SPAN_ARG(connector));
	return DECIDE_SLOT_REFUSE;
}

static enum decide_slot_act
absent(const struct decide_slot *s, const struct pointer *p,
	struct span connector, struct connfault *f)
{
	char at[WAL_LSN_MAX];

	if (!p)
		return DECIDE_SLOT_CREATE;
	connfault_set(f, "slot_lost", false,
		"the slot %.*s is gone, and with it the changes since %s; " RESYNC,
		SPAN_ARG(s->name), wal_lsn_text(p->place.lsn, at),
		SPAN_ARG(connector));
	return DECIDE_SLOT_REFUSE;
}

enum decide_slot_act
decide_slot(const struct decide_slot *s, struct span database,
	const struct pointer *p, struct span connector, struct connfault *f)
{
	char slot_at[WAL_LSN_MAX], at[WAL_LSN_MAX];

	if (!s->found)
		return absent(s, p, connector, f);
	if (decide_slot_is_ours(s, database, f) != 0)
		return DECIDE_SLOT_REFUSE;
	if (s->active_pid)
		return DECIDE_SLOT_WAIT;
	if (s->invalidation.n || span_is(s->wal_status, "lost") ||
		!s->has_confirmed)
		return invalidated(s, connector, f);
	if (!p)
		return DECIDE_SLOT_ADOPT;
	if (s->confirmed_lsn <= p->place.lsn)
		return DECIDE_SLOT_USE;
	connfault_set(f, "slot_ahead", false,
		"the slot %.*s is confirmed up to %s, past the pointer %s: "
		"this cell was restored from a backup, or something else has "
		"read the slot (give every connector its own); " RESYNC,
		SPAN_ARG(s->name), wal_lsn_text(s->confirmed_lsn, slot_at),
		wal_lsn_text(p->place.lsn, at), SPAN_ARG(connector));
	return DECIDE_SLOT_AHEAD;
}

/* ---- the pointer ---- */

int
decide_cell_changed(
	const struct pointer *p, struct span connector, struct connfault *f)
{
	return connfault_set(f, "cell_changed", false,
		"the pointer was written by the cell %s, before a restore; go "
		"on from it with: queenctl connector adopt %.*s, or copy the "
		"tables again with: queenctl connector reset %.*s --yes",
		p->cell, SPAN_ARG(connector), SPAN_ARG(connector));
}

int
decide_pointer(const struct pointer *p, const struct decide_system *sys,
	struct span slot, struct span publication, struct span connector,
	struct connfault *f)
{
	if (!span_eq(p->system_id, sys->id))
		return connfault_set(f, "system_changed", false,
			"the pointer belongs to the database system %.*s, the "
			"server is %.*s; set connection.host back, or " RESYNC,
			SPAN_ARG(p->system_id), SPAN_ARG(sys->id),
			SPAN_ARG(connector));
	if (!span_eq(p->slot, slot))
		return connfault_set(f, "slot_changed", false,
			"the pointer belongs to the slot %.*s; set source.slot "
			"back to it, or " RESYNC,
			SPAN_ARG(p->slot), SPAN_ARG(connector));
	if (p->place.in_txn && p->publication.n &&
		!span_eq(p->publication, publication))
		return connfault_set(f, "slot_changed", false,
			"the pointer is inside a large transaction that is "
			"counted by the publication %.*s; set "
			"source.publication back to it until the transaction "
			"is through, or " RESYNC,
			SPAN_ARG(p->publication), SPAN_ARG(connector));
	return 0;
}

/* ---- a copy that goes on ---- */

static size_t
parts_n(struct span code)
{
	size_t n = 1;

	for (size_t i = 0; i < code.n; i++)
		n += code.p[i] == '\0';
	return n;
}

int
decide_after(const struct pointer *p, const struct decide_table *t,
	struct span connector, struct arena *a, struct connfault *f)
{
	const struct pointer_place *at = &p->place;
	struct pointer_key now = decide_pointer_key(t, a), was = { 0 };

	if (!at->in_snapshot || !at->has_after)
		return 0;
	if (p->keys)
		was = p->keys[at->table];
	if ((was.columns.n > 0 ? span_eq(was.columns, now.columns)
			       : parts_n(at->after) == parts_n(now.columns)) &&
		(was.types.n == 0 || span_eq(was.types, now.types)))
		return 0;
	return connfault_set(f, "relation_changed", false,
		"the key of %.*s changed while the table is being copied; " RESYNC,
		SPAN_ARG(p->tables[at->table]), SPAN_ARG(connector));
}

/* ---- timelines ---- */

bool
decide_wants_history(const struct pointer *p, const struct decide_system *sys)
{
	return p->timeline && p->timeline != sys->timeline && sys->timeline > 1;
}

/* The next word of a line, and what is behind it. */
static struct span
word(struct span *line)
{
	struct span w = { .p = line->p };

	while (line->n && (*line->p == ' ' || *line->p == '\t'))
		*line = span_make(line->p + 1, line->n - 1);
	w.p = line->p;
	while (line->n && *line->p != ' ' && *line->p != '\t') {
		*line = span_make(line->p + 1, line->n - 1);
		w.n++;
	}
	return w;
}

/* Where the server's history left this timeline. */
static bool
left_at(struct span history, uint32_t timeline, uint64_t *lsn)
{
	while (history.n) {
		const char *nl = memchr(history.p, '\n', history.n);
		size_t n = nl ? (size_t)(nl - history.p) : history.n;
		struct span line = span_make(history.p, n);
		struct span tli = word(&line), at = word(&line);
		int64_t number;

		if (span_i64(tli, &number) && number == timeline &&
			wal_lsn_parse(at, lsn))
			return true;
		n += nl ? 1 : 0;
		history = span_make(history.p + n, history.n - n);
	}
	return false;
}

int
decide_timeline(const struct pointer *p, const struct decide_system *sys,
	struct span history, struct span connector, struct connfault *f)
{
	char at[WAL_LSN_MAX], end_at[WAL_LSN_MAX];
	uint64_t end = sys->lsn;

	if (p->timeline && p->timeline != sys->timeline &&
		!left_at(history, p->timeline, &end))
		return connfault_set(f, "timeline_diverged", false,
			"the server is on timeline %u, whose history does not "
			"hold timeline %u of the pointer: it went another "
			"way; " RESYNC,
			sys->timeline, p->timeline, SPAN_ARG(connector));
	if (p->place.lsn <= end && p->place.lsn <= sys->lsn)
		return 0;
	if (end > sys->lsn)
		end = sys->lsn;
	return connfault_set(f, "timeline_diverged", false,
		"the pointer %s is beyond %s, where the server went another "
		"way without having all that was read from it; set "
		"synchronized_standby_slots on the primary, and " RESYNC,
		wal_lsn_text(p->place.lsn, at), wal_lsn_text(end, end_at),
		SPAN_ARG(connector));
}

/* ---- resync ---- */

bool
decide_resync_due(struct span requested_at, struct span resynced_at)
{
	int64_t asked, done;

	if (!requested_at.n || !clk_parse_iso(requested_at, &asked))
		return false;
	return !resynced_at.n || !clk_parse_iso(resynced_at, &done) ||
	       asked > done;
}

struct span
decide_resynced_at(struct span json, struct arena *a)
{
	struct span key, text;
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, json);
	if (jspan_peek(&j) != JSPAN_OBJECT)
		return (struct span)SPAN_ZERO;
	jspan_enter_object(&j);
	while (jspan_next_key(&j, a, &key) && jspan_take(&j, &v))
		if (span_is(key, "resyncedAt") && jspan_text(&v, a, &text))
			return text;
	return (struct span)SPAN_ZERO;
}
