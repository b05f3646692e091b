/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registrations of crons.  What is accepted selects something in each field,
 * within its bounds, and what is shown of it is JSON.
 */
#include <stdint.h>
#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "cron_int.h"
#include "jspan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_expression(const struct cron_expr *e)
{
	if (!e->minutes || e->minutes >> 60 || !e->hours || e->hours >> 24 ||
		!e->days || e->days & 1 || !e->months || e->months & 1 ||
		e->months >> 13 || !e->weekdays || e->weekdays >> 7)
		abort();
}

static void
check_shown(struct span members)
{
	struct buf b = BUF_ZERO;
	const char *what;
	size_t at;

	buf_putc(&b, '{');
	buf_put_span(&b, members);
	buf_putc(&b, '}');
	if (!jspan_valid(buf_span(&b), &what, &at))
		abort();
	buf_fini(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span s = span_make(data, size);
	struct arena a = ARENA_ZERO;
	struct cron_expr e;
	struct cron_body c = { .enabled = false };
	const char *why = NULL;
	struct problem p;

	if (cron_parse(s, &e, &why))
		check_expression(&e);
	else if (!why)
		abort();
	if (cron_body_parse(s, 1 << 20, &a, 0, &c, &p) == 0) {
		check_expression(&c.when);
		check_shown(c.shown);
		check_shown(c.spec.doc);
	} else if (p.status < 400 || !p.message) {
		abort();
	}
	arena_fini(&a);
	return 0;
}
