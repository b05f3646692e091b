/* SPDX-License-Identifier: Apache-2.0 */
/* What a source says of itself, between its runs too. */
#include "conndoc.h"
#include "connchild.h"
#include "jwrite.h"
#include "source_int.h"
#include "start.h"
#include "wal.h"

static void
write_names(const struct source *s, struct jwrite *w)
{
	const struct conndoc_source *d = &s->x->task->doc->source;
	struct arena a = ARENA_ZERO;
	char lsn[WAL_LSN_MAX];
	struct span name = s->x->task->name;

	jwrite_kv_str(w, "slot", conndoc_slot(d, name, &a));
	jwrite_kv_str(w, "publication", conndoc_publication(d, name, &a));
	arena_fini(&a);
	if (!s->system_id[0])
		return;
	jwrite_kv_cstr(w, "systemId", s->system_id);
	jwrite_kv_cstr(w, "epoch", s->epoch);
	jwrite_kv_cstr(w, "pointerLsn", wal_lsn_text(s->pointer_lsn, lsn));
}

static void
write_start(const struct source *s, struct jwrite *w)
{
	const struct start_state *t = start_state(s->start);

	if (t->doing)
		jwrite_kv_cstr(w, "doing", t->doing);
	if (t->active_pid)
		jwrite_kv_i64(w, "activePid", t->active_pid);
}

void
source_write_detail(void *arg, struct jwrite *w)
{
	const struct source *s = arg;
	const struct stream_counts *c = &s->counts;

	if (s->stream)
		stream_write_detail(s->stream, w);
	else
		write_names(s, w);
	if (s->start)
		write_start(s, w);
	if (s->owner.len > 0)
		jwrite_kv_str(w, "owner", buf_span(&s->owner));
	jwrite_kv_i64(w, "transactions", (int64_t)c->transactions);
	jwrite_kv_i64(w, "messages", (int64_t)c->messages);
	jwrite_kv_i64(w, "bundles", (int64_t)c->bundles);
	jwrite_kv_i64(w, "truncatesSkipped", (int64_t)c->truncates_skipped);
	if (s->resynced_at.len > 0)
		jwrite_kv_str(w, "resyncedAt", buf_span(&s->resynced_at));
	if (s->torn_down)
		jwrite_kv_bool(w, "tornDown", true);
}

void
source_write_metrics(void *arg, struct jwrite *w)
{
	const struct source *s = arg;
	const struct stream_counts *c = &s->counts;

	jwrite_kv_i64(w, "queen_pg_source_transactions_total",
		(int64_t)c->transactions);
	jwrite_kv_i64(
		w, "queen_pg_source_messages_total", (int64_t)c->messages);
	jwrite_kv_i64(w, "queen_pg_source_bundles_total", (int64_t)c->bundles);
	jwrite_kv_i64(w, "queen_pg_source_snapshot_rows_total",
		(int64_t)c->snapshot_rows);
	if (s->stream) {
		jwrite_kv_i64(w, "queen_pg_source_slot_lag_bytes",
			(int64_t)stream_lag_bytes(s->stream));
		jwrite_kv_i64(w, "queen_pg_source_pointer_lsn",
			(int64_t)stream_pointer_lsn(s->stream));
	}
}
