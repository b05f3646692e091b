/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be a name of a queue, partition, group, label or transaction: 1 to
 * 1024 bytes of UTF-8 without control characters.  Pure.
 */
#ifndef QUEEND_NAME_H
#define QUEEND_NAME_H

#include <stdbool.h>

#include "err.h"
#include "span.h"

enum { NAME_MAX_BYTES = 1024 };

/*
 * NULL, or what is wrong with it ("is empty"); *control is the offending
 * character, or -1.  utf8: it is known to be UTF-8.
 */
const char *name_fault(struct span name, bool utf8, int *control);
/* The same as ERR_INPUT: `<what> is empty`. */
int name_check(struct span name, const char *what, struct err *e)
	__attribute__((warn_unused_result));

#endif
