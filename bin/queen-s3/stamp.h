/* SPDX-License-Identifier: Apache-2.0 */
/* Times of the log: microseconds since 1970, UTC; never the wall clock. */
#ifndef QUEEN_S3_STAMP_H
#define QUEEN_S3_STAMP_H

#include <stdbool.h>
#include <stdint.h>

#include "s3conf.h"
#include "span.h"

/* Before everything; also "not known". */
#define STAMP_NONE INT64_MIN

/* The start of the hour or day it lies in; at_us itself when unaligned. */
int64_t stamp_floor(int64_t at_us, enum s3_align a);
/* The first boundary after it; INT64_MAX when unaligned. */
int64_t stamp_next(int64_t at_us, enum s3_align a);

/* `YYYY-MM-DDTHH:MM:SS[.f{1,6}]Z` alone; false otherwise. */
bool stamp_parse(struct span s, int64_t *at_us);
/* dt=YYYY-MM-DD and hour=HH of a key. */
struct stamp_parts {
	int year, month, day, hour;
};
void stamp_split(int64_t at_us, struct stamp_parts *out);

#endif
