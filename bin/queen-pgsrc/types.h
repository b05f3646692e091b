/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a source's types are to us, by OID: learned from its catalogue once,
 * shared by stream and snapshot, kept until the link goes.  A domain is its
 * base type, at most eight deep; an array carries its element type.
 *
 * The caller asks: types_get says which row is still needed, the caller reads
 * it from pg_type, gives it to types_learn and asks again.
 */
#ifndef QUEEN_PGSRC_TYPES_H
#define QUEEN_PGSRC_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "map.h"

struct value_type;

struct types {
	struct map by_oid;
};

#define TYPES_ZERO { .by_oid = MAP_ZERO }

/* One row of pg_type; all zero but the OID when there is no such type. */
struct types_row {
	uint32_t oid;
	char typtype;		/* b c d e p r m; 0 = not found */
	char delim;		/* typdelim */
	uint32_t base_oid;	/* typbasetype of a domain */
	uint32_t elem_oid;	/* typelem of a true array, else 0 */
};

void types_fini(struct types *t);
/* NULL: give the row of *ask to types_learn, then call again. */
const struct value_type *types_get(struct types *t, uint32_t oid,
	uint32_t *ask);
void types_learn(struct types *t, const struct types_row *row);

#endif
