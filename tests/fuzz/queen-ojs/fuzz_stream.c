/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream requests and durations of any bytes, the reader by the first one:
 * what is taken keeps its bounds, what is refused says why.
 */
#include <stdint.h>
#include <stdlib.h>

#include "arena.h"
#include "jspan.h"
#include "queue.h"
#include "stream_body.h"
#include "when.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 4096 };

static void
must(bool ok)
{
	if (!ok)
		abort();
}

static void
check_problem(const struct problem *p)
{
	must(p->status == 400 || p->status == 413);
	must(p->code && p->message);
}

static void
check_message(const struct stream_message *m)
{
	const char *what;
	size_t at;

	must(m->type.n > 0 && m->type.n <= 255);
	must(m->payload.n <= LIMIT && jspan_valid(m->payload, &what, &at));
	must(!m->headers.n || (m->headers.p[0] == '{' &&
				      jspan_valid(m->headers, &what, &at)));
	must(jspan_utf8(m->id) && jspan_utf8(m->type));
}

static void
try_append(struct span s, struct arena *a)
{
	struct stream_message one = { .id = SPAN_ZERO }, *m;
	struct problem p;
	size_t n;

	if (stream_body_append(s, a, LIMIT, &one, &p) == 0)
		check_message(&one);
	else
		check_problem(&p);
	if (stream_body_append_batch(s, a, LIMIT, &m, &n, &p) == 0) {
		must(n > 0 && n <= STREAM_BATCH_MAX);
		for (size_t i = 0; i < n; i++)
			check_message(&m[i]);
	} else {
		check_problem(&p);
	}
}

static void
try_consumer(struct span s, struct arena *a)
{
	struct stream_subscribe sub;
	struct stream_receive r;
	struct problem p;
	int64_t tick;

	if (stream_body_subscribe(s, a, &sub, &p) == 0) {
		must(stream_body_name_ok(sub.consumer));
		must(!sub.from.n || span_is(sub.from, "now") ||
			(span_i64(sub.from, &tick) && tick >= 0));
	} else {
		check_problem(&p);
	}
	if (stream_body_receive(s, a, &r, &p) == 0) {
		must(r.max >= 1 && r.max <= STREAM_MAX_MAX && r.wait_ms >= 0);
		must(r.dead_ms == 0 || r.dead_ms >= 1000);
		must(!r.member.n || stream_body_name_ok(r.member));
	} else {
		check_problem(&p);
	}
}

static void
try_end(struct span s, struct arena *a)
{
	struct stream_end e;
	struct problem p;

	if (stream_body_ack(s, a, &e, &p) == 0)
		must(queue_name_ok(e.queue) && e.batch > 0);
	else
		check_problem(&p);
	if (stream_body_nack(s, a, &e, &p) == 0) {
		must(e.message.n || e.seq > 0);
		must(e.retry_ms >= -1 && e.retry_ms <= 2592000000);
		must(e.reason.n <= 8000);
	} else {
		check_problem(&p);
	}
}

static void
try_when(struct span s)
{
	char out[WHEN_SPAN_MAX];
	int64_t ms, again, at;

	if (when_duration(s, &ms)) {
		must(ms >= 0 && ms <= 3155760000000);
		must(when_duration(span_of(when_text(ms, out)), &again));
		must(ms == again);
	}
	if (when_instant(s, 0, &at))
		must(at <= 253402300800000000);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena a = ARENA_ZERO;
	struct span s;

	if (size == 0)
		return 0;
	s = span_make(data + 1, size - 1);
	switch (data[0] % 4) {
	case 0:
		try_append(s, &a);
		break;
	case 1:
		try_consumer(s, &a);
		break;
	case 2:
		try_end(s, &a);
		break;
	default:
		try_when(s);
		break;
	}
	arena_fini(&a);
	return 0;
}
