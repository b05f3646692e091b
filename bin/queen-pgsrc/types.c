/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types of one source.  A row learned stands as it was; what it means is
 * worked out when asked, following domains and elements until something is
 * built in, unknown, or too deep.
 */
#include "types.h"

#include <stdlib.h>

#include "err.h"
#include "value.h"

enum { DEPTH_MAX = 8 };

/* Begins with its key, for map_is_i64. */
struct item {
	int64_t oid;
	struct types_row row;
	struct value_type array;
	const struct value_type *type; /* NULL: not worked out yet */
};

void
types_fini(struct types *t)
{
	struct item *i;
	size_t at = 0;

	while ((i = map_next(&t->by_oid, &at)))
		free(i);
	map_fini(&t->by_oid);
}

static struct item *
find(struct types *t, uint32_t oid)
{
	int64_t key = oid;

	return map_get(&t->by_oid, map_hash_i64(key), map_is_i64, &key);
}

static const struct value_type *
resolve(struct types *t, uint32_t oid, int depth, uint32_t *ask);

/* An array's elements are separated as their own type wants it. */
static const struct value_type *
resolve_array(struct types *t, struct item *i, int depth, uint32_t *ask)
{
	uint32_t elem = i->row.elem_oid;
	struct item *e;

	i->array.elem = resolve(t, elem, depth + 1, ask);
	if (!i->array.elem)
		return NULL;
	e = find(t, elem);
	i->array.kind = VALUE_ARRAY;
	i->array.delim = e && e->row.delim ? e->row.delim : ',';
	return &i->array;
}

static const struct value_type *
resolve(struct types *t, uint32_t oid, int depth, uint32_t *ask)
{
	const struct value_type *known = value_builtin(oid);
	struct item *i;

	if (known)
		return known;
	if (depth > DEPTH_MAX)
		return &value_string;
	i = find(t, oid);
	if (!i) {
		*ask = oid;
		return NULL;
	}
	if (i->type)
		return i->type;
	if (i->row.typtype == 'd')
		known = resolve(t, i->row.base_oid, depth + 1, ask);
	else if (i->row.elem_oid)
		known = resolve_array(t, i, depth, ask);
	else
		known = &value_string;
	/* deep inside another, the end may only be the bound */
	if (depth == 0)
		i->type = known;
	return known;
}

const struct value_type *
types_get(struct types *t, uint32_t oid, uint32_t *ask)
{
	return resolve(t, oid, 0, ask);
}

void
types_learn(struct types *t, const struct types_row *row)
{
	struct item *i;

	if (find(t, row->oid))
		return;
	i = calloc(1, sizeof(*i));
	if (!i)
		abort();
	i->oid = row->oid;
	i->row = *row;
	map_put(&t->by_oid, map_hash_i64(i->oid), i);
}
