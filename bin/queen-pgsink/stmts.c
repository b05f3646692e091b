/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns come and go with the payloads, so the number of shapes has no bound
 * of its own; when it grows too large all are forgotten, which costs less than
 * knowing the least used.
 */
#include "stmts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "err.h"
#include "op.h"

static bool
is_shape(const void *item, const void *key)
{
	const struct stmts_one *one = item;
	const struct span *shape = key;

	return span_eq(one->shape, *shape);
}

void
stmts_forget(struct stmts *s)
{
	struct stmts_one *one;

	for (size_t at = 0; (one = map_next(&s->by_shape, &at));) {
		free(one->name);
		free(one->sql);
		free(one);
	}
	map_fini(&s->by_shape);
}

void
stmts_fini(struct stmts *s)
{
	stmts_forget(s);
}

bool
stmts_is_full(const struct stmts *s)
{
	return s->by_shape.count >= STMTS_MAX;
}

static struct stmts_one *
make(struct stmts *s, const struct plan *p, const struct op *o)
{
	struct stmts_one *one = calloc(1, sizeof(*one) + o->shape.n);
	char *shape = (char *)(one + 1), name[16];
	struct buf sql = BUF_ZERO;

	BUG(!one);
	memcpy(shape, o->shape.p, o->shape.n);
	one->shape = span_make(shape, o->shape.n);
	/* never a name twice, so that nothing depends on when one is dropped */
	snprintf(name, sizeof(name), "op%u", ++s->serial);
	one->name = strdup(name);
	op_sql(p, o, &sql);
	buf_putc(&sql, '\0');
	one->sql = sql.p;
	BUG(!one->name);
	return one;
}

const struct stmts_one *
stmts_of(struct stmts *s, const struct plan *p, const struct op *o)
{
	uint64_t hash = map_hash_span(o->shape);
	struct stmts_one *one =
		map_get(&s->by_shape, hash, is_shape, &o->shape);

	if (!one) {
		one = make(s, p, o);
		map_put(&s->by_shape, hash, one);
	}
	return one;
}
