/* SPDX-License-Identifier: Apache-2.0 */
/* Dead letters of streams: listed, and purged by age. */
#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "page.h"
#include "queue.h"
#include "reply.h"
#include "stream.h"
#include "stream_body.h"
#include "stream_int.h"
#include "when.h"

static const int64_t purge_default_ms = 30LL * 86400 * 1000;

/* Beyond this a purge finds nothing anyway. */
static const int64_t age_max_s = 36525LL * 86400;

struct dead {
	struct span queue, consumer;
	struct page page;
	int64_t total;
	int64_t id; /* list: behind this one */
	bool behind;
	int64_t older_ms, purged;
};

static void
fill_queue(struct hsrv_req *r, const struct dead *q, struct pgargs *a)
{
	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->queue);
}

/* ---- list: how many, then a page ---- */

static const struct pgstmt count_stmt = { .name = "stream_dead_count",
	.sql = "select queen.stream_dead_count_v1($1, $2, $3)" };
static const struct pgstmt list_stmt = { .name = "stream_dead",
	.sql = "select id, consumer, message_id, seq, type, payload, headers, "
	       "retry_count, reason, created_at, failed_at, more "
	       "from queen.stream_dead_v1($1, $2, $3, $4, $5, $6)" };
enum {
	DEAD_ID,
	DEAD_CONSUMER,
	DEAD_MESSAGE,
	DEAD_SEQ,
	DEAD_TYPE,
	DEAD_PAYLOAD,
	DEAD_HEADERS,
	DEAD_RETRIES,
	DEAD_REASON,
	DEAD_AT,
	DEAD_FAILED_AT,
	DEAD_MORE
};

static void
fill_count(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct dead *q = arg;

	fill_queue(r, q, a);
	if (q->consumer.n)
		pgargs_text(a, q->consumer);
	else
		pgargs_null(a);
}

static void
fill_list(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct dead *q = arg;

	fill_count(r, arg, a);
	pgargs_i32(a, q->page.limit);
	pgargs_i64(a, q->page.offset);
	if (q->behind)
		pgargs_i64(a, q->id);
	else
		pgargs_null(a);
}

static void
write_dead(struct jwrite *w, const PGresult *res, int row)
{
	jwrite_object(w);
	jwrite_kv_i64(w, "id", pgbin_i64(res, row, DEAD_ID));
	jwrite_kv_str(w, "consumer", pgbin_bytes(res, row, DEAD_CONSUMER));
	jwrite_kv_str(w, "message_id", pgbin_bytes(res, row, DEAD_MESSAGE));
	jwrite_kv_i64(w, "seq", pgbin_i64(res, row, DEAD_SEQ));
	jwrite_kv_str(w, "type", pgbin_bytes(res, row, DEAD_TYPE));
	jwrite_kv_raw(w, "payload", pgbin_bytes(res, row, DEAD_PAYLOAD));
	if (!pgbin_null(res, row, DEAD_HEADERS))
		jwrite_kv_raw(
			w, "headers", pgbin_bytes(res, row, DEAD_HEADERS));
	jwrite_kv_i64(w, "retry_count", pgbin_i32(res, row, DEAD_RETRIES));
	jwrite_kv_str(w, "reason", pgbin_bytes(res, row, DEAD_REASON));
	jwrite_key(w, "created_at");
	jwrite_iso_ms(w, pgbin_time(res, row, DEAD_AT));
	jwrite_key(w, "failed_at");
	jwrite_iso_ms(w, pgbin_time(res, row, DEAD_FAILED_AT));
	jwrite_end(w);
}

static void
listed(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct dead *q = arg;
	int n = PQntuples(res);
	bool more = n > 0 && pgbin_bool(res, n - 1, DEAD_MORE);
	struct span key = SPAN_ZERO;
	struct jwrite w;

	if (more)
		key = arena_printf(hsrv_arena(r), "%lld",
			(long long)pgbin_i64(res, n - 1, DEAD_ID));
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "dead_letters");
	jwrite_array(&w);
	for (int i = 0; i < n; i++)
		write_dead(&w, res, i);
	jwrite_end(&w);
	page_write(&w, &q->page, q->total, more, key);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
counted(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct dead *q = arg;
	struct call c = { .stmt = &list_stmt,
		.lane = LANE_REST,
		.fill = fill_list,
		.done = listed,
		.arg = q };

	if (pgbin_null(res, 0, 0)) {
		reply_missing(r, "queue", q->queue);
		return;
	}
	q->total = pgbin_i64(res, 0, 0);
	call_run(r, &c);
}

/* False after 400. */
static bool
read_list(struct hsrv_req *r, struct dead *q)
{
	struct arena *a = hsrv_arena(r);
	struct problem p;

	if (page_parse(r, 0, 0, &q->page, &p) != 0) {
		reply_problem(r, &p);
		return false;
	}
	q->behind = q->page.cursor.n > 0;
	if (q->behind && !stream_body_number(q->page.cursor, &q->id)) {
		problem_field(&p, a, "cursor",
			"`cursor` is none that this list gave.");
		reply_problem(r, &p);
		return false;
	}
	if (hsrv_query(r, "consumer", &q->consumer) &&
		!stream_body_name_ok(q->consumer)) {
		problem_field(&p, a, "consumer",
			"`consumer` is no name of a consumer.");
		reply_problem(r, &p);
		return false;
	}
	return true;
}

void
stream_dead_list(struct hsrv_req *r)
{
	struct dead *q = arena_zalloc(hsrv_arena(r), sizeof(*q));
	struct call c = { .stmt = &count_stmt,
		.lane = LANE_REST,
		.fill = fill_count,
		.done = counted,
		.arg = q };

	if (queue_of_path(r, &q->queue) && read_list(r, q))
		call_run(r, &c);
}

/* ---- purge: each slice a transaction ---- */

enum { SLICE = 1000 };

static const struct pgstmt purge_stmt = { .name = "stream_dead_purge",
	.sql = "select verdict, purged, more "
	       "from queen.stream_dead_purge_v1($1, $2, $3, $4)" };
enum { PURGE_VERDICT, PURGE_N, PURGE_MORE };

static void run_purge(struct hsrv_req *r, struct dead *q);

static void
fill_purge(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct dead *q = arg;

	fill_queue(r, q, a);
	pgargs_i64(a, q->older_ms);
	pgargs_i32(a, SLICE);
}

static void
purged(struct hsrv_req *r, void *arg, const PGresult *res)
{
	struct dead *q = arg;
	int verdict = pgbin_i16(res, 0, PURGE_VERDICT);
	struct jwrite w;

	if (verdict != STREAM_OK) {
		stream_refuse(r, verdict,
			&(struct stream_names){ .queue = q->queue });
		return;
	}
	q->purged += pgbin_i64(res, 0, PURGE_N);
	if (pgbin_bool(res, 0, PURGE_MORE)) {
		run_purge(r, q);
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_i64(&w, "purged", q->purged);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
run_purge(struct hsrv_req *r, struct dead *q)
{
	struct call c = { .stmt = &purge_stmt,
		.lane = LANE_STREAM,
		.fill = fill_purge,
		.done = purged,
		.arg = q };

	call_run(r, &c);
}

/* A duration, or a number of seconds; false after 400. */
static bool
read_age(struct hsrv_req *r, int64_t *ms)
{
	struct problem p;
	struct span s;
	int64_t seconds;

	*ms = purge_default_ms;
	if (!hsrv_query(r, "older_than", &s) || when_duration(s, ms))
		return true;
	if (span_i64(s, &seconds) && seconds >= 0 && seconds <= age_max_s) {
		*ms = seconds * 1000;
		return true;
	}
	problem_field(&p, hsrv_arena(r), "older_than",
		"`older_than` must be a duration or a number of seconds.");
	reply_problem(r, &p);
	return false;
}

void
stream_dead_purge(struct hsrv_req *r)
{
	struct dead *q = arena_zalloc(hsrv_arena(r), sizeof(*q));

	if (queue_of_path(r, &q->queue) && read_age(r, &q->older_ms))
		run_purge(r, q);
}
