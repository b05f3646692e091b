/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiters hang in one list per kind of work; a hint walks the list of its
 * kind.  A waiter of a queue that does not exist yet is woken by any change
 * of the catalogue.  Invariant: between wait_begin and wait_end a waiter is in
 * its list, parked or not, and what comes while it is not parked is noted.
 */
#include "wait.h"

#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "ctx.h"
#include "err.h"
#include "hint.h"
#include "hsrv.h"
#include "loop.h"
#include "map.h"
#include "pgpool.h"

TAILQ_HEAD(wait_list, wait);

enum { KINDS = 2, LOOK_MS = 1000 };

struct waits {
	struct ctx *x;
	struct wait_list lists[KINDS];
	struct wait_list due; /* woken, to try in this turn */
	struct loop_timer timer;
	int64_t look_ms, timer_ms; /* next look; when the timer fires */
	int parked;
	bool waking;
	struct look *look; /* in flight */
	struct map marks; /* of logs that are waited for */
};

/* What the last look at a log said to ask with next; 0 = none yet. */
struct mark {
	int64_t queue_id; /* key */
	int64_t xid;
};

static const struct pgstmt STMT_READY = { "jobs_ready",
	"select queue_id from queen.jobs_ready_v1($1)" };
static const struct pgstmt STMT_NEWS = { "stream_news",
	"select queue_id, xid from queen.stream_news_v1($1, $2)" };

/* ---- waking ---- */

static void
unpark(struct waits *ws, struct wait *w)
{
	if (!w->parked)
		return;
	w->parked = false;
	ws->parked--;
	hsrv_unpark(w->req);
}

static void
on_due(void *arg)
{
	struct waits *ws = arg;
	struct wait *w;

	ws->waking = false;
	while ((w = TAILQ_FIRST(&ws->due))) {
		TAILQ_REMOVE(&ws->due, w, link);
		TAILQ_INSERT_HEAD(&ws->lists[w->kind], w, link);
		w->again(w, ws->x->stopping || clk_mono_ms() >= w->deadline_ms);
	}
}

/* Tries at the end of the turn, so that a hint never runs a handler. */
static void
wake(struct waits *ws, struct wait *w)
{
	if (!w->parked) {
		w->missed = true;
		return;
	}
	unpark(ws, w);
	TAILQ_REMOVE(&ws->lists[w->kind], w, link);
	TAILQ_INSERT_TAIL(&ws->due, w, link);
	if (!ws->waking) {
		ws->waking = true;
		loop_later(ws->x->loop, on_due, ws);
	}
}

static bool
wants(const struct wait *w, int64_t queue_id)
{
	for (size_t i = 0; i < w->queues_n; i++)
		if (w->queue_ids[i] == queue_id)
			return true;
	return false;
}

/*
 * A job is for one of those who wait: the next in line, or, when all are away
 * in their calls, whoever finds nothing there.
 */
static void
wake_one(struct waits *ws, int64_t queue_id)
{
	struct wait *w, *first = NULL;

	TAILQ_FOREACH (w, &ws->lists[WAIT_JOBS], link)
		if (w->parked && wants(w, queue_id)) {
			first = w;
			break;
		}
	if (first) {
		wake(ws, first);
		return;
	}
	TAILQ_FOREACH (w, &ws->lists[WAIT_JOBS], link)
		if (wants(w, queue_id))
			w->missed = true;
}

/* queue_id 0 = any. */
static void
wake_all(struct waits *ws, int kind, int64_t queue_id)
{
	struct wait *w, *next;

	for (w = TAILQ_FIRST(&ws->lists[kind]); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (!queue_id || wants(w, queue_id))
			wake(ws, w);
	}
}

/* Events are for every consumer. */
static void
wake_for(struct waits *ws, enum wait_kind kind, int64_t queue_id)
{
	if (kind == WAIT_JOBS)
		wake_one(ws, queue_id);
	else
		wake_all(ws, kind, queue_id);
}

static void
wake_unnamed(struct waits *ws, int64_t queue_id)
{
	for (int k = 0; k < KINDS; k++) {
		struct wait *w, *next;

		for (w = TAILQ_FIRST(&ws->lists[k]); w; w = next) {
			next = TAILQ_NEXT(w, link);
			if (!queue_id || wants(w, 0) || wants(w, queue_id))
				wake(ws, w);
		}
	}
}

/* ---- hints ---- */

static void
on_hint(void *arg, const struct hint_item *i)
{
	struct waits *ws = arg;

	switch (i->kind) {
	case HINT_JOBS:
		wake_one(ws, i->queue_id);
		break;
	case HINT_EVENTS:
		wake_all(ws, WAIT_EVENTS, i->queue_id);
		break;
	case HINT_QUEUES:
		wake_unnamed(ws, i->queue_id);
		break;
	case HINT_RESYNC:
		wake_unnamed(ws, 0);
		break;
	default:
		break;
	}
}

static void
on_listening(void *arg)
{
	wake_unnamed(arg, 0);
}

void
waits_tell(struct waits *ws, enum wait_kind kind, int64_t queue_id)
{
	hint_send(ws->x->hint, kind == WAIT_JOBS ? HINT_JOBS : HINT_EVENTS,
		queue_id, 0, 0);
	wake_for(ws, kind, queue_id);
}

void
waits_tell_queue(struct waits *ws, int64_t queue_id)
{
	hint_send(ws->x->hint, HINT_QUEUES, queue_id, 0, 0);
	wake_unnamed(ws, queue_id);
}

/* ---- marks ---- */

static struct mark *
mark_of(struct waits *ws, int64_t queue_id)
{
	uint64_t hash = map_hash_i64(queue_id);
	struct mark *m = map_get(&ws->marks, hash, map_is_i64, &queue_id);

	if (!m) {
		m = calloc(1, sizeof(*m));
		BUG(!m);
		m->queue_id = queue_id;
		map_put(&ws->marks, hash, m);
	}
	return m;
}

/* Of logs nobody waits for, when that is most of them. */
static void
marks_clear(struct waits *ws)
{
	size_t at = 0;
	struct mark *m;

	while ((m = map_next(&ws->marks, &at)))
		free(m);
	map_fini(&ws->marks);
	ws->marks = (struct map)MAP_ZERO;
}

/* ---- the look, once a second ---- */

struct look {
	struct waits *ws; /* NULL: it is gone */
	int kind;
};

static void look_at(struct waits *ws, int kind);

static void
on_look(void *arg, const PGresult *res, const struct err *e)
{
	struct look *look = arg;
	struct waits *ws = look->ws;
	int kind = look->kind;

	free(look);
	if (!ws)
		return;
	ws->look = NULL;
	for (int i = 0; !e && i < PQntuples(res); i++) {
		int64_t id = pgbin_i64(res, i, 0);

		if (kind == WAIT_EVENTS)
			mark_of(ws, id)->xid = pgbin_i64(res, i, 1);
		wake_for(ws, (enum wait_kind)kind, id);
	}
	if (kind + 1 < KINDS)
		look_at(ws, kind + 1);
}

static int
id_cmp(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

/* The queues somebody is parked for, each once; the caller frees. */
static size_t
wanted(const struct waits *ws, int kind, int64_t **out)
{
	size_t n = 0, cap = 0, kept = 0;
	int64_t *ids = NULL;
	struct wait *w;

	TAILQ_FOREACH (w, &ws->lists[kind], link)
		for (size_t i = 0; i < w->queues_n; i++) {
			if (n == cap) {
				cap = cap ? cap * 2 : 64;
				ids = reallocarray(ids, cap, sizeof(*ids));
				if (!ids)
					abort();
			}
			ids[n++] = w->queue_ids[i];
		}
	if (n)
		qsort(ids, n, sizeof(*ids), id_cmp);
	for (size_t i = 0; i < n; i++)
		if (ids[i] && (!kept || ids[kept - 1] != ids[i]))
			ids[kept++] = ids[i];
	*out = ids;
	return kept;
}

static void
look_at(struct waits *ws, int kind)
{
	struct pgargs a;
	int64_t *ids;
	size_t n = wanted(ws, kind, &ids);

	if (!n) {
		free(ids);
		if (kind + 1 < KINDS)
			look_at(ws, kind + 1);
		return;
	}
	ws->look = malloc(sizeof(*ws->look));
	BUG(!ws->look);
	*ws->look = (struct look){ .ws = ws, .kind = kind };
	if (kind == WAIT_EVENTS && ws->marks.count > 2 * n + 64)
		marks_clear(ws);
	pgargs_init(&a);
	pgargs_array(&a, PGARGS_I64);
	for (size_t i = 0; i < n; i++)
		pgargs_item_i64(&a, ids[i]);
	pgargs_close(&a);
	if (kind == WAIT_EVENTS) {
		pgargs_array(&a, PGARGS_I64);
		for (size_t i = 0; i < n; i++)
			pgargs_item_i64(&a, mark_of(ws, ids[i])->xid);
		pgargs_close(&a);
	}
	free(ids);
	pgpool_call(ws->x->pool, LANE_REST,
		kind == WAIT_JOBS ? &STMT_READY : &STMT_NEWS, &a, on_look,
		ws->look);
}

/* ---- time ---- */

static void
fire_at(struct waits *ws, int64_t at_ms, int64_t now)
{
	ws->timer_ms = at_ms;
	loop_timer_start(&ws->timer, at_ms - now);
}

static void
on_timer(void *arg)
{
	struct waits *ws = arg;
	int64_t now = clk_mono_ms(), next = now + LOOK_MS;

	for (int k = 0; k < KINDS; k++) {
		struct wait *w, *after;

		for (w = TAILQ_FIRST(&ws->lists[k]); w; w = after) {
			after = TAILQ_NEXT(w, link);
			if (!w->parked)
				continue;
			if (w->deadline_ms <= now)
				wake(ws, w);
			else if (w->deadline_ms < next)
				next = w->deadline_ms;
		}
	}
	if (ws->parked && !ws->look && now >= ws->look_ms) {
		ws->look_ms = now + LOOK_MS;
		look_at(ws, 0);
	}
	if (ws->parked)
		fire_at(ws, next, now);
}

/* ---- waiters ---- */

void
wait_begin(struct waits *ws, struct wait *w)
{
	TAILQ_INSERT_TAIL(&ws->lists[w->kind], w, link);
}

static void
on_gone(struct hsrv_req *r)
{
	struct waits *ws = ctx_of(r)->waits;
	struct wait *w = hsrv_user(r);

	w->parked = false;
	ws->parked--;
	TAILQ_REMOVE(&ws->lists[w->kind], w, link);
	hsrv_drop(r);
}

bool
wait_park(struct waits *ws, struct wait *w)
{
	int64_t now = clk_mono_ms(), next = now + LOOK_MS;

	if (ws->x->stopping || now >= w->deadline_ms)
		return false;
	hsrv_set_user(w->req, w);
	hsrv_park(w->req, on_gone);
	w->parked = true;
	ws->parked++;
	if (w->missed) {
		w->missed = false;
		wake(ws, w);
		return true;
	}
	if (next > w->deadline_ms)
		next = w->deadline_ms;
	/* Only ever earlier: who parks must not put off who is parked. */
	if (!loop_timer_pending(&ws->timer) || next < ws->timer_ms)
		fire_at(ws, next, now);
	return true;
}

void
wait_end(struct waits *ws, struct wait *w, bool more)
{
	unpark(ws, w);
	TAILQ_REMOVE(&ws->lists[w->kind], w, link);
	if (w->kind != WAIT_JOBS || (!more && !w->missed))
		return;
	for (size_t i = 0; i < w->queues_n; i++)
		if (w->queue_ids[i])
			wake_one(ws, w->queue_ids[i]);
}

/* ---- the whole ---- */

struct waits *
waits_new(struct ctx *x)
{
	struct waits *ws = calloc(1, sizeof(*ws));
	struct hint_events ev = {
		.on_hint = on_hint, .on_up = on_listening, .arg = ws
	};

	BUG(!ws);
	ws->x = x;
	for (int k = 0; k < KINDS; k++)
		TAILQ_INIT(&ws->lists[k]);
	TAILQ_INIT(&ws->due);
	loop_timer_init(&ws->timer, x->loop, on_timer, ws);
	x->hint = hint_new(
		x->loop, x->conninfo, "queen-ojs listen", x->instance, &ev);
	return ws;
}

void
waits_drain(struct waits *ws)
{
	for (int k = 0; k < KINDS; k++)
		wake_all(ws, k, 0);
}

void
waits_free(struct waits *ws)
{
	if (!ws)
		return;
	if (ws->look)
		ws->look->ws = NULL;
	hint_free(ws->x->hint);
	ws->x->hint = NULL;
	loop_timer_fini(&ws->timer);
	marks_clear(ws);
	free(ws);
}

int
waits_parked(const struct waits *ws)
{
	return ws->parked;
}
