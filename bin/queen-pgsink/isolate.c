/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The batch is done from the front: what lies before `at` is committed, filed
 * or left alone.  What lies behind it is cut into pieces by a stack of ends,
 * the nearest one on top, so that a piece that fails is split by pushing.
 */
#include "isolate.h"

#include <string.h>

#include "arena.h"
#include "backoff.h"
#include "connfault.h"
#include "err.h"
#include "feed.h"

enum { DELAY_FIRST_MS = 200, DELAY_MAX_MS = 2000 };

struct isolate {
	struct arena arena;
	const struct feed_batch *batch;
	struct feed_result *results;
	size_t at;
	size_t *ends, ends_n;
	int64_t max_attempts;
	int64_t attempts; /* that failed of the piece of one message */
	int64_t delay_ms;
	bool alone;
};

struct isolate *
isolate_new(const struct feed_batch *b, int64_t max_attempts)
{
	struct arena a = ARENA_ZERO;
	struct isolate *s = arena_zalloc(&a, sizeof(*s));

	s->batch = b;
	s->max_attempts = max_attempts;
	s->results = arena_zalloc(&a, b->parts_n * sizeof(*s->results));
	/* every end is another message's */
	s->ends = arena_alloc(&a, b->n * sizeof(*s->ends));
	if (b->n)
		s->ends[s->ends_n++] = b->n;
	s->arena = a;
	return s;
}

void
isolate_free(struct isolate *s)
{
	struct arena a;

	if (!s)
		return;
	a = s->arena;
	arena_fini(&a);
}

bool
isolate_next(const struct isolate *s, struct isolate_piece *out)
{
	if (s->ends_n == 0)
		return false;
	*out = (struct isolate_piece){ .first = s->at,
		.n = s->ends[s->ends_n - 1] - s->at,
		.delay_ms = s->delay_ms,
		.alone = s->alone };
	return true;
}

const struct feed_result *
isolate_results(struct isolate *s)
{
	return s->results;
}

/* The front moves up to `at`: pieces that end before it are none any more. */
static void
move_on(struct isolate *s, size_t at)
{
	s->at = at;
	while (s->ends_n && s->ends[s->ends_n - 1] <= at)
		s->ends_n--;
	s->attempts = 0;
	s->delay_ms = 0;
}

static void
committed(struct isolate *s)
{
	size_t end = s->ends[s->ends_n - 1];

	for (size_t i = s->at; i < end;) {
		size_t k = s->batch->messages[i].part;
		const struct feed_part *part = &s->batch->parts[k];
		size_t upto = part->first + part->n;

		if (upto > end)
			upto = end;
		s->results[k].done = upto - part->first;
		i = upto;
	}
	move_on(s, end);
}

/* At most max characters. */
static struct span
clip(struct span s, size_t max)
{
	size_t chars = 0, i = 0;

	for (; i < s.n; i++)
		if (((unsigned char)s.p[i] & 0xc0) != 0x80 && chars++ == max)
			break;
	return span_make(s.p, i);
}

static void
file(struct isolate *s, struct span text)
{
	size_t k = s->batch->messages[s->at].part;
	const struct feed_part *part = &s->batch->parts[k];

	s->results[k] = (struct feed_result){
		.done = s->at - part->first + 1,
		.dlq = true,
		.text = arena_dup(&s->arena, clip(text, ISOLATE_TEXT_MAX)),
	};
	/* Later ones must not be applied before the queue has recorded it. */
	move_on(s, part->first + part->n);
}

static void
cut_at(struct isolate *s, size_t at)
{
	if (at > s->at && at < s->ends[s->ends_n - 1])
		s->ends[s->ends_n++] = at;
}

static void
split(struct isolate *s, const struct isolate_culprit *c)
{
	size_t end = s->ends[s->ends_n - 1], pieces = s->ends_n;

	if (c->n && c->first < end && c->first + c->n > s->at) {
		cut_at(s, c->first + c->n);
		cut_at(s, c->first);
	}
	if (s->ends_n == pieces)
		cut_at(s, s->at + (end - s->at) / 2);
	s->delay_ms = 0;
}

static void
broken(struct isolate *s, const struct isolate_culprit *c)
{
	s->alone = true;
	if (s->ends[s->ends_n - 1] - s->at > 1) {
		split(s, c);
		return;
	}
	/* Nothing else than the payload decides it: the next try is the same. */
	if (++s->attempts >= s->max_attempts || c->unasked) {
		file(s, c->text);
		return;
	}
	s->delay_ms =
		backoff_next_ms(s->delay_ms, DELAY_FIRST_MS, DELAY_MAX_MS);
}

void
isolate_ended(struct isolate *s, enum isolate_end end,
	const struct isolate_culprit *culprit)
{
	BUG(s->ends_n == 0);
	BUG((end == ISOLATE_DATA) != (culprit != NULL));
	if (end == ISOLATE_COMMITTED)
		committed(s);
	else if (end == ISOLATE_DATA)
		broken(s, culprit);
}

enum isolate_end
isolate_class(const char *sqlstate, bool own)
{
	static const char classes[][3] = { "21", "22", "23", "27", "44", "54",
		"P0" };

	if (!sqlstate || connfault_is_transient(sqlstate))
		return ISOLATE_TRANSIENT;
	for (size_t i = 0; own && i < sizeof(classes) / sizeof(*classes); i++)
		if (strncmp(sqlstate, classes[i], 2) == 0)
			return ISOLATE_DATA;
	return ISOLATE_ENVIRONMENT;
}
