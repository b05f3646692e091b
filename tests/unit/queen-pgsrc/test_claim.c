/* SPDX-License-Identifier: Apache-2.0 */
/* Leases of sources on a real cell: two nodes, two lives, links that break. */
#include "claim.h"

#include "cell_fix.h"
#include "connchild.h"
#include "connfault.h"
#include "ctx.h"
#include "connhost.h"

/* Rows live a second at least; refreshed and claimed faster than that. */
enum { TTL_MS = 300 };

/* A process with a claim. */
struct node {
	struct connhost_settings conf;
	struct connchild_task task;
	struct ctx x;
	struct claim *claim;
	int won, lost, standby, troubles, done;
	bool troubled;
	char other[32];
};

static struct node A, B;

static void
on_won(void *arg)
{
	((struct node *)arg)->won++;
}

static void
on_lost(void *arg)
{
	((struct node *)arg)->lost++;
}

static void
on_standby(void *arg, struct span owner)
{
	struct node *n = arg;

	n->standby++;
	snprintf(n->other, sizeof(n->other), "%.*s", (int)owner.n, owner.p);
}

static void
on_trouble(void *arg, const struct connfault *f)
{
	struct node *n = arg;

	n->troubles += f != NULL;
	n->troubled = f != NULL;
	if (f)
		assert_string_equal(f->code, "queen");
}

static void
on_done(void *arg)
{
	((struct node *)arg)->done++;
}

static const struct claim_events EVENTS = { .on_won = on_won,
	.on_standby = on_standby,
	.on_trouble = on_trouble,
	.on_lost = on_lost };

static void
claim_as(struct node *n, const char *name)
{
	struct claim_events ev = EVENTS;

	ev.arg = n;
	n->conf.lease_ttl_ms = TTL_MS;
	n->task = (struct connchild_task){
		.tenant = tenant, .name = { "s", 1 }, .node = span_of(name)
	};
	if (!n->x.side)
		n->x.side = link_new(server.conninfo, NULL);
	n->x.loop = loop;
	n->x.conf = &n->conf;
	n->x.task = &n->task;
	n->x.lease_key = SPAN_LIT("src:s:lease");
	n->won = n->lost = n->standby = n->troubles = n->done = 0;
	n->claim = claim_new(&n->x, &ev);
}

static bool
has_won(void *arg)
{
	return ((const struct node *)arg)->won > 0;
}

static bool
has_lost(void *arg)
{
	return ((const struct node *)arg)->lost > 0;
}

static bool
stands_by(void *arg)
{
	return ((const struct node *)arg)->standby > 0;
}

static bool
is_done(void *arg)
{
	return ((const struct node *)arg)->done > 0;
}

static const char *
row(const char *what)
{
	return value_of(
		"select %s from queen.kv where key = 'src:s:lease'", what);
}

static void
release(struct node *n)
{
	claim_release(n->claim, on_done, n);
	assert_int_equal(n->done, 0);
	run_until(is_done, n);
}

static int
clean(void **state)
{
	(void)state;
	claim_free(A.claim);
	claim_free(B.claim);
	A.claim = B.claim = NULL;
	value_of("delete from queen.kv");
	return 0;
}

static bool
was_refreshed_twice(void *arg)
{
	return strtoll(row("version"), NULL, 10) >= *(const int64_t *)arg + 2;
}

/* Refreshed while it lives, deleted when it is given back, and claimed anew. */
static void
test_life(void **state)
{
	int64_t version;

	(void)state;
	claim_as(&A, "a");
	assert_false(claim_is_mine(A.claim));
	run_until(has_won, &A);
	assert_true(claim_is_mine(A.claim));
	assert_string_equal(row("value->>'node'"), "a");
	assert_string_equal(row("extract(epoch from expires_at - updated_at)"
				"::int"),
		"1");
	version = strtoll(row("version"), NULL, 10);
	run_until(was_refreshed_twice, &version);
	release(&A);
	assert_false(claim_is_mine(A.claim));
	assert_string_equal(row("count(*)"), "0");
	A.won = 0;
	claim_again(A.claim, 1);
	run_until(has_won, &A);
	assert_int_equal(A.lost + A.standby + A.troubles, 0);
}

/* The second waits, is told once of whom, and follows a release. */
static void
test_standby_follows(void **state)
{
	(void)state;
	claim_as(&A, "a");
	run_until(has_won, &A);
	claim_as(&B, "b");
	run_until(stands_by, &B);
	assert_string_equal(B.other, "a");
	assert_false(claim_is_mine(B.claim));
	release(&A);
	run_until(has_won, &B);
	assert_int_equal(B.standby, 1);
	assert_string_equal(row("value->>'node'"), "b");
	/* what is another's is not given back */
	A.done = 0;
	release(&A);
	assert_string_equal(row("value->>'node'"), "b");
}

/* An owner that sleeps past its time loses to who comes, and is told. */
static void
test_takeover_after_its_time(void **state)
{
	(void)state;
	claim_as(&A, "a");
	run_until(has_won, &A);
	claim_as(&B, "b");
	run_until(stands_by, &B);
	value_of("update queen.kv set expires_at = now() - interval '1 s'");
	/* either may come first, as in life */
	for (;;) {
		if (A.lost && B.won)
			break;
		if (!A.lost)
			run_until(has_lost, &A);
		run_until(has_won, &B);
	}
	assert_string_equal(row("value->>'node'"), "b");
	assert_false(claim_is_mine(A.claim));
	/* it comes back as a standby */
	claim_again(A.claim, 1);
	run_until(stands_by, &A);
	assert_string_equal(A.other, "b");
}

/* The same node in another life does not wait for the row to end. */
static void
test_earlier_life(void **state)
{
	(void)state;
	claim_as(&A, "a");
	run_until(has_won, &A);
	value_of("update queen.kv set expires_at = now() + interval '1 h'");
	claim_as(&B, "a");
	run_until(has_won, &B);
	assert_int_equal(B.standby, 0);
	run_until(has_lost, &A);
	assert_int_equal(B.lost, 0);
	assert_true(claim_is_mine(B.claim));
}

/* What is no lease document is nobody's to take. */
static void
test_unreadable(void **state)
{
	(void)state;
	value_of(
		"insert into queen.kv (tenant, namespace, key, value, version, "
		"created_at, updated_at) values "
		"('01020300-0000-0000-0000-000000000000', 'queen-pg', "
		"'src:s:lease', '17', 1, now(), now())");
	claim_as(&A, "a");
	run_until(stands_by, &A);
	assert_string_equal(A.other, "");
	assert_int_equal(A.won, 0);
	value_of("delete from queen.kv");
	run_until(has_won, &A);
}

static bool
was_in_trouble(void *arg)
{
	return ((const struct node *)arg)->troubles > 0;
}

static bool
is_well(void *arg)
{
	return !((const struct node *)arg)->troubled;
}

/* Until the next refresh waits for it. */
static void
hold_the_row(void)
{
	value_of("begin");
	value_of("select 1 from queen.kv for update");
	for (int i = 0; i < 2000 && strcmp(value_of("select count(*) from "
						    "pg_locks where not "
						    "granted"),
					    "1") != 0;
		i++) {
		bool turn = true;

		run_until(is_true, &turn);
	}
}

/* Another's version in the row, but the document is mine: an answer was lost. */
static void
test_a_lost_answer_is_no_loss(void **state)
{
	int64_t version;

	(void)state;
	claim_as(&A, "a");
	run_until(has_won, &A);
	value_of("update queen.kv set version = nextval('queen.kv_version')");
	version = strtoll(row("version"), NULL, 10);
	run_until(was_refreshed_twice, &version);
	assert_int_equal(A.lost, 0);

	/* a link that breaks is trouble; what it had sent happens all the same */
	hold_the_row();
	version = strtoll(row("version"), NULL, 10);
	pgconn_reset(A.x.side);
	run_until(was_in_trouble, &A);
	value_of("commit");
	run_until(is_well, &A);
	run_until(was_refreshed_twice, &version);
	assert_int_equal(A.lost, 0);
	assert_true(claim_is_mine(A.claim));
}

/* A row that is held: the release does not pass a refresh, nor wait for ever. */
static void
test_release_behind_a_refresh(void **state)
{
	int64_t began_ms;

	(void)state;
	claim_as(&A, "a");
	run_until(has_won, &A);
	hold_the_row();
	claim_release(A.claim, on_done, &A);
	value_of("commit");
	run_until(is_done, &A);
	assert_string_equal(row("count(*)"), "0");

	claim_free(A.claim);
	claim_as(&A, "a");
	run_until(has_won, &A);
	value_of("begin");
	value_of("select 1 from queen.kv for update");
	began_ms = clk_mono_ms();
	release(&A);
	assert_in_range(clk_mono_ms() - began_ms, 4900, 8000);
	/* freed with a call under way */
	claim_free(A.claim);
	A.claim = NULL;
	value_of("commit");
}

static bool
is_idle(void *arg)
{
	return pgconn_pending(arg) == 0;
}

static int
stop(void **state)
{
	/* a call that is never answered would not be freed either */
	run_until(is_idle, A.x.side);
	pgconn_free(A.x.side);
	pgconn_free(B.x.side);
	return cell_stop(state);
}

#define T(name) cmocka_unit_test_teardown(name, clean)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_life),
		T(test_standby_follows),
		T(test_takeover_after_its_time),
		T(test_earlier_life),
		T(test_unreadable),
		T(test_a_lost_answer_is_no_loss),
		T(test_release_behind_a_refresh),
	};

	return cmocka_run_group_tests(tests, cell_start, stop);
}
