/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a bundle is due, what goes into it, and what its answers mean.  The
 * pointer is the fence: whatever is in doubt is settled by reading it, and
 * nothing is ever skipped or sent in other bytes.
 */
#include "bundle.h"

#include "backoff.h"
#include "err.h"
#include "pointer.h"
#include "unit.h"

enum { LOST_MAX = 3, BACKOFF_FIRST_MS = 1000, BACKOFF_MAX_MS = 30000 };

/* ---- planning ---- */

/* Of the oldest message that waits; INT64_MAX: none does. */
static int64_t
oldest_ms(const struct unit_queue *q)
{
	const struct unit *u;

	TAILQ_FOREACH (u, &q->list, link) {
		if (u->n > 0)
			return u->at_ms;
	}
	return INT64_MAX;
}

bool
bundle_due(const struct unit_queue *q, const struct bundle_limits *l,
	bool stream_idle, int64_t now_ms)
{
	if (q->in_flight > 0)
		return false;
	if (q->forced > 0)
		return true;
	if (q->messages == 0)
		return false;
	return stream_idle || q->messages >= l->messages ||
	       q->bytes >= l->bytes || now_ms >= bundle_due_at_ms(q, l);
}

int64_t
bundle_due_at_ms(const struct unit_queue *q, const struct bundle_limits *l)
{
	int64_t at_ms = q->in_flight > 0 ? INT64_MAX : oldest_ms(q);

	return at_ms == INT64_MAX ? at_ms : at_ms + l->linger_ms;
}

size_t
bundle_take(struct unit_queue *q, const struct bundle_limits *l)
{
	size_t messages = 0, bytes = 0;
	const struct unit *u;

	BUG(q->in_flight > 0 || q->units == 0);
	TAILQ_FOREACH (u, &q->list, link) {
		messages += u->n;
		bytes += u->bytes;
		if (q->in_flight > 0 && u->n > 0 &&
			(messages > l->messages || bytes > l->bytes))
			break;
		q->in_flight++;
		q->forced -= u->forced;
	}
	return q->in_flight;
}

bool
bundle_backlogged(const struct unit_queue *q, const struct bundle_limits *l)
{
	return q->messages >= 2 * l->messages || q->bytes >= 2 * l->bytes;
}

/* ---- settling ---- */

static void
back_off(struct bundle *b)
{
	b->backoff_ms = backoff_next_ms(
		b->backoff_ms, BACKOFF_FIRST_MS, BACKOFF_MAX_MS);
	b->wait_ms = b->backoff_ms;
}

static enum bundle_act
slow_down(struct bundle *b, int64_t asked_ms)
{
	if (asked_ms > 0)
		b->wait_ms = asked_ms;
	else
		back_off(b);
	return BUNDLE_RESEND;
}

/* A queue that still wants what it was given cannot be given more. */
static enum bundle_act
seal(struct bundle *b)
{
	if (b->sealed)
		return BUNDLE_STOP;
	b->sealed = true;
	return BUNDLE_SEAL;
}

enum bundle_act
bundle_on_answer(struct bundle *b, enum bundle_answer answer, int64_t asked_ms)
{
	b->answer = answer;
	b->wait_ms = 0;
	switch (answer) {
	case BUNDLE_COMMITTED:
		return BUNDLE_GO_ON;
	case BUNDLE_NO_VERSION:
	case BUNDLE_PRECONDITION:
	case BUNDLE_IN_DOUBT:
		return BUNDLE_READ;
	case BUNDLE_SLOW_DOWN:
		return slow_down(b, asked_ms);
	case BUNDLE_GONE:
		back_off(b);
		return BUNDLE_ENSURE;
	case BUNDLE_UNSEALED:
		return seal(b);
	case BUNDLE_REFUSED:
		break;
	}
	return BUNDLE_STOP;
}

enum bundle_act
bundle_on_no_answer(struct bundle *b)
{
	back_off(b);
	return BUNDLE_READ;
}

/* The pointer is where it was: ours did not commit, nor did another's. */
static enum bundle_act
not_applied(struct bundle *b)
{
	if (b->answer == BUNDLE_NO_VERSION)
		return BUNDLE_FENCED;
	if (b->answer == BUNDLE_PRECONDITION && ++b->lost_n > LOST_MAX)
		return BUNDLE_FENCED;
	back_off(b);
	return BUNDLE_RESEND;
}

enum bundle_act
bundle_on_pointer(struct bundle *b, const struct pointer *found,
	int64_t found_version, const struct pointer *ours, int64_t held_version,
	const struct pointer_place *cover)
{
	b->wait_ms = 0;
	/* the version first: a cover may be the place we are at already */
	if (found_version == held_version)
		return not_applied(b);
	if (!found)
		return BUNDLE_FENCED;
	return pointer_is_at(found, ours, cover) ? BUNDLE_GO_ON : BUNDLE_FENCED;
}
