/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adopted rows get the id that a partition of their name has today; a row
 * whose partition is not here any more is dropped, as there is nothing it
 * could tell apart.  The rows are locked first, so of several nodes one does
 * it and the others find nothing left.
 */
#include "takeover.h"

#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "conndoc.h"
#include "connchild.h"
#include "connfault.h"
#include "ctx.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "pgbin.h"
#include "pgconn.h"
#include "pglink.h"
#include "pgquote.h"
#include "pgtext.h"
#include "progress.h"

struct takeover {
	struct ctx *x;
	struct pglink *link;
	takeover_fn fn;
	void *arg;
	struct arena arena;
	int64_t *was, *now; /* partition ids; now 0: not here */
	struct span *names;
	size_t n;
	int64_t queue_id, group_id; /* of today; 0: there is none */
	struct connfault fault;
	struct loop_timer done; /* answers outside of the caller's turn */
	bool in_cell; /* an answer of the cell is out */
	bool freed;
};

static const struct conndoc_sink *
sink_of(const struct takeover *t)
{
	return &t->x->task->doc->sink;
}

int
takeover_refuse(const struct ctx *x, struct connfault *f, const char *other)
{
	return connfault_set(f, "cell_changed", false,
		"the progress rows of this sink were written from cell %s and "
		"this is cell %s: it was restored, or is new.  Go on from them "
		"with `queenctl connector adopt %.*s`, or drop them and apply "
		"again what the group delivers with `queenctl connector reset "
		"%.*s --yes`",
		other, x->cell_tag, SPAN_ARG(x->task->name),
		SPAN_ARG(x->task->name));
}

static void
destroy(struct takeover *t)
{
	loop_timer_fini(&t->done);
	arena_fini(&t->arena);
	free(t);
}

void
takeover_free(struct takeover *t)
{
	if (!t)
		return;
	t->freed = true;
	loop_timer_stop(&t->done);
	/* the cell's answer, which cannot be called off, does it then */
	if (!t->in_cell)
		destroy(t);
}

static void
on_done(void *arg)
{
	struct takeover *t = arg;

	t->fn(t->arg, t->fault.code ? &t->fault : NULL);
}

static void
finish(struct takeover *t)
{
	loop_timer_start(&t->done, 0);
}

/* ---- statements on the target ---- */

static void
run(struct takeover *t, enum progress_sql which,
	const struct pglink_param *params, int n, pglink_fn fn)
{
	struct buf sql = BUF_ZERO;

	progress_sql(&sink_of(t)->progress_table, which, &sql);
	buf_putc(&sql, '\0');
	pglink_exec(t->link, NULL, sql.p, params, n, fn, t);
	buf_fini(&sql);
}

/* The other rights on the table were looked at before. */
static void
refuse_rights(struct takeover *t, const struct connfault *why)
{
	const struct conndoc_name *table = &sink_of(t)->progress_table;
	struct buf grant = BUF_ZERO;

	buf_puts(&grant, "GRANT DELETE ON ");
	pgquote_table(&grant, table->schema, table->name);
	buf_puts(&grant, " TO ");
	pgquote_ident(&grant, t->x->task->doc->conn.user);
	connfault_set(&t->fault, "progress_table", false,
		"%s: adopt and reset delete rows, too; run: %.*s", why->text,
		(int)grant.len, grant.p);
	buf_fini(&grant);
}

static bool
failed(struct takeover *t, const struct connfault *why)
{
	if (!why)
		return false;
	if (why->code && !t->fault.code) {
		t->fault = *why;
		if (connfault_is(why, "42501"))
			refuse_rights(t, why);
	}
	return true;
}

static void
on_some(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	(void)res;
	(void)n;
	failed(arg, why);
}

static void
on_rolled_back(
	void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	(void)res;
	(void)n;
	(void)why;
	finish(arg);
}

static void
roll_back(struct takeover *t)
{
	pglink_exec(t->link, NULL, "ROLLBACK", NULL, 0, on_rolled_back, t);
	pglink_sync(t->link);
}

static void
on_commit(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct takeover *t = arg;

	(void)res;
	(void)n;
	if (failed(t, why)) {
		roll_back(t);
		return;
	}
	log_line(LOG_INFO, "sink", "progress rows of another cell taken over",
		"connector=%.*s rows=%zu", SPAN_ARG(t->x->task->name), t->n);
	finish(t);
}

/* Which ids, as two arrays: the old ones, and (rekey) the new ones. */
static void
put_ids(const struct takeover *t, bool here, struct buf *was, struct buf *now)
{
	progress_array_open(was);
	progress_array_open(now);
	for (size_t i = 0; i < t->n; i++) {
		if ((t->now[i] != 0) != here)
			continue;
		progress_array_i64(was, t->was[i]);
		progress_array_i64(now, t->now[i]);
	}
	progress_array_close(was);
	progress_array_close(now);
}

static void
write_rows(struct takeover *t)
{
	struct buf was = BUF_ZERO, now = BUF_ZERO;
	struct buf gone = BUF_ZERO, none = BUF_ZERO;
	struct span group = SPAN_ZERO;
	struct pglink_param p[5] = { { t->x->sink } };

	put_ids(t, true, &was, &now);
	put_ids(t, false, &gone, &none);
	/* a group that is yet to come finds them as its own */
	if (t->group_id)
		group = arena_printf(&t->arena, "%lld", (long long)t->group_id);
	p[1].text = buf_span(&gone);
	run(t, PROGRESS_DROP, p, 2, on_some);
	p[1].text = buf_span(&was);
	p[2].text = buf_span(&now);
	p[3].text = group;
	p[4].text = span_of(t->x->cell_tag);
	run(t, PROGRESS_REKEY, p, 5, on_some);
	pglink_exec(t->link, NULL, "COMMIT", NULL, 0, on_commit, t);
	pglink_sync(t->link);
	buf_fini(&was);
	buf_fini(&now);
	buf_fini(&gone);
	buf_fini(&none);
}

/* ---- what the cell knows of them ---- */

static const char place_sql[] =
	"select q.id, (select g.id from queen.groups_find_v1($1, array[q.id],"
	" array[$3::text]) g) from (select queen.queue_id_v1($1, $2) id) q";
static const char parts_sql[] =
	"select p.ord, p.id from queen.partitions_find_v1($1,"
	" array_fill($2::bigint, array[cardinality($3::text[])]), $3) p";

/* True: there is nothing to go on with. */
static bool
cell_failed(struct takeover *t, const struct err *e)
{
	t->in_cell = false;
	if (t->freed) {
		destroy(t);
		return true;
	}
	if (!e)
		return false;
	connfault_cell(&t->fault, e);
	roll_back(t);
	return true;
}

static void
on_parts(void *arg, const PGresult *res, const struct err *e)
{
	struct takeover *t = arg;

	if (cell_failed(t, e))
		return;
	for (int i = 0; i < PQntuples(res); i++) {
		size_t ord = (size_t)pgbin_i32(res, i, 0);

		BUG(ord < 1 || ord > t->n);
		t->now[ord - 1] = pgbin_i64(res, i, 1);
	}
	write_rows(t);
}

static void
find_parts(struct takeover *t)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &t->x->task->tenant);
	pgargs_i64(&a, t->queue_id);
	pgargs_array(&a, PGARGS_TEXT);
	for (size_t i = 0; i < t->n; i++)
		pgargs_item_text(&a, t->names[i]);
	pgargs_close(&a);
	t->in_cell = true;
	pgconn_send(t->x->side, parts_sql, &a, on_parts, t);
}

static void
on_place(void *arg, const PGresult *res, const struct err *e)
{
	struct takeover *t = arg;

	if (cell_failed(t, e))
		return;
	if (PQntuples(res) == 1 && !pgbin_null(res, 0, 0))
		t->queue_id = pgbin_i64(res, 0, 0);
	if (PQntuples(res) == 1 && !pgbin_null(res, 0, 1))
		t->group_id = pgbin_i64(res, 0, 1);
	if (t->queue_id) {
		find_parts(t);
		return;
	}
	/* nothing says which rows still matter */
	connfault_set(&t->fault, "queen", true,
		"adopt needs the queue %.*s, which this cell does not have",
		SPAN_ARG(sink_of(t)->queue));
	roll_back(t);
}

static void
find_place(struct takeover *t)
{
	const struct conndoc_sink *d = sink_of(t);
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &t->x->task->tenant);
	pgargs_text(&a, d->queue);
	pgargs_text(&a, conndoc_group(d, t->x->task->name, &t->arena));
	t->in_cell = true;
	pgconn_send(t->x->side, place_sql, &a, on_place, t);
}

/* ---- the way through ---- */

static void
keep_rows(struct takeover *t, const PGresult *res)
{
	t->n = (size_t)PQntuples(res);
	t->was = arena_zalloc(&t->arena, (t->n + 1) * sizeof(*t->was));
	t->now = arena_zalloc(&t->arena, (t->n + 1) * sizeof(*t->now));
	t->names = arena_zalloc(&t->arena, (t->n + 1) * sizeof(*t->names));
	for (size_t i = 0; i < t->n; i++) {
		t->was[i] = pgtext_i64(res, (int)i, 0);
		t->names[i] = pgtext_dup(res, (int)i, 1, &t->arena);
	}
}

static void
on_rows(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct takeover *t = arg;

	(void)n;
	if (failed(t, why)) {
		roll_back(t);
		return;
	}
	keep_rows(t, res[0]);
	if (conndoc_takeover_in(t->x->task->doc, span_of(t->x->cell_tag)) ==
		CONNDOC_ADOPT)
		find_place(t);
	else
		write_rows(t);
}

static void
take_rows(struct takeover *t)
{
	struct pglink_param p[2] = { { t->x->sink },
		{ span_of(t->x->cell_tag) } };

	pglink_exec(t->link, NULL, "BEGIN ISOLATION LEVEL READ COMMITTED", NULL,
		0, on_some, t);
	run(t, PROGRESS_TAKE, p, 2, on_rows);
	pglink_sync(t->link);
}

static void
on_others(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct takeover *t = arg;

	(void)n;
	if (failed(t, why) || PQntuples(res[0]) == 0) {
		finish(t);
		return;
	}
	if (conndoc_takeover_in(t->x->task->doc, span_of(t->x->cell_tag)) ==
		CONNDOC_STAY) {
		takeover_refuse(t->x, &t->fault, PQgetvalue(res[0], 0, 0));
		finish(t);
		return;
	}
	take_rows(t);
}

struct takeover *
takeover_new(struct ctx *x, struct pglink *k, takeover_fn fn, void *arg)
{
	struct takeover *t = calloc(1, sizeof(*t));
	struct pglink_param p[2] = { { x->sink }, { span_of(x->cell_tag) } };

	BUG(!t);
	t->x = x;
	t->link = k;
	t->fn = fn;
	t->arg = arg;
	loop_timer_init(&t->done, x->loop, on_done, t);
	run(t, PROGRESS_OTHERS, p, 2, on_others);
	pglink_sync(k);
	return t;
}
