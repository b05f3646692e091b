/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decision, from memory alone.  A tenant that was met is never forgotten:
 * forgetting would give it a full bucket.
 */
#include "kvlimit_int.h"

#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "ctx.h"
#include "gate.h"
#include "settings.h"

enum { DISABLED_RETRY_S = 5, UNAVAILABLE_RETRY_S = 1 };

static bool
is_tenant(const void *item, const void *key)
{
	const struct kvlimit_tenant *t = item;

	return memcmp(t->id.b, ((const struct qid *)key)->b, sizeof(t->id.b)) ==
	       0;
}

struct kvlimit_tenant *
kvlimit_tenant(struct kvlimit *k, const struct qid *id)
{
	uint64_t h =
		map_hash_span(span_make((const char *)id->b, sizeof(id->b)));
	struct kvlimit_tenant *t = map_get(&k->tenants, h, is_tenant, id);

	if (t || k->tenants.count >= (size_t)k->x->conf->kv_max_tenants)
		return t;
	t = malloc(sizeof(*t));
	if (!t)
		abort();
	*t = (struct kvlimit_tenant){ .id = *id,
		.enabled = true,
		.horizon_ms = KVMETER_NO_CAP,
		.reads_ps = KVMETER_NO_CAP,
		.writes_ps = KVMETER_NO_CAP,
		.computed_us = INT64_MIN,
		.rows = KVMETER_ZERO,
		.bytes = KVMETER_ZERO,
		.timers = KVMETER_ZERO };
	map_put(&k->tenants, h, t);
	return t;
}

bool
kvlimit_hot(const struct kvlimit *k)
{
	int64_t percent = k->x->conf->kv_quota_hot_percent;
	size_t at = 0;
	const struct kvlimit_tenant *t;

	while ((t = map_next(&k->tenants, &at)) != NULL)
		if (kvmeter_hot(&t->rows, percent) ||
			kvmeter_hot(&t->bytes, percent) ||
			kvmeter_hot(&t->timers, percent))
			return true;
	return false;
}

/* ---- the checks, in order ---- */

static bool
refuse(struct kvlimit *k, const struct kvlimit_ask *ask, enum kvlimit_why why,
	struct kvlimit_no *no, struct kvlimit_no answer)
{
	*no = answer;
	if (ask->schedule)
		k->counts.schedules_refused[why]++;
	else if (ask->kv && !ask->kv_write)
		k->counts.reads_refused[why]++;
	return false;
}

static bool
adds(const struct kvlimit_ask *ask)
{
	return ask->schedule || (ask->kv_write && ask->rows > 0);
}

static bool
unavailable(struct kvlimit *k, const struct kvlimit_ask *ask,
	struct kvlimit_no *no, const char *reason)
{
	return refuse(k, ask, KVLIMIT_POOL, no,
		(struct kvlimit_no){ 503,
			ask->kv ? "kv_unavailable" : "timers_unavailable",
			reason, UNAVAILABLE_RETRY_S });
}

static bool
check_switches(
	struct kvlimit *k, const struct kvlimit_ask *ask, struct kvlimit_no *no)
{
	const char *what = NULL;

	if (ask->kv && !k->x->kv_enabled)
		what = "kv_disabled";
	else if (ask->schedule && !k->x->timers_schedule_enabled)
		what = "timers_disabled";
	if (!what)
		return true;
	return refuse(k, ask, KVLIMIT_DISABLED, no,
		(struct kvlimit_no){ ask->in_bundle ? 403 : 503, what, what,
			ask->in_bundle ? 0 : DISABLED_RETRY_S });
}

/* The default tenant is the operator's own, unless a grant is asked of all. */
static bool
grant_wanted(const struct settings *s, const struct qid *tenant)
{
	if (!s->kv_require_grant)
		return s->tenancy_header && !gate_is_default(tenant);
	return strchr("tT1yY", s->kv_require_grant[0]) != NULL ||
	       strcmp(s->kv_require_grant, "on") == 0;
}

static bool
check_grant(struct kvlimit *k, const struct kvlimit_tenant *t,
	const struct qid *tenant, const struct kvlimit_ask *ask,
	struct kvlimit_no *no)
{
	if (!adds(ask))
		return true;
	if (t->enabled && (t->granted || !grant_wanted(k->x->conf, tenant)))
		return true;
	/* who has a grant is not known yet */
	if (t->enabled && k->loaded_ms < 0)
		return unavailable(k, ask, no, "kv_quota_unknown");
	return refuse(k, ask, KVLIMIT_GATED, no,
		(struct kvlimit_no){
			403, "feature_gated", "feature_gated", 0 });
}

/* The tenant's own; that of the cell is tested where a delay is read. */
static bool
check_horizon(struct kvlimit *k, const struct kvlimit_tenant *t,
	const struct kvlimit_ask *ask, struct kvlimit_no *no)
{
	if (!ask->schedule || t->horizon_ms == KVMETER_NO_CAP ||
		ask->horizon_ms <= t->horizon_ms)
		return true;
	return refuse(k, ask, KVLIMIT_HORIZON, no,
		(struct kvlimit_no){
			403, "timer_horizon_exceeded", "timers_horizon", 0 });
}

static bool
check_rate(struct kvlimit *k, struct kvlimit_tenant *t,
	const struct kvlimit_ask *ask, struct kvlimit_no *no)
{
	const struct settings *s = k->x->conf;
	bool writes = ask->kv_write || ask->schedule;
	struct kvmeter_bucket *b = writes ? &t->writes : &t->reads;
	int64_t own = writes ? t->writes_ps : t->reads_ps;
	int64_t rate = writes ? s->kv_write_rate : s->kv_read_rate;
	int64_t burst = writes ? s->kv_write_burst : s->kv_read_burst;
	int64_t now_ms = k->now_ms();
	int wait_s;

	/* work of the message path is not throttled by this bucket */
	if (ask->in_bundle)
		return true;
	if (own != KVMETER_NO_CAP)
		rate = burst = own;
	if (own == 0)
		wait_s = 1; /* a rate of nothing, not no rate */
	else
		wait_s = kvmeter_spend(b, rate, burst, now_ms);
	if (wait_s == 0) {
		wait_s = kvmeter_spend(
			&k->cell, s->kv_cell_rate, s->kv_cell_rate, now_ms);
		if (wait_s > 0)
			kvmeter_unspend(b, burst);
	}
	if (wait_s == 0)
		return true;
	return refuse(k, ask, KVLIMIT_RATE, no,
		(struct kvlimit_no){
			429, "rate_limited", "rate_limited", wait_s });
}

static bool
check_occupancy(struct kvlimit *k, struct kvlimit_tenant *t,
	const struct kvlimit_ask *ask, struct kvlimit_no *no)
{
	const char *what = NULL;

	if (!kvmeter_fits(&t->rows, ask->rows) ||
		!kvmeter_fits(&t->bytes, ask->bytes))
		what = "kv_quota_exceeded";
	else if (!kvmeter_fits(&t->timers, ask->timers))
		what = "timers_quota_exceeded";
	if (what)
		return refuse(k, ask, KVLIMIT_QUOTA, no,
			(struct kvlimit_no){ 403, what, what, 0 });
	kvmeter_charge(&t->rows, ask->rows);
	kvmeter_charge(&t->bytes, ask->bytes);
	kvmeter_charge(&t->timers, ask->timers);
	return true;
}

bool
kvlimit_admit(struct ctx *x, const struct qid *tenant,
	const struct kvlimit_ask *ask, struct kvlimit_no *no)
{
	struct kvlimit *k = x->kvlimit;
	struct kvlimit_tenant *t;

	if (ask->kv_write && !ask->in_bundle &&
		k->lane_failures >= x->conf->kv_shed_after)
		return unavailable(k, ask, no, "kv_standalone_paused");
	if (!check_switches(k, ask, no))
		return false;
	t = kvlimit_tenant(k, tenant);
	if (!t)
		return unavailable(k, ask, no, "kv_too_many_tenants");
	return check_grant(k, t, tenant, ask, no) &&
	       check_horizon(k, t, ask, no) && check_rate(k, t, ask, no) &&
	       check_occupancy(k, t, ask, no);
}

void
kvlimit_refund(
	struct ctx *x, const struct qid *tenant, const struct kvlimit_ask *ask)
{
	struct kvlimit_tenant *t = kvlimit_tenant(x->kvlimit, tenant);

	if (!t)
		return;
	kvmeter_refund(&t->rows, ask->rows);
	kvmeter_refund(&t->bytes, ask->bytes);
	kvmeter_refund(&t->timers, ask->timers);
}

void
kvlimit_lane(struct ctx *x, bool got_connection)
{
	struct kvlimit *k = x->kvlimit;

	if (got_connection) {
		k->lane_failures = 0;
		return;
	}
	/* writes are refused now: something else must find out when it ends */
	if (++k->lane_failures == x->conf->kv_shed_after)
		kvlimit_load_soon(k);
}

/* ---- counters ---- */

void
kvlimit_count(struct ctx *x, enum kvlimit_op op, enum kvlimit_result result)
{
	x->kvlimit->counts.ops[op][result]++;
}

void
kvlimit_read_refused(struct ctx *x, enum kvlimit_why why)
{
	x->kvlimit->counts.reads_refused[why]++;
}

void
kvlimit_schedule_refused(struct ctx *x, enum kvlimit_why why)
{
	x->kvlimit->counts.schedules_refused[why]++;
}

void
kvlimit_stats(const struct kvlimit *k, struct kvlimit_stats *out)
{
	*out = k->counts;
	out->tenants = k->listed;
	out->age_ms = k->loaded_ms < 0 ? -1 : k->now_ms() - k->loaded_ms;
	out->hot = kvlimit_hot(k);
}

struct kvlimit *
kvlimit_new(struct ctx *x)
{
	struct kvlimit *k = calloc(1, sizeof(*k));

	if (!k)
		abort();
	k->x = x;
	k->now_ms = clk_mono_ms;
	k->loaded_ms = -1;
	kvlimit_load_start(k);
	return k;
}

void
kvlimit_free(struct kvlimit *k)
{
	size_t at = 0;
	void *t;

	if (!k)
		return;
	loop_timer_fini(&k->refresh);
	loop_timer_fini(&k->usage);
	while ((t = map_next(&k->tenants, &at)) != NULL)
		free(t);
	map_fini(&k->tenants);
	free(k);
}
