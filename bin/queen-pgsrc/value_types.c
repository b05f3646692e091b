/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types every server has under one OID, as pg_type.dat numbers them.
 * Only those are listed that are not printed into a string: the rest and all
 * arrays of them.
 */
#include "value.h"

#include <stddef.h>
#include <stdlib.h>

const struct value_type value_string = { .kind = VALUE_STRING };

static const struct value_type boolean = { .kind = VALUE_BOOL };
static const struct value_type number = { .kind = VALUE_NUMBER };
static const struct value_type json = { .kind = VALUE_JSON };
static const struct value_type timestamp = { .kind = VALUE_TIMESTAMP };
static const struct value_type timestamptz = { .kind = VALUE_TIMESTAMPTZ };

#define ARRAY(name, e, d)                                                      \
	static const struct value_type name = {                                \
		.kind = VALUE_ARRAY, .delim = d, .elem = &e                    \
	}
ARRAY(booleans, boolean, ',');
ARRAY(numbers, number, ',');
ARRAY(jsons, json, ',');
ARRAY(timestamps, timestamp, ',');
ARRAY(timestamptzs, timestamptz, ',');
ARRAY(strings, value_string, ',');
ARRAY(boxes, value_string, ';');

struct entry {
	uint32_t oid;
	const struct value_type *type;
};

/* By OID, ascending. */
static const struct entry entries[] = {
	{ 16, &boolean },
	{ 17, &value_string },
	{ 18, &value_string },
	{ 19, &value_string },
	{ 20, &number },
	{ 21, &number },
	{ 22, &value_string },
	{ 23, &number },
	{ 24, &value_string },
	{ 25, &value_string },
	{ 26, &number },
	{ 27, &value_string },
	{ 28, &value_string },
	{ 29, &value_string },
	{ 30, &value_string },
	{ 114, &json },
	{ 142, &value_string },
	{ 143, &strings },
	{ 194, &value_string },
	{ 199, &jsons },
	{ 271, &strings },
	{ 600, &value_string },
	{ 601, &value_string },
	{ 602, &value_string },
	{ 603, &value_string },
	{ 604, &value_string },
	{ 628, &value_string },
	{ 629, &strings },
	{ 650, &value_string },
	{ 651, &strings },
	{ 700, &number },
	{ 701, &number },
	{ 718, &value_string },
	{ 719, &strings },
	{ 774, &value_string },
	{ 775, &strings },
	{ 790, &value_string },
	{ 791, &strings },
	{ 829, &value_string },
	{ 869, &value_string },
	{ 1000, &booleans },
	{ 1001, &strings },
	{ 1002, &strings },
	{ 1003, &strings },
	{ 1005, &numbers },
	{ 1006, &strings },
	{ 1007, &numbers },
	{ 1008, &strings },
	{ 1009, &strings },
	{ 1010, &strings },
	{ 1011, &strings },
	{ 1012, &strings },
	{ 1013, &strings },
	{ 1014, &strings },
	{ 1015, &strings },
	{ 1016, &numbers },
	{ 1017, &strings },
	{ 1018, &strings },
	{ 1019, &strings },
	{ 1020, &boxes },
	{ 1021, &numbers },
	{ 1022, &numbers },
	{ 1027, &strings },
	{ 1028, &numbers },
	{ 1033, &value_string },
	{ 1034, &strings },
	{ 1040, &strings },
	{ 1041, &strings },
	{ 1042, &value_string },
	{ 1043, &value_string },
	{ 1082, &value_string },
	{ 1083, &value_string },
	{ 1114, &timestamp },
	{ 1115, &timestamps },
	{ 1182, &strings },
	{ 1183, &strings },
	{ 1184, &timestamptz },
	{ 1185, &timestamptzs },
	{ 1186, &value_string },
	{ 1187, &strings },
	{ 1231, &numbers },
	{ 1263, &strings },
	{ 1266, &value_string },
	{ 1270, &strings },
	{ 1560, &value_string },
	{ 1561, &strings },
	{ 1562, &value_string },
	{ 1563, &strings },
	{ 1700, &number },
	{ 1790, &value_string },
	{ 2201, &strings },
	{ 2202, &value_string },
	{ 2203, &value_string },
	{ 2204, &value_string },
	{ 2205, &value_string },
	{ 2206, &value_string },
	{ 2207, &strings },
	{ 2208, &strings },
	{ 2209, &strings },
	{ 2210, &strings },
	{ 2211, &strings },
	{ 2949, &strings },
	{ 2950, &value_string },
	{ 2951, &strings },
	{ 2970, &value_string },
	{ 3220, &value_string },
	{ 3221, &strings },
	{ 3361, &value_string },
	{ 3402, &value_string },
	{ 3614, &value_string },
	{ 3615, &value_string },
	{ 3642, &value_string },
	{ 3643, &strings },
	{ 3644, &strings },
	{ 3645, &strings },
	{ 3734, &value_string },
	{ 3735, &strings },
	{ 3769, &value_string },
	{ 3770, &strings },
	{ 3802, &json },
	{ 3807, &jsons },
	{ 3904, &value_string },
	{ 3905, &strings },
	{ 3906, &value_string },
	{ 3907, &strings },
	{ 3908, &value_string },
	{ 3909, &strings },
	{ 3910, &value_string },
	{ 3911, &strings },
	{ 3912, &value_string },
	{ 3913, &strings },
	{ 3926, &value_string },
	{ 3927, &strings },
	{ 4072, &value_string },
	{ 4073, &strings },
	{ 4089, &value_string },
	{ 4090, &strings },
	{ 4096, &value_string },
	{ 4097, &strings },
	{ 4191, &value_string },
	{ 4192, &strings },
	{ 4451, &value_string },
	{ 4532, &value_string },
	{ 4533, &value_string },
	{ 4534, &value_string },
	{ 4535, &value_string },
	{ 4536, &value_string },
	{ 4600, &value_string },
	{ 4601, &value_string },
	{ 5017, &value_string },
	{ 5038, &value_string },
	{ 5039, &strings },
	{ 5069, &value_string },
	{ 6150, &strings },
	{ 6151, &strings },
	{ 6152, &strings },
	{ 6153, &strings },
	{ 6155, &strings },
	{ 6157, &strings },
};

static int
by_oid(const void *key, const void *item)
{
	uint32_t oid = *(const uint32_t *)key;
	const struct entry *e = item;

	return (oid > e->oid) - (oid < e->oid);
}

const struct value_type *
value_builtin(uint32_t type_oid)
{
	const struct entry *e = bsearch(&type_oid, entries,
		sizeof(entries) / sizeof(*entries), sizeof(*entries), by_oid);

	return e ? e->type : NULL;
}
