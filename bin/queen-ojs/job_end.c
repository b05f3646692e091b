/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of attempts.  Who ends a job names it, and may name itself and the
 * attempt it means; the database compares.
 */
#include <inttypes.h>

#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "job_error.h"
#include "job_int.h"
#include "jwrite.h"
#include "settings.h"

static const struct pgstmt ack_stmt = { .name = "jobs_ack",
	.sql = "select " JOB_OUT_SQL
	       " from queen.jobs_ack_v1($1, $2, $3, $4, $5)" };
static const struct pgstmt nack_stmt = { .name = "jobs_nack",
	.sql = "select " JOB_OUT_SQL " from queen.jobs_nack_v1("
	       "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10)" };

struct end {
	struct qid id;
	struct span worker;
	int64_t attempt; /* -1 = not said */
	int64_t max_bytes; /* of a result or an error */
	struct span result; /* JSON; n = 0 = none */
	bool requeue, failed; /* failed: error is set */
	struct job_error error;
};

/* What the body has beside what all ends have. */
struct parts {
	struct jspan_val result, error, requeue;
};

/* ---- reading ---- */

/* Both names are in use; an id that cannot be one is of no job. */
static bool
read_id(struct hsrv_req *r, const struct jspan_val *job_id,
	const struct jspan_val *id, struct qid *out)
{
	const struct jspan_val *v = job_id->type == JSPAN_NONE ? id : job_id;
	struct span text;
	struct problem p;

	if (!jspan_text(v, hsrv_arena(r), &text)) {
		problem_field(&p, hsrv_arena(r), "job_id",
			"`job_id` must be a string.");
		reply_problem(r, &p);
		return false;
	}
	if (job_id_parse(text, out))
		return true;
	job_unknown(r, text);
	return false;
}

/* False after an answer. */
static bool
read_end(struct hsrv_req *r, struct end *e, struct parts *parts)
{
	struct jspan_val job_id, id, worker, attempt;
	const struct job_field fields[] = { { "job_id", &job_id, false },
		{ "id", &id, false }, { "worker_id", &worker, false },
		{ "attempt", &attempt, false },
		{ "result", &parts->result, true },
		{ "error", &parts->error, false },
		{ "requeue", &parts->requeue, false } };
	struct arena *a = hsrv_arena(r);
	struct problem p;
	struct span body;

	e->attempt = -1;
	e->max_bytes = ctx_of(r)->conf->max_envelope_bytes;
	if (!reply_object(r, &body))
		return false;
	if (job_fields(body, a, fields, 7, &p) != 0 ||
		job_text(&worker, a, "worker_id", JOB_WORKER_MAX, &e->worker,
			&p) != 0 ||
		job_number(&attempt, a, "attempt", 0, INT32_MAX, &e->attempt,
			&p) != 0) {
		reply_problem(r, &p);
		return false;
	}
	return read_id(r, &job_id, &id, &e->id);
}

/* A value of the client's that is kept. */
static int
check_value(struct span raw, int64_t max_bytes, const char *field,
	struct arena *a, struct problem *p)
{
	if ((int64_t)raw.n > max_bytes)
		return problem_set(p, a, 413, "envelope_too_large",
			arena_cstr(a, arena_printf(a,
					      "\"field\":\"%s\",\"size\":%zu,"
					      "\"limit\":%" PRId64,
					      field, raw.n, max_bytes)),
			"`%s` has %zu bytes, the limit is %" PRId64 ".", field,
			raw.n, max_bytes);
	if (!job_depth_ok(raw, JOB_DEPTH_MAX))
		return problem_set(p, a, 400, "invalid_payload", NULL,
			"`%s` is nested deeper than %d.", field, JOB_DEPTH_MAX);
	return 0;
}

static int
read_failure(struct end *e, const struct parts *parts, struct arena *a,
	struct problem *p)
{
	const struct jspan_val *error = &parts->error;

	if (job_flag(&parts->requeue, a, "requeue", &e->requeue, p) != 0)
		return -1;
	if (e->requeue)
		return 0;
	if (error->type != JSPAN_OBJECT)
		return problem_field(p, a, "error",
			"`error` must be an object, unless `requeue` is true.");
	e->failed = true;
	if (check_value(error->raw, e->max_bytes, "error", a, p) != 0)
		return -1;
	return job_error_parse(error->raw, a, &e->error, p);
}

/* ---- calls ---- */

static void
text_or_null(struct pgargs *a, struct span s)
{
	if (s.n)
		pgargs_text(a, s);
	else
		pgargs_null(a);
}

static void
fill_end(struct hsrv_req *r, const struct end *e, struct pgargs *a)
{
	pgargs_uuid(a, ctx_tenant(r));
	pgargs_uuid(a, &e->id);
	text_or_null(a, e->worker);
	if (e->attempt >= 0)
		pgargs_i32(a, (int32_t)e->attempt);
	else
		pgargs_null(a);
}

static void
fill_ack(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct end *e = arg;

	fill_end(r, e, a);
	text_or_null(a, e->result);
}

static void
fill_nack(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct end *e = arg;

	fill_end(r, e, a);
	text_or_null(a, e->error.stored);
	text_or_null(a, e->error.type);
	text_or_null(a, e->error.class);
	text_or_null(a, e->error.code);
	pgargs_bool(a, e->failed ? e->error.retryable : true);
	pgargs_bool(a, e->requeue);
}

/* The other rows are jobs this end made available: of its workflow. */
static void
tell_all(struct hsrv_req *r, const PGresult *res)
{
	for (int i = 0; i < PQntuples(res); i++)
		job_tell(r, res, i);
}

static void
write_ids(struct jwrite *w, const struct end *e)
{
	jwrite_key(w, "id");
	jwrite_qid(w, &e->id);
	jwrite_key(w, "job_id");
	jwrite_qid(w, &e->id);
}

static void
write_state(struct jwrite *w, const PGresult *res)
{
	jwrite_kv_cstr(
		w, "state", job_state_name(pgbin_i16(res, 0, JOB_OUT_STATE)));
}

static bool
went_well(struct hsrv_req *r, const struct end *e, const PGresult *res)
{
	if (pgbin_i16(res, 0, JOB_OUT_VERDICT) == JOB_OK) {
		tell_all(r, res);
		return true;
	}
	job_refuse_to(r, res, 0, &e->id, "active");
	return false;
}

static void
acked(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct end *e = arg;
	struct jwrite w;

	if (!went_well(r, e, res))
		return;
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "acknowledged", true);
	write_ids(&w, e);
	write_state(&w, res);
	job_write_at(&w, "completed_at", res, 0, JOB_OUT_COMPLETED_AT);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
nacked(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct end *e = arg;
	struct jwrite w;

	if (!went_well(r, e, res))
		return;
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	write_ids(&w, e);
	write_state(&w, res);
	jwrite_kv_i64(&w, "attempt", pgbin_i32(res, 0, JOB_OUT_ATTEMPT));
	jwrite_kv_i64(
		&w, "max_attempts", pgbin_i32(res, 0, JOB_OUT_MAX_ATTEMPTS));
	if (pgbin_i16(res, 0, JOB_OUT_STATE) == JOB_RETRYABLE)
		jwrite_kv_i64(&w, "retry_delay_ms",
			pgbin_i64(res, 0, JOB_OUT_RETRY_DELAY_MS));
	job_write_at(&w, "next_attempt_at", res, 0, JOB_OUT_NEXT_ATTEMPT_AT);
	job_write_at(&w, "discarded_at", res, 0, JOB_OUT_DISCARDED_AT);
	job_write_at(&w, "completed_at", res, 0, JOB_OUT_COMPLETED_AT);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
job_ack(struct hsrv_req *r)
{
	struct end *e = arena_zalloc(hsrv_arena(r), sizeof(*e));
	struct call c = { .stmt = &ack_stmt, .lane = LANE_JOB };
	struct parts parts;
	struct problem p;

	if (!read_end(r, e, &parts))
		return;
	e->result = parts.result.raw;
	if (check_value(e->result, e->max_bytes, "result", hsrv_arena(r), &p) !=
		0) {
		reply_problem(r, &p);
		return;
	}
	c.fill = fill_ack;
	c.done = acked;
	c.arg = e;
	call_run(r, &c);
}

void
job_nack(struct hsrv_req *r)
{
	struct end *e = arena_zalloc(hsrv_arena(r), sizeof(*e));
	struct call c = { .stmt = &nack_stmt, .lane = LANE_JOB };
	struct parts parts;
	struct problem p;

	if (!read_end(r, e, &parts))
		return;
	if (read_failure(e, &parts, hsrv_arena(r), &p) != 0) {
		reply_problem(r, &p);
		return;
	}
	c.fill = fill_nack;
	c.done = nacked;
	c.arg = e;
	call_run(r, &c);
}
