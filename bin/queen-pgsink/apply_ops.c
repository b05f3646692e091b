/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statements of a transaction's messages, made and sent chunk by chunk.
 * They are one flight, except where the answer decides what follows.
 */
#include <string.h>

#include "apply_int.h"
#include "connfault.h"
#include "feed.h"
#include "pglink.h"
#include "stmts.h"

enum { CHUNK = 1000 }; /* messages made into operations in one turn */

/* A statement of messages on its way. */
struct sent {
	struct apply *a;
	size_t first, n; /* messages of the batch */
	struct op *otherwise;
	bool awaited;
};

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
	if (apply_failed(a, why, !pglink_prepare_failed(a->with.link))) {
		if (first)
			blame(a, s->first, s->n, SPAN_LIT(""));
		if (s->awaited)
			apply_give_up(a, APPLY_FAILED);
		return;
	}
	if (!s->awaited)
		return;
	/* a move that found no row: the next in line is what it means then */
	if (s->otherwise && strcmp(PQcmdTuples(res[0]), "0") == 0)
		a->ops[--a->ops_at] = *s->otherwise;
	apply_pump(a);
}

/* Shapes have no bound: what the server keeps of them must have one. */
static void
make_room(struct apply *a)
{
	if (!stmts_is_full(a->with.stmts))
		return;
	stmts_forget(a->with.stmts);
	pglink_forget(a->with.link);
	pglink_exec(a->with.link, NULL, "DEALLOCATE ALL", NULL, 0,
		apply_on_step, a);
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
	apply_give_up(a, APPLY_FAILED);
}

void
apply_pump(void *arg)
{
	struct apply *a = arg;

	while (!a->fault.code && a->ops_at < a->ops_n)
		if (send_next(a))
			return;
	if (a->fault.code) {
		apply_give_up(a, APPLY_FAILED);
	} else if (a->next == a->todo_n) {
		apply_commit(a);
	} else if (!make_ops(a)) {
		unreadable(a);
	} else if (a->ops_first == 0) {
		apply_pump(a);
	} else {
		/* other workers have their turn between chunks */
		loop_timer_start(&a->more, 0);
	}
}
