/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Canonical JSON (RFC 8785): the same text for the same value, whoever wrote
 * it.  Names in the order of their UTF-16 code units, numbers as ECMAScript
 * shows them, the fewest escapes, no white space.
 */
#ifndef QUEEN_JCS_H
#define QUEEN_JCS_H

#include <stdbool.h>

#include "span.h"

struct arena;
struct buf;

enum { JCS_DEPTH_MAX = 128, JCS_NUMBER_MAX = 32 };

/*
 * Appends the canonical form of a text that is one value.  Of names that repeat
 * the last counts.  False, *why a literal and *b as it was: bad JSON, lone
 * surrogates, numbers beyond a double, deeper than JCS_DEPTH_MAX.
 */
bool jcs_put(struct buf *b, struct span json, struct arena *a,
	const char **why);
/* A finite number as ECMAScript shows it; returns out. */
char *jcs_number(double v, char out[JCS_NUMBER_MAX]);

#endif
