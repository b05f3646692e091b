/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dead-letter set, newest first.  A page and the number of all are two
 * calls; the number is of the moment after the page.
 */
#include <inttypes.h>
#include <string.h>

#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "job_int.h"
#include "jwrite.h"
#include "page.h"
#include "queue.h"

static const struct pgstmt list_stmt = { .name = "jobs_dead",
	.sql = "select " JOB_OUT_SQL
	       " from queen.jobs_dead_v1($1, $2, $3, $4, $5, $6, $7)" };
static const struct pgstmt count_stmt = { .name = "jobs_dead_count",
	.sql = "select queen.jobs_dead_count_v1($1, $2, $3)" };
static const struct pgstmt get_stmt = { .name = "jobs_dead_get",
	.sql = "select " JOB_OUT_SQL " from queen.jobs_dead_get_v1($1, $2)" };
static const struct pgstmt retry_stmt = { .name = "jobs_dead_retry",
	.sql = "select " JOB_OUT_SQL " from queen.jobs_dead_retry_v1($1, $2)" };
static const struct pgstmt delete_stmt = { .name = "jobs_dead_delete",
	.sql = "select " JOB_OUT_SQL
	       " from queen.jobs_dead_delete_v1($1, $2)" };

struct list {
	struct page page;
	struct span queue, type; /* n = 0 = all */
	int64_t after_us, after_seq; /* of the cursor */
	bool more;
	struct span last_key;
	struct jwrite w; /* of the answer, over both calls */
};

/* ---- the list ---- */

static void
text_or_null(struct pgargs *a, struct span s)
{
	if (s.n)
		pgargs_text(a, s);
	else
		pgargs_null(a);
}

static void
fill_count(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct list *l = arg;

	pgargs_uuid(a, ctx_tenant(r));
	text_or_null(a, l->queue);
	text_or_null(a, l->type);
}

/* One more than asked for tells whether there is more. */
static void
fill_list(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct list *l = arg;

	fill_count(r, arg, a);
	pgargs_i32(a, l->page.limit + 1);
	pgargs_i64(a, l->page.offset);
	if (l->page.cursor.n) {
		pgargs_time(a, l->after_us);
		pgargs_i64(a, l->after_seq);
	} else {
		pgargs_null(a);
		pgargs_null(a);
	}
}

static void
counted(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct list *l = arg;

	page_write(&l->w, &l->page, pgbin_i64(res, 0, 0), l->more, l->last_key);
	jwrite_end(&l->w);
	hsrv_reply(r, 200);
}

static void
listed(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct call c = { .stmt = &count_stmt, .lane = LANE_REST };
	struct list *l = arg;
	int n = PQntuples(res);

	l->more = n > l->page.limit;
	if (l->more)
		n = l->page.limit;
	jwrite_init(&l->w, hsrv_out(r));
	jwrite_object(&l->w);
	jwrite_key(&l->w, "jobs");
	jwrite_array(&l->w);
	for (int i = 0; i < n; i++)
		job_write(&l->w, res, i, (struct span)SPAN_ZERO);
	jwrite_end(&l->w);
	if (n)
		l->last_key =
			arena_printf(hsrv_arena(r), "%" PRId64 ".%" PRId64,
				pgbin_time(res, n - 1, JOB_OUT_DISCARDED_AT),
				pgbin_i64(res, n - 1, JOB_OUT_SEQ));
	c.fill = fill_count;
	c.done = counted;
	c.arg = l;
	call_run(r, &c);
}

static bool
read_cursor(struct span key, struct list *l)
{
	const char *dot = memchr(key.p, '.', key.n);

	return dot &&
	       span_i64(
		       span_make(key.p, (size_t)(dot - key.p)), &l->after_us) &&
	       page_time_ok(l->after_us) &&
	       span_i64(span_make(dot + 1, (size_t)(key.p + key.n - dot - 1)),
		       &l->after_seq);
}

static int
read_list(struct hsrv_req *r, struct list *l, struct problem *p)
{
	struct arena *a = hsrv_arena(r);

	if (page_parse(r, 0, 0, &l->page, p) != 0)
		return -1;
	if (l->page.cursor.n && !read_cursor(l->page.cursor, l))
		return problem_field(p, a, "cursor",
			"`cursor` is none that this list gave.");
	if (hsrv_query(r, "queue", &l->queue) && l->queue.n &&
		!queue_name_ok(l->queue))
		return problem_field(
			p, a, "queue", "`queue` is no name of a queue.");
	if (hsrv_query(r, "type", &l->type) && memchr(l->type.p, 0, l->type.n))
		return problem_field(
			p, a, "type", "`type` is no type of a job.");
	return 0;
}

void
job_dead_list(struct hsrv_req *r)
{
	struct list *l = arena_zalloc(hsrv_arena(r), sizeof(*l));
	struct call c = { .stmt = &list_stmt, .lane = LANE_REST };
	struct problem p;

	if (read_list(r, l, &p) != 0) {
		reply_problem(r, &p);
		return;
	}
	c.fill = fill_list;
	c.done = listed;
	c.arg = l;
	call_run(r, &c);
}

/* ---- one entry ---- */

#define RESOURCE "dead_letter"

static void
shown(struct hsrv_req *r, const PGresult *res)
{
	job_reply(r, res, 0, (struct span)SPAN_ZERO);
}

static void
deleted(struct hsrv_req *r, const PGresult *res)
{
	struct qid id = pgbin_uuid(res, 0, JOB_OUT_ID);
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "deleted", true);
	jwrite_key(&w, "job_id");
	jwrite_qid(&w, &id);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
job_dead_get(struct hsrv_req *r)
{
	const struct job_one how = { .resource = RESOURCE, .found = shown };

	job_one_run(r, &get_stmt, &how);
}

void
job_dead_retry(struct hsrv_req *r)
{
	const struct job_one how = {
		.resource = RESOURCE, .changes = true, .found = shown
	};

	job_one_run(r, &retry_stmt, &how);
}

void
job_dead_delete(struct hsrv_req *r)
{
	const struct job_one how = { .resource = RESOURCE, .found = deleted };

	job_one_run(r, &delete_stmt, &how);
}
