/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of a push.  A segment is compressed as soon as it is full, so that
 * no call does the work of a whole bundle.  Segments go out in rounds: the
 * first of every partition, then the second of those that have one, ...
 */
#include "packer.h"

#include <stdio.h>
#include <stdlib.h>

#include "err.h"
#include "frame.h"
#include "hash.h"
#include "pgbin.h"
#include "seal.h"
#include "seg.h"

struct packer_seg {
	struct packer_seg *next;
	struct buf frames; /* until it is closed */
	struct buf blob, ids;
	uint32_t n;
	size_t raw_bytes;
};

static void *
must(void *p)
{
	if (!p) {
		fprintf(stderr, "out of memory: segments\n");
		abort();
	}
	return p;
}

void
packer_init(struct packer *p, const struct seal *seal)
{
	*p = (struct packer){ .seal = seal };
}

void
packer_fini(struct packer *p)
{
	struct packer_seg *s;

	while ((s = p->first)) {
		p->first = s->next;
		buf_fini(&s->frames);
		buf_fini(&s->blob);
		buf_fini(&s->ids);
		free(s);
	}
	packer_init(p, NULL);
}

/* ---- filling ---- */

static size_t
seg_close(struct packer_seg *s)
{
	size_t bytes = s->frames.len;

	if (s->blob.len > 0)
		return 0;
	s->raw_bytes = bytes;
	seg_pack(buf_span(&s->frames), &s->blob);
	buf_fini(&s->frames);
	return bytes;
}

static struct packer_seg *
seg_begin(struct packer *p)
{
	struct packer_seg *s = must(calloc(1, sizeof(*s)));

	if (p->last)
		p->last->next = s;
	else
		p->first = s;
	p->last = s;
	p->segs_n++;
	return s;
}

static size_t
frame_bytes(const struct packer *p, const struct frame *f)
{
	/* an upper bound: its head, and a trace and subject if there are any */
	return 64 + f->txn.n + f->sub.n + f->payload.n +
	       (p->seal ? SEAL_OVERHEAD_BYTES : 0);
}

size_t
packer_add(struct packer *p, const struct frame *f, const struct hash_id *h)
{
	struct packer_seg *s = p->last;
	size_t bytes = frame_bytes(p, f), work = bytes;
	struct frame out = *f;
	struct buf room = BUF_ZERO;

	BUG(s && s->blob.len > 0);
	if (s && s->frames.len + bytes > SEG_RAW_CAP_BYTES) {
		work += seg_close(s);
		s = NULL;
	}
	if (!s)
		s = seg_begin(p);
	if (p->seal) {
		seal_box(p->seal, &f->id, f->payload, &room);
		out.payload = buf_span(&room);
		out.flags |= FRAME_SEALED;
	}
	frame_write(&s->frames, &out);
	buf_put(&s->ids, h->b, sizeof(h->b));
	s->n++;
	buf_fini(&room);
	return work;
}

size_t
packer_close(struct packer *p)
{
	return p->last ? seg_close(p->last) : 0;
}

/* ---- rounds ---- */

/* A segment and whose it is. */
struct piece {
	struct packer *of;
	const struct packer_seg *seg;
};

struct rounds {
	struct piece *pieces; /* in the order of the arrays */
	size_t n;
	size_t *ends, ends_n;
};

static int
by_part(const void *a, const void *b)
{
	const struct packer *const *p = a, *const *q = b;

	return ((*p)->part > (*q)->part) - ((*p)->part < (*q)->part);
}

/* What is left of a round for the next one: who has another segment. */
static size_t
round_add(struct rounds *r, struct piece *left, size_t n)
{
	size_t more = 0;

	for (size_t i = 0; i < n; i++) {
		struct piece at = left[i];

		r->pieces[r->n++] = at;
		if (at.seg->next)
			left[more++] = (struct piece){ at.of, at.seg->next };
	}
	r->ends[r->ends_n++] = r->n;
	return more;
}

static void
rounds_init(struct rounds *r, struct packer *const *p, size_t n)
{
	struct packer **sorted = must(calloc(n + 1, sizeof(struct packer *)));
	struct piece *left = must(calloc(n + 1, sizeof(*left)));
	size_t total = 0, most = 0;

	for (size_t i = 0; i < n; i++) {
		BUG(p[i]->segs_n == 0 || p[i]->last->blob.len == 0);
		sorted[i] = p[i];
		total += p[i]->segs_n;
		most = p[i]->segs_n > most ? p[i]->segs_n : most;
	}
	qsort(sorted, n, sizeof(struct packer *), by_part);
	for (size_t i = 0; i < n; i++) {
		BUG(i > 0 && sorted[i]->part == sorted[i - 1]->part);
		left[i] = (struct piece){ sorted[i], sorted[i]->first };
	}
	*r = (struct rounds){ .n = 0 };
	r->pieces = must(calloc(total + 1, sizeof(*r->pieces)));
	r->ends = must(calloc(most + 1, sizeof(*r->ends)));
	while (n > 0)
		n = round_add(r, left, n);
	free(sorted);
	free(left);
}

static void
rounds_fini(struct rounds *r)
{
	free(r->pieces);
	free(r->ends);
}

/* ---- arguments ---- */

static void
put_heads(struct pgargs *a, const struct rounds *r)
{
	pgargs_array(a, PGARGS_I32);
	for (size_t i = 0; i < r->ends_n; i++)
		pgargs_item_i32(a, (int32_t)r->ends[i]);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < r->n; i++)
		pgargs_item_i64(a, r->pieces[i].of->part);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	for (size_t i = 0; i < r->n; i++)
		pgargs_item_i32(a, (int32_t)r->pieces[i].seg->n);
	pgargs_close(a);
}

static void
put_bodies(struct pgargs *a, const struct rounds *r)
{
	pgargs_array(a, PGARGS_BYTEA);
	for (size_t i = 0; i < r->n; i++)
		pgargs_item_bytea(a, buf_span(&r->pieces[i].seg->ids));
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	for (size_t i = 0; i < r->n; i++)
		pgargs_item_i32(a, (int32_t)r->pieces[i].seg->raw_bytes);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I16);
	for (size_t i = 0; i < r->n; i++) {
		const struct seal *seal = r->pieces[i].of->seal;

		if (seal)
			pgargs_item_i16(a, (int16_t)seal_key_id(seal));
		else
			pgargs_item_null(a);
	}
	pgargs_close(a);
	pgargs_array(a, PGARGS_BYTEA);
	for (size_t i = 0; i < r->n; i++)
		pgargs_item_bytea(a, buf_span(&r->pieces[i].seg->blob));
	pgargs_close(a);
}

void
packer_args(struct pgargs *a, struct packer *const *p, size_t n)
{
	struct rounds r;

	rounds_init(&r, p, n);
	put_heads(a, &r);
	put_bodies(a, &r);
	rounds_fini(&r);
}
