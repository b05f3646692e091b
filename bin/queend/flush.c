/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects messages into segments and sends them; see flush.h.  Invariant: a
 * partition with a segment in flight is not in the ready list, one with a
 * segment waiting and none in flight is.
 */
#include "flush.h"

#include <stdlib.h>
#include <string.h>

#include "catalog.h"
#include "clk.h"
#include "err.h"
#include "flush_int.h"
#include "frame.h"
#include "keyring.h"
#include "pgpool.h"
#include "seal.h"
#include "seg.h"
#include "settings.h"

enum {
	INDEX_FROM = 8, /* below: compare one by one */
	SWEEP_MS = 1000,
	SWEEP_STEPS = 2000,
};

static const struct pgstmt STMT_PUSH = { "push",
	"select ord, verdict, base, at, gap_base, gap, dup_pos, dup_off "
	"from queen.push_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, "
	"$12, $13)" };

static void
on_sweep(void *arg)
{
	struct flush *f = arg;
	struct dedup_stats st;

	dedup_stats(f->dedup, &st);
	if (f->db_at_us)
		dedup_sweep(f->dedup,
			f->db_at_us + clk_mono_us() - f->db_at_mono_us,
			SWEEP_STEPS + st.filters / 16);
	loop_timer_start(&f->sweep, SWEEP_MS);
}

static void
on_idle(void *arg, int lane)
{
	(void)lane;
	flush_pump_later(arg);
}

struct flush *
flush_new(struct ctx *x)
{
	struct flush *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	f->x = x;
	f->ready_last = &f->ready;
	f->dedup = dedup_new((size_t)x->conf->dedup_cache_mb << 20);
	pgpool_on_idle(x->pool, LANE_PUSH, on_idle, f);
	loop_timer_init(&f->sweep, x->loop, on_sweep, f);
	loop_timer_start(&f->sweep, SWEEP_MS);
	return f;
}

void
flush_seg_free(struct flush *f, struct flush_seg *s)
{
	if (!s)
		return;
	f->waiting_bytes -= (int64_t)s->frames.len;
	buf_fini(&s->frames);
	map_fini(&s->by_hash);
	free(s->msgs);
	free(s);
}

static void
part_free(struct flush *f, struct flush_part *p)
{
	struct flush_seg *s;

	while ((s = p->first)) {
		p->first = s->next;
		flush_seg_free(f, s);
	}
	flush_seg_free(f, p->flight);
	free(p);
}

void
flush_free(struct flush *f)
{
	struct flush_part *p;
	size_t at = 0;

	if (!f)
		return;
	while ((p = map_next(&f->parts, &at)))
		part_free(f, p);
	map_fini(&f->parts);
	loop_timer_fini(&f->sweep);
	dedup_free(f->dedup);
	buf_fini(&f->blob);
	free(f->suspects.at);
	free(f);
}

void
flush_stats(const struct flush *f, struct flush_stats *out)
{
	struct dedup_stats d;

	dedup_stats(f->dedup, &d);
	*out = f->stats;
	out->partitions = f->parts.count;
	out->waiting_bytes = f->waiting_bytes;
	out->calls = f->calls;
	out->filters = d.filters;
	out->filter_bytes = d.bytes;
	out->evicted = d.evicted;
}

/* ---- partitions ---- */

struct flush_part *
flush_part_get(struct flush *f, struct cat_part *part)
{
	struct flush_part *p = map_get(
		&f->parts, map_hash_i64(part->id), map_is_i64, &part->id);

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		abort();
	p->id = part->id;
	p->part = part;
	p->last = &p->first;
	p->flush = f;
	map_put(&f->parts, map_hash_i64(p->id), p);
	return p;
}

void
flush_make_ready(struct flush *f, struct flush_part *p)
{
	if (p->listed || p->flight || !p->first)
		return;
	p->listed = true;
	p->next_ready = NULL;
	*f->ready_last = p;
	f->ready_last = &p->next_ready;
	flush_pump_later(f);
}

/* Its flight is over: on with the next segment, or away. */
void
flush_part_idle(struct flush *f, struct flush_part *p)
{
	BUG(p->flight);
	p->behind = 0;
	if (p->first) {
		flush_make_ready(f, p);
		return;
	}
	map_take(&f->parts, map_hash_i64(p->id), map_is_i64, &p->id);
	free(p);
}

/* ---- answers ---- */

static void
complete_one(struct flush_item *it, enum flush_status status)
{
	struct flush_group *g = it->group;

	it->status = status;
	BUG(g->pending == 0);
	if (--g->pending == 0)
		g->done(g);
}

void
flush_complete(struct flush_item *it, enum flush_status status)
{
	enum flush_status rest =
		status == FLUSH_FAILED ? FLUSH_FAILED : FLUSH_DUPLICATE;
	struct qid id = it->id;
	struct flush_item *next = it->follower;

	/* the memory of an item may go with its answer */
	complete_one(it, status);
	while ((it = next)) {
		next = it->follower;
		it->id = id;
		complete_one(it, rest);
	}
}

void
flush_seg_fail(struct flush *f, struct flush_seg *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		flush_complete(s->msgs[i].it, FLUSH_FAILED);
	flush_seg_free(f, s);
}

/* ---- collecting ---- */

static bool
has_hash(const void *item, const void *key)
{
	const struct flush_item *it = item;

	return !it->minted && memcmp(&it->hash, key, sizeof(it->hash)) == 0;
}

static uint64_t
hash_of(const struct hash_id *h)
{
	uint64_t v;

	memcpy(&v, h->b, sizeof(v));
	return v;
}

static struct flush_item *
seg_find(struct flush_seg *s, const struct hash_id *h)
{
	if (s->by_hash.count)
		return map_get(&s->by_hash, hash_of(h), has_hash, h);
	for (uint32_t i = 0; i < s->n; i++)
		if (has_hash(s->msgs[i].it, h))
			return s->msgs[i].it;
	return NULL;
}

static void
seg_index(struct flush_seg *s, struct flush_item *it)
{
	if (it->minted || s->n <= INDEX_FROM)
		return;
	if (s->by_hash.count) {
		map_put(&s->by_hash, hash_of(&it->hash), it);
		return;
	}
	for (uint32_t i = 0; i < s->n; i++)
		if (!s->msgs[i].it->minted)
			map_put(&s->by_hash, hash_of(&s->msgs[i].it->hash),
				s->msgs[i].it);
}

static struct flush_seg *
seg_begin(struct flush_part *p)
{
	struct flush_seg *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	*p->last = s;
	p->last = &s->next;
	return s;
}

static struct flush_seg *
seg_newest(struct flush_part *p)
{
	if (!p->first)
		return NULL;
	return (struct flush_seg *)((char *)p->last -
				    offsetof(struct flush_seg, next));
}

static void
seg_append(struct flush *f, struct flush_seg *s, struct flush_item *it)
{
	struct frame fr = { .flags = it->sub.n ? FRAME_SUB : 0,
		.id = it->id,
		.txn = it->txn,
		.sub = it->sub,
		.payload = it->payload };
	size_t before = s->frames.len;

	frame_write(&s->frames, &fr);
	if (s->n == s->cap) {
		s->cap = s->cap ? s->cap * 2 : 4;
		s->msgs = realloc(s->msgs, s->cap * sizeof(*s->msgs));
		if (!s->msgs)
			abort();
	}
	s->msgs[s->n++] = (struct flush_msg){ .it = it,
		.bytes = (uint32_t)(s->frames.len - before) };
	f->waiting_bytes += (int64_t)(s->frames.len - before);
	s->probe = s->probe || !it->minted;
	seg_index(s, it);
}

/* By how much these messages grow when they are sealed. */
static size_t
seal_bytes(const struct cat_part *part, uint32_t n)
{
	return part->queue->encrypted ? (size_t)n * SEAL_OVERHEAD_BYTES : 0;
}

void
flush_add(struct flush *f, struct cat_part *part, struct flush_item *it)
{
	/* an upper bound of the frame: heads and ids are short */
	size_t bytes = it->payload.n + it->txn.n + it->sub.n + 64;

	it->follower = NULL;
	it->status = FLUSH_WAITING;
	if (f->waiting_bytes + (int64_t)bytes > FLUSH_WAITING_MAX) {
		it->status = FLUSH_FAILED;
		return;
	}
	it->group->pending++;
	struct flush_part *p = flush_part_get(f, part);
	struct flush_seg *s = seg_newest(p);

	if (s && (s->sealed ||
			 s->frames.len + seal_bytes(part, s->n + 1) + bytes >
				 SEG_RAW_CAP_BYTES))
		s = NULL;
	if (s && !it->minted) {
		struct flush_item *same = seg_find(s, &it->hash);

		if (same && part->queue->dedup_window_s > 0) {
			/* the first one decides for both */
			it->follower = same->follower;
			same->follower = it;
			return;
		}
		if (same)
			s = NULL; /* SQL knows whether both may stand */
	}
	seg_append(f, s ? s : seg_begin(p), it);
	flush_make_ready(f, p);
}

/* ---- firing ---- */

/* Takes what one call carries off the ready list. */
static int
pick(struct flush *f, struct flush_part **out)
{
	struct flush_part **link = &f->ready, *p;
	const struct qid *tenant = NULL;
	size_t bytes = 0;
	int n = 0;

	while ((p = *link) && n < FLUSH_PARTS_MAX) {
		const struct qid *of = &p->part->queue->tenant;

		if (n && memcmp(of, tenant, sizeof(*of)) != 0) {
			link = &p->next_ready;
			continue;
		}
		if (n && bytes + p->first->frames.len > FLUSH_CALL_BYTES)
			break;
		*link = p->next_ready;
		p->listed = false;
		tenant = of;
		bytes += p->first->frames.len;
		out[n++] = p;
	}
	if (!*link)
		f->ready_last = link;
	return n;
}

static int
by_id(const void *a, const void *b)
{
	const struct flush_part *const *p = a, *const *q = b;

	return ((*p)->id > (*q)->id) - ((*p)->id < (*q)->id);
}

static void
put_ids(struct pgargs *a, struct buf *scratch, const struct flush_call *c)
{
	pgargs_array(a, PGARGS_BYTEA);
	for (int i = 0; i < c->n; i++) {
		const struct flush_seg *s = c->parts[i]->flight;

		buf_reset(scratch);
		for (uint32_t k = 0; k < s->n; k++)
			buf_put(scratch, &s->msgs[k].it->hash, HASH_ID_BYTES);
		pgargs_item_bytea(a, buf_span(scratch));
	}
	pgargs_close(a);
}

/*
 * Seals all messages of a segment, just before it is sent: until then a change
 * of the queue's flag costs nothing.
 */
static void
seal_seg(struct flush *f, struct flush_seg *s)
{
	struct buf sealed = BUF_ZERO, room = BUF_ZERO;
	struct span rest = buf_span(&s->frames);
	struct err e = ERR_ZERO;
	struct frame fr;

	for (uint32_t i = 0; i < s->n; i++) {
		size_t before = sealed.len;

		BUG(frame_next(&rest, &fr, &e) != 1);
		keyring_seal(f->x, &fr, &room);
		frame_write(&sealed, &fr);
		s->msgs[i].bytes = (uint32_t)(sealed.len - before);
	}
	f->waiting_bytes += (int64_t)sealed.len - (int64_t)s->frames.len;
	explicit_bzero(s->frames.p, s->frames.len);
	buf_fini(&s->frames);
	buf_fini(&room);
	s->frames = sealed;
	s->sealed = true;
}

static void
put_blobs(struct pgargs *a, struct buf *scratch, const struct flush_call *c)
{
	pgargs_array(a, PGARGS_I32);
	for (int i = 0; i < c->n; i++)
		pgargs_item_i32(a, (int32_t)c->parts[i]->flight->frames.len);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I16);
	for (int i = 0; i < c->n; i++)
		keyring_item(a, c->flush->x, c->parts[i]->flight->sealed);
	pgargs_close(a);
	pgargs_array(a, PGARGS_BYTEA);
	for (int i = 0; i < c->n; i++) {
		buf_reset(scratch);
		seg_pack(buf_span(&c->parts[i]->flight->frames), scratch);
		pgargs_item_bytea(a, buf_span(scratch));
	}
	pgargs_close(a);
}

/* verified and covered, then the suspects. */
static void
put_vouchers(struct pgargs *a, struct flush *f, struct flush_call *c)
{
	int64_t covered[FLUSH_PARTS_MAX];

	f->suspects.n = 0;
	pgargs_array(a, PGARGS_I64);
	for (int i = 0; i < c->n; i++) {
		struct flush_part *p = c->parts[i];
		const struct flush_seg *s = p->flight;

		if (!s->probe) {
			pgargs_item_null(a);
			continue;
		}
		struct flush_vouch v = flush_ids_vouch(f, p->id);

		p->sent_verified = v.verified;
		covered[i] = v.covered_us;
		pgargs_item_i64(a, v.verified);
		for (uint32_t k = 0; k < s->n; k++)
			if (!s->msgs[k].it->minted)
				flush_ids_suspect(f, p->id, i + 1, (int32_t)k,
					&s->msgs[k].it->hash, &f->suspects);
	}
	pgargs_close(a);
	pgargs_array(a, PGARGS_TIMESTAMPTZ);
	for (int i = 0; i < c->n; i++) {
		if (c->parts[i]->flight->probe)
			pgargs_item_time(a, covered[i]);
		else
			pgargs_item_null(a);
	}
	pgargs_close(a);
	flush_suspects_args(a, &f->suspects);
}

static void
fire(struct flush *f)
{
	struct flush_call *c = calloc(1, sizeof(*c));
	struct pgargs a;

	if (!c)
		abort();
	c->flush = f;
	c->sent_us = clk_mono_us();
	c->n = pick(f, c->parts);
	BUG(c->n == 0);
	qsort(c->parts, (size_t)c->n, sizeof(*c->parts), by_id);
	for (int i = 0; i < c->n; i++) {
		struct flush_part *p = c->parts[i];

		p->flight = p->first;
		p->first = p->flight->next;
		if (!p->first)
			p->last = &p->first;
		p->flight->next = NULL;
		/* without a key SQL refuses it, should the flag still stand */
		if (p->part->queue->encrypted && !p->flight->sealed &&
			keyring_seals(f->x))
			seal_seg(f, p->flight);
	}
	pgargs_init(&a);
	pgargs_uuid(&a, &c->parts[0]->part->queue->tenant);
	pgargs_array(&a, PGARGS_I64);
	for (int i = 0; i < c->n; i++)
		pgargs_item_i64(&a, c->parts[i]->id);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_I32);
	for (int i = 0; i < c->n; i++)
		pgargs_item_i32(&a, (int32_t)c->parts[i]->flight->n);
	pgargs_close(&a);
	put_ids(&a, &f->blob, c);
	put_blobs(&a, &f->blob, c);
	put_vouchers(&a, f, c);
	f->calls++;
	pgpool_call(f->x->pool, LANE_PUSH, &STMT_PUSH, &a, flush_on_answer, c);
}

/*
 * With nothing in flight one call goes out even when no connection is free:
 * the pool fails it when there is none to be had, and so ends the wait.
 */
static void
pump(void *arg)
{
	struct flush *f = arg;
	int idle = pgpool_idle(f->x->pool, LANE_PUSH);

	f->pumping = false;
	while (f->ready && (idle-- > 0 || f->calls == 0))
		fire(f);
}

void
flush_pump_later(struct flush *f)
{
	if (f->pumping || !f->ready)
		return;
	f->pumping = true;
	loop_later(f->x->loop, pump, f);
}
