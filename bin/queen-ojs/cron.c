/* SPDX-License-Identifier: Apache-2.0 */
/* Routes of recurring jobs; who fires them is the sweep. */
#include "cron.h"

#include "arena.h"
#include "call.h"
#include "cron_int.h"
#include "ctx.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "page.h"
#include "settings.h"

#define SHOWN                                                                  \
	"name, expression, zone, overlap, enabled, shown, created_at, "        \
	"changed_at, next_at, last_at, last_job "

/* The first column is the verdict, or in a list the number of all. */
enum {
	CRON_VERDICT,
	CRON_CREATED,
	CRON_NAME,
	CRON_EXPRESSION,
	CRON_ZONE,
	CRON_OVERLAP,
	CRON_ENABLED,
	CRON_SHOWN,
	CRON_CREATED_AT,
	CRON_CHANGED_AT,
	CRON_NEXT_AT,
	CRON_LAST_AT,
	CRON_LAST_JOB
};

enum { PUT_OK, PUT_NO_ZONE };

static const struct pgstmt put_stmt = { .name = "cron_put",
	.sql = "select verdict, created, " SHOWN
	       "from queen.cron_put_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, "
	       "$10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, "
	       "$22, $23, $24, $25, $26, $27, $28)" };
static const struct pgstmt get_stmt = { .name = "cron_get",
	.sql = "select verdict, created, " SHOWN
	       "from queen.cron_get_v1($1, $2)" };
static const struct pgstmt delete_stmt = { .name = "cron_delete",
	.sql = "select verdict, created, " SHOWN
	       "from queen.cron_delete_v1($1, $2)" };
static const struct pgstmt list_stmt = { .name = "cron_list",
	.sql = "select total, null::boolean, " SHOWN
	       "from queen.cron_list_v1($1, $2, $3, $4)" };

/* ---- answers ---- */

static void
write_at(struct jwrite *w, const char *key, const PGresult *res, int row,
	int col)
{
	if (pgbin_null(res, row, col))
		return;
	jwrite_key(w, key);
	jwrite_iso_ms(w, pgbin_time(res, row, col));
}

static void
write_cron(struct jwrite *w, const PGresult *res, int row)
{
	struct span expression = pgbin_bytes(res, row, CRON_EXPRESSION);
	bool enabled = pgbin_bool(res, row, CRON_ENABLED);
	struct qid id;

	jwrite_object(w);
	jwrite_kv_str(w, "name", pgbin_bytes(res, row, CRON_NAME));
	jwrite_kv_str(w, "expression", expression);
	jwrite_kv_str(w, "cron", expression);
	jwrite_kv_str(w, "timezone", pgbin_bytes(res, row, CRON_ZONE));
	jwrite_kv_str(w, "overlap_policy", pgbin_bytes(res, row, CRON_OVERLAP));
	jwrite_kv_bool(w, "enabled", enabled);
	if (enabled)
		write_at(w, "next_run_at", res, row, CRON_NEXT_AT);
	write_at(w, "last_run_at", res, row, CRON_LAST_AT);
	if (!pgbin_null(res, row, CRON_LAST_JOB)) {
		id = pgbin_uuid(res, row, CRON_LAST_JOB);
		jwrite_key(w, "last_job_id");
		jwrite_qid(w, &id);
	}
	write_at(w, "created_at", res, row, CRON_CREATED_AT);
	write_at(w, "updated_at", res, row, CRON_CHANGED_AT);
	buf_putc(w->b, ',');
	buf_put_span(w->b, pgbin_bytes(res, row, CRON_SHOWN));
	jwrite_end(w);
}

static void
reply_cron(struct hsrv_req *r, const PGresult *res, int status, bool deleted)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "cron");
	write_cron(&w, res, 0);
	if (deleted) {
		jwrite_kv_bool(&w, "deleted", true);
		jwrite_kv_str(&w, "name", pgbin_bytes(res, 0, CRON_NAME));
	}
	jwrite_end(&w);
	hsrv_reply(r, status);
}

/* ---- registration ---- */

static void
fill_put(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct cron_body *c = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, c->name);
	pgargs_text(a, c->expression);
	pgargs_text(a, c->zone);
	pgargs_i64(a, (int64_t)c->when.minutes);
	pgargs_i32(a, (int32_t)c->when.hours);
	pgargs_i64(a, c->when.days);
	pgargs_i32(a, (int32_t)c->when.months);
	pgargs_i32(a, (int32_t)c->when.weekdays);
	pgargs_bool(a, c->when.any_day);
	pgargs_bool(a, c->when.any_weekday);
	pgargs_text(a, c->overlap);
	pgargs_bool(a, c->enabled);
	pgargs_text(a, c->shown);
	job_spec_args(a, &c->spec, 1);
}

static void
on_put(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct cron_body *c = arg;
	struct problem p;

	if (pgbin_i16(res, 0, CRON_VERDICT) == PUT_NO_ZONE) {
		problem_field(&p, hsrv_arena(r), "timezone",
			"`timezone` is no zone of the IANA database: %.*s.",
			SPAN_ARG(span_clip(c->zone, 64)));
		reply_problem(r, &p);
		return;
	}
	reply_cron(r, res, pgbin_bool(res, 0, CRON_CREATED) ? 201 : 200, false);
}

void
cron_put(struct hsrv_req *r)
{
	struct cron_body *c = arena_zalloc(hsrv_arena(r), sizeof(*c));
	struct call call = { .stmt = &put_stmt, .lane = LANE_REST };
	struct ctx *x = ctx_of(r);
	struct problem p;
	struct span body;

	if (!reply_object(r, &body))
		return;
	if (cron_body_parse(body, (size_t)x->conf->max_envelope_bytes,
		    hsrv_arena(r), ctx_now_us(x), c, &p) < 0) {
		reply_problem(r, &p);
		return;
	}
	call.fill = fill_put;
	call.done = on_put;
	call.arg = c;
	call_run(r, &call);
}

/* ---- one ---- */

static void
fill_one(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	(void)arg;
	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, hsrv_param(r, 0));
}

static void
answer_one(struct hsrv_req *r, const PGresult *res, bool deleted)
{
	if (PQntuples(res) == 0)
		reply_missing(r, "cron", hsrv_param(r, 0));
	else
		reply_cron(r, res, 200, deleted);
}

static void
on_got(struct hsrv_req *r, void *arg, const PGresult *res)
{
	(void)arg;
	answer_one(r, res, false);
}

static void
on_deleted(struct hsrv_req *r, void *arg, const PGresult *res)
{
	(void)arg;
	answer_one(r, res, true);
}

static void
run_one(struct hsrv_req *r, const struct pgstmt *stmt,
	void (*done)(struct hsrv_req *r, void *arg, const PGresult *res))
{
	struct call c = { .stmt = stmt, .lane = LANE_REST, .fill = fill_one };

	c.done = done;
	call_run(r, &c);
}

void
cron_get(struct hsrv_req *r)
{
	run_one(r, &get_stmt, on_got);
}

void
cron_delete(struct hsrv_req *r)
{
	run_one(r, &delete_stmt, on_deleted);
}

/* ---- all ---- */

static void
fill_list(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct page *g = arg;

	pgargs_uuid(a, ctx_tenant(r));
	if (g->cursor.n)
		pgargs_text(a, g->cursor);
	else
		pgargs_null(a);
	pgargs_i64(a, g->cursor.n ? 0 : g->offset);
	pgargs_i32(a, g->limit + 1);
}

/* Row 0 holds the total alone. */
static void
on_list(struct hsrv_req *r, void *arg, const PGresult *res)
{
	static const char *const keys[] = { "crons", "cron_jobs" };
	const struct page *g = arg;
	int n = PQntuples(res) - 1;
	bool more = n > g->limit;
	struct span last = SPAN_ZERO;
	struct jwrite w;

	if (more)
		n = g->limit;
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	for (int k = 0; k < 2; k++) {
		jwrite_key(&w, keys[k]);
		jwrite_array(&w);
		for (int i = 1; i <= n; i++)
			write_cron(&w, res, i);
		jwrite_end(&w);
	}
	if (n > 0)
		last = pgbin_bytes(res, n, CRON_NAME);
	page_write(&w, g, pgbin_i64(res, 0, CRON_VERDICT), more, last);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
cron_list(struct hsrv_req *r)
{
	struct page *g = arena_zalloc(hsrv_arena(r), sizeof(*g));
	struct call c = { .stmt = &list_stmt, .lane = LANE_REST };
	struct problem p;

	if (page_parse(r, 0, 0, g, &p) < 0) {
		reply_problem(r, &p);
		return;
	}
	/* The database cannot even be asked for what is no text. */
	if (g->cursor.n && (!jspan_utf8(g->cursor) ||
				   memchr(g->cursor.p, '\0', g->cursor.n))) {
		problem_field(&p, hsrv_arena(r), "cursor",
			"`cursor` is none that this list gave.");
		reply_problem(r, &p);
		return;
	}
	c.fill = fill_list;
	c.done = on_list;
	c.arg = g;
	call_run(r, &c);
}
