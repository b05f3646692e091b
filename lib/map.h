/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table of borrowed pointers: linear probing, deletion by shifting
 * back.  The caller hashes and compares; the table owns nothing but itself.
 */
#ifndef QUEEN_MAP_H
#define QUEEN_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot {
	uint64_t hash;
	void *item;		/* NULL = free */
};

struct map {
	struct map_slot *slots;
	size_t count, cap;	/* cap: 0 or a power of two */
};

#define MAP_ZERO { .slots = NULL }

typedef bool (*map_eq_fn)(const void *item, const void *key);

void map_fini(struct map *m);
/* NULL when there is none. */
void *map_get(const struct map *m, uint64_t hash, map_eq_fn eq,
	const void *key);
/* The key must not be there yet. */
void map_put(struct map *m, uint64_t hash, void *item);
/* Removes and returns it; NULL when there is none. */
void *map_take(struct map *m, uint64_t hash, map_eq_fn eq, const void *key);
/* Walks all items: *at starts at 0; NULL at the end.  No changes meanwhile. */
void *map_next(const struct map *m, size_t *at);

/* Spreads an integer key over all bits. */
static inline uint64_t
map_hash_i64(int64_t v)
{
	uint64_t x = (uint64_t)v + 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

#endif
