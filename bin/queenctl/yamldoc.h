/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML in and out, with JSON bytes on the other side.  What is written reads
 * back as the same value: both directions ask one resolver what a plain
 * scalar means.
 */
#ifndef QUEENCTL_YAMLDOC_H
#define QUEENCTL_YAMLDOC_H

#include <stdbool.h>

#include "span.h"

struct arena;
struct buf;
struct err;

/* Called with the JSON of each document; non-zero ends the reading. */
typedef int (*yamldoc_fn)(void *arg, struct span json, struct err *e);

/*
 * Reads a stream of YAML or JSON documents.  ERR_INPUT with the line for what
 * does not parse; the result of the callback otherwise.
 */
int yamldoc_read(struct span text, yamldoc_fn fn, void *arg, struct err *e)
	__attribute__((warn_unused_result));
/* Appends the value as one YAML document, indented by 2. */
int yamldoc_write(struct buf *out, struct span json, struct err *e)
	__attribute__((warn_unused_result));
/*
 * The JSON of a plain scalar when it is no string: null, boolean or number
 * (YAML 1.1, without numbers of base 60).  False for a string.
 */
bool yamldoc_resolve(struct span plain, struct arena *a, struct span *json);

#endif
