/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units and their queue.  A unit's bytes lie in one buffer and entries hold
 * places in it, so a unit grows without moving what is told about it.
 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "err.h"

/* One message: partition, id and payload follow each other in the data. */
struct unit_entry {
	struct span queue; /* borrowed */
	size_t at, partition_n, id_n, payload_n;
};

enum { MESSAGE_EXTRA_BYTES = 64 };

size_t
unit_message_bytes(const struct message *m)
{
	return m->queue.n + m->partition.n + m->id.n + m->payload.n +
	       MESSAGE_EXTRA_BYTES;
}

struct unit *
unit_new(void)
{
	struct unit *u = calloc(1, sizeof(*u));

	if (!u) {
		fprintf(stderr, "out of memory: a unit\n");
		abort();
	}
	return u;
}

void
unit_free(struct unit *u)
{
	if (!u)
		return;
	buf_fini(&u->data);
	free(u->entries);
	free(u);
}

static void
grow(struct unit *u)
{
	u->cap = u->cap ? u->cap * 2 : 4;
	u->entries = realloc(u->entries, u->cap * sizeof(*u->entries));
	if (!u->entries) {
		fprintf(stderr, "out of memory: %zu messages\n", u->cap);
		abort();
	}
}

void
unit_add(struct unit *u, const struct message *m, int64_t now_ms)
{
	/* the cover's key comes last into the buffer */
	BUG(u->cover.has_after);
	if (u->n == u->cap)
		grow(u);
	if (u->n == 0)
		u->at_ms = now_ms;
	u->entries[u->n++] = (struct unit_entry){ .queue = m->queue,
		.at = u->data.len,
		.partition_n = m->partition.n,
		.id_n = m->id.n,
		.payload_n = m->payload.n };
	buf_put_span(&u->data, m->partition);
	buf_put_span(&u->data, m->id);
	buf_put_span(&u->data, m->payload);
	u->bytes += unit_message_bytes(m);
}

struct message
unit_message(const struct unit *u, size_t i)
{
	const struct unit_entry *e = &u->entries[i];
	const char *p = u->data.p + e->at;

	BUG(i >= u->n);
	return (struct message){ .queue = e->queue,
		.partition = span_make(p, e->partition_n),
		.id = span_make(p + e->partition_n, e->id_n),
		.payload =
			span_make(p + e->partition_n + e->id_n, e->payload_n) };
}

void
unit_cover(struct unit *u, const struct pointer_place *place)
{
	size_t at = u->data.len;

	u->cover = *place;
	if (!place->in_snapshot || !place->has_after)
		return;
	buf_put_span(&u->data, place->after);
	/* an empty key may be all there is */
	u->cover.after = place->after.n > 0
				 ? span_make(u->data.p + at, place->after.n)
				 : SPAN_LIT("");
}

/* ---- the queue ---- */

void
unit_queue_init(struct unit_queue *q)
{
	*q = (struct unit_queue){ .units = 0 };
	TAILQ_INIT(&q->list);
}

void
unit_queue_fini(struct unit_queue *q)
{
	struct unit *u;

	while ((u = TAILQ_FIRST(&q->list))) {
		TAILQ_REMOVE(&q->list, u, link);
		unit_free(u);
	}
	unit_queue_init(q);
}

static bool
is_mere_step(const struct unit *u)
{
	return u->n == 0 && !u->forced;
}

void
unit_queue_put(struct unit_queue *q, struct unit *u)
{
	struct unit *last = TAILQ_LAST(&q->list, unit_list);

	if (last && q->units > q->in_flight && is_mere_step(last) &&
		is_mere_step(u)) {
		TAILQ_REMOVE(&q->list, last, link);
		q->units--;
		unit_free(last);
	}
	TAILQ_INSERT_TAIL(&q->list, u, link);
	q->units++;
	q->messages += u->n;
	q->bytes += u->bytes;
	q->forced += u->forced;
}

void
unit_queue_settle(struct unit_queue *q)
{
	for (; q->in_flight > 0; q->in_flight--) {
		struct unit *u = TAILQ_FIRST(&q->list);

		TAILQ_REMOVE(&q->list, u, link);
		q->units--;
		q->messages -= u->n;
		q->bytes -= u->bytes;
		unit_free(u);
	}
}
