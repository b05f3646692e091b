/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pointer document, read.  It lies in KV as jsonb, so members come back in
 * any order; what a later version adds is not minded, what is missing or of
 * the wrong type is corruption, never a default.
 */
#include "pointer.h"

#include "buf.h"
#include "err.h"
#include "jspan.h"
#include "wal.h"

enum { FORMAT = 1 };

/* What was found, for the checks at the end. */
struct reading {
	struct jspan j;
	struct pointer *p;
	bool v, epoch, system_id, slot, lsn;
	struct span table; /* of the snapshot */
	struct pointer_key key;
	bool has_table, has_rows;
};

static bool
take_text(struct reading *r, struct span *out)
{
	struct jspan_val v;
	struct span s;

	if (!jspan_take(&r->j, &v))
		return false;
	if (!jspan_text(&v, &r->p->arena, &s))
		return jspan_fail(&r->j, "expected a string");
	*out = arena_dup(&r->p->arena, s);
	return true;
}

static bool
take_u64(struct reading *r, uint64_t *out)
{
	struct jspan_val v;
	int64_t n;

	if (!jspan_take(&r->j, &v))
		return false;
	if (!jspan_i64(&v, &n) || n < 0)
		return jspan_fail(&r->j, "expected a number");
	*out = (uint64_t)n;
	return true;
}

static bool
take_lsn(struct reading *r, uint64_t *out)
{
	struct span s;

	return take_text(r, &s) &&
	       (wal_lsn_parse(s, out) || jspan_fail(&r->j, "expected an LSN"));
}

/* Exactly n lowercase hex digits and room for a NUL. */
static bool
take_hex(struct reading *r, char *out, size_t n)
{
	struct span s;

	if (!take_text(r, &s))
		return false;
	for (size_t i = 0; i < s.n; i++) {
		if (span_hex(s.p[i]) < 0 || (s.p[i] >= 'A' && s.p[i] <= 'F'))
			return jspan_fail(&r->j, "expected hex digits");
	}
	if (s.n != n)
		return jspan_fail(&r->j, "expected hex digits");
	memcpy(out, s.p, n);
	out[n] = '\0';
	return true;
}

/* True when null came and was taken. */
static bool
take_null(struct reading *r)
{
	struct jspan_val v;

	return jspan_peek(&r->j) == JSPAN_NULL && jspan_take(&r->j, &v);
}

static bool
skip(struct reading *r)
{
	struct jspan_val v;

	return jspan_take(&r->j, &v);
}

static void
read_txn(struct reading *r)
{
	struct pointer_place *at = &r->p->place;
	bool commit = false, done = false;
	struct span key;

	if (take_null(r) || !jspan_enter_object(&r->j))
		return;
	while (jspan_next_key(&r->j, &r->p->arena, &key)) {
		if (span_is(key, "commitLsn"))
			commit = take_lsn(r, &at->txn_commit_lsn);
		else if (span_is(key, "done"))
			done = take_u64(r, &at->txn_done);
		else
			skip(r);
	}
	if (!commit || !done)
		jspan_fail(&r->j, "inTxn is not whole");
	at->in_txn = true;
}

static void
read_tables(struct reading *r)
{
	struct pointer *p = r->p;
	size_t cap = 0;

	p->tables_n = 0;
	if (!jspan_enter_array(&r->j))
		return;
	while (jspan_next_item(&r->j)) {
		if (p->tables_n == cap)
			p->tables = arena_grown(&p->arena, p->tables,
				p->tables_n, &cap, sizeof(*p->tables));
		if (!take_text(r, &p->tables[p->tables_n++]))
			return;
	}
}

/* Key texts hold no NUL, so one can part them.  False: null. */
static bool
read_code(struct reading *r, struct span *out)
{
	struct buf code = BUF_ZERO;
	bool has = false;
	struct span s;

	if (take_null(r) || !jspan_enter_array(&r->j))
		return false;
	while (jspan_next_item(&r->j) && take_text(r, &s)) {
		if (s.n > 0 && memchr(s.p, '\0', s.n))
			jspan_fail(&r->j, "a key holds a NUL");
		if (has)
			buf_putc(&code, '\0');
		buf_put_span(&code, s);
		has = true;
	}
	if (!has)
		jspan_fail(&r->j, "a key of snapshot is empty");
	*out = arena_dup(&r->p->arena, buf_span(&code));
	buf_fini(&code);
	return has;
}

static void
read_snapshot(struct reading *r)
{
	struct pointer *p = r->p;
	struct span key;

	p->place.in_snapshot = false;
	if (take_null(r) || !jspan_enter_object(&r->j))
		return;
	while (jspan_next_key(&r->j, &p->arena, &key)) {
		if (span_is(key, "tables"))
			read_tables(r);
		else if (span_is(key, "table"))
			r->has_table = take_text(r, &r->table);
		else if (span_is(key, "after"))
			p->place.has_after = read_code(r, &p->place.after);
		else if (span_is(key, "key"))
			read_code(r, &r->key.columns);
		else if (span_is(key, "keyTypes"))
			read_code(r, &r->key.types);
		else if (span_is(key, "rows"))
			r->has_rows = take_u64(r, &p->place.rows);
		else
			skip(r);
	}
	p->place.in_snapshot = true;
}

static void
read_timeline(struct reading *r)
{
	uint64_t v = 0;

	if (!take_u64(r, &v))
		return;
	if (v == 0 || v > UINT32_MAX)
		jspan_fail(&r->j, "timeline is out of range");
	r->p->timeline = (uint32_t)v;
}

static void
read_format(struct reading *r)
{
	uint64_t v = 0;

	r->v = take_u64(r, &v);
	if (r->v && v != FORMAT)
		jspan_fail(&r->j, "it is of another format");
}

static void
read_member(struct reading *r, struct span key)
{
	struct pointer *p = r->p;

	if (span_is(key, "v"))
		read_format(r);
	else if (span_is(key, "epoch"))
		r->epoch = take_hex(r, p->epoch, POINTER_EPOCH_MAX - 1);
	else if (span_is(key, "cell"))
		take_hex(r, p->cell, POINTER_CELL_MAX - 1);
	else if (span_is(key, "systemId"))
		r->system_id = take_text(r, &p->system_id);
	else if (span_is(key, "slot"))
		r->slot = take_text(r, &p->slot);
	else if (span_is(key, "publication"))
		take_text(r, &p->publication);
	else if (span_is(key, "timeline"))
		read_timeline(r);
	else if (span_is(key, "lsn"))
		r->lsn = take_lsn(r, &p->place.lsn);
	else if (span_is(key, "inTxn"))
		read_txn(r);
	else if (span_is(key, "snapshot"))
		read_snapshot(r);
	else if (span_is(key, "resyncedAt"))
		take_text(r, &p->resynced_at);
	else
		skip(r);
}

/* What is wrong with a document that was read to its end; NULL nothing. */
static const char *
fault_of(struct reading *r)
{
	struct pointer *p = r->p;
	size_t i = 0;

	if (!r->v || !r->epoch || !r->lsn || !r->system_id ||
		p->system_id.n == 0 || !r->slot || p->slot.n == 0)
		return "a member is missing";
	if (!p->place.in_snapshot)
		return NULL;
	if (!r->has_table || !r->has_rows)
		return "a member of snapshot is missing";
	while (i < p->tables_n && !span_eq(p->tables[i], r->table))
		i++;
	p->place.table = i;
	if (i == p->tables_n)
		return "snapshot.table is not in its list";
	if (r->key.columns.n > 0) {
		p->keys =
			arena_zalloc(&p->arena, p->tables_n * sizeof(*p->keys));
		p->keys[i] = r->key;
	}
	return NULL;
}

int
pointer_parse(struct span json, struct pointer *p, struct err *e)
{
	struct reading r = { .p = p };
	const char *fault;
	struct span key;

	*p = (struct pointer)POINTER_ZERO;
	jspan_open(&r.j, json);
	if (jspan_enter_object(&r.j)) {
		while (jspan_next_key(&r.j, &p->arena, &key))
			read_member(&r, key);
	}
	fault = jspan_end(&r.j) ? fault_of(&r) : r.j.error;
	if (!fault)
		return 0;
	pointer_fini(p);
	return err_set(e, ERR_INPUT, "the pointer cannot be read: %s", fault);
}
