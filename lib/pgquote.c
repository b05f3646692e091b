/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quoting that holds whatever standard_conforming_strings is set to.  Names
 * and texts reach this from checked documents and from catalogues: a NUL, which
 * would end the statement inside a quote, is our own mistake.
 */
#include "pgquote.h"

#include "buf.h"
#include "err.h"

/* Doubles every byte that is in the set. */
static void
put_doubled(struct buf *b, struct span s, const char *set)
{
	BUG(s.n > 0 && memchr(s.p, '\0', s.n) != NULL);
	for (size_t i = 0; i < s.n; i++) {
		if (strchr(set, s.p[i]))
			buf_putc(b, s.p[i]);
		buf_putc(b, s.p[i]);
	}
}

void
pgquote_ident(struct buf *b, struct span name)
{
	buf_putc(b, '"');
	put_doubled(b, name, "\"");
	buf_putc(b, '"');
}

void
pgquote_table(struct buf *b, struct span schema, struct span name)
{
	pgquote_ident(b, schema);
	buf_putc(b, '.');
	pgquote_ident(b, name);
}

void
pgquote_text(struct buf *b, struct span text)
{
	if (text.n > 0 && memchr(text.p, '\\', text.n))
		buf_putc(b, 'E');
	buf_putc(b, '\'');
	put_doubled(b, text, "'\\");
	buf_putc(b, '\'');
}
