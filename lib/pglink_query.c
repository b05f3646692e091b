/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements in a row, and those of the simple protocol: one at a time is on
 * its way, its results are collected until the server is ready for the next.
 */
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "pglink_int.h"

/* ---- lists ---- */

void
pglink_ops_init(struct pglink_ops *l)
{
	l->first = NULL;
	l->end = &l->first;
}

void
pglink_ops_add(struct pglink_ops *l, struct pglink_op *o)
{
	o->next = NULL;
	*l->end = o;
	l->end = &o->next;
}

struct pglink_op *
pglink_ops_take(struct pglink_ops *l)
{
	struct pglink_op *o = l->first;

	if (!o)
		return NULL;
	l->first = o->next;
	if (!l->first)
		l->end = &l->first;
	return o;
}

/* ---- one statement ---- */

struct pglink_op *
pglink_op_new(
	enum pglink_op_kind kind, const char *sql, pglink_fn fn, void *arg)
{
	struct pglink_op *o = calloc(1, sizeof(*o));

	BUG(!o);
	o->kind = kind;
	o->fn = fn;
	o->arg = arg;
	if (sql) {
		o->sql = strdup(sql);
		BUG(!o->sql);
	}
	return o;
}

void
pglink_op_free(struct pglink_op *o)
{
	for (int i = 0; i < o->res_n; i++)
		PQclear(o->res[i]);
	free(o->res);
	free(o->sql);
	free(o->name);
	free(o->len);
	buf_fini(&o->data);
	free(o);
}

/* The first failure stays. */
void
pglink_op_fail(struct pglink_op *o, const struct connfault *why)
{
	if (o->failed)
		return;
	o->failed = true;
	o->why = *why;
}

void
pglink_op_answer(struct pglink_op *o)
{
	if (o->fn)
		o->fn(o->arg, o->res, o->res_n, o->failed ? &o->why : NULL);
	pglink_op_free(o);
}

static void
keep_result(struct pglink_op *o, PGresult *r)
{
	/* room for 4, 8, 16 ... */
	if (o->res_n == 0 || (o->res_n >= 4 && !(o->res_n & (o->res_n - 1)))) {
		size_t room = o->res_n ? 2 * (size_t)o->res_n : 4;

		o->res = realloc(o->res, room * sizeof(*o->res));
		BUG(!o->res);
	}
	o->res[o->res_n++] = r;
}

/* ---- simple protocol ---- */

void
pglink_query(struct pglink *k, const char *sql, pglink_fn fn, void *arg)
{
	BUG(k->use == PGLINK_PIPELINE);
	pglink_queue(k, pglink_op_new(OP_QUERY, sql, fn, arg));
}

void
pglink_query_send(struct pglink *k)
{
	struct pglink_op *o;

	if (k->sent.first || k->copy != COPY_NONE)
		return;
	o = pglink_ops_take(&k->waiting);
	if (!o)
		return;
	pglink_ops_add(&k->sent, o);
	if (PQsendQuery(k->pg, o->sql) != 1)
		pglink_lose_broken(k);
	else
		pglink_flush(k);
}

/*
 * A pooler that passes the start of a replication session on as an ordinary
 * one is noticed when the first command is no SQL to it.
 */
static void
hint_at_pooler(struct pglink *k, struct pglink_op *o)
{
	char said[CONNFAULT_TEXT_MAX + 1];
	struct connfault *f = &o->why;
	char state[6];

	if (k->use != PGLINK_REPLICATION || !connfault_is(f, "42601"))
		return;
	memcpy(said, f->text, sizeof(said));
	memcpy(state, f->sqlstate, sizeof(state));
	connfault_set(f, f->code, f->retryable,
		"%.800s. If this is a connection pooler, which cannot carry "
		"replication: connect directly to PostgreSQL",
		said);
	memcpy(f->sqlstate, state, sizeof(state));
}

/* Takes r over. */
static void
take_result(struct pglink *k, struct pglink_op *o, PGresult *r)
{
	struct connfault why;

	switch (PQresultStatus(r)) {
	case PGRES_TUPLES_OK:
	case PGRES_COMMAND_OK:
	case PGRES_EMPTY_QUERY:
		if (!o->failed)
			keep_result(o, r);
		else
			PQclear(r);
		return;
	case PGRES_FATAL_ERROR:
	case PGRES_BAD_RESPONSE:
	case PGRES_NONFATAL_ERROR:
		pglink_heed(k, r);
		connfault_result(&why, r, k->pg);
		pglink_op_fail(o, &why);
		hint_at_pooler(k, o);
		PQclear(r);
		return;
	default:
		break;
	}
	/* COPY: nothing could be done with it, and no result ends it */
	connfault_set(&why, "io", true, "the server began to copy");
	PQclear(r);
	pglink_op_fail(o, &why);
	pglink_lose(k, &why);
}

/* Callers rely on one; what is no PostgreSQL may forget it. */
static void
demand_result(struct pglink_op *o)
{
	struct connfault why;

	if (o->res_n > 0 && o->kind == OP_QUERY)
		return;
	connfault_set(&why, "io", true,
		"the server did not answer a statement as PostgreSQL does");
	pglink_op_fail(o, &why);
}

void
pglink_query_read(struct pglink *k)
{
	struct pglink_op *o;

	/* it reads what came even when nothing was asked */
	while (k->pg && !PQisBusy(k->pg) && (o = k->sent.first) != NULL) {
		PGresult *r = PQgetResult(k->pg);

		if (r && o->kind == OP_STREAM &&
			PQresultStatus(r) == PGRES_COPY_BOTH) {
			PQclear(r);
			pglink_stream_began(k, pglink_ops_take(&k->sent));
			return;
		}
		if (r) {
			take_result(k, o, r);
			continue;
		}
		demand_result(o);
		pglink_op_answer(pglink_ops_take(&k->sent));
		if (k->pg)
			pglink_query_send(k);
	}
}
