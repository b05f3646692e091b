/* SPDX-License-Identifier: Apache-2.0 */
/* The list of queues: jobs and streams are the same entries. */
#include "queue.h"

#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "page.h"

static const struct pgstmt list_stmt = { .name = "ojs_queue_list",
	.sql = "select total, name, paused, created_at, available, active, "
	       "events, consumers, dead_letters "
	       "from queen.ojs_queue_list_v1($1, $2, $3, $4)" };

enum {
	LIST_TOTAL,
	LIST_NAME,
	LIST_PAUSED,
	LIST_CREATED_AT,
	LIST_AVAILABLE,
	LIST_ACTIVE,
	LIST_EVENTS,
	LIST_CONSUMERS,
	LIST_DEAD
};

static void
fill(struct hsrv_req *r, void *arg, struct pgargs *a)
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

/* Null while nobody can look at it. */
static void
stream_write(struct jwrite *w, const PGresult *res, int row)
{
	if (pgbin_null(res, row, LIST_EVENTS)) {
		jwrite_null(w);
		return;
	}
	jwrite_object(w);
	jwrite_kv_i64(w, "events", pgbin_i64(res, row, LIST_EVENTS));
	jwrite_kv_i64(w, "consumers", pgbin_i64(res, row, LIST_CONSUMERS));
	jwrite_kv_i64(w, "dead_letters", pgbin_i64(res, row, LIST_DEAD));
	jwrite_end(w);
}

static void
queue_write(struct jwrite *w, const PGresult *res, int row)
{
	jwrite_object(w);
	jwrite_kv_str(w, "name", pgbin_bytes(res, row, LIST_NAME));
	jwrite_kv_cstr(w, "status",
		pgbin_bool(res, row, LIST_PAUSED) ? "paused" : "active");
	jwrite_key(w, "created_at");
	jwrite_iso_ms(w, pgbin_time(res, row, LIST_CREATED_AT));
	jwrite_key(w, "jobs");
	jwrite_object(w);
	jwrite_kv_i64(w, "available", pgbin_i64(res, row, LIST_AVAILABLE));
	jwrite_kv_i64(w, "active", pgbin_i64(res, row, LIST_ACTIVE));
	jwrite_end(w);
	jwrite_key(w, "stream");
	stream_write(w, res, row);
	jwrite_end(w);
}

/* Row 0 holds the total alone. */
static void
listed(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct page *g = arg;
	int n = PQntuples(res) - 1;
	bool more = n > g->limit;
	struct span last = SPAN_ZERO;
	struct jwrite w;

	if (more)
		n = g->limit;
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "queues");
	jwrite_array(&w);
	for (int i = 1; i <= n; i++)
		queue_write(&w, res, i);
	jwrite_end(&w);
	if (n > 0)
		last = pgbin_bytes(res, n, LIST_NAME);
	page_write(&w, g, pgbin_i64(res, 0, LIST_TOTAL), more, last);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
queue_list(struct hsrv_req *r)
{
	struct page *g = arena_zalloc(hsrv_arena(r), sizeof(*g));
	struct call c = { .stmt = &list_stmt, .lane = LANE_REST };
	struct problem p;

	if (page_parse(r, 0, 0, g, &p) != 0) {
		reply_problem(r, &p);
		return;
	}
	if (g->cursor.n && !queue_name_ok(g->cursor)) {
		reply_no(r, 400, "invalid_request", "\"field\":\"cursor\"",
			"`cursor` is none that this list gave.");
		return;
	}
	c.fill = fill;
	c.done = listed;
	c.arg = g;
	call_run(r, &c);
}
