/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caps and measurements from the database: a refresh in every process, and
 * the question whether it is time to measure.  SQL decides that; under
 * pressure it is not even asked.
 */
#include "kvlimit_int.h"

#include <inttypes.h>

#include "clk.h"
#include "ctx.h"
#include "err.h"
#include "pgpool.h"
#include "pressure.h"
#include "settings.h"

enum {
	HOT_EVERY_MS = 30000,
	PROBE_MS = 1000,
	ERROR_EVERY_MS = 30000,
};

static const struct pgstmt STMT_REFRESH = { "kv_quota_refresh",
	"select tenant, granted, enabled, max_rows, max_bytes, max_timers, "
	"max_timer_horizon_s, max_reads_per_sec, max_writes_per_sec, "
	"computed_at, kv_rows, kv_bytes, timer_rows "
	"from queen.kv_quota_refresh_v1($1)" };
static const struct pgstmt STMT_USAGE = {
	"kv_usage_step",
	"select measured, tenants from queen.kv_usage_step_v1($1, $2, $3, $4)"
};

static void
failed(struct kvlimit *k, const char *what, const struct err *e)
{
	uint64_t suppressed;

	k->errors.every_ms = ERROR_EVERY_MS;
	if (log_sample(&k->errors, clk_mono_ms(), &suppressed))
		log_line(LOG_WARN, "kv", what, "error=%s suppressed=%" PRIu64,
			log_quote(e->text), suppressed);
}

/* ---- refresh ---- */

static int64_t
cap(const PGresult *res, int row, int col)
{
	int64_t v;

	if (pgbin_null(res, row, col))
		return KVMETER_NO_CAP;
	v = pgbin_i64(res, row, col);
	return v < 0 ? 0 : v;
}

static int64_t
rate(const PGresult *res, int row, int col)
{
	int32_t v;

	if (pgbin_null(res, row, col))
		return KVMETER_NO_CAP;
	v = pgbin_i32(res, row, col);
	return v < 0 ? 0 : v;
}

static void
take_tenant(struct kvlimit *k, const PGresult *res, int row)
{
	int64_t percent = k->x->conf->kv_quota_release_percent;
	struct qid id = pgbin_uuid(res, row, 0);
	struct kvlimit_tenant *t = kvlimit_tenant(k, &id);
	int64_t horizon_s, computed_us;
	bool fresh;

	if (!t)
		return;
	horizon_s = cap(res, row, 6);
	computed_us =
		pgbin_null(res, row, 9) ? INT64_MIN : pgbin_time(res, row, 9);
	fresh = computed_us != t->computed_us;
	t->seen = k->refreshes;
	t->computed_us = computed_us;
	t->granted = pgbin_bool(res, row, 1);
	t->enabled = pgbin_bool(res, row, 2);
	t->horizon_ms =
		horizon_s == KVMETER_NO_CAP
			? KVMETER_NO_CAP
			: (horizon_s > INT64_MAX / 1000 ? INT64_MAX
							: horizon_s * 1000);
	t->reads_ps = rate(res, row, 7);
	t->writes_ps = rate(res, row, 8);
	kvmeter_measure(&t->rows, cap(res, row, 3), pgbin_i64(res, row, 10),
		fresh, percent);
	kvmeter_measure(&t->bytes, cap(res, row, 4), pgbin_i64(res, row, 11),
		fresh, percent);
	kvmeter_measure(&t->timers, cap(res, row, 5), pgbin_i64(res, row, 12),
		fresh, percent);
}

/* Its quota row and its usage are gone: nothing limits it but the settings. */
static void
forget(struct kvlimit *k, struct kvlimit_tenant *t)
{
	if (t->seen == k->refreshes)
		return;
	t->granted = false;
	t->enabled = true;
	t->horizon_ms = t->reads_ps = t->writes_ps = KVMETER_NO_CAP;
	kvmeter_measure(&t->rows, KVMETER_NO_CAP, 0, false, 0);
	kvmeter_measure(&t->bytes, KVMETER_NO_CAP, 0, false, 0);
	kvmeter_measure(&t->timers, KVMETER_NO_CAP, 0, false, 0);
}

static void
on_refreshed(void *arg, const PGresult *res, const struct err *e)
{
	struct kvlimit *k = arg;
	struct kvlimit_tenant *t;
	size_t at = 0;

	k->loading = false;
	loop_timer_start(&k->refresh,
		e && k->lane_failures ? PROBE_MS
				      : k->x->conf->kv_quota_refresh_ms);
	if (e) {
		failed(k, "cannot read quotas", e);
		return;
	}
	kvlimit_lane(k->x, true);
	k->refreshes++;
	k->listed = PQntuples(res);
	for (int i = 0; i < k->listed; i++)
		take_tenant(k, res, i);
	while ((t = map_next(&k->tenants, &at)) != NULL)
		forget(k, t);
	k->loaded_ms = k->now_ms();
}

static void
on_refresh(void *arg)
{
	struct kvlimit *k = arg;
	struct pgargs a;

	if (k->x->stopping || k->loading)
		return;
	k->loading = true;
	pgargs_init(&a);
	pgargs_i32(&a, (int32_t)k->x->conf->kv_max_tenants);
	pgpool_call(k->x->pool, LANE_REST, &STMT_REFRESH, &a, on_refreshed, k);
}

void
kvlimit_load_soon(struct kvlimit *k)
{
	loop_timer_start(&k->refresh, PROBE_MS);
}

/* ---- usage ---- */

static int64_t
hot_every_ms(const struct kvlimit *k)
{
	int64_t every_ms = k->x->conf->kv_usage_every_ms;

	return every_ms < HOT_EVERY_MS ? every_ms : HOT_EVERY_MS;
}

static void
on_usage_done(void *arg, const PGresult *res, const struct err *e)
{
	struct kvlimit *k = arg;

	loop_timer_start(&k->usage, hot_every_ms(k));
	if (e) {
		failed(k, "cannot measure usage", e);
		return;
	}
	if (!pgbin_bool(res, 0, 0))
		return;
	log_line(LOG_DEBUG, "kv", "measured", "tenants=%d",
		(int)pgbin_i32(res, 0, 1));
	on_refresh(k);
}

static void
on_usage(void *arg)
{
	struct kvlimit *k = arg;
	const struct settings *s = k->x->conf;
	struct pgargs a;

	if (k->x->stopping)
		return;
	if (pressure_now(k->x) >= PRESSURE_HIGH) {
		loop_timer_start(&k->usage, hot_every_ms(k));
		return;
	}
	pgargs_init(&a);
	pgargs_i64(&a, s->kv_usage_every_ms);
	pgargs_i64(&a, hot_every_ms(k));
	pgargs_i32(&a, (int32_t)s->kv_quota_hot_percent);
	pgargs_bool(&a, kvlimit_hot(k));
	pgpool_call(k->x->pool, LANE_REST, &STMT_USAGE, &a, on_usage_done, k);
}

void
kvlimit_load_start(struct kvlimit *k)
{
	loop_timer_init(&k->refresh, k->x->loop, on_refresh, k);
	loop_timer_init(&k->usage, k->x->loop, on_usage, k);
	on_refresh(k);
	if (k->x->conf->sweeper)
		loop_timer_start(&k->usage, PROBE_MS);
}
