/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes of links.  An operation owns its link from its first byte until its
 * last sync; nothing is pipelined behind it, so a bundle's transaction is
 * alone and a deadline concerns one operation.
 *
 * What an operation ends with decides what callers may repeat: before COMMIT
 * was sent a bundle that lost its link did not happen; anything else that was
 * sent and not answered is unknown.
 */
#include "pgpool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "pgconn.h"

enum {
	TICK_MS = 50,
	/* how long a cancelled statement may take to say so */
	CANCEL_GRACE_MS = 1000,
	/* how long an operation waits while its lane has no link at all */
	WAIT_MS = 5000,
	/* the server's own limit lies so much above ours */
	BACKSTOP_MS = 5000,
	CONTROL_LIMIT_MS = 5000
};

/* Clients of the broker know this text. */
static const char no_link[] = "pool";

struct op {
	struct op *next;
	const struct pgstmt *stmt;
	struct pgargs args;
	pgpool_decide_fn decide; /* set = a bundle */
	pgpool_fn done;
	void *arg;
	int64_t queued_ms;
	int64_t wait_ms; /* 0 = as long as it takes */
	int retries; /* after a stale plan, once per link at most */
};

enum step { CALLING, COMMITTING, ROLLING_BACK };

struct conn {
	struct pgpool *pool;
	struct lane *lane;
	struct pgconn *link;
	struct op *op; /* NULL = free */
	enum step step;
	PGresult *rows; /* of a bundle, until its end is known */
	struct err err; /* why a bundle is rolled back */
	int64_t deadline_ms;
	bool cancelled;
	bool up; /* as far as this file has been told */
	bool known; /* was up before */
};

struct lane {
	struct conn *conns;
	int conns_n, up, busy;
	struct op *first, **end;
	int waiting;
	pgpool_idle_fn on_idle;
	void *idle_arg;
};

struct pgpool {
	struct loop *loop;
	struct pgconn *control;
	struct lane lanes[PGPOOL_LANES_MAX];
	int lanes_n;
	int64_t stmt_timeout_ms;
	struct loop_timer tick;
	int up;
	bool refused; /* nothing is up and the last attempt failed */
	bool stopped; /* nothing is sent any more */
	uint64_t errors, timeouts, reconnects, calls;
	struct conn *answering; /* whose rows a callback sees */
	PGresult *kept; /* and those of a bundle */
	int depth; /* callbacks of ours on the stack */
	bool freed;
};

/* ---- life ---- */

static void
op_free(struct op *o)
{
	if (o != NULL)
		pgargs_fini(&o->args);
	free(o);
}

static struct op *
lane_take(struct lane *l)
{
	struct op *o = l->first;

	if (o == NULL)
		return NULL;
	l->first = o->next;
	if (l->first == NULL)
		l->end = &l->first;
	l->waiting--;
	return o;
}

static void
lane_put_back(struct lane *l, struct op *o)
{
	o->next = l->first;
	if (l->first == NULL)
		l->end = &o->next;
	l->first = o;
	l->waiting++;
}

static void
destroy(struct pgpool *p)
{
	for (int i = 0; i < p->lanes_n; i++) {
		struct lane *l = &p->lanes[i];
		struct op *o;

		while ((o = lane_take(l)) != NULL)
			op_free(o);
		for (int j = 0; j < l->conns_n; j++) {
			PQclear(l->conns[j].rows);
			op_free(l->conns[j].op);
		}
		free(l->conns);
	}
	free(p);
}

static void
enter(struct pgpool *p)
{
	p->depth++;
}

static void
leave(struct pgpool *p)
{
	if (--p->depth == 0 && p->freed)
		destroy(p);
}

void
pgpool_free(struct pgpool *p)
{
	if (p == NULL)
		return;
	BUG(p->freed);
	pgconn_free(p->control);
	for (int i = 0; i < p->lanes_n; i++)
		for (int j = 0; j < p->lanes[i].conns_n; j++)
			pgconn_free(p->lanes[i].conns[j].link);
	loop_timer_fini(&p->tick);
	p->freed = true;
	if (p->depth == 0)
		destroy(p);
}

/* ---- an operation ---- */

static void dispatch(struct lane *l);

static void
start_tick(struct pgpool *p)
{
	if (!loop_timer_pending(&p->tick))
		loop_timer_start(&p->tick, TICK_MS);
}

static void
op_done(struct pgpool *p, struct op *o, const PGresult *rows,
	const struct err *e)
{
	if (e != NULL)
		p->errors++;
	o->done(o->arg, rows, e);
	op_free(o);
}

/* Ends the operation of a link, then lets the link serve the next one. */
static void
finish(struct conn *k, const PGresult *rows, const struct err *e)
{
	struct pgpool *p = k->pool;
	struct lane *l = k->lane;
	struct op *o = k->op;
	bool replace = k->cancelled;

	p->answering = k;
	p->kept = k->rows;
	k->op = NULL;
	k->rows = NULL;
	k->cancelled = false;
	l->busy--;
	/* a cancel may still be on its way: never on another statement */
	if (replace)
		pgconn_reset(k->link);
	op_done(p, o, rows, e);
	p->answering = NULL;
	PQclear(p->kept);
	p->kept = NULL;
	if (p->freed)
		return;
	dispatch(l);
	if (!p->freed && k->op == NULL && pgconn_is_up(k->link) &&
		l->on_idle != NULL)
		l->on_idle(l->idle_arg, (int)(l - p->lanes));
}

/*
 * The server changed under a prepared statement (a function was replaced, a
 * pooler swapped the session): nothing ran, so prepare again on a new link.
 */
static bool
is_stale_plan(const struct err *e)
{
	return strcmp(e->sqlstate, "26000") == 0 ||
	       strcmp(e->sqlstate, "0A000") == 0 ||
	       strcmp(e->sqlstate, "42P05") == 0;
}

static void
retry_elsewhere(struct conn *k)
{
	struct op *o = k->op;

	o->retries++;
	k->op = NULL;
	k->lane->busy--;
	k->cancelled = false;
	lane_put_back(k->lane, o);
	pgconn_reset(k->link);
	dispatch(k->lane);
}

static void
fail(struct conn *k, const struct err *e)
{
	struct err why = *e;

	if (k->cancelled)
		snprintf(why.text, sizeof why.text,
			"statement timeout after %lld ms",
			(long long)k->pool->stmt_timeout_ms);
	finish(k, NULL, &why);
}

static void
on_bundle_end(void *arg, const PGresult *res, const struct err *e)
{
	struct conn *k = arg;
	struct pgpool *p = k->pool;

	(void)res;
	enter(p);
	if (k->step == ROLLING_BACK) {
		/* rolled back even when the answer is lost */
		struct err why = k->err;

		if (e != NULL && k->link != NULL)
			pgconn_reset(k->link);
		if (why.kind != ERR_NONE)
			fail(k, &why);
		else
			finish(k, k->rows, NULL);
	} else if (e != NULL) {
		fail(k, e);
	} else {
		finish(k, k->rows, NULL);
	}
	leave(p);
}

static void
end_bundle(struct conn *k, enum step step)
{
	static const struct pgstmt commit = { "queen_commit", "commit" };
	static const struct pgstmt rollback = { "queen_rollback", "rollback" };

	k->step = step;
	pgconn_call(k->link, step == COMMITTING ? &commit : &rollback, false,
		NULL, on_bundle_end, k);
}

static void
on_bundle_rows(struct conn *k, const PGresult *res, const struct err *e)
{
	bool commit;

	k->err = (struct err)ERR_ZERO;
	if (e == NULL) {
		k->rows = pgconn_take_result(k->link);
		commit = k->op->decide(k->op->arg, res);
		if (k->pool->freed)
			return;
		/* too late: closing the link rolls back */
		if (k->cancelled) {
			err_set(&k->err, ERR_DB_RETRY, "statement timeout");
			fail(k, &k->err);
			return;
		}
		end_bundle(k, commit ? COMMITTING : ROLLING_BACK);
		return;
	}
	k->err = *e;
	if (k->err.kind == ERR_DB_UNKNOWN)
		k->err.kind = ERR_DB_RETRY; /* no COMMIT was sent */
	if (pgconn_is_up(k->link) && !k->cancelled)
		end_bundle(k, ROLLING_BACK);
	else
		fail(k, &k->err);
}

static void
on_rows(void *arg, const PGresult *res, const struct err *e)
{
	struct conn *k = arg;
	struct pgpool *p = k->pool;

	enter(p);
	if (e != NULL && is_stale_plan(e) && k->op->retries < k->lane->conns_n)
		retry_elsewhere(k);
	else if (k->op->decide != NULL)
		on_bundle_rows(k, res, e);
	else if (e != NULL)
		fail(k, e);
	else
		finish(k, res, NULL);
	leave(p);
}

static void
run(struct conn *k, struct op *o)
{
	struct pgpool *p = k->pool;

	k->op = o;
	k->step = CALLING;
	k->cancelled = false;
	k->lane->busy++;
	k->deadline_ms = loop_now_ms(p->loop) + p->stmt_timeout_ms;
	p->calls++;
	start_tick(p);
	pgconn_call(k->link, o->stmt, o->decide != NULL, &o->args, on_rows, k);
}

static void
dispatch(struct lane *l)
{
	for (int i = 0; i < l->conns_n && l->first != NULL; i++) {
		struct conn *k = &l->conns[i];

		if (k->op == NULL && !k->pool->stopped && pgconn_is_up(k->link))
			run(k, lane_take(l));
	}
}

/* ---- when it takes too long ---- */

static void
cancel(struct pgpool *p, struct conn *k)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_i32(&a, pgconn_backend_pid(k->link));
	pgconn_send(p->control, "select pg_cancel_backend($1)", &a, NULL, NULL);
}

/*
 * First the server is asked to stop; what it answers within the grace is the
 * truth.  A server that says nothing leaves the outcome open.
 */
static void
check_deadline(struct pgpool *p, struct conn *k)
{
	int64_t now = loop_now_ms(p->loop);

	if (k->op == NULL || now < k->deadline_ms)
		return;
	if (!k->cancelled) {
		p->timeouts++;
		k->cancelled = true;
		if (pgconn_is_up(p->control)) {
			k->deadline_ms = now + CANCEL_GRACE_MS;
			cancel(p, k);
			return;
		}
	}
	/* the operation ends in on_rows or on_bundle_end, as with any loss */
	k->deadline_ms = now + CANCEL_GRACE_MS;
	pgconn_reset(k->link);
}

static void
fail_waiting(struct pgpool *p, struct lane *l, int64_t before_ms)
{
	struct err e;

	/* what the callbacks queue comes behind and is younger */
	for (int n = l->waiting; n > 0 && !p->freed && l->first != NULL &&
				 l->first->queued_ms <= before_ms;
		n--) {
		err_set(&e, ERR_DB_RETRY, "%s", no_link);
		op_done(p, lane_take(l), NULL, &e);
	}
}

/* Takes one that has waited longer than it wants to; NULL when there is none. */
static struct op *
take_impatient(struct lane *l, int64_t now)
{
	for (struct op **at = &l->first, *o; (o = *at) != NULL; at = &o->next) {
		if (o->wait_ms == 0 || now - o->queued_ms < o->wait_ms)
			continue;
		*at = o->next;
		if (l->end == &o->next)
			l->end = at;
		l->waiting--;
		return o;
	}
	return NULL;
}

static void
fail_impatient(struct pgpool *p, struct lane *l, int64_t now)
{
	struct op *o;
	struct err e;

	while (!p->freed && (o = take_impatient(l, now)) != NULL) {
		err_set(&e, ERR_LIMIT, "no connection was free within %lld ms",
			(long long)o->wait_ms);
		op_done(p, o, NULL, &e);
	}
}

static void
on_tick(void *arg)
{
	struct pgpool *p = arg;
	int64_t now = loop_now_ms(p->loop);
	bool work = false;

	enter(p);
	for (int i = 0; i < p->lanes_n && !p->freed; i++) {
		struct lane *l = &p->lanes[i];

		for (int j = 0; j < l->conns_n; j++)
			check_deadline(p, &l->conns[j]);
		if (p->refused || p->stopped)
			fail_waiting(p, l, now);
		else if (l->up == 0)
			fail_waiting(p, l, now - WAIT_MS);
		fail_impatient(p, l, now);
	}
	for (int i = 0; i < p->lanes_n && !p->freed; i++)
		work |= p->lanes[i].busy > 0 || p->lanes[i].waiting > 0;
	if (work)
		start_tick(p);
	leave(p);
}

/* ---- links ---- */

static void
hurry_all(struct pgpool *p)
{
	pgconn_hurry(p->control);
	for (int i = 0; i < p->lanes_n; i++)
		for (int j = 0; j < p->lanes[i].conns_n; j++)
			pgconn_hurry(p->lanes[i].conns[j].link);
}

static void
on_link_up(struct conn *k)
{
	struct pgpool *p = k->pool;
	struct lane *l = k->lane;

	if (k->known)
		p->reconnects++;
	k->known = k->up = true;
	l->up++;
	p->refused = false;
	if (p->up++ == 0) {
		log_line(LOG_INFO, "pool", "database reachable", NULL);
		/* the server is there: no need to sit out the backoff */
		hurry_all(p);
	}
	dispatch(l);
	if (k->op == NULL && l->on_idle != NULL)
		l->on_idle(l->idle_arg, (int)(l - p->lanes));
}

static void
on_link_down(struct conn *k, const struct err *why)
{
	struct pgpool *p = k->pool;

	if (k->up) {
		k->up = false;
		k->lane->up--;
		if (--p->up == 0)
			log_line(LOG_WARN, "pool", "no database connection",
				"error=%s", log_quote(why->text));
		return;
	}
	if (p->up > 0)
		return;
	if (!p->refused)
		log_line(LOG_WARN, "pool", "cannot connect to the database",
			"error=%s", log_quote(why->text));
	p->refused = true;
	for (int i = 0; i < p->lanes_n && !p->freed; i++)
		fail_waiting(p, &p->lanes[i], loop_now_ms(p->loop));
}

static void
on_link(void *arg, enum pgconn_event ev, const struct err *why)
{
	struct conn *k = arg;
	struct pgpool *p = k->pool;

	enter(p);
	if (ev == PGCONN_UP)
		on_link_up(k);
	else
		on_link_down(k, why);
	leave(p);
}

/* The control link is a means; its state shows when it is needed. */
static void
on_control(void *arg, enum pgconn_event ev, const struct err *why)
{
	(void)arg;
	(void)ev;
	(void)why;
}

/* ---- the surface ---- */

struct pgpool *
pgpool_new(struct loop *l, const struct pgpool_conf *c)
{
	struct pgpool *p = calloc(1, sizeof *p);
	char backstop[64];

	BUG(p == NULL || c->lanes_n < 1 || c->lanes_n > PGPOOL_LANES_MAX);
	BUG(c->stmt_timeout_ms < 1);
	p->loop = l;
	p->lanes_n = c->lanes_n;
	p->stmt_timeout_ms = c->stmt_timeout_ms;
	loop_timer_init(&p->tick, l, on_tick, p);
	snprintf(backstop, sizeof backstop, "set statement_timeout = %lld",
		(long long)c->stmt_timeout_ms + BACKSTOP_MS);
	for (int i = 0; i < p->lanes_n; i++) {
		struct lane *lane = &p->lanes[i];

		lane->end = &lane->first;
		lane->conns_n = c->conns[i];
		BUG(lane->conns_n < 1);
		lane->conns =
			calloc((size_t)lane->conns_n, sizeof *lane->conns);
		BUG(lane->conns == NULL);
		for (int j = 0; j < lane->conns_n; j++) {
			struct conn *k = &lane->conns[j];

			k->pool = p;
			k->lane = lane;
			k->link = pgconn_new(l, c->conninfo,
				c->application_name, on_link, k);
			pgconn_session_add(k->link, pgconn_heap_sql);
			pgconn_session_add(k->link, backstop);
		}
	}
	p->control =
		pgconn_new(l, c->conninfo, c->application_name, on_control, p);
	pgconn_limit(p->control, CONTROL_LIMIT_MS);
	return p;
}

static void
queue(struct pgpool *p, int lane, struct op *o, struct pgargs *args)
{
	struct lane *l = &p->lanes[lane];

	BUG(lane < 0 || lane >= p->lanes_n);
	o->args = *args;
	pgargs_init(args);
	o->queued_ms = loop_now_ms(p->loop);
	*l->end = o;
	l->end = &o->next;
	l->waiting++;
	if (p->refused || p->stopped)
		loop_timer_start(&p->tick, 0);
	else
		start_tick(p);
	dispatch(l);
}

void
pgpool_call(struct pgpool *p, int lane, const struct pgstmt *s,
	struct pgargs *args, pgpool_fn done, void *arg)
{
	pgpool_bundle(p, lane, s, args, NULL, done, arg);
}

void
pgpool_bundle(struct pgpool *p, int lane, const struct pgstmt *s,
	struct pgargs *args, pgpool_decide_fn decide, pgpool_fn done, void *arg)
{
	pgpool_within(p, lane, 0, s, args, decide, done, arg);
}

void
pgpool_within(struct pgpool *p, int lane, int64_t wait_ms,
	const struct pgstmt *s, struct pgargs *args, pgpool_decide_fn decide,
	pgpool_fn done, void *arg)
{
	struct op *o = calloc(1, sizeof *o);

	BUG(o == NULL);
	o->stmt = s;
	o->wait_ms = wait_ms;
	o->decide = decide;
	o->done = done;
	o->arg = arg;
	queue(p, lane, o, args);
}

bool
pgpool_had_none(const struct err *e)
{
	return e->kind == ERR_DB_RETRY && strcmp(e->text, no_link) == 0;
}

bool
pgpool_was_victim(const struct err *e)
{
	return e->kind == ERR_DB_RETRY && memcmp(e->sqlstate, "40", 2) == 0;
}

PGresult *
pgpool_take_result(struct pgpool *p)
{
	PGresult *r = p->kept;

	BUG(!p->answering);
	p->kept = NULL;
	return r ? r : pgconn_take_result(p->answering->link);
}

void
pgpool_stop(struct pgpool *p)
{
	p->stopped = true;
	for (int i = 0; i < p->lanes_n; i++)
		for (int j = 0; j < p->lanes[i].conns_n; j++)
			if (p->lanes[i].conns[j].op != NULL)
				pgconn_reset(p->lanes[i].conns[j].link);
	loop_timer_start(&p->tick, 0);
}

int
pgpool_idle(const struct pgpool *p, int lane)
{
	const struct lane *l = &p->lanes[lane];
	int n = 0;

	for (int i = 0; i < l->conns_n; i++)
		n += l->conns[i].op == NULL && pgconn_is_up(l->conns[i].link);
	return n;
}

void
pgpool_on_idle(struct pgpool *p, int lane, pgpool_idle_fn fn, void *arg)
{
	p->lanes[lane].on_idle = fn;
	p->lanes[lane].idle_arg = arg;
}

void
pgpool_stats(const struct pgpool *p, struct pgpool_stats *out)
{
	*out = (struct pgpool_stats){
		.up = p->up,
		.errors = p->errors,
		.timeouts = p->timeouts,
		.reconnects = p->reconnects,
		.calls = p->calls,
	};
	for (int i = 0; i < p->lanes_n; i++) {
		out->size += p->lanes[i].conns_n;
		out->busy += p->lanes[i].busy;
		out->waiting += p->lanes[i].waiting;
	}
}

bool
pgpool_is_up(const struct pgpool *p)
{
	return p->up > 0;
}
