/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fails for the sake of others is sent again at once: the database has
 * rolled it back, so that nothing happens twice.
 */
#include "call.h"

#include <string.h>

#include "arena.h"
#include "err.h"
#include "hsrv.h"
#include "log.h"
#include "loop.h"
#include "pgpool.h"
#include "reply.h"

enum { TRIES_MAX = 4, LOG_EVERY_MS = 5000 };

struct flight {
	struct call call;
	struct hsrv_req *req;
	int tries;
};

static void fly(struct flight *f);

/* 40xxx and lock_not_available: others were in the way. */
static bool
may_repeat(const struct err *e)
{
	return pgpool_was_victim(e) || strcmp(e->sqlstate, "55P03") == 0;
}

static void
say(const struct flight *f, const struct err *e)
{
	struct ctx *x = ctx_of(f->req);
	uint64_t suppressed;

	x->failures.every_ms = LOG_EVERY_MS;
	if (!pgpool_had_none(e) &&
		log_sample(&x->failures, loop_now_ms(x->loop), &suppressed))
		log_line(LOG_WARN, "call", "call failed",
			"statement=%s sqlstate=%s error=%s suppressed=%llu",
			f->call.stmt->name, e->sqlstate, log_quote(e->text),
			(unsigned long long)suppressed);
}

void
call_fail(struct hsrv_req *r, const struct err *e)
{
	bool away = e->kind == ERR_DB_RETRY || e->kind == ERR_DB_UNKNOWN ||
		    e->kind == ERR_LIMIT || may_repeat(e);
	struct problem p = { .status = away ? 503 : 500,
		.code = "backend_error",
		.retry_after_s = away ? 1 : 0 };

	p.message = away ? "The database is not available at the moment."
			 : "The database refused the operation.";
	reply_problem(r, &p);
}

static void
fail(struct flight *f, const struct err *e)
{
	say(f, e);
	if (f->call.failed)
		f->call.failed(f->req, f->call.arg, e);
	else
		call_fail(f->req, e);
}

static void
on_answer(void *arg, const PGresult *res, const struct err *e)
{
	struct flight *f = arg;

	if (!e) {
		f->call.done(f->req, f->call.arg, res);
		return;
	}
	if (may_repeat(e) && ++f->tries < TRIES_MAX) {
		fly(f);
		return;
	}
	fail(f, e);
}

static bool
decide(void *arg, const PGresult *res)
{
	struct flight *f = arg;

	return f->call.keep(f->call.arg, res);
}

static void
fly(struct flight *f)
{
	struct pgpool *pool = ctx_of(f->req)->pool;
	struct pgargs a;

	pgargs_init(&a);
	f->call.fill(f->req, f->call.arg, &a);
	if (f->call.keep)
		pgpool_bundle(pool, f->call.lane, f->call.stmt, &a, decide,
			on_answer, f);
	else
		pgpool_call(pool, f->call.lane, f->call.stmt, &a, on_answer, f);
}

void
call_run(struct hsrv_req *r, const struct call *c)
{
	struct flight *f = arena_zalloc(hsrv_arena(r), sizeof(*f));

	f->call = *c;
	f->req = r;
	fly(f);
}
