/* SPDX-License-Identifier: Apache-2.0 */
/* Ticks that a log needs because it grew; nobody waits for them. */
#include "ctx.h"
#include "pgpool.h"
#include "stream.h"
#include "ticks.h"

static const struct pgstmt tick_stmt = { .name = "stream_tick",
	.sql = "select queen.stream_tick_v1($1, $2)" };

static void
on_tick(void *arg, const PGresult *res, const struct err *e)
{
	ticks_asked(arg, !e && PQntuples(res) && !pgbin_null(res, 0, 0));
}

/*
 * Never in the transaction of what was stored, and not in the lane of appends,
 * where those that wait would all be stored before it.
 */
void
stream_tick(void *arg, struct ticks_log *log, int64_t queue_id, bool heavy)
{
	struct ctx *x = arg;
	struct pgargs a;

	pgargs_init(&a);
	pgargs_i64(&a, queue_id);
	pgargs_bool(&a, heavy);
	pgpool_call(x->pool, LANE_REST, &tick_stmt, &a, on_tick, log);
}
