/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts inside SQL over a user's tables, quoted for any setting. */
#ifndef QUEEN_PGQUOTE_H
#define QUEEN_PGQUOTE_H

#include "span.h"

struct buf;

/* `"na""me"`.  No NUL in it. */
void pgquote_ident(struct buf *b, struct span name);
/* `"schema"."name"` */
void pgquote_table(struct buf *b, struct span schema, struct span name);
/* `'it''s'`, or E'…' when there is a backslash in it.  No NUL in it. */
void pgquote_text(struct buf *b, struct span text);

#endif
