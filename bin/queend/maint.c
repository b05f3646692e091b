/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The retention cycle as a chain of calls on the rest lane: claim, the due
 * lists one partition at a time, the housekeeping steps, hand back.  Nothing
 * here walks all partitions: lists name what is due, the cleanup walk goes one
 * page a minute.
 */
#include "maint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "catalog.h"
#include "clk.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "pgpool.h"
#include "settings.h"

enum {
	MAINT_LEASE_MIN_MS = 60000,
	MAINT_LEASE_MAX_MS = 1800000,
	MAINT_POLL_MIN_MS = 1000,
	MAINT_POLL_MAX_MS = 60000,
	MAINT_CLEANUP_EVERY_MS = 60000,
	MAINT_IDS_EVERY_MS = 30000,
	MAINT_PRUNE_EVERY_MS = 600000,
	MAINT_CLEANUP_PAGE = 1000,
	MAINT_PURGE_STEPS = 200, /* of each kind in one cycle */
	MAINT_ERROR_EVERY_MS = 30000,
};

/* What a cycle does next; the order is the order of the enum. */
enum maint_state {
	MAINT_IDLE,
	MAINT_CLAIM,
	MAINT_DUE, /* list of rules 1 to 3 */
	MAINT_STEP,
	MAINT_IDS_DUE,
	MAINT_IDS_STEP,
	MAINT_PURGE_QUEUES,
	MAINT_PURGE_GROUPS,
	MAINT_SWEEP_LEASES,
	MAINT_CLEANUP,
	MAINT_PRUNE,
	MAINT_GIVE,
};

struct maint {
	struct ctx *x;
	enum maint_state state;
	struct loop_timer timer;
	bool ensured; /* the claim row has our period */
	int64_t fence, started_ms, lease_ms;
	bool ok;
	/* the list being worked off */
	int64_t *due;
	int due_n, due_at;
	int purge_steps;
	int64_t cleanup_next_ms, ids_next_ms, prune_next_ms;
	int64_t cleanup_at_us, cleanup_id;
	struct log_sampler errors;
	/* of this cycle, for its line in the log */
	int64_t segments, messages, ids, purged, partitions, pruned;
};

static const struct pgstmt STMT_ENSURE = { "claim_ensure",
	"select queen.claim_ensure_v1('retention', $1)" };
static const struct pgstmt STMT_TAKE = { "claim_take",
	"select fence from queen.claim_take_v1('retention', $1, $2)" };
static const struct pgstmt STMT_GIVE = { "claim_give",
	"select queen.claim_give_v1('retention', $1, $2)" };
static const struct pgstmt STMT_DUE = { "retention_due",
	"select part from queen.retention_due_v1($1)" };
static const struct pgstmt STMT_STEP = { "retention_step",
	"select segments, messages, more "
	"from queen.retention_step_v1($1, $2)" };
static const struct pgstmt STMT_IDS_DUE = { "ids_due",
	"select part from queen.ids_due_v1($1)" };
static const struct pgstmt STMT_IDS_STEP = { "ids_step",
	"select deleted, more from queen.ids_step_v1($1, $2)" };
static const struct pgstmt STMT_PURGE_QUEUE = { "purge_queue",
	"select queen.purge_queue_v1($1)" };
static const struct pgstmt STMT_PURGE_GROUP = { "purge_group",
	"select queen.purge_group_v1($1)" };
static const struct pgstmt STMT_SWEEP_LEASES = { "lease_sweep",
	"select queen.lease_sweep_v1($1)" };
static const struct pgstmt STMT_CLEANUP = { "cleanup_step",
	"select next_at, next_id, queues, parts "
	"from queen.cleanup_step_v1($1, $2, $3, $4)" };
static const struct pgstmt STMT_PRUNE = { "prune",
	"select queen.prune_v1($1, $2)" };

static void maint_step(struct maint *m, enum maint_state next);

static void
maint_call(
	struct maint *m, const struct pgstmt *s, struct pgargs *a, pgpool_fn fn)
{
	pgpool_call(m->x->pool, LANE_REST, s, a, fn, m);
}

static void
maint_sleep(struct maint *m)
{
	int64_t poll_ms = m->x->conf->retention_interval_ms / 10;

	if (poll_ms < MAINT_POLL_MIN_MS)
		poll_ms = MAINT_POLL_MIN_MS;
	if (poll_ms > MAINT_POLL_MAX_MS)
		poll_ms = MAINT_POLL_MAX_MS;
	m->state = MAINT_IDLE;
	loop_timer_start(&m->timer, poll_ms);
}

/* A failed step ends the cycle; the claim goes back and stays due. */
static void
maint_failed(struct maint *m, const struct err *e)
{
	uint64_t suppressed;

	m->ok = false;
	m->errors.every_ms = MAINT_ERROR_EVERY_MS;
	if (log_sample(&m->errors, clk_mono_ms(), &suppressed))
		log_line(LOG_WARN, "retention", "cycle failed",
			"error=%s suppressed=%" PRIu64, log_quote(e->text),
			suppressed);
	if (m->state == MAINT_CLAIM || m->state == MAINT_GIVE)
		maint_sleep(m);
	else
		maint_step(m, MAINT_GIVE);
}

/* The lease must outlive the cycle: beyond half of it the rest can wait. */
static bool
maint_out_of_time(const struct maint *m)
{
	return m->x->stopping ||
	       clk_mono_ms() - m->started_ms > m->lease_ms / 2;
}

/* ---- claim ---- */

static void
on_taken(void *arg, const PGresult *res, const struct err *e)
{
	struct maint *m = arg;

	if (e) {
		maint_failed(m, e);
	} else if (PQntuples(res) == 0) {
		maint_sleep(m);
	} else {
		m->fence = pgbin_i64(res, 0, 0);
		m->started_ms = clk_mono_ms();
		m->ok = true;
		m->segments = m->messages = m->ids = 0;
		m->purged = m->partitions = m->pruned = 0;
		maint_step(m, MAINT_DUE);
	}
}

static void
take_claim(struct maint *m)
{
	char holder[256];
	struct pgargs a;

	snprintf(holder, sizeof(holder), "%s#%ld", m->x->instance,
		(long)getpid());
	pgargs_init(&a);
	pgargs_text(&a, span_of(holder));
	pgargs_i64(&a, m->lease_ms);
	maint_call(m, &STMT_TAKE, &a, on_taken);
}

static void
on_ensured(void *arg, const PGresult *res, const struct err *e)
{
	struct maint *m = arg;

	(void)res;
	if (e) {
		maint_failed(m, e);
		return;
	}
	m->ensured = true;
	take_claim(m);
}

static void
start_claim(struct maint *m)
{
	struct pgargs a;

	if (m->ensured) {
		take_claim(m);
		return;
	}
	pgargs_init(&a);
	pgargs_i64(&a, m->x->conf->retention_interval_ms);
	maint_call(m, &STMT_ENSURE, &a, on_ensured);
}

static void
log_cycle(const struct maint *m)
{
	bool any = m->segments || m->ids || m->purged || m->partitions ||
		   m->pruned;

	log_line(any ? LOG_INFO : LOG_DEBUG, "retention", "swept",
		"segments_deleted=%" PRId64 " messages_deleted=%" PRId64
		" ids_purged=%" PRId64 " rows_purged=%" PRId64
		" partitions_deleted=%" PRId64 " rows_pruned=%" PRId64
		" elapsed_ms=%" PRId64,
		m->segments, m->messages, m->ids, m->purged, m->partitions,
		m->pruned, clk_mono_ms() - m->started_ms);
}

static void
on_given(void *arg, const PGresult *res, const struct err *e)
{
	struct maint *m = arg;

	if (e) {
		maint_failed(m, e);
		return;
	}
	if (!pgbin_bool(res, 0, 0))
		log_line(LOG_WARN, "retention",
			"the claim was taken over before the cycle ended",
			"fence=%" PRId64, m->fence);
	maint_sleep(m);
}

static void
give_claim(struct maint *m)
{
	struct pgargs a;

	log_cycle(m);
	pgargs_init(&a);
	pgargs_i64(&a, m->fence);
	pgargs_bool(&a, m->ok);
	maint_call(m, &STMT_GIVE, &a, on_given);
}

/* ---- the due lists ---- */

static int64_t
due_cap(const struct maint *m)
{
	const struct settings *s = m->x->conf;

	return s->retention_due_cap ? s->retention_due_cap
				    : s->retention_batch_size * 5;
}

static void
on_due(void *arg, const PGresult *res, const struct err *e)
{
	struct maint *m = arg;

	if (e) {
		maint_failed(m, e);
		return;
	}
	m->due_n = PQntuples(res);
	m->due_at = 0;
	free(m->due);
	m->due = malloc(((size_t)m->due_n + 1) * sizeof(*m->due));
	if (!m->due)
		abort();
	for (int i = 0; i < m->due_n; i++)
		m->due[i] = pgbin_i64(res, i, 0);
	maint_step(m, m->state == MAINT_DUE ? MAINT_STEP : MAINT_IDS_STEP);
}

static void
ask_due(struct maint *m, const struct pgstmt *s)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_i32(&a, (int32_t)due_cap(m));
	maint_call(m, s, &a, on_due);
}

static void
on_stepped(void *arg, const PGresult *res, const struct err *e)
{
	struct maint *m = arg;
	bool more = false;

	if (e) {
		maint_failed(m, e);
		return;
	}
	if (PQntuples(res) == 1 && m->state == MAINT_STEP) {
		m->segments += pgbin_i32(res, 0, 0);
		m->messages += pgbin_i64(res, 0, 1);
		more = pgbin_bool(res, 0, 2);
	} else if (PQntuples(res) == 1) {
		m->ids += pgbin_i32(res, 0, 0);
		more = pgbin_bool(res, 0, 1);
	}
	if (!more)
		m->due_at++;
	maint_step(m, m->state);
}

static void
next_partition(struct maint *m, const struct pgstmt *s, enum maint_state after)
{
	struct pgargs a;

	if (m->due_at == m->due_n || maint_out_of_time(m)) {
		maint_step(m, after);
		return;
	}
	pgargs_init(&a);
	pgargs_i64(&a, m->due[m->due_at]);
	pgargs_i32(&a, (int32_t)m->x->conf->retention_batch_size);
	maint_call(m, s, &a, on_stepped);
}

/* ---- purge, cleanup, prune ---- */

static void
on_purged(void *arg, const PGresult *res, const struct err *e)
{
	struct maint *m = arg;

	if (e) {
		maint_failed(m, e);
		return;
	}
	int n = pgbin_i32(res, 0, 0);

	m->purged += n;
	if (n == 0 || ++m->purge_steps >= MAINT_PURGE_STEPS ||
		maint_out_of_time(m)) {
		m->purge_steps = 0;
		maint_step(m, m->state + 1); /* the next kind */
		return;
	}
	maint_step(m, m->state);
}

static void
purge(struct maint *m, const struct pgstmt *s)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_i32(&a, (int32_t)m->x->conf->retention_batch_size);
	maint_call(m, s, &a, on_purged);
}

static void
take_cleaned(struct maint *m, const PGresult *res)
{
	struct pgbin_array q, p;
	struct span queue, part;
	bool null;

	if (pgbin_null(res, 0, 0)) {
		m->cleanup_at_us = INT64_MIN;
		m->cleanup_id = 0;
	} else {
		m->cleanup_at_us = pgbin_time(res, 0, 0);
		m->cleanup_id = pgbin_i64(res, 0, 1);
	}
	if (pgbin_null(res, 0, 3))
		return;
	q = pgbin_array(res, 0, 2);
	p = pgbin_array(res, 0, 3);
	while (pgbin_array_next(&q, &queue, &null) &&
		pgbin_array_next(&p, &part, &null)) {
		catalog_forget_part(m->x->catalog, pgbin_span_i64(part));
		count_partitions(m->x, pgbin_span_i64(queue), 0, 1);
		m->partitions++;
	}
}

static void
on_cleaned(void *arg, const PGresult *res, const struct err *e)
{
	struct maint *m = arg;

	if (e) {
		maint_failed(m, e);
		return;
	}
	take_cleaned(m, res);
	maint_step(m, MAINT_PRUNE);
}

static void
cleanup(struct maint *m)
{
	int64_t now_ms = clk_mono_ms();
	struct pgargs a;

	if (!m->x->conf->cleanup_enabled || now_ms < m->cleanup_next_ms) {
		maint_step(m, MAINT_PRUNE);
		return;
	}
	m->cleanup_next_ms = now_ms + MAINT_CLEANUP_EVERY_MS;
	pgargs_init(&a);
	pgargs_i32(&a, (int32_t)m->x->conf->cleanup_days);
	pgargs_time(&a, m->cleanup_at_us);
	pgargs_i64(&a, m->cleanup_id);
	pgargs_i32(&a, MAINT_CLEANUP_PAGE);
	maint_call(m, &STMT_CLEANUP, &a, on_cleaned);
}

static void
on_pruned(void *arg, const PGresult *res, const struct err *e)
{
	struct maint *m = arg;

	if (e) {
		maint_failed(m, e);
		return;
	}
	m->pruned += pgbin_i32(res, 0, 0);
	maint_step(m, MAINT_GIVE);
}

static void
prune(struct maint *m)
{
	int64_t now_ms = clk_mono_ms();
	struct pgargs a;

	if (now_ms < m->prune_next_ms) {
		maint_step(m, MAINT_GIVE);
		return;
	}
	m->prune_next_ms = now_ms + MAINT_PRUNE_EVERY_MS;
	pgargs_init(&a);
	pgargs_i32(&a, (int32_t)m->x->conf->metrics_retention_days);
	pgargs_i32(&a, (int32_t)m->x->conf->retention_batch_size * 10);
	maint_call(m, &STMT_PRUNE, &a, on_pruned);
}

static void
ask_ids(struct maint *m)
{
	int64_t now_ms = clk_mono_ms();

	if (now_ms < m->ids_next_ms) {
		maint_step(m, MAINT_PURGE_QUEUES);
		return;
	}
	m->ids_next_ms = now_ms + MAINT_IDS_EVERY_MS;
	ask_due(m, &STMT_IDS_DUE);
}

static void
maint_step(struct maint *m, enum maint_state next)
{
	m->state = next;
	switch (next) {
	case MAINT_CLAIM:
		start_claim(m);
		break;
	case MAINT_DUE:
		ask_due(m, &STMT_DUE);
		break;
	case MAINT_STEP:
		next_partition(m, &STMT_STEP, MAINT_IDS_DUE);
		break;
	case MAINT_IDS_DUE:
		ask_ids(m);
		break;
	case MAINT_IDS_STEP:
		next_partition(m, &STMT_IDS_STEP, MAINT_PURGE_QUEUES);
		break;
	case MAINT_PURGE_QUEUES:
		purge(m, &STMT_PURGE_QUEUE);
		break;
	case MAINT_PURGE_GROUPS:
		purge(m, &STMT_PURGE_GROUP);
		break;
	case MAINT_SWEEP_LEASES:
		purge(m, &STMT_SWEEP_LEASES);
		break;
	case MAINT_CLEANUP:
		cleanup(m);
		break;
	case MAINT_PRUNE:
		prune(m);
		break;
	case MAINT_GIVE:
		give_claim(m);
		break;
	case MAINT_IDLE:
		BUG(true);
	}
}

static void
on_timer(void *arg)
{
	struct maint *m = arg;

	if (m->x->stopping)
		return;
	if (pgpool_is_up(m->x->pool))
		maint_step(m, MAINT_CLAIM);
	else
		maint_sleep(m);
}

struct maint *
maint_new(struct ctx *x)
{
	struct maint *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	m->x = x;
	m->cleanup_at_us = INT64_MIN;
	m->lease_ms = x->conf->retention_interval_ms * 2;
	if (m->lease_ms < MAINT_LEASE_MIN_MS)
		m->lease_ms = MAINT_LEASE_MIN_MS;
	if (m->lease_ms > MAINT_LEASE_MAX_MS)
		m->lease_ms = MAINT_LEASE_MAX_MS;
	loop_timer_init(&m->timer, x->loop, on_timer, m);
	loop_timer_start(&m->timer, MAINT_POLL_MIN_MS);
	return m;
}

void
maint_free(struct maint *m)
{
	if (!m)
		return;
	loop_timer_fini(&m->timer);
	free(m->due);
	free(m);
}
