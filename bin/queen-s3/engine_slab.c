/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of large runs.  Where pages are small, to touch each of them for the
 * first time takes longer than to copy the records there; so these come in
 * pieces of slabs that one large page can hold.  One pool for all engines: an
 * engine with little to hold shares a slab with others.
 */
#include "engine_int.h"

#include <stdalign.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>

#include "err.h"

enum { SLAB_BYTES = 2 << 20, SLAB_PIECES = 32 };

struct slab {
	LIST_ENTRY(slab) link; /* while it has room */
	uint32_t free; /* a bit for each piece */
	alignas(64) char piece[SLAB_PIECES][ENGINE_PIECE_BYTES];
};
_Static_assert(sizeof(struct slab) <= SLAB_BYTES, "one page");

static LIST_HEAD(, slab) with_room;
static struct slab *spare; /* empty: the next one is often wanted at once */

static struct slab *
slab_new(void)
{
	char *p = mmap(NULL, 2 * SLAB_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t front;
	struct slab *s;

	if (p == MAP_FAILED)
		abort();
	front = -(uintptr_t)p % SLAB_BYTES;
	if (front)
		munmap(p, front);
	munmap(p + front + SLAB_BYTES, SLAB_BYTES - front);
	s = (void *)(p + front);
	madvise(s, SLAB_BYTES, MADV_HUGEPAGE);
	s->free = UINT32_MAX;
	return s;
}

void *
engine_slab_take(void)
{
	struct slab *s = LIST_FIRST(&with_room);
	unsigned at;

	if (!s) {
		s = spare ? spare : slab_new();
		spare = NULL;
		LIST_INSERT_HEAD(&with_room, s, link);
	}
	at = (unsigned)__builtin_ctz(s->free);
	s->free &= s->free - 1;
	if (!s->free)
		LIST_REMOVE(s, link);
	return s->piece[at];
}

void
engine_slab_give(void *p)
{
	struct slab *s = (void *)((uintptr_t)p & ~(uintptr_t)(SLAB_BYTES - 1));
	size_t at = (size_t)((char *)p - s->piece[0]) / ENGINE_PIECE_BYTES;

	BUG(p != s->piece[at] || s->free & UINT32_C(1) << at);
	if (!s->free)
		LIST_INSERT_HEAD(&with_room, s, link);
	s->free |= UINT32_C(1) << at;
	if (s->free != UINT32_MAX)
		return;
	LIST_REMOVE(s, link);
	if (spare)
		munmap(s, SLAB_BYTES);
	else
		spare = s;
}
