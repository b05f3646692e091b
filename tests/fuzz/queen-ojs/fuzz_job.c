/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of any bytes, the reader by the first one: envelopes, retry policies,
 * errors of a nack.  Who refuses says why; what is accepted makes valid JSON,
 * and the document of a job holds none of what the server writes itself.
 */
#include <stdint.h>
#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "job.h"
#include "job_error.h"
#include "job_int.h"
#include "queue.h"
#include "retry.h"

/* 2026-03-01T09:00:00Z */
static const int64_t now_us = INT64_C(1772355600000000);
enum { ENVELOPE_MAX = 65536 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
refused(const struct problem *p)
{
	if (p->status < 400 || !p->code || !p->message ||
		!jspan_utf8(span_of(p->message)))
		abort();
}

static void
valid(struct span json)
{
	const char *what;
	size_t at;

	if (json.n && !jspan_valid(json, &what, &at))
		abort();
}

static void
valid_members(struct span members)
{
	struct buf b = BUF_ZERO;

	buf_putc(&b, '{');
	buf_put_span(&b, members);
	buf_putc(&b, '}');
	valid(buf_span(&b));
	buf_fini(&b);
}

static void
no_own_member(struct span members, struct arena *a)
{
	struct buf b = BUF_ZERO;
	struct jspan_val key, v;
	struct span name;
	struct jspan j;

	buf_putc(&b, '{');
	buf_put_span(&b, members);
	buf_putc(&b, '}');
	jspan_open(&j, buf_span(&b));
	(void)jspan_enter_object(&j);
	while (jspan_next_name(&j, &key) && jspan_take(&j, &v))
		if (jspan_text(&key, a, &name) &&
			(span_is(name, "id") || span_is(name, "state") ||
				span_is(name, "attempt") ||
				span_is(name, "priority")))
			abort();
	buf_fini(&b);
}

static void
try_spec(struct span s, struct arena *a)
{
	struct job_spec spec;
	struct problem p;

	if (job_spec_parse(s, ENVELOPE_MAX, a, now_us, &spec, &p) != 0) {
		refused(&p);
		return;
	}
	valid_members(spec.doc);
	no_own_member(spec.doc, a);
	valid(spec.policy);
	valid(spec.unique);
	valid(spec.rate);
	if (!queue_name_ok(spec.queue) || !spec.type.n || spec.rank < -100 ||
		spec.rank > 100 || spec.max_attempts < 0 ||
		spec.timeout_ms < 0 || spec.lease_ms < 0 ||
		spec.id.b[6] >> 4 != 7)
		abort();
}

static void
try_retry(struct span s, struct arena *a)
{
	struct span out = SPAN_ZERO;
	struct problem p;
	int n;

	if (retry_parse(s, a, &n, &out, &p) != 0)
		refused(&p);
	else
		valid(out);
}

static void
try_error(struct span s, struct arena *a)
{
	struct job_error e;
	struct problem p;

	if (job_error_parse(s, a, &e, &p) != 0) {
		refused(&p);
		return;
	}
	valid_members(e.stored);
	if (!e.type.n || !e.code.n)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena a = ARENA_ZERO;
	struct span s;

	if (size == 0)
		return 0;
	s = span_make(data + 1, size - 1);
	switch (data[0] % 3) {
	case 0:
		try_spec(s, &a);
		break;
	case 1:
		try_retry(s, &a);
		break;
	default:
		try_error(s, &a);
	}
	arena_fini(&a);
	return 0;
}
