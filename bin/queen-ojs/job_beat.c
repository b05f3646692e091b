/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats: leases go on, and a worker learns what it lost. */
#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "job_int.h"
#include "jwrite.h"
#include "settings.h"

enum { IDS_MAX = 10000 };
enum { BEAT_ID, BEAT_HELD, BEAT_DIRECTIVE, BEAT_TIME };

static const struct pgstmt beat_stmt = { .name = "jobs_heartbeat",
	.sql = "select id, held, directive, server_time from "
	       "queen.jobs_heartbeat_v1($1, $2, $3, $4, $5)" };

struct beat {
	struct span worker;
	struct qid *ids;
	size_t n, cap;
	struct span *strange; /* JSON texts that are the id of no job */
	size_t n_strange, cap_strange;
	int64_t lease_ms;
};

/* ---- reading ---- */

/*
 * One that can be no job's is one the worker does not hold: told as often as it
 * was asked for.
 */
static void
add_id(struct beat *b, struct arena *a, struct span text, struct span raw)
{
	b->ids = arena_grown(a, b->ids, b->n, &b->cap, sizeof(*b->ids));
	if (job_id_parse(text, &b->ids[b->n])) {
		b->n++;
		return;
	}
	b->strange = arena_grown(a, b->strange, b->n_strange, &b->cap_strange,
		sizeof(*b->strange));
	b->strange[b->n_strange++] = raw;
}

static int
read_ids(const struct jspan_val *list, const char *field, struct arena *a,
	struct beat *b, struct problem *p)
{
	struct jspan_val v;
	struct span text;
	struct jspan j;

	if (list->type == JSPAN_NONE)
		return 0;
	jspan_open(&j, list->raw);
	if (jspan_enter_array(&j))
		while (jspan_next_item(&j) && jspan_take(&j, &v)) {
			if (b->n + b->n_strange == IDS_MAX)
				return problem_field(p, a, field,
					"`%s` holds more than %d.", field,
					IDS_MAX);
			if (!jspan_text(&v, a, &text))
				jspan_fail(&j, "no id");
			else
				add_id(b, a, text, v.raw);
		}
	if (jspan_end(&j))
		return 0;
	return problem_field(
		p, a, field, "`%s` must be an array of ids of jobs.", field);
}

/* `active_jobs` is the ids, or how many the ids beside it are. */
static int
read_beat(struct span body, struct arena *a, struct beat *b, struct problem *p)
{
	struct jspan_val worker, active, ids, lease;
	const struct job_field fields[] = { { "worker_id", &worker, false },
		{ "active_jobs", &active, false },
		{ "active_job_ids", &ids, false },
		{ "visibility_timeout_ms", &lease, false } };

	if (job_fields(body, a, fields, 4, p) != 0)
		return -1;
	if (worker.type == JSPAN_NONE)
		return problem_field(
			p, a, "worker_id", "`worker_id` is missing.");
	if (job_text(&worker, a, "worker_id", JOB_WORKER_MAX, &b->worker, p) !=
			0 ||
		job_number(&lease, a, "visibility_timeout_ms", 1,
			JOB_LENGTH_MAX_MS, &b->lease_ms, p) != 0)
		return -1;
	if (active.type != JSPAN_NUMBER &&
		read_ids(&active, "active_jobs", a, b, p) != 0)
		return -1;
	return read_ids(&ids, "active_job_ids", a, b, p);
}

/* ---- the call ---- */

static void
fill(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct beat *b = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, b->worker);
	pgargs_array(a, PGARGS_UUID);
	for (size_t i = 0; i < b->n; i++)
		pgargs_item_uuid(a, &b->ids[i]);
	pgargs_close(a);
	if (b->lease_ms)
		pgargs_i64(a, b->lease_ms);
	else
		pgargs_null(a);
	pgargs_bool(a, ctx_of(r)->conf->test);
}

static void
write_ids(struct jwrite *w, const PGresult *res, bool held)
{
	for (int i = 0; i < PQntuples(res); i++) {
		struct qid id;

		if (pgbin_null(res, i, BEAT_ID) ||
			pgbin_bool(res, i, BEAT_HELD) != held)
			continue;
		id = pgbin_uuid(res, i, BEAT_ID);
		jwrite_qid(w, &id);
	}
}

/* The stronger of those its jobs carry; a client's word, so in tests alone. */
static const char *
directive(const struct hsrv_req *r, const PGresult *res)
{
	const char *state = "running";

	if (!ctx_of(r)->conf->test)
		return state;
	for (int i = 0; i < PQntuples(res); i++) {
		struct span s = pgbin_bytes(res, i, BEAT_DIRECTIVE);

		if (span_is(s, "terminate"))
			return "terminate";
		if (span_is(s, "quiet"))
			state = "quiet";
	}
	return state;
}

static void
done(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct beat *b = arg;
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "state", directive(r, res));
	jwrite_key(&w, "jobs_extended");
	jwrite_array(&w);
	write_ids(&w, res, true);
	jwrite_end(&w);
	jwrite_key(&w, "jobs_lost");
	jwrite_array(&w);
	write_ids(&w, res, false);
	for (size_t i = 0; i < b->n_strange; i++)
		jwrite_raw(&w, b->strange[i]);
	jwrite_end(&w);
	job_write_at(&w, "server_time", res, 0, BEAT_TIME);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
job_heartbeat(struct hsrv_req *r)
{
	struct beat *b = arena_zalloc(hsrv_arena(r), sizeof(*b));
	struct call c = { .stmt = &beat_stmt, .lane = LANE_JOB };
	struct problem p;
	struct span body;

	if (!reply_object(r, &body))
		return;
	if (read_beat(body, hsrv_arena(r), b, &p) != 0) {
		reply_problem(r, &p);
		return;
	}
	c.fill = fill;
	c.done = done;
	c.arg = b;
	call_run(r, &c);
}
