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

#include "span.h"

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

/*
 * Hashes of keys, another in every process: clients choose names and ids, and
 * must not be able to choose where they lie in a table.
 */
uint64_t map_hash_i64(int64_t v);
uint64_t map_hash_span(struct span s);
/* A map_eq_fn for items that begin with their key, an int64_t. */
bool map_is_i64(const void *item, const void *key);

#endif
