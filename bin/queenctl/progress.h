/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line on the terminal that says how far it is.  Written to stderr, and
 * only when that is a terminal.
 */
#ifndef QUEENCTL_PROGRESS_H
#define QUEENCTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool on, shown;
	const char *what;	/* unit, in the plural */
	int64_t started_ms, next_ms;
};

void progress_init(struct progress *p, bool quiet, const char *what);
/* total < 0 = unknown; at most five times a second.  p may be NULL. */
void progress_show(struct progress *p, int64_t done, int64_t total);
/* Makes room for other output; p may be NULL. */
void progress_clear(struct progress *p);
void progress_end(struct progress *p);

#endif
