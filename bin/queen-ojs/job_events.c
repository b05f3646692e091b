/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened to jobs, read off their rows: oldest first, from behind the
 * cursor of an answer before.
 */
#include <inttypes.h>
#include <sodium.h>
#include <string.h>

#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "job_int.h"
#include "jwrite.h"
#include "page.h"

enum { LIMIT_DEFAULT = 100, LIMIT_MAX = 1000, CURSOR_MAX_BYTES = 256 };
enum {
	EVENT_AT,
	EVENT_KEY,
	EVENT_NAME,
	EVENT_ID,
	EVENT_TYPE,
	EVENT_QUEUE,
	EVENT_ATTEMPT,
	EVENT_DURATION,
	EVENT_DETAIL
};

static const struct pgstmt events_stmt = { .name = "jobs_events",
	.sql = "select at, key, event, id, type, queue, attempt, duration_ms, "
	       "detail from queen.jobs_events_v1($1, $2, $3, $4, $5, $6, $7)" };

/* The names of a query parameter; n = 0 = all. */
struct names {
	struct span *v;
	size_t n, cap;
};

struct events {
	struct span after; /* as sent */
	int64_t after_us;
	struct span after_key;
	struct names types, queues, job_types;
	int64_t limit;
};

/* ---- reading ---- */

static int
read_names(struct hsrv_req *r, const char *key, struct names *out,
	struct problem *p)
{
	struct arena *a = hsrv_arena(r);
	struct span s;

	if (!hsrv_query(r, key, &s))
		return 0;
	if (memchr(s.p, '\0', s.n) || !jspan_utf8(s))
		return problem_field(p, a, key, "`%s` is no text.", key);
	while (s.n) {
		const char *comma = memchr(s.p, ',', s.n);
		size_t n = comma ? (size_t)(comma - s.p) : s.n;

		out->v = arena_grown(
			a, out->v, out->n, &out->cap, sizeof(*out->v));
		if (n)
			out->v[out->n++] = span_make(s.p, n);
		n += comma != NULL;
		s = span_make(s.p + n, s.n - n);
	}
	return 0;
}

static bool
decode_cursor(struct events *e, struct arena *a)
{
	unsigned char *bin = arena_alloc(a, CURSOR_MAX_BYTES);
	const char *dot;
	size_t n;

	if (sodium_base642bin(bin, CURSOR_MAX_BYTES, e->after.p, e->after.n,
		    NULL, &n, NULL,
		    sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0)
		return false;
	dot = memchr(bin, '.', n);
	if (!dot)
		return false;
	e->after_key = span_make(dot + 1, n - (size_t)(dot + 1 - (char *)bin));
	return span_i64(span_make(bin, (size_t)(dot - (char *)bin)),
		       &e->after_us) &&
	       page_time_ok(e->after_us) &&
	       !memchr(e->after_key.p, '\0', e->after_key.n) &&
	       jspan_utf8(e->after_key);
}

static int
read_events(struct hsrv_req *r, struct events *e, struct problem *p)
{
	struct arena *a = hsrv_arena(r);
	struct span s;

	e->limit = LIMIT_DEFAULT;
	if (hsrv_query(r, "limit", &s) &&
		(!span_i64(s, &e->limit) || e->limit < 1))
		return problem_field(p, a, "limit",
			"`limit` must be an integer of at least 1.");
	if (e->limit > LIMIT_MAX)
		e->limit = LIMIT_MAX;
	if (hsrv_query(r, "after", &e->after) && e->after.n &&
		!decode_cursor(e, a))
		return problem_field(p, a, "after",
			"`after` is no cursor that an answer gave.");
	if (read_names(r, "types", &e->types, p) != 0 ||
		read_names(r, "queues", &e->queues, p) != 0)
		return -1;
	return read_names(r, "job_types", &e->job_types, p);
}

/* ---- the call ---- */

static void
fill_names(struct pgargs *a, const struct names *names)
{
	if (!names->n) {
		pgargs_null(a);
		return;
	}
	pgargs_array(a, PGARGS_TEXT);
	for (size_t i = 0; i < names->n; i++)
		pgargs_item_text(a, names->v[i]);
	pgargs_close(a);
}

/* One more than asked for tells whether there is more. */
static void
fill(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct events *e = arg;

	pgargs_uuid(a, ctx_tenant(r));
	if (e->after.n) {
		pgargs_time(a, e->after_us);
		pgargs_text(a, e->after_key);
	} else {
		pgargs_null(a);
		pgargs_null(a);
	}
	fill_names(a, &e->types);
	fill_names(a, &e->queues);
	fill_names(a, &e->job_types);
	pgargs_i32(a, (int32_t)e->limit + 1);
}

static void
write_data(struct jwrite *w, const PGresult *res, int row)
{
	jwrite_key(w, "data");
	jwrite_object(w);
	jwrite_kv_str(w, "job_type", pgbin_bytes(res, row, EVENT_TYPE));
	jwrite_kv_str(w, "queue", pgbin_bytes(res, row, EVENT_QUEUE));
	if (!span_is(pgbin_bytes(res, row, EVENT_NAME), "job.enqueued"))
		jwrite_kv_i64(w, "attempt", pgbin_i32(res, row, EVENT_ATTEMPT));
	if (!pgbin_null(res, row, EVENT_DURATION))
		jwrite_kv_i64(
			w, "duration_ms", pgbin_i64(res, row, EVENT_DURATION));
	if (!pgbin_null(res, row, EVENT_DETAIL))
		jwrite_kv_raw(w, "error", pgbin_bytes(res, row, EVENT_DETAIL));
	jwrite_end(w);
}

/* The same whenever it is read; a key is used again by a later attempt. */
static void
write_event_id(struct jwrite *w, struct arena *a, const PGresult *res, int row)
{
	struct span key = pgbin_bytes(res, row, EVENT_KEY);

	jwrite_key(w, "id");
	jwrite_str(w, arena_printf(a, "evt_%.*s-%" PRIx64, SPAN_ARG(key),
			      (uint64_t)pgbin_time(res, row, EVENT_AT)));
}

static void
write_event(struct jwrite *w, struct arena *a, const PGresult *res, int row)
{
	struct qid id = pgbin_uuid(res, row, EVENT_ID);
	struct span name = pgbin_bytes(res, row, EVENT_NAME);
	char text[QID_TEXT_MAX];

	qid_text(&id, text);
	jwrite_object(w);
	jwrite_kv_cstr(w, "specversion", "1.0");
	write_event_id(w, a, res, row);
	jwrite_kv_str(w, "type", name);
	jwrite_kv_cstr(w, "source", "ojs://queen-ojs/api");
	job_write_at(w, "time", res, row, EVENT_AT);
	jwrite_kv_cstr(w, "subject", text);
	write_data(w, res, row);
	jwrite_end(w);
}

/* Behind this row; where it stood when there is none. */
static void
write_cursor(struct jwrite *w, struct arena *a, const struct events *e,
	const PGresult *res, int row)
{
	char text[CURSOR_MAX_BYTES * 4 / 3 + 4];
	struct span key;

	if (row < 0) {
		jwrite_kv_str(w, "cursor", e->after);
		return;
	}
	key = arena_printf(a, "%" PRId64 ".%.*s",
		pgbin_time(res, row, EVENT_AT),
		SPAN_ARG(pgbin_bytes(res, row, EVENT_KEY)));
	sodium_bin2base64(text, sizeof(text), (const unsigned char *)key.p,
		key.n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	jwrite_kv_cstr(w, "cursor", text);
}

/* The last row may be a place without an event: the look ended there. */
static void
done(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct events *e = arg;
	struct arena *a = hsrv_arena(r);
	int rows = PQntuples(res);
	bool cut = rows && pgbin_null(res, rows - 1, EVENT_NAME);
	int n = cut ? rows - 1 : rows;
	bool more = cut || n > e->limit;
	struct jwrite w;

	if (n > e->limit) {
		n = (int)e->limit;
		cut = false;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "events");
	jwrite_array(&w);
	for (int i = 0; i < n; i++)
		write_event(&w, a, res, i);
	jwrite_end(&w);
	write_cursor(&w, a, e, res, cut ? n : n - 1);
	jwrite_kv_bool(&w, "has_more", more);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
job_events(struct hsrv_req *r)
{
	struct events *e = arena_zalloc(hsrv_arena(r), sizeof(*e));
	struct call c = { .stmt = &events_stmt, .lane = LANE_REST };
	struct problem p;

	if (read_events(r, e, &p) != 0) {
		reply_problem(r, &p);
		return;
	}
	c.fill = fill;
	c.done = done;
	c.arg = e;
	call_run(r, &c);
}
