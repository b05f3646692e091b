/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about one job that the path names. */
#include "arena.h"
#include "buf.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "job_int.h"
#include "jwrite.h"

static const struct pgstmt info_stmt = { .name = "jobs_get",
	.sql = "select " JOB_OUT_SQL " from queen.jobs_get_v1($1, $2)" };
static const struct pgstmt cancel_stmt = { .name = "jobs_cancel",
	.sql = "select " JOB_OUT_SQL " from queen.jobs_cancel_v1($1, $2)" };
static const struct pgstmt activate_stmt = { .name = "jobs_activate",
	.sql = "select " JOB_OUT_SQL " from queen.jobs_activate_v1($1, $2)" };

static void
fill(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct job_one *one = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_uuid(a, &one->id);
}

static void
missing(struct hsrv_req *r, const struct job_one *one)
{
	reply_missing(
		r, one->resource ? one->resource : "job", hsrv_param(r, 0));
}

static void
done(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct job_one *one = arg;
	int verdict = JOB_MISSING;

	if (PQntuples(res) > 0)
		verdict = pgbin_i16(res, 0, JOB_OUT_VERDICT);
	if (verdict == JOB_MISSING) {
		missing(r, one);
		return;
	}
	if (verdict != JOB_OK) {
		job_refuse_to(r, res, 0, &one->id, one->expected);
		return;
	}
	for (int i = 0; one->changes && i < PQntuples(res); i++)
		job_tell(r, res, i);
	one->found(r, res);
}

void
job_one_run(struct hsrv_req *r, const struct pgstmt *stmt,
	const struct job_one *how)
{
	struct job_one *one = arena_alloc(hsrv_arena(r), sizeof(*one));
	struct call c = { .stmt = stmt, .lane = LANE_JOB };

	*one = *how;
	if (!job_id_parse(hsrv_param(r, 0), &one->id)) {
		missing(r, one);
		return;
	}
	c.fill = fill;
	c.done = done;
	c.arg = one;
	call_run(r, &c);
}

/* ---- what they found ---- */

static void
shown(struct hsrv_req *r, const PGresult *res)
{
	job_reply(r, res, 0, (struct span)SPAN_ZERO);
}

/* It may be scheduled now, and that has no time of its own. */
static void
activated(struct hsrv_req *r, const PGresult *res)
{
	bool ready = pgbin_i16(res, 0, JOB_OUT_STATE) == JOB_AVAILABLE;
	struct arena *a = hsrv_arena(r);
	struct buf b = BUF_ZERO;
	struct span extra;
	struct jwrite w;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "previous_state", "pending");
	jwrite_key(&w, "activated_at");
	jwrite_iso_ms(&w, ready ? pgbin_time(res, 0, JOB_OUT_ENQUEUED_AT)
				: ctx_now_us(ctx_of(r)));
	extra = arena_dup(a, span_make(b.p + 1, b.len - 1));
	buf_fini(&b);
	job_reply(r, res, 0, extra);
}

/* ---- routes ---- */

void
job_info(struct hsrv_req *r)
{
	const struct job_one how = { .found = shown };

	job_one_run(r, &info_stmt, &how);
}

void
job_cancel(struct hsrv_req *r)
{
	const struct job_one how = { .changes = true, .found = shown };

	job_one_run(r, &cancel_stmt, &how);
}

void
job_activate(struct hsrv_req *r)
{
	const struct job_one how = {
		.changes = true, .expected = "pending", .found = activated
	};

	job_one_run(r, &activate_stmt, &how);
}
