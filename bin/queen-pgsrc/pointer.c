/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pointer: written, copied, compared.  It is read in pointer_read.c.
 */
#include "pointer.h"

#include "buf.h"
#include "jwrite.h"
#include "wal.h"

enum { FORMAT = 1 };

void
pointer_fini(struct pointer *p)
{
	arena_fini(&p->arena);
	*p = (struct pointer)POINTER_ZERO;
}

/* ---- writing ---- */

static void
write_lsn(struct jwrite *w, const char *key, uint64_t lsn)
{
	char text[WAL_LSN_MAX];

	jwrite_kv_cstr(w, key, wal_lsn_text(lsn, text));
}

static void
write_code(struct jwrite *w, const char *key, struct span code)
{
	/* an empty key may have no bytes at all */
	const char *p = code.n > 0 ? code.p : "", *end = p + code.n, *nul;

	jwrite_key(w, key);
	jwrite_array(w);
	while ((nul = p < end ? memchr(p, '\0', (size_t)(end - p)) : NULL)) {
		jwrite_str(w, span_make(p, (size_t)(nul - p)));
		p = nul + 1;
	}
	jwrite_str(w, span_make(p, (size_t)(end - p)));
	jwrite_end(w);
}

/* Where to go on, and by what key that is a place. */
static void
write_after(struct jwrite *w, const struct pointer *p,
	const struct pointer_place *at)
{
	if (!at->has_after) {
		jwrite_key(w, "after");
		jwrite_null(w);
		return;
	}
	write_code(w, "after", at->after);
	if (p->keys && p->keys[at->table].columns.n > 0)
		write_code(w, "key", p->keys[at->table].columns);
	if (p->keys && p->keys[at->table].types.n > 0)
		write_code(w, "keyTypes", p->keys[at->table].types);
}

static void
write_place(struct jwrite *w, const struct pointer *p,
	const struct pointer_place *at)
{
	write_lsn(w, "lsn", at->lsn);
	jwrite_key(w, "inTxn");
	if (at->in_txn) {
		jwrite_object(w);
		write_lsn(w, "commitLsn", at->txn_commit_lsn);
		jwrite_kv_i64(w, "done", (int64_t)at->txn_done);
		jwrite_end(w);
	} else {
		jwrite_null(w);
	}
	jwrite_key(w, "snapshot");
	if (!at->in_snapshot) {
		jwrite_null(w);
		return;
	}
	jwrite_object(w);
	jwrite_key(w, "tables");
	jwrite_array(w);
	for (size_t i = 0; i < p->tables_n; i++)
		jwrite_str(w, p->tables[i]);
	jwrite_end(w);
	jwrite_kv_str(w, "table", p->tables[at->table]);
	write_after(w, p, at);
	jwrite_kv_i64(w, "rows", (int64_t)at->rows);
	jwrite_end(w);
}

void
pointer_write(struct buf *b, const struct pointer *p,
	const struct pointer_place *at, int64_t now_us)
{
	struct jwrite w;

	jwrite_init(&w, b);
	jwrite_object(&w);
	jwrite_kv_i64(&w, "v", FORMAT);
	jwrite_kv_cstr(&w, "epoch", p->epoch);
	if (p->cell[0])
		jwrite_kv_cstr(&w, "cell", p->cell);
	jwrite_kv_str(&w, "systemId", p->system_id);
	if (p->timeline)
		jwrite_kv_i64(&w, "timeline", p->timeline);
	jwrite_kv_str(&w, "slot", p->slot);
	if (p->publication.n)
		jwrite_kv_str(&w, "publication", p->publication);
	write_place(&w, p, at);
	if (p->resynced_at.n)
		jwrite_kv_str(&w, "resyncedAt", p->resynced_at);
	jwrite_key(&w, "updatedAt");
	jwrite_iso_us(&w, now_us);
	jwrite_end(&w);
}

/* ---- copies and comparisons ---- */

void
pointer_copy(struct pointer *to, const struct pointer *from)
{
	struct arena a = ARENA_ZERO;

	*to = *from;
	to->system_id = arena_dup(&a, from->system_id);
	to->slot = arena_dup(&a, from->slot);
	to->publication = arena_dup(&a, from->publication);
	to->resynced_at = arena_dup(&a, from->resynced_at);
	to->tables = arena_alloc(&a, from->tables_n * sizeof(*to->tables));
	for (size_t i = 0; i < from->tables_n; i++)
		to->tables[i] = arena_dup(&a, from->tables[i]);
	if (from->keys)
		to->keys = arena_alloc(&a, from->tables_n * sizeof(*to->keys));
	for (size_t i = 0; from->keys && i < from->tables_n; i++)
		to->keys[i] = (struct pointer_key){
			.columns = arena_dup(&a, from->keys[i].columns),
			.types = arena_dup(&a, from->keys[i].types)
		};
	to->place.after = arena_dup(&a, from->place.after);
	to->arena = a;
}

bool
pointer_place_same(const struct pointer_place *a, const struct pointer_place *b)
{
	if (a->lsn != b->lsn || a->in_txn != b->in_txn ||
		a->in_snapshot != b->in_snapshot)
		return false;
	if (a->in_txn && (a->txn_commit_lsn != b->txn_commit_lsn ||
				 a->txn_done != b->txn_done))
		return false;
	if (!a->in_snapshot)
		return true;
	return a->table == b->table && a->rows == b->rows &&
	       a->has_after == b->has_after &&
	       (!a->has_after || span_eq(a->after, b->after));
}

static bool
same_run(const struct pointer *a, const struct pointer *b)
{
	if (a->tables_n != b->tables_n)
		return false;
	for (size_t i = 0; i < a->tables_n; i++) {
		if (!span_eq(a->tables[i], b->tables[i]))
			return false;
	}
	return true;
}

bool
pointer_is_at(const struct pointer *p, const struct pointer *ours,
	const struct pointer_place *place)
{
	return strcmp(p->epoch, ours->epoch) == 0 &&
	       pointer_place_same(&p->place, place) &&
	       (!place->in_snapshot || same_run(p, ours));
}
