/* SPDX-License-Identifier: Apache-2.0 */
/* Envelopes as the arrays the database takes, one per member of job_spec. */
#include "job.h"

#define EACH(a, n, type, item)                                                 \
	do {                                                                   \
		pgargs_array(a, type);                                         \
		for (size_t i = 0; i < (n); i++)                               \
			item;                                                  \
		pgargs_close(a);                                               \
	} while (0)

static void
item_json(struct pgargs *a, struct span s)
{
	if (s.n)
		pgargs_item_text(a, s);
	else
		pgargs_item_null(a);
}

static void
item_ms(struct pgargs *a, int64_t ms)
{
	if (ms)
		pgargs_item_i64(a, ms);
	else
		pgargs_item_null(a);
}

static void
item_at(struct pgargs *a, int64_t at_us)
{
	if (at_us)
		pgargs_item_time(a, at_us);
	else
		pgargs_item_null(a);
}

void
job_spec_args(struct pgargs *a, const struct job_spec *s, size_t n)
{
	EACH(a, n, PGARGS_UUID, pgargs_item_uuid(a, &s[i].id));
	EACH(a, n, PGARGS_TEXT, pgargs_item_text(a, s[i].type));
	EACH(a, n, PGARGS_TEXT, pgargs_item_text(a, s[i].queue));
	EACH(a, n, PGARGS_TEXT, pgargs_item_text(a, s[i].doc));
	EACH(a, n, PGARGS_I16, pgargs_item_i16(a, (int16_t)s[i].rank));
	EACH(a, n, PGARGS_I32, pgargs_item_i32(a, s[i].max_attempts));
	EACH(a, n, PGARGS_TIMESTAMPTZ, item_at(a, s[i].due_us));
	EACH(a, n, PGARGS_BOOL, pgargs_item_bool(a, s[i].pending));
	EACH(a, n, PGARGS_TIMESTAMPTZ, item_at(a, s[i].expires_us));
	EACH(a, n, PGARGS_I64, item_ms(a, s[i].timeout_ms));
	EACH(a, n, PGARGS_I64, item_ms(a, s[i].lease_ms));
	EACH(a, n, PGARGS_TEXT, item_json(a, s[i].policy));
	EACH(a, n, PGARGS_TEXT, item_json(a, s[i].unique));
	EACH(a, n, PGARGS_TEXT, item_json(a, s[i].rate));
}
