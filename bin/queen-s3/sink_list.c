/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queues of a sink: those named, or every one of the tenant, read again and
 * again.  One task for each, whoever runs it.
 */
#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "clk.h"
#include "err.h"
#include "metrics.h"
#include "place.h"
#include "settings.h"
#include "sink_int.h"

enum { LIST_DISCOVERIES = 10, LIST_MIN_MS = 1000, QUIET_MS = 60000 };

static void
on_window(void *arg, struct queue *q, int64_t records, int64_t bytes)
{
	const struct sink_queue *t = arg;

	(void)q;
	metrics_window(t->sink->conf.metrics, records, bytes);
}

static void
drop(struct sink_queue *t)
{
	struct sink *s = t->sink;
	struct queue_status st;

	queue_status(t->queue, &st);
	metrics_keep(s->conf.metrics, st.name, &st.counts);
	health_forget(&s->health, st.name);
	TAILQ_REMOVE(&s->queues, t, link);
	queue_free(t->queue);
	free(t);
	s->queues_n--;
}

static void
on_end(void *arg, struct queue *q)
{
	struct sink_queue *t = arg;
	struct sink *s = t->sink;

	(void)q;
	drop(t);
	sink_end_if_quiet(s);
}

/* before: what follows it by name; NULL: nothing does. */
static void
add(struct sink *s, const char *name, struct sink_queue *before)
{
	struct sink_queue *t = calloc(1, sizeof(*t));

	BUG(!t);
	t->sink = s;
	t->queue = queue_new(&s->x, name, on_end, on_window, t);
	s->queues_n++;
	if (before)
		TAILQ_INSERT_BEFORE(before, t, link);
	else
		TAILQ_INSERT_TAIL(&s->queues, t, link);
}

/* It is gone in a later turn of the loop. */
static void
leave(struct sink_queue *t)
{
	if (t->leaving)
		return;
	t->leaving = true;
	queue_stop(t->queue);
}

/* ---- the list of `*` ---- */

/* Deleted: what is buffered of it ships first, and its engine ends by itself. */
static void
unlisted(struct sink_queue *t)
{
	struct queue_status st;

	queue_status(t->queue, &st);
	if (!st.owned || st.buffered_bytes == 0)
		leave(t);
}

static void
again(struct sink *s)
{
	int64_t ms = s->x.x->conf->discovery_interval_ms * LIST_DISCOVERIES;

	loop_timer_start(&s->list_timer, ms > LIST_MIN_MS ? ms : LIST_MIN_MS);
}

/* Both are in the order of names. */
static void
take(struct sink *s, const struct span *names, size_t n)
{
	struct sink_queue *t = TAILQ_FIRST(&s->queues);

	for (size_t i = 0; i < n; i++) {
		char *name = strndup(names[i].p, names[i].n);

		BUG(!name);
		for (; t && strcmp(queue_name(t->queue), name) < 0;
			t = TAILQ_NEXT(t, link))
			unlisted(t);
		if (t && strcmp(queue_name(t->queue), name) == 0)
			t = TAILQ_NEXT(t, link);
		else
			add(s, name, t);
		free(name);
	}
	for (; t; t = TAILQ_NEXT(t, link))
		unlisted(t);
	place_queues(s->x.place, (int)n);
}

static void
on_list(void *arg, const struct span *names, size_t n, const struct err *e)
{
	struct sink *s = arg;
	uint64_t suppressed;

	s->listing = NULL;
	if (s->phase != SINK_RUNNING)
		return;
	s->bad_list.every_ms = QUIET_MS;
	if (!e)
		take(s, names, n);
	else if (log_sample(&s->bad_list, clk_mono_ms(), &suppressed))
		log_line(LOG_WARN, "queen-s3",
			"the queues cannot be listed; what runs goes on",
			"%serror=%s suppressed=%llu", s->x.log_tenant,
			log_quote(e->text), (unsigned long long)suppressed);
	again(s);
}

static void
on_list_time(void *arg)
{
	struct sink *s = arg;

	s->listing = cell_queues(s->x.x->cell, &s->x.tenant, on_list, s);
}

/* ---- for the others ---- */

void
sink_list_init(struct sink *s)
{
	TAILQ_INIT(&s->queues);
	loop_timer_init(&s->list_timer, s->x.x->loop, on_list_time, s);
}

/* They are in the order they were given in. */
static void
add_named(struct sink *s, const char *name)
{
	struct sink_queue *at = TAILQ_FIRST(&s->queues);

	while (at && strcmp(queue_name(at->queue), name) < 0)
		at = TAILQ_NEXT(at, link);
	if (!at || strcmp(queue_name(at->queue), name) > 0)
		add(s, name, at);
}

void
sink_list_run(struct sink *s)
{
	if (s->s3conf.all_queues) {
		on_list_time(s);
		return;
	}
	for (size_t i = 0; i < s->s3conf.queues_n; i++)
		add_named(s, s->s3conf.queues[i]);
	place_queues(s->x.place, s->queues_n);
}

void
sink_list_stop(struct sink *s)
{
	struct sink_queue *t;

	loop_timer_stop(&s->list_timer);
	TAILQ_FOREACH (t, &s->queues, link)
		leave(t);
}

void
sink_list_free(struct sink *s)
{
	struct sink_queue *t;

	cell_cancel(s->listing);
	loop_timer_fini(&s->list_timer);
	while ((t = TAILQ_FIRST(&s->queues)))
		drop(t);
}

/* The one with the least in hand, the first by name of such. */
void
sink_list_give_back(void *arg)
{
	struct sink *s = arg;
	struct sink_queue *t, *best = NULL;
	struct queue_status st;
	int64_t least = 0;

	TAILQ_FOREACH (t, &s->queues, link) {
		queue_status(t->queue, &st);
		if (!st.owned || t->leaving ||
			(best && st.buffered_bytes >= least))
			continue;
		best = t;
		least = st.buffered_bytes;
	}
	if (!best)
		return;
	place_gave(s->x.place, queue_name(best->queue));
	queue_give_back(best->queue);
}
