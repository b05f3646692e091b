/* SPDX-License-Identifier: Apache-2.0 */
#include "cellkv.h"

#include "cell_fix.h"

static struct pgconn *one, *two;

struct got {
	bool done, failed;
	struct cellkv_row row;
	char value[64];
	struct err err;
};

static void
on_row(void *arg, const struct cellkv_row *row, const struct err *e)
{
	struct got *g = arg;

	assert_false(g->done);
	g->done = true;
	g->failed = e != NULL;
	if (e) {
		assert_null(row);
		g->err = *e;
		return;
	}
	g->row = *row;
	snprintf(g->value, sizeof(g->value), "%.*s", (int)row->value.n,
		row->value.n ? row->value.p : "");
}

static struct cellkv_key
key_of(const char *name)
{
	return (struct cellkv_key){
		.tenant = &tenant, .ns = "queen-pg", .key = span_of(name)
	};
}

static struct got
put(const char *name, const char *value, int64_t expect, int64_t ttl_s)
{
	struct cellkv_key k = key_of(name);
	struct got g = { .done = false };

	cellkv_put(one, &k, span_of(value), expect, ttl_s, on_row, &g);
	assert_false(g.done); /* never from inside */
	run_until(is_true, &g.done);
	assert_false(g.failed);
	return g;
}

static struct got
get(const char *name)
{
	struct cellkv_key k = key_of(name);
	struct got g = { .done = false };

	cellkv_get(one, &k, on_row, &g);
	run_until(is_true, &g.done);
	assert_false(g.failed);
	return g;
}

static struct got
drop(const char *name, int64_t expect)
{
	struct cellkv_key k = key_of(name);
	struct got g = { .done = false };

	cellkv_delete(one, &k, expect, on_row, &g);
	run_until(is_true, &g.done);
	assert_false(g.failed);
	return g;
}

static struct got
settle(const char *name)
{
	struct cellkv_key k = key_of(name);
	struct got g = { .done = false };

	cellkv_settle(two, &k, on_row, &g);
	run_until(is_true, &g.done);
	return g;
}

#define IS(g, yes, v, text)                                                    \
	do {                                                                   \
		assert_int_equal((g).row.applied, yes);                        \
		assert_int_equal((g).row.version, v);                          \
		assert_string_equal((g).value, text);                          \
	} while (0)

static void
test_put_get_delete(void **state)
{
	struct got g = get("k");
	int64_t v;

	(void)state;
	IS(g, false, CELLKV_ABSENT, "");
	g = put("k", "{\"a\":1}", CELLKV_ABSENT, CELLKV_FOREVER);
	v = g.row.version;
	assert_true(v > 0);
	IS(g, true, v, "{\"a\": 1}");
	g = get("k");
	IS(g, true, v, "{\"a\": 1}");

	/* who loses learns what is there */
	g = put("k", "2", CELLKV_ABSENT, CELLKV_FOREVER);
	IS(g, false, v, "{\"a\": 1}");
	g = put("k", "2", v + 100, CELLKV_FOREVER);
	IS(g, false, v, "{\"a\": 1}");
	g = drop("k", v + 100);
	IS(g, false, v, "{\"a\": 1}");

	g = put("k", "2", v, 100);
	assert_true(g.row.applied && g.row.version > v);
	v = g.row.version;
	assert_string_equal(
		value_of("select expires_at - updated_at from queen.kv"),
		"00:01:40");
	g = put("k", "3", CELLKV_ANY, CELLKV_FOREVER);
	assert_true(g.row.applied && g.row.version > v);
	v = g.row.version;

	/* what was removed is there no more */
	g = drop("k", v);
	IS(g, true, CELLKV_ABSENT, "");
	g = drop("k", CELLKV_ANY);
	IS(g, false, CELLKV_ABSENT, "");
	g = put("k", "4", v, CELLKV_FOREVER);
	IS(g, false, CELLKV_ABSENT, "");
}

static void
test_a_refusal_is_an_error(void **state)
{
	struct cellkv_key k = key_of("");
	struct got g = { .done = false };

	(void)state;
	cellkv_get(one, &k, on_row, &g);
	run_until(is_true, &g.done);
	assert_true(g.failed);
	assert_string_equal(g.err.sqlstate, "22023");
	assert_int_equal(g.err.kind, ERR_DB_DATA);
}

static void
run(const char *text)
{
	PGresult *r = PQexec(sql, text);
	ExecStatusType st = PQresultStatus(r);

	PQclear(r);
	assert_true(st == PGRES_COMMAND_OK || st == PGRES_TUPLES_OK);
}

/* One transaction of another session, over when the settling waits. */
static struct got
settle_behind(const char *statement, const char *end)
{
	struct cellkv_key k = key_of("s");
	struct got g = { .done = false };
	PGconn *eye = pgserver_connect(&server, "postgres");

	run("begin");
	run(statement);
	cellkv_settle(two, &k, on_row, &g);
	for (int i = 0; i < 5000; i++) {
		/* lets the call out, and would take an answer */
		bool out = true;

		run_until(is_true, &out);
		if (strcmp(pgserver_value(eye, "select count(*) from pg_locks "
					       "where not granted"),
			    "1") == 0)
			break;
	}
	assert_false(g.done);
	PQfinish(eye);
	run(end);
	run_until(is_true, &g.done);
	assert_false(g.failed);
	return g;
}

#define PUT_S(expect, value)                                                    \
	"select * from queen.kv_one_v1('01020300-0000-0000-0000-000000000000'," \
	" 3, 'queen-pg', 's', '" value "', " expect                             \
	", null, false, null, null, null)"

/* Made, changed and removed, with both ends of the transaction. */
static void
test_settle_waits_for_the_writer(void **state)
{
	struct got g = settle("s");
	int64_t v;

	(void)state;
	IS(g, false, CELLKV_ABSENT, "");
	assert_string_equal(value_of("select count(*) from queen.kv"), "0");
	g = settle_behind(PUT_S("0", "1"), "rollback");
	IS(g, false, CELLKV_ABSENT, "");
	assert_string_equal(value_of("select count(*) from queen.kv"), "0");
	g = settle_behind(PUT_S("0", "1"), "commit");
	v = g.row.version;
	IS(g, true, v, "1");
	g = settle_behind(PUT_S("null", "2"), "rollback");
	IS(g, true, v, "1");
	g = settle_behind(PUT_S("null", "2"), "commit");
	assert_true(g.row.version > v);
	assert_string_equal(g.value, "2");
	v = g.row.version;
	g = settle_behind("delete from queen.kv", "rollback");
	IS(g, true, v, "2");
	g = settle_behind("delete from queen.kv", "commit");
	IS(g, false, CELLKV_ABSENT, "");
	assert_string_equal(value_of("select count(*) from queen.kv"), "0");
}

/* One that takes longer does not hold up what else the link is for. */
static void
test_settle_gives_up(void **state)
{
	struct got g, other = { .done = false };
	struct cellkv_key k = key_of("s");

	(void)state;
	run("alter function queen.kv_settle_v1 set lock_timeout = '50ms'");
	run("begin");
	run(PUT_S("0", "1"));
	cellkv_get(two, &k, on_row, &other);
	g = settle("s");
	assert_true(g.failed);
	assert_string_equal(g.err.sqlstate, "55P03");
	assert_int_equal(g.err.kind, ERR_DB_RETRY);
	assert_true(other.done && !other.failed);
	run("commit");
	g = settle("s");
	assert_string_equal(g.value, "1");
	run("delete from queen.kv");
}

/* A dead row is absent. */
static void
test_lifetime(void **state)
{
	struct got g = put("s", "1", CELLKV_ABSENT, 1);
	int64_t v = g.row.version;

	(void)state;
	g = settle("s");
	IS(g, true, v, "1");
	run("update queen.kv set expires_at = now() - interval '1 s'");
	g = settle("s");
	IS(g, false, CELLKV_ABSENT, "");
	g = put("s", "2", CELLKV_ABSENT, 1);
	assert_true(g.row.applied && g.row.version > v);
	g = drop("s", CELLKV_ANY);
	assert_true(g.row.applied);
}

static void
test_no_link(void **state)
{
	struct cellkv_key k = key_of("k");
	struct got g = { .done = false };

	(void)state;
	pgconn_reset(one);
	cellkv_get(one, &k, on_row, &g);
	assert_false(g.done);
	run_until(is_true, &g.done);
	assert_true(g.failed);
	assert_int_equal(g.err.kind, ERR_DB_RETRY);
	run_until(link_is_up, one);
}

static int
start(void **state)
{
	if (cell_start(state) != 0)
		return -1;
	one = link_new(server.conninfo, NULL);
	two = link_new(server.conninfo, NULL);
	return 0;
}

static int
stop(void **state)
{
	pgconn_free(one);
	pgconn_free(two);
	return cell_stop(state);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_get_delete),
		cmocka_unit_test(test_a_refusal_is_an_error),
		cmocka_unit_test(test_settle_waits_for_the_writer),
		cmocka_unit_test(test_settle_gives_up),
		cmocka_unit_test(test_lifetime),
		cmocka_unit_test(test_no_link),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
