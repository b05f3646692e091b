/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A column's text as JSON.  Never fails: text that has not the shape of its
 * type becomes a JSON string of the text.  Digits are copied, never computed,
 * so no number is rounded.
 */
#ifndef QUEEN_PGSRC_VALUE_H
#define QUEEN_PGSRC_VALUE_H

#include <stdint.h>

#include "span.h"

struct buf;

enum value_kind {
	VALUE_STRING,		/* as printed */
	VALUE_BOOL,
	VALUE_NUMBER,		/* NaN and the infinities as strings */
	VALUE_JSON,		/* embedded as it is */
	VALUE_TIMESTAMP,	/* T for the space */
	VALUE_TIMESTAMPTZ,	/* and minutes in the offset */
	VALUE_ARRAY,
};

struct value_type {
	enum value_kind kind;
	char delim;			/* VALUE_ARRAY: between elements */
	const struct value_type *elem;	/* VALUE_ARRAY */
};

extern const struct value_type value_string;

/*
 * Types every server has under the same OID; NULL: ask its catalogue (see
 * types.h).  Enums, composites, ranges and what we do not know are strings.
 */
const struct value_type *value_builtin(uint32_t type_oid);

/* Appends exactly one JSON value.  The text is valid UTF-8. */
void value_write(struct buf *b, const struct value_type *t, struct span text);

#endif
