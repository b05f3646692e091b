/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies a set of SQL files.  One process at a time under a session lock; a
 * statement is a transaction of its own and waits for table locks in slices
 * of two seconds, so that it never queues in front of the traffic for long.
 * The row of queen.cell is written last: without it a cell is not ready.
 */
#include "schema.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buf.h"
#include "clk.h"
#include "hash.h"
#include "pgbin.h"
#include "pgconn.h"
#include "pgdial.h"

enum { SERVER_MIN = 150000, LOOK_AFTER_MS = 1000 };

#define LOCK_NOT_AVAILABLE "55P03"
#define DEADLOCK "40P01"

struct apply {
	PGconn *c;
	PGconn *probe; /* asks who blocks us; opened when first needed */
	int64_t deadline_ms;
	char blockers[128];
};

static const struct schema_set *
embedded(struct schema_set *set)
{
	*set = (struct schema_set){ .files = schema_files,
		.n = schema_files_n,
		.major = SCHEMA_MAJOR,
		.number = SCHEMA_NUMBER };
	return set;
}

void
schema_hash_set(const struct schema_set *set, char out[65])
{
	struct buf b = BUF_ZERO;

	for (int i = 0; i < set->n; i++) {
		/* with the NUL, so that names and texts cannot run together */
		buf_put(&b, set->files[i].name, strlen(set->files[i].name) + 1);
		buf_put(&b, set->files[i].text, strlen(set->files[i].text) + 1);
	}
	hash_sha256_hex(buf_span(&b), out);
	buf_fini(&b);
}

const char *
schema_hash(void)
{
	static char hash[65];
	struct schema_set set;

	if (hash[0] == '\0')
		schema_hash_set(embedded(&set), hash);
	return hash;
}

/* ---- small calls ---- */

/* A query with binary results; NULL and *e on failure. */
static PGresult *
query(PGconn *c, const char *sql, const struct pgargs *a, struct err *e)
{
	const char *value[PGARGS_MAX];
	int len[PGARGS_MAX], format[PGARGS_MAX], n = a != NULL ? a->n : 0;
	PGresult *r;

	for (int i = 0; i < n; i++) {
		value[i] = a->data.p + a->at[i];
		len[i] = (int)a->len[i];
		format[i] = 1;
	}
	r = PQexecParams(c, sql, n, NULL, value, len, format, 1);
	if (PQresultStatus(r) == PGRES_TUPLES_OK)
		return r;
	pgconn_err(e, r, c);
	PQclear(r);
	return NULL;
}

static int
command(PGconn *c, const char *sql, struct err *e)
{
	PGresult *r = PQexec(c, sql);
	ExecStatusType st = PQresultStatus(r);

	if (st != PGRES_COMMAND_OK && st != PGRES_TUPLES_OK)
		pgconn_err(e, r, c);
	PQclear(r);
	return st == PGRES_COMMAND_OK || st == PGRES_TUPLES_OK ? 0 : -1;
}

/* Nobody reads the answer: a rollback on a broken link is done anyway. */
static void
command_quiet(PGconn *c, const char *sql)
{
	struct err e;

	(void)!command(c, sql, &e);
}

static void
sleep_ms(int64_t ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

static int64_t
jitter(int64_t from_ms, int64_t to_ms)
{
	return from_ms +
	       (int64_t)randombytes_uniform((uint32_t)(to_ms - from_ms));
}

/* ---- reading ---- */

static int
check_database(PGconn *c, struct err *e)
{
	const char *encoding = PQparameterStatus(c, "server_encoding");
	int version = PQserverVersion(c);

	if (version == 0)
		return err_set(e, ERR_IO, "connection lost");
	if (version < SERVER_MIN)
		return err_set(e, ERR_CONFIG,
			"PostgreSQL %d is too old, 15 or newer is needed",
			version / 10000);
	if (encoding == NULL || strcmp(encoding, "UTF8") != 0)
		return err_set(e, ERR_CONFIG,
			"database encoding is %s, UTF8 is needed",
			encoding != NULL ? encoding : "unknown");
	return 0;
}

static enum schema_state
compare(const struct schema_cell *cell, const struct schema_set *set)
{
	char hash[65];

	if (cell->major != set->major)
		return SCHEMA_FOREIGN;
	if (cell->number > set->number)
		return SCHEMA_NEWER;
	schema_hash_set(set, hash);
	return cell->number == set->number && strcmp(cell->hash, hash) == 0
		       ? SCHEMA_SAME
		       : SCHEMA_OLDER;
}

static int
take_cell(const PGresult *r, struct schema_cell *out, struct err *e)
{
	struct span hash = pgbin_bytes(r, 0, 2), key = pgbin_bytes(r, 0, 4);

	if (hash.n >= sizeof out->hash || key.n != sizeof out->hash_key)
		return err_set(e, ERR_CONFIG, "queen.cell is damaged");
	out->major = pgbin_i32(r, 0, 0);
	out->number = pgbin_i32(r, 0, 1);
	memcpy(out->hash, hash.p, hash.n);
	out->hash[hash.n] = '\0';
	out->tag = (uint64_t)pgbin_i64(r, 0, 3);
	memcpy(out->hash_key, key.p, key.n);
	return 0;
}

#define CELL_COLUMNS "major, number, hash, tag, hash_key"

int
schema_read_set(PGconn *c, const struct schema_set *set,
	struct schema_cell *out, struct err *e)
{
	PGresult *r;
	int rc = -1;

	*out = (struct schema_cell){ .state = SCHEMA_ABSENT };
	if (check_database(c, e) < 0)
		return -1;
	r = query(c, "select to_regclass('queen.cell') is not null", NULL, e);
	if (r == NULL)
		return err_wrap(e, "cannot read the schema version");
	if (!pgbin_bool(r, 0, 0)) {
		PQclear(r);
		return 0;
	}
	PQclear(r);
	r = query(c, "select " CELL_COLUMNS " from queen.cell", NULL, e);
	if (r == NULL)
		return err_wrap(e, "cannot read the schema version");
	if (PQntuples(r) == 0) {
		rc = 0;
	} else if (take_cell(r, out, e) == 0) {
		out->state = compare(out, set);
		rc = 0;
	}
	PQclear(r);
	return rc;
}

int
schema_read(PGconn *c, struct schema_cell *out, struct err *e)
{
	struct schema_set set;

	return schema_read_set(c, embedded(&set), out, e);
}

/* ---- who is in the way ---- */

/* A second link to the same database, made of what the first one used. */
static PGconn *
open_probe(PGconn *c)
{
	PQconninfoOption *o = PQconninfo(c);
	const char *key[PGDIAL_WORDS_MAX], *value[PGDIAL_WORDS_MAX];
	PGconn *p;
	int n = 0;

	for (int i = 0; o != NULL && o[i].keyword != NULL; i++) {
		bool timeout = strcmp(o[i].keyword, "connect_timeout") == 0;

		if (o[i].val == NULL || timeout || n >= PGDIAL_WORDS_MAX - 2)
			continue;
		key[n] = o[i].keyword;
		value[n++] = o[i].val;
	}
	key[n] = "connect_timeout";
	value[n++] = "3";
	key[n] = value[n] = NULL;
	p = PQconnectdbParams(key, value, 0);
	PQconninfoFree(o);
	PQsetNoticeReceiver(p, pgdial_no_notice, NULL);
	return p;
}

/* Never their statements: those may hold data. */
static const char blockers_sql[] =
	"select coalesce(string_agg(format('pid %s (%s, %s)', pid,"
	" coalesce(nullif(application_name, ''), usename, backend_type),"
	" coalesce(state, 'unknown')), ', ' order by pid), '')"
	" from (select pid, application_name, usename, backend_type, state"
	" from pg_stat_activity where pid = any(";

static void
look_for(struct apply *a, const char *pids_sql)
{
	struct buf b = BUF_ZERO;
	struct err e;
	PGresult *r;

	if (a->probe == NULL)
		a->probe = open_probe(a->c);
	if (PQstatus(a->probe) != CONNECTION_OK)
		return;
	buf_printf(&b, "%s%s) limit 4) s", blockers_sql, pids_sql);
	buf_putc(&b, '\0');
	r = query(a->probe, b.p, NULL, &e);
	buf_fini(&b);
	if (r == NULL)
		return;
	if (pgbin_bytes(r, 0, 0).n > 0)
		snprintf(a->blockers, sizeof a->blockers, "%.*s",
			SPAN_ARG(pgbin_bytes(r, 0, 0)));
	PQclear(r);
}

static void
look_for_blockers(struct apply *a)
{
	char sql[64];

	snprintf(sql, sizeof sql, "pg_blocking_pids(%d)", PQbackendPID(a->c));
	look_for(a, sql);
}

static int
blocked(const struct apply *a, const char *what, struct err *e)
{
	return err_set(e, ERR_DB_RETRY, "%s blocked by locks of %s", what,
		a->blockers[0] != '\0' ? a->blockers : "another session");
}

/* ---- applying ---- */

static int
lock(struct apply *a, struct err *e)
{
	char sql[128];

	snprintf(sql, sizeof sql, "select pg_try_advisory_lock(%lld)",
		(long long)SCHEMA_LOCK_KEY);
	for (;;) {
		PGresult *r = query(a->c, sql, NULL, e);
		bool got;

		if (r == NULL)
			return err_wrap(e, "schema lock");
		got = pgbin_bool(r, 0, 0);
		PQclear(r);
		if (got)
			return 0;
		if (clk_mono_ms() >= a->deadline_ms)
			break;
		sleep_ms(jitter(50, 150));
	}
	snprintf(sql, sizeof sql,
		"array(select pid from pg_locks where locktype = 'advisory'"
		" and granted and objid = %lld)",
		(long long)SCHEMA_LOCK_KEY);
	look_for(a, sql);
	return blocked(a, "schema apply", e);
}

/* The last result of what was sent; names blockers when it takes long. */
static PGresult *
await(struct apply *a)
{
	PGresult *last = NULL, *r;
	int64_t look_at_ms = clk_mono_ms() + LOOK_AFTER_MS;

	while (PQisBusy(a->c)) {
		struct pollfd p = { .fd = PQsocket(a->c), .events = POLLIN };

		if (poll(&p, 1, 200) > 0 && PQconsumeInput(a->c) != 1)
			break;
		if (clk_mono_ms() < look_at_ms)
			continue;
		look_for_blockers(a);
		look_at_ms = clk_mono_ms() + LOOK_AFTER_MS;
	}
	while ((r = PQgetResult(a->c)) != NULL) {
		PQclear(last);
		last = r;
	}
	return last;
}

/* One statement, one transaction, one slice of waiting. */
static int
try_statement(struct apply *a, const char *sql, struct err *e)
{
	PGresult *r = NULL;
	ExecStatusType st = PGRES_FATAL_ERROR;

	if (command(a->c, "begin; set local lock_timeout = '2s'", e) < 0)
		return -1;
	if (PQsendQuery(a->c, sql) == 1) {
		r = await(a);
		st = PQresultStatus(r);
	}
	if (st != PGRES_COMMAND_OK && st != PGRES_TUPLES_OK &&
		st != PGRES_EMPTY_QUERY) {
		pgconn_err(e, r, a->c);
		PQclear(r);
		command_quiet(a->c, "rollback");
		return -1;
	}
	PQclear(r);
	return command(a->c, "commit", e);
}

static int
run_statement(struct apply *a, const char *file, const char *sql, struct err *e)
{
	a->blockers[0] = '\0';
	while (try_statement(a, sql, e) < 0) {
		bool lock_wait = strcmp(e->sqlstate, LOCK_NOT_AVAILABLE) == 0 ||
				 strcmp(e->sqlstate, DEADLOCK) == 0;

		if (lock_wait && clk_mono_ms() < a->deadline_ms) {
			sleep_ms(jitter(100, 500));
			continue;
		}
		if (lock_wait)
			return blocked(a, file, e);
		/* repeating would not help, whatever the class says */
		if (e->kind != ERR_AUTH && e->kind != ERR_DB_UNKNOWN)
			e->kind = ERR_DB_DATA;
		return err_wrap(e, "%s", file);
	}
	return 0;
}

static int
run_file(struct apply *a, const struct schema_file *f, struct err *e)
{
	struct span rest = span_of(f->text), stmt;
	int rc = 0;

	while (rc == 0 && schema_next_statement(&rest, &stmt)) {
		char *sql = strndup(stmt.p, stmt.n);

		BUG(sql == NULL);
		rc = run_statement(a, f->name, sql, e);
		free(sql);
	}
	return rc;
}

/* Tag and key are made once and stay; the rest says what was applied. */
static int
write_cell(PGconn *c, const struct schema_set *set, struct schema_cell *out,
	struct err *e)
{
	uint64_t tag;
	uint8_t key[16];
	char hash[65];
	struct pgargs a;
	PGresult *r;
	int rc;

	do {
		randombytes_buf(&tag, sizeof tag);
		tag &= (UINT64_C(1) << 48) - 1;
	} while (tag == 0);
	randombytes_buf(key, sizeof key);
	schema_hash_set(set, hash);
	pgargs_init(&a);
	pgargs_i64(&a, (int64_t)tag);
	pgargs_bytea(&a, span_make(key, sizeof key));
	pgargs_i32(&a, set->major);
	pgargs_i32(&a, set->number);
	pgargs_text(&a, span_of(hash));
	r = query(c,
		"insert into queen.cell as c (tag, hash_key, major, number,"
		" hash) values ($1, $2, $3, $4, $5) on conflict (one) do"
		" update set major = excluded.major, number = excluded.number,"
		" hash = excluded.hash, applied_at = clock_timestamp()"
		" returning " CELL_COLUMNS,
		&a, e);
	pgargs_fini(&a);
	if (r == NULL) {
		e->kind = ERR_DB_DATA;
		return err_wrap(e, "queen.cell");
	}
	rc = take_cell(r, out, e);
	out->state = SCHEMA_SAME;
	PQclear(r);
	return rc;
}

static int
apply_locked(struct apply *a, const struct schema_set *set,
	struct schema_cell *out,
	void (*progress)(void *arg, const char *file, int done, int total),
	void *arg, struct err *e)
{
	/* another process may have done it while we waited */
	if (schema_read_set(a->c, set, out, e) < 0)
		return -1;
	if (out->state == SCHEMA_SAME || out->state == SCHEMA_NEWER)
		return 0;
	if (out->state == SCHEMA_FOREIGN)
		return err_set(e, ERR_CONFIG,
			"database has schema major %d, this program needs %d",
			out->major, set->major);
	/* a role's own limits are meant for traffic */
	if (command(a->c, "set statement_timeout = 0", e) < 0)
		return -1;
	for (int i = 0; i < set->n; i++) {
		if (progress != NULL)
			progress(arg, set->files[i].name, i, set->n);
		if (run_file(a, &set->files[i], e) < 0)
			return -1;
	}
	if (progress != NULL)
		progress(arg, "", set->n, set->n);
	return write_cell(a->c, set, out, e);
}

int
schema_apply_set(PGconn *c, const struct schema_set *set, int64_t retry_ms,
	struct schema_cell *out,
	void (*progress)(void *arg, const char *file, int done, int total),
	void *arg, struct err *e)
{
	struct apply a = { .c = c, .deadline_ms = clk_mono_ms() + retry_ms };
	char unlock[64];
	int rc = -1;

	/* what is up to date needs no lock */
	if (schema_read_set(c, set, out, e) < 0)
		return -1;
	if (out->state == SCHEMA_SAME || out->state == SCHEMA_NEWER)
		return 0;
	if (lock(&a, e) == 0) {
		rc = apply_locked(&a, set, out, progress, arg, e);
		snprintf(unlock, sizeof unlock,
			"select pg_advisory_unlock(%lld)",
			(long long)SCHEMA_LOCK_KEY);
		command_quiet(c, unlock);
		command_quiet(c, "reset statement_timeout");
	}
	PQfinish(a.probe);
	return rc;
}

int
schema_apply(PGconn *c, int64_t retry_ms, struct schema_cell *out,
	void (*progress)(void *arg, const char *file, int done, int total),
	void *arg, struct err *e)
{
	struct schema_set set;

	return schema_apply_set(
		c, embedded(&set), retry_ms, out, progress, arg, e);
}
