/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pool for all sinks of the process.  What is cancelled while it is out on
 * a connection stays in the books until its answer came, and is told nobody.
 */
#include "cell_int.h"

#include <stdlib.h>

#include "err.h"
#include "pgpool.h"

struct cell *
cell_new(struct loop *l, const struct cell_conf *conf)
{
	const struct pgpool_conf pool = {
		.conninfo = conf->conninfo,
		.application_name = "queen-s3",
		.lanes_n = CELL_LANES,
		.conns = { [CELL_READ] = CELL_READERS, [CELL_KV] = 2 },
		.stmt_timeout_ms = CELL_TIMEOUT_MS,
	};
	struct cell *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->loop = l;
	c->seal = conf->seal;
	c->guard_ms = conf->guard_ms;
	c->floor_ms = conf->floor_ms;
	LIST_INIT(&c->calls);
	TAILQ_INIT(&c->waiting);
	c->pool = pgpool_new(l, &pool);
	return c;
}

bool
cell_is_up(const struct cell *c)
{
	return pgpool_is_up(c->pool);
}

bool
cell_may_retry(const struct err *e)
{
	switch (e->kind) {
	case ERR_DB_RETRY:
	case ERR_DB_UNKNOWN:
	case ERR_IO:
	case ERR_LIMIT:
		return true;
	default:
		return false;
	}
}

struct cell_call *
cell_call_new(struct cell *c, const struct qid *tenant, void *arg)
{
	struct cell_call *k = calloc(1, sizeof(*k));

	if (!k)
		abort();
	k->cell = c;
	k->arg = arg;
	if (tenant)
		k->tenant = *tenant;
	LIST_INSERT_HEAD(&c->calls, k, link);
	return k;
}

void
cell_call_end(struct cell_call *k)
{
	if (k->fetching)
		k->cell->fetches--;
	LIST_REMOVE(k, link);
	if (k->slice.loop)
		loop_timer_fini(&k->slice);
	PQclear(k->res);
	arena_fini(&k->arena);
	free(k);
}

void
cell_cancel(struct cell_call *k)
{
	struct cell *c;

	if (!k)
		return;
	c = k->cell;
	if (k->at == CELL_SENT) {
		k->cancelled = true;
		return;
	}
	if (k->at == CELL_QUEUED)
		TAILQ_REMOVE(&c->waiting, k, wait);
	cell_call_end(k);
	cell_fetch_next(c);
}

void
cell_free(struct cell *c)
{
	struct cell_call *k;

	if (!c)
		return;
	pgpool_free(c->pool);
	while ((k = LIST_FIRST(&c->calls)) != NULL)
		cell_call_end(k);
	logrd_room_fini(&c->room);
	free(c);
}

static void
on_answer(void *arg, const PGresult *res, const struct err *e)
{
	struct cell_call *k = arg;
	struct cell *c = k->cell;
	struct err none = ERR_ZERO;

	/* the pool's word for it is short: this is read by operators */
	if (e && pgpool_had_none(e)) {
		err_set(&none, e->kind, "no connection to the cell");
		e = &none;
	}
	if (!k->cancelled) {
		k->on(k, res, e);
		return;
	}
	cell_call_end(k);
	cell_fetch_next(c);
}

void
cell_send(struct cell_call *k, enum cell_lane lane, const struct pgstmt *s,
	struct pgargs *args, cell_on_fn on)
{
	k->on = on;
	k->at = CELL_SENT;
	pgpool_call(k->cell->pool, (int)lane, s, args, on_answer, k);
}
