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

#include "conndoc.h"
#include "connchild.h"
#include "ctx.h"
#include "err.h"
#include "feed.h"
#include "pglink.h"
#include "plan.h"
#include "stmts.h"
#include "takeover.h"

enum { CHUNK = 1000 }; /* messages made into operations in one turn */

/* A statement of messages on its way. */
struct sent {
	struct apply *a;
	size_t first, n; /* messages of the batch */
	struct op *otherwise;
	bool awaited;
};

static void pump(void *arg);

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

static void
give_up(struct apply *a, enum apply_end end)
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
static bool
failed(struct apply *a, const struct connfault *why, bool own)
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

static void
on_step(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	(void)res;
	(void)n;
	failed(arg, why, false);
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
	if (!failed(a, why, true) && strcmp(PQcmdStatus(res[0]), "COMMIT") != 0)
		connfault_set(&a->fault, "postgres", false,
			"the transaction was ended by a statement within it");
	if (a->fault.code) {
		give_up(a, APPLY_FAILED);
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
	progress(a, PROGRESS_MOVE, "move", p, 7, on_step);
}

static void
commit(struct apply *a)
{
	if (a->todo_n > 0)
		move_rows(a);
	pglink_exec(a->with.link, "commit", "COMMIT", NULL, 0, on_commit, a);
	pglink_sync(a->with.link);
}

/* ---- statements of messages ---- */

static void
blame(struct apply *a, size_t first, size_t n, struct span text)
{
	a->culprit = (struct isolate_culprit){
		.first = first, .n = n, .text = text
	};
}

static void
on_op(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct sent *s = arg;
	struct apply *a = s->a;
	bool first = !a->fault.code;

	(void)n;
	if (failed(a, why, !pglink_prepare_failed(a->with.link))) {
		if (first)
			blame(a, s->first, s->n, SPAN_LIT(""));
		if (s->awaited)
			give_up(a, APPLY_FAILED);
		return;
	}
	if (!s->awaited)
		return;
	/* a move that found no row: the next in line is what it means then */
	if (s->otherwise && strcmp(PQcmdTuples(res[0]), "0") == 0)
		a->ops[--a->ops_at] = *s->otherwise;
	pump(a);
}

/* Shapes have no bound: what the server keeps of them must have one. */
static void
make_room(struct apply *a)
{
	if (!stmts_is_full(a->with.stmts))
		return;
	stmts_forget(a->with.stmts);
	pglink_forget(a->with.link);
	pglink_exec(a->with.link, NULL, "DEALLOCATE ALL", NULL, 0, on_step, a);
}

static void
send_op(struct apply *a, const struct op *o, size_t run, struct sent *s)
{
	const struct stmts_one *one;
	struct pglink_param *p;

	make_room(a);
	one = stmts_of(a->with.stmts, a->with.plan, o);
	p = arena_zalloc(&a->chunk, (o->params_n + 1) * sizeof(*p));
	for (size_t i = 0; i < o->params_n; i++)
		p[i].text = o->params[i];
	if (o->kind == OP_INSERT) {
		buf_reset(&a->joined);
		op_join(o, run, &a->joined);
		p[0].text = buf_span(&a->joined);
	}
	pglink_exec(a->with.link, one->name, one->sql, p, (int)o->params_n,
		on_op, s);
	if (s->awaited)
		pglink_sync(a->with.link);
}

/* True when an answer must be waited for. */
static bool
send_next(struct apply *a)
{
	const struct op *o = &a->ops[a->ops_at];
	size_t run = op_run(o, a->ops_n - a->ops_at);
	const size_t *todo = a->todo + a->ops_first + a->ops_at;
	struct sent *s = arena_zalloc(&a->arena, sizeof(*s));

	s->a = a;
	s->first = todo[0];
	s->n = todo[run - 1] - todo[0] + 1;
	s->otherwise = o->otherwise;
	s->awaited = a->piece.alone || o->otherwise;
	a->ops_at += run;
	send_op(a, o, run, s);
	return s->awaited;
}

/* False: a payload that cannot be read. */
static bool
make_ops(struct apply *a)
{
	const struct feed_batch *b = a->with.batch;

	arena_reset(&a->chunk);
	a->ops = arena_alloc(&a->chunk, CHUNK * sizeof(*a->ops));
	a->ops_first = a->next;
	a->ops_n = a->ops_at = 0;
	for (; a->next < a->todo_n && a->ops_n < CHUNK; a->next++) {
		const struct feed_message *m = &b->messages[a->todo[a->next]];
		struct span why;

		if (op_of(a->with.plan, &b->parts[m->part], m, &a->chunk,
			    &a->ops[a->ops_n], &why)) {
			a->ops_n++;
			continue;
		}
		blame(a, a->todo[a->next], 1,
			arena_printf(
				&a->arena, "payload: %.*s", SPAN_ARG(why)));
		a->culprit.unasked = true;
		return false;
	}
	return true;
}

static void
unreadable(struct apply *a)
{
	/* 22000: of the class of data, as the mode cannot read it */
	connfault_set(&a->fault, "postgres", false, "%.*s",
		SPAN_ARG(a->culprit.text));
	memcpy(a->fault.sqlstate, "22000", sizeof("22000"));
	a->own = true;
	give_up(a, APPLY_FAILED);
}

static void
pump(void *arg)
{
	struct apply *a = arg;

	while (!a->fault.code && a->ops_at < a->ops_n)
		if (send_next(a))
			return;
	if (a->fault.code) {
		give_up(a, APPLY_FAILED);
	} else if (a->next == a->todo_n) {
		commit(a);
	} else if (!make_ops(a)) {
		unreadable(a);
	} else if (a->ops_first == 0) {
		pump(a);
	} else {
		/* other workers have their turn between chunks */
		loop_timer_start(&a->more, 0);
	}
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
	if (failed(a, why, false)) {
		give_up(a, APPLY_FAILED);
		return;
	}
	rows = (size_t)PQntuples(res[0]);
	if (rows != parts_n(a)) {
		connfault_set(&a->fault, "postgres", true,
			"progress rows of this sink were removed meanwhile");
		give_up(a, APPLY_FAILED);
		return;
	}
	a->at = arena_zalloc(&a->arena, rows * sizeof(*a->at));
	for (size_t i = 0; i < rows; i++) {
		enum progress_is is = read_row(a, res[0], i);

		if (is != PROGRESS_OURS) {
			give_up(a, is == PROGRESS_NEWER ? APPLY_NEWER
							: APPLY_FOREIGN);
			return;
		}
	}
	choose(a);
	pump(a);
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
	progress(a, PROGRESS_INSERT, "insert", p, 5, on_step);
	progress(a, PROGRESS_LOCK, "lock", p, 2, on_rows);
}

/* ---- from outside ---- */

void
apply_init(struct apply *a, struct loop *l, apply_fn fn, void *arg)
{
	*a = (struct apply){ .fn = fn, .arg = arg };
	loop_timer_init(&a->more, l, pump, a);
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
	a->culprit = (struct isolate_culprit){ .n = 0 };
	a->runs = true;
	a->giving_up = false;
	a->todo_n = a->next = 0;
	a->ops_n = a->ops_at = a->ops_first = 0;
	pglink_exec(with->link, "begin",
		"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", NULL, 0,
		on_step, a);
	lock_rows(a);
	pglink_sync(with->link);
}
