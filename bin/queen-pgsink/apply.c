/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transaction in two flights: progress rows locked, in the order of their
 * ids so that two holders cannot deadlock on them; then the statements of
 * what has not been applied yet, the progress, and COMMIT.  An answer is
 * waited for in between only where it decides what follows, or where it must
 * be known exactly which statement fails.
 */
#include "apply.h"

#include <stdlib.h>
#include <string.h>

#include "apply_int.h"
#include "conndoc.h"
#include "connchild.h"
#include "ctx.h"
#include "err.h"
#include "feed.h"
#include "pglink.h"
#include "plan.h"
#include "takeover.h"

/* ---- ends ---- */

static void
conclude(struct apply *a)
{
	a->runs = false;
	loop_timer_stop(&a->more);
	a->fn(a->arg, a->end);
}

static void
on_rolled_back(
	void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	(void)res;
	(void)n;
	/* lost meanwhile: apply_lost comes */
	if (!why)
		conclude(arg);
}

void
apply_give_up(struct apply *a, enum apply_end end)
{
	if (a->giving_up)
		return;
	a->giving_up = true;
	a->end = end;
	loop_timer_stop(&a->more);
	/* what failed has aborted the flight up to here */
	pglink_sync(a->with.link);
	pglink_exec(a->with.link, NULL, "ROLLBACK", NULL, 0, on_rolled_back, a);
	pglink_sync(a->with.link);
}

void
apply_lost(struct apply *a, const struct connfault *why)
{
	if (!a->runs)
		return;
	if (!a->giving_up)
		a->end = APPLY_FAILED;
	if (a->end == APPLY_FAILED && !a->fault.code) {
		a->fault = *why;
		a->own = false;
	}
	conclude(a);
}

/* The first failure in order is the one that counts. */
bool
apply_failed(struct apply *a, const struct connfault *why, bool own)
{
	if (why && why->code && !a->fault.code) {
		a->fault = *why;
		a->own = own;
	}
	return why || a->fault.code;
}

/* ---- statements of progress ---- */

static const struct conndoc_name *
table_of(const struct apply *a)
{
	return &a->with.plan->doc->progress_table;
}

static void
progress(struct apply *a, enum progress_sql which, const char *name,
	const struct pglink_param *params, int n, pglink_fn fn)
{
	struct buf sql = BUF_ZERO;

	progress_sql(table_of(a), which, &sql);
	buf_putc(&sql, '\0');
	pglink_exec(a->with.link, name, sql.p, params, n, fn, a);
	buf_fini(&sql);
}

/* Class 42: no such table, column or right; a schema that is gone is a 3F000. */
static bool
progress_failed(struct apply *a, const struct connfault *why)
{
	bool is_first = !a->fault.code;

	if (is_first && why && why->code)
		a->no_progress = strncmp(why->sqlstate, "42", 2) == 0 ||
				 strcmp(why->sqlstate, "3F000") == 0;
	return apply_failed(a, why, false);
}

void
apply_on_step(
	void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	(void)res;
	(void)n;
	progress_failed(arg, why);
}

static struct span
group_text(struct apply *a)
{
	return arena_printf(
		&a->arena, "%lld", (long long)a->with.batch->group_id);
}

static size_t
first_part(const struct apply *a)
{
	return a->with.batch->messages[a->piece.first].part;
}

static size_t
parts_n(const struct apply *a)
{
	const struct feed_message *m = a->with.batch->messages;

	return m[a->piece.first + a->piece.n - 1].part - first_part(a) + 1;
}

static void
on_commit(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct apply *a = arg;

	(void)n;
	if (!apply_failed(a, why, true) &&
		strcmp(PQcmdStatus(res[0]), "COMMIT") != 0)
		connfault_set(&a->fault, "postgres", false,
			"the transaction was ended by a statement within it");
	if (a->fault.code) {
		apply_give_up(a, APPLY_FAILED);
		return;
	}
	a->applied = a->todo_n;
	a->skipped = a->piece.n - a->todo_n;
	a->end = APPLY_COMMITTED;
	conclude(a);
}

static void
move_rows(struct apply *a)
{
	const struct feed_part *parts = a->with.batch->parts + first_part(a);
	struct pglink_param p[7] = { { a->with.x->sink } };

	buf_reset(&a->ids);
	buf_reset(&a->offsets);
	buf_reset(&a->times);
	buf_reset(&a->names);
	progress_array_open(&a->ids);
	progress_array_open(&a->offsets);
	progress_array_open(&a->times);
	progress_array_open(&a->names);
	for (size_t i = 0; i < parts_n(a); i++) {
		if (!a->at[i].moved)
			continue;
		progress_array_i64(&a->ids, parts[i].id);
		progress_array_i64(&a->offsets, a->at[i].offset);
		progress_array_i64(&a->times, a->at[i].created_at_us);
		progress_array_text(&a->names, parts[i].name);
	}
	progress_array_close(&a->ids);
	progress_array_close(&a->offsets);
	progress_array_close(&a->times);
	progress_array_close(&a->names);
	p[1].text = buf_span(&a->ids);
	p[2].text = buf_span(&a->offsets);
	p[3].text = buf_span(&a->times);
	p[4].text = group_text(a);
	p[5].text = span_of(a->with.x->cell_tag);
	p[6].text = buf_span(&a->names);
	progress(a, PROGRESS_MOVE, "move", p, 7, apply_on_step);
}

void
apply_commit(struct apply *a)
{
	if (a->todo_n > 0)
		move_rows(a);
	pglink_exec(a->with.link, "commit", "COMMIT", NULL, 0, on_commit, a);
	pglink_sync(a->with.link);
}

/* ---- the rows of the partitions ---- */

static enum progress_is
read_row(struct apply *a, const PGresult *res, size_t i)
{
	struct progress_row row;
	enum progress_is is;

	progress_row_read(res, (int)i, &row);
	if (a->with.lost_future)
		row.group_id = a->with.batch->group_id;
	is = progress_begin(&row, a->with.batch->group_id,
		span_of(a->with.x->cell_tag), &a->at[i]);
	if (is == PROGRESS_FOREIGN)
		takeover_refuse(
			a->with.x, &a->fault, PQgetvalue(res, (int)i, 4));
	return is;
}

/* What of the piece has not been applied yet. */
static void
choose(struct apply *a)
{
	const struct feed_message *m = a->with.batch->messages;
	size_t first = first_part(a), end = a->piece.first + a->piece.n;

	a->todo = arena_alloc(&a->arena, a->piece.n * sizeof(*a->todo));
	for (size_t i = a->piece.first; i < end; i++)
		if (!progress_replay(&a->at[m[i].part - first], m[i].offset,
			    m[i].created_at_us))
			a->todo[a->todo_n++] = i;
}

static void
on_rows(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct apply *a = arg;
	size_t rows;

	(void)n;
	if (progress_failed(a, why)) {
		apply_give_up(a, APPLY_FAILED);
		return;
	}
	rows = (size_t)PQntuples(res[0]);
	if (rows != parts_n(a)) {
		connfault_set(&a->fault, "postgres", true,
			"the progress table keeps no rows: remove the trigger "
			"or rule that discards them");
		apply_give_up(a, APPLY_FAILED);
		return;
	}
	a->at = arena_zalloc(&a->arena, rows * sizeof(*a->at));
	for (size_t i = 0; i < rows; i++) {
		enum progress_is is = read_row(a, res[0], i);

		if (is != PROGRESS_OURS) {
			apply_give_up(a, is == PROGRESS_NEWER ? APPLY_NEWER
							      : APPLY_FOREIGN);
			return;
		}
	}
	choose(a);
	apply_pump(a);
}

static void
lock_rows(struct apply *a)
{
	const struct feed_part *parts = a->with.batch->parts + first_part(a);
	struct pglink_param p[5] = { { a->with.x->sink } };

	buf_reset(&a->ids);
	buf_reset(&a->names);
	progress_array_open(&a->ids);
	progress_array_open(&a->names);
	for (size_t i = 0; i < parts_n(a); i++) {
		progress_array_i64(&a->ids, parts[i].id);
		progress_array_text(&a->names, parts[i].name);
	}
	progress_array_close(&a->ids);
	progress_array_close(&a->names);
	p[1].text = buf_span(&a->ids);
	p[2].text = buf_span(&a->names);
	p[3].text = group_text(a);
	p[4].text = span_of(a->with.x->cell_tag);
	progress(a, PROGRESS_LOCK, "lock", p, 5, on_rows);
}

/* ---- from outside ---- */

void
apply_init(struct apply *a, struct loop *l, apply_fn fn, void *arg)
{
	*a = (struct apply){ .fn = fn, .arg = arg };
	loop_timer_init(&a->more, l, apply_pump, a);
}

void
apply_fini(struct apply *a)
{
	loop_timer_fini(&a->more);
	arena_fini(&a->arena);
	arena_fini(&a->chunk);
	buf_fini(&a->ids);
	buf_fini(&a->offsets);
	buf_fini(&a->times);
	buf_fini(&a->names);
	buf_fini(&a->joined);
}

bool
apply_is_running(const struct apply *a)
{
	return a->runs;
}

void
apply_start(struct apply *a, const struct apply_with *with,
	const struct isolate_piece *piece)
{
	BUG(a->runs || piece->n == 0);
	arena_reset(&a->arena);
	arena_reset(&a->chunk);
	a->with = *with;
	a->piece = *piece;
	a->applied = a->skipped = 0;
	a->fault.code = NULL;
	a->fault.sqlstate[0] = '\0';
	a->own = false;
	a->no_progress = false;
	a->culprit = (struct isolate_culprit){ .n = 0 };
	a->runs = true;
	a->giving_up = false;
	a->todo_n = a->next = 0;
	a->ops_n = a->ops_at = a->ops_first = 0;
	pglink_exec(with->link, "begin",
		"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", NULL, 0,
		apply_on_step, a);
	lock_rows(a);
	pglink_sync(with->link);
}
