/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of units sorted into partitions and packed.  Payloads stay where
 * they are, in the units; what is kept here is ids and finished segments.
 */
#include "batch.h"

#include <stdio.h>
#include <stdlib.h>

#include "connchild.h"
#include "err.h"
#include "frame.h"
#include "hash.h"
#include "map.h"
#include "names.h"
#include "packer.h"
#include "qid.h"
#include "seal.h"
#include "unit.h"

enum { TURN_BYTES = 512 << 10 };

static void *
array(size_t n, size_t item_bytes)
{
	void *p = calloc(n + 1, item_bytes);

	if (!p) {
		fprintf(stderr, "out of memory: %zu messages\n", n);
		abort();
	}
	return p;
}

/* ---- gathering ---- */

static bool
is_part(const void *item, const void *key)
{
	const struct names_part *a = item, *b = key;

	return a->queue == b->queue && span_eq(a->name, b->name);
}

/* Parts have room for as many as there are messages: they never move. */
static uint32_t
part_of(struct batch *b, struct map *seen, const struct names_part *want)
{
	uint64_t h =
		map_hash_span(want->name) ^ (uint64_t)(uintptr_t)want->queue;
	struct names_part *p = map_get(seen, h, is_part, want);

	if (!p) {
		p = &b->parts[b->parts_n++];
		*p = *want;
		map_put(seen, h, p);
	}
	return (uint32_t)(p - b->parts);
}

static size_t
count(const struct unit_queue *q, struct err *e)
{
	const struct unit *u = TAILQ_FIRST(&q->list);
	size_t n = 0;

	for (size_t i = 0; i < q->in_flight; i++, u = TAILQ_NEXT(u, link)) {
		for (size_t k = 0; k < u->n; k++) {
			struct message m = unit_message(u, k);

			if (m.payload.n > BATCH_MESSAGE_MAX)
				err_set(e, ERR_LIMIT,
					"an event for queue %.*s has %zu "
					"bytes, and a message at most %d",
					SPAN_ARG(m.queue), m.payload.n,
					BATCH_MESSAGE_MAX);
		}
		n += u->n;
	}
	return n;
}

static void
gather(struct batch *b, struct names *names)
{
	const struct unit *u = b->unit;
	struct names_part want = { .queue = NULL };
	struct map seen = MAP_ZERO;
	size_t at = 0;

	for (size_t i = 0; i < b->queue->in_flight;
		i++, u = TAILQ_NEXT(u, link)) {
		for (size_t k = 0; k < u->n; k++, at++) {
			struct message m = unit_message(u, k);

			if (!want.queue || !span_eq(want.queue->name, m.queue))
				want.queue = names_queue(names, m.queue);
			want.name = m.partition;
			b->ids[at] = qid_new();
			b->part_of[at] = part_of(b, &seen, &want);
		}
	}
	map_fini(&seen);
}

int
batch_init(struct batch *b, const struct unit_queue *q, struct names *names,
	struct err *e)
{
	size_t n = count(q, e);

	if (e->kind != ERR_NONE)
		return -1;
	*b = (struct batch){ .queue = q, .n = n };
	b->unit = TAILQ_FIRST(&q->list);
	b->ids = array(n, sizeof(*b->ids));
	b->part_of = array(n, sizeof(*b->part_of));
	b->parts = array(n, sizeof(*b->parts));
	gather(b, names);
	b->packers = array(b->parts_n, sizeof(*b->packers));
	b->packed = array(b->parts_n, sizeof(*b->packed));
	return 0;
}

void
batch_fini(struct batch *b)
{
	for (size_t i = 0; i < b->parts_n; i++)
		packer_fini(&b->packers[i]);
	free(b->ids);
	free(b->part_of);
	free(b->parts);
	free(b->packers);
	free(b->packed);
	*b = (struct batch){ .n = 0 };
}

/* ---- packing ---- */

const struct names_part *
batch_unsealable(const struct batch *b, const struct seal *ring)
{
	if (seal_key_id(ring) != SEAL_NO_KEY)
		return NULL;
	for (size_t i = 0; i < b->parts_n; i++) {
		if (b->parts[i].queue->sealed)
			return &b->parts[i];
	}
	return NULL;
}

/* Parts that are plain and may not be so begin anew; is there one? */
static bool
begin_again(struct batch *b, const struct seal *ring)
{
	bool any = false;

	for (size_t i = 0; i < b->parts_n; i++) {
		struct packer *p = &b->packers[i];

		if (b->packed[i] && (p->seal || !b->parts[i].queue->sealed))
			continue;
		packer_fini(p);
		packer_init(p, b->parts[i].queue->sealed ? ring : NULL);
		b->packed[i] = false;
		any = true;
	}
	if (any) {
		b->unit = TAILQ_FIRST(&b->queue->list);
		b->unit_i = b->message_i = b->part_i = 0;
	}
	return any;
}

static size_t
pack_message(struct batch *b, const uint8_t *hash_key)
{
	size_t part = b->part_of[b->message_i];
	struct message m = unit_message(b->unit, b->unit_i);
	struct frame f = {
		.id = b->ids[b->message_i], .txn = m.id, .payload = m.payload
	};
	struct hash_id h;

	if (b->packed[part])
		return 0;
	hash_id(hash_key, m.id, &h);
	return packer_add(&b->packers[part], &f, &h);
}

static bool
is_done(const struct batch *b)
{
	return b->message_i == b->n && b->part_i == b->parts_n;
}

bool
batch_pack(struct batch *b, const struct seal *ring, const uint8_t *hash_key)
{
	size_t work = 0;

	if ((b->message_i == 0 || is_done(b)) && !begin_again(b, ring))
		return true;
	for (; b->message_i < b->n && work < TURN_BYTES; b->message_i++) {
		while (b->unit_i == b->unit->n) {
			b->unit = TAILQ_NEXT(b->unit, link);
			b->unit_i = 0;
		}
		work += pack_message(b, hash_key);
		b->unit_i++;
	}
	for (; b->message_i == b->n && b->part_i < b->parts_n &&
		work < TURN_BYTES;
		b->part_i++) {
		work += packer_close(&b->packers[b->part_i]);
		b->packed[b->part_i] = true;
	}
	return is_done(b);
}

void
batch_args(struct pgargs *a, struct batch *b)
{
	struct packer **p = array(b->parts_n, sizeof(struct packer *));

	BUG(!is_done(b));
	for (size_t i = 0; i < b->parts_n; i++) {
		BUG(b->parts[i].id == 0);
		b->packers[i].part = b->parts[i].id;
		p[i] = &b->packers[i];
	}
	packer_args(a, p, b->parts_n);
	free(p);
}

/* ---- announcing ---- */

static int
by_queue(const void *a, const void *b)
{
	const struct names_part *const *p = a, *const *q = b;

	return ((*p)->queue->id > (*q)->queue->id) -
	       ((*p)->queue->id < (*q)->queue->id);
}

void
batch_announce(const struct batch *b, struct connchild *child)
{
	const struct names_part **p =
		array(b->parts_n, sizeof(const struct names_part *));
	int64_t *ids = array(b->parts_n, sizeof(*ids));
	size_t from = 0;

	for (size_t i = 0; i < b->parts_n; i++)
		p[i] = &b->parts[i];
	qsort(p, b->parts_n, sizeof(*p), by_queue);
	for (size_t i = 0; i < b->parts_n; i++) {
		ids[i] = p[i]->id;
		if (i + 1 < b->parts_n && p[i + 1]->queue == p[i]->queue)
			continue;
		connchild_announce(
			child, p[i]->queue->id, ids + from, i + 1 - from);
		from = i + 1;
	}
	free(p);
	free(ids);
}
