/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks in the stream, and the chunks of a copy between them.  A chunk's rows
 * are queued at its high watermark, behind every event that came before it,
 * in parts whose covers say how far the copy is.
 */
#include "pipeline_int.h"

#include "event.h"
#include "shape.h"

static const struct shape_table *
table_labelled(const struct pipeline *p, struct span label)
{
	for (size_t i = 0; i < p->conf->tables_n; i++) {
		if (span_eq(p->conf->tables[i].label, label))
			return &p->conf->tables[i];
	}
	return NULL;
}

static void
to_next_table(const struct pipeline *p, struct pointer_place *at)
{
	at->has_after = false;
	at->in_snapshot = ++at->table < p->pointer.tables_n;
}

/* Part of the copy; a step without messages must be written all the same. */
static void
queue_part(struct pipeline *p, struct unit *u, const struct pointer_place *at)
{
	u->forced = u->n == 0;
	pipeline_queue(p, u, at);
	if (!at->in_snapshot)
		snapshot_fini(&p->snapshot);
}

bool
pipeline_next_chunk(struct pipeline *p, struct pipeline_chunk *c)
{
	struct pointer_place at;

	if (p->snapshot.chunk || p->reshaped ||
		p->queue.messages >= p->conf->limits.messages)
		return false;
	while (p->tail.in_snapshot) {
		const struct shape_table *t =
			table_labelled(p, p->pointer.tables[p->tail.table]);

		if (t) {
			*c = (struct pipeline_chunk){ .run_table =
							      p->tail.table,
				.table = t,
				.has_after = p->tail.has_after,
				.after = p->tail.after,
				.limit_rows = p->chunk_rows };
			return true;
		}
		at = p->tail;
		to_next_table(p, &at);
		queue_part(p, unit_new(), &at);
	}
	return false;
}

/* ---- at the high watermark ---- */

struct copy {
	struct unit *u; /* the part being filled */
	struct pointer_place at; /* its cover, so far */
};

static void
copy_item(struct pipeline *p, struct copy *k, const struct snapshot_item *item,
	struct event_at *at, int64_t now_ms)
{
	const struct bundle_limits *l = &p->conf->limits;
	const struct shape *s = p->snapshot.chunk->shape;
	struct event ev = { .op = 'r', .key = item->row, .after = item->row };
	struct buf *b = &p->scratch;
	struct message m = { .queue = s->table->queue };
	size_t id, payload;

	at->seq = item->seq;
	buf_reset(b);
	shape_partition(s, item->row, b);
	id = b->len;
	if (item->fill)
		event_fill_id(b, p->pointer.epoch, at);
	else
		event_id(b, p->pointer.epoch, at, 0);
	payload = b->len;
	if (item->fill)
		event_write_fill(b, s, item->row, item->fill, at);
	else
		event_write(b, s, &ev, at);
	m.partition = span_make(b->p, id);
	m.id = span_make(b->p + id, payload - id);
	m.payload = span_make(b->p + payload, b->len - payload);
	if (k->u->n > 0 &&
		(k->u->n + 1 > l->messages ||
			k->u->bytes + unit_message_bytes(&m) > l->bytes)) {
		pipeline_queue(p, k->u, &k->at);
		k->u = unit_new();
	}
	unit_add(k->u, &m, now_ms);
	k->at.has_after = true;
	k->at.after = item->key_code;
	if (!item->fill) {
		k->at.rows++;
		p->snapshot_rows++;
	}
}

static void
copy_chunk(struct pipeline *p, uint64_t high_lsn, int64_t now_ms)
{
	struct snapshot_chunk *c = p->snapshot.chunk;
	struct copy k = { .u = unit_new(), .at = p->tail };
	struct event_at at = { .at_us = c->read_at_us, .snapshot = true };
	struct snapshot_item item;

	if (k.at.lsn < high_lsn)
		k.at.lsn = high_lsn;
	at.lsn = k.at.lsn;
	while (snapshot_next(&p->snapshot, &item))
		copy_item(p, &k, &item, &at, now_ms);
	if (snapshot_is_last(c)) {
		to_next_table(p, &k.at);
		p->chunk_rows = snapshot_first_limit(p->conf->chunk_rows);
	} else {
		k.at.has_after = true;
		k.at.after = c->last_key;
		p->chunk_rows = snapshot_limit(c, p->conf->chunk_rows);
	}
	queue_part(p, k.u, &k.at);
	snapshot_forget(&p->snapshot);
}

/* ---- marks ---- */

/* `lw:17` */
static bool
mark_number(struct span s, const char *kind, uint64_t *n)
{
	uint64_t v = 0;

	if (s.n < 4 || memcmp(s.p, kind, 3) != 0)
		return false;
	for (size_t i = 3; i < s.n; i++) {
		unsigned d = (unsigned)(unsigned char)s.p[i] - '0';

		if (d > 9 || v > (UINT64_MAX - d) / 10)
			return false;
		v = v * 10 + d;
	}
	*n = v;
	return true;
}

enum pipeline_result
pipeline_mark(
	struct pipeline *p, const struct pgoutput_message *m, int64_t now_ms)
{
	uint64_t n;

	if (span_is(m->content, "hb")) {
		pipeline_idle(p, m->lsn, now_ms);
	} else if (mark_number(m->content, "lw:", &n)) {
		snapshot_low(&p->snapshot, n);
	} else if (mark_number(m->content, "hw:", &n)) {
		switch (snapshot_high(&p->snapshot, n)) {
		case SNAPSHOT_EARLY:
			return PIPELINE_ASK_CHUNK;
		case SNAPSHOT_COMPLETE:
			copy_chunk(p, m->lsn, now_ms);
			break;
		case SNAPSHOT_NOT_OURS:
			break;
		}
	}
	return PIPELINE_OK;
}
