/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of -o jsonpath=: `.key` and `[N]` segments, nothing more. */
#ifndef QUEENCTL_JSONPATH_H
#define QUEENCTL_JSONPATH_H

#include "span.h"

struct arena;
struct buf;
struct err;

/*
 * Appends what the path selects: strings bare, integral numbers without
 * decimals, containers indented, nothing for null.  ERR_INPUT for bad syntax,
 * an index out of range and a key on a non-object.
 */
int jsonpath_eval(const char *path, struct span doc, struct arena *a,
	struct buf *out, struct err *e) __attribute__((warn_unused_result));

#endif
