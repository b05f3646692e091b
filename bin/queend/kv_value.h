/* SPDX-License-Identifier: Apache-2.0 */
/* Values and numbers of KV operations as JSON text.  Pure. */
#ifndef QUEEND_KV_VALUE_H
#define QUEEND_KV_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

/*
 * Bytes of a valid JSON text once it is written without white space, with the
 * shortest escapes and with numbers in plain decimals (at most: 1.5e2 counts
 * as 5).  False when a string in it cannot be stored: it holds
 * \u0000 or half of a surrogate pair.
 */
bool kv_value_bytes(struct span json, size_t *bytes);
/* An integer in any spelling (5, 5.0, 50e-1); false when it is none. */
bool kv_value_integer(struct span number, int64_t *out);
/* The same for what is clamped anyway: the nearest int64. */
bool kv_value_clamped(struct span number, int64_t *out);

#endif
