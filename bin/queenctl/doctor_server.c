/* SPDX-License-Identifier: Apache-2.0 */
/* The PostgreSQL server as such: version, settings, grants, clock, snapshots. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "doctor.h"

enum {
	SERVER_MIN = 150000,
	QUEEND_CONNS = 18, /* pool of 16, LISTEN, control */
	STMT_TIMEOUT_MS = 30000, /* queend's own default */
	CLOCK_WARN_MS = 1000,
};

#define MIB (INT64_C(1) << 20)

/* A setting in its base unit; NULL when there is none of this name. */
static char *
setting(struct doctor *d, const char *name)
{
	const char *p[] = { name };
	char *out = NULL;
	PGresult *r = PQexecParams(d->pg,
		"select case unit when '8kB' then setting::bigint * 8192 "
		"when 'kB' then setting::bigint * 1024 "
		"when 'MB' then setting::bigint * 1048576 "
		"when 's' then setting::bigint * 1000 "
		"when 'min' then setting::bigint * 60000 "
		"when 'B' then setting::bigint end::text, setting "
		"from pg_settings where name = $1",
		1, NULL, p, NULL, NULL, 0);

	d->checks++;
	if (PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1)
		out = strdup(PQgetvalue(r, 0, PQgetisnull(r, 0, 0) ? 1 : 0));
	PQclear(r);
	return out;
}

static int64_t
setting_i64(struct doctor *d, const char *name)
{
	char *s = setting(d, name);
	int64_t v = s ? strtoll(s, NULL, 10) : -1;

	free(s);
	return v;
}

static void
check_version(struct doctor *d)
{
	const char *encoding = PQparameterStatus(d->pg, "server_encoding");
	int version = PQserverVersion(d->pg);

	d->checks += 2;
	if (version < SERVER_MIN)
		doctor_find(d, DOCTOR_ERROR,
			"upgrade to PostgreSQL 15 or newer",
			"PostgreSQL %d is too old", version / 10000);
	if (encoding && strcmp(encoding, "UTF8") != 0)
		doctor_find(d, DOCTOR_ERROR,
			"create the database with "
			"encoding UTF8 and move there",
			"the database's encoding is %s", encoding);
}

static void
check_switches(struct doctor *d)
{
	static const struct {
		const char *name, *good, *why;
		enum doctor_level level;
	} list[] = {
		{ "fsync", "on",
			"a crash of the machine loses and corrupts "
			"data",
			DOCTOR_ERROR },
		{ "full_page_writes", "on",
			"a crash of the machine can "
			"corrupt data",
			DOCTOR_ERROR },
		{ "synchronous_commit", "on",
			"a crash loses pushes that were "
			"answered queued",
			DOCTOR_WARN },
		{ "autovacuum", "on", "tables grow without bound",
			DOCTOR_ERROR },
		{ "track_activities", "on", "safeTime cannot see writers",
			DOCTOR_WARN },
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		char *v = setting(d, list[i].name), fix[160];

		/* remote_apply and remote_write are more than on, or as much */
		if (v && strcmp(v, list[i].good) != 0 &&
			strncmp(v, "remote_", 7) != 0) {
			snprintf(fix, sizeof(fix),
				"psql -c 'alter system set %s = %s' -c "
				"'select pg_reload_conf()'",
				list[i].name, list[i].good);
			doctor_find(d, list[i].level, fix, "%s is %s: %s",
				list[i].name, v, list[i].why);
		}
		free(v);
	}
}

static void
check_sizes(struct doctor *d)
{
	int64_t buffers = setting_i64(d, "shared_buffers");
	int64_t wal = setting_i64(d, "max_wal_size");

	if (buffers >= 0 && buffers < 128 * MIB)
		doctor_find(d, DOCTOR_WARN,
			"psql -c 'alter system set "
			"shared_buffers = \"256MB\"', then restart PostgreSQL "
			"(a quarter of the memory is usual)",
			"shared_buffers is only %" PRId64 " MiB",
			buffers / MIB);
	if (wal >= 0 && wal <= 1024 * MIB)
		doctor_find(d, DOCTOR_WARN,
			"psql -c 'alter system set "
			"max_wal_size = \"4GB\"' -c 'select pg_reload_conf()'",
			"max_wal_size is %" PRId64 " MiB: checkpoints come "
			"often under load, and each makes full pages again",
			wal / MIB);
}

static void
check_timeouts(struct doctor *d)
{
	/* of this session: a role's or a database's own setting counts too */
	int64_t stmt = setting_i64(d, "statement_timeout");
	int64_t idle = setting_i64(d, "idle_in_transaction_session_timeout");
	int64_t lock = setting_i64(d, "lock_timeout");

	if (stmt > 0 && stmt < STMT_TIMEOUT_MS)
		doctor_find(d, DOCTOR_WARN,
			"psql -c 'alter role CURRENT_USER "
			"reset statement_timeout' (and the database's, "
			"postgresql.conf's)",
			"statement_timeout is %" PRId64
			" ms, below the %d ms of QUEEN_STMT_TIMEOUT_MS",
			stmt, STMT_TIMEOUT_MS);
	if (idle > 0 && idle < 1000)
		doctor_find(d, DOCTOR_WARN,
			"psql -c 'alter role CURRENT_USER "
			"reset idle_in_transaction_session_timeout'",
			"idle_in_transaction_session_timeout is %" PRId64
			" ms: bundles may be cut off",
			idle);
	if (lock > 0 && lock < 1000)
		doctor_find(d, DOCTOR_WARN,
			"psql -c 'alter role CURRENT_USER "
			"reset lock_timeout'",
			"lock_timeout is %" PRId64 " ms: pushes that meet at "
			"one partition fail",
			lock);
}

static void
check_connections(struct doctor *d)
{
	int64_t max = setting_i64(d, "max_connections");
	int64_t kept = setting_i64(d, "superuser_reserved_connections");
	int64_t used, ours, queends;
	PGresult *r = doctor_ask(d, "the sessions",
		"select count(*), count(*) filter (where application_name like "
		"'queend%') from pg_stat_activity where backend_type = "
		"'client backend'",
		NULL);

	if (!r)
		return;
	used = strtoll(PQgetvalue(r, 0, 0), NULL, 10);
	ours = strtoll(PQgetvalue(r, 0, 1), NULL, 10);
	PQclear(r);
	queends = (ours + QUEEND_CONNS - 1) / QUEEND_CONNS;
	if (queends < 1)
		queends = 1;
	if (max - kept < queends * QUEEND_CONNS + 5)
		doctor_find(d, DOCTOR_ERROR,
			"psql -c 'alter system set "
			"max_connections = 200', then restart PostgreSQL",
			"max_connections is %" PRId64 ", %" PRId64
			" queend need %" PRId64,
			max, queends, queends * QUEEND_CONNS);
	else if (used * 10 > (max - kept) * 9)
		doctor_find(d, DOCTOR_WARN,
			"psql -c 'alter system set "
			"max_connections = 200', then restart PostgreSQL",
			"%" PRId64 " of %" PRId64 " connections are in use",
			used, max - kept);
}

static void
check_stats_role(struct doctor *d)
{
	PGresult *r = doctor_ask(d, "the role",
		"select pg_has_role(current_user, 'pg_read_all_stats', "
		"'usage'), quote_ident(current_user)",
		NULL);
	char fix[200];

	if (!r)
		return;
	if (strcmp(PQgetvalue(r, 0, 0), "t") != 0) {
		snprintf(fix, sizeof(fix),
			"queenctl schema grant %.120s (as a "
			"superuser)",
			PQgetvalue(r, 0, 1));
		doctor_find(d, DOCTOR_WARN, fix,
			"role %s lacks "
			"pg_read_all_stats: safeTime is degraded while other "
			"roles write",
			PQgetvalue(r, 0, 1));
	}
	PQclear(r);
}

/* The middle of the round trip against the database's clock. */
static void
check_clock(struct doctor *d)
{
	int64_t before_us = clk_wall_us(), after_us, theirs_us, off_ms;
	PGresult *r = doctor_ask(d, "the clock",
		"select (extract(epoch from clock_timestamp()) * "
		"1000000)::bigint",
		NULL);

	after_us = clk_wall_us();
	if (!r)
		return;
	theirs_us = strtoll(PQgetvalue(r, 0, 0), NULL, 10);
	PQclear(r);
	off_ms = (theirs_us - (before_us + after_us) / 2) / 1000;
	if (llabs(off_ms) > CLOCK_WARN_MS + (after_us - before_us) / 2000)
		doctor_find(d, DOCTOR_WARN,
			"run a time service (chrony) on "
			"both machines",
			"the database's clock is %" PRId64
			" ms %s this machine's",
			(int64_t)llabs(off_ms),
			off_ms > 0 ? "ahead of" : "behind");
}

static void
check_snapshots(struct doctor *d)
{
	PGresult *r = doctor_ask(d, "the transactions",
		"select pid, coalesce(nullif(application_name, ''), usename, "
		"'?'), coalesce(state, '?'), extract(epoch from "
		"clock_timestamp() - xact_start)::bigint, "
		"backend_xid is not null from pg_stat_activity "
		"where datname = current_database() and pid <> "
		"pg_backend_pid() and xact_start < clock_timestamp() - $1 * "
		"interval '1 s' order by xact_start limit 5",
		"60");
	char fix[80];

	for (int i = 0; r && i < PQntuples(r); i++) {
		bool writes = strcmp(PQgetvalue(r, i, 4), "t") == 0;

		snprintf(fix, sizeof(fix),
			"psql -c 'select "
			"pg_terminate_backend(%.12s)'",
			PQgetvalue(r, i, 0));
		doctor_find(d, writes ? DOCTOR_ERROR : DOCTOR_WARN, fix,
			"session %s (%.40s, %s) has been in a transaction for "
			"%s s: it holds back %s",
			PQgetvalue(r, i, 0), PQgetvalue(r, i, 1),
			PQgetvalue(r, i, 2), PQgetvalue(r, i, 3),
			writes ? "safeTime and vacuum" : "vacuum");
	}
	PQclear(r);
	r = doctor_ask(d, "the prepared transactions",
		"select gid, extract(epoch from clock_timestamp() - "
		"prepared)::bigint from pg_prepared_xacts where database = "
		"current_database() and prepared < clock_timestamp() - $1 * "
		"interval '1 s' order by prepared limit 5",
		"60");
	for (int i = 0; r && i < PQntuples(r); i++)
		doctor_find(d, DOCTOR_ERROR,
			"psql: rollback prepared '...' "
			"(or commit prepared)",
			"prepared transaction \"%.60s\""
			" is %s s old: it holds back safeTime and vacuum",
			PQgetvalue(r, i, 0), PQgetvalue(r, i, 1));
	PQclear(r);
}

void
doctor_server(struct doctor *d)
{
	check_version(d);
	check_switches(d);
	check_sizes(d);
	check_timeouts(d);
	check_connections(d);
	check_stats_role(d);
	check_clock(d);
	check_snapshots(d);
}
