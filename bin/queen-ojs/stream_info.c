/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream is like; and whether there is such a queue at all. */
#include "arena.h"
#include "call.h"
#include "ctx.h"
#include "hsrv.h"
#include "queue.h"
#include "reply.h"
#include "stream.h"
#include "stream_int.h"

struct info {
	struct span queue;
	struct span empty; /* the answer when there is one; n = 0 = info */
};

static const struct pgstmt info_stmt = { .name = "stream_info",
	.sql = "select queen.stream_info_v1($1, $2)" };

static void
fill(struct hsrv_req *r, void *arg, struct pgargs *a)
{
	const struct info *q = arg;

	pgargs_uuid(a, ctx_tenant(r));
	pgargs_text(a, q->queue);
}

static void
done(struct hsrv_req *r, void *arg, const PGresult *res)
{
	const struct info *q = arg;

	if (pgbin_null(res, 0, 0)) {
		reply_missing(r, "queue", q->queue);
		return;
	}
	buf_put_span(
		hsrv_out(r), q->empty.n ? q->empty : pgbin_bytes(res, 0, 0));
	hsrv_reply(r, 200);
}

static void
run(struct hsrv_req *r, struct info *q)
{
	struct call c = { .stmt = &info_stmt,
		.lane = LANE_REST,
		.fill = fill,
		.done = done,
		.arg = q };

	call_run(r, &c);
}

void
stream_if_queue(struct hsrv_req *r, struct span queue, struct span empty)
{
	struct info *q = arena_zalloc(hsrv_arena(r), sizeof(*q));

	q->queue = queue;
	q->empty = empty;
	run(r, q);
}

void
stream_info(struct hsrv_req *r)
{
	struct info *q = arena_zalloc(hsrv_arena(r), sizeof(*q));

	if (queue_of_path(r, &q->queue))
		run(r, q);
}
