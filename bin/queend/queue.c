/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes over queues.  Options are sent on as they came, kind and text; what
 * each may be is decided in SQL, and nothing is written unless all are good.
 */
#include "queue.h"

#include <string.h>

#include "admin.h"
#include "announce.h"
#include "arena.h"
#include "catalog.h"
#include "ctx.h"
#include "hsrv.h"
#include "jspan.h"
#include "pgbin.h"
#include "stats.h"

static const struct pgstmt STMT_CONFIGURE = { "queue_configure",
	"select status, body, id from queen.queue_configure_v1"
	"($1, $2, $3, $4, $5, $6)" };
static const struct pgstmt STMT_LIST = { "queue_list",
	"select status, body from queen.queue_list_v1($1, $2)" };
static const struct pgstmt STMT_GET = { "queue_get",
	"select status, body from queen.queue_get_v1($1, $2)" };
static const struct pgstmt STMT_DEPTH = { "queue_depth",
	"select status, body from queen.depth_v1($1, $2, $3)" };
static const struct pgstmt STMT_DELETE = { "queue_delete",
	"select status, body, id from queen.queue_delete_v1($1, $2)" };
static const struct pgstmt STMT_OVERVIEW = { "queue_overview",
	"select status, body from queen.overview_v1($1)" };
static const struct pgstmt STMT_LABELS = { "queue_labels",
	"select status, body from queen.labels_v1($1, $2)" };

static const char *const option_names[] = { "namespace", "task", "leaseTime",
	"retryLimit", "deadLetterQueue", "dlqAfterMaxRetries",
	"delayedProcessing", "windowBuffer", "minPopWaitTime",
	"retentionEnabled", "retentionSeconds", "completedRetentionSeconds",
	"maxWaitTimeSeconds", "encryptionEnabled", "dedupWindowSeconds",
	"retentionSinkHold", "retentionSinkHoldMaxSeconds", "priority", "ttl",
	"maxSize", "retryDelay" };

enum {
	OPTIONS = sizeof(option_names) / sizeof(option_names[0]),
	LABELS = 2, /* namespace and task come first */
	/* longer text is bad in any case and need not travel */
	OPTION_TEXT_MAX = 2048
};

struct option {
	const char *kind; /* NULL = not sent */
	struct span value;
};

struct configure {
	struct hsrv_req *r;
	struct span queue;
	bool has_queue, has_options, replace;
	struct option top[OPTIONS], inner[OPTIONS];
};

static int
option_index(struct span key)
{
	for (int i = 0; i < OPTIONS; i++)
		if (span_is(key, option_names[i]))
			return i;
	return -1;
}

static void
reply_invalid(struct hsrv_req *r, const char *name, const char *what)
{
	buf_printf(hsrv_out(r), "{\"error\":\"%s %s\",\"invalid\":\"%s\"}",
		name, what, name);
	hsrv_reply(r, 400);
}

/* Reads the value of an option; false after having replied. */
static bool
take_option(struct hsrv_req *r, struct jspan *j, int i, struct option *out)
{
	struct jspan_val v;
	struct span s = SPAN_ZERO;

	if (!jspan_take(j, &v)) {
		admin_bad_json(r, j);
		return false;
	}
	switch (v.type) {
	case JSPAN_NULL:
		*out = (struct option){ .kind = "null" };
		return true;
	case JSPAN_BOOL:
		*out = (struct option){ "bool", v.raw };
		return true;
	case JSPAN_NUMBER:
		*out = (struct option){ "number", span_clip(v.raw, 64) };
		return true;
	case JSPAN_STRING:
		if (!jspan_text(&v, hsrv_arena(r), &s)) {
			reply_invalid(r, option_names[i],
				"holds half of a surrogate pair");
			return false;
		}
		if (s.n && memchr(s.p, 0, s.n)) {
			reply_invalid(
				r, option_names[i], "holds a NUL character");
			return false;
		}
		*out = (struct option){ "string",
			span_clip(s, OPTION_TEXT_MAX) };
		return true;
	default:
		*out = (struct option){ "other",
			v.type == JSPAN_ARRAY ? SPAN_LIT("an array")
					      : SPAN_LIT("an object") };
		return true;
	}
}

static bool
take_options(struct configure *c, struct jspan *j)
{
	struct jspan_val v;
	struct span key;
	enum jspan_type t = jspan_peek(j);

	if (t == JSPAN_NULL && jspan_take(j, &v)) {
		c->has_options = false;
		return true;
	}
	if (t != JSPAN_OBJECT) {
		if (t == JSPAN_NONE)
			admin_bad_json(c->r, j);
		else
			hsrv_reply_error(c->r, 400,
				"bad body: options must be an object");
		return false;
	}
	c->has_options = true;
	memset(c->inner, 0, sizeof(c->inner));
	if (!jspan_enter_object(j)) {
		admin_bad_json(c->r, j);
		return false;
	}
	while (jspan_next_key(j, hsrv_arena(c->r), &key)) {
		int i = option_index(key);

		if (i >= 0) {
			if (!take_option(c->r, j, i, &c->inner[i]))
				return false;
		} else if (!jspan_take(j, &v)) {
			break;
		}
	}
	if (j->error)
		admin_bad_json(c->r, j);
	return !j->error;
}

static bool
take_mode(struct configure *c, const struct jspan_val *v)
{
	struct span s;

	c->replace = false;
	if (v->type == JSPAN_NULL)
		return true;
	if (v->type == JSPAN_STRING && jspan_text(v, hsrv_arena(c->r), &s)) {
		c->replace = span_is(s, "replace");
		if (c->replace || span_is(s, "merge"))
			return true;
	}
	hsrv_reply_error(c->r, 400,
		"mode must be \"merge\" or \"replace\", got %.*s",
		SPAN_ARG(span_clip(v->raw, 64)));
	return false;
}

static bool
take_member(struct configure *c, struct jspan *j, struct span key)
{
	struct jspan_val v;
	int i = option_index(key);

	if (span_is(key, "options"))
		return take_options(c, j);
	if (i >= 0)
		return take_option(c->r, j, i, &c->top[i]);
	if (!jspan_take(j, &v)) {
		admin_bad_json(c->r, j);
		return false;
	}
	if (span_is(key, "mode"))
		return take_mode(c, &v);
	if (span_is(key, "queue")) {
		c->has_queue = v.type != JSPAN_NULL;
		return admin_text(c->r, "queue", &v, &c->queue);
	}
	return true;
}

static void
on_configured(struct hsrv_req *r, const PGresult *res)
{
	if (!pgbin_null(res, 0, 2)) {
		announce_catalog(ctx_of(r), pgbin_i64(res, 0, 2));
		stats_forget(ctx_of(r));
	}
	admin_reply(r, res);
}

static void
configure(const struct configure *c)
{
	const struct option *o = c->has_options ? c->inner : c->top;
	struct pgargs a;

	admin_args(c->r, &a);
	pgargs_text(&a, c->queue);
	pgargs_array(&a, PGARGS_TEXT);
	for (int i = 0; i < OPTIONS; i++)
		if (o[i].kind)
			pgargs_item_text(&a, span_of(option_names[i]));
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_TEXT);
	for (int i = 0; i < OPTIONS; i++)
		if (o[i].kind)
			pgargs_item_text(&a, span_of(o[i].kind));
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_TEXT);
	for (int i = 0; i < OPTIONS; i++)
		if (o[i].kind)
			pgargs_item_text(&a, o[i].value);
	pgargs_close(&a);
	pgargs_bool(&a, c->replace);
	admin_call(c->r, &STMT_CONFIGURE, &a, "configure", on_configured);
}

void
queue_configure(struct hsrv_req *r)
{
	struct configure *c = arena_zalloc(hsrv_arena(r), sizeof(*c));
	struct span key;
	struct jspan j;

	c->r = r;
	jspan_open(&j, hsrv_body(r));
	if (!jspan_enter_object(&j)) {
		admin_bad_json(r, &j);
		return;
	}
	while (jspan_next_key(&j, hsrv_arena(r), &key))
		if (!take_member(c, &j, key))
			return;
	if (!jspan_end(&j)) {
		admin_bad_json(r, &j);
		return;
	}
	if (!c->has_queue) {
		hsrv_reply_error(r, 400, "bad body: queue is required");
		return;
	}
	if (!admin_name(r, "bad body: queue", c->queue))
		return;
	/* labels beside `options` count when they say something */
	for (int i = 0; i < LABELS && c->has_options; i++)
		if (c->top[i].kind && c->top[i].value.n)
			c->inner[i] = c->top[i];
	configure(c);
}

void
queue_list(struct hsrv_req *r)
{
	struct span s;
	struct pgargs a;

	admin_args(r, &a);
	pgargs_bool(&a, !hsrv_query(r, "stats", &s) || !span_is(s, "cached"));
	stats_pass(r, STATS_LIVE, &STMT_LIST, &a, "queues");
}

/* A call with the queue of the path. */
static bool
queue_args(struct hsrv_req *r, struct pgargs *a)
{
	struct span queue = hsrv_param(r, 0);

	if (!admin_name(r, "queue", queue))
		return false;
	admin_args(r, a);
	pgargs_text(a, queue);
	return true;
}

void
queue_get(struct hsrv_req *r)
{
	struct pgargs a;

	if (queue_args(r, &a))
		stats_pass(r, STATS_LIVE, &STMT_GET, &a, "queue");
}

void
queue_depth(struct hsrv_req *r)
{
	struct span group;
	struct pgargs a;

	if (!admin_query_name(r, "group", &group) || !queue_args(r, &a))
		return;
	admin_arg_name(&a, group);
	stats_pass(r, STATS_LIVE, &STMT_DEPTH, &a, "depth");
}

static void
on_deleted(struct hsrv_req *r, const PGresult *res)
{
	struct ctx *x = ctx_of(r);

	if (!pgbin_null(res, 0, 2)) {
		int64_t id = pgbin_i64(res, 0, 2);

		catalog_forget_queue(x->catalog, id);
		announce_catalog(x, id);
		stats_forget(x);
	}
	admin_reply(r, res);
}

void
queue_delete(struct hsrv_req *r)
{
	struct pgargs a;

	if (queue_args(r, &a))
		admin_call(r, &STMT_DELETE, &a, "delete", on_deleted);
}

void
queue_overview(struct hsrv_req *r)
{
	struct pgargs a;

	admin_args(r, &a);
	stats_pass(r, STATS_SUMMARY, &STMT_OVERVIEW, &a, "overview");
}

static void
labels(struct hsrv_req *r, const char *by, const char *op)
{
	struct pgargs a;

	admin_args(r, &a);
	pgargs_text(&a, span_of(by));
	stats_pass(r, STATS_LIVE, &STMT_LABELS, &a, op);
}

void
queue_namespaces(struct hsrv_req *r)
{
	labels(r, "namespace", "namespaces");
}

void
queue_tasks(struct hsrv_req *r)
{
	labels(r, "task", "tasks");
}
