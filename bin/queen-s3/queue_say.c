/* SPDX-License-Identifier: Apache-2.0 */
/* What a queue says: its tenant and its name in front of everything. */
#include "queue_int.h"

#include <stdio.h>

#include "clk.h"
#include "err.h"

#define TARGET "queen-s3"

void
queue_say(struct queue *q, enum log_level level, const char *message,
	const char *fmt, ...)
{
	struct buf b = BUF_ZERO;
	va_list ap;

	if (!log_on(level, TARGET))
		return;
	buf_printf(&b, "%squeue=%s", q->x->log_tenant, log_quote(q->name));
	if (fmt) {
		buf_putc(&b, ' ');
		va_start(ap, fmt);
		buf_vprintf(&b, fmt, ap);
		va_end(ap);
	}
	log_line(level, TARGET, message, "%.*s", (int)b.len, b.p);
	buf_fini(&b);
}

enum log_level
queue_level(const struct queue *q)
{
	return q->missing_told ? LOG_DEBUG : LOG_INFO;
}

void
queue_remember(struct queue *q, const char *text)
{
	snprintf(q->last_error, sizeof(q->last_error), "%s", text);
	q->last_error_us = clk_wall_us();
}

void
queue_trouble(struct queue *q, enum queue_trouble kind, const char *text)
{
	static const char *const messages[] = {
		[QUEUE_OF_PUT] = "upload failed",
		[QUEUE_OF_KV] = "row not read or written",
		[QUEUE_OF_FETCH] = "fetch failed",
		[QUEUE_OF_DISCOVERY] = "discovery failed",
		[QUEUE_OF_CLAIM] = "claim failed",
		[QUEUE_OF_REST] = "bucket not read",
	};
	uint64_t suppressed;

	queue_remember(q, text);
	if (!log_sample(&q->samplers[kind], loop_now_ms(queue_loop(q)),
		    &suppressed))
		return;
	queue_say(q, LOG_WARN, messages[kind], "error=%s suppressed=%llu",
		log_quote(text), (unsigned long long)suppressed);
}
