/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table of borrowed pointers.  Invariant: between an item's home slot
 * and the slot it sits in there is no free slot, so a probe may stop at the
 * first free one.
 */
#include "map.h"

#include <stdlib.h>
#include <sys/random.h>

#include "err.h"

enum { MAP_CAP_MIN = 16 };

void
map_fini(struct map *m)
{
	free(m->slots);
	*m = (struct map)MAP_ZERO;
}

static void
map_place(struct map *m, uint64_t hash, void *item)
{
	size_t i = hash & (m->cap - 1);

	while (m->slots[i].item)
		i = (i + 1) & (m->cap - 1);
	m->slots[i] = (struct map_slot){ .hash = hash, .item = item };
}

static void
map_grow(struct map *m)
{
	struct map old = *m;

	m->cap = old.cap ? old.cap * 2 : MAP_CAP_MIN;
	m->slots = calloc(m->cap, sizeof(*m->slots));
	if (!m->slots)
		abort();
	for (size_t i = 0; i < old.cap; i++)
		if (old.slots[i].item)
			map_place(m, old.slots[i].hash, old.slots[i].item);
	free(old.slots);
}

static size_t
map_find(const struct map *m, uint64_t hash, map_eq_fn eq, const void *key)
{
	if (m->cap == 0)
		return SIZE_MAX;
	size_t i = hash & (m->cap - 1);

	for (; m->slots[i].item; i = (i + 1) & (m->cap - 1))
		if (m->slots[i].hash == hash && eq(m->slots[i].item, key))
			return i;
	return SIZE_MAX;
}

void *
map_get(const struct map *m, uint64_t hash, map_eq_fn eq, const void *key)
{
	size_t i = map_find(m, hash, eq, key);

	return i == SIZE_MAX ? NULL : m->slots[i].item;
}

void
map_put(struct map *m, uint64_t hash, void *item)
{
	if ((m->count + 1) * 4 > m->cap * 3)
		map_grow(m);
	map_place(m, hash, item);
	m->count++;
}

void *
map_take(struct map *m, uint64_t hash, map_eq_fn eq, const void *key)
{
	size_t i = map_find(m, hash, eq, key);

	if (i == SIZE_MAX)
		return NULL;
	void *item = m->slots[i].item;
	size_t mask = m->cap - 1;

	for (size_t j = (i + 1) & mask; m->slots[j].item; j = (j + 1) & mask) {
		size_t home = m->slots[j].hash & mask;

		/* j may fill the hole at i if its home is not after i */
		if (((j - home) & mask) >= ((j - i) & mask)) {
			m->slots[i] = m->slots[j];
			i = j;
		}
	}
	m->slots[i].item = NULL;
	m->count--;
	return item;
}

void *
map_next(const struct map *m, size_t *at)
{
	while (*at < m->cap) {
		void *item = m->slots[(*at)++].item;

		if (item)
			return item;
	}
	return NULL;
}

/* ---- keys ---- */

/* Drawn once; a table made before and one made after see the same. */
static uint64_t
secret(void)
{
	static uint64_t drawn;

	while (drawn == 0)
		BUG(getrandom(&drawn, sizeof(drawn), 0) !=
			(ssize_t)sizeof(drawn));
	return drawn;
}

uint64_t
map_hash_i64(int64_t v)
{
	uint64_t x = ((uint64_t)v ^ secret()) + 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint64_t
map_hash_span(struct span s)
{
	return span_hash(s, secret());
}

bool
map_is_i64(const void *item, const void *key)
{
	return *(const int64_t *)item == *(const int64_t *)key;
}
