/* SPDX-License-Identifier: Apache-2.0 */
/* The two clocks, and ISO 8601 in UTC.  Deadlines use the monotonic one. */
#ifndef QUEEN_CLK_H
#define QUEEN_CLK_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

enum { CLK_ISO_MAX = 32 };

int64_t clk_wall_us(void);	/* microseconds since 1970 */
int64_t clk_mono_ms(void);
int64_t clk_mono_us(void);

/* `2026-09-03T11:02:44.512873Z` (us) or with three digits (ms); returns out. */
char *clk_iso_us(int64_t at_us, char out[CLK_ISO_MAX]);
char *clk_iso_ms(int64_t at_us, char out[CLK_ISO_MAX]);

/*
 * RFC 3339 with `Z` or an offset, `T` or a space, any fraction, or a plain
 * date (UTC midnight).  No offset means UTC.  False when it does not parse.
 */
bool clk_parse_iso(struct span s, int64_t *at_us);

#endif
