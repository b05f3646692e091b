/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the rows of a claim to a batch.  A partition is taken up to its first
 * message that cannot be read; one that begins with it is left out, and comes
 * again when the lease ends.
 */
#include <stdlib.h>
#include <string.h>

#include "conndoc.h"
#include "connchild.h"
#include "err.h"
#include "feed_int.h"
#include "logrd.h"
#include "pgbin.h"
#include "pgconn.h"
#include "seal.h"

enum { NAMES_MAX = 65536 };

static const struct pgstmt STMT_NAMES = { "feed_names",
	"select id, name from queen.partitions_names_v1($1, $2)" };
static const struct pgstmt STMT_BLOCK = { "feed_block",
	"select queen.seal_block_v1($1, $2, $3, $4, $5, $6, $7)" };

/* ---- messages ---- */

void
feed_file_block(
	struct feed *f, int64_t part, int key, int64_t offset, bool damaged)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &f->x->task->tenant);
	pgargs_i64(&a, f->queue_id);
	pgargs_i64(&a, part);
	pgargs_i32(&a, key);
	pgargs_i64(&a, offset);
	pgargs_bool(&a, damaged);
	pgargs_text(&a, f->x->task->node);
	/* nobody waits for it; the next one tries again */
	feed_call_sql(f->x->side, &STMT_BLOCK, &a, NULL, NULL);
}

static void
complain_damaged(struct feed *f, int64_t part, int key, int64_t offset,
	const struct err *e)
{
	struct connfault why;

	if (!feed_may_complain(f, SEAL_NO_KEY))
		return;
	connfault_set(&why, "queen", true,
		"partition %lld of queue \"%.*s\" stops at offset %lld, which "
		"cannot be read: %s; restore the message, or move the group "
		"past it",
		(long long)part, SPAN_ARG(f->doc->queue), (long long)offset,
		e->text);
	f->face.complain(f->face.arg, &why);
	if (key != SEAL_NO_KEY)
		feed_file_block(f, part, key, offset, true);
}

/* False: the slice was not read to its end. */
static bool
read_row(struct feed *f, struct feed_batch *b, struct logrd_message *room,
	const PGresult *res, int row)
{
	struct feed_part *p = &b->parts[b->parts_n];
	struct logrd_slice s = { .blob = pgbin_bytes(res, row, FEED_COL_BLOB),
		.base = pgbin_i64(res, row, FEED_COL_BASE),
		.skip = pgbin_i32(res, row, FEED_COL_SKIP),
		.take = pgbin_i32(res, row, FEED_COL_TAKE) };
	int64_t at_us = pgbin_time(res, row, FEED_COL_AT);
	struct err e = ERR_ZERO;
	size_t n = logrd_read(&s, f->x->seal, &b->arena, room, &e);

	for (size_t i = 0; i < n; i++)
		b->messages[b->n++] = (struct feed_message){
			.part = b->parts_n,
			.offset = room[i].offset,
			.created_at_us = at_us,
			.txn = room[i].frame.txn,
			.payload = room[i].payload,
			.frame = room[i].frame.whole,
		};
	p->n += n;
	if (n == (size_t)s.take)
		return true;
	complain_damaged(f, p->id,
		pgbin_null(res, row, FEED_COL_KEY)
			? SEAL_NO_KEY
			: pgbin_i16(res, row, FEED_COL_KEY),
		s.base + s.skip + (int64_t)n, &e);
	return false;
}

static int
cand_cmp(const void *a, const void *b)
{
	const struct feed_cand *x = a, *y = b;

	return (x->part > y->part) - (x->part < y->part);
}

struct feed_batch *
feed_read(struct feed_call *c, const PGresult *res)
{
	struct feed *f = c->flight.feed;
	struct feed_batch *b = calloc(1, sizeof(*b));
	size_t total = 0, most = 0;
	struct logrd_message *room;

	if (!b)
		abort();
	for (int i = 0; i < PQntuples(res); i++) {
		if (pgbin_i32(res, i, FEED_COL_VERDICT) != FEED_TOOK)
			continue;
		size_t take = (size_t)pgbin_i32(res, i, FEED_COL_TAKE);

		total += take;
		most = take > most ? take : most;
		b->lease_at = pgbin_i64(res, i, FEED_COL_LEASE_AT);
		b->lease_group = pgbin_i64(res, i, FEED_COL_LEASE_GROUP);
	}
	b->group_id = c->group_id;
	b->lease_no = c->lease_no;
	b->lease_until_ms = c->sent_ms + f->doc->lease_s * 1000;
	b->parts = arena_zalloc(
		&b->arena, (size_t)c->n * sizeof(struct feed_part));
	b->messages =
		arena_alloc(&b->arena, total * sizeof(struct feed_message));
	room = malloc((most + 1) * sizeof(*room));
	if (!room)
		abort();
	qsort(c->cands, (size_t)c->n, sizeof(c->cands[0]), cand_cmp);
	for (int i = 0; i < c->n; i++) {
		struct feed_cand *k = &c->cands[i];
		struct feed_part *p = &b->parts[b->parts_n];

		if (k->verdict != FEED_TOOK)
			continue;
		*p = (struct feed_part){ .id = k->part, .first = b->n };
		for (int r = 0; r < k->rows; r++)
			if (!read_row(f, b, room, res, k->row + r))
				break;
		b->parts_n += p->n > 0;
	}
	free(room);
	return b;
}

/* ---- names ---- */

void
feed_forget(struct feed *f)
{
	size_t at = 0;
	struct feed_name *n;

	while ((n = map_next(&f->names, &at)))
		free(n);
	map_fini(&f->names);
}

static void
name_keep(struct feed *f, int64_t id, struct span name)
{
	struct feed_name *n = malloc(sizeof(*n) + name.n);

	if (!n)
		abort();
	if (f->names.count >= NAMES_MAX)
		feed_forget(f);
	n->id = id;
	n->name = span_make(n->text, name.n);
	memcpy(n->text, name.p, name.n);
	map_put(&f->names, map_hash_i64(id), n);
}

/* Fills what is known; returns how many are not. */
static size_t
names_fill(struct feed *f, struct feed_batch *b)
{
	size_t unknown = 0;

	for (size_t i = 0; i < b->parts_n; i++) {
		struct feed_part *p = &b->parts[i];
		const struct feed_name *n = map_get(
			&f->names, map_hash_i64(p->id), map_is_i64, &p->id);

		if (n && !p->name.p)
			p->name = arena_dup(&b->arena, n->name);
		unknown += !p->name.p;
	}
	return unknown;
}

static void
on_names(void *arg, const PGresult *res, const struct err *e)
{
	struct feed_call *c = arg;
	struct feed *f = c->flight.feed;

	for (int i = 0; !e && i < PQntuples(res); i++) {
		int64_t id = pgbin_i64(res, i, 0);

		if (!map_get(&f->names, map_hash_i64(id), map_is_i64, &id))
			name_keep(f, id, pgbin_bytes(res, i, 1));
	}
	/* what has no name was deleted meanwhile: all are claimed anew */
	feed_call_end(c, names_fill(f, c->batch) == 0);
}

void
feed_read_names(struct feed_call *c)
{
	struct feed *f = c->flight.feed;
	struct feed_batch *b = c->batch;
	struct pgargs a;

	if (names_fill(f, b) == 0) {
		feed_call_end(c, true);
		return;
	}
	pgargs_init(&a);
	pgargs_uuid(&a, &f->x->task->tenant);
	pgargs_array(&a, PGARGS_I64);
	for (size_t i = 0; i < b->parts_n; i++)
		if (!b->parts[i].name.p)
			pgargs_item_i64(&a, b->parts[i].id);
	pgargs_close(&a);
	feed_call_sql(f->x->work, &STMT_NAMES, &a, on_names, c);
}
