/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits, what they were told, and what is in flight.  Callers may cancel,
 * wait anew and acknowledge from inside any callback: it is always called
 * from a timer or an answer, after everything of the feed is in order.
 */
#include "feed.h"

#include <stdlib.h>
#include <string.h>

#include "connchild.h"
#include "conndoc.h"
#include "err.h"
#include "feed_int.h"
#include "hot.h"
#include "pgbin.h"
#include "pgconn.h"

enum { COMPLAIN_EVERY_MS = 30000, DIAL_LOOKS = 20 };

/* ---- flights ---- */

void
feed_flight_begin(struct feed *f, struct feed_flight *fl,
	void (*drop)(struct feed_flight *fl))
{
	fl->feed = f;
	fl->drop = drop;
	TAILQ_INSERT_TAIL(&f->flights, fl, link);
}

void
feed_flight_end(struct feed_flight *fl)
{
	TAILQ_REMOVE(&fl->feed->flights, fl, link);
	fl->drop(fl);
}

void
feed_call_sql(struct pgconn *c, const struct pgstmt *s, struct pgargs *a,
	void (*fn)(void *arg, const PGresult *res, const struct err *e),
	void *arg)
{
	pgconn_call(c, s, false, a, fn, arg);
	pgargs_fini(a);
}

/* ---- faults ---- */

bool
feed_is_failing(const struct feed *f)
{
	return f->why[FEED_FIND].code || f->why[FEED_POP].code;
}

bool
feed_is_dialling(struct feed *f, enum feed_side side)
{
	struct pgconn *c = side == FEED_FIND ? f->x->side : f->x->work;

	return !pgconn_is_up(c) && f->dial_looks[side]++ < DIAL_LOOKS;
}

static void
on_tell(void *arg)
{
	struct feed *f = arg;
	const struct connfault *why =
		&f->why[f->why[FEED_FIND].code ? FEED_FIND : FEED_POP];
	uint64_t no = feed_is_failing(f) ? f->fault_no : 0;
	struct feed_wait *w = TAILQ_FIRST(&f->waits);

	while (w) {
		if (w->told == no) {
			w = TAILQ_NEXT(w, link);
			continue;
		}
		w->told = no;
		w->fn(w->arg, NULL, no ? why : NULL);
		/* waits may have come and gone */
		w = TAILQ_FIRST(&f->waits);
	}
}

void
feed_fault(struct feed *f, enum feed_side side, const struct connfault *why)
{
	struct connfault *was = &f->why[side];

	if (!why && !was->code)
		return;
	if (why && was->code && strcmp(why->text, was->text) == 0)
		return;
	if (why)
		*was = *why;
	else
		was->code = NULL;
	f->fault_no++;
	loop_timer_start(&f->tell_timer, 0);
}

bool
feed_may_complain(struct feed *f, int key)
{
	int64_t now = loop_now_ms(f->x->loop);
	struct feed_block *b = NULL;

	for (int i = 0; i < FEED_BLOCKS; i++)
		if (f->blocks[i].until_ms && f->blocks[i].key == key)
			b = &f->blocks[i];
	if (b && now < b->until_ms)
		return false;
	if (!b)
		b = &f->blocks[f->block_next++ % FEED_BLOCKS];
	*b = (struct feed_block){ key, now + COMPLAIN_EVERY_MS };
	return true;
}

/* ---- waits ---- */

struct feed_wait *
feed_pop(struct feed *f, feed_fn fn, void *arg)
{
	struct feed_wait *w = calloc(1, sizeof(*w));

	if (!w)
		abort();
	w->feed = f;
	w->fn = fn;
	w->arg = arg;
	TAILQ_INSERT_TAIL(&f->waits, w, link);
	if (feed_is_failing(f))
		loop_timer_start(&f->tell_timer, 0);
	feed_pop_arm(f);
	return w;
}

static void
wait_free(struct feed_wait *w)
{
	TAILQ_REMOVE(&w->feed->waits, w, link);
	free(w);
}

void
feed_deliver(struct feed_wait *w, struct feed_batch *b)
{
	feed_fn fn = w->fn;
	void *arg = w->arg;

	wait_free(w);
	fn(arg, b, NULL);
}

void
feed_cancel(struct feed_wait *w)
{
	if (w->call) {
		w->call->wait = NULL;
		w->feed->loose++;
	}
	wait_free(w);
}

/* ---- settling ---- */

static void
on_settle(void *arg)
{
	struct feed *f = arg;
	void (*fn)(void *arg) = f->settled;

	if (f->loose || !fn)
		return;
	f->settled = NULL;
	fn(f->settled_arg);
}

void
feed_settle_check(struct feed *f)
{
	if (!f->loose && f->settled)
		loop_timer_start(&f->settle_timer, 0);
}

void
feed_settle(struct feed *f, void (*fn)(void *arg), void *arg)
{
	f->settled = fn;
	f->settled_arg = arg;
	feed_settle_check(f);
}

/* ---- the whole ---- */

static void
on_find(void *arg)
{
	feed_find(arg);
}

struct feed *
feed_new(struct ctx *x, const struct feed_face *face)
{
	struct feed *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	f->x = x;
	f->face = *face;
	f->doc = &x->task->doc->sink;
	f->group = conndoc_group(f->doc, x->task->name, &f->arena);
	f->hot = hot_new();
	f->width = FEED_CANDIDATES;
	TAILQ_INIT(&f->waits);
	TAILQ_INIT(&f->flights);
	loop_timer_init(&f->find_timer, x->loop, on_find, f);
	loop_timer_init(&f->pop_timer, x->loop, feed_pop_fire, f);
	loop_timer_init(&f->tell_timer, x->loop, on_tell, f);
	loop_timer_init(&f->settle_timer, x->loop, on_settle, f);
	loop_timer_start(&f->find_timer, 0);
	return f;
}

void
feed_free(struct feed *f)
{
	struct feed_flight *fl;
	struct feed_wait *w;

	if (!f)
		return;
	while ((fl = TAILQ_FIRST(&f->flights)))
		feed_flight_end(fl);
	while ((w = TAILQ_FIRST(&f->waits)))
		wait_free(w);
	loop_timer_fini(&f->find_timer);
	loop_timer_fini(&f->pop_timer);
	loop_timer_fini(&f->tell_timer);
	loop_timer_fini(&f->settle_timer);
	feed_forget(f);
	hot_free(f->hot);
	arena_fini(&f->arena);
	free(f);
}

void
feed_batch_free(struct feed_batch *b)
{
	if (!b)
		return;
	arena_fini(&b->arena);
	free(b);
}
