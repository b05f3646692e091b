/* SPDX-License-Identifier: Apache-2.0 */
/* What consumers send: subscriptions, receives, and ends of batches. */
#include <string.h>

#include "arena.h"
#include "stream_body_int.h"
#include "when.h"

enum { REASON_MAX = 2000 };
static const int64_t retry_max_ms = 30LL * 86400 * 1000;

/* ---- consumers ---- */

static int
take_consumer(const struct stream_reader *r, const struct stream_member *m,
	struct span *out)
{
	if (stream_body_name(r, m, out) != 0)
		return -1;
	return out->n ? 0 : stream_body_bad(r, m->key, "is required");
}

int
stream_body_subscribe(struct span body, struct arena *a,
	struct stream_subscribe *s, struct problem *p)
{
	struct stream_reader r = { .a = a, .p = p, .index = -1 };
	struct stream_member m[] = { { .key = "consumer" },
		{ .key = "from_tick" } };
	int64_t tick = -1;
	struct span text;

	*s = (struct stream_subscribe){ .from = SPAN_ZERO };
	if (stream_body_read(body, &r, m, 2) != 0 ||
		take_consumer(&r, &m[0], &s->consumer) != 0)
		return -1;
	if (m[1].v.type == JSPAN_STRING && jspan_text(&m[1].v, a, &text) &&
		span_is(text, "now")) {
		s->from = text;
		return 0;
	}
	if (stream_body_int(&r, &m[1], 0, INT64_MAX, &tick) != 0)
		return -1;
	if (tick >= 0)
		s->from = arena_printf(a, "%lld", (long long)tick);
	return 0;
}

int
stream_body_receive(struct span body, struct arena *a, struct stream_receive *s,
	struct problem *p)
{
	struct stream_reader r = { .a = a, .p = p, .index = -1 };
	struct stream_member m[] = { { .key = "consumer" }, { .key = "member" },
		{ .key = "max" }, { .key = "wait_ms" },
		{ .key = "dead_interval_ms" } };
	int64_t max = STREAM_MAX_MAX;

	*s = (struct stream_receive){ .dead_ms = 0 };
	if (stream_body_read(body, &r, m, 5) != 0 ||
		take_consumer(&r, &m[0], &s->consumer) != 0 ||
		stream_body_name(&r, &m[1], &s->member) != 0 ||
		stream_body_int(&r, &m[2], 1, STREAM_MAX_MAX, &max) != 0 ||
		stream_body_int(&r, &m[3], 0, INT64_MAX, &s->wait_ms) != 0 ||
		stream_body_int(&r, &m[4], 1000, retry_max_ms, &s->dead_ms) !=
			0)
		return -1;
	if (s->dead_ms && !s->member.n)
		return stream_body_bad(
			&r, "dead_interval_ms", "needs a `member`");
	s->max = (int)max;
	return 0;
}

/* ---- ends ---- */

int
stream_body_ack(struct span body, struct arena *a, struct stream_end *s,
	struct problem *p)
{
	struct stream_reader r = { .a = a, .p = p, .index = -1 };
	struct stream_member m[] = { { .key = "queue" }, { .key = "batch_id" },
		{ .key = "consumer" }, { .key = "member" } };

	*s = (struct stream_end){ .batch = 0 };
	if (stream_body_read(body, &r, m, 4) != 0 ||
		stream_body_queue(&r, &m[0], &s->queue) != 0 ||
		stream_body_int(&r, &m[1], 1, INT64_MAX, &s->batch) != 0)
		return -1;
	if (!s->batch)
		return stream_body_bad(&r, "batch_id", "is required");
	if (stream_body_name(&r, &m[2], &s->consumer) != 0)
		return -1;
	return stream_body_name(&r, &m[3], &s->member);
}

/* A duration, or a number of seconds. */
static int
take_delay(const struct stream_reader *r, const struct stream_member *m,
	int64_t *ms)
{
	struct span text;
	int64_t v = -1;

	if (!stream_body_given(m))
		return 0;
	if (m->v.type == JSPAN_NUMBER) {
		if (!jspan_i64(&m->v, &v) || v > retry_max_ms / 1000)
			v = -1;
		else
			v *= 1000;
	} else if (m->v.type == JSPAN_STRING) {
		if (!jspan_text(&m->v, r->a, &text) || !when_duration(text, &v))
			v = -1;
	}
	if (v < 0 || v > retry_max_ms)
		return stream_body_bad(r, m->key,
			"must be a duration or a number of seconds, up to 30 "
			"days");
	*ms = v;
	return 0;
}

/* Empty is as good as absent; the database's text holds no zero byte. */
static int
take_reason(const struct stream_reader *r, const struct stream_member *m,
	struct span *out)
{
	if (m->v.type == JSPAN_STRING && m->v.raw.n == 2)
		return 0;
	if (stream_body_text(r, m, out) != 0)
		return -1;
	if (stream_body_characters(*out) > REASON_MAX)
		return stream_body_bad(
			r, m->key, "has more than %d characters", REASON_MAX);
	if (out->n && memchr(out->p, '\0', out->n))
		return stream_body_bad(r, m->key, "holds a zero character");
	return 0;
}

int
stream_body_nack(struct span body, struct arena *a, struct stream_end *s,
	struct problem *p)
{
	struct stream_reader r = { .a = a, .p = p, .index = -1 };
	struct stream_member m[] = { { .key = "queue" }, { .key = "batch_id" },
		{ .key = "message_id" }, { .key = "seq" },
		{ .key = "retry_after" }, { .key = "reason" } };

	*s = (struct stream_end){ .retry_ms = -1 };
	if (stream_body_read(body, &r, m, 6) != 0 ||
		stream_body_queue(&r, &m[0], &s->queue) != 0 ||
		stream_body_int(&r, &m[1], 1, INT64_MAX, &s->batch) != 0)
		return -1;
	if (!s->batch)
		return stream_body_bad(&r, "batch_id", "is required");
	if (stream_body_label(&r, &m[2], &s->message) != 0 ||
		stream_body_int(&r, &m[3], 1, INT64_MAX, &s->seq) != 0)
		return -1;
	if (!s->message.n && !s->seq)
		return stream_body_bad(
			&r, "message_id", "or `seq` is required");
	if (take_delay(&r, &m[4], &s->retry_ms) != 0)
		return -1;
	return take_reason(&r, &m[5], &s->reason);
}
