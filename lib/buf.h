/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growable bytes with one owner.  Sizes from outside are checked before they
 * come here; a failed allocation aborts, because a restart loses nothing.
 */
#ifndef QUEEN_BUF_H
#define QUEEN_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct buf {
	char *p;
	size_t len, cap;
};

#define BUF_ZERO { .p = NULL }

void buf_fini(struct buf *b);		/* frees; the buffer is empty again */
void buf_wipe(struct buf *b);		/* the same for a secret: zeroed first */
void buf_reset(struct buf *b);		/* length 0, keeps the memory */
char *buf_reserve(struct buf *b, size_t n); /* room for n more bytes at p+len */
void buf_put(struct buf *b, const void *p, size_t n);
void buf_put_span(struct buf *b, struct span s);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));
/* Removes n bytes from the front. */
void buf_skip(struct buf *b, size_t n);
/* Borrows the content; valid until the buffer changes. */
static inline struct span
buf_span(const struct buf *b)
{
	return (struct span){ .p = b->p, .n = b->len };
}

#endif
