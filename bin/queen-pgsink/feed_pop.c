/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims: one call at a time, for the wait that is first in line.  A candidate
 * is flying in the ring from hand-out to verdict, and leased there until its
 * batch is acknowledged, so nothing is asked for twice in this process.
 */
#include <stdlib.h>

#include "backoff.h"
#include "conndoc.h"
#include "connchild.h"
#include "err.h"
#include "feed_int.h"
#include "hot.h"
#include "pgbin.h"
#include "pgconn.h"
#include "qid.h"
#include "seal.h"

enum {
	RETRY_MS = 250,
	RETRY_MAX_MS = 2000,
	WIDTH_MIN = 4,
	/* a lease of somebody else: nobody tells when it ends early */
	LEASED_PARK_MAX_MS = 2000,
	HIDDEN_PARK_MAX_MS = 60000, /* heals a lost change of a delay */
	LOCKED_MS = 100,
	BLOCKED_MS = 30000,
};

static const struct pgstmt STMT_POP = { "feed_pop",
	"select cand, verdict, until, queen.clock_v1(), lease_at, lease_group,"
	" base, skip, take, at, expires_at, key_id, blob"
	" from queen.pop_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, true)" };

/* ---- sending ---- */

static void
put_request(struct pgargs *a, const struct feed_call *c)
{
	const struct feed *f = c->flight.feed;
	uint8_t ids[SEAL_KEYS_MAX];
	size_t keys = seal_ids(f->x->seal, ids);

	pgargs_uuid(a, &f->x->task->tenant);
	pgargs_array(a, PGARGS_I64);
	pgargs_item_i64(a, c->lease_no);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	pgargs_item_i32(a, (int32_t)f->doc->lease_s);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	pgargs_item_i32(a, (int32_t)f->doc->batch);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	pgargs_item_i32(a, FEED_CANDIDATES);
	pgargs_close(a);
	pgargs_array(a, PGARGS_BOOL);
	pgargs_item_bool(a, false);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	for (int i = 0; i < c->n; i++)
		pgargs_item_i32(a, 1);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I64);
	for (int i = 0; i < c->n; i++)
		pgargs_item_i64(a, c->cands[i].part);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I64);
	for (int i = 0; i < c->n; i++)
		pgargs_item_i64(a, c->group_id);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I16);
	for (size_t i = 0; i < keys; i++)
		pgargs_item_i16(a, ids[i]);
	pgargs_close(a);
}

static void
call_drop(struct feed_flight *fl)
{
	struct feed_call *c = (struct feed_call *)fl;

	feed_batch_free(c->batch);
	free(c);
}

static void on_pop(void *arg, const PGresult *res, const struct err *e);

static void
call_send(struct feed *f, struct feed_wait *w, size_t want)
{
	struct feed_call *c = calloc(1, sizeof(*c));
	struct pgargs a;

	if (!c)
		abort();
	while ((size_t)c->n < want &&
		hot_take(f->hot, true, &c->cands[c->n].part) != HOT_TAKE_NONE)
		c->n++;
	feed_flight_begin(f, &c->flight, call_drop);
	c->group_id = f->group_id;
	c->lease_no = qid_lease_number();
	c->sent_ms = loop_now_ms(f->x->loop);
	c->wait = w;
	w->call = f->call = c;
	pgargs_init(&a);
	put_request(&a, c);
	feed_call_sql(f->x->work, &STMT_POP, &a, on_pop, c);
}

static struct feed_wait *
first_in_line(struct feed *f, size_t *n)
{
	struct feed_wait *w, *first = NULL;

	*n = 0;
	TAILQ_FOREACH (w, &f->waits, link) {
		if (w->call)
			continue;
		if (!first)
			first = w;
		++*n;
	}
	return first;
}

void
feed_pop_fire(void *arg)
{
	struct feed *f = arg;
	int64_t now = loop_now_ms(f->x->loop), part;
	size_t waiting, ready, want;
	struct feed_wait *w = first_in_line(f, &waiting);

	if (!w || f->call || !f->group_id)
		return;
	while (hot_due(f->hot, now, &part))
		;
	ready = hot_ready(f->hot) + hot_probes(f->hot);
	if (ready && feed_is_dialling(f, FEED_POP)) {
		f->retry_at_ms = now + FEED_DIAL_LOOK_MS;
	} else if (ready && now >= f->retry_at_ms) {
		/* those behind it want their share */
		want = (ready + waiting - 1) / waiting;
		if (want > (size_t)f->width)
			want = (size_t)f->width;
		call_send(f, w, want);
	}
	feed_pop_arm(f);
}

void
feed_pop_arm(struct feed *f)
{
	int64_t now = loop_now_ms(f->x->loop), at;
	size_t waiting;

	loop_timer_stop(&f->pop_timer);
	if (f->call || !f->group_id || !first_in_line(f, &waiting))
		return;
	at = hot_ready(f->hot) + hot_probes(f->hot) ? now : hot_next_ms(f->hot);
	if (at == INT64_MAX)
		return;
	if (at < f->retry_at_ms)
		at = f->retry_at_ms;
	loop_timer_start(&f->pop_timer, at - now);
}

/* ---- verdicts ---- */

static void
read_verdicts(struct feed_call *c, const PGresult *res)
{
	for (int i = 0; i < c->n; i++)
		c->cands[i].verdict = FEED_UNREACHED;
	for (int i = 0; i < PQntuples(res); i++) {
		int at = pgbin_i32(res, i, FEED_COL_CAND) - 1;

		BUG(at < 0 || at >= c->n);
		struct feed_cand *k = &c->cands[at];

		k->verdict = pgbin_i32(res, i, FEED_COL_VERDICT);
		k->now_us = pgbin_time(res, i, FEED_COL_NOW);
		if (k->verdict == FEED_TOOK) {
			/* the rows of a candidate are together */
			if (!k->rows++)
				k->row = i;
			k->until_us = pgbin_time(res, i, FEED_COL_EXPIRES);
		} else if (!pgbin_null(res, i, FEED_COL_UNTIL)) {
			k->until_us = pgbin_time(res, i, FEED_COL_UNTIL);
		}
		if (k->verdict == FEED_BLOCKED) {
			k->base = pgbin_i64(res, i, FEED_COL_BASE);
			k->key = pgbin_i16(res, i, FEED_COL_KEY);
		}
	}
}

/* On our clock: a little late is right, a little early a wasted claim. */
static int64_t
until_ms(const struct feed_cand *k, int64_t now_ms, int64_t cap_ms)
{
	int64_t left_us = k->until_us - k->now_us;
	int64_t left_ms = left_us <= 0 ? 5 : left_us / 1000 + 3;

	return now_ms + (left_ms > cap_ms ? cap_ms : left_ms);
}

static void
complain_blocked(struct feed *f, const struct feed_cand *k)
{
	struct connfault why;

	if (!feed_may_complain(f, k->key))
		return;
	connfault_set(&why, "queen", true,
		"partition %lld of queue \"%.*s\" waits at offset %lld: it is "
		"sealed with key id %d, which is not here; add that key to "
		"QUEEN_ENCRYPTION_OLD_KEYS",
		(long long)k->part, SPAN_ARG(f->doc->queue), (long long)k->base,
		k->key);
	f->face.complain(f->face.arg, &why);
	feed_file_block(f, k->part, k->key, k->base, false);
}

static void
cand_end(struct feed *f, const struct feed_cand *k, int64_t lease_no)
{
	int64_t now = loop_now_ms(f->x->loop), until = 0;
	enum hot_end end = HOT_END_BACK;

	switch ((enum feed_verdict)k->verdict) {
	case FEED_TOOK:
		end = HOT_END_LEASED;
		until = until_ms(k, now, INT64_MAX / 2);
		break;
	case FEED_LEASED:
		end = HOT_END_LEASED;
		until = until_ms(k, now, LEASED_PARK_MAX_MS);
		break;
	case FEED_HIDDEN:
		end = HOT_END_HIDDEN;
		until = until_ms(k, now, HIDDEN_PARK_MAX_MS);
		break;
	case FEED_LOCKED:
		end = HOT_END_HIDDEN;
		until = now + LOCKED_MS;
		break;
	case FEED_BLOCKED:
		end = HOT_END_HIDDEN;
		until = now + BLOCKED_MS;
		break;
	case FEED_EMPTY:
		end = HOT_END_EMPTY;
		break;
	case FEED_GONE:
		end = HOT_END_GONE;
		break;
	case FEED_UNREACHED:
		break;
	}
	hot_end(f->hot, k->part, end, until, now);
	if (k->verdict == FEED_TOOK)
		hot_lease(f->hot, k->part, lease_no);
}

/* Returns how many were claimed. */
static int
cands_end(struct feed_call *c)
{
	struct feed *f = c->flight.feed;
	int took = 0, unreached = 0;
	bool gone = false;

	/* backwards, so that what comes back finds its place at once */
	for (int i = c->n - 1; i >= 0; i--) {
		const struct feed_cand *k = &c->cands[i];

		took += k->verdict == FEED_TOOK;
		unreached += k->verdict == FEED_UNREACHED;
		gone |= k->verdict == FEED_GONE;
		/* of a life that is over the ring is gone */
		if (c->group_id == f->group_id)
			cand_end(f, k, c->lease_no);
		if (k->verdict == FEED_BLOCKED)
			complain_blocked(f, k);
	}
	/* claiming what the batch has no room for costs as much */
	if (unreached)
		f->width = took * 2 < WIDTH_MIN ? WIDTH_MIN : took * 2;
	else if (c->n == f->width)
		f->width *= 2;
	if (f->width > FEED_CANDIDATES)
		f->width = FEED_CANDIDATES;
	if (gone)
		feed_find(f);
	return took;
}

static void
pop_failed(struct feed_call *c, const struct err *e)
{
	struct feed *f = c->flight.feed;
	int64_t now = loop_now_ms(f->x->loop);
	struct connfault why;

	/* claimed or not: the next call tells */
	for (int i = c->n - 1; i >= 0 && c->group_id == f->group_id; i--)
		hot_end(f->hot, c->cands[i].part, HOT_END_BACK, 0, now);
	f->retry_ms = backoff_next_ms(f->retry_ms, RETRY_MS, RETRY_MAX_MS);
	f->retry_at_ms = now + f->retry_ms;
	connfault_cell(&why, e);
	feed_fault(f, FEED_POP, &why);
}

/* ---- the end ---- */

void
feed_call_end(struct feed_call *c, bool good)
{
	struct feed *f = c->flight.feed;
	struct feed_wait *w = c->wait;
	struct feed_batch *b = c->batch;

	c->batch = NULL;
	if (w)
		w->call = NULL;
	else
		f->loose--;
	feed_flight_end(&c->flight);
	if (b && w && good) {
		feed_pop_arm(f);
		feed_deliver(w, b);
		return;
	}
	if (b) {
		/* without a message all of it is damaged, and stays so */
		feed_return(f, b, b->n > 0);
		feed_batch_free(b);
	}
	feed_settle_check(f);
	feed_pop_arm(f);
}

static void
on_pop(void *arg, const PGresult *res, const struct err *e)
{
	struct feed_call *c = arg;
	struct feed *f = c->flight.feed;

	f->call = NULL;
	if (e) {
		pop_failed(c, e);
		feed_call_end(c, false);
		return;
	}
	f->retry_ms = f->retry_at_ms = 0;
	f->dial_looks[FEED_POP] = 0;
	feed_fault(f, FEED_POP, NULL);
	read_verdicts(c, res);
	if (!cands_end(c)) {
		feed_call_end(c, true);
		return;
	}
	c->batch = feed_read(c, res);
	if (c->wait && c->batch->n) {
		feed_read_names(c);
		feed_pop_arm(f);
	} else {
		feed_call_end(c, false);
	}
}
