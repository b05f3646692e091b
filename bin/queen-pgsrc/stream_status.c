/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says of itself. */
#include "commit.h"
#include "jwrite.h"
#include "stream_int.h"
#include "wal.h"

static void
write_lsn(struct jwrite *w, const char *key, uint64_t lsn)
{
	char text[WAL_LSN_MAX];

	jwrite_kv_cstr(w, key, wal_lsn_text(lsn, text));
}

static void
write_copy(const struct stream *s, struct jwrite *w)
{
	const struct pointer *p = &s->pipeline.pointer;

	jwrite_key(w, "snapshot");
	if (!s->in.in_snapshot) {
		jwrite_null(w);
		return;
	}
	jwrite_object(w);
	jwrite_kv_i64(w, "tables", (int64_t)p->tables_n);
	jwrite_kv_i64(w, "done", (int64_t)s->in.table);
	jwrite_kv_str(w, "table", p->tables[s->in.table]);
	jwrite_kv_i64(w, "rows", (int64_t)s->in.rows);
	jwrite_kv_bool(w, "waiting", snapshot_must_wait(&s->pipeline.snapshot));
	jwrite_end(w);
}

static void
write_slot(const struct stream *s, struct jwrite *w)
{
	const struct stream_slot *t = &s->slot;

	if (!t->known)
		return;
	jwrite_kv_i64(w, "slotLagBytes", (int64_t)t->lag_bytes);
	jwrite_kv_cstr(w, "walStatus", t->wal_status);
	write_lsn(w, "confirmedFlushLsn", t->confirmed_lsn);
	if (t->silence.is)
		jwrite_kv_cstr(w, "hint",
			"nothing has come from the server for minutes while "
			"the slot's lag grows: a large transaction of other "
			"tables, or synchronized_standby_slots names a standby "
			"that is down");
}

void
stream_write_detail(const struct stream *s, struct jwrite *w)
{
	const struct start_found *f = s->found;

	jwrite_kv_str(w, "slot", f->slot);
	jwrite_kv_bool(w, "failover", f->failover);
	jwrite_kv_str(w, "publication", f->publication);
	jwrite_kv_cstr(w, "systemId", f->system_id);
	jwrite_kv_cstr(w, "epoch", s->pipeline.pointer.epoch);
	write_lsn(w, "pointerLsn", commit_lsn(s->commit));
	write_copy(s, w);
	write_slot(s, w);
	if (s->counts->last_commit_us) {
		jwrite_key(w, "lastCommitAt");
		jwrite_iso_us(w, s->counts->last_commit_us);
	}
}

uint64_t
stream_lag_bytes(const struct stream *s)
{
	return s->slot.lag_bytes;
}

uint64_t
stream_pointer_lsn(const struct stream *s)
{
	return commit_lsn(s->commit);
}
