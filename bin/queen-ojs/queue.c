/* SPDX-License-Identifier: Apache-2.0 */
/* Queues: made, dropped, paused, counted. */
#include "queue.h"

#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "queue_int.h"
#include "reply.h"
#include "wait.h"

enum { NAME_MAX_CHARS = 128 };

static bool
name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool
queue_name_ok(struct span s)
{
	if (s.n == 0 || s.n > NAME_MAX_CHARS || !name_char(s.p[0]))
		return false;
	for (size_t i = 1; i < s.n; i++)
		if (!name_char(s.p[i]) && s.p[i] != '.' && s.p[i] != '-')
			return false;
	return true;
}

bool
queue_of_path(struct hsrv_req *r, struct span *name)
{
	*name = hsrv_param(r, 0);
	if (queue_name_ok(*name))
		return true;
	reply_no(r, 400, "invalid_request", "\"field\":\"queue\"",
		"A queue's name must match ^[a-z0-9][a-z0-9.-]*$ and have at "
		"most 128 characters.");
	return false;
}

/* ---- what the calls share: the tenant and one name ---- */

struct asked {
	struct span name;
	bool paused;
};

static void
run(struct hsrv_req *r, const struct pgstmt *stmt,
	void (*fill)(struct hsrv_req *, void *, struct pgargs *),
	void (*done)(struct hsrv_req *, void *, const PGresult *), bool paused)
{
	struct asked *q = arena_zalloc(hsrv_arena(r), sizeof(*q));
	struct call c = { .stmt = stmt, .lane = LANE_REST };

	if (!queue_of_path(r, &q->name))
		return;
	q->paused = paused;
	c.fill = fill;
	c.done = done;
	c.arg = q;
	call_run(r, &c);
}

static void
fill_name(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct asked *q = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->name);
}

/* ---- drop ---- */

static const struct pgstmt drop_stmt = { .name = "ojs_queue_drop",
	.sql = "select queue_id from queen.ojs_queue_drop_v1($1, $2)" };

static void
dropped(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct asked *q = arg;
	struct jwrite w;

	if (PQntuples(res) == 0) {
		reply_missing(r, "queue", q->name);
		return;
	}
	waits_tell_queue(ctx_of(r)->waits, pgbin_i64(res, 0, 0));
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "deleted", true);
	jwrite_kv_str(&w, "queue", q->name);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
queue_drop(struct hsrv_req *r)
{
	run(r, &drop_stmt, fill_name, dropped, false);
}

/* ---- pause and resume ---- */

static const struct pgstmt pause_stmt = { .name = "ojs_queue_pause",
	.sql = "select queue_id, paused_at from queen.ojs_queue_pause_v1("
	       "$1, $2, $3)" };

static void
fill_pause(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct asked *q = arg;

	fill_name(r, arg, a);
	pgargs_bool(a, q->paused);
}

static void
paused(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct asked *q = arg;
	struct jwrite w;

	waits_tell_queue(ctx_of(r)->waits, pgbin_i64(res, 0, 0));
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "queue");
	jwrite_object(&w);
	jwrite_kv_str(&w, "name", q->name);
	jwrite_kv_bool(&w, "paused", q->paused);
	if (!pgbin_null(res, 0, 1)) {
		jwrite_key(&w, "paused_at");
		jwrite_iso_ms(&w, pgbin_time(res, 0, 1));
	}
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
queue_pause(struct hsrv_req *r)
{
	run(r, &pause_stmt, fill_pause, paused, true);
}

void
queue_resume(struct hsrv_req *r)
{
	run(r, &pause_stmt, fill_pause, paused, false);
}

/* ---- stats ---- */

static const struct pgstmt stats_stmt = { .name = "ojs_queue_stats",
	.sql = "select paused, computed_at, scheduled, available, pending, "
	       "active, retryable, completed, cancelled, discarded, "
	       "dead_letter, depth, completed_last_hour, failed_last_hour, "
	       "avg_duration_ms, avg_wait_ms, stream_events, "
	       "stream_consumers, stream_dead_letters "
	       "from queen.ojs_queue_stats_v1($1, $2)" };

enum { STATS_PAUSED, STATS_AT, STATS_FIRST, STATS_DEPTH = 11 };

/* Counts of columns, until the list ends. */
static void
counts(struct jwrite *w, const PGresult *res, int from, int to)
{
	for (int i = from; i < to; i++)
		jwrite_kv_i64(w, PQfname(res, i), pgbin_i64(res, 0, i));
}

static void
counted(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct asked *q = arg;
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "queue");
	jwrite_object(&w);
	jwrite_kv_str(&w, "name", q->name);
	jwrite_kv_bool(&w, "paused", pgbin_bool(res, 0, STATS_PAUSED));
	counts(&w, res, STATS_FIRST, STATS_DEPTH);
	jwrite_end(&w);
	jwrite_key(&w, "stats");
	jwrite_object(&w);
	jwrite_kv_str(&w, "queue", q->name);
	counts(&w, res, STATS_DEPTH, PQnfields(res));
	jwrite_end(&w);
	jwrite_key(&w, "computed_at");
	jwrite_iso_ms(&w, pgbin_time(res, 0, STATS_AT));
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
queue_stats(struct hsrv_req *r)
{
	run(r, &stats_stmt, fill_name, counted, false);
}
