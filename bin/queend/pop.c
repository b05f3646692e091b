/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a pop: query, names, lot, answer.  Invariant: a request in hand
 * is in exactly one place (a look-up, a lot, a want, a call), and only what is
 * in a lot or a want may be ended from outside.
 */
#include "pop.h"

#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "count.h"
#include "err.h"
#include "hsrv.h"
#include "jwrite.h"
#include "name.h"
#include "pgpool.h"
#include "pop_int.h"
#include "settings.h"

/* ---- ends ---- */

void
pop_finish(struct pop *pop)
{
	if (pop->timed)
		loop_timer_fini(&pop->deadline);
	TAILQ_REMOVE(&pop->pops->pops, pop, all);
	free(pop->fault);
	free(pop);
}

static void
count_end(struct pop *pop)
{
	struct ctx *x = pop->pops->x;
	int64_t us = (clk_mono_ms() - pop->arrived_ms) * 1000;

	if (pop->queue)
		count_pop(x, pop->queue->id, 0, -1, pop->kind == POP_WILDCARD);
	count_latency(x, COUNT_POP, us);
}

void
pop_finish_empty(struct pop *pop)
{
	const struct ctx *x = pop->pops->x;

	/* "nothing there" is for the database to say */
	if (!pgpool_is_up(x->pool) && !x->stopping) {
		pop_finish_error(pop, 500, "pool");
		return;
	}
	pop_unpark(pop);
	count_end(pop);
	if (!pop_reply_empty(pop))
		hsrv_reply(pop->req, 204);
	pop_finish(pop);
}

void
pop_finish_error(struct pop *pop, int status, const char *text)
{
	pop_unpark(pop);
	hsrv_reply_error(pop->req, status, "%s", text);
	pop_finish(pop);
}

/* ---- parking ---- */

static void
leave_place(struct pop *pop)
{
	if (pop->state == POP_WAITING)
		lot_leave(pop);
	else if (pop->state == POP_WANTING)
		want_leave(pop);
}

/* The client vanished: nothing is claimed for it. */
static void
on_gone(struct hsrv_req *r)
{
	struct pop *pop = hsrv_user(r);

	leave_place(pop);
	if (pop->counted)
		pop->pops->parked--;
	pop_finish(pop);
	hsrv_drop(r);
}

void
pop_watch_client(struct pop *pop)
{
	hsrv_park(pop->req, on_gone);
}

static void
on_deadline(void *arg)
{
	struct pop *pop = arg;
	int64_t now = clk_mono_ms();

	if (pop->state != POP_WAITING && pop->state != POP_WANTING)
		return;
	if (pop->state == POP_WAITING && pop->held_us &&
		lot_ready(pop->lot) > 0) {
		/* a held pop takes what there is, at the latest now */
		if (now >= pop->deadline_ms - 1) {
			pop->due = true;
			lot_unsettle(pop, true);
		}
		loop_timer_start(&pop->deadline,
			pop->due ? 1000 : 1 + pop->deadline_ms - now);
		lot_heat(pop->lot);
		pops_fire_soon(pop->pops);
		return;
	}
	if (now < pop->deadline_ms) {
		loop_timer_start(&pop->deadline, pop->deadline_ms - now);
		return;
	}
	leave_place(pop);
	pop_finish_empty(pop);
}

static void
start_timer(struct pop *pop, int64_t at_ms)
{
	int64_t left = at_ms - clk_mono_ms();

	if (!pop->timed) {
		loop_timer_init(
			&pop->deadline, pop->pops->x->loop, on_deadline, pop);
		pop->timed = true;
	}
	loop_timer_start(&pop->deadline, left > 0 ? left : 0);
}

void
pop_park(struct pop *pop)
{
	pop->parked = true;
	if (!pop->counted) {
		pop->counted = true;
		pop->pops->parked++;
	}
	int64_t at = pop->deadline_ms;

	if (pop->state == POP_WAITING) {
		lot_unsettle(pop, false);
		int64_t hold = lot_hold_ms(pop->lot, pop, clk_mono_ms());

		if (hold && hold < at)
			at = hold;
	}
	start_timer(pop, at);
	pop_watch_client(pop);
}

void
pop_unpark(struct pop *pop)
{
	if (pop->timed)
		loop_timer_stop(&pop->deadline);
	if (pop->counted) {
		pop->counted = false;
		pop->pops->parked--;
	}
	hsrv_unpark(pop->req);
}

/* ---- names ---- */

/* Takes the next step of resolving; the request may be over after it. */
static void pop_step(struct pop *pop);

static void
on_resolved(void *arg, const struct err *e)
{
	struct pop *pop = arg;

	if (!e) {
		pop_step(pop);
		return;
	}
	pop_finish_error(pop, 500, pgpool_had_none(e) ? e->text : "pop failed");
}

/* The name is not there: waits for it, or has its answer. */
static void
step_missing(struct pop *pop, int64_t queue_id, struct span name)
{
	pop->asked_queue = pop->asked_part = false;
	pop->rounds = 0;
	if (!pop->q.wait || pop->pops->x->stopping ||
		clk_mono_ms() >= pop->deadline_ms) {
		pop_finish_empty(pop);
		return;
	}
	want_join(pop, queue_id, name);
}

static void
step_register(struct pop *pop, struct cat_queue *const *queues, size_t n)
{
	const char *mode = pop->q.mode;
	int64_t from_us = pop->q.from_us;

	/* a queue that came while it was parked is read from then on */
	if (pop->parked && strcmp(mode, "new") == 0) {
		mode = "timestamp";
		from_us = pop->arrived_us - 1000000;
	}
	catalog_register_groups(pop->pops->x->catalog, queues, n, pop->q.group,
		mode, from_us, pop->q.conflation, on_resolved, pop);
}

struct match {
	struct pop *pop;
	struct disc *disc;
	struct cat_queue **without; /* a group yet */
	size_t n, cap;
};

static void
on_match(void *arg, struct cat_queue *q)
{
	struct match *m = arg;
	struct pops *p = m->pop->pops;
	struct cat_group *g = catalog_group(p->x->catalog, q, m->pop->q.group);

	if (g) {
		lot_tie(&m->disc->lot, ring_of(p, g));
		return;
	}
	if (m->n == m->cap) {
		m->cap = m->cap ? m->cap * 2 : 16;
		m->without = reallocarray(
			m->without, m->cap, sizeof(struct cat_queue *));
		if (!m->without)
			abort();
	}
	m->without[m->n++] = q;
}

static void
step_discovery(struct pop *pop)
{
	struct pops *p = pop->pops;
	struct match m = { .pop = pop, .disc = disc_of(p, pop) };

	if (m.disc->generation == p->generation) {
		pop->rounds = 0;
		lot_join(&m.disc->lot, pop);
		return;
	}
	uint64_t generation = p->generation;

	catalog_match(p->x->catalog, &pop->tenant, pop->q.namespace_name,
		pop->q.task, on_match, &m);
	if (m.n && pop->rounds < POP_RESOLVE_MAX - 2) {
		/* the catalogue takes them in portions of its own */
		step_register(pop, m.without, m.n);
		free(m.without);
		return;
	}
	free(m.without);
	m.disc->generation = generation;
	pop->rounds = 0;
	lot_join(&m.disc->lot, pop);
}

static void
step_part(struct pop *pop)
{
	struct pops *p = pop->pops;
	struct cat_part *part =
		catalog_part(p->x->catalog, pop->queue, pop->part_name);

	if (!part && pop->asked_part) {
		step_missing(pop, pop->queue->id, pop->part_name);
		return;
	}
	if (!part) {
		pop->asked_part = true;
		catalog_load_parts(p->x->catalog, &pop->queue, &pop->part_name,
			1, false, on_resolved, pop);
		return;
	}
	pop->rounds = 0;
	pop->asked_queue = pop->asked_part = false;
	pop->part_id = part->id;
	lot_join(lot_pin(ring_of(p, pop->group), part->id), pop);
}

static void
pop_step(struct pop *pop)
{
	struct pops *p = pop->pops;
	struct catalog *c = p->x->catalog;

	pop->state = POP_RESOLVING;
	/* queues that come and go faster than they are looked up hold nothing */
	if (++pop->rounds > POP_RESOLVE_MAX) {
		pop_finish_empty(pop);
		return;
	}
	if (pop->kind == POP_DISCOVERY) {
		step_discovery(pop);
		return;
	}
	pop->queue = catalog_queue(c, &pop->tenant, pop->queue_name);
	if (!pop->queue && pop->asked_queue) {
		step_missing(pop, 0, pop->queue_name);
		return;
	}
	if (!pop->queue) {
		pop->asked_queue = true;
		catalog_load_queues(c, &pop->tenant, &pop->queue_name, 1,
			pop->kind == POP_WILDCARD && !pop->parked, on_resolved,
			pop);
		return;
	}
	pop->group = catalog_group(c, pop->queue, pop->q.group);
	if (!pop->group) {
		step_register(pop, &pop->queue, 1);
		return;
	}
	if (pop->kind == POP_PINNED) {
		step_part(pop);
		return;
	}
	pop->rounds = 0;
	pop->asked_queue = false;
	struct ring *ring = ring_of(p, pop->group);

	ring_walk(ring, false);
	lot_join(&ring->wild, pop);
}

void
pop_again(struct pop *pop)
{
	leave_place(pop);
	/* out of reach while its names are looked up */
	hsrv_unpark(pop->req);
	pop->asked_queue = pop->asked_part = false;
	pop_step(pop);
}

/* ---- handlers ---- */

static bool
get_query(const void *src, const char *key, struct span *out)
{
	const struct hsrv_req *r = src;

	return hsrv_query(r, key, out);
}

static void
refuse(struct hsrv_req *r, const char *code, const struct err *e)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "error", e->text);
	if (code)
		jwrite_kv_cstr(&w, "code", code);
	jwrite_end(&w);
	hsrv_reply(r, 400);
}

static bool
check_names(struct hsrv_req *r, enum pop_kind kind, const struct pop_query *q)
{
	struct err e = ERR_ZERO;

	if (kind == POP_DISCOVERY) {
		if (q->namespace_name.n || q->task.n)
			return true;
		buf_puts(hsrv_out(r),
			"{\"success\":false,"
			"\"error\":\"namespace or task is required\","
			"\"messages\":[]}");
		hsrv_reply(r, 400);
		return false;
	}
	if (name_check(hsrv_param(r, 0), "queue", &e) != 0 ||
		(kind == POP_PINNED &&
			name_check(hsrv_param(r, 1), "partition", &e) != 0)) {
		refuse(r, NULL, &e);
		return false;
	}
	return true;
}

static void
reply_maintenance(struct hsrv_req *r, const struct pop_query *q)
{
	if (!q->conflation) {
		hsrv_reply(r, 204);
		return;
	}
	buf_puts(hsrv_out(r),
		"{\"messages\":[],\"paused\":true,\"conflation\":true}");
	hsrv_reply(r, 200);
}

static void
handle(struct hsrv_req *r, enum pop_kind kind)
{
	struct ctx *x = ctx_of(r);
	const struct settings *conf = x->conf;
	struct pop_defaults d = {
		.timeout_ms = conf->default_timeout_ms > 0
				      ? conf->default_timeout_ms
				      : conf->pop_default_timeout_ms,
		.subscription_mode = conf->default_subscription_mode,
	};
	struct pop_query q;
	struct err e = ERR_ZERO;
	const char *code;

	if (pop_query_parse(&q, &d, get_query, r, &code, &e) != 0) {
		refuse(r, code, &e);
		return;
	}
	if (!check_names(r, kind, &q))
		return;
	if (x->pop_maintenance) {
		reply_maintenance(r, &q);
		return;
	}
	struct pop *pop = calloc(1, sizeof(*pop));

	if (!pop)
		abort();
	pop->pops = x->pops;
	pop->req = r;
	pop->kind = kind;
	pop->q = q;
	pop->tenant = *ctx_tenant(r);
	if (kind != POP_DISCOVERY)
		pop->queue_name = hsrv_param(r, 0);
	if (kind == POP_PINNED)
		pop->part_name = hsrv_param(r, 1);
	pop->arrived_ms = clk_mono_ms();
	pop->arrived_us = clk_wall_us() + x->pops->clock_offset_us;
	pop->deadline_ms = pop->arrived_ms + (q.wait ? q.timeout_ms : 0);
	TAILQ_INSERT_TAIL(&x->pops->pops, pop, all);
	hsrv_set_user(r, pop);
	pop_step(pop);
}

void
pop_queue(struct hsrv_req *r)
{
	handle(r, POP_WILDCARD);
}

void
pop_partition(struct hsrv_req *r)
{
	handle(r, POP_PINNED);
}

void
pop_discover(struct hsrv_req *r)
{
	handle(r, POP_DISCOVERY);
}

/* ---- the whole ---- */

/* What is in a look-up or a call ends by itself. */
void
pops_drain(struct pops *p)
{
	struct pop *pop, *next;

	for (pop = TAILQ_FIRST(&p->pops); pop; pop = next) {
		next = TAILQ_NEXT(pop, all);
		if (pop->state != POP_WAITING && pop->state != POP_WANTING)
			continue;
		leave_place(pop);
		pop_finish_empty(pop);
	}
}

static void
answer_paused(struct pop *pop)
{
	leave_place(pop);
	pop_unpark(pop);
	reply_maintenance(pop->req, &pop->q);
	pop_finish(pop);
}

void
pops_tick(struct pops *p)
{
	int64_t now = clk_mono_ms();
	struct pop *pop, *next;

	for (pop = p->x->pop_maintenance ? TAILQ_FIRST(&p->pops) : NULL; pop;
		pop = next) {
		next = TAILQ_NEXT(pop, all);
		if (pop->state == POP_WAITING || pop->state == POP_WANTING)
			answer_paused(pop);
	}
	want_check_queues(p);
	ring_sweep(p, now);
	struct catalog_stats cs;

	catalog_stats(p->x->catalog, &cs);
	if (cs.queues != p->queues_seen || now >= p->rematch_ms) {
		p->queues_seen = cs.queues;
		p->rematch_ms = now + 30000;
		disc_rematch(p);
	}
	if (now >= p->sweep_ms) {
		p->sweep_ms = now + 60000;
		disc_sweep(p, now);
	}
}

int
pops_parked(const struct pops *p)
{
	return p->parked;
}
