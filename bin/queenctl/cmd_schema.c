/* SPDX-License-Identifier: Apache-2.0 */
/* The schema, from the SQL that is part of this program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "cmds.h"
#include "ctl.h"
#include "db.h"
#include "jwrite.h"
#include "out.h"
#include "pgconn.h"
#include "schema.h"

enum { APPLY_RETRY_MS = 60000 };

static int
fail_schema(const struct err *e)
{
	/* an unsuitable database is the operator's to change */
	return ctl_fail(
		e->kind == ERR_CONFIG ? CTL_USER : CTL_SERVER, "%s", e->text);
}

static void
on_file(void *arg, const char *file, int done, int total)
{
	const bool *show = arg;

	if (*show)
		fprintf(stderr, "\r\033[K%d/%d %s%s", done, total, file,
			done >= total ? "\n" : "");
}

int
cmd_schema_apply(struct ctl *c, const struct cmd_call *a)
{
	bool show = !c->quiet && isatty(STDERR_FILENO);
	struct schema_cell before, after;
	struct err e = ERR_ZERO;
	int code;
	PGconn *pg = db_open(a, &code);

	if (!pg)
		return code;
	if (schema_read(pg, &before, &e) != 0 ||
		schema_apply(pg, APPLY_RETRY_MS, &after, on_file, &show, &e) !=
			0) {
		code = fail_schema(&e);
		goto out;
	}
	code = CTL_OK;
	if (before.state == SCHEMA_SAME)
		ctl_say(c, "schema %d.%d is there already", SCHEMA_MAJOR,
			SCHEMA_NUMBER);
	else if (before.state == SCHEMA_NEWER)
		ctl_say(c, "the database is newer (%d.%d), nothing was applied",
			before.major, before.number);
	else
		ctl_say(c, "applied schema %d.%d", SCHEMA_MAJOR, SCHEMA_NUMBER);
out:
	PQfinish(pg);
	return code;
}

static const char *
state_word(enum schema_state state)
{
	static const char *const words[] = { [SCHEMA_ABSENT] = "absent",
		[SCHEMA_SAME] = "same",
		[SCHEMA_OLDER] = "older",
		[SCHEMA_NEWER] = "newer",
		[SCHEMA_FOREIGN] = "foreign" };

	return words[state];
}

int
cmd_schema_status(struct ctl *c, const struct cmd_call *a)
{
	struct schema_cell cell;
	struct err e = ERR_ZERO;
	struct buf b = BUF_ZERO;
	struct jwrite w;
	int code;
	PGconn *pg = db_open(a, &code);

	if (!pg)
		return code;
	memset(&cell, 0, sizeof(cell));
	if (schema_read(pg, &cell, &e) != 0) {
		code = fail_schema(&e);
		goto out;
	}
	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "state", state_word(cell.state));
	jwrite_key(&w, "database");
	jwrite_object(&w);
	if (cell.state != SCHEMA_ABSENT) {
		jwrite_kv_i64(&w, "major", cell.major);
		jwrite_kv_i64(&w, "number", cell.number);
		jwrite_kv_cstr(&w, "hash", cell.hash);
	}
	jwrite_end(&w);
	jwrite_key(&w, "program");
	jwrite_object(&w);
	jwrite_kv_i64(&w, "major", SCHEMA_MAJOR);
	jwrite_kv_i64(&w, "number", SCHEMA_NUMBER);
	jwrite_kv_cstr(&w, "hash", schema_hash());
	jwrite_end(&w);
	jwrite_end(&w);
	code = out_print(c, buf_span(&b), NULL);
	buf_fini(&b);
out:
	PQfinish(pg);
	return code;
}

/* ---- rebase ---- */

struct rebase {
	struct ctl *c;
	PGconn *pg;
	char after[24]; /* queue id */
	int done;
};

/* One queue a transaction: what is done stays done. */
static int
rebase_one(struct rebase *b, const char *id, const char *name, const char *why)
{
	PGresult *res;

	if (strcmp(why, "restored") != 0)
		return ctl_fail(CTL_SERVER,
			"the stream of \"%s\" is %s, which no rebase mends",
			name, why);
	res = db_query(
		b->pg, "select queen.stream_rebase_v1($1::bigint)", 1, &id);
	if (!res)
		return CTL_SERVER;
	PQclear(res);
	b->done++;
	ctl_say(b->c, "rebased the stream of \"%s\"", name);
	return CTL_OK;
}

/* *rows = how many it looked at. */
static int
rebase_page(struct rebase *b, int *rows)
{
	const char *params[] = { b->after };
	PGresult *list = db_query(b->pg,
		"select queue_id, queue, why "
		"from queen.ojs_restored_v1($1::bigint, 100)",
		1, params);
	int code = list ? CTL_OK : CTL_SERVER;

	*rows = list ? PQntuples(list) : 0;
	for (int i = 0; i < *rows; i++) {
		snprintf(b->after, sizeof(b->after), "%s",
			PQgetvalue(list, i, 0));
		if (PQgetisnull(list, i, 2))
			continue;
		int rc = rebase_one(b, b->after, PQgetvalue(list, i, 1),
			PQgetvalue(list, i, 2));

		code = code ? code : rc;
	}
	PQclear(list);
	return code;
}

int
cmd_schema_rebase(struct ctl *c, const struct cmd_call *a)
{
	struct rebase b = { .c = c, .after = "0" };
	int code = CTL_OK, rows;

	b.pg = db_open(a, &code);
	if (!b.pg)
		return code;
	code = CTL_OK;
	do {
		int rc = rebase_page(&b, &rows);

		code = code ? code : rc;
	} while (rows > 0);
	PQfinish(b.pg);
	return code == 0 && b.done == 0 ? CTL_NOTHING : code;
}

/* ---- grant ---- */

/* What a role needs; %s is the role, quoted.  The last one asks for more. */
static const char *const grants[] = {
	"grant usage on schema queen to %s",
	"grant select, insert, update, delete on all tables in schema queen "
	"to %s",
	"grant usage, select on all sequences in schema queen to %s",
	"grant execute on all functions in schema queen to %s",
	"alter default privileges in schema queen grant select, insert, "
	"update, delete on tables to %s",
	"alter default privileges in schema queen grant usage, select on "
	"sequences to %s",
	"alter default privileges in schema queen grant execute on functions "
	"to %s",
	"grant pg_read_all_stats to %s",
};

enum { GRANTS_N = sizeof(grants) / sizeof(grants[0]) };

/* Streams of queen-ojs lie in schemas of their own. */
static const char grant_streams[] = "grant create on database %s to ";

static void
grant_text(struct buf *b, const char *fmt, const char *role)
{
	const char *at = strstr(fmt, "%s");

	buf_reset(b);
	buf_put(b, fmt, (size_t)(at - fmt));
	buf_puts(b, role);
	buf_puts(b, at + 2);
	buf_putc(b, '\0');
}

static int
run_grant(PGconn *pg, const struct buf *sql, bool dry)
{
	PGresult *res;

	if (dry) {
		printf("%s;\n", sql->p);
		return CTL_OK;
	}
	res = db_query(pg, sql->p, 0, NULL);
	PQclear(res);
	return res ? CTL_OK : CTL_SERVER;
}

static int
run_grants(PGconn *pg, const char *role, bool streams, bool dry)
{
	struct buf sql = BUF_ZERO;
	int code = CTL_OK;

	for (int i = 0; code == 0 && i < GRANTS_N; i++) {
		grant_text(&sql, grants[i], role);
		code = run_grant(pg, &sql, dry);
	}
	if (code == 0 && streams) {
		char *name = PQescapeIdentifier(pg, PQdb(pg), strlen(PQdb(pg)));

		BUG(!name);
		grant_text(&sql, grant_streams, name);
		sql.len--; /* the NUL: the role follows */
		buf_puts(&sql, role);
		buf_putc(&sql, '\0');
		PQfreemem(name);
		code = run_grant(pg, &sql, dry);
	}
	buf_fini(&sql);
	return code;
}

int
cmd_schema_grant(struct ctl *c, const struct cmd_call *a)
{
	bool dry = cmd_bool(a, "dry-run");
	struct schema_cell cell;
	struct err e = ERR_ZERO;
	char *role = NULL;
	int code;
	PGconn *pg = db_open(a, &code);

	if (!pg)
		return code;
	role = PQescapeIdentifier(pg, a->arg[0], strlen(a->arg[0]));
	if (!role) {
		code = ctl_fail(
			CTL_USER, "not a role's name: %s", PQerrorMessage(pg));
	} else if (schema_read(pg, &cell, &e) != 0) {
		code = fail_schema(&e);
	} else if (cell.state == SCHEMA_ABSENT) {
		code = ctl_fail(CTL_USER, "the database has no schema yet; "
					  "run: queenctl schema apply");
	} else {
		code = run_grants(pg, role, cmd_bool(a, "streams"), dry);
		if (code == 0 && !dry)
			ctl_say(c, "granted to %s", role);
	}
	PQfreemem(role);
	PQfinish(pg);
	return code;
}
