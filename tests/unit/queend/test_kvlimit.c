/* SPDX-License-Identifier: Apache-2.0 */
/* The decision about a call, with a clock that the test moves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctx.h"
#include "kvlimit_int.h"
#include "settings.h"

static int64_t the_ms;

static int64_t
now_ms(void)
{
	return the_ms;
}

/* A cell without a database: quotas are known, and there are none. */
struct fixture {
	struct settings conf;
	struct ctx x;
	struct loop *loop;
	struct kvlimit *k;
	struct qid id;
	struct kvlimit_tenant *t;
	struct kvlimit_no no;
};

static void
on_probe(void *arg)
{
	(void)arg;
}

static int
setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->conf.kv_read_rate = 200;
	f->conf.kv_read_burst = 400;
	f->conf.kv_write_rate = 100;
	f->conf.kv_write_burst = 200;
	f->conf.kv_max_tenants = 2;
	f->conf.kv_shed_after = 3;
	f->conf.kv_quota_hot_percent = 80;
	f->x.conf = &f->conf;
	f->x.kv_enabled = f->x.timers_schedule_enabled = true;
	f->loop = loop_new();
	f->k = calloc(1, sizeof(*f->k));
	f->k->x = &f->x;
	f->k->now_ms = now_ms;
	f->x.kvlimit = f->k;
	loop_timer_init(&f->k->refresh, f->loop, on_probe, f);
	loop_timer_init(&f->k->usage, f->loop, on_probe, f);
	the_ms = 1000;
	f->t = kvlimit_tenant(f->k, &f->id);
	*state = f;
	return 0;
}

static int
teardown(void **state)
{
	struct fixture *f = *state;

	kvlimit_free(f->k);
	loop_free(f->loop);
	free(f->conf.kv_require_grant);
	free(f);
	return 0;
}

static const struct kvlimit_ask READ = { .kv = true };
static const struct kvlimit_ask DELETE = { .kv = true, .kv_write = true };
static const struct kvlimit_ask WRITE = {
	.kv = true, .kv_write = true, .rows = 1, .bytes = 10
};
static const struct kvlimit_ask TIMER = {
	.schedule = true, .timers = 1, .horizon_ms = 60000
};

static struct kvlimit_ask
in_bundle(struct kvlimit_ask ask)
{
	ask.in_bundle = true;
	return ask;
}

static bool
may(struct fixture *f, struct kvlimit_ask ask)
{
	memset(&f->no, 0, sizeof(f->no));
	return kvlimit_admit(&f->x, &f->id, &ask, &f->no);
}

static void
refused(struct fixture *f, struct kvlimit_ask ask, int status,
	const char *error, const char *reason, int retry_after_s)
{
	assert_false(may(f, ask));
	assert_int_equal(f->no.status, status);
	assert_string_equal(f->no.error, error);
	assert_string_equal(f->no.reason, reason);
	assert_int_equal(f->no.retry_after_s, retry_after_s);
}

/* ---- shed ---- */

static void
writes_are_shed_until_one_success(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 2; i++)
		kvlimit_lane(&f->x, false);
	assert_true(may(f, WRITE));
	kvlimit_lane(&f->x, false);
	refused(f, WRITE, 503, "kv_unavailable", "kv_standalone_paused", 1);
	refused(f, DELETE, 503, "kv_unavailable", "kv_standalone_paused", 1);
	assert_true(may(f, READ));
	assert_true(may(f, TIMER));
	assert_true(may(f, in_bundle(WRITE)));
	kvlimit_lane(&f->x, true);
	assert_true(may(f, WRITE));
	/* in a row: two more do not yet count three */
	for (int i = 0; i < 2; i++)
		kvlimit_lane(&f->x, false);
	assert_true(may(f, WRITE));
}

static void
shed_comes_before_the_switch(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 3; i++)
		kvlimit_lane(&f->x, false);
	f->x.kv_enabled = false;
	refused(f, WRITE, 503, "kv_unavailable", "kv_standalone_paused", 1);
	refused(f, READ, 503, "kv_disabled", "kv_disabled", 5);
}

/* ---- switches ---- */

static void
a_switch_is_503_alone_and_403_in_a_bundle(void **state)
{
	struct fixture *f = *state;

	f->x.timers_schedule_enabled = false;
	refused(f, TIMER, 503, "timers_disabled", "timers_disabled", 5);
	refused(f, in_bundle(TIMER), 403, "timers_disabled", "timers_disabled",
		0);
	assert_true(may(f, WRITE));
	f->x.timers_schedule_enabled = true;
	f->x.kv_enabled = false;
	refused(f, READ, 503, "kv_disabled", "kv_disabled", 5);
	refused(f, in_bundle(READ), 403, "kv_disabled", "kv_disabled", 0);
	assert_true(may(f, TIMER));
	assert_int_equal(f->k->counts.reads_refused[KVLIMIT_DISABLED], 2);
	assert_int_equal(f->k->counts.schedules_refused[KVLIMIT_DISABLED], 2);
}

/* ---- grants ---- */

static void
a_grant_is_wanted_with_tenancy_unless_told(void **state)
{
	static const struct {
		const char *told;
		bool tenancy, wanted;
	} v[] = {
		{ NULL, false, false },
		{ NULL, true, true },
		{ "false", true, false },
		{ "0", true, false },
		{ "no", true, false },
		{ "off", true, false },
		{ "true", false, true },
		{ "1", false, true },
		{ "yes", false, true },
		{ "on", false, true },
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		f->conf.tenancy_header = v[i].tenancy;
		free(f->conf.kv_require_grant);
		f->conf.kv_require_grant = v[i].told ? strdup(v[i].told) : NULL;
		assert_int_equal(may(f, WRITE), !v[i].wanted);
		if (v[i].wanted) {
			refused(f, WRITE, 403, "feature_gated", "feature_gated",
				0);
			refused(f, TIMER, 403, "feature_gated", "feature_gated",
				0);
		}
		assert_true(may(f, READ));
		assert_true(may(f, DELETE));
	}
}

static void
before_the_first_refresh_nobody_is_told_no_grant(void **state)
{
	struct fixture *f = *state;

	f->conf.tenancy_header = true;
	f->k->loaded_ms = -1;
	refused(f, WRITE, 503, "kv_unavailable", "kv_quota_unknown", 1);
	refused(f, TIMER, 503, "timers_unavailable", "kv_quota_unknown", 1);
	f->t->enabled = false;
	refused(f, WRITE, 403, "feature_gated", "feature_gated", 0);
}

static void
a_tenant_too_many_is_denied(void **state)
{
	struct fixture *f = *state;

	assert_true(may(f, READ));
	f->id.b[0] = 1;
	assert_true(may(f, READ));
	f->id.b[0] = 2;
	refused(f, READ, 503, "kv_unavailable", "kv_too_many_tenants", 1);
	f->id.b[0] = 1;
	assert_true(may(f, READ));
}

/* ---- rates ---- */

static void
over_a_rate_one_hears_when_to_come_back(void **state)
{
	struct fixture *f = *state;

	f->conf.kv_read_rate = 4;
	f->conf.kv_read_burst = 2;
	assert_true(may(f, READ) && may(f, READ));
	/* a quarter of a second would do; whole seconds are told */
	refused(f, READ, 429, "rate_limited", "rate_limited", 1);
	assert_true(may(f, WRITE)); /* from another bucket */
	assert_true(may(f, in_bundle(READ)));
	the_ms += 249;
	assert_false(may(f, READ));
	the_ms += 1;
	assert_true(may(f, READ));
	assert_false(may(f, READ));
	assert_int_equal(f->k->counts.reads_refused[KVLIMIT_RATE], 3);
}

static void
schedules_spend_the_write_bucket(void **state)
{
	struct fixture *f = *state;

	f->conf.kv_write_rate = f->conf.kv_write_burst = 2;
	assert_true(may(f, TIMER) && may(f, WRITE));
	refused(f, TIMER, 429, "rate_limited", "rate_limited", 1);
	refused(f, DELETE, 429, "rate_limited", "rate_limited", 1);
}

static void
a_quota_row_is_rate_and_burst(void **state)
{
	struct fixture *f = *state;

	f->t->writes_ps = 3;
	for (int i = 0; i < 3; i++)
		assert_true(may(f, WRITE));
	refused(f, WRITE, 429, "rate_limited", "rate_limited", 1);
	the_ms += 10000;
	for (int i = 0; i < 3; i++)
		assert_true(may(f, WRITE));
	assert_false(may(f, WRITE));
	/* a rate of nothing is not no rate */
	f->t->reads_ps = 0;
	refused(f, READ, 429, "rate_limited", "rate_limited", 1);
	the_ms += 3600000;
	assert_false(may(f, READ));
}

static void
the_bucket_of_the_cell_gives_the_tenants_token_back(void **state)
{
	struct fixture *f = *state;

	f->conf.kv_cell_rate = 2;
	f->conf.kv_read_rate = 1;
	f->conf.kv_read_burst = 3;
	assert_true(may(f, READ) && may(f, READ));
	for (int i = 0; i < 10; i++)
		refused(f, READ, 429, "rate_limited", "rate_limited", 1);
	/* of another tenant too */
	f->id.b[0] = 1;
	assert_false(may(f, READ));
	f->id.b[0] = 0;
	the_ms += 500;
	assert_true(may(f, READ));
	f->conf.kv_cell_rate = 0;
	assert_false(may(f, READ)); /* its own three are spent */
	the_ms += 500;
	assert_true(may(f, READ));
}

static void
rate_is_tested_before_occupancy(void **state)
{
	struct fixture *f = *state;

	kvmeter_measure(&f->t->rows, 10, 10, true, 90);
	f->t->writes_ps = 1;
	refused(f, WRITE, 403, "kv_quota_exceeded", "kv_quota_exceeded", 0);
	refused(f, WRITE, 429, "rate_limited", "rate_limited", 1);
}

/* ---- occupancy ---- */

static void
timers_have_a_cap_of_their_own(void **state)
{
	struct fixture *f = *state;

	kvmeter_measure(&f->t->timers, 3, 1, true, 90);
	assert_true(may(f, TIMER) && may(f, TIMER));
	refused(f, TIMER, 403, "timers_quota_exceeded", "timers_quota_exceeded",
		0);
	refused(f, in_bundle(TIMER), 403, "timers_quota_exceeded",
		"timers_quota_exceeded", 0);
	assert_true(may(f, WRITE));
	assert_int_equal(f->k->counts.schedules_refused[KVLIMIT_QUOTA], 2);
}

static void
the_horizon_of_a_quota_row(void **state)
{
	struct kvlimit_ask ask = TIMER;
	struct fixture *f = *state;

	f->t->horizon_ms = 60000;
	assert_true(may(f, ask));
	ask.horizon_ms++;
	refused(f, ask, 403, "timer_horizon_exceeded", "timers_horizon", 0);
	assert_int_equal(f->k->counts.schedules_refused[KVLIMIT_HORIZON], 1);
}

static void
a_refund_gives_room_but_lifts_no_block(void **state)
{
	struct fixture *f = *state;

	kvmeter_measure(&f->t->bytes, 25, 0, true, 90);
	assert_true(may(f, WRITE) && may(f, WRITE));
	kvlimit_refund(&f->x, &f->id, &WRITE);
	assert_true(may(f, WRITE));
	refused(f, WRITE, 403, "kv_quota_exceeded", "kv_quota_exceeded", 0);
	kvlimit_refund(&f->x, &f->id, &WRITE);
	refused(f, WRITE, 403, "kv_quota_exceeded", "kv_quota_exceeded", 0);
	assert_true(may(f, DELETE));
	assert_true(may(f, READ));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(writes_are_shed_until_one_success),
		TEST(shed_comes_before_the_switch),
		TEST(a_switch_is_503_alone_and_403_in_a_bundle),
		TEST(a_grant_is_wanted_with_tenancy_unless_told),
		TEST(before_the_first_refresh_nobody_is_told_no_grant),
		TEST(a_tenant_too_many_is_denied),
		TEST(over_a_rate_one_hears_when_to_come_back),
		TEST(schedules_spend_the_write_bucket),
		TEST(a_quota_row_is_rate_and_burst),
		TEST(the_bucket_of_the_cell_gives_the_tenants_token_back),
		TEST(rate_is_tested_before_occupancy),
		TEST(timers_have_a_cap_of_their_own),
		TEST(the_horizon_of_a_quota_row),
		TEST(a_refund_gives_room_but_lifts_no_block),
	};

	return cmocka_run_group_tests_name("kvlimit", tests, NULL, NULL);
}
