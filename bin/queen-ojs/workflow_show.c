/* SPDX-License-Identifier: Apache-2.0 */
/* A workflow as every answer shows it. */
#include "workflow_int.h"

#include "jwrite.h"
#include "pgbin.h"

enum { RUNNING, COMPLETED, FAILED, CANCELLED, STATES };

static const char *const states[STATES] = { "running", "completed", "failed",
	"cancelled" };

enum {
	HEAD_ID,
	HEAD_KIND,
	HEAD_NAME,
	HEAD_STATE,
	HEAD_TOTAL,
	HEAD_COMPLETED,
	HEAD_FAILED,
	HEAD_CREATED_AT,
	HEAD_ENDED_AT
};

const char *
workflow_state_name(int state)
{
	return state >= 0 && state < STATES ? states[state] : "unknown";
}

struct workflow_head
workflow_head(const PGresult *res, int row)
{
	struct workflow_head h = { .id = pgbin_uuid(res, row, HEAD_ID) };

	h.kind = pgbin_bytes(res, row, HEAD_KIND);
	if (!pgbin_null(res, row, HEAD_NAME))
		h.name = pgbin_bytes(res, row, HEAD_NAME);
	h.state = pgbin_i16(res, row, HEAD_STATE);
	h.total = pgbin_i32(res, row, HEAD_TOTAL);
	h.completed = pgbin_i32(res, row, HEAD_COMPLETED);
	h.failed = pgbin_i32(res, row, HEAD_FAILED);
	h.created_us = pgbin_time(res, row, HEAD_CREATED_AT);
	if (!pgbin_null(res, row, HEAD_ENDED_AT))
		h.ended_us = pgbin_time(res, row, HEAD_ENDED_AT);
	return h;
}

static void
when(struct jwrite *w, const char *key, int64_t at_us)
{
	jwrite_key(w, key);
	jwrite_iso_ms(w, at_us);
}

/* The steps of a chain count as its jobs as well. */
static void
counts(struct jwrite *w, const struct workflow_head *h)
{
	if (span_is(h->kind, "chain")) {
		jwrite_kv_i64(w, "steps_total", h->total);
		jwrite_kv_i64(w, "steps_completed", h->completed);
	}
	jwrite_kv_i64(w, "jobs_total", h->total);
	jwrite_kv_i64(w, "jobs_completed", h->completed);
	jwrite_kv_i64(w, "jobs_failed", h->failed);
}

void
workflow_head_write(struct jwrite *w, const struct workflow_head *h)
{
	jwrite_kv_cstr(w, "specversion", "1.0");
	jwrite_key(w, "id");
	jwrite_qid(w, &h->id);
	jwrite_kv_str(w, "type", h->kind);
	if (h->name.n)
		jwrite_kv_str(w, "name", h->name);
	jwrite_kv_cstr(w, "state", workflow_state_name(h->state));
	counts(w, h);
	when(w, "created_at", h->created_us);
	if (h->ended_us)
		when(w, h->state == CANCELLED ? "cancelled_at" : "completed_at",
			h->ended_us);
}

/* ---- its jobs ---- */

static void
job_row(struct jwrite *w, const struct workflow_job *j)
{
	jwrite_object(w);
	jwrite_key(w, "id");
	jwrite_qid(w, &j->id);
	if (j->type.n) {
		jwrite_kv_str(w, "type", j->type);
		jwrite_kv_str(w, "queue", j->queue);
	}
	jwrite_kv_cstr(w, "state",
		j->state == JOB_HELD ? "waiting" : job_state_name(j->state));
	jwrite_end(w);
}

void
workflow_jobs_begin(struct workflow_jobs *l, struct jwrite *w, struct span kind)
{
	*l = (struct workflow_jobs){ .w = w };
	jwrite_key(w, span_is(kind, "chain") ? "steps" : "jobs");
	jwrite_array(w);
}

void
workflow_jobs_add(struct workflow_jobs *l, const struct workflow_job *j)
{
	struct jwrite *w = l->w;

	if (span_is(j->role, "step") || span_is(j->role, "job")) {
		job_row(w, j);
		return;
	}
	if (!l->called) {
		jwrite_end(w);
		jwrite_key(w, "callbacks");
		jwrite_object(w);
		l->called = true;
	}
	jwrite_key_span(w, j->role);
	job_row(w, j);
}

void
workflow_jobs_end(struct workflow_jobs *l)
{
	jwrite_end(l->w);
}
