/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweep: a step, at once another one while there is a full batch.  It is
 * the first work to be left under pressure.
 */
#include "kv_sweep.h"

#include <inttypes.h>
#include <stdlib.h>

#include "clk.h"
#include "ctx.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "pgpool.h"
#include "pressure.h"
#include "settings.h"

enum { SHARDS = 64, ERROR_EVERY_MS = 30000 };

static const struct pgstmt STMT_STEP = { "kv_expire",
	"select deleted, done, unpruned, lag_ms "
	"from queen.kv_expire_step_v1($1, $2)" };

struct kv_sweep {
	struct ctx *x;
	struct loop_timer timer;
	struct log_sampler errors;
	bool left; /* for the pressure */
	int64_t unpruned, lag_ms;
};

static void
sleep_on(struct kv_sweep *s)
{
	loop_timer_start(&s->timer, s->x->conf->kv_expire_every_ms);
}

static void step(struct kv_sweep *s);

/* May it run?  Tells once when the answer changes with the pressure. */
static bool
may_run(struct kv_sweep *s)
{
	bool leave = pressure_now(s->x) >= PRESSURE_SOME;

	if (s->x->stopping || !pgpool_is_up(s->x->pool))
		return false;
	if (leave != s->left)
		log_line(LOG_INFO, "kv",
			leave ? "sweep suspended" : "sweep resumed",
			"unpruned=%" PRId64, s->unpruned);
	s->left = leave;
	return !leave;
}

static void
on_step(void *arg, const PGresult *res, const struct err *e)
{
	struct kv_sweep *s = arg;
	uint64_t suppressed;

	if (e) {
		s->errors.every_ms = ERROR_EVERY_MS;
		if (log_sample(&s->errors, clk_mono_ms(), &suppressed))
			log_line(LOG_WARN, "kv", "sweep failed",
				"error=%s suppressed=%" PRIu64,
				log_quote(e->text), suppressed);
		sleep_on(s);
		return;
	}
	s->unpruned = pgbin_i32(res, 0, 2);
	s->lag_ms = pgbin_i64(res, 0, 3);
	if (pgbin_i32(res, 0, 0) > 0)
		log_line(LOG_DEBUG, "kv", "swept",
			"deleted=%d unpruned=%" PRId64 " lag_ms=%" PRId64,
			(int)pgbin_i32(res, 0, 0), s->unpruned, s->lag_ms);
	if (!pgbin_bool(res, 0, 1) && may_run(s))
		step(s);
	else
		sleep_on(s);
}

static void
step(struct kv_sweep *s)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_array(&a, PGARGS_I32);
	for (int i = 0; i < SHARDS; i++)
		pgargs_item_i32(&a, i);
	pgargs_close(&a);
	pgargs_i32(&a, (int32_t)s->x->conf->kv_expire_batch);
	pgpool_call(s->x->pool, LANE_REST, &STMT_STEP, &a, on_step, s);
}

static void
on_timer(void *arg)
{
	struct kv_sweep *s = arg;

	if (s->x->stopping)
		return;
	if (may_run(s))
		step(s);
	else
		sleep_on(s);
}

struct kv_sweep *
kv_sweep_new(struct ctx *x)
{
	struct kv_sweep *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->x = x;
	loop_timer_init(&s->timer, x->loop, on_timer, s);
	if (x->conf->sweeper)
		loop_timer_start(&s->timer, 0);
	return s;
}

void
kv_sweep_free(struct kv_sweep *s)
{
	if (!s)
		return;
	loop_timer_fini(&s->timer);
	free(s);
}

void
kv_sweep_stats(const struct kv_sweep *s, int64_t *unpruned, int64_t *lag_ms)
{
	*unpruned = s->unpruned;
	*lag_ms = s->lag_ms;
}
