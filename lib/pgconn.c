/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One asynchronous link: dialled, set up, then a pipeline of calls.  A call
 * is one to three commands and a sync; its outcome is known at the sync and
 * not before, because the server commits there.  Results are drained to the
 * sync whatever happens; a link in doubt is closed, never reused.
 *
 * Callbacks run from the loop only, and any of them may free the link: what
 * runs on the link's behalf is bracketed by enter/leave.
 */
#include "pgconn.h"

#include <event2/event.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "loop.h"
#include "pgbin.h"
#include "pgdial.h"

enum {
	BACKOFF_MIN_MS = 100,
	BACKOFF_MAX_MS = 5000,
	SETTLED_MS = 1000, /* up for so long: the next loss dials at once */
	SETUP_MS = 5000
};

enum state {
	WAITING, /* for the end of the backoff */
	DIALLING,
	SETUP, /* session settings sent */
	UP,
	LOST, /* on_later reports it */
};

struct call {
	struct call *next;
	pgconn_result_fn fn;
	void *arg;
	const struct pgstmt *preparing; /* unmarked when that fails */
	int commands, done;
	PGresult *rows; /* of the last command */
	struct err err; /* of the first that failed */
	int64_t sent_ms;
};

struct calls {
	struct call *first, **end;
	int n;
};

struct pgconn {
	struct loop *loop;
	struct pgdial *dial;
	PGconn *pg;
	struct event *rd, *wr;
	struct loop_timer retry; /* backoff, and the limit of the setup */
	struct loop_timer
		later; /* what must not happen inside a call of ours */
	struct loop_timer watch; /* for a statement without an answer */
	char *session_sql;
	enum state state;
	struct calls inflight, dead;
	struct call *current; /* its callback is running */
	const struct pgstmt **prepared;
	size_t prepared_n, prepared_cap;
	struct err why;
	bool was_up;
	int64_t up_at_ms, backoff_ms, limit_ms;
	pgconn_event_fn on_event;
	void *arg;
	pgconn_notify_fn on_notify;
	void *notify_arg;
	int depth; /* callbacks of ours on the stack */
	bool freed;
};

/* ---- lists ---- */

static void
calls_init(struct calls *l)
{
	*l = (struct calls){ .end = &l->first };
}

static void
calls_add(struct calls *l, struct call *k)
{
	k->next = NULL;
	*l->end = k;
	l->end = &k->next;
	l->n++;
}

static struct call *
calls_take(struct calls *l)
{
	struct call *k = l->first;

	if (k == NULL)
		return NULL;
	l->first = k->next;
	if (l->first == NULL)
		l->end = &l->first;
	l->n--;
	return k;
}

static void
call_free(struct call *k)
{
	if (k != NULL)
		PQclear(k->rows);
	free(k);
}

/* ---- life ---- */

static void
destroy(struct pgconn *c)
{
	struct call *k;

	while ((k = calls_take(&c->inflight)) != NULL)
		call_free(k);
	while ((k = calls_take(&c->dead)) != NULL)
		call_free(k);
	free(c->prepared);
	free(c->session_sql);
	free(c);
}

static void
enter(struct pgconn *c)
{
	c->depth++;
}

static void
leave(struct pgconn *c)
{
	if (--c->depth == 0 && c->freed)
		destroy(c);
}

static void
drop_link(struct pgconn *c)
{
	if (c->rd != NULL)
		event_free(c->rd);
	if (c->wr != NULL)
		event_free(c->wr);
	c->rd = c->wr = NULL;
	PQfinish(c->pg);
	c->pg = NULL;
	c->prepared_n = 0;
	loop_timer_stop(&c->watch);
}

void
pgconn_free(struct pgconn *c)
{
	if (c == NULL)
		return;
	BUG(c->freed);
	drop_link(c);
	pgdial_free(c->dial);
	loop_timer_fini(&c->retry);
	loop_timer_fini(&c->later);
	loop_timer_fini(&c->watch);
	c->freed = true;
	if (c->depth == 0)
		destroy(c);
}

/*
 * Closes the link.  Calls and listeners hear of it from on_later, so this is
 * safe anywhere.  A call that the server refused keeps its reason, unless it
 * had delivered rows: then the commit may have happened.
 */
static void
lose(struct pgconn *c, const struct err *why)
{
	struct call *k;

	while ((k = calls_take(&c->inflight)) != NULL) {
		if (k->err.kind == ERR_NONE || k->done >= k->commands) {
			k->err = *why;
			k->err.kind = ERR_DB_UNKNOWN;
		}
		PQclear(k->rows);
		k->rows = NULL;
		calls_add(&c->dead, k);
	}
	c->was_up = c->state == UP;
	c->why = *why;
	pgdial_stop(c->dial);
	loop_timer_stop(&c->retry);
	drop_link(c);
	c->state = LOST;
	loop_timer_start(&c->later, 0);
}

static void
lose_text(struct pgconn *c, enum err_kind kind, const char *text)
{
	struct err e;

	err_set(&e, kind, "%s", text);
	lose(c, &e);
}

static void
lose_broken(struct pgconn *c)
{
	struct err e;

	pgconn_err(&e, NULL, c->pg);
	lose(c, &e);
}

/* ---- dialling ---- */

static void
dial(struct pgconn *c)
{
	c->state = DIALLING;
	pgdial_start(c->dial);
}

/* After a loss: at once when it had settled, else after the backoff. */
static void
schedule(struct pgconn *c)
{
	int64_t half = c->backoff_ms / 2;

	c->state = WAITING;
	if (c->was_up && loop_now_ms(c->loop) - c->up_at_ms >= SETTLED_MS) {
		c->backoff_ms = BACKOFF_MIN_MS;
		loop_timer_start(&c->retry, 0);
		return;
	}
	loop_timer_start(&c->retry,
		half + (int64_t)randombytes_uniform((uint32_t)half + 1));
	c->backoff_ms *= 2;
	if (c->backoff_ms > BACKOFF_MAX_MS)
		c->backoff_ms = BACKOFF_MAX_MS;
}

static void
on_retry(void *arg)
{
	struct pgconn *c = arg;

	if (c->state == SETUP)
		lose_text(c, ERR_DB_RETRY,
			"no answer to the session settings in time");
	else if (c->state == WAITING)
		dial(c);
}

/* Answers the calls whose fate is known without the server. */
static void
answer_dead(struct pgconn *c)
{
	struct call *k;

	/* calls queued by these callbacks wait for the next turn */
	for (int n = c->dead.n; n > 0 && !c->freed; n--) {
		k = calls_take(&c->dead);
		if (k->fn != NULL)
			k->fn(k->arg, NULL, &k->err);
		call_free(k);
	}
	if (!c->freed && c->dead.n > 0)
		loop_timer_start(&c->later, 0);
}

static void
on_later(void *arg)
{
	struct pgconn *c = arg;

	enter(c);
	answer_dead(c);
	if (!c->freed && c->state == LOST) {
		schedule(c);
		c->on_event(c->arg, PGCONN_DOWN, &c->why);
	}
	leave(c);
}

static void
on_watch(void *arg)
{
	struct pgconn *c = arg;
	int64_t age_ms;

	if (c->inflight.first == NULL || c->limit_ms <= 0)
		return;
	age_ms = loop_now_ms(c->loop) - c->inflight.first->sent_ms;
	if (age_ms >= c->limit_ms)
		lose_text(c, ERR_DB_UNKNOWN, "no answer in time");
	else
		loop_timer_start(&c->watch, c->limit_ms - age_ms);
}

/* ---- results ---- */

static void
forget_prepared(struct pgconn *c, const struct pgstmt *s)
{
	for (size_t i = 0; i < c->prepared_n; i++)
		if (c->prepared[i] == s) {
			c->prepared[i] = c->prepared[--c->prepared_n];
			return;
		}
}

static void
finish_call(struct pgconn *c)
{
	struct call *k = calls_take(&c->inflight);
	bool failed = k->err.kind != ERR_NONE;

	/* the last command is the statement itself, before it the prepare */
	if (k->preparing != NULL && k->done < k->commands - 1)
		forget_prepared(c, k->preparing);
	c->current = k;
	if (k->fn != NULL)
		k->fn(k->arg, failed ? NULL : k->rows, failed ? &k->err : NULL);
	c->current = NULL;
	call_free(k);
}

/* Takes r over. */
static void
take_result(struct pgconn *c, PGresult *r)
{
	struct call *k = c->inflight.first;

	switch (PQresultStatus(r)) {
	case PGRES_PIPELINE_SYNC:
		PQclear(r);
		finish_call(c);
		return;
	case PGRES_TUPLES_OK:
	case PGRES_COMMAND_OK:
		k->done++;
		PQclear(k->rows);
		k->rows = r;
		return;
	case PGRES_PIPELINE_ABORTED:
		break;
	default:
		if (k->err.kind == ERR_NONE)
			pgconn_err(&k->err, r, c->pg);
		break;
	}
	PQclear(r);
}

static void
drain(struct pgconn *c)
{
	int nulls = 0;

	/* a callback may reset or free the link: then there is no pg */
	while (c->pg != NULL && c->inflight.first != NULL && !PQisBusy(c->pg)) {
		PGresult *r = PQgetResult(c->pg);

		if (r != NULL) {
			nulls = 0;
			take_result(c, r);
		} else if (PQstatus(c->pg) == CONNECTION_BAD || ++nulls > 2) {
			break;
		}
	}
}

static void
drain_notifies(struct pgconn *c)
{
	PGnotify *n;

	while (c->pg != NULL && (n = PQnotifies(c->pg)) != NULL) {
		if (c->on_notify != NULL)
			c->on_notify(c->notify_arg, n);
		PQfreemem(n);
	}
}

/* Flushes what is buffered; the write event carries the rest. */
static void
flush(struct pgconn *c)
{
	int r = PQflush(c->pg);

	if (r < 0)
		lose_broken(c);
	else if (r == 0)
		event_del(c->wr);
	else
		event_add(c->wr, NULL);
}

static void
on_up(struct pgconn *c)
{
	loop_timer_stop(&c->retry);
	if (PQenterPipelineMode(c->pg) != 1) {
		lose_broken(c);
		return;
	}
	c->state = UP;
	c->up_at_ms = loop_now_ms(c->loop);
	c->on_event(c->arg, PGCONN_UP, NULL);
}

static void
setup_step(struct pgconn *c)
{
	while (!PQisBusy(c->pg)) {
		PGresult *r = PQgetResult(c->pg);
		ExecStatusType st = PQresultStatus(r);

		if (r == NULL) {
			if (PQstatus(c->pg) == CONNECTION_OK)
				on_up(c);
			return;
		}
		if (st != PGRES_COMMAND_OK && st != PGRES_TUPLES_OK) {
			struct err e;

			pgconn_err(&e, r, c->pg);
			PQclear(r);
			lose(c, &e);
			return;
		}
		PQclear(r);
	}
}

static void
on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct pgconn *c = arg;
	bool ok;

	(void)fd;
	(void)what;
	enter(c);
	/* at the end of the stream what came before it still counts */
	ok = PQconsumeInput(c->pg) == 1;
	if (c->state == SETUP)
		setup_step(c);
	if (c->state == UP) {
		drain(c);
		drain_notifies(c);
	}
	if (c->pg != NULL && (!ok || PQstatus(c->pg) == CONNECTION_BAD))
		lose_broken(c);
	else if (c->pg != NULL)
		flush(c);
	leave(c);
}

static void
on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct pgconn *c = arg;

	(void)fd;
	(void)what;
	flush(c);
}

static void
on_dialled(void *arg, PGconn *pg, const struct err *why)
{
	struct pgconn *c = arg;
	struct event_base *base = loop_base(c->loop);

	if (pg == NULL) {
		lose(c, why);
		return;
	}
	c->pg = pg;
	c->state = SETUP;
	c->rd = event_new(
		base, PQsocket(pg), EV_READ | EV_PERSIST, on_readable, c);
	c->wr = event_new(
		base, PQsocket(pg), EV_WRITE | EV_PERSIST, on_writable, c);
	BUG(c->rd == NULL || c->wr == NULL || event_add(c->rd, NULL) != 0);
	loop_timer_start(&c->retry, SETUP_MS);
	if (PQsetnonblocking(pg, 1) != 0 ||
		PQsendQuery(pg, c->session_sql) != 1)
		lose_broken(c);
	else
		flush(c);
}

/* ---- the surface ---- */

static char *
joined(const char *a, const char *b)
{
	struct buf s = BUF_ZERO;

	buf_printf(&s, "%s;%s", a, b);
	buf_putc(&s, '\0');
	return s.p;
}

struct pgconn *
pgconn_new(struct loop *l, const char *conninfo, const char *application_name,
	pgconn_event_fn on_event, void *arg)
{
	struct pgconn *c = calloc(1, sizeof *c);

	BUG(c == NULL || on_event == NULL);
	c->loop = l;
	c->on_event = on_event;
	c->arg = arg;
	c->backoff_ms = BACKOFF_MIN_MS;
	calls_init(&c->inflight);
	calls_init(&c->dead);
	c->session_sql = strdup(pgconn_session_sql);
	BUG(c->session_sql == NULL);
	loop_timer_init(&c->retry, l, on_retry, c);
	loop_timer_init(&c->later, l, on_later, c);
	loop_timer_init(&c->watch, l, on_watch, c);
	c->dial = pgdial_new(l, conninfo, application_name, on_dialled, c);
	dial(c);
	return c;
}

void
pgconn_session_add(struct pgconn *c, const char *sql)
{
	char *all = joined(c->session_sql, sql);

	free(c->session_sql);
	c->session_sql = all;
}

void
pgconn_on_notify(struct pgconn *c, pgconn_notify_fn fn, void *arg)
{
	c->on_notify = fn;
	c->notify_arg = arg;
}

bool
pgconn_is_up(const struct pgconn *c)
{
	return c->state == UP;
}

int
pgconn_backend_pid(const struct pgconn *c)
{
	return c->state == UP ? PQbackendPID(c->pg) : 0;
}

int
pgconn_pending(const struct pgconn *c)
{
	return c->inflight.n + c->dead.n;
}

void
pgconn_reset(struct pgconn *c)
{
	if (c->state == SETUP || c->state == UP)
		lose_text(c, ERR_DB_UNKNOWN, "connection closed");
}

void
pgconn_hurry(struct pgconn *c)
{
	if (c->state != WAITING)
		return;
	c->backoff_ms = BACKOFF_MIN_MS;
	loop_timer_start(&c->retry, 0);
}

void
pgconn_limit(struct pgconn *c, int64_t unanswered_ms)
{
	c->limit_ms = unanswered_ms;
}

PGresult *
pgconn_take_result(struct pgconn *c)
{
	PGresult *r;

	BUG(c->current == NULL || c->current->err.kind != ERR_NONE);
	r = c->current->rows;
	c->current->rows = NULL;
	return r;
}

/* The parameters as libpq wants them; they live as long as args. */
struct params {
	const char *value[PGARGS_MAX];
	int len[PGARGS_MAX], format[PGARGS_MAX];
	int n;
};

static void
params_of(struct params *p, const struct pgargs *a)
{
	p->n = a != NULL ? a->n : 0;
	BUG(a != NULL && a->open >= 0);
	for (int i = 0; i < p->n; i++) {
		/* an empty value is no null: it needs some address */
		const char *base = a->data.p != NULL ? a->data.p : "";

		p->value[i] = a->null[i] ? NULL : base + a->at[i];
		p->len[i] = (int)a->len[i];
		p->format[i] = 1;
	}
}

/* True when s was not prepared on this link before; it counts as so now. */
static bool
remember_prepared(struct pgconn *c, const struct pgstmt *s)
{
	for (size_t i = 0; i < c->prepared_n; i++)
		if (c->prepared[i] == s)
			return false;
	if (c->prepared_n == c->prepared_cap) {
		c->prepared_cap = c->prepared_cap ? c->prepared_cap * 2 : 16;
		c->prepared = realloc(
			c->prepared, c->prepared_cap * sizeof *c->prepared);
		BUG(c->prepared == NULL);
	}
	c->prepared[c->prepared_n++] = s;
	return true;
}

static bool
put_commands(struct pgconn *c, struct call *k, const struct pgstmt *s,
	const char *sql, bool begin, const struct pgargs *args)
{
	struct params p;

	params_of(&p, args);
	if (begin) {
		k->commands++;
		if (PQsendQueryParams(
			    c->pg, "begin", 0, NULL, NULL, NULL, NULL, 1) != 1)
			return false;
	}
	k->commands++;
	if (s == NULL)
		return PQsendQueryParams(c->pg, sql, p.n, NULL, p.value, p.len,
			       p.format, 1) == 1;
	if (remember_prepared(c, s)) {
		k->commands++;
		k->preparing = s;
		if (PQsendPrepare(c->pg, s->name, s->sql, 0, NULL) != 1)
			return false;
	}
	return PQsendQueryPrepared(
		       c->pg, s->name, p.n, p.value, p.len, p.format, 1) == 1;
}

static void
issue(struct pgconn *c, const struct pgstmt *s, const char *sql, bool begin,
	const struct pgargs *args, pgconn_result_fn fn, void *arg)
{
	struct call *k = calloc(1, sizeof *k);

	BUG(k == NULL);
	k->fn = fn;
	k->arg = arg;
	if (c->state != UP) {
		err_set(&k->err, ERR_DB_RETRY, "not connected");
		calls_add(&c->dead, k);
		loop_timer_start(&c->later, 0);
		return;
	}
	k->sent_ms = loop_now_ms(c->loop);
	calls_add(&c->inflight, k);
	if (!put_commands(c, k, s, sql, begin, args) ||
		PQpipelineSync(c->pg) != 1) {
		lose_broken(c);
		return;
	}
	if (c->limit_ms > 0 && !loop_timer_pending(&c->watch))
		loop_timer_start(&c->watch, c->limit_ms);
	flush(c);
}

void
pgconn_send(struct pgconn *c, const char *sql, struct pgargs *args,
	pgconn_result_fn fn, void *arg)
{
	issue(c, NULL, sql, false, args, fn, arg);
	if (args != NULL)
		pgargs_fini(args);
}

void
pgconn_call(struct pgconn *c, const struct pgstmt *s, bool begin,
	const struct pgargs *args, pgconn_result_fn fn, void *arg)
{
	issue(c, s, NULL, begin, args, fn, arg);
}
