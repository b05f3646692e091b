/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the document of a sink.  A refusal is one line of UTF-8; what
 * is accepted has all it needs, and a prefix that leaves nothing.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "err.h"
#include "jspan.h"
#include "s3conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_refusal(const struct err *e)
{
	if (e->kind != ERR_INPUT || !e->text[0] || strchr(e->text, '\n') ||
		!jspan_utf8(span_of(e->text)))
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_ZERO;
	struct buf b = BUF_ZERO;
	struct s3conf c;

	if (s3conf_from_doc(&c, span_make(data, size), &e) != 0) {
		check_refusal(&e);
		return 0;
	}
	if (c.secret_key || c.all_queues != (c.queues_n == 0) ||
		!s3conf_prefix_ok(span_of(c.prefix)) || !c.sink[0] ||
		c.target_mb < 1 || c.max_window_ms < 100)
		abort();
	s3conf_line(&c, &b);
	if (!jspan_utf8(buf_span(&b)) || memchr(b.p, '\n', b.len))
		abort();
	buf_fini(&b);
	s3conf_fini(&c);
	return 0;
}
