/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What came back from a call of pop: verdicts to the rings, messages to the
 * requests.  Invariant: a candidate gets its end in the ring before any request
 * is answered, for an answer may bring the next request.
 */
#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "count.h"
#include "err.h"
#include "hsrv.h"
#include "pgpool.h"
#include "pop_call.h"
#include "seal.h"

/* ---- verdicts ---- */

static void
read_verdicts(struct call *c, const PGresult *res)
{
	for (int i = 0; i < PQntuples(res); i++) {
		int at = pgbin_i32(res, i, COL_CAND) - 1;

		BUG(at < 0 || at >= c->n);
		struct cand *k = &c->cands[at];

		k->verdict = (enum verdict)pgbin_i32(res, i, COL_VERDICT);
		if (k->verdict == VERDICT_BLOCKED) {
			k->base = pgbin_i64(res, i, COL_BASE);
			k->key = pgbin_i16(res, i, COL_KEY);
		} else if (k->verdict == VERDICT_TOOK) {
			int64_t end = pgbin_i64(res, i, COL_BASE) +
				      pgbin_i32(res, i, COL_SKIP) +
				      pgbin_i32(res, i, COL_TAKE) - 1;

			k->end = end > k->end ? end : k->end;
			k->last = pgbin_i64(res, i, COL_LAST);
			if (!pgbin_null(res, i, COL_EXPIRES))
				k->until_us = pgbin_time(res, i, COL_EXPIRES);
		} else if (!pgbin_null(res, i, COL_UNTIL)) {
			k->until_us = pgbin_time(res, i, COL_UNTIL);
		}
	}
}

static int64_t
park_until(const struct pops *p, const struct cand *k, int64_t now_ms,
	int64_t cap_ms)
{
	int64_t until = pops_local_ms(p, k->until_us);

	return until > now_ms + cap_ms ? now_ms + cap_ms : until;
}

/* True: it only has to be asked for in a call that opens. */
static bool
on_blocked(struct pops *p, struct cand *k, const struct pop *pop, bool opens)
{
	if (!opens && pop->q.auto_ack && pop_has_key(p, k->key)) {
		k->ring->opens = true;
		return true;
	}
	p->stats.blocked++;
	pop_blocked(p, &pop->tenant, k->ring->queue->id, k->part_id, k->key,
		k->base, false);
	return false;
}

/* Claimed, and not any more: a lease goes back, autoAck was rolled back. */
static void
end_undone(struct call *c, struct cand *k, int64_t now)
{
	hot_end(k->ring->hot, k->part_id,
		k->damaged ? HOT_END_HIDDEN : HOT_END_BACK,
		now + POP_DAMAGED_MS, now);
	c->pops->stats.damaged += k->damaged;
}

/* What a pop without wait is not told on the word of the ring alone. */
static void
doubt(struct call *c, const struct cand *k)
{
	struct pops *p = c->pops;

	/* a lease of ours was not known to anybody until now */
	hot_doubt(k->ring->hot, k->part_id,
		k->verdict == VERDICT_TOOK ? ++p->seq : c->seq);
}

static void
end_one(struct call *c, struct cand *k, const struct pop *pop, int64_t now)
{
	struct pops *p = c->pops;
	enum hot_end end = HOT_END_BACK;
	int64_t until = 0;

	switch (k->verdict) {
	case VERDICT_TOOK:
		p->stats.took++;
		if (pop->q.auto_ack) {
			end = k->last > k->end ? HOT_END_MORE : HOT_END_EMPTY;
			break;
		}
		end = HOT_END_LEASED;
		until = park_until(p, k, now, POP_LEASE_PARK_MAX_MS);
		break;
	case VERDICT_LEASED:
		p->stats.leased++;
		end = HOT_END_LEASED;
		until = park_until(p, k, now, POP_LEASE_PARK_MAX_MS);
		break;
	case VERDICT_HIDDEN:
		p->stats.hidden++;
		end = HOT_END_HIDDEN;
		until = park_until(p, k, now, POP_HIDDEN_PARK_MAX_MS);
		break;
	case VERDICT_LOCKED:
		p->stats.locked++;
		end = HOT_END_HIDDEN;
		until = now + POP_LOCKED_MS;
		break;
	case VERDICT_BLOCKED:
		if (on_blocked(p, k, pop, c->opens))
			break;
		end = HOT_END_HIDDEN;
		until = now + POP_BLOCKED_MS;
		break;
	case VERDICT_EMPTY:
		p->stats.empty++;
		end = HOT_END_EMPTY;
		break;
	case VERDICT_GONE:
		p->stats.gone++;
		end = HOT_END_GONE;
		catalog_forget_part(p->x->catalog, k->part_id);
		ring_check(k->ring);
		break;
	case VERDICT_NONE:
		p->stats.unreached++;
		break;
	}
	hot_end(k->ring->hot, k->part_id, end, until, now);
	if (k->verdict == VERDICT_TOOK)
		hot_lease(k->ring->hot, k->part_id, pop->lease_no);
	if (k->verdict == VERDICT_TOOK || k->verdict == VERDICT_LEASED ||
		k->verdict == VERDICT_LOCKED)
		doubt(c, k);
}

static void
end_cands(struct call *c)
{
	struct pops *p = c->pops;
	int64_t now = loop_now_ms(p->x->loop);

	/* backwards, so that what comes back finds its place at once */
	for (int r = c->reqs_n - 1; r >= 0; r--) {
		struct pop *pop = c->reqs[r];

		for (int i = pop->cands - 1; i >= 0; i--) {
			struct cand *k = &c->cands[pop->first_cand + i];

			if (k->verdict == VERDICT_TOOK &&
				(c->undone || k->damaged))
				end_undone(c, k, now);
			else
				end_one(c, k, pop, now);
			if (pop->kind == POP_PINNED &&
				k->verdict != VERDICT_NONE)
				pop->lot->known = true;
		}
	}
	/* those who wait look again, also when nothing is left for them */
	for (int i = 0; i < c->n; i++) {
		if (c->cands[i].ring->dead)
			continue;
		ring_heat(c->cands[i].ring, c->cands[i].part_id);
		ring_arm(c->cands[i].ring);
	}
}

static bool
any_gone(const struct call *c, const struct pop *pop)
{
	for (int i = 0; i < pop->cands; i++)
		if (c->cands[pop->first_cand + i].verdict == VERDICT_GONE)
			return true;
	return false;
}

/* Nothing was claimed for it. */
static void
try_again(struct call *c, struct pop *pop)
{
	struct lot *l = pop->lot;
	bool lost = l->ring && l->ring->dead;

	if (lost || (pop->kind == POP_PINNED && any_gone(c, pop))) {
		pop->state = POP_RESOLVING;
		/* partitions that go faster than they are claimed as well */
		if (pop->tries > POP_TRIES_MAX)
			pop_finish_empty(pop);
		else
			pop_again(pop);
	} else if (!pop->q.wait && pop->tries > POP_TRIES_MAX) {
		pop_finish_empty(pop);
	} else {
		lot_rejoin(l, pop);
	}
}

/* ---- answers ---- */

static int
slice_cmp(const void *a, const void *b)
{
	const struct pop_slice *x = a, *y = b;

	if (x->cand != y->cand)
		return x->cand < y->cand ? -1 : 1;
	return x->base < y->base ? -1 : x->base > y->base;
}

static void
read_slice(
	const struct call *c, const PGresult *res, int row, struct pop_slice *s)
{
	s->cand = pgbin_i32(res, row, COL_CAND) - 1;
	const struct cand *k = &c->cands[s->cand];

	s->part_id = k->part_id;
	s->part = catalog_part_by_id(c->pops->x->catalog, k->part_id);
	s->group = k->group;
	s->base = pgbin_i64(res, row, COL_BASE);
	s->skip = pgbin_i32(res, row, COL_SKIP);
	s->take = pgbin_i32(res, row, COL_TAKE);
	s->at_us = pgbin_time(res, row, COL_AT);
	s->attempt = pgbin_null(res, row, COL_ATTEMPT)
			     ? 1
			     : pgbin_i32(res, row, COL_ATTEMPT);
	s->raw_bytes = pgbin_i32(res, row, COL_RAW);
	s->key = pgbin_null(res, row, COL_KEY) ? SEAL_NO_KEY
					       : pgbin_i16(res, row, COL_KEY);
	s->blob = pgbin_bytes(res, row, COL_BLOB);
	s->clear = c->clear ? buf_span(&c->clear[row]) : (struct span)SPAN_ZERO;
	s->lease_at = pgbin_null(res, row, COL_LEASE_AT)
			      ? 0
			      : pgbin_i64(res, row, COL_LEASE_AT);
	s->lease_group = pgbin_null(res, row, COL_LEASE_GROUP)
				 ? 0
				 : pgbin_i64(res, row, COL_LEASE_GROUP);
}

/* ---- what is sealed ---- */

static struct pop *
req_of(const struct call *c, int cand)
{
	int i = 0;

	while (cand >= c->reqs[i]->first_cand + c->reqs[i]->cands)
		i++;
	return c->reqs[i];
}

/* True: nothing that was taken is sealed and does not open. */
static bool
open_rows(struct call *c, const PGresult *res)
{
	bool good = true;
	int rows = PQntuples(res);

	c->opened = true;
	for (int i = 0; i < rows; i++) {
		struct pop_slice s;
		struct pop *pop;

		if (pgbin_i32(res, i, COL_VERDICT) != VERDICT_TOOK ||
			pgbin_null(res, i, COL_KEY))
			continue;
		if (!c->clear) {
			c->clear = calloc((size_t)rows, sizeof(*c->clear));
			if (!c->clear)
				abort();
			c->clear_n = rows;
		}
		read_slice(c, res, i, &s);
		pop = req_of(c, s.cand);
		c->cands[s.cand].ring->opens = true;
		if (!pop->fault && pop_open(pop, &s, &c->clear[i]) != 0) {
			c->cands[s.cand].damaged = true;
			good = false;
		}
	}
	return good;
}

/* autoAck: all of it opens, or none of it was taken. */
bool
call_opens(void *arg, const PGresult *res)
{
	struct call *c = arg;

	c->undone = !open_rows(c, res);
	return !c->undone;
}

/* Answers every request of the call from its rows. */
static void
call_answer(struct call *c, const PGresult *res)
{
	int rows = PQntuples(res);
	struct pop_slice *slices = malloc(((size_t)rows + 1) * sizeof(*slices));
	size_t *first = calloc((size_t)c->reqs_n + 2, sizeof(*first));
	size_t n = 0;

	if (!slices || !first)
		abort();
	for (int i = 0; i < rows; i++)
		if (pgbin_i32(res, i, COL_VERDICT) == VERDICT_TOOK)
			read_slice(c, res, i, &slices[n++]);
	/* candidates are in the order of their requests */
	qsort(slices, n, sizeof(*slices), slice_cmp);
	for (size_t i = 0, at = 0; i < (size_t)c->reqs_n; i++) {
		struct pop *pop = c->reqs[i];

		first[i] = at;
		while (at < n && slices[at].cand < pop->first_cand + pop->cands)
			at++;
		first[i + 1] = at;
	}
	for (int i = 0; i < c->reqs_n; i++) {
		struct pop_slice *s = slices + first[i];
		size_t k = first[i + 1] - first[i];

		c->reqs[i]->lot->flying--;
		if (c->reqs[i]->fault)
			pop_fail(c->reqs[i], k ? s : NULL);
		else if (k && !c->undone)
			pop_reply(c->reqs[i], s, k);
		else
			try_again(c, c->reqs[i]);
	}
	free(first);
	free(slices);
}

static void
call_end(struct call *c)
{
	struct pops *p = c->pops;

	call_free(c);
	if (!TAILQ_EMPTY(&p->hot))
		pops_fire_soon(p);
}

static void
on_names(void *arg, const struct err *e)
{
	struct call *c = arg;

	(void)e; /* what has no name now was deleted meanwhile */
	TAILQ_REMOVE(&c->pops->naming, c, link);
	call_answer(c, c->kept);
	call_end(c);
}

/* False when every partition that was claimed has a name. */
static bool
look_names_up(struct call *c, const PGresult *res)
{
	int64_t ids[POP_CALL_CANDIDATES];
	size_t n = 0;

	for (int i = 0; i < c->n; i++)
		if (c->cands[i].verdict == VERDICT_TOOK &&
			!catalog_part_by_id(
				c->pops->x->catalog, c->cands[i].part_id))
			ids[n++] = c->cands[i].part_id;
	if (!n)
		return false;
	c->kept = PQcopyResult(res, PG_COPYRES_ATTRS | PG_COPYRES_TUPLES);
	if (!c->kept)
		abort();
	TAILQ_INSERT_TAIL(&c->pops->naming, c, link);
	catalog_load_parts_by_id(
		c->pops->x->catalog, &c->tenant, ids, n, on_names, c);
	return true;
}

static void
call_failed(struct call *c, const struct err *e)
{
	struct pops *p = c->pops;
	int64_t now = loop_now_ms(p->x->loop);
	bool no_pool = pgpool_had_none(e);
	uint64_t suppressed;

	count_db_error(p->x);
	p->failures.every_ms = 5000;
	if (!no_pool && log_sample(&p->failures, now, &suppressed))
		log_line(LOG_WARN, "pop", "call failed",
			"sqlstate=%s error=%s suppressed=%llu", e->sqlstate,
			log_quote(e->text), (unsigned long long)suppressed);
	/* claimed or not: whether is found out in a moment */
	for (int i = 0; i < c->n; i++) {
		struct cand *k = &c->cands[i];

		hot_end(k->ring->hot, k->part_id, HOT_END_HIDDEN,
			now + POP_FAILED_MS, now);
		doubt(c, k);
		if (!k->ring->dead)
			ring_arm(k->ring);
	}
	for (int i = 0; i < c->reqs_n; i++) {
		struct pop *pop = c->reqs[i];

		pop->lot->flying--;
		/* one that waits already has time: nothing was sent for it */
		if (no_pool && pop->parked && !pop->due)
			try_again(c, pop);
		else
			pop_finish_error(
				pop, 500, no_pool ? e->text : "pop failed");
	}
	call_end(c);
}

void
call_answered(void *arg, const PGresult *res, const struct err *e)
{
	struct call *c = arg;
	struct pops *p = c->pops;

	TAILQ_REMOVE(&p->flights, c, link);
	p->calls--;
	if (e) {
		call_failed(c, e);
		return;
	}
	int messages = 0;

	for (int i = 0; i < c->n; i++) {
		c->cands[i].end = -1;
		c->cands[i].until_us = 0;
	}
	for (int i = 0; i < PQntuples(res); i++)
		if (!pgbin_null(res, i, COL_TAKE))
			messages += pgbin_i32(res, i, COL_TAKE);
	count_batch(
		p->x, COUNT_POP, c->n, messages, clk_mono_us() - c->sent_us);
	read_verdicts(c, res);
	if (!c->opened)
		open_rows(c, res);
	end_cands(c);
	if (look_names_up(c, res))
		return;
	call_answer(c, res);
	call_end(c);
}
