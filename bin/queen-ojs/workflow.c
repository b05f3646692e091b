/* SPDX-License-Identifier: Apache-2.0 */
/* Routes of workflows. */
#include "workflow.h"

#include <stdio.h>

#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "settings.h"
#include "workflow_int.h"

#define JOBS ", role, job_id, type, queue, job_state "

enum {
	JOBS_ROLE = WORKFLOW_HEAD_COLUMNS,
	JOBS_ID,
	JOBS_TYPE,
	JOBS_QUEUE,
	JOBS_STATE,
	CANCEL_VERDICT
};

/* ---- create ---- */

static const struct pgstmt create_stmt = { .name = "ojs_workflow_create",
	.sql = "select " JOB_OUT_SQL " from queen.workflow_create_v1($1, $2, "
	       "$3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, "
	       "$16, $17, $18, $19)" };

static void
create_fill(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct workflow_ask *k = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_uuid(a, &k->id);
	pgargs_text(a, span_of(workflow_kind_name(k->kind)));
	if (k->name.n)
		pgargs_text(a, k->name);
	else
		pgargs_null(a);
	pgargs_array(a, PGARGS_TEXT);
	for (size_t i = 0; i < k->n; i++)
		pgargs_item_text(a, span_of(workflow_role_name(k->roles[i])));
	pgargs_close(a);
	job_spec_args(a, k->specs, k->n);
}

static bool
all_put(void *arg, const PGresult *res)
{
	(void)arg;
	return PQntuples(res) > 0 && pgbin_i16(res, 0, JOB_OUT_VERDICT) == 0;
}

static void
created_jobs(
	struct jwrite *w, const struct workflow_ask *k, const PGresult *res)
{
	struct workflow_jobs l;

	workflow_jobs_begin(&l, w, span_of(workflow_kind_name(k->kind)));
	for (int i = 0; i < PQntuples(res); i++) {
		struct workflow_job j = { .id = k->specs[i].id,
			.role = span_of(workflow_role_name(k->roles[i])),
			.type = k->specs[i].type,
			.queue = k->specs[i].queue,
			.state = pgbin_i16(res, i, JOB_OUT_STATE) };

		workflow_jobs_add(&l, &j);
	}
	workflow_jobs_end(&l);
}

static void
created(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct workflow_ask *k = arg;
	struct workflow_head h = { .id = k->id };
	char id[QID_TEXT_MAX];
	struct jwrite w;

	if (!all_put(arg, res)) {
		job_refuse(r, res, 0);
		return;
	}
	h.kind = span_of(workflow_kind_name(k->kind));
	h.name = k->name;
	h.total = (int)k->members;
	h.created_us = pgbin_time(res, 0, JOB_OUT_CREATED_AT);
	for (int i = 0; i < PQntuples(res); i++)
		job_tell(r, res, i);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "workflow");
	jwrite_object(&w);
	workflow_head_write(&w, &h);
	created_jobs(&w, k, res);
	jwrite_end(&w);
	jwrite_end(&w);
	qid_text(&k->id, id);
	hsrv_add_header(r, "Location",
		arena_cstr(hsrv_arena(r), arena_printf(hsrv_arena(r),
						  "/ojs/v1/workflows/%s", id)));
	hsrv_reply(r, 201);
}

void
workflow_create(struct hsrv_req *r)
{
	const struct ctx *x = ctx_of(r);
	struct workflow_limits l;
	struct workflow_ask *k = arena_zalloc(hsrv_arena(r), sizeof(*k));
	struct call c = { .stmt = &create_stmt, .lane = LANE_JOB };
	struct problem p;
	struct span body;

	if (!reply_object(r, &body))
		return;
	l.envelope_bytes = (size_t)x->conf->max_envelope_bytes;
	l.jobs = (size_t)x->conf->max_batch;
	if (workflow_parse(body, &l, hsrv_arena(r), ctx_now_us(x), k, &p) !=
		0) {
		reply_problem(r, &p);
		return;
	}
	c.fill = create_fill;
	c.keep = all_put;
	c.done = created;
	c.arg = k;
	call_run(r, &c);
}

/* ---- one workflow ---- */

static void
show(struct hsrv_req *r, const PGresult *res)
{
	struct workflow_head h = workflow_head(res, 0);
	struct workflow_jobs l;
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "workflow");
	jwrite_object(&w);
	workflow_head_write(&w, &h);
	workflow_jobs_begin(&l, &w, h.kind);
	for (int i = 0; i < PQntuples(res); i++) {
		struct workflow_job j = { .id = pgbin_uuid(res, i, JOBS_ID) };

		j.role = pgbin_bytes(res, i, JOBS_ROLE);
		if (!pgbin_null(res, i, JOBS_TYPE)) {
			j.type = pgbin_bytes(res, i, JOBS_TYPE);
			j.queue = pgbin_bytes(res, i, JOBS_QUEUE);
		}
		j.state = pgbin_i16(res, i, JOBS_STATE);
		workflow_jobs_add(&l, &j);
	}
	workflow_jobs_end(&l);
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
fill_id(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	pgargs_uuid(a, ctx_tenant(r));
	pgargs_uuid(a, arg);
}

/* What is no id is the id of nothing. */
static void
run_id(struct hsrv_req *r, const struct pgstmt *stmt,
	void (*done)(struct hsrv_req *, void *, const PGresult *))
{
	struct qid *id = arena_zalloc(hsrv_arena(r), sizeof(*id));
	struct call c = { .stmt = stmt, .lane = LANE_REST };

	if (!qid_parse(hsrv_param(r, 0), id)) {
		reply_missing(r, "workflow", hsrv_param(r, 0));
		return;
	}
	c.fill = fill_id;
	c.done = done;
	c.arg = id;
	call_run(r, &c);
}

static const struct pgstmt get_stmt = { .name = "ojs_workflow_get",
	.sql = "select " WORKFLOW_HEAD_SQL JOBS
	       "from queen.workflow_get_v1($1, $2)" };
static const struct pgstmt cancel_stmt = { .name = "ojs_workflow_cancel",
	.sql = "select " WORKFLOW_HEAD_SQL JOBS ", verdict "
	       "from queen.workflow_cancel_v1($1, $2)" };

static void
got(struct hsrv_req *r, void *arg, const PGresult *res)
{
	(void)arg;
	if (PQntuples(res) == 0)
		reply_missing(r, "workflow", hsrv_param(r, 0));
	else
		show(r, res);
}

void
workflow_get(struct hsrv_req *r)
{
	run_id(r, &get_stmt, got);
}

static void
cancelled(struct hsrv_req *r, void *arg, const PGresult *res)
{
	char details[128], id[QID_TEXT_MAX];
	const char *state;

	if (PQntuples(res) == 0) {
		reply_missing(r, "workflow", hsrv_param(r, 0));
		return;
	}
	if (pgbin_i16(res, 0, CANCEL_VERDICT) == JOB_OK) {
		show(r, res);
		return;
	}
	qid_text(arg, id);
	state = workflow_state_name(pgbin_i16(res, 0, WORKFLOW_HEAD_STATE));
	snprintf(details, sizeof(details),
		"\"workflow_id\":\"%s\",\"current_state\":\"%s\"", id, state);
	reply_no(r, 409, "conflict", details, "The workflow is %s already.",
		state);
}

void
workflow_cancel(struct hsrv_req *r)
{
	run_id(r, &cancel_stmt, cancelled);
}
