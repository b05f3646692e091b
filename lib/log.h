/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event, one line on stderr: `time LEVEL target message key=value ...`.
 * Under systemd (JOURNAL_STREAM set) a `<prio>` prefix stands in for the
 * time.  Keeps errno.  Never per message, never payloads, tokens or keys.
 */
#ifndef QUEEN_LOG_H
#define QUEEN_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

/*
 * filter: `level` or `level,target=level,...`; NULL or unparsable = info.
 * json: one JSON object per line with the same fields.
 */
void log_init(const char *filter, bool json);
bool log_on(enum log_level level, const char *target);

/*
 * message: fixed text.  kv: printf format of `key=value` pairs or NULL.  A
 * value that may hold spaces or quotes is written as key="..." by log_quote.
 */
void log_line(enum log_level level, const char *target, const char *message,
	const char *kv, ...) __attribute__((format(printf, 4, 5)));

/* Quotes into one of a few static buffers; use at once, inside log_line. */
const char *log_quote(const char *text);

/* A window of silence for events on a request path. */
struct log_sampler {
	int64_t next_ms;
	uint64_t suppressed;
	uint32_t every_ms;
};
/*
 * True when the caller may log now; *suppressed gets the number of events
 * swallowed since the last line (print it as suppressed=N).
 */
bool log_sample(struct log_sampler *s, int64_t now_ms, uint64_t *suppressed);

#endif
