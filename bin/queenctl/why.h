/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer that refuses says, in one line.  Servers answer with a word
 * (`error`), often with a `detail` or `reason` to it, or with a sentence.
 */
#ifndef QUEENCTL_WHY_H
#define QUEENCTL_WHY_H

#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct arena;

/* `word: detail`, or the sentence; NULL when the answer says nothing. */
const char *why_refused(struct span answer, struct arena *a);
/*
 * For an answer to a lost `required` of key/value operations, never NULL:
 * `kv[1] put ns/key: version, it has version 7`.  ops is the array that was
 * sent, first the number the answer gives its first element.
 */
const char *why_lost(
	struct span answer, struct span ops, int64_t first, struct arena *a);

#endif
