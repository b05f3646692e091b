/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream's own order: begin, commit, relations, marks.  The tail is the
 * place that holds once all that is queued has committed; what ends at or
 * before it is dropped, so a server that sends again changes nothing.
 */
#include "pipeline.h"

#include <stdlib.h>

#include "err.h"
#include "pipeline_int.h"
#include "shape.h"

enum { IDLE_STEP_MS = 10000 };

static void
set_tail(struct pipeline *p, const struct pointer_place *at)
{
	struct span after = at->after;

	p->tail = *at;
	if (!at->in_snapshot || !at->has_after)
		return;
	/* it may be the key we have */
	if (after.p != p->tail_key.p || after.n != p->tail_key.len) {
		buf_reset(&p->tail_key);
		buf_put_span(&p->tail_key, after);
	}
	p->tail.after = buf_span(&p->tail_key);
}

void
pipeline_init(struct pipeline *p, const struct pipeline_conf *conf,
	const struct pointer *pointer, uint64_t first_chunk)
{
	*p = (struct pipeline){ .conf = conf, .types = TYPES_ZERO };
	pointer_copy(&p->pointer, pointer);
	unit_queue_init(&p->queue);
	snapshot_init(&p->snapshot, first_chunk);
	p->chunk_rows = snapshot_first_limit(conf->chunk_rows);
	set_tail(p, &p->pointer.place);
}

void
pipeline_fini(struct pipeline *p)
{
	struct relation *r;
	size_t at = 0;

	while ((r = map_next(&p->relations, &at))) {
		shape_free(r->shape);
		free(r);
	}
	map_fini(&p->relations);
	snapshot_fini(&p->snapshot);
	unit_queue_fini(&p->queue);
	unit_free(p->open);
	types_fini(&p->types);
	pointer_fini(&p->pointer);
	buf_fini(&p->tail_key);
	buf_fini(&p->scratch);
	arena_fini(&p->arena);
}

void
pipeline_queue(
	struct pipeline *p, struct unit *u, const struct pointer_place *cover)
{
	unit_cover(u, cover);
	p->messages += u->n;
	set_tail(p, cover);
	unit_queue_put(&p->queue, u);
}

/* ---- relations ---- */

struct relation *
pipeline_relation(struct pipeline *p, uint32_t oid)
{
	int64_t key = oid;

	return map_get(&p->relations, map_hash_i64(key), map_is_i64, &key);
}

bool
pipeline_is_to_copy(const struct pipeline *p, const struct relation *r)
{
	return p->tail.in_snapshot && r->run_table >= (int64_t)p->tail.table;
}

static const struct shape_table *
table_named(const struct pipeline *p, const struct pgoutput_relation *m)
{
	for (size_t i = 0; i < p->conf->tables_n; i++) {
		const struct shape_table *t = &p->conf->tables[i];

		if (span_eq(t->schema, m->schema) && span_eq(t->name, m->name))
			return t;
	}
	return NULL;
}

static int64_t
number_in_run(const struct pipeline *p, struct span label)
{
	for (size_t i = 0; i < p->pointer.tables_n; i++) {
		if (span_eq(p->pointer.tables[i], label))
			return (int64_t)i;
	}
	return PIPELINE_NOT_IN_RUN;
}

static struct relation *
add_relation(struct pipeline *p, const struct pgoutput_relation *m,
	const struct shape_table *table)
{
	struct relation *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	r->oid = m->oid;
	r->table = table;
	r->run_table =
		table ? number_in_run(p, table->label) : PIPELINE_NOT_IN_RUN;
	map_put(&p->relations, map_hash_i64(r->oid), r);
	return r;
}

/* Chunk and stream know a row by the same key, or it would come twice. */
static bool
keeps_key(const struct shape *s)
{
	const struct shape_table *t = s->table;

	if (s->key_n != t->key_n)
		return false;
	for (size_t i = 0; i < s->key_n; i++) {
		if (!span_eq(s->columns[s->key[i]].name, t->key[i]))
			return false;
	}
	return true;
}

void
pipeline_found_at(struct pipeline *p, uint64_t lsn)
{
	p->found_lsn = lsn;
}

/* Other columns than a chunk would be read with. */
static bool
is_new_shape(const struct pipeline *p, const struct relation *r,
	const struct shape *s)
{
	if (r->shape)
		return !shape_same(r->shape, s);
	return p->found_lsn && p->begin.final_lsn > p->found_lsn &&
	       !shape_is_as_found(s);
}

bool
pipeline_wants_restart(const struct pipeline *p)
{
	return p->reshaped && !p->in_txn && p->queue.units == 0;
}

static enum pipeline_result
reshape(struct pipeline *p, struct relation *r, struct shape *s, struct err *e)
{
	if (pipeline_is_to_copy(p, r)) {
		if (!keeps_key(s)) {
			err_set(e, ERR_CONFIG,
				"the key of %.*s changed while the table is "
				"being copied: resync",
				SPAN_ARG(r->table->label));
			shape_free(s);
			return PIPELINE_CHANGED;
		}
		p->reshaped |= is_new_shape(p, r, s);
	}
	shape_free(r->shape);
	r->shape = s;
	return PIPELINE_OK;
}

static enum pipeline_result
on_relation(struct pipeline *p, struct pipeline_ask *ask, struct err *e)
{
	const struct pgoutput_relation *m = &p->held.relation;
	struct relation *r = pipeline_relation(p, m->oid);
	const struct shape_table *table = r ? r->table : table_named(p, m);
	struct shape *s;

	if (!table) {
		if (!r)
			add_relation(p, m, NULL);
		return PIPELINE_OK;
	}
	switch (shape_new(table, m, &p->types, &s, &ask->type_oid, e)) {
	case SHAPE_ASK:
		return PIPELINE_ASK_TYPE;
	case SHAPE_CHANGED:
		return PIPELINE_CHANGED;
	case SHAPE_OK:
		break;
	}
	if (!r)
		r = add_relation(p, m, table);
	return reshape(p, r, s, e);
}

/* ---- transactions ---- */

static enum pipeline_result
on_begin(struct pipeline *p, struct err *e)
{
	const struct pgoutput_begin *b = &p->held.begin;
	const struct pointer_place *t = &p->tail;

	if (p->in_txn) {
		err_set(e, ERR_IO, "the stream began a transaction in another");
		return PIPELINE_BAD;
	}
	p->in_txn = true;
	p->begin = *b;
	p->raw = 0;
	p->skip = t->in_txn && t->txn_commit_lsn == b->final_lsn ? t->txn_done
								 : 0;
	p->covered = b->final_lsn < t->lsn;
	p->produced = p->skip > 0;
	snapshot_begin(&p->snapshot);
	return PIPELINE_OK;
}

static void
queue_txn(struct pipeline *p, uint64_t end_lsn)
{
	struct pointer_place at = p->tail;
	struct unit *u = p->open ? p->open : unit_new();

	at.lsn = end_lsn;
	if (at.txn_commit_lsn <= p->begin.final_lsn)
		at.in_txn = false;
	u->ends_txn = p->produced;
	u->commit_at_us = p->begin.at_us;
	p->transactions += p->produced;
	p->open = NULL;
	pipeline_queue(p, u, &at);
}

static enum pipeline_result
on_commit(struct pipeline *p, struct err *e)
{
	const struct pgoutput_commit *c = &p->held.commit;

	if (!p->in_txn || c->commit_lsn != p->begin.final_lsn) {
		err_set(e, ERR_IO,
			"the stream committed what it did not begin");
		return PIPELINE_BAD;
	}
	p->in_txn = false;
	snapshot_commit(&p->snapshot, p->begin.xid);
	if (!p->covered && c->end_lsn > p->tail.lsn) {
		queue_txn(p, c->end_lsn);
		return PIPELINE_OK;
	}
	unit_free(p->open);
	p->open = NULL;
	return PIPELINE_OK;
}

/* Steps that wait for company may go on waiting, but for ten seconds only. */
static bool
is_idle(const struct pipeline *p)
{
	const struct unit_queue *q = &p->queue;

	return !p->in_txn && !p->tail.in_txn && q->messages == 0 &&
	       q->forced == 0 && q->in_flight == 0;
}

void
pipeline_idle(struct pipeline *p, uint64_t lsn, int64_t now_ms)
{
	struct pointer_place at = p->tail;
	struct unit *u;

	if (!is_idle(p) || lsn < at.lsn ||
		(lsn == at.lsn && p->queue.units == 0))
		return;
	if (p->has_advanced && now_ms - p->advanced_ms < IDLE_STEP_MS)
		return;
	p->has_advanced = true;
	p->advanced_ms = now_ms;
	at.lsn = lsn;
	u = unit_new();
	u->forced = true;
	pipeline_queue(p, u, &at);
}

/* `queen:<epoch>`, outside of any transaction: nobody else's. */
static bool
is_ours(const struct pipeline *p, const struct pgoutput_message *m)
{
	struct span prefix = SPAN_LIT("queen:");

	return !m->transactional && !p->in_txn && m->prefix.n > prefix.n &&
	       memcmp(m->prefix.p, prefix.p, prefix.n) == 0 &&
	       span_is(span_make(
			       m->prefix.p + prefix.n, m->prefix.n - prefix.n),
		       p->pointer.epoch);
}

static enum pipeline_result
on_message(struct pipeline *p, int64_t now_ms)
{
	const struct pgoutput_message *m = &p->held.message;

	if (!is_ours(p, m))
		return PIPELINE_OK;
	return pipeline_mark(p, m, now_ms);
}

enum pipeline_result
pipeline_resume(struct pipeline *p, int64_t now_ms, struct pipeline_ask *ask,
	struct err *e)
{
	switch (p->held.kind) {
	case PGOUTPUT_BEGIN:
		return on_begin(p, e);
	case PGOUTPUT_COMMIT:
		return on_commit(p, e);
	case PGOUTPUT_RELATION:
		return on_relation(p, ask, e);
	case PGOUTPUT_INSERT:
	case PGOUTPUT_UPDATE:
	case PGOUTPUT_DELETE:
		return pipeline_change(p, now_ms, ask, e);
	case PGOUTPUT_TRUNCATE:
		return pipeline_truncate(p, now_ms, e);
	case PGOUTPUT_MESSAGE:
		return on_message(p, now_ms);
	case PGOUTPUT_OTHER:
	case PGOUTPUT_ORIGIN:
	case PGOUTPUT_TYPE:
		break;
	}
	return PIPELINE_OK;
}

enum pipeline_result
pipeline_feed(struct pipeline *p, struct span data, int64_t now_ms,
	struct pipeline_ask *ask, struct err *e)
{
	arena_reset(&p->arena);
	p->has_row = false;
	if (pgoutput_parse(data, &p->arena, &p->held, e) != 0)
		return PIPELINE_BAD;
	return pipeline_resume(p, now_ms, ask, e);
}
