/* SPDX-License-Identifier: Apache-2.0 */
/* How the tables of phrases write their flags. */
#ifndef QUEENCTL_CMD_FLAG_H
#define QUEENCTL_CMD_FLAG_H

/* clang-format off */

#define SENT(n, l, t, d, a, h, q) \
	{ .name = n, .letter = l, .type = t, .dflt = d, .arg = a, .help = h, \
	  .query = q }
#define WORDS(n, l, t, d, a, h, w) \
	{ .name = n, .letter = l, .type = t, .dflt = d, .arg = a, .help = h, \
	  .words = w }
#define FLAG(n, l, t, d, a, h) SENT(n, l, t, d, a, h, NULL)
#define SWITCH(n, l, h) FLAG(n, l, CMD_BOOL, NULL, NULL, h)
#define END { .name = NULL }
#define YES SWITCH("yes", 'y', "do it; without, it is refused")
#define DRY SWITCH("dry-run", 0, "tell what would be done")
#define DIR FLAG("dir", 0, CMD_STR, NULL, "DIR", "folder of the cell")
#define CONNINFO \
	FLAG("conninfo", 0, CMD_STR, NULL, "TEXT", \
	  "libpq connection string; else QUEEN_PG_CONNINFO, PG_*, the cell")

/* clang-format on */

#endif
