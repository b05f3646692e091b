/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include "cell.h"
#include "cell_fix.h"

#define LEASE "s3:sink:q%2F1:lease"
#define DONE "s3:sink:q%2F1:committed"

static struct cell *cell;
static char a_first[] = "a", b_first[] = "b";

struct got {
	bool done;
	enum lease_seen seen;
	enum lease_fenced fenced;
	int64_t version;
	char holder[32];
	bool failed;
	int n;
};

static void
on_seen(void *arg, enum lease_seen s, struct span holder, const struct err *e)
{
	struct got *g = arg;

	assert_false(g->done);
	g->done = true;
	g->seen = s;
	g->failed = e != NULL;
	snprintf(g->holder, sizeof(g->holder), "%.*s", SPAN_ARG(holder));
}

static void
on_fenced(void *arg, enum lease_fenced f, int64_t version, const struct err *e)
{
	struct got *g = arg;

	assert_false(g->done);
	g->done = true;
	g->n++;
	g->fenced = f;
	g->version = version;
	g->failed = e != NULL;
}

static void
on_done(void *arg)
{
	struct got *g = arg;

	assert_false(g->done);
	g->done = true;
}

static void
on_lost(void *arg)
{
	(*(int *)arg)++;
}

/* Lost leases are counted in *lost. */
static struct lease *
lease_of(const char *instance, int64_t ttl_ms, int *lost)
{
	const struct lease_conf c = {
		.cell = cell,
		.tenant = &tenant,
		.sink = "sink",
		.queue = "q/1",
		.instance = instance,
		.ttl_ms = ttl_ms,
		.on_lost = on_lost,
		.arg = lost,
	};

	return lease_new(loop, &c);
}

static struct got
claim(struct lease *x)
{
	struct got g = { .done = false };

	lease_claim(x, on_seen, &g);
	assert_false(g.done); /* never from inside */
	run_until(is_true, &g.done);
	assert_false(g.failed);
	return g;
}

static struct got
look(struct lease *x)
{
	struct got g = { .done = false };

	lease_look(x, on_seen, &g);
	run_until(is_true, &g.done);
	assert_false(g.failed);
	return g;
}

static struct got
fence(struct lease *x, const char *value, int64_t expect)
{
	struct got g = { .done = false };

	lease_fence(x, KEY_COMMITTED, span_of(value), expect, KEY_LEASE,
		on_fenced, &g);
	assert_false(g.done);
	run_until(is_true, &g.done);
	return g;
}

static void
release(struct lease *x)
{
	struct got g = { .done = false };

	lease_release(x, on_done, &g);
	assert_false(g.done);
	run_until(is_true, &g.done);
}

static int64_t
version_of(const char *key)
{
	return atoll(value_of("select coalesce((select version from queen.kv "
			      "where key = '%s'), 0)",
		key));
}

static const char *
pointer(void)
{
	return value_of(
		"select value::text from queen.kv where key = '%s'", DONE);
}

static int
clean(void **state)
{
	(void)state;
	pgserver_run(sql, "delete from queen.kv");
	return 0;
}

/* 90 */
static void
test_first_claim_wins_and_the_second_learns_the_owner(void **state)
{
	int lost = 0;
	struct lease *a = lease_of(a_first, 30000, &lost);
	struct lease *b = lease_of(b_first, 30000, &lost);
	struct got g = look(a);

	(void)state;
	assert_int_equal(g.seen, LEASE_FREE);
	assert_int_equal(claim(a).seen, LEASE_MINE);
	g = claim(b);
	assert_int_equal(g.seen, LEASE_OTHER);
	assert_string_equal(g.holder, "a");
	g = look(b);
	assert_int_equal(g.seen, LEASE_OTHER);
	assert_string_equal(g.holder, "a");
	assert_int_equal(look(a).seen, LEASE_MINE);
	assert_string_equal(value_of("select extract(epoch from expires_at - "
				     "updated_at)::int from queen.kv"),
		"30");
	pgserver_run(sql, "update queen.kv set value = '7'");
	g = claim(b);
	assert_int_equal(g.seen, LEASE_OTHER);
	assert_string_equal(g.holder, "unknown");
	lease_free(a);
	lease_free(b);
}

/* 91 */
static bool
has_moved(void *arg)
{
	return version_of(LEASE) != *(int64_t *)arg;
}

static void
test_refresh_takes_a_new_version_and_the_fence_follows(void **state)
{
	int lost = 0;
	struct lease *a = lease_of(a_first, 1999, &lost);
	int64_t v, done;
	struct got g;

	(void)state;
	claim(a);
	assert_string_equal(value_of("select extract(epoch from expires_at - "
				     "updated_at)::int from queen.kv"),
		"1");
	v = version_of(LEASE);
	run_until(has_moved, &v);
	g = fence(a, "{\"k\":1}", 0);
	assert_int_equal(g.fenced, LEASE_APPLIED);
	assert_int_equal(g.version, version_of(DONE));
	done = g.version;
	g = fence(a, "{\"k\":2}", done);
	assert_int_equal(g.fenced, LEASE_APPLIED);
	v = version_of(LEASE);
	/* the pointer moved under us: nothing is written, the lease included */
	g = fence(a, "{\"k\":9}", done);
	assert_int_equal(g.fenced, LEASE_LOST);
	assert_string_equal(pointer(), "{\"k\": 2}");
	assert_int_equal(version_of(LEASE), v);
	assert_int_equal(lost, 0);
	lease_free(a);
}

/* 92 */
static void
test_an_expired_lease_is_claimable_and_the_old_owner_is_fenced(void **state)
{
	int lost = 0;
	struct lease *a = lease_of(a_first, 1000, &lost);
	struct lease *b = lease_of(b_first, 30000, &lost);
	struct got g;

	(void)state;
	claim(a);
	pgserver_run(sql, "update queen.kv set expires_at = now()");
	assert_int_equal(claim(b).seen, LEASE_MINE);
	g = fence(a, "{\"k\":1}", 0);
	assert_int_equal(g.fenced, LEASE_LOST);
	assert_false(g.failed);
	assert_int_equal(version_of(DONE), 0);
	assert_int_equal(fence(a, "{\"k\":1}", 0).fenced, LEASE_LOST);
	assert_int_equal(claim(a).seen, LEASE_OTHER);
	assert_int_equal(lost, 0); /* a fence told it */
	assert_int_equal(fence(b, "{\"k\":5}", 0).fenced, LEASE_APPLIED);
	lease_free(a);
	lease_free(b);
}

static bool
is_one(void *arg)
{
	return *(int *)arg == 1;
}

static void
test_a_refresh_finds_that_the_lease_is_anothers(void **state)
{
	int lost = 0;
	struct lease *a = lease_of(a_first, 1000, &lost);

	(void)state;
	claim(a);
	pgserver_run(sql, "update queen.kv set version = "
			  "nextval('queen.kv_version'), value = "
			  "'{\"instance\":\"b\"}'");
	run_until(is_one, &lost);
	assert_int_equal(fence(a, "1", 0).fenced, LEASE_LOST);
	assert_int_equal(lost, 1);
	lease_free(a);
}

/* 93 */
static void
test_release_deletes_what_is_ours_at_the_version_it_has(void **state)
{
	int lost = 0;
	struct lease *a = lease_of(a_first, 30000, &lost);
	struct lease *b = lease_of(b_first, 30000, &lost);

	(void)state;
	claim(a);
	/* as after an answer that was lost */
	pgserver_run(sql, "update queen.kv set version = "
			  "nextval('queen.kv_version')");
	release(a);
	assert_int_equal(version_of(LEASE), 0);
	assert_int_equal(claim(b).seen, LEASE_MINE);
	release(a);
	assert_true(version_of(LEASE) > 0);
	assert_int_equal(claim(a).seen, LEASE_OTHER);
	assert_int_equal(lost, 0);
	lease_free(a);
	lease_free(b);
}

static bool
is_waiting(void *arg)
{
	const char *n = value_of("select count(pg_terminate_backend(pid)) from "
				 "pg_stat_activity where wait_event_type = "
				 "'Lock' and application_name = 'queen-s3'");

	*(int *)arg += (int)atoll(n);
	return *(int *)arg >= 5;
}

static void
test_release_goes_through_a_short_outage(void **state)
{
	int lost = 0, killed = 0;
	struct lease *a = lease_of(a_first, 30000, &lost);
	struct got g = { .done = false };
	PGconn *other = pgserver_connect(&server, "postgres");

	(void)state;
	claim(a);
	pgserver_run(other, "begin; lock table queen.kv");
	lease_hurry(a);
	lease_release(a, on_done, &g);
	run_until(is_waiting, &killed);
	assert_false(g.done);
	pgserver_run(other, "commit");
	run_until(is_true, &g.done);
	assert_int_equal(version_of(LEASE), 0);
	PQfinish(other);
	lease_free(a);
}

/* 94 */
static void
test_refresh_and_fences_never_fence_each_other(void **state)
{
	int lost = 0;
	struct lease *a = lease_of(a_first, 1000, &lost);
	int64_t expect = 0, first;

	(void)state;
	claim(a);
	first = version_of(LEASE);
	pgserver_run(sql, "create function slow() returns trigger language "
			  "plpgsql as 'begin perform pg_sleep(0.05); return "
			  "new; end'; create trigger slow before update on "
			  "queen.kv for each row execute function slow()");
	for (int k = 1; k <= 20; k++) {
		char value[32];
		struct got g;

		snprintf(value, sizeof(value), "{\"k\": %d}", k);
		g = fence(a, value, expect);
		assert_int_equal(g.fenced, LEASE_APPLIED);
		assert_string_equal(pointer(), value);
		expect = g.version;
	}
	pgserver_run(sql, "drop function slow() cascade");
	assert_true(version_of(LEASE) > first);
	assert_int_equal(lost, 0);
	/* a real other owner still does */
	pgserver_run(sql, "update queen.kv set version = "
			  "nextval('queen.kv_version'), value = '{}' "
			  "where key like '%:lease'");
	assert_int_equal(fence(a, "{}", expect).fenced, LEASE_LOST);
	assert_string_equal(pointer(), "{\"k\": 20}");
	lease_free(a);
}

/* A fence, a refresh and a release at once come one after the other. */
static void
test_operations_wait_for_one_another(void **state)
{
	int lost = 0;
	struct lease *a = lease_of(a_first, 1000, &lost);
	struct got g[3] = { { .done = false } };

	(void)state;
	lease_claim(a, on_seen, &g[0]);
	lease_fence(a, KEY_INTENT, SPAN_LIT("{\"k\":1}"), 0, KEY_LEASE,
		on_fenced, &g[1]);
	lease_release(a, on_done, &g[2]);
	run_until(is_true, &g[2].done);
	assert_true(g[0].done && g[0].seen == LEASE_MINE);
	assert_true(g[1].done && g[1].fenced == LEASE_APPLIED);
	assert_int_equal(version_of(LEASE), 0);
	assert_int_equal(version_of("s3:sink:q%2F1:intent"), g[1].version);
	lease_free(a);
}

/* 95 */
static void
test_an_earlier_life_is_taken_back_at_once(void **state)
{
	int lost = 0;
	struct lease *old = lease_of(a_first, 1000, &lost);
	struct lease *new = lease_of(a_first, 30000, &lost);

	(void)state;
	claim(old);
	assert_int_equal(look(new).seen, LEASE_MINE);
	assert_int_equal(claim(new).seen, LEASE_MINE);
	assert_int_equal(fence(new, "{\"k\":1}", 0).fenced, LEASE_APPLIED);
	/* which is told by its next refresh */
	run_until(is_one, &lost);
	release(old);
	assert_true(version_of(LEASE) > 0);
	lease_free(old);
	lease_free(new);
}

/* 114: what a fence wrote whose answer was lost counts. */
static void
test_a_fence_sent_again_adopts_what_the_first_one_wrote(void **state)
{
	int lost = 0;
	struct lease *a = lease_of(a_first, 30000, &lost);
	int64_t v;
	struct got g;

	(void)state;
	claim(a);
	v = atoll(value_of("select version from queen.lake_fence_v1("
			   "'01020300-0000-0000-0000-000000000000', '%s', "
			   "(select value::text from queen.kv), (select "
			   "version from queen.kv), 30, '%s', '{\"k\":1}', 0, "
			   "null)",
		LEASE, DONE));
	assert_true(v > 0);
	g = fence(a, "{\"k\":1}", 0);
	assert_int_equal(g.fenced, LEASE_APPLIED);
	assert_int_equal(g.version, v);
	assert_int_equal(fence(a, "{\"k\":2}", v).fenced, LEASE_APPLIED);
	/* one that wrote nothing, behind a refresh whose answer was lost */
	v = version_of(DONE);
	pgserver_run(sql, "update queen.kv set version = "
			  "nextval('queen.kv_version') where key like "
			  "'%:lease'");
	g = fence(a, "{\"k\":3}", v);
	assert_int_equal(g.fenced, LEASE_APPLIED);
	assert_string_equal(pointer(), "{\"k\": 3}");
	lease_free(a);
}

static void
test_a_fence_without_an_answer_is_retried(void **state)
{
	int lost = 0, killed = 4;
	struct lease *a = lease_of(a_first, 30000, &lost);
	struct got g = { .done = false };
	PGconn *other = pgserver_connect(&server, "postgres");

	(void)state;
	claim(a);
	pgserver_run(other, "begin; lock table queen.kv");
	lease_fence(a, KEY_COMMITTED, SPAN_LIT("{\"k\":1}"), 0, KEY_LEASE,
		on_fenced, &g);
	run_until(is_waiting, &killed);
	run_until(is_true, &g.done);
	assert_int_equal(g.fenced, LEASE_RETRY);
	assert_true(g.failed);
	pgserver_run(other, "commit");
	assert_int_equal(fence(a, "{\"k\":1}", 0).fenced, LEASE_APPLIED);
	PQfinish(other);
	lease_free(a);
}

static void
test_a_fence_takes_a_request_with_it(void **state)
{
	int lost = 0;
	struct lease *a = lease_of(a_first, 30000, &lost);
	struct got g = { .done = false };

	(void)state;
	claim(a);
	pgserver_run(sql, "select * from queen.kv_one_v1('01020300-0000-0000-"
			  "0000-000000000000', 3, 'queen-s3', "
			  "'s3:sink:q%2F1:resume', '1', null, null, false, "
			  "null, null, null)");
	lease_fence(a, KEY_COMMITTED, SPAN_LIT("{\"k\":1}"), 0, KEY_RESUME,
		on_fenced, &g);
	run_until(is_true, &g.done);
	assert_int_equal(g.fenced, LEASE_APPLIED);
	assert_int_equal(version_of("s3:sink:q%2F1:resume"), 0);
	lease_free(a);
}

/* Freed with operations out and waiting: nobody is told. */
static void
test_a_lease_may_end_at_any_time(void **state)
{
	int lost = 0;
	struct got g[3] = { { .done = false } }, last;
	struct lease *a;

	(void)state;
	for (int i = 0; i < 3; i++) {
		a = lease_of(a_first, 30000, &lost);
		lease_claim(a, on_seen, &g[0]);
		if (i == 2)
			run_until(is_true, &g[0].done);
		lease_fence(a, KEY_COMMITTED, SPAN_LIT("1"), 0, KEY_LEASE,
			on_fenced, &g[1]);
		if (i > 0)
			lease_release(a, on_done, &g[2]);
		lease_free(a);
	}
	a = lease_of(b_first, 30000, &lost);
	last = look(a);
	assert_string_equal(last.holder, "a");
	assert_false(g[1].done || g[2].done);
	lease_free(a);
}

static int
start(void **state)
{
	struct cell_conf c;

	if (cell_start(state) != 0)
		return -1;
	c = (struct cell_conf){
		.conninfo = server.conninfo, .guard_ms = 500, .floor_ms = 30000
	};
	cell = cell_new(loop, &c);
	return 0;
}

static int
stop(void **state)
{
	cell_free(cell);
	return cell_stop(state);
}

#define T(fn) cmocka_unit_test_setup(fn, clean)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_first_claim_wins_and_the_second_learns_the_owner),
		T(test_refresh_takes_a_new_version_and_the_fence_follows),
		T(test_an_expired_lease_is_claimable_and_the_old_owner_is_fenced),
		T(test_a_refresh_finds_that_the_lease_is_anothers),
		T(test_release_deletes_what_is_ours_at_the_version_it_has),
		T(test_release_goes_through_a_short_outage),
		T(test_refresh_and_fences_never_fence_each_other),
		T(test_operations_wait_for_one_another),
		T(test_an_earlier_life_is_taken_back_at_once),
		T(test_a_fence_sent_again_adopts_what_the_first_one_wrote),
		T(test_a_fence_without_an_answer_is_retried),
		T(test_a_fence_takes_a_request_with_it),
		T(test_a_lease_may_end_at_any_time),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
