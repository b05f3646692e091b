/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last step: the pointer's row, and all that a run needs in one piece.
 * The row is created, replaced or taken over by compare-and-set; whoever loses
 * it has lost the source.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "conndoc.h"
#include "connchild.h"
#include "ctx.h"
#include "err.h"
#include "start_int.h"

/* ---- what was found ---- */

static enum shape_by
shape_by(enum conndoc_by by)
{
	return by == CONNDOC_BY_KEY      ? SHAPE_BY_KEY
	       : by == CONNDOC_BY_SINGLE ? SHAPE_BY_NOTHING
					 : SHAPE_BY_COLUMNS;
}

static struct span
label(const struct conndoc_table *want, struct arena *a)
{
	return arena_printf(a, "%.*s.%.*s", SPAN_ARG(want->table.schema),
		SPAN_ARG(want->table.name));
}

static size_t
key_n(const struct decide_table *t)
{
	size_t n = 0;

	while (decide_key(t, n))
		n++;
	return n;
}

static struct span *
dup_all(const struct span *s, size_t n, struct arena *a)
{
	struct span *d = arena_alloc(a, n * sizeof(*d) + 1);

	for (size_t i = 0; i < n; i++)
		d[i] = arena_dup(a, s[i]);
	return d;
}

static void
find_table(const struct conndoc_table *want, const struct decide_table *t,
	struct arena *a, struct shape_table *shape, struct start_table *about)
{
	size_t n = key_n(t);
	struct span *key = arena_alloc(a, n * sizeof(*key));

	about->oid = t->oid;
	about->partitioned = t->kind == 'p';
	about->key_types = arena_alloc(a, n * sizeof(*about->key_types));
	for (size_t i = 0; i < n; i++) {
		key[i] = arena_dup(a, decide_key(t, i)->name);
		about->key_types[i] = arena_dup(a, decide_key(t, i)->type);
	}
	about->columns =
		arena_alloc(a, t->columns_n * sizeof(*about->columns) + 1);
	for (size_t i = 0; i < t->columns_n; i++)
		if (t->columns[i].published)
			about->columns[about->columns_n++] =
				arena_dup(a, t->columns[i].name);
	*shape = (struct shape_table){
		.schema = arena_dup(a, want->table.schema),
		.name = arena_dup(a, want->table.name),
		.label = label(want, a),
		.queue = arena_dup(a, want->queue),
		.by = shape_by(want->by),
		.by_columns = dup_all(want->columns.p, want->columns.n, a),
		.by_n = want->columns.n,
		.key = key,
		.key_n = n,
		.columns = about->columns,
		.columns_n = about->columns_n,
	};
}

/* Its new owner says so in the same turn (pglink_give). */
static void
nobody(void *arg, const struct connfault *why)
{
	(void)arg;
	(void)why;
}

static void
give_link(struct start_link *l, struct pglink **to)
{
	pglink_give(l->k, nobody, NULL);
	*to = l->k;
	l->k = NULL;
}

static struct start_found *
found_of(struct start *s)
{
	const struct conndoc_source *d = &s->doc->source;
	struct start_found *f = calloc(1, sizeof(*f));
	size_t n = d->tables_n;

	BUG(!f);
	f->tables_n = n;
	f->tables = arena_zalloc(&f->arena, n * sizeof(*f->tables));
	f->about = arena_zalloc(&f->arena, n * sizeof(*f->about));
	for (size_t i = 0; i < n; i++)
		find_table(&d->tables[i], &s->tables[i], &f->arena,
			&f->tables[i], &f->about[i]);
	f->slot = arena_dup(&f->arena, s->slot_name);
	f->publication = arena_dup(&f->arena, s->publication_name);
	snprintf(f->system_id, sizeof(f->system_id), "%.*s",
		SPAN_ARG(s->system.id));
	f->timeline = s->system.timeline;
	f->server_version = s->server.version;
	f->failover = s->slot.failover;
	pointer_copy(&f->pointer, &s->pointer);
	f->version = s->version;
	give_link(&s->link_sql, &f->sql);
	give_link(&s->link_repl, &f->repl);
	return f;
}

static void
ready(struct start *s)
{
	start_answer(s, START_READY, found_of(s));
}

/* ---- the pointer ---- */

static void
on_put(struct start *s, const struct cellkv_row *row)
{
	if (!row->applied) {
		start_answer(s, START_FENCED, NULL);
		return;
	}
	s->version = row->version;
	ready(s);
}

static void
put(struct start *s)
{
	struct buf b = BUF_ZERO;

	start_say(s, "connecting", "writing the pointer", 0);
	pointer_write(&b, &s->pointer, &s->pointer.place, clk_wall_us());
	start_put(s, buf_span(&b), s->version, on_put);
	buf_fini(&b);
}

/* What this start has made sure of, whatever the row says. */
static void
identify(struct start *s)
{
	struct pointer *p = &s->pointer;

	p->publication = s->publication_name;
	p->timeline = s->system.timeline;
	memcpy(p->cell, s->x->cell_tag, sizeof(p->cell));
}

/* The configured table of this label; NULL: there is none any more. */
static const struct decide_table *
labelled(struct start *s, struct span text)
{
	const struct conndoc_source *d = &s->doc->source;

	for (size_t i = 0; i < d->tables_n; i++)
		if (span_eq(label(&d->tables[i], &s->arena), text))
			return &s->tables[i];
	return NULL;
}

/* What the places in a copy, from now on, are places by. */
static void
set_keys(struct start *s)
{
	struct pointer *p = &s->pointer;

	p->keys = arena_zalloc(&s->arena, p->tables_n * sizeof(*p->keys));
	for (size_t i = 0; i < p->tables_n; i++) {
		const struct decide_table *t = labelled(s, p->tables[i]);

		if (t)
			p->keys[i] = decide_pointer_key(t, &s->arena);
	}
}

static void
set_epoch(char out[POINTER_EPOCH_MAX])
{
	unsigned char raw[4];

	randombytes_buf(raw, sizeof(raw));
	sodium_bin2hex(out, POINTER_EPOCH_MAX, raw, sizeof(raw));
}

void
start_fresh(struct start *s, uint64_t lsn)
{
	const struct conndoc_source *d = &s->doc->source;
	struct span resynced = s->pointer.resynced_at;
	struct pointer *p = &s->pointer;
	struct arena keep = p->arena;

	if (s->doc->resync_requested_at.n)
		resynced = s->doc->resync_requested_at;
	*p = (struct pointer){ .arena = keep,
		.system_id = s->system.id,
		.slot = s->slot_name,
		.place = { .lsn = lsn } };
	set_epoch(p->epoch);
	identify(s);
	if (s->resync)
		p->resynced_at = resynced;
	if (s->resync || d->snapshot == CONNDOC_INITIAL) {
		p->place.in_snapshot = true;
		p->tables_n = d->tables_n;
		p->tables = arena_alloc(
			&s->arena, d->tables_n * sizeof(*p->tables));
		for (size_t i = 0; i < d->tables_n; i++)
			p->tables[i] = label(&d->tables[i], &s->arena);
		set_keys(s);
	}
	put(s);
}

void
start_use(struct start *s)
{
	struct pointer *p = &s->pointer;
	bool same_cell =
		!p->cell[0] || span_is(span_of(s->x->cell_tag), p->cell);
	const struct decide_table *t =
		p->place.in_snapshot ? labelled(s, p->tables[p->place.table])
				     : NULL;
	struct connfault f;

	if (t && decide_after(p, t, s->x->task->name, &s->arena, &f) != 0) {
		start_fail(s, &f);
		return;
	}
	set_keys(s);
	identify(s);
	if (same_cell)
		ready(s);
	else
		put(s);
}
