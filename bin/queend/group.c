/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes over consumer groups.  What moves a cursor or ends a lease tells
 * the pops after the commit.
 */
#include "group.h"

#include "admin.h"
#include "announce.h"
#include "arena.h"
#include "catalog.h"
#include "clk.h"
#include "connector.h"
#include "ctx.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "pgbin.h"
#include "stats.h"

static const struct pgstmt STMT_LIST = { "group_list",
	"select status, body from queen.group_list_v1($1)" };
static const struct pgstmt STMT_LAGGING = { "group_lagging",
	"select status, body from queen.group_lagging_v1($1, $2)" };
static const struct pgstmt STMT_GET = { "group_get",
	"select status, body from queen.group_get_v1($1, $2)" };
static const struct pgstmt STMT_SUBSCRIPTION = { "group_subscription",
	"select status, body from queen.group_subscription_v1($1, $2, $3)" };
const struct pgstmt group_seek_stmt = { "group_seek",
	"select verdict, queue_id, group_id, old_group_id, partitions"
	" from queen.group_seek_v1($1, $2, $3, $4, $5)" };
static const struct pgstmt STMT_SEEK_PARTITION = { "group_seek_partition",
	"select verdict, queue_id, group_id, part"
	" from queen.partition_seek_v1($1, $2, $3, $4, $5, $6, $7)" };
static const struct pgstmt STMT_DELETE = { "group_delete",
	"select queue_id, group_id, partitions"
	" from queen.group_delete_v1($1, $2, $3, $4)" };

enum { LAGGING_DEFAULT_S = 3600 };

void
group_list(struct hsrv_req *r)
{
	struct pgargs a;

	admin_args(r, &a);
	stats_pass(r, STATS_LIVE, &STMT_LIST, &a, "consumer groups");
}

void
group_lagging(struct hsrv_req *r)
{
	struct pgargs a;
	int32_t min_s;

	if (!admin_query_int(
		    r, "minLagSeconds", LAGGING_DEFAULT_S, INT32_MAX, &min_s))
		return;
	admin_args(r, &a);
	pgargs_i32(&a, min_s);
	stats_pass(r, STATS_LIVE, &STMT_LAGGING, &a, "lagging");
}

void
group_get(struct hsrv_req *r)
{
	struct pgargs a;

	if (!admin_name(r, "consumerGroup", hsrv_param(r, 0)))
		return;
	admin_args(r, &a);
	pgargs_text(&a, hsrv_param(r, 0));
	stats_pass(r, STATS_LIVE, &STMT_GET, &a, "consumer group");
}

static void
on_subscribed(struct hsrv_req *r, const PGresult *res)
{
	stats_forget(ctx_of(r));
	admin_reply(r, res);
}

void
group_subscription(struct hsrv_req *r)
{
	struct span key, text = SPAN_ZERO;
	struct jspan_val v;
	struct jspan j;
	struct pgargs a;
	int64_t at_us;

	if (!admin_name(r, "consumerGroup", hsrv_param(r, 0)))
		return;
	jspan_open(&j, hsrv_body(r));
	if (jspan_enter_object(&j))
		while (jspan_next_key(&j, hsrv_arena(r), &key)) {
			if (!jspan_take(&j, &v))
				break;
			if (span_is(key, "subscriptionTimestamp") &&
				!admin_text(
					r, "subscriptionTimestamp", &v, &text))
				return;
		}
	if (j.error || !jspan_end(&j)) {
		admin_bad_json(r, &j);
		return;
	}
	if (text.n == 0) {
		hsrv_reply_error(r, 400, "subscriptionTimestamp is required");
		return;
	}
	if (!clk_parse_iso(text, &at_us)) {
		hsrv_reply_error(r, 400,
			"subscriptionTimestamp must be an ISO 8601 time, "
			"got '%.*s'",
			SPAN_ARG(span_clip(text, 64)));
		return;
	}
	admin_args(r, &a);
	pgargs_text(&a, hsrv_param(r, 0));
	pgargs_time(&a, at_us);
	admin_call(r, &STMT_SUBSCRIPTION, &a, "subscription", on_subscribed);
}

/* ---- seek ---- */

enum seek_to { TO_NONE, TO_END, TO_TIMESTAMP, TO_OFFSET };

struct seek {
	enum seek_to to;
	int64_t at_us, offset;
};

static const char *const seek_words[] = { NULL, "end", "timestamp", "offset" };

struct seek_body {
	bool end;
	struct span timestamp;
	bool has_offset;
	int64_t offset;
};

/* One member of the body; false after having replied. */
static bool
seek_member(struct hsrv_req *r, struct span key, const struct jspan_val *v,
	struct seek_body *b)
{
	if (span_is(key, "toEnd")) {
		b->end = v->type == JSPAN_BOOL && v->truth;
		if (v->type == JSPAN_BOOL || v->type == JSPAN_NULL)
			return true;
		hsrv_reply_error(r, 400, "bad body: toEnd must be a boolean");
		return false;
	}
	if (span_is(key, "timestamp"))
		return admin_text(r, "timestamp", v, &b->timestamp);
	if (span_is(key, "offset")) {
		b->has_offset = v->type != JSPAN_NULL;
		if (!b->has_offset ||
			(jspan_i64(v, &b->offset) && b->offset >= 0))
			return true;
		hsrv_reply_error(r, 400,
			"bad body: offset must be an integer from 0 up");
		return false;
	}
	return true;
}

static bool
seek_parse(struct hsrv_req *r, bool pinned, struct seek *s)
{
	struct seek_body b = { .end = false };
	struct jspan_val v;
	struct jspan j;
	struct span key;

	*s = (struct seek){ .to = TO_END };
	if (pinned && hsrv_body(r).n == 0)
		return true;
	jspan_open(&j, hsrv_body(r));
	if (jspan_enter_object(&j))
		while (jspan_next_key(&j, hsrv_arena(r), &key)) {
			if (!jspan_take(&j, &v))
				break;
			if (!seek_member(r, key, &v, &b))
				return false;
		}
	if (j.error || !jspan_end(&j)) {
		admin_bad_json(r, &j);
		return false;
	}
	if (b.end)
		return true;
	if (b.timestamp.n) {
		s->to = TO_TIMESTAMP;
		if (clk_parse_iso(b.timestamp, &s->at_us))
			return true;
		hsrv_reply_error(r, 400,
			"timestamp must be an ISO 8601 time, got '%.*s'",
			SPAN_ARG(span_clip(b.timestamp, 64)));
		return false;
	}
	if (pinned && b.has_offset) {
		s->to = TO_OFFSET;
		s->offset = b.offset;
		return true;
	}
	hsrv_reply_error(r, 400, "Must specify toEnd=true or a timestamp");
	return false;
}

static void
seek_args(
	struct hsrv_req *r, const struct seek *s, bool pinned, struct pgargs *a)
{
	admin_args(r, a);
	for (int i = 0; i < (pinned ? 3 : 2); i++)
		pgargs_text(a, hsrv_param(r, i));
	pgargs_text(a, span_of(seek_words[s->to]));
	if (s->to == TO_TIMESTAMP)
		pgargs_time(a, s->at_us);
	else
		pgargs_null(a);
	if (pinned && s->to == TO_OFFSET)
		pgargs_i64(a, s->offset);
	else if (pinned)
		pgargs_null(a);
}

static void
write_target(struct jwrite *w, const struct seek *s)
{
	jwrite_kv_bool(w, "seekToEnd", s->to == TO_END);
	jwrite_key(w, "targetTimestamp");
	if (s->to == TO_TIMESTAMP)
		jwrite_iso_ms(w, s->at_us);
	else
		jwrite_null(w);
	if (s->to == TO_OFFSET)
		jwrite_kv_i64(w, "targetOffset", s->offset);
}

static bool
names_ok(struct hsrv_req *r, bool pinned)
{
	return admin_name(r, "consumerGroup", hsrv_param(r, 0)) &&
	       admin_name(r, "queue", hsrv_param(r, 1)) &&
	       (!pinned || admin_name(r, "partition", hsrv_param(r, 2)));
}

void
group_sought(struct ctx *x, const PGresult *res)
{
	int64_t queue_id = pgbin_i64(res, 0, 1);
	int64_t group_id = pgbin_i64(res, 0, 2);

	/* those parked under the old id meet `gone` and look again */
	if (!pgbin_null(res, 0, 3) && pgbin_i64(res, 0, 3) != group_id) {
		int64_t old_id = pgbin_i64(res, 0, 3);

		catalog_forget_group(x->catalog, old_id);
		announce_released(x, queue_id, old_id, 0);
	}
	announce_moved(x, queue_id, group_id, 0);
	stats_forget(x);
}

static void
on_seek(struct hsrv_req *r, const PGresult *res)
{
	bool found = PQntuples(res) > 0 && pgbin_i32(res, 0, 0) == 0;
	struct jwrite w;

	if (found)
		group_sought(ctx_of(r), res);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "success", found);
	if (!found)
		jwrite_kv_cstr(
			&w, "error", "Queue not found or has no partitions");
	jwrite_kv_str(&w, "consumerGroup", hsrv_param(r, 0));
	jwrite_kv_str(&w, "queueName", hsrv_param(r, 1));
	if (found)
		write_target(&w, hsrv_user(r));
	jwrite_kv_i64(
		&w, "partitionsUpdated", found ? pgbin_i64(res, 0, 4) : 0);
	jwrite_end(&w);
	hsrv_reply(r, found ? 200 : 404);
}

static void
go_seek(struct hsrv_req *r)
{
	struct pgargs a;

	seek_args(r, hsrv_user(r), false, &a);
	admin_call(r, &group_seek_stmt, &a, "seek", on_seek);
}

void
group_seek(struct hsrv_req *r)
{
	struct seek *s = arena_alloc(hsrv_arena(r), sizeof(*s));

	if (!names_ok(r, false) || !seek_parse(r, false, s))
		return;
	hsrv_set_user(r, s);
	connector_guard(r, hsrv_param(r, 0), hsrv_param(r, 1), go_seek);
}

static void
on_seek_partition(struct hsrv_req *r, const PGresult *res)
{
	bool found = PQntuples(res) > 0 && pgbin_i32(res, 0, 0) == 0;
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "success", found);
	if (found) {
		announce_moved(ctx_of(r), pgbin_i64(res, 0, 1),
			pgbin_i64(res, 0, 2), pgbin_i64(res, 0, 3));
		stats_forget(ctx_of(r));
		jwrite_kv_str(&w, "consumerGroup", hsrv_param(r, 0));
		jwrite_kv_str(&w, "queueName", hsrv_param(r, 1));
		jwrite_kv_str(&w, "partitionName", hsrv_param(r, 2));
		write_target(&w, hsrv_user(r));
		jwrite_kv_bool(&w, "updated", true);
	} else {
		jwrite_kv_cstr(&w, "error", "Partition not found");
	}
	jwrite_end(&w);
	hsrv_reply(r, found ? 200 : 404);
}

static void
go_seek_partition(struct hsrv_req *r)
{
	struct pgargs a;

	seek_args(r, hsrv_user(r), true, &a);
	admin_call(r, &STMT_SEEK_PARTITION, &a, "seek", on_seek_partition);
}

void
group_seek_partition(struct hsrv_req *r)
{
	struct seek *s = arena_alloc(hsrv_arena(r), sizeof(*s));

	if (!names_ok(r, true) || !seek_parse(r, true, s))
		return;
	hsrv_set_user(r, s);
	connector_guard(
		r, hsrv_param(r, 0), hsrv_param(r, 1), go_seek_partition);
}

/* ---- delete ---- */

struct deletion {
	struct span queue; /* empty = all */
	bool metadata;
};

static void
on_deleted(struct hsrv_req *r, const PGresult *res)
{
	const struct deletion *d = hsrv_user(r);
	struct ctx *x = ctx_of(r);
	int64_t partitions = 0;
	struct jwrite w;

	for (int i = 0; i < PQntuples(res); i++) {
		partitions += pgbin_i64(res, i, 2);
		if (pgbin_null(res, i, 0) || pgbin_null(res, i, 1))
			continue;
		catalog_forget_group(x->catalog, pgbin_i64(res, i, 1));
		announce_released(
			x, pgbin_i64(res, i, 0), pgbin_i64(res, i, 1), 0);
	}
	stats_forget(x);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "success", true);
	jwrite_kv_str(&w, "consumerGroup", hsrv_param(r, 0));
	if (d->queue.n)
		jwrite_kv_str(&w, "queueName", d->queue);
	jwrite_kv_i64(&w, "deletedPartitions", partitions);
	jwrite_kv_bool(&w, "metadataDeleted", d->metadata);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
go_remove(struct hsrv_req *r)
{
	const struct deletion *d = hsrv_user(r);
	struct pgargs a;

	admin_args(r, &a);
	pgargs_text(&a, hsrv_param(r, 0));
	admin_arg_name(&a, d->queue);
	pgargs_bool(&a, d->metadata);
	admin_call(r, &STMT_DELETE, &a, "delete consumer group", on_deleted);
}

static void
group_remove(struct hsrv_req *r, struct span queue)
{
	struct deletion *d = arena_alloc(hsrv_arena(r), sizeof(*d));

	if (!admin_query_bool(r, "deleteMetadata", true, &d->metadata))
		return;
	d->queue = queue;
	hsrv_set_user(r, d);
	connector_guard(r, hsrv_param(r, 0), queue, go_remove);
}

void
group_delete(struct hsrv_req *r)
{
	if (admin_name(r, "consumerGroup", hsrv_param(r, 0)))
		group_remove(r, (struct span)SPAN_ZERO);
}

void
group_delete_queue(struct hsrv_req *r)
{
	if (names_ok(r, false))
		group_remove(r, hsrv_param(r, 1));
}
