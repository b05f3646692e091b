/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All pops of the process: made, freed, counted.  What one request does is in
 * pop.c, what they share in the other pop_ files.
 */
#include <stdlib.h>

#include "buf.h"
#include "catalog.h"
#include "hot.h"
#include "loop.h"
#include "pop_int.h"

struct pops *
pops_new(struct ctx *x)
{
	struct pops *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	p->x = x;
	TAILQ_INIT(&p->pops);
	TAILQ_INIT(&p->rings);
	TAILQ_INIT(&p->discs);
	TAILQ_INIT(&p->hot);
	TAILQ_INIT(&p->slow);
	TAILQ_INIT(&p->walk_queue);
	p->probe_tokens = POP_PROBES_PER_S;
	p->probe_ms = loop_now_ms(x->loop);
	call_start(p);
	return p;
}

void
pops_free(struct pops *p)
{
	struct pop *pop;

	if (!p)
		return;
	/* requests are gone with the server by now: only our own memory */
	while ((pop = TAILQ_FIRST(&p->pops)))
		pop_finish(pop);
	disc_free_all(p);
	ring_free_all(p);
	want_free_all(p);
	watch_free_all(p);
	call_free_all(p);
	buf_fini(&p->scratch);
	buf_fini(&p->opened);
	if (p->probe_timer.loop)
		loop_timer_fini(&p->probe_timer);
	if (p->want_timer.loop)
		loop_timer_fini(&p->want_timer);
	free(p);
}

void
pops_stats(const struct pops *p, struct pops_stats *out)
{
	const struct ring *ring;

	*out = p->stats;
	out->parked = p->parked;
	out->calls_inflight = p->calls;
	TAILQ_FOREACH (ring, &p->rings, all) {
		out->rings++;
		out->entries += hot_count(ring->hot);
		out->ready += hot_ready(ring->hot) + hot_probes(ring->hot);
		out->inflight += hot_flying(ring->hot);
	}
}

static int
parked_in(const struct ring *ring)
{
	size_t at = 0;
	const struct lot *pin;
	int n = ring->wild.waiting;

	while ((pin = map_next(&ring->pins, &at)))
		n += pin->waiting;
	return n;
}

void
pops_each_parked(const struct pops *p,
	void (*fn)(void *arg, struct cat_queue *q, int parked), void *arg)
{
	struct ring *ring;

	TAILQ_FOREACH (ring, &p->rings, all) {
		/* once per queue: at the first of its rings */
		if (ring->queue->rings != ring || ring->queue->gone)
			continue;
		int n = 0;

		for (const struct ring *r = ring; r; r = r->next_in_queue)
			n += parked_in(r);
		if (n)
			fn(arg, ring->queue, n);
	}
}
