/* SPDX-License-Identifier: Apache-2.0 */
/* What a sink tells of itself: health, /status, metrics. */
#include "arena.h"
#include "budget.h"
#include "clk.h"
#include "jwrite.h"
#include "metrics.h"
#include "place.h"
#include "settings.h"
#include "sink_int.h"
#include "stamp.h"

enum { SECOND_MS = 1000 };

/* ---- health ---- */

/*
 * It ended here, and is not our concern any more.  One that failed stays
 * behind, also while it is claimed again.
 */
static bool
is_over(enum queue_state s)
{
	return s == QUEUE_DRAINED || s == QUEUE_FENCED || s == QUEUE_MISSING ||
	       s == QUEUE_RELEASED || s == QUEUE_ELSEWHERE;
}

static void
look(struct sink_queue *t, int64_t now_ms)
{
	struct sink *s = t->sink;
	struct queue_status st;

	queue_status(t->queue, &st);
	/* one that fails at once is never seen as ours */
	if (st.owned || st.state == QUEUE_FAILED) {
		health_runs(&s->health, st.name, now_ms);
		health_report(
			&s->health, st.name, st.lag_us, st.safe_us, now_ms);
	} else if (is_over(st.state)) {
		health_forget(&s->health, st.name);
	}
}

void
sink_tell_second(void *arg)
{
	struct sink *s = arg;
	struct sink_queue *t;

	if (s->phase != SINK_RUNNING)
		return;
	TAILQ_FOREACH (t, &s->queues, link)
		look(t, clk_mono_ms());
	loop_timer_start(&s->second, SECOND_MS);
}

bool
sink_behind(const struct sink *s, int64_t now_ms, struct health_behind *out)
{
	return health_behind(&s->health, now_ms, out);
}

int
sink_watched(const struct sink *s)
{
	return s->health.n;
}

/* ---- /status ---- */

static void
write_time(struct jwrite *w, const char *key, int64_t at_us)
{
	jwrite_key(w, key);
	if (at_us == STAMP_NONE)
		jwrite_null(w);
	else
		jwrite_iso_us(w, at_us);
}

static void
write_text(struct jwrite *w, const char *key, struct span text)
{
	if (text.n)
		jwrite_kv_str(w, key, text);
	else
		jwrite_kv_null(w, key);
}

static void
write_error(struct jwrite *w, const struct queue_status *q)
{
	jwrite_key(w, "lastError");
	if (q->last_error.n == 0) {
		jwrite_null(w);
		return;
	}
	jwrite_object(w);
	write_time(w, "at", q->last_error_us);
	jwrite_kv_str(w, "message", q->last_error);
	jwrite_end(w);
}

static void
write_blocked(struct jwrite *w, const struct queue_status *q)
{
	if (q->state != QUEUE_BLOCKED)
		return;
	jwrite_key(w, "blocked");
	jwrite_object(w);
	jwrite_kv_str(w, "partition", q->blocked_name);
	jwrite_kv_i64(w, "keyId", q->blocked_key_id);
	jwrite_end(w);
}

static void
write_queue(struct jwrite *w, const struct queue_status *q)
{
	jwrite_object(w);
	jwrite_kv_str(w, "name", q->name);
	jwrite_kv_bool(w, "ownedHere", q->owned);
	write_text(w, "heldBy", q->holder);
	jwrite_kv_cstr(w, "state", queue_state_name(q->state));
	jwrite_key(w, "k");
	if (q->k < 0)
		jwrite_null(w);
	else
		jwrite_i64(w, q->k);
	write_time(w, "tEnd", q->end_us);
	write_time(w, "completeThrough", q->complete_us);
	write_time(w, "safeTime", q->safe_us);
	jwrite_key(w, "lagSeconds");
	if (q->lag_us < 0)
		jwrite_null(w);
	else
		jwrite_f64(w, (double)q->lag_us / 1e6, 3);
	jwrite_kv_bool(w, "safeTimeDegraded", q->degraded);
	jwrite_kv_bool(w, "redo", q->redo);
	jwrite_kv_i64(w, "bufferedBytes", q->buffered_bytes);
	jwrite_kv_i64(w, "partitions", q->partitions);
	jwrite_kv_i64(w, "windowsCommitted", (int64_t)q->counts.windows);
	jwrite_kv_i64(w, "records", (int64_t)q->counts.records);
	jwrite_kv_i64(w, "bytes", (int64_t)q->counts.bytes);
	jwrite_kv_i64(w, "recordsLost", (int64_t)q->counts.lost);
	write_blocked(w, q);
	write_error(w, q);
	jwrite_end(w);
}

static void
write_bucket(const struct sink *s, struct jwrite *w)
{
	const struct s3conf *c = &s->s3conf;

	jwrite_key(w, "bucket");
	jwrite_object(w);
	jwrite_key(w, "reachable");
	if (s->checked)
		jwrite_bool(w, s->reachable);
	else
		jwrite_null(w);
	write_text(w, "error", span_of(s->bucket_error));
	write_time(w, "checkedAt", s->checked ? s->checked_us : STAMP_NONE);
	jwrite_kv_cstr(w, "name", c->bucket);
	jwrite_kv_cstr(w, "endpoint", c->endpoint);
	jwrite_kv_cstr(w, "region", c->region);
	jwrite_kv_cstr(w, "prefix", c->prefix);
	jwrite_end(w);
	jwrite_kv_cstr(w, "format", s3conf_format_name(c->format));
	jwrite_kv_cstr(w, "compression", s3conf_codec_name(s3conf_codec(c)));
	jwrite_kv_cstr(w, "layout", s3conf_layout_name(c->layout));
	jwrite_kv_cstr(w, "align", s3conf_align_name(c->align));
}

static void
write_place(const struct sink *s, struct jwrite *w)
{
	struct place_stats p = { .nodes = 0 };

	if (s->x.place)
		place_stats(s->x.place, &p);
	jwrite_key(w, "placement");
	jwrite_object(w);
	jwrite_kv_i64(w, "nodes", p.nodes);
	jwrite_kv_i64(w, "queues", p.queues);
	jwrite_kv_i64(w, "share", p.share);
	jwrite_kv_i64(w, "held", p.held);
	write_text(w, "givingBack", span_of(p.giving_back));
	jwrite_end(w);
	jwrite_key(w, "memory");
	jwrite_object(w);
	jwrite_kv_i64(w, "bufferedBytes", budget_used(s->x.x->budget));
	jwrite_kv_i64(w, "limitBytes", budget_limit(s->x.x->budget));
	jwrite_end(w);
}

void
sink_write_status(const struct sink *s, struct jwrite *w)
{
	const struct sink_queue *t;
	struct health_behind behind;
	struct queue_status st;
	bool ok = !health_behind(&s->health, clk_mono_ms(), &behind);

	jwrite_kv_i64(w, "uptimeMs",
		s->started_ms ? clk_mono_ms() - s->started_ms : 0);
	jwrite_kv_bool(w, "ok", ok && (!s->checked || s->reachable));
	jwrite_kv_cstr(w, "sink", s->s3conf.sink);
	jwrite_kv_cstr(w, "instance", s->x.x->conf->instance);
	jwrite_kv_cstr(w, "version", QUEEN_VERSION);
	jwrite_kv_bool(w, "running", s->phase == SINK_RUNNING);
	write_bucket(s, w);
	jwrite_key(w, "health");
	jwrite_object(w);
	jwrite_kv_bool(w, "ok", ok);
	jwrite_kv_i64(w, "queues", s->health.n);
	jwrite_end(w);
	write_place(s, w);
	jwrite_key(w, "queues");
	jwrite_array(w);
	TAILQ_FOREACH (t, &s->queues, link) {
		queue_status(t->queue, &st);
		write_queue(w, &st);
	}
	jwrite_end(w);
}

/* ---- metrics ---- */

void
sink_metrics(const struct sink *s, struct arena *a, struct metrics_sink *out)
{
	struct queue_status *st =
		arena_alloc(a, sizeof(*st) * ((size_t)s->queues_n + 1));
	const struct sink_queue *t;
	size_t n = 0;

	TAILQ_FOREACH (t, &s->queues, link)
		queue_status(t->queue, &st[n++]);
	*out = (struct metrics_sink){ .tenant = s->conf.metrics,
		.queues = st,
		.queues_n = n,
		.format = s->s3conf.format };
}
