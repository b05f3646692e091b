/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The presence of this node in one sink: a row that says it is there, and how
 * many others say so.  Nothing is decided on a count that was not just read.
 */
#include "place.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backoff.h"
#include "buf.h"
#include "cell.h"
#include "clk.h"
#include "ctx.h"
#include "doc.h"
#include "err.h"
#include "key.h"
#include "log.h"
#include "loop.h"
#include "place_int.h"
#include "settings.h"

enum { RETRY_FIRST_MS = 1000, LOG_EVERY_MS = 30000 };

struct place {
	const struct sink_ctx *x;
	void (*give_back)(void *arg);
	void *arg;
	struct buf key, prefix, value;
	struct loop_timer beat;
	struct cell_call *call;
	int64_t retry_ms;
	int beats;
	struct log_sampler failed;
	/* what is known */
	int nodes, queues, held;
	struct place_excess excess;
	char *given; /* NULL: none; its name else */
	/* the end */
	bool leaving;
	void (*on_left)(void *arg);
	void *left_arg;
};

static int64_t
now_ms(const struct place *p)
{
	return loop_now_ms(p->x->x->loop);
}

static int64_t
ttl_ms(const struct place *p)
{
	return p->x->x->conf->lease_ttl_ms;
}

static int
share(const struct place *p)
{
	return place_share(p->queues, p->nodes);
}

/* True when one is to be given back. */
static bool
look(struct place *p)
{
	bool due = place_excess_due(
		&p->excess, p->held, share(p), now_ms(p), ttl_ms(p));

	if (!p->excess.giving) {
		free(p->given);
		p->given = NULL;
	}
	return due;
}

/* ---- the beat ---- */

static void leave(struct place *p);

static void
beat_again(struct place *p)
{
	p->retry_ms = 0;
	loop_timer_start(&p->beat, place_beat_ms(++p->beats, ttl_ms(p)));
}

static void
beat_failed(struct place *p, const struct err *e)
{
	uint64_t suppressed;

	p->failed.every_ms = LOG_EVERY_MS;
	if (log_sample(&p->failed, clk_mono_ms(), &suppressed))
		log_line(LOG_WARN, "queen-s3",
			"the presence of this node cannot be written",
			"%ssink=%s error=%s suppressed=%" PRIu64,
			p->x->log_tenant, p->x->conf->sink, log_quote(e->text),
			suppressed);
	p->retry_ms = backoff_next_ms(p->retry_ms, RETRY_FIRST_MS, ttl_ms(p));
	loop_timer_start(&p->beat, p->retry_ms);
}

static void
on_rows(void *arg, const struct cell_row *rows, size_t n, const struct err *e)
{
	struct place *p = arg;
	int nodes = 1;

	p->call = NULL;
	if (p->leaving) {
		leave(p);
		return;
	}
	if (e) {
		beat_failed(p, e);
		return;
	}
	/* our own counts, however old the list is */
	for (size_t i = 0; i < n; i++)
		nodes += !span_eq(rows[i].key, buf_span(&p->key));
	p->nodes = nodes;
	beat_again(p);
	if (look(p))
		p->give_back(p->arg);
}

static void
on_written(void *arg, const struct cell_row *r, const struct err *e)
{
	struct place *p = arg;

	(void)r;
	p->call = NULL;
	if (p->leaving)
		leave(p);
	else if (e)
		beat_failed(p, e);
	else
		p->call = cell_list(p->x->x->cell, &p->x->tenant,
			buf_span(&p->prefix), on_rows, p);
}

static void
on_beat(void *arg)
{
	struct place *p = arg;
	int64_t ttl_s = ttl_ms(p) / 1000;

	p->call = cell_put(p->x->x->cell, &p->x->tenant, buf_span(&p->key),
		buf_span(&p->value), CELL_ANY, ttl_s > 0 ? ttl_s : 1,
		on_written, p);
}

/* ---- life ---- */

struct place *
place_new(const struct sink_ctx *x, void (*give_back)(void *arg), void *arg)
{
	struct place *p = calloc(1, sizeof(*p));
	struct doc_lease l = { .instance = span_of(x->x->conf->instance) };
	uint64_t random;

	BUG(!p);
	p->x = x;
	p->give_back = give_back;
	p->arg = arg;
	p->nodes = 1;
	p->excess = (struct place_excess)PLACE_EXCESS_ZERO;
	key_node(&p->key, x->conf->sink, l.instance);
	key_nodes(&p->prefix, x->conf->sink);
	randombytes_buf(&random, sizeof(random));
	snprintf(l.incarnation, sizeof(l.incarnation), "%016" PRIx64, random);
	l.since_ms = clk_wall_us() / 1000;
	doc_lease_write(&p->value, &l);
	loop_timer_init(&p->beat, x->x->loop, on_beat, p);
	loop_timer_start(&p->beat, 0);
	return p;
}

void
place_free(struct place *p)
{
	if (!p)
		return;
	cell_cancel(p->call);
	loop_timer_fini(&p->beat);
	buf_fini(&p->key);
	buf_fini(&p->prefix);
	buf_fini(&p->value);
	free(p->given);
	free(p);
}

static void
on_deleted(void *arg, const struct cell_row *r, const struct err *e)
{
	struct place *p = arg;

	(void)r;
	(void)e;
	p->call = NULL;
	p->on_left(p->left_arg);
}

static void
leave(struct place *p)
{
	p->call = cell_delete(p->x->x->cell, &p->x->tenant, buf_span(&p->key),
		CELL_ANY, on_deleted, p);
}

void
place_leave(struct place *p, void (*fn)(void *arg), void *arg)
{
	p->leaving = true;
	p->on_left = fn;
	p->left_arg = arg;
	loop_timer_stop(&p->beat);
	/* a write on its way would come after the delete */
	if (!p->call)
		leave(p);
}

/* ---- what the sink tells ---- */

void
place_queues(struct place *p, int n)
{
	p->queues = n;
	look(p);
}

void
place_held(struct place *p, int delta)
{
	p->held += delta;
	BUG(p->held < 0);
	if (delta < 0)
		place_excess_lost(&p->excess, now_ms(p));
	look(p);
}

void
place_gave(struct place *p, const char *queue)
{
	free(p->given);
	p->given = strdup(queue);
	BUG(!p->given);
	place_excess_gave(&p->excess);
}

void
place_taken(struct place *p, const char *queue)
{
	if (p->given && strcmp(p->given, queue) == 0) {
		place_excess_taken(&p->excess);
		look(p);
	}
}

void
place_stats(const struct place *p, struct place_stats *out)
{
	*out = (struct place_stats){
		.nodes = p->nodes,
		.queues = p->queues,
		.share = share(p),
		.held = p->held,
		.giving_back = p->given,
	};
}
