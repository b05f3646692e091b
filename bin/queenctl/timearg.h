/* SPDX-License-Identifier: Apache-2.0 */
/* Times and durations as people type them. */
#ifndef QUEENCTL_TIMEARG_H
#define QUEENCTL_TIMEARG_H

#include <stdbool.h>
#include <stdint.h>

struct err;

enum timearg_kind { TIMEARG_END, TIMEARG_START, TIMEARG_AT, TIMEARG_OFFSET };

struct timearg {
	enum timearg_kind kind;
	int64_t at_us;		/* TIMEARG_AT; the epoch for TIMEARG_START */
	int64_t offset;		/* TIMEARG_OFFSET */
};

enum { TIMEARG_TEXT = 24 };

/*
 * now, end, latest, beginning, earliest, start, `5m ago`, `1d`, dates and
 * times (UTC without an offset), unix seconds, offset:N.
 */
int timearg_parse(const char *text, int64_t now_us, struct timearg *t,
	struct err *e) __attribute__((warn_unused_result));
/* `10s`, `1m30s`, `250ms`, `2d`; no bare numbers but 0. */
int timearg_duration(const char *text, int64_t *ms, struct err *e)
	__attribute__((warn_unused_result));
/* RFC 3339 UTC with seconds; returns out. */
char *timearg_text(int64_t at_us, char out[TIMEARG_TEXT]);
/* `3 minutes ago`, `in 2 hours`. */
void timearg_age(int64_t at_us, int64_t now_us, char *out, int cap);
/* `0s`, `250ms`, `42s`, `12m5s`, `1h4m0s`. */
void timearg_span(double seconds, char *out, int cap);

#endif
