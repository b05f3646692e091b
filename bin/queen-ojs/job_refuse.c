/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts that are no success, in the form of the binding's errors. */

#include "arena.h"
#include "buf.h"
#include "hsrv.h"
#include "job_int.h"
#include "jwrite.h"

/* Details are written as an object, and handed on without its braces. */
struct details {
	struct buf b;
	struct jwrite w;
};

static void
begin(struct details *d, const PGresult *res, int row, const char *id_key)
{
	d->b = (struct buf)BUF_ZERO;
	jwrite_init(&d->w, &d->b);
	jwrite_object(&d->w);
	if (id_key && !pgbin_null(res, row, JOB_OUT_ID)) {
		struct qid id = pgbin_uuid(res, row, JOB_OUT_ID);

		jwrite_key(&d->w, id_key);
		jwrite_qid(&d->w, &id);
	}
}

static void
end(struct details *d, struct arena *a, struct problem *p)
{
	p->details = arena_dup(a, span_make(d->b.p + 1, d->b.len - 1));
	buf_fini(&d->b);
}

static void
text(struct details *d, const char *key, const PGresult *res, int row, int col)
{
	if (!pgbin_null(res, row, col))
		jwrite_kv_str(&d->w, key, pgbin_bytes(res, row, col));
}

/* What an end came too late for, so that its worker knows whether it was it. */
static void
conflict(struct arena *a, const PGresult *res, int row, const char *expected,
	struct problem *p)
{
	const char *state = job_state_name(pgbin_i16(res, row, JOB_OUT_STATE));
	struct details d;

	switch (pgbin_i16(res, row, JOB_OUT_VERDICT)) {
	case JOB_WORKER:
		problem_set(p, a, 409, "conflict", NULL,
			"Another worker holds the job.");
		break;
	case JOB_ATTEMPT:
		problem_set(p, a, 409, "conflict", NULL,
			"Attempt %d of the job runs, not this one.",
			pgbin_i32(res, row, JOB_OUT_ATTEMPT));
		break;
	default:
		problem_set(p, a, 409, "conflict", NULL,
			expected ? "Job is %s, not %s." : "Job is %s.", state,
			expected);
	}
	begin(&d, res, row, "job_id");
	jwrite_kv_cstr(&d.w, "current_state", state);
	if (expected)
		jwrite_kv_cstr(&d.w, "expected_state", expected);
	jwrite_kv_i64(&d.w, "attempt", pgbin_i32(res, row, JOB_OUT_ATTEMPT));
	text(&d, "worker_id", res, row, JOB_OUT_WORKER);
	end(&d, a, p);
}

/* The id of a workflow is told of a job that cannot be seen but in it. */
static void
duplicate(struct arena *a, const PGresult *res, int row, struct problem *p)
{
	bool unique = pgbin_i16(res, row, JOB_OUT_VERDICT) == JOB_UNIQUE;
	bool held = !pgbin_null(res, row, JOB_OUT_STATE) &&
		    pgbin_i16(res, row, JOB_OUT_STATE) == JOB_HELD;
	struct details d;

	problem_set(p, a, 409, "duplicate", NULL, "%s%s",
		unique ? "A job with the same unique key exists"
		       : "The id is used already",
		held ? ", and waits in its workflow." : ".");
	begin(&d, res, row, "existing_job_id");
	if (unique)
		text(&d, "unique_key", res, row, JOB_OUT_UNIQUE_KEY);
	if (held && !pgbin_null(res, row, JOB_OUT_WORKFLOW_ID)) {
		struct qid id = pgbin_uuid(res, row, JOB_OUT_WORKFLOW_ID);

		jwrite_key(&d.w, "workflow_id");
		jwrite_qid(&d.w, &id);
	}
	end(&d, a, p);
}

static void
full(struct arena *a, const PGresult *res, int row, struct problem *p)
{
	struct details d;

	problem_set(p, a, 429, "queue_full", NULL,
		"The queue holds as many jobs as it may.");
	p->retry_after_s = 1;
	begin(&d, res, row, NULL);
	text(&d, "queue", res, row, JOB_OUT_QUEUE);
	end(&d, a, p);
}

void
job_problem(struct arena *a, const PGresult *res, int row, const char *expected,
	struct problem *p)
{
	switch (pgbin_i16(res, row, JOB_OUT_VERDICT)) {
	case JOB_MISSING:
		problem_set(p, a, 404, "not_found", "\"resource\":\"job\"",
			"There is no such job.");
		break;
	case JOB_TAKEN:
	case JOB_UNIQUE:
		duplicate(a, res, row, p);
		break;
	case JOB_FULL:
		full(a, res, row, p);
		break;
	default:
		conflict(a, res, row, expected, p);
	}
}

void
job_refuse_to(struct hsrv_req *r, const PGresult *res, int row,
	const struct qid *id, const char *expected)
{
	char name[QID_TEXT_MAX];
	struct problem p;

	if (pgbin_i16(res, row, JOB_OUT_VERDICT) == JOB_MISSING) {
		job_unknown(r, span_of(qid_text(id, name)));
		return;
	}
	job_problem(hsrv_arena(r), res, row, expected, &p);
	reply_problem(r, &p);
}

void
job_refuse(struct hsrv_req *r, const PGresult *res, int row)
{
	struct problem p;

	job_problem(hsrv_arena(r), res, row, NULL, &p);
	reply_problem(r, &p);
}
