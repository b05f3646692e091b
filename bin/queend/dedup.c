/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters of transaction ids; see dedup.h.  Invariant: the blocks of a filter
 * hold consecutive offsets, and every id it vouches for is in one of them.
 */
#include "dedup.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "map.h"

enum {
	EXACT_MAX = 64, /* hashes of 8 bytes, as they are */
	SMALL_IDS = 512,
	BUSY_IDS = DEDUP_BLOCK_IDS / 4, /* the next block starts full-sized */
	SMALL_BITS = SMALL_IDS * 32, /* it stands without a front */
	FULL_BITS = DEDUP_BLOCK_IDS * 16,
	BLOCK_PROBES = 8,
	FRONT_FIRST = 2, /* blocks of the first front; doubled */
	FRONT_BLOCKS = 16, /* up to this */
	FRONT_LINES = FULL_BITS / 512, /* per block */
	FRONT_PROBES = 6,
	BUCKETS = 8, /* closed by time: parts of a window */
};

/* A block is not dropped before it has left the window by this much. */
#define EXPIRE_MARGIN_US INT64_C(1000000)

enum block_kind { BLOCK_EXACT, BLOCK_SMALL, BLOCK_FULL };

struct block {
	int64_t lo; /* offset of the first id */
	int64_t first_at_us, last_at_us;
	uint64_t *mem; /* exact hashes, or bloom bits */
	uint32_t n, cap; /* cap: exact hashes allocated */
	uint8_t kind;
	bool fronted;
};

/* The front bloom of the blocks numbered from .. from + n - 1. */
struct front {
	uint64_t from;
	uint32_t n, cap;
	uint64_t *bits;
};

struct dedup_filter {
	int64_t part; /* first: map_is_i64 */
	int64_t verified, covered_us, window_us;
	bool ready;
	uint64_t first_no; /* number of blocks[0] */
	struct block *blocks;
	struct front *fronts;
	uint32_t blocks_n, blocks_cap, fronts_n;
	struct dedup_filter *newer, *older; /* by use */
};

struct dedup {
	struct map by_part;
	struct dedup_filter *newest, *oldest;
	struct dedup_filter *sweep; /* next to look at; NULL = oldest */
	size_t bytes, max_bytes;
	uint64_t evicted;
};

/* ---- memory ---- */

static void *
take(struct dedup *d, void *old, size_t old_bytes, size_t bytes)
{
	void *p = realloc(old, bytes);

	if (!p)
		abort();
	if (bytes > old_bytes)
		memset((char *)p + old_bytes, 0, bytes - old_bytes);
	d->bytes += bytes - old_bytes;
	return p;
}

static void
give(struct dedup *d, void *p, size_t bytes)
{
	free(p);
	d->bytes -= bytes;
}

static size_t
block_bytes(const struct block *b)
{
	switch (b->kind) {
	case BLOCK_EXACT:
		return b->cap * sizeof(uint64_t);
	case BLOCK_SMALL:
		return SMALL_BITS / 8;
	default:
		return FULL_BITS / 8;
	}
}

static size_t
front_bytes(const struct front *r)
{
	return (size_t)r->cap * FRONT_LINES * 64;
}

static void
clear_blocks(struct dedup *d, struct dedup_filter *f)
{
	for (uint32_t i = 0; i < f->blocks_n; i++)
		give(d, f->blocks[i].mem, block_bytes(&f->blocks[i]));
	for (uint32_t i = 0; i < f->fronts_n; i++)
		give(d, f->fronts[i].bits, front_bytes(&f->fronts[i]));
	give(d, f->blocks, f->blocks_cap * sizeof(*f->blocks));
	give(d, f->fronts, f->fronts_n * sizeof(*f->fronts));
	f->blocks = NULL;
	f->fronts = NULL;
	f->blocks_n = f->blocks_cap = f->fronts_n = 0;
}

/* ---- the list by use, the table ---- */

static void
unlink_filter(struct dedup *d, struct dedup_filter *f)
{
	if (d->sweep == f)
		d->sweep = f->newer;
	*(f->newer ? &f->newer->older : &d->newest) = f->older;
	*(f->older ? &f->older->newer : &d->oldest) = f->newer;
	f->newer = f->older = NULL;
}

static void
link_newest(struct dedup *d, struct dedup_filter *f)
{
	f->older = d->newest;
	*(d->newest ? &d->newest->newer : &d->oldest) = f;
	d->newest = f;
}

struct dedup *
dedup_new(size_t max_bytes)
{
	struct dedup *d = calloc(1, sizeof(*d));

	if (!d)
		abort();
	d->max_bytes = max_bytes;
	return d;
}

void
dedup_free(struct dedup *d)
{
	if (!d)
		return;
	while (d->oldest)
		dedup_drop(d, d->oldest->part);
	map_fini(&d->by_part);
	free(d);
}

void
dedup_drop(struct dedup *d, int64_t part)
{
	struct dedup_filter *f =
		map_take(&d->by_part, map_hash_i64(part), map_is_i64, &part);

	if (!f)
		return;
	unlink_filter(d, f);
	clear_blocks(d, f);
	give(d, f, sizeof(*f));
}

struct dedup_filter *
dedup_find(struct dedup *d, int64_t part)
{
	struct dedup_filter *f =
		map_get(&d->by_part, map_hash_i64(part), map_is_i64, &part);

	if (!f)
		return NULL;
	if (d->newest != f) {
		unlink_filter(d, f);
		link_newest(d, f);
	}
	return f;
}

struct dedup_filter *
dedup_open(struct dedup *d, int64_t part)
{
	struct dedup_filter *f = dedup_find(d, part);

	if (f)
		return f;
	f = take(d, NULL, 0, sizeof(*f));
	f->part = part;
	f->verified = -1;
	map_put(&d->by_part, map_hash_i64(part), f);
	link_newest(d, f);
	return f;
}

/* The filter in use always stays, whatever its size. */
static void
keep_bounds(struct dedup *d, const struct dedup_filter *keep)
{
	while (d->bytes > d->max_bytes && d->oldest && d->oldest != keep) {
		dedup_drop(d, d->oldest->part);
		d->evicted++;
	}
}

bool
dedup_is_ready(const struct dedup_filter *f)
{
	return f->ready;
}

int64_t
dedup_verified(const struct dedup_filter *f)
{
	return f->ready ? f->verified : -1;
}

int64_t
dedup_covered_us(const struct dedup_filter *f)
{
	return f->covered_us;
}

/* ---- blooms ---- */

static void
halves(const uint8_t id[HASH_ID_BYTES], uint64_t *block, uint64_t *front)
{
	memcpy(block, id, sizeof(*block));
	memcpy(front, id + sizeof(*block), sizeof(*front));
}

static uint32_t
block_mask(const struct block *b)
{
	return (b->kind == BLOCK_SMALL ? SMALL_BITS : FULL_BITS) - 1;
}

static void
bloom_set(struct block *b, uint64_t h)
{
	uint32_t mask = block_mask(b);
	uint32_t at = (uint32_t)h, step = (uint32_t)(h >> 32) | 1;

	for (int i = 0; i < BLOCK_PROBES; i++, at += step)
		b->mem[(at & mask) >> 6] |= UINT64_C(1) << (at & 63);
}

static bool
bloom_has(const struct block *b, uint64_t h)
{
	uint32_t mask = block_mask(b);
	uint32_t at = (uint32_t)h, step = (uint32_t)(h >> 32) | 1;

	for (int i = 0; i < BLOCK_PROBES; i++, at += step)
		if (!(b->mem[(at & mask) >> 6] >> (at & 63) & 1))
			return false;
	return true;
}

/* One cache line of 512 bits per id: a look costs one miss. */
static uint64_t *
front_line(const struct front *r, uint64_t h, uint64_t *probes)
{
	*probes = (h ^ h >> 32) * UINT64_C(0x9e3779b97f4a7c15);
	return r->bits + (h & (r->cap * FRONT_LINES - 1)) * 8;
}

static void
front_set(struct front *r, uint64_t h)
{
	uint64_t p, *line = front_line(r, h, &p);

	for (int i = 0; i < FRONT_PROBES; i++, p >>= 9)
		line[p >> 6 & 7] |= UINT64_C(1) << (p & 63);
}

static bool
front_has(const struct front *r, uint64_t h)
{
	uint64_t p;
	const uint64_t *line = front_line(r, h, &p);

	for (int i = 0; i < FRONT_PROBES; i++, p >>= 9)
		if (!(line[p >> 6 & 7] >> (p & 63) & 1))
			return false;
	return true;
}

/* ---- adding ---- */

static void
begin_front(struct dedup *d, struct dedup_filter *f)
{
	size_t bytes = f->fronts_n * sizeof(*f->fronts);
	struct front r = { .from = f->first_no + f->blocks_n - 1,
		.cap = FRONT_FIRST };

	while (r.cap < FRONT_BLOCKS && r.cap < f->blocks_n)
		r.cap *= 2;
	r.bits = take(d, NULL, 0, front_bytes(&r));
	f->fronts = take(d, f->fronts, bytes, bytes + sizeof(r));
	f->fronts[f->fronts_n++] = r;
}

static struct block *
begin_block(struct dedup *d, struct dedup_filter *f, enum block_kind kind,
	int64_t at_us)
{
	if (f->blocks_n == f->blocks_cap) {
		uint32_t cap = f->blocks_cap ? f->blocks_cap * 2 : 1;

		f->blocks =
			take(d, f->blocks, f->blocks_cap * sizeof(*f->blocks),
				cap * sizeof(*f->blocks));
		f->blocks_cap = cap;
	}
	struct block *b = &f->blocks[f->blocks_n++];

	*b = (struct block){
		.lo = f->verified + 1,
		.first_at_us = at_us,
		.last_at_us = at_us,
		.kind = (uint8_t)kind,
		.cap = kind == BLOCK_EXACT ? 4 : 0,
	};
	b->mem = take(d, NULL, 0, block_bytes(b));
	if (kind != BLOCK_FULL)
		return b; /* small enough to stand alone */
	struct front *r = f->fronts_n ? &f->fronts[f->fronts_n - 1] : NULL;

	/* a front stands for neighbours only */
	if (!r || r->n == r->cap ||
		r->from + r->n != f->first_no + f->blocks_n - 1)
		begin_front(d, f);
	f->fronts[f->fronts_n - 1].n++;
	b->fronted = true;
	return b;
}

/* Makes room for one more hash in a block of exact ones. */
static void
grow_exact(struct dedup *d, struct block *b)
{
	size_t bytes = block_bytes(b);

	if (b->cap < EXACT_MAX) {
		b->mem = take(d, b->mem, bytes, bytes * 2);
		b->cap *= 2;
		return;
	}
	uint64_t *exact = b->mem;

	b->kind = BLOCK_SMALL;
	b->mem = take(d, NULL, 0, block_bytes(b));
	for (uint32_t i = 0; i < b->n; i++)
		bloom_set(b, exact[i]);
	give(d, exact, bytes);
}

/* The block the next id goes to. */
static struct block *
open_block(struct dedup *d, struct dedup_filter *f, int64_t at_us,
	int64_t window_us)
{
	struct block *b = f->blocks_n ? &f->blocks[f->blocks_n - 1] : NULL;

	if (!b || at_us - b->first_at_us > window_us / BUCKETS)
		return begin_block(d, f,
			b && b->kind == BLOCK_FULL && b->n >= BUSY_IDS
				? BLOCK_FULL
				: BLOCK_EXACT,
			at_us);
	if ((b->kind == BLOCK_FULL && b->n == DEDUP_BLOCK_IDS) ||
		(b->kind == BLOCK_SMALL && b->n == SMALL_IDS))
		return begin_block(d, f, BLOCK_FULL, at_us);
	if (b->kind == BLOCK_EXACT && b->n == b->cap)
		grow_exact(d, b);
	return b;
}

static void
add_one(struct dedup *d, struct dedup_filter *f, const uint8_t *id,
	int64_t at_us, int64_t window_us)
{
	struct block *b = open_block(d, f, at_us, window_us);
	uint64_t h, fh;

	halves(id, &h, &fh);
	if (b->kind == BLOCK_EXACT)
		b->mem[b->n] = h;
	else
		bloom_set(b, h);
	if (b->fronted)
		front_set(&f->fronts[f->fronts_n - 1], fh);
	b->n++;
	if (at_us > b->last_at_us)
		b->last_at_us = at_us;
	f->verified++;
}

bool
dedup_add(struct dedup *d, struct dedup_filter *f, int64_t base,
	const uint8_t *ids, size_t n, int64_t at_us, int64_t window_us)
{
	if (!f->ready || base > f->verified + 1)
		return false;
	size_t skip = (size_t)(f->verified + 1 - base);

	f->window_us = window_us;
	for (size_t i = skip; i < n; i++)
		add_one(d, f, ids + i * HASH_ID_BYTES, at_us, window_us);
	keep_bounds(d, f);
	return true;
}

void
dedup_restart(struct dedup *d, struct dedup_filter *f, int64_t first,
	int64_t covered_us)
{
	clear_blocks(d, f);
	f->first_no = 0;
	f->ready = true;
	f->verified = first - 1;
	f->covered_us = covered_us;
}

void
dedup_skip_to(struct dedup_filter *f, int64_t first, int64_t covered_us)
{
	BUG(!f->ready);
	if (first <= f->verified + 1)
		return;
	/* offsets inside a block are counted from its first: begin another */
	if (f->blocks_n)
		f->blocks[f->blocks_n - 1].first_at_us = INT64_MIN / 2;
	f->verified = first - 1;
	if (covered_us > f->covered_us)
		f->covered_us = covered_us;
}

void
dedup_expire(struct dedup *d, struct dedup_filter *f, int64_t now_us,
	int64_t window_us)
{
	int64_t cutoff = now_us - window_us - EXPIRE_MARGIN_US;
	uint32_t n = 0, r = 0;

	while (n < f->blocks_n && f->blocks[n].last_at_us < cutoff) {
		struct block *b = &f->blocks[n++];

		if (b->last_at_us >= f->covered_us)
			f->covered_us = b->last_at_us + 1;
		give(d, b->mem, block_bytes(b));
	}
	if (!n)
		return;
	f->blocks_n -= n;
	f->first_no += n;
	memmove(f->blocks, f->blocks + n, f->blocks_n * sizeof(*f->blocks));
	while (r < f->fronts_n &&
		f->fronts[r].from + f->fronts[r].n <= f->first_no) {
		give(d, f->fronts[r].bits, front_bytes(&f->fronts[r]));
		r++;
	}
	if (!r)
		return;
	f->fronts_n -= r;
	memmove(f->fronts, f->fronts + r, f->fronts_n * sizeof(*f->fronts));
	d->bytes -= r * sizeof(*f->fronts);
}

/* ---- asking ---- */

static int
suspect(struct dedup_range *out, int n, int max, int64_t lo, int64_t hi)
{
	if (n < max) {
		out[n] = (struct dedup_range){ .lo = lo, .hi = hi };
		return n + 1;
	}
	out[n - 1].hi = hi;
	return n;
}

static int
ask_block(const struct block *b, uint64_t h, struct dedup_range *out, int n,
	int max)
{
	if (b->kind != BLOCK_EXACT)
		return bloom_has(b, h)
			       ? suspect(out, n, max, b->lo, b->lo + b->n - 1)
			       : n;
	for (uint32_t i = 0; i < b->n; i++)
		if (b->mem[i] == h)
			n = suspect(out, n, max, b->lo + i, b->lo + i);
	return n;
}

int
dedup_suspects(const struct dedup_filter *f, const struct hash_id *id,
	struct dedup_range *out, int max)
{
	uint64_t h, fh;
	uint32_t r = 0, i = 0;
	int n = 0;

	halves(id->b, &h, &fh);
	while (i < f->blocks_n) {
		const struct block *b = &f->blocks[i];

		if (!b->fronted) {
			n = ask_block(b, h, out, n, max);
			i++;
			continue;
		}
		const struct front *fr = &f->fronts[r++];
		uint32_t end = (uint32_t)(fr->from + fr->n - f->first_no);

		if (front_has(fr, fh))
			for (uint32_t k = i; k < end; k++)
				n = ask_block(&f->blocks[k], h, out, n, max);
		i = end;
	}
	return n;
}

void
dedup_sweep(struct dedup *d, int64_t now_us, size_t steps)
{
	while (steps-- > 0) {
		struct dedup_filter *f = d->sweep ? d->sweep : d->oldest;

		if (!f)
			return;
		d->sweep = f->newer;
		dedup_expire(d, f, now_us, f->window_us);
		if (!f->blocks_n)
			dedup_drop(d, f->part);
		if (!d->sweep)
			return; /* a round is over */
	}
}

void
dedup_stats(const struct dedup *d, struct dedup_stats *out)
{
	*out = (struct dedup_stats){
		.filters = d->by_part.count,
		.bytes = d->bytes,
		.evicted = d->evicted,
	};
}
