/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and verdicts as answers. */
#include "buf.h"
#include "claims.h"
#include "ctx.h"
#include "hsrv.h"
#include "job_int.h"
#include "jwrite.h"
#include "loop.h"
#include "wait.h"

const char *
job_state_name(int state)
{
	static const char *const names[JOB_STATES] = { "available", "active",
		"scheduled", "retryable", "pending", "completed", "cancelled",
		"discarded", "pending" };

	return state >= 0 && state < JOB_STATES ? names[state] : "unknown";
}

/* ---- a job ---- */

void
job_write_at(struct jwrite *w, const char *key, const PGresult *res, int row,
	int col)
{
	if (pgbin_null(res, row, col))
		return;
	jwrite_key(w, key);
	jwrite_iso_ms(w, pgbin_time(res, row, col));
}

static void
write_raw(struct jwrite *w, const char *key, const PGresult *res, int row,
	int col)
{
	if (!pgbin_null(res, row, col))
		jwrite_kv_raw(w, key, pgbin_bytes(res, row, col));
}

/* Members somebody else wrote, behind one that stands there already. */
static void
splice(struct jwrite *w, struct span members)
{
	if (!members.n)
		return;
	buf_putc(w->b, ',');
	buf_put_span(w->b, members);
}

static void
write_id(struct jwrite *w, const char *key, const PGresult *res, int row,
	int col)
{
	struct qid id;

	if (pgbin_null(res, row, col))
		return;
	id = pgbin_uuid(res, row, col);
	jwrite_key(w, key);
	jwrite_qid(w, &id);
}

static void
write_times(struct jwrite *w, const PGresult *res, int row)
{
	job_write_at(w, "created_at", res, row, JOB_OUT_CREATED_AT);
	job_write_at(w, "enqueued_at", res, row, JOB_OUT_ENQUEUED_AT);
	job_write_at(w, "started_at", res, row, JOB_OUT_STARTED_AT);
	job_write_at(w, "completed_at", res, row, JOB_OUT_COMPLETED_AT);
	job_write_at(w, "cancelled_at", res, row, JOB_OUT_CANCELLED_AT);
	job_write_at(w, "discarded_at", res, row, JOB_OUT_DISCARDED_AT);
	job_write_at(w, "next_attempt_at", res, row, JOB_OUT_NEXT_ATTEMPT_AT);
}

static void
write_lease(struct jwrite *w, const PGresult *res, int row)
{
	if (!pgbin_null(res, row, JOB_OUT_WORKER))
		jwrite_kv_str(
			w, "worker_id", pgbin_bytes(res, row, JOB_OUT_WORKER));
	job_write_at(w, "lease_expires_at", res, row, JOB_OUT_LEASE_UNTIL);
}

static void
write_previous(struct jwrite *w, const PGresult *res, int row)
{
	if (!pgbin_null(res, row, JOB_OUT_PREVIOUS_STATE))
		jwrite_kv_cstr(w, "previous_state",
			job_state_name(
				pgbin_i16(res, row, JOB_OUT_PREVIOUS_STATE)));
}

void
job_write(struct jwrite *w, const PGresult *res, int row, struct span extra)
{
	int state = pgbin_i16(res, row, JOB_OUT_STATE);

	jwrite_object(w);
	jwrite_kv_cstr(w, "specversion", "1.0");
	write_id(w, "id", res, row, JOB_OUT_ID);
	jwrite_kv_str(w, "type", pgbin_bytes(res, row, JOB_OUT_TYPE));
	jwrite_kv_str(w, "queue", pgbin_bytes(res, row, JOB_OUT_QUEUE));
	jwrite_kv_cstr(w, "state", job_state_name(state));
	splice(w, pgbin_bytes(res, row, JOB_OUT_DOC));
	jwrite_kv_i64(w, "priority", -pgbin_i16(res, row, JOB_OUT_RANK));
	jwrite_kv_i64(w, "attempt", pgbin_i32(res, row, JOB_OUT_ATTEMPT));
	jwrite_kv_i64(
		w, "max_attempts", pgbin_i32(res, row, JOB_OUT_MAX_ATTEMPTS));
	write_times(w, res, row);
	if (!pgbin_null(res, row, JOB_OUT_RETRY_DELAY_MS))
		jwrite_kv_i64(w, "retry_delay_ms",
			pgbin_i64(res, row, JOB_OUT_RETRY_DELAY_MS));
	write_raw(w, "error", res, row, JOB_OUT_ERROR);
	write_raw(w, "errors", res, row, JOB_OUT_ERRORS);
	write_raw(w, "result", res, row, JOB_OUT_RESULT);
	if (state == JOB_ACTIVE)
		write_lease(w, res, row);
	if (state == JOB_CANCELLED)
		write_previous(w, res, row);
	write_raw(w, "parent_results", res, row, JOB_OUT_PARENTS);
	write_id(w, "workflow_id", res, row, JOB_OUT_WORKFLOW_ID);
	splice(w, extra);
	jwrite_end(w);
}

void
job_reply(struct hsrv_req *r, const PGresult *res, int row, struct span extra)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "job");
	job_write(&w, res, row, extra);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

/* A queue this process never pushed to may be new to those who wait for it. */
void
job_tell(struct hsrv_req *r, const PGresult *res, int row)
{
	struct ctx *x = ctx_of(r);
	struct span name;
	int64_t id;

	id = pgbin_i64(res, row, JOB_OUT_QUEUE_ID);
	name = pgbin_bytes(res, row, JOB_OUT_QUEUE);
	if (claims_queue_id(x->claims, ctx_tenant(r), name) != id)
		waits_tell_queue(x->waits, id);
	claims_queue(x->claims, ctx_tenant(r), name, id, loop_now_ms(x->loop));
	if (pgbin_i16(res, row, JOB_OUT_STATE) == JOB_AVAILABLE)
		waits_tell(x->waits, WAIT_JOBS, id);
}
