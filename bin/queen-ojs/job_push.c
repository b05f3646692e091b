/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job or many: one call.  What fails fails all, so that what the database
 * did for the elements before it is rolled back.
 */
#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "gate.h"
#include "hsrv.h"
#include "job_int.h"
#include "jwrite.h"
#include "settings.h"
#include "unique.h"

#define ARRAYS "$2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15"

static const struct pgstmt push_stmt = { .name = "jobs_push",
	.sql = "select " JOB_OUT_SQL " from queen.jobs_push_v1($1, " ARRAYS
	       ")" };

struct push {
	struct job_spec *specs;
	size_t n, cap;
	bool batch;
};

static bool
stands(const PGresult *res, int row)
{
	int v = pgbin_i16(res, row, JOB_OUT_VERDICT);

	return v == JOB_OK || v == JOB_KNOWN;
}

static bool
keep(void *arg, const PGresult *res)
{
	(void)arg;
	return PQntuples(res) > 0 && stands(res, 0);
}

static void
fill(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct push *push = arg;

	pgargs_uuid(a, ctx_tenant(r));
	job_spec_args(a, push->specs, push->n);
}

static struct span
known(const PGresult *res, int row)
{
	if (pgbin_i16(res, row, JOB_OUT_VERDICT) == JOB_KNOWN)
		return SPAN_LIT("\"deduplicated\":true");
	return (struct span)SPAN_ZERO;
}

static void
refuse(struct hsrv_req *r, const struct push *push, const PGresult *res)
{
	struct arena *a = hsrv_arena(r);
	struct problem p;

	job_problem(a, res, 0, NULL, &p);
	if (push->batch)
		p.details = arena_printf(a, "\"index\":%d%s%.*s",
			pgbin_i32(res, 0, JOB_OUT_IDX) - 1,
			p.details.n ? "," : "", SPAN_ARG(p.details));
	reply_problem(r, &p);
}

static void
pushed_one(struct hsrv_req *r, const PGresult *res)
{
	bool old = pgbin_i16(res, 0, JOB_OUT_VERDICT) == JOB_KNOWN;
	struct qid id = pgbin_uuid(res, 0, JOB_OUT_ID);
	char text[QID_TEXT_MAX];
	struct arena *a = hsrv_arena(r);
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "job");
	job_write(&w, res, 0, known(res, 0));
	if (old)
		jwrite_kv_bool(&w, "deduplicated", true);
	jwrite_end(&w);
	if (!old)
		hsrv_add_header(r, "Location",
			arena_cstr(a, arena_printf(a, "/ojs/v1/jobs/%s",
					      qid_text(&id, text))));
	hsrv_reply(r, old ? 200 : 201);
}

static void
pushed_many(struct hsrv_req *r, const PGresult *res)
{
	struct jwrite w;
	int n = PQntuples(res);

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "jobs");
	jwrite_array(&w);
	for (int i = 0; i < n; i++)
		job_write(&w, res, i, known(res, i));
	jwrite_end(&w);
	jwrite_kv_i64(&w, "count", n);
	jwrite_end(&w);
	hsrv_reply(r, 201);
}

/* A batch is mostly of one queue, which is told once. */
static void
tell(struct hsrv_req *r, const PGresult *res)
{
	int64_t told = 0;

	for (int i = 0; i < PQntuples(res); i++) {
		int64_t id = pgbin_i64(res, i, JOB_OUT_QUEUE_ID);

		if (id == told)
			continue;
		job_tell(r, res, i);
		if (pgbin_i16(res, i, JOB_OUT_STATE) == JOB_AVAILABLE)
			told = id;
	}
}

static void
done(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct push *push = arg;

	if (!keep(NULL, res)) {
		refuse(r, push, res);
		return;
	}
	tell(r, res);
	if (push->batch)
		pushed_many(r, res);
	else
		pushed_one(r, res);
}

static void
run(struct hsrv_req *r, struct push *push)
{
	struct call c = { .stmt = &push_stmt, .lane = LANE_JOB };

	c.fill = fill;
	c.done = done;
	c.arg = push;
	/* Alone it fails before it has done anything, but for its queue. */
	if (push->batch || push->specs[0].unique.n)
		c.keep = keep;
	call_run(r, &c);
}

/* ---- reading ---- */

static int
add(struct hsrv_req *r, struct push *push, struct span body, struct problem *p)
{
	struct ctx *x = ctx_of(r);
	struct arena *a = hsrv_arena(r);
	struct job_spec *s;

	push->specs = arena_grown(
		a, push->specs, push->n, &push->cap, sizeof(*push->specs));
	s = &push->specs[push->n++];
	if (job_spec_parse(body, (size_t)x->conf->max_envelope_bytes, a,
		    ctx_now_us(x), s, p) != 0)
		return -1;
	/* others would show their job, or end it */
	if (s->unique.n && !unique_rejects(s->unique) && gate_writes_only(r))
		return problem_set(p, a, 403, "permission_denied",
			"\"field\":\"unique.on_conflict\"",
			"A role that only writes has `on_conflict` reject.");
	return 0;
}

void
job_push(struct hsrv_req *r)
{
	struct push *push = arena_zalloc(hsrv_arena(r), sizeof(*push));
	struct problem p;
	struct span body;

	if (!reply_object(r, &body))
		return;
	if (add(r, push, body, &p) == 0)
		run(r, push);
	else
		reply_problem(r, &p);
}

/* All elements, or the problem of the first bad one. */
static int
read_batch(struct hsrv_req *r, struct push *push, struct span list,
	struct problem *p)
{
	struct arena *a = hsrv_arena(r);
	int64_t max = ctx_of(r)->conf->max_batch;
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, list);
	if (jspan_enter_array(&j))
		while (jspan_next_item(&j) && jspan_take(&j, &v)) {
			if ((int64_t)push->n == max)
				return problem_field(p, a, "jobs",
					"`jobs` holds more than %d.", (int)max);
			if (add(r, push, v.raw, p) == 0)
				continue;
			p->details = arena_printf(a, "\"index\":%zu%s%.*s",
				push->n - 1, p->details.n ? "," : "",
				SPAN_ARG(p->details));
			return -1;
		}
	if (!jspan_end(&j) || !push->n)
		return problem_field(p, a, "jobs",
			"`jobs` must be an array of at least one job.");
	return 0;
}

void
job_push_batch(struct hsrv_req *r)
{
	struct push *push = arena_zalloc(hsrv_arena(r), sizeof(*push));
	struct jspan_val jobs;
	const struct job_field fields[] = { { "jobs", &jobs, false } };
	struct problem p;
	struct span body;

	push->batch = true;
	if (!reply_object(r, &body))
		return;
	if (job_fields(body, hsrv_arena(r), fields, 1, &p) == 0 &&
		read_batch(r, push, jobs.raw, &p) == 0)
		run(r, push);
	else
		reply_problem(r, &p);
}
