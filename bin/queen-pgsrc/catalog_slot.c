/* SPDX-License-Identifier: Apache-2.0 */
/* Server, slot and what the replication link tells. */
#include "arena.h"
#include "buf.h"
#include "catalog.h"
#include "catalog_int.h"
#include "connfault.h"
#include "pgquote.h"
#include "pgtext.h"
#include "wal.h"

/* ---- the server ---- */

const char *const catalog_server_sql =
	"select pg_catalog.current_setting('server_version_num'), "
	"coalesce(pg_catalog.current_setting('effective_wal_level', true), "
	"pg_catalog.current_setting('wal_level')), "
	"pg_catalog.current_setting('effective_wal_level', true) is not null, "
	"pg_catalog.pg_is_in_recovery(), pg_catalog.current_database(), "
	"pg_catalog.pg_backend_pid()";

int
catalog_server(PGresult *const *res, int n, struct arena *a,
	struct decide_server *s, int *pid, struct connfault *f)
{
	if (!catalog_shape(res, n, 0, 6, f))
		return -1;
	*s = (struct decide_server){
		.version = (int)pgtext_i64(res[0], 0, 0),
		.wal_level = pgtext_dup(res[0], 0, 1, a),
		.on_demand = pgtext_bool(res[0], 0, 2),
		.in_recovery = pgtext_bool(res[0], 0, 3),
		.database = pgtext_dup(res[0], 0, 4, a),
	};
	*pid = (int)pgtext_i64(res[0], 0, 5);
	return 0;
}

/* ---- the slot ---- */

void
catalog_slot_sql(struct buf *b, struct span slot)
{
	buf_puts(b,
		"select s.slot_type = 'logical', s.temporary, s.two_phase, "
		"coalesce(pg_catalog.to_jsonb(s) ->> 'failover', 'false') = "
		"'true', s.plugin, s.database, s.active_pid, s.wal_status, "
		"pg_catalog.to_jsonb(s) ->> 'invalidation_reason', "
		"s.confirmed_flush_lsn from pg_catalog.pg_replication_slots s "
		"where s.slot_name = ");
	pgquote_text(b, slot);
}

int
catalog_slot(PGresult *const *res, int n, struct span slot, struct arena *a,
	struct decide_slot *s, struct connfault *f)
{
	*s = (struct decide_slot){ .name = slot };
	if (!catalog_shape(res, n, 0, 10, f))
		return -1;
	if (PQntuples(res[0]) == 0)
		return 0;
	s->found = true;
	s->logical = pgtext_bool(res[0], 0, 0);
	s->temporary = pgtext_bool(res[0], 0, 1);
	s->two_phase = pgtext_bool(res[0], 0, 2);
	s->failover = pgtext_bool(res[0], 0, 3);
	s->plugin = pgtext_dup(res[0], 0, 4, a);
	s->database = pgtext_dup(res[0], 0, 5, a);
	s->active_pid = (int)pgtext_i64(res[0], 0, 6);
	s->wal_status = pgtext_dup(res[0], 0, 7, a);
	s->invalidation = pgtext_dup(res[0], 0, 8, a);
	s->has_confirmed =
		wal_lsn_parse(pgtext_get(res[0], 0, 9), &s->confirmed_lsn);
	return 0;
}

void
catalog_both_sql(struct buf *b, struct span slot, struct span publication)
{
	buf_puts(b, "select from pg_catalog.pg_publication p, "
		    "pg_catalog.pg_replication_slots s where p.pubname = ");
	pgquote_text(b, publication);
	buf_puts(b, " and s.slot_name = ");
	pgquote_text(b, slot);
}

void
catalog_create_slot_sql(struct buf *b, struct span slot, int version)
{
	buf_puts(b, "select lsn from "
		    "pg_catalog.pg_create_logical_replication_slot(");
	pgquote_text(b, slot);
	buf_printf(b, ", 'pgoutput', false, false%s)",
		version >= CATALOG_FAILOVER_VERSION ? ", true" : "");
}

int
catalog_created_lsn(
	PGresult *const *res, int n, uint64_t *lsn, struct connfault *f)
{
	if (!catalog_shape(res, n, 0, 1, f))
		return -1;
	if (PQntuples(res[0]) == 1 &&
		wal_lsn_parse(pgtext_get(res[0], 0, 0), lsn))
		return 0;
	return connfault_set(f, "io", true,
		"the server does not say where the new slot begins");
}

void
catalog_drop_slot_sql(struct buf *b, struct span slot)
{
	buf_puts(b,
		"select pg_catalog.pg_drop_replication_slot(s.slot_name) from "
		"pg_catalog.pg_replication_slots s where s.slot_name = ");
	pgquote_text(b, slot);
}

void
catalog_end_user_sql(struct buf *b, struct span slot)
{
	buf_puts(b,
		"select pg_catalog.pg_terminate_backend(s.active_pid) from "
		"pg_catalog.pg_replication_slots s where s.active_pid is not "
		"null and s.slot_name = ");
	pgquote_text(b, slot);
}

/* ---- the publication's end ---- */

void
catalog_for_all_sql(struct buf *b, struct span publication)
{
	buf_puts(b,
		"select p.puballtables::int from pg_catalog.pg_publication p "
		"where p.pubname = ");
	pgquote_text(b, publication);
}

void
catalog_drop_publication_sql(struct buf *b, struct span publication)
{
	buf_puts(b, "drop publication if exists ");
	pgquote_ident(b, publication);
}

/* ---- who holds a creation up ---- */

/* A prepared transaction has no process: the server says 0. */
void
catalog_blocker_sql(struct buf *b, int pid)
{
	buf_printf(b,
		"select case x.pid when 0 then -1 else x.pid end"
		" from pg_catalog.unnest("
		"pg_catalog.pg_blocking_pids(%d)) x(pid) limit 1",
		pid);
}

int
catalog_number(PGresult *const *res, int n)
{
	if (n < 1 || PQresultStatus(res[0]) != PGRES_TUPLES_OK ||
		PQntuples(res[0]) != 1 || PQnfields(res[0]) != 1)
		return 0;
	return (int)pgtext_i64(res[0], 0, 0);
}

/* ---- the replication link ---- */

int
catalog_system(PGresult *const *res, int n, struct arena *a,
	struct decide_system *s, struct connfault *f)
{
	if (!catalog_shape(res, n, 0, 3, f))
		return -1;
	s->id = pgtext_dup(res[0], 0, 0, a);
	s->timeline = (uint32_t)pgtext_i64(res[0], 0, 1);
	if (PQntuples(res[0]) == 1 && s->timeline > 0 &&
		wal_lsn_parse(pgtext_get(res[0], 0, 2), &s->lsn))
		return 0;
	return connfault_set(
		f, "io", true, "the server does not say which system it is");
}

void
catalog_history_sql(struct buf *b, uint32_t timeline)
{
	buf_printf(b, "TIMELINE_HISTORY %u", timeline);
}

int
catalog_history(PGresult *const *res, int n, struct arena *a,
	struct span *history, struct connfault *f)
{
	if (!catalog_shape(res, n, 0, 2, f))
		return -1;
	if (PQntuples(res[0]) == 1)
		*history = pgtext_dup(res[0], 0, 1, a);
	return 0;
}
