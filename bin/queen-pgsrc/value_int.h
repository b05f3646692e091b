/* SPDX-License-Identifier: Apache-2.0 */
/* Between value.c and value_array.c. */
#ifndef QUEEN_PGSRC_VALUE_INT_H
#define QUEEN_PGSRC_VALUE_INT_H

#include <stdbool.h>

#include "span.h"

struct buf;
struct value_type;

/* False, and nothing written, when the text is no array literal. */
bool value_put_array(struct buf *b, const struct value_type *t,
	struct span text);

#endif
