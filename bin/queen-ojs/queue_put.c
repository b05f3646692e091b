/* SPDX-License-Identifier: Apache-2.0 */
/* Queues are made and configured by one call. */
#include "queue.h"

#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "jwrite.h"
#include "queue_int.h"
#include "wait.h"

#define COLUMNS                                                                \
	"queue_id, created, created_at, paused, visibility_timeout_ms, "       \
	"job_retention_ms, dead_letter_retention_ms, dead_letter_max, "        \
	"max_jobs, max_events, max_retries, retention_ms "

enum { PUT_ID, PUT_CREATED, PUT_CREATED_AT, PUT_PAUSED, PUT_CONF };

static const struct pgstmt put_stmt = { .name = "ojs_queue_put",
	.sql = "select " COLUMNS
	       "from queen.ojs_queue_put_v1($1, $2, $3, $4)" };
static const struct pgstmt get_stmt = { .name = "ojs_queue_get",
	.sql = "select " COLUMNS "from queen.ojs_queue_get_v1($1, $2)" };

static void
fill_get(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct queue_conf *q = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->name);
}

static void
fill_put(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct queue_conf *q = arg;

	fill_get(r, arg, a);
	pgargs_array(a, PGARGS_TEXT);
	for (int k = 0; k < QUEUE_KEYS; k++)
		if (q->given[k])
			pgargs_item_text(a, span_of(queue_key_name(k)));
	pgargs_close(a);
	pgargs_array(a, PGARGS_I64);
	for (int k = 0; k < QUEUE_KEYS; k++)
		if (q->given[k] && q->null[k])
			pgargs_item_null(a);
		else if (q->given[k])
			pgargs_item_i64(a, q->value[k]);
	pgargs_close(a);
}

static void
run(struct hsrv_req *r, struct queue_conf *q, const struct pgstmt *stmt,
	void (*done)(struct hsrv_req *, void *, const PGresult *))
{
	struct call c = { .stmt = stmt, .lane = LANE_REST };

	c.fill = stmt == &get_stmt ? fill_get : fill_put;
	c.done = done;
	c.arg = q;
	call_run(r, &c);
}

/* Somebody may wait for a queue of this name. */
static void
tell(struct hsrv_req *r, const PGresult *res)
{
	if (pgbin_bool(res, 0, PUT_CREATED))
		waits_tell_queue(ctx_of(r)->waits, pgbin_i64(res, 0, PUT_ID));
}

/* ---- create ---- */

static void
created(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct queue_conf *q = arg;
	bool paused = pgbin_bool(res, 0, PUT_PAUSED);
	bool fresh = pgbin_bool(res, 0, PUT_CREATED);
	struct jwrite w;

	tell(r, res);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "queue");
	jwrite_object(&w);
	jwrite_kv_str(&w, "name", q->name);
	jwrite_kv_cstr(&w, "status", paused ? "paused" : "active");
	jwrite_kv_bool(&w, "paused", paused);
	jwrite_key(&w, "created_at");
	jwrite_iso_ms(&w, pgbin_time(res, 0, PUT_CREATED_AT));
	jwrite_end(&w);
	queue_conf_write(&w, res, 0, PUT_CONF);
	jwrite_end(&w);
	hsrv_reply(r, fresh ? 201 : 200);
}

void
queue_create(struct hsrv_req *r)
{
	struct queue_conf *q = arena_zalloc(hsrv_arena(r), sizeof(*q));
	struct problem p;
	struct span body;

	if (!reply_object(r, &body))
		return;
	if (queue_conf_parse(body, true, hsrv_arena(r), q, &p) != 0) {
		reply_problem(r, &p);
		return;
	}
	run(r, q, &put_stmt, created);
}

/* ---- configuration ---- */

static void
shown(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct queue_conf *q = arg;
	struct jwrite w;

	if (PQntuples(res) == 0) {
		reply_missing(r, "queue", q->name);
		return;
	}
	tell(r, res);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	queue_conf_write(&w, res, 0, PUT_CONF);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
queue_config_get(struct hsrv_req *r)
{
	struct queue_conf *q = arena_zalloc(hsrv_arena(r), sizeof(*q));

	if (queue_of_path(r, &q->name))
		run(r, q, &get_stmt, shown);
}

void
queue_config_set(struct hsrv_req *r)
{
	struct queue_conf *q = arena_zalloc(hsrv_arena(r), sizeof(*q));
	struct problem p;
	struct span body, name;

	if (!queue_of_path(r, &name) || !reply_object(r, &body))
		return;
	if (queue_conf_parse(body, false, hsrv_arena(r), q, &p) != 0) {
		reply_problem(r, &p);
		return;
	}
	q->name = name;
	run(r, q, &put_stmt, shown);
}
