/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory with the life of one request: allocated piece by piece, freed at
 * once.  Blocks above a quarter of the chunk get memory of their own.
 */
#ifndef QUEEN_ARENA_H
#define QUEEN_ARENA_H

#include <stddef.h>

#include "span.h"

struct arena_chunk;
struct arena {
	struct arena_chunk *head;
	char *p, *end;
	size_t total_bytes;
};

#define ARENA_ZERO { .head = NULL }

void arena_fini(struct arena *a);
/* Empties it, keeps one chunk for the next round. */
void arena_reset(struct arena *a);
/* Aligned for any type, not cleared; never NULL. */
void *arena_alloc(struct arena *a, size_t n)
	__attribute__((malloc, alloc_size(2), returns_nonnull));
void *arena_zalloc(struct arena *a, size_t n)
	__attribute__((malloc, alloc_size(2), returns_nonnull));
struct span arena_dup(struct arena *a, struct span s);
/* NUL-terminated copy. */
char *arena_cstr(struct arena *a, struct span s);
/*
 * Room for one more item behind n: old, or a copy twice as large; *cap starts
 * at 0.
 */
void *arena_grown(struct arena *a, void *old, size_t n, size_t *cap,
	size_t item_bytes);
struct span arena_printf(struct arena *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
