/* SPDX-License-Identifier: Apache-2.0 */
/* job queue-restore: lines of queue-backup, stored by SQL (sql/859, 860). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_backup.h"
#include "cmds.h"
#include "ctl.h"
#include "db.h"
#include "file.h"

enum {
	BATCH_BYTES = 4 << 20,
	LINE_MAX_BYTES = 512 << 20, /* a job holds results of 16 MiB, escaped */
};

struct restore {
	struct ctl *c;
	PGconn *pg;
	const char *as; /* NULL = as the backup names it */
	char tenant[QID_TEXT_MAX], queue_id[24], name[256];
	struct backup_chain chain;
	struct buf body; /* the line without its check */
	struct buf batch; /* lines of one kind */
	char kind[BACKUP_KIND_BYTES];
	int64_t first; /* number of the batch's first line */
	bool ended;
};

static int64_t
number(const PGresult *res, int column)
{
	return strtoll(PQgetvalue(res, 0, column), NULL, 10);
}

/* Says no: the answer's columns are verdict, idx, what. */
static int
refuse(const struct restore *r, int64_t verdict, int64_t line, const char *what)
{
	if (verdict == 4)
		return ctl_fail(CTL_SERVER,
			"line %" PRId64 ": there is a %s \"%s\" already", line,
			r->kind, what);
	return ctl_fail(CTL_USER, "line %" PRId64 ": %s", line, what);
}

static int
flush_batch(struct restore *r)
{
	const char *params[] = { r->tenant, r->queue_id, r->kind, NULL };
	PGresult *res;
	int64_t verdict;
	int code = CTL_OK;

	if (r->batch.len == 0)
		return CTL_OK;
	r->batch.p[r->batch.len - 1] = '\0'; /* the last line feed */
	params[3] = r->batch.p;
	res = db_query(r->pg,
		"select verdict, idx, what from "
		"queen.ojs_restore_v1($1::uuid, $2::bigint, $3, $4)",
		4, params);
	if (!res)
		return CTL_SERVER;
	verdict = number(res, 0);
	if (verdict)
		code = refuse(r, verdict, r->first + number(res, 1) - 1,
			PQgetvalue(res, 0, 2));
	PQclear(res);
	buf_reset(&r->batch);
	return code;
}

static int
begin_queue(struct restore *r, struct span header)
{
	const char *params[] = { r->tenant, r->as, header.p };
	PGresult *res;
	int64_t verdict;
	int code = backup_begin(r->pg, "begin");

	if (code != 0)
		return code;
	res = db_query(r->pg,
		"select verdict, queue_id, what from "
		"queen.ojs_restore_begin_v1($1::uuid, $2, $3)",
		3, params);
	if (!res)
		return CTL_SERVER;
	verdict = number(res, 0);
	snprintf(r->queue_id, sizeof(r->queue_id), "%s", PQgetvalue(res, 0, 1));
	snprintf(r->name, sizeof(r->name), "%s", PQgetvalue(res, 0, 2));
	if (verdict == 1)
		code = ctl_fail(CTL_SERVER,
			"there is a queue \"%s\" already; --as gives another "
			"name",
			r->name);
	else if (verdict)
		code = refuse(r, verdict, 1, r->name);
	PQclear(res);
	return code;
}

static int
add_line(struct restore *r, struct span kind, struct span line)
{
	int code = CTL_OK;

	if (r->batch.len && (!span_is(kind, r->kind) ||
				    r->batch.len + line.n > BATCH_BYTES))
		code = flush_batch(r);
	if (code != 0)
		return code;
	if (r->batch.len == 0) {
		memcpy(r->kind, kind.p, kind.n);
		r->kind[kind.n] = '\0';
		r->first = r->chain.lines;
	}
	buf_put_span(&r->batch, line);
	buf_putc(&r->batch, '\n');
	return CTL_OK;
}

static int
end_queue(struct restore *r, struct span line)
{
	struct buf want = BUF_ZERO;
	bool same;

	/* as it was before the end line itself */
	r->chain.lines--;
	backup_chain_end(&r->chain, &want);
	r->chain.lines++;
	same = span_eq(buf_span(&want), line);
	buf_fini(&want);
	r->ended = true;
	if (!same)
		return ctl_fail(CTL_USER,
			"line %" PRId64 ": the counts are not those of the "
			"lines before",
			r->chain.lines);
	return flush_batch(r);
}

/* The line without its check, which must be right. */
static int
unwrap(struct restore *r, struct span line, struct span *kind)
{
	const size_t head = strlen(backup_head), all = head + BACKUP_CHECK + 2;
	char *quote;

	if (line.n <= all || memcmp(line.p, backup_head, head) != 0 ||
		memcmp(line.p + head + BACKUP_CHECK, "\",", 2) != 0)
		return ctl_fail(CTL_USER,
			"line %" PRId64 " is no line of a backup, or cut off",
			r->chain.lines + 1);
	buf_reset(&r->body);
	buf_putc(&r->body, '{');
	buf_put(&r->body, line.p + all, line.n - all);
	backup_chain_next(&r->chain, buf_span(&r->body));
	if (memcmp(r->chain.check, line.p + head, BACKUP_CHECK) != 0 ||
		memchr(r->body.p, '\0', r->body.len))
		return ctl_fail(CTL_USER,
			"line %" PRId64 " was changed or cut off, or lines "
			"before it are missing",
			r->chain.lines);
	quote = r->body.len > 2 ? memchr(r->body.p + 2, '"', r->body.len - 2)
				: NULL;
	*kind = quote ? span_make(
				r->body.p + 2, (size_t)(quote - r->body.p) - 2)
		      : (struct span)SPAN_ZERO;
	return CTL_OK;
}

static int
take_line(struct restore *r, struct span line, size_t number)
{
	struct span kind;
	bool first = r->chain.lines == 0;
	int code;

	if (r->ended || (int64_t)number != r->chain.lines + 1)
		return ctl_fail(CTL_USER,
			r->ended ? "line %zu: the backup ended before it"
				 : "a line before line %zu is blank",
			number);
	code = unwrap(r, line, &kind);
	if (code != 0)
		return code;
	line = buf_span(&r->body);
	if (!first && span_is(kind, "end"))
		return end_queue(r, line);
	if (first != span_is(kind, "header") ||
		!backup_chain_count(&r->chain, kind))
		return ctl_fail(CTL_USER,
			first ? "line %zu: this is no backup of a queue"
			      : "line %zu is of no kind that is known",
			number);
	if (!first)
		return add_line(r, kind, line);
	buf_putc(&r->body, '\0');
	return begin_queue(r, span_make(r->body.p, line.n));
}

static int
take_lines(struct restore *r, const char *path)
{
	struct file_lines lines;
	struct err e = ERR_ZERO;
	struct span line;
	int rc = 0, code = CTL_OK;

	if (file_lines_open(&lines, path, &e) != 0)
		return ctl_fail_err(&e);
	lines.max = LINE_MAX_BYTES;
	while (code == 0 && (rc = file_lines_next(&lines, &line, &e)) > 0)
		code = take_line(r, line, lines.number);
	if (code == 0 && rc < 0)
		code = ctl_fail(CTL_USER, "%s", e.text);
	if (code == 0 && !r->ended)
		code = ctl_fail(CTL_USER,
			"the backup is cut off: line %" PRId64
			" is the last, and not its end",
			r->chain.lines);
	file_lines_close(&lines);
	return code;
}

static int
commit(struct restore *r)
{
	const char *params[] = { r->tenant, r->queue_id };
	PGresult *res = db_query(r->pg,
		"select verdict, what from "
		"queen.ojs_restore_end_v1($1::uuid, $2::bigint)",
		2, params);
	int code = res ? CTL_OK : CTL_SERVER;

	if (res && number(res, 0))
		code = ctl_fail(CTL_USER,
			"the backup does not fit together: "
			"%s",
			PQgetvalue(res, 0, 1));
	PQclear(res);
	if (code != 0)
		return code;
	res = db_query(r->pg, "commit", 0, NULL);
	PQclear(res);
	return res ? CTL_OK : CTL_SERVER;
}

int
cmd_ojs_queue_restore(struct ctl *c, const struct cmd_call *a)
{
	struct restore r = { .c = c, .as = cmd_str(a, "as") };
	int code = backup_tenant(c, r.tenant);

	if (code != 0)
		return code;
	r.pg = db_open(a, &code);
	if (!r.pg)
		return code;
	code = take_lines(&r, a->args_n ? a->arg[0] : "-");
	if (code == 0)
		code = commit(&r);
	/* what was not committed is gone with the connection */
	PQfinish(r.pg);
	if (code == 0)
		backup_say(c, "restored", r.name, &r.chain);
	buf_fini(&r.chain.text);
	buf_fini(&r.body);
	buf_fini(&r.batch);
	return code;
}
