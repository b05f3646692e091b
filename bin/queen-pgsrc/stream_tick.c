/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run does by the clock: status updates, heartbeats on a silent
 * stream, a look at slot and publication.
 */
#include <inttypes.h>
#include <stdio.h>

#include "catalog.h"
#include "chunk.h"
#include "commit.h"
#include "connchild.h"
#include "conndoc.h"
#include "connfault.h"
#include "log.h"
#include "pgtext.h"
#include "stream_int.h"
#include "wal.h"

enum {
	TICK_MS = 1000,
	TELL_MS = 9000, /* at least every ten seconds */
	MEASURE_MS = 10000,
};

/* ---- heartbeat ---- */

static void
on_beat(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct stream *s = arg;

	(void)res;
	(void)n;
	s->beating = false;
	if (why)
		stream_fail_sql(s, why);
}

static void
beat(struct stream *s, int64_t now_ms)
{
	int64_t every_ms = s->x->task->doc->source.heartbeat_s * 1000;

	if (s->beating || s->paused || now_ms - s->heard_ms < every_ms ||
		now_ms - s->beat_ms < every_ms)
		return;
	s->beating = true;
	s->beat_ms = now_ms;
	chunk_mark_sql(&s->sql, s->pipeline.pointer.epoch, "hb", true,
		s->found->server_version);
	stream_query(s, on_beat);
}

/* ---- the publication ---- */

/* The next start mends one that is managed, or says how; the loss stays. */
static void
judge_uncarried(struct stream *s, const char *table)
{
	struct connfault f;

	if (!*table)
		return;
	connfault_set(&f, "publication", true,
		"the publication %.*s no longer carries %s as a whole, so "
		"changes of it are missing; ask for a new copy with: "
		"queenctl connector resync %.*s",
		SPAN_ARG(s->found->publication), table,
		SPAN_ARG(s->x->task->name));
	stream_fail(s, &f);
}

/* ---- the slot ---- */

/* While nothing is read, silence says nothing. */
static void
judge_silence(struct stream *s)
{
	struct stream_slot *t = &s->slot;
	int64_t quiet_ms =
		s->paused ? 0 : loop_now_ms(s->x->loop) - s->heard_ms;

	if (silence_judge(&t->silence, t->lag_bytes, quiet_ms))
		log_line(LOG_WARN, "source", "the server is silent",
			"connector=%.*s slot_lag_bytes=%" PRIu64,
			SPAN_ARG(s->x->task->name), t->lag_bytes);
}

static void
on_measured(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct stream *s = arg;
	struct stream_slot *t = &s->slot;
	int64_t lag;

	s->measuring = false;
	if (why) {
		stream_fail_sql(s, why);
		return;
	}
	if (n != 1 || PQntuples(res[0]) != 1 ||
		!span_i64(pgtext_get(res[0], 0, 0), &lag))
		return;
	t->known = true;
	t->lag_bytes = lag > 0 ? (uint64_t)lag : 0;
	snprintf(t->wal_status, sizeof(t->wal_status), "%s",
		PQgetvalue(res[0], 0, 1));
	if (!wal_lsn_parse(pgtext_get(res[0], 0, 2), &t->confirmed_lsn))
		t->confirmed_lsn = 0;
	judge_silence(s);
	connchild_touch(s->x->child);
	judge_uncarried(s, PQgetvalue(res[0], 0, 3));
}

static void
measure(struct stream *s, int64_t now_ms)
{
	if (s->measuring ||
		(s->slot.known && now_ms - s->measured_ms < MEASURE_MS))
		return;
	s->measuring = true;
	s->measured_ms = now_ms;
	catalog_measure_sql(&s->sql, s->found->slot, &s->x->task->doc->source,
		s->found->publication);
	stream_query(s, on_measured);
}

/* ---- once a second ---- */

static void
report_truncates(struct stream *s)
{
	uint64_t n = s->pipeline.truncates_skipped - s->truncates_told;

	if (n == 0)
		return;
	s->truncates_told += n;
	s->counts->truncates_skipped += n;
	log_line(LOG_INFO, "source", "TRUNCATE is not passed on",
		"connector=%.*s count=%" PRIu64, SPAN_ARG(s->x->task->name), n);
	connchild_touch(s->x->child);
}

/*
 * While nothing is read the server cannot be heard asking for a reply, so it
 * is told every time.
 */
void
stream_on_tick(void *arg)
{
	struct stream *s = arg;
	int64_t now_ms = loop_now_ms(s->x->loop);

	loop_timer_start(&s->tick, TICK_MS);
	report_truncates(s);
	if (s->paused || s->state != STREAM_RUNS ||
		commit_lsn(s->commit) != s->told_lsn ||
		now_ms - s->told_ms >= TELL_MS)
		stream_tell(s);
	if (s->state != STREAM_RUNS)
		return;
	beat(s, now_ms);
	measure(s, now_ms);
}
