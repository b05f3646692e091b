/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory with the life of one request.  The open chunk is at the head of the
 * list; a large block is put behind it, so it never wastes the open chunk.
 */
#include "arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

enum { CHUNK_BYTES = 16 << 10, ALIGN = alignof(max_align_t) };

struct arena_chunk {
	struct arena_chunk *next;
	size_t bytes; /* usable */
	alignas(max_align_t) char data[];
};

static struct arena_chunk *
chunk_new(struct arena *a, size_t bytes)
{
	struct arena_chunk *c = malloc(sizeof(*c) + bytes);

	if (!c) {
		fprintf(stderr, "out of memory: %zu bytes\n", bytes);
		abort();
	}
	c->next = NULL;
	c->bytes = bytes;
	a->total_bytes += bytes;
	return c;
}

static void
free_list(struct arena_chunk *c)
{
	while (c) {
		struct arena_chunk *next = c->next;

		free(c);
		c = next;
	}
}

void
arena_fini(struct arena *a)
{
	free_list(a->head);
	*a = (struct arena)ARENA_ZERO;
}

void
arena_reset(struct arena *a)
{
	struct arena_chunk *c = a->head;

	if (!c)
		return;
	if (c->bytes != CHUNK_BYTES) {
		arena_fini(a);
		return;
	}
	free_list(c->next);
	c->next = NULL;
	a->total_bytes = c->bytes;
	a->p = c->data;
	a->end = c->data + c->bytes;
}

void *
arena_alloc(struct arena *a, size_t n)
{
	struct arena_chunk *c;
	char *p;

	BUG(n > SIZE_MAX / 4);
	n = (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	if (n == 0)
		n = ALIGN;
	if ((size_t)(a->end - a->p) >= n) {
		p = a->p;
		a->p += n;
		return p;
	}
	if (n > CHUNK_BYTES / 4) {
		c = chunk_new(a, n);
		if (a->head) {
			c->next = a->head->next;
			a->head->next = c;
		} else {
			a->head = c;
			a->p = a->end = c->data + c->bytes;
		}
		return c->data;
	}
	c = chunk_new(a, CHUNK_BYTES);
	c->next = a->head;
	a->head = c;
	a->p = c->data + n;
	a->end = c->data + c->bytes;
	return c->data;
}

void *
arena_zalloc(struct arena *a, size_t n)
{
	return memset(arena_alloc(a, n), 0, n);
}

struct span
arena_dup(struct arena *a, struct span s)
{
	return span_make(arena_cstr(a, s), s.n);
}

char *
arena_cstr(struct arena *a, struct span s)
{
	char *p = arena_alloc(a, s.n + 1);

	if (s.n > 0)
		memcpy(p, s.p, s.n);
	p[s.n] = '\0';
	return p;
}

void *
arena_grown(
	struct arena *a, void *old, size_t n, size_t *cap, size_t item_bytes)
{
	void *p;

	if (n < *cap)
		return old;
	*cap = *cap ? *cap * 2 : 16;
	p = arena_alloc(a, *cap * item_bytes);
	if (n > 0)
		memcpy(p, old, n * item_bytes);
	return p;
}

struct span
arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap, again;
	char *p;
	int n;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	BUG(n < 0);
	p = arena_alloc(a, (size_t)n + 1);
	vsnprintf(p, (size_t)n + 1, fmt, again);
	va_end(again);
	va_end(ap);
	return span_make(p, (size_t)n);
}
