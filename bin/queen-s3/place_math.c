/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of placement.  Every wait is bounded, so that a queue nobody
 * short of its share takes is taken by anyone; in steady state nothing moves.
 */
#include "err.h"
#include "place.h"
#include "place_int.h"

enum { STEP_MS = 1000, BEAT_MIN_MS = 100, FIRST_BEATS = 3 };

static int slots;

int
place_slot_take(void)
{
	return slots++;
}

void
place_slot_give(void)
{
	BUG(slots == 0);
	slots--;
}

int
place_share(int queues, int nodes)
{
	if (nodes < 1)
		nodes = 1;
	return queues / nodes + (queues % nodes > 0);
}

/*
 * Nodes that start together have to know of one another before each has taken
 * its share, a queue a second: the first beats are as close as that.
 */
int64_t
place_beat_ms(int beats, int64_t ttl_ms)
{
	int64_t ms = ttl_ms / 3;

	if (beats < FIRST_BEATS && ms > STEP_MS)
		return STEP_MS;
	return ms > BEAT_MIN_MS ? ms : BEAT_MIN_MS;
}

int64_t
place_wait_ms(const struct place_claim *c, int64_t jitter_ms)
{
	bool has_share = c->held >= c->share;
	int64_t step, wait, back;

	if (c->seen == LEASE_OTHER)
		return (has_share ? c->ttl_ms : c->ttl_ms / 3) + jitter_ms;
	if (c->seen == LEASE_MINE || c->was_mine)
		return 0;
	step = (int64_t)c->running * STEP_MS;
	if (step > c->ttl_ms / 2)
		step = c->ttl_ms / 2;
	wait = jitter_ms + step + (has_share ? c->ttl_ms : 0);
	if (c->gave_back_ms < 0)
		return wait;
	back = 2 * c->ttl_ms - c->gave_back_ms;
	return back > wait ? back : wait;
}

bool
place_excess_due(struct place_excess *x, int held, int share, int64_t now_ms,
	int64_t ttl_ms)
{
	if (x->giving && x->released && now_ms - x->released_ms >= ttl_ms)
		x->giving = false;
	/* what is on its way out is none of ours */
	if (held - (x->giving && !x->released) <= share) {
		x->over_since_ms = -1;
		return false;
	}
	if (x->over_since_ms < 0)
		x->over_since_ms = now_ms;
	return !x->giving && now_ms - x->over_since_ms >= ttl_ms;
}

void
place_excess_gave(struct place_excess *x)
{
	x->giving = true;
	x->released = false;
}

void
place_excess_lost(struct place_excess *x, int64_t now_ms)
{
	if (!x->giving || x->released)
		return;
	x->released = true;
	x->released_ms = now_ms;
}

void
place_excess_taken(struct place_excess *x)
{
	x->giving = false;
}
