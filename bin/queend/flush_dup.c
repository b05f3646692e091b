/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Original message ids of duplicates.  SQL told the offset; here the segments
 * that cover them are read, each once: a run of neighbours is asked for by its
 * two ends, and what lies between in yet another segment in the next round.
 * An original that can no longer be read has the nil id.
 */
#include <stdlib.h>
#include <string.h>

#include "catalog.h"
#include "err.h"
#include "flush_int.h"
#include "frame.h"
#include "pgpool.h"
#include "seg.h"

enum { ASK_MAX = 32 }; /* segments in one call, up to 1 MiB each */

static const struct pgstmt STMT_AT = { "segments_at",
	"select ord, base, last, blob "
	"from queen.segments_at_v1($1, $2, $3)" };

struct dup {
	const struct cat_part *part;
	struct flush_item *it;
	int64_t offset;
	bool found;
};

struct flush_dups {
	struct flush *f;
	struct dup *at;
	size_t n, cap;
	size_t asked[ASK_MAX]; /* indexes into at */
	int asked_n;
};

struct flush_dups *
flush_dups_new(struct flush *f)
{
	struct flush_dups *d = calloc(1, sizeof(*d));

	if (!d)
		abort();
	d->f = f;
	return d;
}

void
flush_dups_add(struct flush_dups *d, const struct cat_part *part,
	struct flush_item *it)
{
	if (d->n == d->cap) {
		d->cap = d->cap ? d->cap * 2 : 16;
		d->at = realloc(d->at, d->cap * sizeof(*d->at));
		if (!d->at)
			abort();
	}
	d->at[d->n++] =
		(struct dup){ .part = part, .it = it, .offset = it->offset };
}

static int
by_place(const void *a, const void *b)
{
	const struct dup *p = a, *q = b;

	/* tenant first: one call speaks for one */
	int c = memcmp(&p->part->queue->tenant, &q->part->queue->tenant,
		sizeof(p->part->queue->tenant));

	if (c)
		return c;
	if (p->part->id != q->part->id)
		return p->part->id < q->part->id ? -1 : 1;
	return (p->offset > q->offset) - (p->offset < q->offset);
}

static void
finish(struct flush_dups *d)
{
	for (size_t i = 0; i < d->n; i++)
		flush_complete(d->at[i].it, FLUSH_DUPLICATE);
	free(d->at);
	free(d);
}

/* The ids of the wanted offsets of one segment; dups are in order. */
static void
read_segment(struct flush_dups *d, size_t i, int64_t base, int64_t last,
	struct span blob)
{
	const struct cat_part *part = d->at[i].part;
	struct buf frames = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct frame fr = { .flags = 0 };
	int64_t next = base;

	while (i > 0 && d->at[i - 1].part == part &&
		d->at[i - 1].offset >= base)
		i--;
	bool good = seg_unpack(blob, &frames, &e) == 0;
	struct span rest = buf_span(&frames);

	for (; i < d->n && d->at[i].part == part && d->at[i].offset <= last;
		i++) {
		struct dup *p = &d->at[i];

		if (p->found)
			continue;
		while (good && next <= p->offset) {
			good = frame_next(&rest, &fr, &e) == 1;
			next++;
		}
		p->it->id = good ? fr.id : (struct qid){ .b = { 0 } };
		p->found = true;
	}
	buf_fini(&frames);
}

static void ask(struct flush_dups *d);

static void
on_segments(void *arg, const PGresult *res, const struct err *e)
{
	struct flush_dups *d = arg;

	if (e) {
		for (size_t i = 0; i < d->n; i++)
			if (!d->at[i].found)
				memset(&d->at[i].it->id, 0,
					sizeof(d->at[i].it->id));
		finish(d);
		return;
	}
	for (int i = 0; i < PQntuples(res); i++) {
		int at = pgbin_i32(res, i, 0) - 1;

		BUG(at < 0 || at >= d->asked_n);
		if (!d->at[d->asked[at]].found)
			read_segment(d, d->asked[at], pgbin_i64(res, i, 1),
				pgbin_i64(res, i, 2), pgbin_bytes(res, i, 3));
	}
	for (int i = 0; i < d->asked_n; i++) {
		struct dup *p = &d->at[d->asked[i]];

		if (p->found)
			continue;
		memset(&p->it->id, 0, sizeof(p->it->id));
		p->found = true;
	}
	ask(d);
}

/* The next left to ask for, from i on; n when there is none. */
static size_t
next_open(const struct flush_dups *d, size_t i)
{
	while (i < d->n && d->at[i].found)
		i++;
	return i;
}

static size_t
end_of_run(const struct flush_dups *d, size_t i)
{
	while (i + 1 < d->n && !d->at[i + 1].found &&
		d->at[i + 1].part == d->at[i].part &&
		d->at[i + 1].offset <= d->at[i].offset + 1)
		i++;
	return i;
}

static void
ask(struct flush_dups *d)
{
	size_t i = next_open(d, 0);
	struct pgargs a;

	if (i == d->n) {
		finish(d);
		return;
	}
	const struct qid *tenant = &d->at[i].part->queue->tenant;

	d->asked_n = 0;
	while (i < d->n && d->asked_n < ASK_MAX - 1 &&
		memcmp(&d->at[i].part->queue->tenant, tenant,
			sizeof(*tenant)) == 0) {
		size_t end = end_of_run(d, i);

		d->asked[d->asked_n++] = i;
		if (end != i)
			d->asked[d->asked_n++] = end;
		i = next_open(d, end + 1);
	}
	pgargs_init(&a);
	pgargs_uuid(&a, tenant);
	pgargs_array(&a, PGARGS_I64);
	for (int k = 0; k < d->asked_n; k++)
		pgargs_item_i64(&a, d->at[d->asked[k]].part->id);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_I64);
	for (int k = 0; k < d->asked_n; k++)
		pgargs_item_i64(&a, d->at[d->asked[k]].offset);
	pgargs_close(&a);
	pgpool_call(d->f->x->pool, LANE_REST, &STMT_AT, &a, on_segments, d);
}

void
flush_dups_start(struct flush_dups *d)
{
	if (!d->n) {
		free(d->at);
		free(d);
		return;
	}
	qsort(d->at, d->n, sizeof(*d->at), by_place);
	ask(d);
}
