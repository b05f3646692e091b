/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row as its columns' text.  Stream and snapshot meet here: both carry what
 * the type's output function prints.
 */
#ifndef QUEEN_PGSRC_TUPLE_H
#define QUEEN_PGSRC_TUPLE_H

#include <stddef.h>

#include "span.h"

enum datum_state {
	DATUM_NULL,
	DATUM_UNCHANGED,	/* stored out of line and not sent */
	DATUM_TEXT,
};

struct datum {
	enum datum_state state;
	struct span text;	/* DATUM_TEXT: borrowed */
};

/* n is the column count of the relation; d NULL and n 0 = no row at all. */
struct tuple {
	struct datum *d;
	size_t n;
};

static inline bool
datum_eq(const struct datum *a, const struct datum *b)
{
	return a->state == b->state &&
	       (a->state != DATUM_TEXT || span_eq(a->text, b->text));
}

#endif
