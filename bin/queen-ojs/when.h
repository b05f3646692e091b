/* SPDX-License-Identifier: Apache-2.0 */
/* Durations and instants as clients of the binding write them. */
#ifndef QUEEN_OJS_WHEN_H
#define QUEEN_OJS_WHEN_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

enum { WHEN_SPAN_MAX = 32 };

/*
 * ISO 8601 (`PT1S`, `PT0.5S`, `P1D`; no years, no months) or `250ms`, `30s`,
 * `1h30m`, `2d`.  False when it does not parse or passes 100 years; rounded to
 * the nearest millisecond, but never from something to nothing.
 */
bool when_duration(struct span s, int64_t *ms);
/* RFC 3339 with a zone, or `+` and an ISO 8601 duration from now_us. */
bool when_instant(struct span s, int64_t now_us, int64_t *at_us);
/* `84h`, `1h30m`, `1m30s`, `250ms`, `0s`; returns out. */
char *when_text(int64_t ms, char out[WHEN_SPAN_MAX]);

#endif
