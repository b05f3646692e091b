/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes become messages of the open unit, and effects on the snapshot.  A
 * transaction too large for a bundle is cut before a change, never inside
 * one, at a count of raw changes: it holds under any other configuration.
 */
#include "pipeline_int.h"

#include "err.h"
#include "event.h"
#include "shape.h"

static struct event_at
here(const struct pipeline *p)
{
	return (struct event_at){ .lsn = p->begin.final_lsn,
		.at_us = p->begin.at_us,
		.seq = p->raw,
		.xid = p->begin.xid };
}

/* Has this change to go to the queue? */
static bool
is_wanted(const struct pipeline *p)
{
	return !p->covered && p->raw >= p->skip;
}

/* ---- pending messages ---- */

/* Bytes of one message in the scratch buffer, until all of them are known. */
struct draft {
	struct span queue;
	size_t partition, id, payload, end;
};

static struct message
message_of(const struct pipeline *p, const struct draft *d)
{
	const char *base = p->scratch.p;

	return (struct message){ .queue = d->queue,
		.partition =
			span_make(base + d->partition, d->id - d->partition),
		.id = span_make(base + d->id, d->payload - d->id),
		.payload = span_make(base + d->payload, d->end - d->payload) };
}

static void
cut(struct pipeline *p)
{
	struct pointer_place at = p->tail;
	struct unit *u = p->open;

	at.in_txn = true;
	at.txn_commit_lsn = p->begin.final_lsn;
	at.txn_done = p->raw;
	p->open = NULL;
	pipeline_queue(p, u, &at);
}

/* The messages of one change, together. */
static void
add(struct pipeline *p, const struct draft *d, size_t n, int64_t now_ms)
{
	const struct bundle_limits *l = &p->conf->limits;
	size_t bytes = 0;

	for (size_t i = 0; i < n; i++) {
		struct message m = message_of(p, &d[i]);

		bytes += unit_message_bytes(&m);
	}
	if (p->open && p->open->n > 0 &&
		(p->open->n + n > l->messages ||
			p->open->bytes + bytes > l->bytes))
		cut(p);
	if (!p->open)
		p->open = unit_new();
	for (size_t i = 0; i < n; i++) {
		struct message m = message_of(p, &d[i]);

		unit_add(p->open, &m, now_ms);
	}
	p->produced = true;
}

static void
emit(struct pipeline *p, const struct shape *s, const struct event *ev,
	size_t n, int64_t now_ms)
{
	struct event_at at = here(p);
	struct buf *b = &p->scratch;
	struct draft d[2];

	buf_reset(b);
	for (size_t i = 0; i < n; i++) {
		d[i].queue = s->table->queue;
		d[i].partition = b->len;
		shape_partition(s, ev[i].key, b);
		d[i].id = b->len;
		event_id(b, p->pointer.epoch, &at, i);
		d[i].payload = b->len;
		event_write(b, s, &ev[i], &at);
		d[i].end = b->len;
	}
	add(p, d, n, now_ms);
}

/* ---- effects on a copy in progress ---- */

static void
touch_row(struct pipeline *p, const struct relation *r,
	enum snapshot_effect kind, const struct tuple *row)
{
	struct span *unchanged = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < row->n; i++) {
		if (row->d[i].state != DATUM_UNCHANGED)
			continue;
		if (n == cap)
			unchanged = arena_grown(&p->arena, unchanged, n, &cap,
				sizeof(*unchanged));
		unchanged[n++] = r->shape->columns[i].name;
	}
	buf_reset(&p->scratch);
	shape_key_code(r->shape, row, &p->scratch);
	snapshot_touch(&p->snapshot, (size_t)r->run_table, kind,
		buf_span(&p->scratch), unchanged, n);
}

static void
touch(struct pipeline *p, const struct relation *r)
{
	const struct pgoutput *m = &p->held;
	const struct pgoutput_change *c = &m->change;

	if (!pipeline_is_to_copy(p, r))
		return;
	if (m->kind == PGOUTPUT_DELETE) {
		touch_row(p, r, SNAPSHOT_DELETE, &c->old);
	} else if (m->kind == PGOUTPUT_INSERT) {
		touch_row(p, r, SNAPSHOT_PUT, &c->new);
	} else if (event_moves_key(r->shape, m)) {
		touch_row(p, r, SNAPSHOT_PUT, &c->new);
		touch_row(p, r, SNAPSHOT_DELETE, &c->old);
	} else {
		touch_row(p, r, SNAPSHOT_UPDATE, &c->new);
	}
}

static enum pipeline_result
not_described(struct err *e, uint32_t oid)
{
	err_set(e, ERR_IO,
		"the stream changed relation %u without describing "
		"it",
		oid);
	return PIPELINE_BAD;
}

static enum pipeline_result
not_begun(struct err *e)
{
	err_set(e, ERR_IO, "the stream sent a change outside a transaction");
	return PIPELINE_BAD;
}

enum pipeline_result
pipeline_change(struct pipeline *p, int64_t now_ms, struct pipeline_ask *ask,
	struct err *e)
{
	struct pgoutput_change *c = &p->held.change;
	const struct relation *r = pipeline_relation(p, c->relation);
	struct event ev[2];
	size_t n;

	if (!p->in_txn)
		return not_begun(e);
	if (!r)
		return not_described(e, c->relation);
	if (!r->table) {
		p->raw++;
		return PIPELINE_OK;
	}
	if (is_wanted(p) && !p->has_row &&
		event_wants_row(r->shape, &p->held)) {
		p->has_row = true;
		ask->shape = r->shape;
		ask->row = &c->new;
		ask->arena = &p->arena;
		return PIPELINE_ASK_ROW;
	}
	n = event_plan(r->shape, &p->held, ev, e);
	if (n == 0)
		return PIPELINE_BAD;
	touch(p, r);
	if (is_wanted(p))
		emit(p, r->shape, ev, n, now_ms);
	p->raw++;
	return PIPELINE_OK;
}

/* ---- truncate ---- */

/* The configured tables among those truncated; all have been described. */
static bool
truncated(struct pipeline *p, const struct relation **list, size_t *n,
	struct err *e)
{
	const struct pgoutput_truncate *t = &p->held.truncate;

	*n = 0;
	for (size_t i = 0; i < t->n; i++) {
		const struct relation *r =
			pipeline_relation(p, t->relations[i]);

		if (!r) {
			not_described(e, t->relations[i]);
			return false;
		}
		if (r->table)
			list[(*n)++] = r;
	}
	return true;
}

/* One event per queue, in the order the queues are first met. */
static void
emit_truncate(struct pipeline *p, const struct relation **list, size_t n,
	int64_t now_ms)
{
	struct draft *d = arena_alloc(&p->arena, n * sizeof(*d));
	struct span *labels = arena_alloc(&p->arena, n * sizeof(*labels));
	struct event_at at = here(p);
	struct buf *b = &p->scratch;
	size_t events = 0;

	buf_reset(b);
	for (size_t i = 0; i < n; i++) {
		struct span queue = list[i]->table->queue;
		size_t labels_n = 0, k = 0;

		while (k < i && !span_eq(list[k]->table->queue, queue))
			k++;
		if (k < i)
			continue;
		for (; k < n; k++) {
			if (span_eq(list[k]->table->queue, queue))
				labels[labels_n++] = list[k]->table->label;
		}
		d[events].queue = queue;
		d[events].partition = b->len;
		buf_puts(b, "all");
		d[events].id = b->len;
		event_id(b, p->pointer.epoch, &at, events);
		d[events].payload = b->len;
		event_write_truncate(
			b, labels, labels_n, &p->held.truncate, &at);
		d[events++].end = b->len;
	}
	add(p, d, events, now_ms);
}

enum pipeline_result
pipeline_truncate(struct pipeline *p, int64_t now_ms, struct err *e)
{
	const struct pgoutput_truncate *t = &p->held.truncate;
	const struct relation **list =
		arena_alloc(&p->arena, t->n * sizeof(struct relation *));
	size_t n;

	if (!p->in_txn)
		return not_begun(e);
	if (!truncated(p, list, &n, e))
		return PIPELINE_BAD;
	for (size_t i = 0; i < n; i++) {
		if (pipeline_is_to_copy(p, list[i]))
			snapshot_touch(&p->snapshot, (size_t)list[i]->run_table,
				SNAPSHOT_CLEAR, (struct span)SPAN_ZERO, NULL,
				0);
	}
	if (n > 0 && is_wanted(p)) {
		if (p->conf->emit_truncate)
			emit_truncate(p, list, n, now_ms);
		else
			p->truncates_skipped++;
	}
	p->raw++;
	return PIPELINE_OK;
}
