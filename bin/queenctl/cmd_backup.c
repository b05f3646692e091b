/* SPDX-License-Identifier: Apache-2.0 */
/* job queue-backup: the lines SQL makes of a queue (sql/859, 860). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "cmd_backup.h"
#include "cmds.h"
#include "ctl.h"
#include "db.h"
#include "doc.h"
#include "hash.h"
#include "pgconn.h"
#include "qid.h"

const char backup_head[] = "{\"check\":\"";

void
backup_chain_next(struct backup_chain *c, struct span line)
{
	buf_reset(&c->text);
	buf_puts(&c->text, c->check);
	buf_put_span(&c->text, line);
	hash_sha256_hex(buf_span(&c->text), c->check);
	c->check[BACKUP_CHECK] = '\0';
	c->lines++;
}

bool
backup_chain_count(struct backup_chain *c, struct span kind)
{
	int i = 0;

	if (kind.n == 0 || kind.n >= BACKUP_KIND_BYTES)
		return false;
	while (i < c->kinds_n && !span_is(kind, c->kind[i].name))
		i++;
	if (i == BACKUP_KINDS)
		return false;
	if (i == c->kinds_n)
		memcpy(c->kind[c->kinds_n++].name, kind.p, kind.n);
	c->kind[i].n++;
	return true;
}

void
backup_chain_end(const struct backup_chain *c, struct buf *out)
{
	buf_printf(out, "{\"end\":{\"lines\":%" PRId64, c->lines);
	for (int i = 0; i < c->kinds_n; i++)
		buf_printf(
			out, ",\"%s\":%" PRId64, c->kind[i].name, c->kind[i].n);
	buf_puts(out, "}}");
}

int
backup_tenant(const struct ctl *c, char out[QID_TEXT_MAX])
{
	const char *text = c->ask.tenant;
	struct qid id = { .b = { [15] = 1 } };

	if (!text || !*text)
		text = getenv("QUEEN_TENANT");
	if (text && *text && !qid_parse(span_of(text), &id))
		return ctl_fail(CTL_USER, "tenant \"%.60s\" is no UUID", text);
	qid_text(&id, out);
	return CTL_OK;
}

int
backup_begin(PGconn *pg, const char *how)
{
	PGresult *res = db_query(pg, how, 0, NULL);

	PQclear(res);
	if (!res)
		return CTL_SERVER;
	res = db_query(pg, "set local idle_in_transaction_session_timeout = 0",
		0, NULL);
	PQclear(res);
	return res ? CTL_OK : CTL_SERVER;
}

/* ---- backup ---- */

struct backup {
	struct ctl *c;
	PGconn *pg;
	FILE *out;
	struct backup_chain chain;
};

static void
put_line(struct backup *b, struct span line)
{
	backup_chain_next(&b->chain, line);
	fprintf(b->out, "%s%s\",", backup_head, b->chain.check);
	fwrite(line.p + 1, 1, line.n - 1, b->out);
	putc('\n', b->out);
}

static void
put_row(struct backup *b, struct span kind, struct span line)
{
	int64_t split = 0;

	put_line(b, line);
	BUG(!backup_chain_count(&b->chain, kind));
	if (b->chain.lines == 1)
		split = doc_i64(
			line, "header.split_workflows", 0, &b->c->arena);
	if (split)
		fprintf(stderr,
			"queenctl: workflows with jobs in other queues: "
			"%" PRId64 "; their jobs here are backed up without "
			"them\n",
			split);
}

/* A row at a time, so that memory does not grow with the queue. */
static int
put_cursor(struct backup *b, const char *kind, const char *cursor)
{
	char *name = PQescapeIdentifier(b->pg, cursor, strlen(cursor));
	struct buf sql = BUF_ZERO;
	struct err e = ERR_ZERO;
	PGresult *res;
	int code = CTL_OK;

	BUG(!name);
	buf_printf(&sql, "fetch all from %s", name);
	PQfreemem(name);
	buf_putc(&sql, '\0');
	if (!PQsendQuery(b->pg, sql.p) || !PQsetSingleRowMode(b->pg)) {
		pgconn_err(&e, NULL, b->pg);
		code = ctl_fail(CTL_SERVER, "%s", e.text);
	}
	buf_fini(&sql);
	while ((res = PQgetResult(b->pg))) {
		ExecStatusType status = PQresultStatus(res);

		if (code == 0 && status == PGRES_SINGLE_TUPLE) {
			put_row(b, span_of(kind),
				span_make(PQgetvalue(res, 0, 0),
					(size_t)PQgetlength(res, 0, 0)));
			if (ferror(b->out))
				code = ctl_fail(CTL_SERVER,
					"cannot write the backup: %s",
					strerror(errno));
		} else if (code == 0 && status != PGRES_TUPLES_OK) {
			pgconn_err(&e, res, b->pg);
			code = ctl_fail(CTL_SERVER, "%s", e.text);
		}
		PQclear(res);
		if (code != 0)
			break; /* the connection is closed next */
	}
	return code;
}

static int
put_queue(struct backup *b, const char *tenant, const char *queue)
{
	const char *params[] = { tenant, queue };
	struct buf end = BUF_ZERO;
	int code = backup_begin(
		b->pg, "begin isolation level repeatable read read only");
	PGresult *list = code ? NULL
			      : db_query(b->pg,
					"select kind, lines from "
					"queen.ojs_backup_v1($1::uuid, $2)",
					2, params);

	if (!list)
		return CTL_SERVER;
	if (PQntuples(list) == 0)
		code = ctl_fail(CTL_SERVER, "there is no queue \"%s\"", queue);
	for (int i = 0; code == 0 && i < PQntuples(list); i++)
		code = put_cursor(
			b, PQgetvalue(list, i, 0), PQgetvalue(list, i, 1));
	PQclear(list);
	if (code == 0) {
		backup_chain_end(&b->chain, &end);
		put_line(b, buf_span(&end));
		buf_fini(&end);
	}
	return code;
}

/* Whole or not at all: what was there is kept until the new one is on disk. */
static int
put_file(struct backup *b, const char *tenant, const char *queue,
	const char *path)
{
	char fresh[PATH_MAX];
	int n = snprintf(fresh, sizeof(fresh), "%s.tmp", path), fd, code;

	if (n < 0 || (size_t)n >= sizeof(fresh))
		return ctl_fail(CTL_USER, "path too long: %.60s", path);
	unlink(fresh); /* a left-over may be someone's link */
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return ctl_fail(
			CTL_USER, "cannot make %s: %s", fresh, strerror(errno));
	b->out = fdopen(fd, "w");
	BUG(!b->out);
	code = put_queue(b, tenant, queue);
	if (code == 0 && (fflush(b->out) != 0 || fsync(fd) != 0))
		code = ctl_fail(CTL_SERVER, "cannot write %s: %s", fresh,
			strerror(errno));
	fclose(b->out);
	if (code == 0 && rename(fresh, path) != 0)
		code = ctl_fail(CTL_SERVER, "cannot write %s: %s", path,
			strerror(errno));
	if (code != 0)
		unlink(fresh);
	return code;
}

void
backup_say(const struct ctl *c, const char *did, const char *queue,
	const struct backup_chain *chain)
{
	struct buf b = BUF_ZERO;

	for (int i = 0; i < chain->kinds_n; i++)
		if (strcmp(chain->kind[i].name, "header") != 0 &&
			strcmp(chain->kind[i].name, "queue") != 0)
			buf_printf(&b, " %s=%" PRId64, chain->kind[i].name,
				chain->kind[i].n);
	buf_putc(&b, '\0');
	ctl_say(c, "%s \"%s\"%s", did, queue, b.p);
	buf_fini(&b);
}

int
cmd_ojs_queue_backup(struct ctl *c, const struct cmd_call *a)
{
	const char *path = cmd_str(a, "out");
	struct backup b = { .c = c, .out = stdout };
	char tenant[QID_TEXT_MAX];
	int code = backup_tenant(c, tenant);

	if (code != 0)
		return code;
	b.pg = db_open(a, &code);
	if (!b.pg)
		return code;
	if (path && strcmp(path, "-") != 0) {
		code = put_file(&b, tenant, a->arg[0], path);
		if (code == 0)
			backup_say(c, "backed up", a->arg[0], &b.chain);
	} else {
		code = put_queue(&b, tenant, a->arg[0]);
	}
	PQfinish(b.pg);
	buf_fini(&b.chain.text);
	return code ? code : ctl_flush(code);
}
