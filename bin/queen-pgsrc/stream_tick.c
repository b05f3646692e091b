/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run does by the clock: status updates, heartbeats on a silent
 * stream, a look at slot and publication.
 */
#include <inttypes.h>
#include <stdio.h>

#include "chunk.h"
#include "commit.h"
#include "connchild.h"
#include "conndoc.h"
#include "connfault.h"
#include "log.h"
#include "pgquote.h"
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

static void
put_wanted(struct stream *s)
{
	for (size_t i = 0; i < s->found->tables_n; i++) {
		buf_puts(&s->sql, i ? ", (" : "(");
		pgquote_text(&s->sql, s->found->tables[i].schema);
		buf_puts(&s->sql, ", ");
		pgquote_text(&s->sql, s->found->tables[i].name);
		buf_putc(&s->sql, ')');
	}
}

/*
 * A table that is there and not published whole, such as one that was dropped
 * and made again.  A publication that is gone is told by the server.
 */
static void
put_uncarried(struct stream *s)
{
	buf_puts(&s->sql,
		"(select w.s || '.' || w.t from pg_catalog.pg_publication p,"
		" (values ");
	put_wanted(s);
	buf_puts(&s->sql,
		") w (s, t)"
		" join pg_catalog.pg_namespace n on n.nspname = w.s"
		" join pg_catalog.pg_class c on c.relnamespace = n.oid"
		" and c.relname = w.t and c.relkind in ('r', 'p')"
		" left join pg_catalog.pg_publication_tables x"
		" on x.schemaname = w.s and x.tablename = w.t"
		" and x.pubname = ");
	pgquote_text(&s->sql, s->found->publication);
	buf_puts(&s->sql, " where p.pubname = ");
	pgquote_text(&s->sql, s->found->publication);
	buf_puts(&s->sql,
		" and (not (p.pubinsert and p.pubupdate and p.pubdelete)"
		" or x.tablename is null or x.rowfilter is not null"
		" or pg_catalog.cardinality(x.attnames) < (select count(*)"
		" from pg_catalog.pg_attribute a where a.attrelid = c.oid"
		" and a.attnum > 0 and not a.attisdropped"
		" and a.attgenerated = '')) limit 1)");
}

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
	buf_puts(&s->sql,
		"select pg_catalog.pg_wal_lsn_diff("
		"pg_catalog.pg_current_wal_lsn(), confirmed_flush_lsn), "
		"wal_status, confirmed_flush_lsn, ");
	put_uncarried(s);
	buf_puts(&s->sql,
		" from pg_catalog.pg_replication_slots where slot_name = ");
	pgquote_text(&s->sql, s->found->slot);
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
