/* SPDX-License-Identifier: Apache-2.0 */
/* The statements of operations that one session has prepared, by shape. */
#ifndef QUEEN_PGSINK_STMTS_H
#define QUEEN_PGSINK_STMTS_H

#include "map.h"

struct op;
struct plan;

enum { STMTS_MAX = 256 };

struct stmts {
	struct map by_shape;
	unsigned serial;
};

struct stmts_one {
	char *name, *sql;
	struct span shape;
};

void stmts_fini(struct stmts *s);
/* Empties it: the session was told to forget, or is another one. */
void stmts_forget(struct stmts *s);
/* All places are taken: forget before the next stmts_of. */
bool stmts_is_full(const struct stmts *s);
/* Borrowed until it is emptied. */
const struct stmts_one *stmts_of(struct stmts *s, const struct plan *p,
	const struct op *o);

#endif
