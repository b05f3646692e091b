/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flights of statements in the extended protocol.  Each command has one result
 * and is counted by it; what failed takes the rest of its flight along.  A
 * statement counts as prepared when the server has said so: one of a later
 * flight that names it waits until then, because the flight that prepares it
 * may fail before it comes to that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "pglink_int.h"

enum {
	TEXT_OID = 25,
	NAME_MAX_BYTES = 40,
	SERVER_NAME = 64,
	PARAMS_MAX = 65535 /* a 16-bit number in the protocol */
};

/* ---- names ---- */

static struct pglink_stmt **
find(struct pglink *k, const char *name)
{
	struct pglink_stmt **at = &k->stmts;

	while (*at && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	return at;
}

static void
remember(struct pglink *k, const char *name)
{
	size_t n = strlen(name) + 1;
	struct pglink_stmt *s = calloc(1, sizeof(*s) + n);

	BUG(!s);
	memcpy(s->name, name, n);
	s->flight = k->flight;
	s->next = k->stmts;
	k->stmts = s;
}

static void
forget_all(struct pglink *k)
{
	struct pglink_stmt *s;

	while ((s = k->stmts) != NULL) {
		k->stmts = s->next;
		free(s);
	}
}

void
pglink_pipe_fini(struct pglink *k)
{
	forget_all(k);
}

/* ---- parameters ---- */

struct pipe_params {
	const char **value;
	int *len, *format;
	Oid *type;
};

static void
params_make(struct pipe_params *p, const struct pglink_op *o)
{
	size_t n = (size_t)o->params_n, at = 0;

	p->value = calloc(n + 1, sizeof(*p->value));
	p->len = calloc(n + 1, sizeof(*p->len));
	p->format = calloc(n + 1, sizeof(*p->format));
	p->type = calloc(n + 1, sizeof(*p->type));
	BUG(!p->value || !p->len || !p->format || !p->type);
	for (size_t i = 0; i < n; i++) {
		/* binary text has a length, so it may hold any byte */
		p->format[i] = 1;
		p->type[i] = TEXT_OID;
		if (o->len[i] < 0)
			continue;
		p->value[i] = o->data.p + at;
		p->len[i] = o->len[i];
		at += (size_t)o->len[i];
	}
}

static void
params_free(struct pipe_params *p)
{
	free(p->value);
	free(p->len);
	free(p->format);
	free(p->type);
}

static void
params_keep(struct pglink_op *o, const struct pglink_param *params, int n)
{
	o->params_n = n;
	o->len = calloc((size_t)n + 1, sizeof(*o->len));
	BUG(!o->len);
	/* an empty value is no null: it needs some address */
	buf_reserve(&o->data, 1);
	for (int i = 0; i < n; i++) {
		o->len[i] = params[i].text.p ? (int)params[i].text.n : -1;
		buf_put_span(&o->data, params[i].text);
	}
}

/* ---- out ---- */

static bool
send_named(struct pglink *k, struct pglink_op *o, const struct pipe_params *p)
{
	char name[SERVER_NAME];

	snprintf(name, sizeof(name), "%s.%u", o->name, k->generation);
	if (!*find(k, o->name)) {
		remember(k, o->name);
		o->preparing = true;
		o->generation = k->generation;
		o->commands++;
		if (PQsendPrepare(k->pg, name, o->sql, o->params_n, p->type) !=
			1)
			return false;
	}
	o->commands++;
	return PQsendQueryPrepared(k->pg, name, o->params_n, p->value, p->len,
		       p->format, 0) == 1;
}

static bool
send_describe(
	struct pglink *k, struct pglink_op *o, const struct pipe_params *p)
{
	o->commands = 2;
	return PQsendPrepare(k->pg, "", o->sql, o->params_n, p->type) == 1 &&
	       PQsendDescribePrepared(k->pg, "") == 1;
}

static bool
send_exec(struct pglink *k, struct pglink_op *o)
{
	struct pipe_params p;
	bool ok;

	params_make(&p, o);
	if (o->describe) {
		ok = send_describe(k, o, &p);
	} else if (o->name) {
		ok = send_named(k, o, &p);
	} else {
		o->commands++;
		ok = PQsendQueryParams(k->pg, o->sql, o->params_n, p.type,
			     p.value, p.len, p.format, 0) == 1;
	}
	params_free(&p);
	/* libpq has them now */
	buf_fini(&o->data);
	k->open = true;
	return ok;
}

static bool
send_sync(struct pglink *k)
{
	k->flight++;
	k->open = false;
	return PQpipelineSync(k->pg) == 1;
}

static bool
must_wait(struct pglink *k, const struct pglink_op *o)
{
	const struct pglink_stmt *s;

	if (o->kind != OP_EXEC || !o->name)
		return false;
	s = *find(k, o->name);
	return s && !s->ready && s->flight != k->flight;
}

void
pglink_pipe_send(struct pglink *k)
{
	while (k->waiting.first && !must_wait(k, k->waiting.first)) {
		struct pglink_op *o = pglink_ops_take(&k->waiting);
		bool ok;

		pglink_ops_add(&k->sent, o);
		ok = o->kind == OP_SYNC ? send_sync(k) : send_exec(k, o);
		if (!ok) {
			pglink_lose_broken(k);
			return;
		}
	}
	/* before a sync only what libpq's own buffer does not hold goes out */
	if (!k->open)
		pglink_flush(k);
}

void
pglink_exec(struct pglink *k, const char *name, const char *sql,
	const struct pglink_param *params, int n, pglink_fn fn, void *arg)
{
	struct pglink_op *o = pglink_op_new(OP_EXEC, sql, fn, arg);

	BUG(k->use != PGLINK_PIPELINE || n > PARAMS_MAX);
	if (name) {
		BUG(strlen(name) > NAME_MAX_BYTES);
		o->name = strdup(name);
		BUG(!o->name);
	}
	params_keep(o, params, n);
	pglink_queue(k, o);
}

bool
pglink_prepare_failed(const struct pglink *k)
{
	return k->prepare_failed;
}

void
pglink_describe(
	struct pglink *k, const char *sql, int n, pglink_fn fn, void *arg)
{
	struct pglink_op *o = pglink_op_new(OP_EXEC, sql, fn, arg);

	BUG(k->use != PGLINK_PIPELINE);
	o->describe = true;
	params_keep(o, NULL, 0);
	o->params_n = n;
	o->len = realloc(o->len, ((size_t)n + 1) * sizeof(*o->len));
	BUG(!o->len);
	for (int i = 0; i < n; i++)
		o->len[i] = -1;
	pglink_queue(k, o);
}

void
pglink_sync(struct pglink *k)
{
	BUG(k->use != PGLINK_PIPELINE);
	pglink_queue(k, pglink_op_new(OP_SYNC, NULL, NULL, NULL));
}

/*
 * The names change, so that nothing depends on what becomes of the old ones;
 * the server is told to drop them when that disturbs no flight.
 */
void
pglink_forget(struct pglink *k)
{
	bool any = k->stmts != NULL;

	BUG(k->use != PGLINK_PIPELINE);
	forget_all(k);
	k->generation++;
	if (!any || k->open || k->waiting.first || k->state != PGLINK_UP)
		return;
	pglink_exec(k, NULL, "deallocate all", NULL, 0, NULL, NULL);
	pglink_sync(k);
}

/* ---- in ---- */

/* Whether its statement is there now. */
static void
settle_name(struct pglink *k, const struct pglink_op *o)
{
	struct pglink_stmt **at, *s;

	if (!o->preparing || o->generation != k->generation)
		return;
	at = find(k, o->name);
	s = *at;
	if (o->ok > 0) {
		s->ready = true;
		return;
	}
	*at = s->next;
	free(s);
}

static void
finish(struct pglink *k)
{
	struct pglink_op *o = pglink_ops_take(&k->sent);

	if (o->kind == OP_EXEC)
		settle_name(k, o);
	pglink_op_answer(o);
	if (k->pg && k->waiting.first)
		pglink_pipe_send(k);
}

static void
take_tuples(struct pglink_op *o, PGresult *r)
{
	o->ok++;
	/* of a prepare nothing is kept */
	if (o->done < o->commands || o->kind != OP_EXEC) {
		PQclear(r);
		return;
	}
	o->res = calloc(1, sizeof(*o->res));
	BUG(!o->res);
	o->res[0] = r;
	o->res_n = 1;
}

/* Takes r over, which has no place here. */
static void
out_of_step(struct pglink *k, PGresult *r, const char *what)
{
	struct connfault why;

	pglink_heed(k, r);
	PQclear(r);
	connfault_set(&why, "io", true, "%s", what);
	pglink_lose(k, &why);
}

/* Takes r over. */
static void
take_result(struct pglink *k, PGresult *r)
{
	struct connfault why = { .code = NULL };
	struct pglink_op *o = k->sent.first;
	ExecStatusType st = PQresultStatus(r);

	if (!o || (st == PGRES_PIPELINE_SYNC && o->kind != OP_SYNC)) {
		out_of_step(k, r, "the server lost count of statements");
		return;
	}
	if (st == PGRES_PIPELINE_SYNC) {
		PQclear(r);
		finish(k);
		return;
	}
	if (st == PGRES_COPY_IN || st == PGRES_COPY_OUT ||
		st == PGRES_COPY_BOTH) {
		/* nothing could be done with it, and no result ends it */
		out_of_step(k, r, "the server began to copy");
		return;
	}
	o->done++;
	if (st == PGRES_TUPLES_OK || st == PGRES_COMMAND_OK ||
		st == PGRES_EMPTY_QUERY) {
		take_tuples(o, r);
	} else {
		if (st != PGRES_PIPELINE_ABORTED) {
			pglink_heed(k, r);
			connfault_result(&why, r, k->pg);
			k->prepare_failed = o->preparing && o->done == 1;
		}
		pglink_op_fail(o, &why);
		PQclear(r);
	}
	if (o->kind == OP_EXEC && o->done == o->commands)
		finish(k);
}

void
pglink_pipe_read(struct pglink *k)
{
	int nulls = 0;

	/*
	 * Once more behind the last answer: libpq hears why a session ends only
	 * when it knows that it is idle.
	 */
	while (k->pg && !PQisBusy(k->pg)) {
		PGresult *r = PQgetResult(k->pg);

		if (r) {
			nulls = 0;
			take_result(k, r);
		} else if (!k->sent.first ||
			   PQstatus(k->pg) == CONNECTION_BAD || ++nulls > 2) {
			break;
		}
	}
}
