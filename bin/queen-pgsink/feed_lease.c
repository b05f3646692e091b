/* SPDX-License-Identifier: Apache-2.0 */
/* Leases of batches: extended while they are worked on, or given back. */
#include <stdlib.h>

#include "conndoc.h"
#include "connchild.h"
#include "err.h"
#include "feed_int.h"
#include "hot.h"
#include "pgbin.h"
#include "pgconn.h"

static const struct pgstmt STMT_EXTEND = { "feed_extend",
	"select renewed from queen.lease_extend_v1($1, $2, $3, $4, $5)" };
static const struct pgstmt STMT_RETURN = { "feed_return",
	"select part, grp from queen.lease_return_v1($1, $2, $3, $4)" };

static void
put_lease(struct pgargs *a, const struct feed *f, const struct feed_batch *b)
{
	pgargs_uuid(a, &f->x->task->tenant);
	pgargs_i64(a, b->lease_at);
	pgargs_i64(a, b->lease_group);
	pgargs_i64(a, b->lease_no);
}

/* ---- giving back ---- */

struct giving {
	struct feed_flight flight; /* first */
	bool wake;
};

static void
giving_drop(struct feed_flight *fl)
{
	free(fl);
}

static void
on_returned(void *arg, const PGresult *res, const struct err *e)
{
	struct giving *g = arg;
	struct feed *f = g->flight.feed;

	/* without an answer the lease ends by its time */
	for (int i = 0; !e && g->wake && i < PQntuples(res); i++)
		if (pgbin_i64(res, i, 1) == f->group_id)
			hot_release(f->hot, pgbin_i64(res, i, 0));
	feed_flight_end(&g->flight);
	f->loose--;
	feed_settle_check(f);
	feed_pop_arm(f);
}

void
feed_return(struct feed *f, const struct feed_batch *b, bool wake)
{
	struct giving *g = calloc(1, sizeof(*g));
	struct pgargs a;

	if (!g)
		abort();
	g->wake = wake;
	feed_flight_begin(f, &g->flight, giving_drop);
	f->loose++;
	pgargs_init(&a);
	put_lease(&a, f, b);
	feed_call_sql(f->x->side, &STMT_RETURN, &a, on_returned, g);
}

/* ---- extending ---- */

struct extending {
	struct feed_flight flight; /* first */
	struct feed_batch *batch;
	int64_t sent_ms;
	void (*fn)(void *arg, bool ok);
	void *arg;
};

static void
extending_drop(struct feed_flight *fl)
{
	free(fl);
}

static void
on_extended(void *arg, const PGresult *res, const struct err *e)
{
	struct extending *t = arg;
	struct feed *f = t->flight.feed;
	void (*fn)(void *arg, bool ok) = t->fn;
	void *fn_arg = t->arg;
	bool ok = !e && pgbin_i32(res, 0, 0) > 0;
	/* the database counts from later than this */
	int64_t until = t->sent_ms + f->doc->lease_s * 1000;

	if (ok && until > t->batch->lease_until_ms)
		t->batch->lease_until_ms = until;
	feed_flight_end(&t->flight);
	fn(fn_arg, ok);
}

void
feed_extend(struct feed *f, struct feed_batch *b,
	void (*fn)(void *arg, bool ok), void *arg)
{
	struct extending *t = calloc(1, sizeof(*t));
	struct pgargs a;

	if (!t)
		abort();
	t->batch = b;
	t->sent_ms = loop_now_ms(f->x->loop);
	t->fn = fn;
	t->arg = arg;
	feed_flight_begin(f, &t->flight, extending_drop);
	pgargs_init(&a);
	put_lease(&a, f, b);
	pgargs_i32(&a, (int32_t)f->doc->lease_s);
	feed_call_sql(f->x->side, &STMT_EXTEND, &a, on_extended, t);
}
