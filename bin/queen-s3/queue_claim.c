/* SPDX-License-Identifier: Apache-2.0 */
/* From nobody's, or another's, to ours. */
#include "queue_int.h"

#include <sodium.h>
#include <stdlib.h>

#include "backoff.h"
#include "cell.h"
#include "err.h"
#include "place.h"

enum { JITTER_MS = 200 };

static void look(struct queue *q);

static int64_t
ttl_ms(const struct queue *q)
{
	return queue_settings(q)->lease_ttl_ms;
}

static int64_t
jitter_ms(void)
{
	return randombytes_uniform(JITTER_MS + 1);
}

static void
give_slot(struct queue *q)
{
	if (q->slot)
		place_slot_give();
	q->slot = false;
	q->free_since_ms = 0;
}

/* A look or claim that failed; a drain does not wait for the next. */
static void
claim_failed(struct queue *q, const struct err *e)
{
	int64_t ms = ttl_ms(q);

	queue_trouble(q, QUEUE_OF_CLAIM, e->text);
	if (cell_may_retry(e)) {
		q->retry_ms =
			backoff_next_ms(q->retry_ms, QUEUE_RETRY_FIRST_MS, ms);
		ms = q->retry_ms + jitter_ms();
	}
	queue_wait(q, ms, look);
}

static struct place_claim
claim_of(const struct queue *q, enum lease_seen seen, int64_t at_ms)
{
	struct place_stats p;

	place_stats(q->x->place, &p);
	return (struct place_claim){
		.seen = seen,
		.running = q->ahead,
		.held = p.held,
		.share = p.share,
		.was_mine = seen == LEASE_MINE,
		.gave_back_ms =
			q->gave_back_ms < 0 ? -1 : at_ms - q->gave_back_ms,
		.ttl_ms = ttl_ms(q),
	};
}

static void
on_elsewhere(struct queue *q, struct span holder)
{
	struct place_claim c;

	give_slot(q);
	if (q->state != QUEUE_ELSEWHERE ||
		!span_eq(holder, buf_span(&q->holder))) {
		buf_reset(&q->holder);
		buf_put_span(&q->holder, holder);
		*buf_reserve(&q->holder, 1) = '\0';
		queue_say(q, LOG_INFO, "another node owns the queue",
			"holder=%s", log_quote(q->holder.p));
	}
	q->state = QUEUE_ELSEWHERE;
	q->has_stats = false;
	place_taken(q->x->place, q->name);
	c = claim_of(q, LEASE_OTHER, loop_now_ms(queue_loop(q)));
	queue_wait(q, place_wait_ms(&c, jitter_ms()), look);
}

static void
on_owned(struct queue *q)
{
	q->owned = true;
	q->gave_back_ms = -1;
	q->phase = QUEUE_START;
	place_held(q->x->place, 1);
	queue_say(q, queue_level(q), "this node owns the queue", NULL);
	if (queue_draining(q))
		queue_finish(q, QUEUE_DRAINED);
	else
		queue_restore(q);
}

static void
on_claim(void *arg, enum lease_seen s, struct span holder, const struct err *e)
{
	struct queue *q = arg;

	q->claiming = false;
	if (q->ending)
		return;
	if (!e && s == LEASE_MINE) {
		q->retry_ms = 0;
		on_owned(q);
	} else if (queue_draining(q)) {
		queue_finish(q, QUEUE_DRAINED);
	} else if (e) {
		claim_failed(q, e);
	} else {
		on_elsewhere(q, holder);
	}
}

static void
claim_when_due(struct queue *q, enum lease_seen s)
{
	int64_t now = loop_now_ms(queue_loop(q)), due;
	struct place_claim c;

	if (!q->slot) {
		q->slot = true;
		q->ahead = place_slot_take();
		q->free_since_ms = now;
		q->jitter_ms = jitter_ms();
	}
	c = claim_of(q, s, q->free_since_ms);
	due = q->free_since_ms + place_wait_ms(&c, q->jitter_ms);
	if (now < due) {
		int64_t wait = due - now, most = ttl_ms(q) / 3;

		queue_wait(q, wait < most ? wait : most, look);
		return;
	}
	q->state = QUEUE_CLAIMING;
	q->claiming = true;
	lease_claim(q->lease, on_claim, q);
}

static void
on_look(void *arg, enum lease_seen s, struct span holder, const struct err *e)
{
	struct queue *q = arg;

	q->claiming = false;
	if (q->ending)
		return;
	if (queue_draining(q)) {
		queue_finish(q, QUEUE_DRAINED);
	} else if (e) {
		claim_failed(q, e);
	} else if (s == LEASE_OTHER) {
		q->retry_ms = 0;
		on_elsewhere(q, holder);
	} else {
		q->retry_ms = 0;
		claim_when_due(q, s);
	}
}

static void
look(struct queue *q)
{
	q->claiming = true;
	lease_look(q->lease, on_look, q);
}

void
queue_claim(struct queue *q)
{
	struct lease_conf c = {
		.cell = q->x->x->cell,
		.tenant = &q->x->tenant,
		.sink = q->x->conf->sink,
		.queue = q->name,
		.instance = queue_settings(q)->instance,
		.ttl_ms = ttl_ms(q),
		.on_lost = queue_on_lost,
		.arg = q,
	};
	struct key_of of = { q->x->conf->prefix, queue_tenant_of(q),
		queue_name_of(q) };

	q->phase = QUEUE_AWAY;
	if (!key_fits(&of, q->x->conf->sink)) {
		queue_fail(q,
			"its name, or the prefix, is too long: keys of objects "
			"would have more than 1024 bytes, or keys of rows more "
			"than 512");
		return;
	}
	q->lease = lease_new(queue_loop(q), &c);
	look(q);
}

void
queue_disown(struct queue *q)
{
	if (q->owned)
		place_held(q->x->place, -1);
	q->owned = false;
	give_slot(q);
	lease_free(q->lease);
	q->lease = NULL;
}
