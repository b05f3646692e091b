/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims.  One begins where the last one ended; the database looks from the
 * start when it finds nothing there.
 */
#include <string.h>

#include "arena.h"
#include "call.h"
#include "claims.h"
#include "clk.h"
#include "ctx.h"
#include "hsrv.h"
#include "job_int.h"
#include "jwrite.h"
#include "loop.h"
#include "pgpool.h"
#include "queue.h"
#include "settings.h"
#include "wait.h"

enum { QUEUES_MAX = 256, COUNT_MAX = 100 };

static const struct pgstmt fetch_stmt = { .name = "jobs_fetch",
	.sql = "select " JOB_OUT_SQL " from queen.jobs_fetch_v1("
	       "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10)" };

struct fetch {
	struct wait wait;
	struct span *queues;
	int64_t *ids; /* beside queues; of the last answer */
	size_t n, cap;
	int64_t count, lease_ms, wait_ms;
	struct span worker;
	bool last; /* has to answer */
};

/* ---- the call ---- */

static void
fill(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	struct fetch *f = arg;
	struct ctx *x = ctx_of(r);

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_array(a, PGARGS_TEXT);
	for (size_t i = 0; i < f->n; i++)
		pgargs_item_text(a, f->queues[i]);
	pgargs_close(a);
	pgargs_i32(a, (int32_t)f->count);
	if (f->worker.n)
		pgargs_text(a, f->worker);
	else
		pgargs_null(a);
	if (f->lease_ms)
		pgargs_i64(a, f->lease_ms);
	else
		pgargs_null(a);
	pgargs_i64(a, x->conf->visibility_timeout_ms);
	claims_args(x->claims, a, ctx_tenant(r), f->queues, f->n,
		loop_now_ms(x->loop));
}

static bool
is_job(const PGresult *res, int row)
{
	return pgbin_i16(res, row, JOB_OUT_VERDICT) == JOB_OK;
}

/* What a queue is, once per queue asked for. */
static void
learn_queue(struct ctx *x, struct hsrv_req *r, struct fetch *f,
	const PGresult *res, int row)
{
	struct span name = pgbin_bytes(res, row, JOB_OUT_QUEUE);
	int64_t id = pgbin_null(res, row, JOB_OUT_QUEUE_ID)
			     ? 0
			     : pgbin_i64(res, row, JOB_OUT_QUEUE_ID);

	claims_queue(x->claims, ctx_tenant(r), name, id, loop_now_ms(x->loop));
	for (size_t i = 0; i < f->n; i++)
		if (span_eq(f->queues[i], name))
			f->ids[i] = id;
}

static int
learn(struct hsrv_req *r, struct fetch *f, const PGresult *res)
{
	struct ctx *x = ctx_of(r);
	int jobs = 0;

	for (int i = 0; i < PQntuples(res); i++)
		if (is_job(res, i))
			jobs++;
		else
			learn_queue(x, r, f, res, i);
	for (int i = 0; i < PQntuples(res); i++)
		if (is_job(res, i))
			claims_took(x->claims,
				pgbin_i64(res, i, JOB_OUT_QUEUE_ID),
				pgbin_i16(res, i, JOB_OUT_RANK),
				pgbin_time(res, i, JOB_OUT_ENQUEUED_AT),
				pgbin_i64(res, i, JOB_OUT_SEQ));
	for (size_t i = 0; !jobs && i < f->n; i++)
		claims_reset(x->claims, f->ids[i]);
	return jobs;
}

static void
answer(struct hsrv_req *r, const PGresult *res)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "jobs");
	jwrite_array(&w);
	for (int i = 0; i < PQntuples(res); i++)
		if (is_job(res, i))
			job_write(&w, res, i, (struct span)SPAN_ZERO);
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
done(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct fetch *f = arg;
	struct waits *ws = ctx_of(r)->waits;
	int jobs = learn(r, f, res);

	if (!jobs && !f->last && wait_park(ws, &f->wait))
		return;
	if (f->wait_ms)
		wait_end(ws, &f->wait, jobs == f->count);
	answer(r, res);
}

/* ---- waiting ---- */

static void
failed(struct hsrv_req *r, void *arg, const struct err *e)
{
	struct fetch *f = arg;
	struct waits *ws = ctx_of(r)->waits;

	/* nothing was sent for it, and it has time */
	if (!f->last && pgpool_had_none(e) && wait_park(ws, &f->wait))
		return;
	if (f->wait_ms)
		wait_end(ws, &f->wait, false);
	call_fail(r, e);
}

static void
run(struct hsrv_req *r, struct fetch *f)
{
	struct call c = { .stmt = &fetch_stmt,
		.lane = LANE_FETCH,
		.fill = fill,
		.done = done,
		.failed = failed,
		.arg = f };

	call_run(r, &c);
}

static void
again(struct wait *w, bool last)
{
	struct fetch *f = (struct fetch *)w;

	/* nothing is claimed for who is away; the next in line has it */
	if (hsrv_is_gone(w->req)) {
		wait_end(ctx_of(w->req)->waits, w, true);
		hsrv_drop(w->req);
		return;
	}
	f->last = last;
	run(w->req, f);
}

static void
begin(struct hsrv_req *r, struct fetch *f)
{
	struct ctx *x = ctx_of(r);

	for (size_t i = 0; i < f->n; i++)
		f->ids[i] =
			claims_queue_id(x->claims, ctx_tenant(r), f->queues[i]);
	f->last = f->wait_ms == 0;
	if (f->wait_ms) {
		f->wait = (struct wait){ .req = r,
			.kind = WAIT_JOBS,
			.queue_ids = f->ids,
			.queues_n = f->n,
			.deadline_ms = clk_mono_ms() + f->wait_ms,
			.again = again };
		wait_begin(x->waits, &f->wait);
	}
	run(r, f);
}

/* ---- reading ---- */

static bool
has(const struct fetch *f, struct span name)
{
	for (size_t i = 0; i < f->n; i++)
		if (span_eq(f->queues[i], name))
			return true;
	return false;
}

static int
read_queue(const struct jspan_val *v, struct arena *a, struct fetch *f,
	struct problem *p)
{
	struct span name;

	if (!jspan_text(v, a, &name) || !queue_name_ok(name))
		return problem_field(
			p, a, "queues", "`queues` must hold names of queues.");
	if (has(f, name))
		return 0;
	if (f->n == QUEUES_MAX)
		return problem_field(p, a, "queues",
			"`queues` holds more than %d names.", QUEUES_MAX);
	f->queues =
		arena_grown(a, f->queues, f->n, &f->cap, sizeof(*f->queues));
	f->queues[f->n++] = name;
	return 0;
}

static int
read_queues(const struct jspan_val *list, struct arena *a, struct fetch *f,
	struct problem *p)
{
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, list->raw);
	if (jspan_enter_array(&j))
		while (jspan_next_item(&j) && jspan_take(&j, &v))
			if (read_queue(&v, a, f, p) != 0)
				return -1;
	if (!jspan_end(&j) || !f->n)
		return problem_field(p, a, "queues",
			"`queues` must be an array of at least one name.");
	f->ids = arena_zalloc(a, f->n * sizeof(*f->ids));
	return 0;
}

static int
read_fetch(
	struct span body, struct arena *a, struct fetch *f, struct problem *p)
{
	struct jspan_val queues, count, worker, lease, wait;
	const struct job_field fields[] = { { "queues", &queues, false },
		{ "count", &count, false }, { "worker_id", &worker, false },
		{ "visibility_timeout_ms", &lease, false },
		{ "wait_ms", &wait, false } };

	f->count = 1;
	if (job_fields(body, a, fields, 5, p) != 0 ||
		read_queues(&queues, a, f, p) != 0 ||
		job_number(&count, a, "count", 1, INT32_MAX, &f->count, p) !=
			0 ||
		job_text(&worker, a, "worker_id", JOB_WORKER_MAX, &f->worker,
			p) != 0 ||
		job_number(&lease, a, "visibility_timeout_ms", 1,
			JOB_LENGTH_MAX_MS, &f->lease_ms, p) != 0 ||
		job_number(&wait, a, "wait_ms", 0, INT32_MAX, &f->wait_ms, p) !=
			0)
		return -1;
	if (f->count > COUNT_MAX)
		f->count = COUNT_MAX;
	if (f->wait_ms > WAIT_MAX_MS)
		f->wait_ms = WAIT_MAX_MS;
	return 0;
}

void
job_fetch(struct hsrv_req *r)
{
	struct fetch *f = arena_zalloc(hsrv_arena(r), sizeof(*f));
	struct problem p;
	struct span body;

	if (!reply_object(r, &body))
		return;
	if (read_fetch(body, hsrv_arena(r), f, &p) == 0)
		begin(r, f);
	else
		reply_problem(r, &p);
}
