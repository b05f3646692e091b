/* SPDX-License-Identifier: Apache-2.0 */
/* Start and end of a sink; what is between is in the other files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "clk.h"
#include "err.h"
#include "key.h"
#include "metrics.h"
#include "place.h"
#include "settings.h"
#include "sink_int.h"

enum { BEAT_MIN_MS = 100 };

static void on_watch(void *arg);

struct sink *
sink_new(struct ctx *x, const struct sink_conf *c, struct err *e)
{
	struct sink *s = calloc(1, sizeof(*s));
	struct s3_conf bucket = { .ca_file = x->conf->ca_file,
		.multipart_bytes = x->conf->multipart_threshold_mb << 20 };

	BUG(!s);
	s->conf = *c;
	s->s3conf = *c->conf;
	*c->conf = (struct s3conf){ .prefix = NULL };
	s->x = (struct sink_ctx){
		.x = x, .conf = &s->s3conf, .tenant = c->tenant, .env = c->env
	};
	qid_text(&c->tenant, s->x.tenant_text);
	if (strcmp(s->x.tenant_text, CTX_TENANT_DEFAULT) != 0)
		snprintf(s->x.log_tenant, sizeof(s->x.log_tenant), "tenant=%s ",
			s->x.tenant_text);
	bucket.sink = &s->s3conf;
	bucket.log_tenant = s->x.log_tenant;
	s->x.requests = bucket.counts = c->metrics->requests;
	s->seen_version = -1;
	health_init(&s->health, s->s3conf.max_window_ms);
	loop_timer_init(&s->watch, x->loop, on_watch, s);
	loop_timer_init(&s->probe_timer, x->loop, sink_probe_again, s);
	loop_timer_init(&s->second, x->loop, sink_tell_second, s);
	sink_list_init(s);
	s->x.s3 = s3_new(x->loop, &bucket, e);
	if (!s->x.s3) {
		sink_free(s);
		return NULL;
	}
	return s;
}

void
sink_free(struct sink *s)
{
	if (!s)
		return;
	cell_cancel(s->look);
	sink_list_free(s);
	sink_probe_free(s);
	place_free(s->x.place);
	s3_free(s->x.s3);
	loop_timer_fini(&s->watch);
	loop_timer_fini(&s->second);
	health_fini(&s->health);
	s3conf_fini(&s->s3conf);
	free(s);
}

bool
sink_runs(const struct sink *s)
{
	return s->phase == SINK_RUNNING;
}

/* ---- is there a twin? ---- */

static int64_t
beat_ms(const struct sink *s)
{
	int64_t ms = s->x.x->conf->lease_ttl_ms / 3;

	return ms > BEAT_MIN_MS ? ms : BEAT_MIN_MS;
}

static void
run(struct sink *s)
{
	s->phase = SINK_RUNNING;
	s->x.place = place_new(&s->x, sink_list_give_back, s);
	sink_list_run(s);
	loop_timer_start(&s->second, 0);
}

void
sink_bucket_answers(struct sink *s)
{
	if (s->phase == SINK_WAITING)
		run(s);
}

static void
wait_for_bucket(struct sink *s)
{
	s->phase = SINK_WAITING;
	if (s->checked && s->reachable)
		run(s);
	else
		sink_probe_again(s);
}

/*
 * A row of our name is an earlier life of ours, unless it moves: then another
 * process lives under it, and the two would take each other's queues.
 */
static void
on_look(void *arg, const struct cell_row *r, const struct err *e)
{
	struct sink *s = arg;

	s->look = NULL;
	if (e) {
		loop_timer_start(&s->watch, beat_ms(s));
		return;
	}
	if (!r->found || r->version == s->seen_version) {
		wait_for_bucket(s);
		return;
	}
	if (s->seen_version >= 0) {
		s->conf.on_end(s->conf.arg, SINK_TWIN);
		return;
	}
	s->seen_version = r->version;
	loop_timer_start(&s->watch, beat_ms(s) * 3 / 2);
}

static void
on_watch(void *arg)
{
	struct sink *s = arg;
	struct buf key = BUF_ZERO;

	key_node(&key, s->s3conf.sink, span_of(s->x.x->conf->instance));
	s->look = cell_get(
		s->x.x->cell, &s->x.tenant, buf_span(&key), on_look, s);
	buf_fini(&key);
}

void
sink_start(struct sink *s)
{
	s->phase = SINK_WATCHING;
	s->started_ms = clk_mono_ms();
	on_watch(s);
}

/* ---- the end ---- */

static void
on_left(void *arg)
{
	struct sink *s = arg;

	s->conf.on_end(s->conf.arg, SINK_STOPPED);
}

void
sink_end_if_quiet(struct sink *s)
{
	if (s->phase != SINK_STOPPING || s->left || !TAILQ_EMPTY(&s->queues))
		return;
	s->left = true;
	if (s->x.place)
		place_leave(s->x.place, on_left, s);
	else
		loop_later(s->x.x->loop, on_left, s);
}

void
sink_stop(struct sink *s)
{
	if (s->phase == SINK_STOPPING)
		return;
	s->phase = SINK_STOPPING;
	cell_cancel(s->look);
	s->look = NULL;
	loop_timer_stop(&s->watch);
	loop_timer_stop(&s->probe_timer);
	s3_hurry(s->x.s3);
	sink_list_stop(s);
	sink_end_if_quiet(s);
}
