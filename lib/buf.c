/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growable bytes.  Grows by doubling, so n appends cost O(n); the memory is
 * given back only by buf_fini.
 */
#include "buf.h"

#include <stdio.h>
#include <stdlib.h>

#include "err.h"

void
buf_fini(struct buf *b)
{
	free(b->p);
	b->p = NULL;
	b->len = b->cap = 0;
}

void
buf_wipe(struct buf *b)
{
	if (b->cap > 0)
		explicit_bzero(b->p, b->cap);
	buf_fini(b);
}

void
buf_reset(struct buf *b)
{
	b->len = 0;
}

char *
buf_reserve(struct buf *b, size_t n)
{
	size_t need, cap = b->cap ? b->cap : 64;
	char *p;

	if (b->cap - b->len >= n && b->p)
		return b->p + b->len;
	BUG(n > SIZE_MAX / 4 - b->len);
	need = b->len + n;
	while (cap < need)
		cap *= 2;
	p = realloc(b->p, cap);
	if (!p) {
		fprintf(stderr, "out of memory: %zu bytes\n", cap);
		abort();
	}
	b->p = p;
	b->cap = cap;
	return b->p + b->len;
}

void
buf_put(struct buf *b, const void *p, size_t n)
{
	if (n == 0)
		return;
	memcpy(buf_reserve(b, n), p, n);
	b->len += n;
}

void
buf_put_span(struct buf *b, struct span s)
{
	buf_put(b, s.p, s.n);
}

void
buf_puts(struct buf *b, const char *s)
{
	buf_put(b, s, strlen(s));
}

void
buf_putc(struct buf *b, char c)
{
	*buf_reserve(b, 1) = c;
	b->len++;
}

void
buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	size_t room;
	int n;

	buf_reserve(b, 64);
	room = b->cap - b->len;
	va_copy(again, ap);
	n = vsnprintf(b->p + b->len, room, fmt, ap);
	BUG(n < 0);
	if ((size_t)n >= room) {
		buf_reserve(b, (size_t)n + 1);
		vsnprintf(b->p + b->len, (size_t)n + 1, fmt, again);
	}
	va_end(again);
	b->len += (size_t)n;
}

void
buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

void
buf_skip(struct buf *b, size_t n)
{
	BUG(n > b->len);
	if (n == 0)
		return;
	b->len -= n;
	memmove(b->p, b->p + n, b->len);
}
