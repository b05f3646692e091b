/* SPDX-License-Identifier: Apache-2.0 */
/* How the tables write their columns. */
#ifndef QUEENCTL_CMD_COL_H
#define QUEENCTL_CMD_COL_H

#include "out.h"

/* clang-format off */

#define VIEW(columns, at) \
	{ .rows = at, .cols = columns, \
	  .cols_n = sizeof(columns) / sizeof(columns[0]) }

#define COL(h, p) { .head = h, .path = p }
#define COUNT(h, p) { .head = h, .path = p, .kind = OUT_COUNT }
#define SECONDS(h, p) { .head = h, .path = p, .kind = OUT_SECONDS }
#define LIST(h, p) { .head = h, .path = p, .kind = OUT_LIST }
#define WIDE(h, p) { .head = h, .path = p, .wide = true }
#define COUNT_WIDE(h, p) \
	{ .head = h, .path = p, .kind = OUT_COUNT, .wide = true }

/* clang-format on */

#endif
