/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a link: dial, use, loss.  Callbacks run from the loop only, and
 * any of them may free the link: what runs on its behalf is bracketed by enter
 * and leave, and looks at pg, which is NULL once it is lost or freed.
 */
#include "pglink.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "err.h"
#include "pglink_int.h"

/* ---- life ---- */

static void
destroy(struct pglink *k)
{
	struct pglink_op *o;

	while ((o = pglink_ops_take(&k->sent)) != NULL)
		pglink_op_free(o);
	while ((o = pglink_ops_take(&k->waiting)) != NULL)
		pglink_op_free(o);
	pglink_pipe_fini(k);
	free(k);
}

void
pglink_enter(struct pglink *k)
{
	k->depth++;
}

void
pglink_leave(struct pglink *k)
{
	if (--k->depth == 0 && k->freed)
		destroy(k);
}

static void
drop(struct pglink *k)
{
	if (k->rd)
		event_free(k->rd);
	if (k->wr)
		event_free(k->wr);
	k->rd = k->wr = NULL;
	pglink_dial_end(k);
	PQfinish(k->pg);
	k->pg = NULL;
	loop_timer_stop(&k->limit);
}

void
pglink_free(struct pglink *k)
{
	if (!k)
		return;
	BUG(k->freed);
	drop(k);
	loop_timer_fini(&k->limit);
	loop_timer_fini(&k->later);
	k->freed = true;
	if (k->depth == 0)
		destroy(k);
}

/* ---- the loss ---- */

void
pglink_lose(struct pglink *k, const struct connfault *why)
{
	if (k->state == PGLINK_LOST || k->state == PGLINK_OVER)
		return;
	if (!k->condemned)
		k->why = *why;
	drop(k);
	k->state = PGLINK_LOST;
	loop_timer_start(&k->later, 0);
}

void
pglink_lose_broken(struct pglink *k)
{
	struct connfault why;

	connfault_result(&why, NULL, k->pg);
	pglink_lose(k, &why);
}

void
pglink_heed(struct pglink *k, const PGresult *r)
{
	const char *s = PQresultErrorField(r, PG_DIAG_SEVERITY_NONLOCALIZED);

	if (!s || (strcmp(s, "FATAL") != 0 && strcmp(s, "PANIC") != 0))
		return;
	connfault_result(&k->why, r, NULL);
	k->condemned = true;
}

/* An idle session hears why it ends in the form of a notice. */
static void
on_notice(void *arg, const PGresult *r)
{
	struct pglink *k = arg;
	const char *s = PQresultErrorField(r, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
	const char *where = PQresultErrorField(r, PG_DIAG_SOURCE_FUNCTION);

	pglink_heed(k, r);
	if (k->on_warning && s && state && strcmp(s, "WARNING") == 0)
		k->on_warning(k->warning_arg, state, where ? where : "");
}

static void
answer_all(struct pglink *k, struct pglink_ops *l)
{
	struct pglink_op *o;

	while (!k->freed && (o = pglink_ops_take(l)) != NULL) {
		pglink_op_fail(o, &k->why);
		pglink_op_answer(o);
	}
}

static void
report(struct pglink *k)
{
	struct connfault why;

	k->state = PGLINK_OVER;
	answer_all(k, &k->sent);
	answer_all(k, &k->waiting);
	if (k->freed)
		return;
	why = k->why;
	if (k->finishing)
		why.code = NULL;
	k->on_end(k->arg, &why);
}

static void
on_limit(void *arg)
{
	struct pglink *k = arg;

	pglink_enter(k);
	if (k->state == PGLINK_DIALLING)
		pglink_dial_late(k);
	else
		pglink_stream_late(k);
	pglink_leave(k);
}

/* ---- the socket ---- */

void
pglink_flush(struct pglink *k)
{
	int r = PQflush(k->pg);

	if (r < 0)
		pglink_lose_broken(k);
	else if (r == 0)
		event_del(k->wr);
	else
		event_add(k->wr, NULL);
}

static void
read_more(struct pglink *k)
{
	if (k->copy != COPY_NONE)
		pglink_stream_step(k);
	else if (k->use == PGLINK_PIPELINE)
		pglink_pipe_read(k);
	else
		pglink_query_read(k);
	if (!k->pg)
		return;
	if (!k->dead && PQstatus(k->pg) != CONNECTION_BAD)
		pglink_flush(k);
	else if (!pglink_stream_has_more(k))
		pglink_lose_broken(k);
}

static void
on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct pglink *k = arg;

	(void)fd;
	(void)what;
	pglink_enter(k);
	/* at the end of the stream what came before it still counts */
	if (PQconsumeInput(k->pg) != 1) {
		k->dead = true;
		event_del(k->rd);
	}
	read_more(k);
	pglink_leave(k);
}

/*
 * libpq reads when it cannot write, so that neither side blocks the other;
 * what it read then makes no socket readable.
 */
static void
on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct pglink *k = arg;

	(void)fd;
	(void)what;
	pglink_enter(k);
	pglink_flush(k);
	if (k->pg)
		read_more(k);
	pglink_leave(k);
}

static void
on_later(void *arg)
{
	struct pglink *k = arg;

	pglink_enter(k);
	if (k->state == PGLINK_LOST)
		report(k);
	else if (k->state == PGLINK_UP && k->copy != COPY_NONE)
		read_more(k);
	pglink_leave(k);
}

static void
send_waiting(struct pglink *k)
{
	if (k->use == PGLINK_PIPELINE)
		pglink_pipe_send(k);
	else
		pglink_query_send(k);
}

void
pglink_came_up(struct pglink *k)
{
	struct event_base *base = loop_base(k->loop);

	PQsetNoticeReceiver(k->pg, on_notice, k);
	PQsetErrorVerbosity(k->pg, PQERRORS_DEFAULT);
	k->rd = event_new(
		base, PQsocket(k->pg), EV_READ | EV_PERSIST, on_readable, k);
	k->wr = event_new(
		base, PQsocket(k->pg), EV_WRITE | EV_PERSIST, on_writable, k);
	BUG(!k->rd || !k->wr || event_add(k->rd, NULL) != 0);
	k->state = PGLINK_UP;
	if (PQsetnonblocking(k->pg, 1) != 0 ||
		(k->use == PGLINK_PIPELINE &&
			PQenterPipelineMode(k->pg) != 1)) {
		pglink_lose_broken(k);
		return;
	}
	k->on_up(k->arg);
	if (k->pg)
		send_waiting(k);
}

/* ---- the surface ---- */

struct pglink *
pglink_new(struct loop *l, const struct pglink_conf *c, pglink_up_fn on_up,
	pglink_end_fn on_end, void *arg)
{
	struct pglink *k = calloc(1, sizeof(*k));

	BUG(!k || !on_up || !on_end);
	k->loop = l;
	k->use = c->use;
	k->on_up = on_up;
	k->on_end = on_end;
	k->arg = arg;
	k->pem_fd = -1;
	pglink_ops_init(&k->sent);
	pglink_ops_init(&k->waiting);
	loop_timer_init(&k->limit, l, on_limit, k);
	loop_timer_init(&k->later, l, on_later, k);
	pglink_dial_start(k, c);
	return k;
}

void
pglink_give(struct pglink *k, pglink_end_fn on_end, void *arg)
{
	k->on_end = on_end;
	k->arg = arg;
}

bool
pglink_is_up(const struct pglink *k)
{
	return k->state == PGLINK_UP;
}

int
pglink_server_version(const struct pglink *k)
{
	return k->pg ? PQserverVersion(k->pg) : 0;
}

void
pglink_queue(struct pglink *k, struct pglink_op *o)
{
	if (k->state == PGLINK_OVER) {
		pglink_op_free(o);
		return;
	}
	pglink_ops_add(&k->waiting, o);
	if (k->state == PGLINK_UP)
		send_waiting(k);
}
