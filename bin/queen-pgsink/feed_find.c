/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which queue and which group the names mean now, and what is pending for
 * them.  The ring belongs to a group id: when another queue or group has come
 * to bear the name, a new ring begins with a walk over all that is pending.
 */
#include <string.h>

#include "conndoc.h"
#include "connchild.h"
#include "err.h"
#include "feed_int.h"
#include "hot.h"
#include "pgbin.h"
#include "pgconn.h"

enum {
	FIND_EVERY_MS = 5000,
	FIND_MISSING_MS = 2000,
	FIND_AGAIN_MS = 1000,
	WALK_PAGE = 10000,
};

/* The group registers at its first contact with the queue. */
static const struct pgstmt STMT_FIND = { "feed_find",
	"select queen.cell_key_v1(), queen.clock_v1(), q.id, g.id"
	" from (values ($1::uuid)) t(tenant)"
	" left join lateral queen.queue_resolve_v1(t.tenant, array[$2::text],"
	" false) q on true"
	" left join lateral queen.group_register_v1(t.tenant, array[q.id],"
	" array[$3::text], array[$4::text], array[$5::timestamptz],"
	" array[false]) g on true" };
static const struct pgstmt STMT_PENDING = { "feed_pending",
	"select part, next from queen.group_pending_v1($1, $2, $3, $4)" };

static void
find_later(struct feed *f, int64_t ms)
{
	if (f->finding)
		f->find_again = true;
	else
		loop_timer_start(&f->find_timer, ms);
}

static void
cell_failed(struct feed *f, const struct err *e)
{
	struct connfault why;

	connfault_cell(&why, e);
	feed_fault(f, FEED_FIND, &why);
}

/* ---- the walk ---- */

static void walk_page(struct feed *f);

static void
walk_start(struct feed *f)
{
	if (f->walking || !f->group_id)
		return;
	f->walking = true;
	f->walk_again = false;
	f->walk_group = f->group_id;
	f->walk_after = 0;
	walk_page(f);
}

static void
on_page(void *arg, const PGresult *res, const struct err *e)
{
	struct feed *f = arg;
	int64_t now = loop_now_ms(f->x->loop);
	int n = e ? 0 : PQntuples(res);

	if (f->walk_group != f->group_id || e) {
		f->walking = false;
		f->walk_again = true;
		if (e)
			cell_failed(f, e);
		find_later(f, e ? FIND_AGAIN_MS : 0);
		return;
	}
	for (int i = 0; i < n; i++)
		if (!pgbin_null(res, i, 0))
			hot_mark(f->hot, pgbin_i64(res, i, 0), now);
	feed_pop_arm(f);
	if (n > 0 && !pgbin_null(res, n - 1, 1)) {
		f->walk_after = pgbin_i64(res, n - 1, 1);
		walk_page(f);
		return;
	}
	f->walking = false;
	if (f->walk_again)
		find_later(f, 0);
}

static void
walk_page(struct feed *f)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &f->x->task->tenant);
	pgargs_i64(&a, f->walk_group);
	pgargs_i64(&a, f->walk_after);
	pgargs_i32(&a, WALK_PAGE);
	feed_call_sql(f->x->side, &STMT_PENDING, &a, on_page, f);
}

/* ---- names to ids ---- */

static void
new_life(struct feed *f, int64_t queue_id, int64_t group_id)
{
	bool other = queue_id != f->queue_id;

	f->queue_id = queue_id;
	f->group_id = group_id;
	hot_free(f->hot);
	f->hot = hot_new();
	feed_fault(f, FEED_POP, NULL);
	f->walk_again = group_id != 0;
	/* before the walk: what comes meanwhile is marked or in it */
	if (other && queue_id)
		f->face.watch(f->face.arg, queue_id);
}

static void
queue_is_missing(struct feed *f, int64_t now_us)
{
	struct connfault why;

	if (!f->missing_us)
		f->missing_us = now_us;
	if (f->queue_id)
		new_life(f, 0, 0);
	connfault_set(&why, "queen", true,
		"queue \"%.*s\" does not exist yet: push to it or create it, "
		"the sink waits for it",
		SPAN_ARG(f->doc->queue));
	feed_fault(f, FEED_FIND, &why);
}

static void
found(struct feed *f, const PGresult *res)
{
	struct span key = pgbin_bytes(res, 0, 0);

	BUG(key.n != sizeof(f->hash_key));
	memcpy(f->hash_key, key.p, key.n);
	/* without a group: deleted in this moment */
	if (pgbin_null(res, 0, 2) || pgbin_null(res, 0, 3)) {
		queue_is_missing(f, pgbin_time(res, 0, 1));
		return;
	}
	int64_t queue_id = pgbin_i64(res, 0, 2),
		group_id = pgbin_i64(res, 0, 3);

	f->missing_us = 0;
	feed_fault(f, FEED_FIND, NULL);
	if (queue_id != f->queue_id || group_id != f->group_id)
		new_life(f, queue_id, group_id);
	if (f->walk_again)
		walk_start(f);
}

static void
on_found(void *arg, const PGresult *res, const struct err *e)
{
	struct feed *f = arg;

	f->finding = false;
	if (e) {
		cell_failed(f, e);
	} else {
		f->dial_looks[FEED_FIND] = 0;
		found(f, res);
	}
	bool soon = f->find_again;

	f->find_again = false;
	if (soon)
		find_later(f, 0);
	else if (e)
		find_later(f, FIND_AGAIN_MS);
	else
		find_later(f, f->group_id ? FIND_EVERY_MS : FIND_MISSING_MS);
	feed_pop_arm(f);
}

void
feed_find(struct feed *f)
{
	struct pgargs a;

	if (f->finding) {
		f->find_again = true;
		return;
	}
	if (feed_is_dialling(f, FEED_FIND)) {
		loop_timer_start(&f->find_timer, FEED_DIAL_LOOK_MS);
		return;
	}
	loop_timer_stop(&f->find_timer);
	f->finding = true;
	pgargs_init(&a);
	pgargs_uuid(&a, &f->x->task->tenant);
	pgargs_text(&a, f->doc->queue);
	pgargs_text(&a, f->group);
	/*
	 * A queue that came while it was waited for is new from its first
	 * message on, also those that were there when it was seen.
	 */
	if (f->doc->start == CONNDOC_ALL)
		pgargs_text(&a, SPAN_LIT("all"));
	else if (f->missing_us)
		pgargs_text(&a, SPAN_LIT("timestamp"));
	else
		pgargs_text(&a, SPAN_LIT("new"));
	if (f->missing_us)
		pgargs_time(&a, f->missing_us);
	else
		pgargs_null(&a);
	feed_call_sql(f->x->side, &STMT_FIND, &a, on_found, f);
}

/* ---- marks ---- */

void
feed_mark(struct feed *f, const int64_t *parts, size_t n)
{
	int64_t now = loop_now_ms(f->x->loop);

	if (n == 0) {
		hot_release_all(f->hot);
		f->walk_again = true;
		find_later(f, 0);
	}
	/* of no queue yet: the walk brings them */
	for (size_t i = 0; i < n && f->group_id; i++)
		hot_mark(f->hot, parts[i], now);
	feed_pop_arm(f);
}
