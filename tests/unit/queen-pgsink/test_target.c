/* SPDX-License-Identifier: Apache-2.0 */
#include "target.h"

#include "target_fix.h"

/* ---- setup ---- */

static void
setup_makes_the_progress_table_and_finds_it(void **state)
{
	(void)state;
	assert_string_equal(set_up(), "");
	assert_string_equal(set_up(), "");
	assert_string_equal(
		value("select string_agg(a.attname || ' ' || format_type("
		      "a.atttypid, null), ', ' order by a.attnum) from"
		      " pg_attribute a where a.attnum > 0 and a.attrelid ="
		      " 'queen.sink_progress'::regclass"),
		"sink text, partition_id bigint, partition text, last_offset "
		"bigint, last_created_at timestamp with time zone, group_id "
		"bigint, cell text, updated_at timestamp with time zone");
	value("drop table queen.sink_progress; create table"
	      " queen.sink_progress (partition_id bigint, sink varchar(200),"
	      " partition varchar(200), last_offset bigint, updated_at"
	      " timestamp default now(), primary key (partition_id, sink))");
	assert_string_equal(set_up(), "progress_table");
	/* what it says to run mends it */
	value(strstr(fault.text, "run: ") + 5);
	assert_string_equal(set_up(), "");
}

static void
setup_refuses_what_an_operator_must_mend(void **state)
{
	struct span params[2] = { SPAN_LIT("$.id"), SPAN_LIT("$.n") }, k[1];

	(void)state;
	doc.sink.table.name = SPAN_LIT("T");
	assert_string_equal(set_up(), "table_missing");
	assert_false(fault.retryable);
	value("create view v as select 1 id");
	doc.sink.table.name = SPAN_LIT("v");
	assert_string_equal(set_up(), "table_missing");
	doc.sink.table.name = SPAN_LIT("t");

	doc.sink.mode = CONNDOC_UPSERT;
	assert_string_equal(set_up(), "");
	k[0] = SPAN_LIT("n");
	doc.sink.key = (struct conndoc_list){ k, 1 };
	assert_string_equal(set_up(), "no_key");
	assert_non_null(
		strstr(fault.text, "CREATE UNIQUE INDEX ON public.t (\"n\")"));
	value("create unique index on t (n) where n > 0");
	assert_string_equal(set_up(), "no_key");
	value("create unique index on t (n)");
	assert_string_equal(set_up(), "");
	doc.sink.key.n = 0;
	value("alter table t drop constraint t_pkey");
	assert_string_equal(set_up(), "no_key");
	value("alter table t add primary key (id) deferrable");
	assert_string_equal(set_up(), "no_key");

	doc.sink.mode = CONNDOC_SQL;
	doc.sink.params = (struct conndoc_list){ params, 2 };
	doc.sink.statement =
		SPAN_LIT("insert into t values ($1::int, $3::int)");
	assert_string_equal(set_up(), "statement");
	assert_non_null(strstr(fault.text, "more parameters than the 2"));
	doc.sink.statement = SPAN_LIT("insert into t values ($1::int, 5)");
	assert_string_equal(set_up(), "statement");
	assert_non_null(strstr(fault.text, "fewer parameters than the 2"));
	doc.sink.statement = SPAN_LIT("insert into nowhere values ($1, $2)");
	assert_string_equal(set_up(), "statement");
	assert_non_null(strstr(fault.text, "42P01"));
	doc.sink.statement = SPAN_LIT("delete from t where id = $2::int");
	assert_string_equal(set_up(), "");
	doc.sink.params.n = 0;
	doc.sink.statement = SPAN_LIT("delete from t");
	assert_string_equal(set_up(), "");
	doc.sink.statement = SPAN_LIT(" Commit ");
	assert_string_equal(set_up(), "statement");
	doc.sink.statement = SPAN_LIT("end");
	assert_string_equal(set_up(), "statement");

	doc.sink.mode = CONNDOC_APPEND;
	doc.sink.metadata_given = true;
	doc.sink.metadata[CONNDOC_META_OFFSET] = SPAN_LIT("nowhere");
	assert_string_equal(set_up(), "metadata_column");
}

static void
setup_asks_for_the_progress_table_it_may_not_make(void **state)
{
	(void)state;
	value("drop role if exists poor; create role poor login;"
	      " grant all on schema public to poor; grant all on t to poor");
	doc.conn.user = SPAN_LIT("poor");
	assert_string_equal(set_up(), "progress_table");
	assert_non_null(strstr(fault.text, "42501"));
	/* the DDL it gives is complete */
	value(strstr(fault.text, "run: ") + 5);
	doc.sink.create_progress_table = false;
	assert_string_equal(set_up(), "progress_table");
	assert_non_null(strstr(fault.text, "GRANT USAGE ON SCHEMA"));
	value("grant usage on schema queen to poor");
	assert_string_equal(set_up(), "progress_table");
	assert_non_null(strstr(fault.text, "SELECT, INSERT, UPDATE"));
	value("grant select, insert on queen.sink_progress to poor");
	assert_string_equal(set_up(), "progress_table");
	value(strstr(fault.text, "run: ") + 5);
	assert_string_equal(set_up(), "");
	value("drop table queen.sink_progress");
	assert_string_equal(set_up(), "progress_table");
	assert_non_null(strstr(fault.text, "createProgressTable is false"));
	value("drop owned by poor; drop role poor");
}

/* ---- batches ---- */

static void
a_batch_and_its_progress_commit_together(void **state)
{
	(void)state;
	set_up();
	add(3, 0, "{\"id\":1,\"n\":1}");
	add(3, 1, "{\"id\":2}");
	add(3, 1, "{\"id\":2}");
	add(9, 7, "{\"n\":3,\"id\":3}");
	apply_all();
	assert_string_equal(value("select string_agg(concat_ws(':', id, n), ','"
				  " order by id) from t"),
		"1:1,2,3:3");
	assert_string_equal(
		value("select string_agg(concat_ws('|', sink, partition_id,"
		      " partition, last_offset, to_char(last_created_at at time"
		      " zone 'utc', 'HH24:MI:SS.US'), group_id, cell), ','"
		      " order by partition_id) from queen.sink_progress"),
		"tenant/orders|3|p\"3|1|10:00:00.000002|5|00000000000a,"
		"tenant/orders|9|p\"9|7|10:00:00.000008|5|00000000000a");
	assert_int_equal(x.counts.applied, 3);
	assert_int_equal(x.counts.skipped, 1);
	assert_true(x.counts.last_applied_us > 0);
	/* again, as a redelivery and one more */
	add(9, 8, "{\"id\":4}");
	apply_all();
	assert_int_equal(x.counts.applied, 4);
	assert_int_equal(x.counts.skipped, 5);
	assert_string_equal(value("select count(*) from t"), "4");
}

/* Names that the role's search_path finds before the server's own. */
static void
progress_does_not_go_by_the_search_path(void **state)
{
	(void)state;
	value("create schema odd; create function odd.now() returns"
	      " timestamptz language sql as $$ select timestamptz 'epoch' $$;"
	      " create function odd.unnest(bigint[]) returns setof bigint"
	      " language sql as $$ select 1::bigint where false $$;"
	      " create function odd.never(text, text) returns bool language"
	      " sql as $$ select false $$; create operator odd.= (function ="
	      " odd.never, leftarg = text, rightarg = text);"
	      " create domain odd.text as int; create domain odd.json as int;"
	      " create role odd login superuser; alter role odd set"
	      " search_path = odd, public, pg_catalog");
	doc.conn.user = SPAN_LIT("odd");
	assert_string_equal(set_up(), "");
	add(3, 0, "{\"id\":1,\"n\":1}");
	apply_all();
	batch_new();
	add(3, 1, "{\"id\":2}");
	apply_all();
	assert_string_equal(
		value("select concat_ws(' ', partition_id, last_offset,"
		      " updated_at > now() - interval '1 hour',"
		      " (select count(*) from t)) from queen.sink_progress"),
		"3 1 t 2");
	target_free(target);
	target = NULL;
	value("drop schema odd cascade; drop table queen.sink_progress;"
	      " reassign owned by odd to postgres; drop owned by odd;"
	      " drop role odd");
}

static void
many_shapes_and_chunks_are_one_transaction(void **state)
{
	(void)state;
	value("drop table t; do $$ begin execute 'create table t (id int, ' ||"
	      " (select string_agg('c' || i || ' int', ', ') from"
	      " generate_series(1, 300) i) || ')'; end $$");
	set_up();
	for (int i = 0; i < 2500; i++)
		add(1, i, "{\"id\":%d,\"c%d\":%d}", i, i % 300 + 1, i);
	apply_all();
	assert_string_equal(
		value("select concat_ws(' ', count(*), sum(id), max(c300),"
		      " count(distinct xmin::text)) from t"),
		"2500 3123750 2399 1");
	batch_new();
	add(1, 2500, "{\"id\":1}");
	apply_all();
}

static void
poison_is_filed_and_its_partition_waits(void **state)
{
	(void)state;
	set_up();
	for (int i = 0; i < 10; i++)
		add(1, i, "{\"id\":%d,\"n\":%d}", i, i == 4 ? 100 : 0);
	for (int i = 0; i < 5; i++)
		add(2, i, i == 0 ? "[%d" : "{\"id\":%d}", 100 + i);
	for (int i = 0; i < 5; i++)
		add(3, i, i == 4 ? "{\"id\":\"%d x\"}" : "{\"id\":%d}",
			200 + i);
	assert_int_equal(apply(), TARGET_DONE);
	assert_true(results[0].dlq && results[1].dlq && results[2].dlq);
	assert_int_equal(results[0].done, 5);
	assert_int_equal(results[1].done, 1);
	assert_int_equal(results[2].done, 5);
	assert_memory_equal(results[0].text.p,
		"23514: new row for relation \"t\" violates check constraint "
		"\"t_n_check\" (Failing row contains (4, 100).)",
		results[0].text.n);
	assert_memory_equal(results[1].text.p, "payload: ", 9);
	assert_memory_equal(results[2].text.p, "22P02: ", 7);
	assert_string_equal(value("select string_agg(id::text, ' ' order by id)"
				  " from t"),
		"0 1 2 3 200 201 202 203");
	assert_string_equal(
		value("select string_agg(partition_id || ':' || last_offset,"
		      " ' ' order by partition_id) from queen.sink_progress"),
		"1:3 3:3");
	assert_int_equal(x.counts.applied, 8);
}

/* The value is free two messages later, which is not looked at. */
static void
a_value_that_a_later_message_frees_is_filed(void **state)
{
	(void)state;
	doc.sink.mode = CONNDOC_UPSERT;
	value("create unique index on t (n); insert into t values (1, 1)");
	set_up();
	add(1, 0, "{\"id\":2,\"n\":1}");
	add(1, 1, "{\"id\":1,\"n\":3}");
	add(2, 0, "{\"id\":4,\"n\":4}");
	assert_int_equal(apply(), TARGET_DONE);
	assert_int_equal(results[0].done, 1);
	assert_true(results[0].dlq);
	assert_memory_equal(results[0].text.p, "23505: ", 7);
	assert_int_equal(results[1].done, 1);
	assert_string_equal(value("select string_agg(id || ':' || n, ' '"
				  " order by id) from t"),
		"1:1 4:4");
}

static void
what_breaks_at_commit_is_found_by_halves(void **state)
{
	(void)state;
	value("create table parent (id int primary key);"
	      " insert into parent select generate_series(0, 20);"
	      " alter table t add foreign key (n) references parent"
	      " deferrable initially deferred");
	set_up();
	for (int i = 0; i < 8; i++)
		add(1, i, "{\"id\":%d,\"n\":%d}", i, i == 5 ? 77 : i);
	assert_int_equal(apply(), TARGET_DONE);
	assert_int_equal(results[0].done, 6);
	assert_true(results[0].dlq);
	assert_memory_equal(results[0].text.p, "23503: ", 7);
	assert_string_equal(value("select count(*) from t"), "5");
}

static void
a_partitioned_table_is_a_table(void **state)
{
	(void)state;
	value("drop table t; create table t (id int primary key, n int)"
	      " partition by range (id); create table t1 partition of t for"
	      " values from (0) to (10)");
	doc.sink.mode = CONNDOC_UPSERT;
	assert_string_equal(set_up(), "");
	add(1, 0, "{\"id\":1,\"n\":1}");
	add(1, 1, "{\"id\":1,\"n\":2}");
	add(2, 0, "{\"id\":10}");
	assert_int_equal(apply(), TARGET_DONE);
	assert_int_equal(results[0].done, 2);
	assert_memory_equal(results[1].text.p, "23514: no partition", 19);
	assert_string_equal(value("select id || ':' || n from t"), "1:2");
}

static void
moves_wait_for_their_count(void **state)
{
	(void)state;
	doc.sink.mode = CONNDOC_CDC;
	value("insert into t values (1, 1), (9, 9)");
	set_up();
	add(1, 0,
		"{\"op\":\"u\",\"key\":{\"id\":2},\"before\":{\"id\":1},"
		"\"after\":{\"id\":2},\"unchanged\":[\"n\"]}");
	add(1, 1,
		"{\"op\":\"u\",\"key\":{\"id\":4},\"before\":{\"id\":3},"
		"\"after\":{\"id\":4,\"n\":4}}");
	add(1, 2, "{\"op\":\"d\",\"key\":{\"id\":9}}");
	add(1, 3,
		"{\"op\":\"u\",\"key\":{\"id\":5},\"before\":{\"id\":4},"
		"\"after\":{\"id\":5,\"n\":5}}");
	apply_all();
	assert_string_equal(value("select string_agg(id || ':' || n, ' '"
				  " order by id) from t"),
		"2:1 5:5");
}

/* ---- failures that are nobody's data ---- */

/* Ends every session of the sink's. */
static void
terminate(void)
{
	value("select count(pg_terminate_backend(pid)) from pg_stat_activity"
	      " where application_name like 'queen-pg/% sink:orders:%'");
}

/* A trigger that waits for the advisory lock 1 when the row says so. */
static void
make_gate(const char *timing)
{
	char text[512];

	snprintf(text, sizeof(text),
		"create function gate() returns trigger language plpgsql as"
		" $$ begin if new.id = 1 then"
		" perform pg_advisory_xact_lock(1); end if; return new; end $$;"
		" create constraint trigger gate after insert on t %s"
		" for each row execute function gate()",
		timing);
	value(text);
	value("select pg_advisory_lock(1)");
}

static void
await_gate(const char *times)
{
	int64_t deadline_ms = clk_mono_ms() + PATIENCE_MS;

	while (strcmp(value("select count(*) from pg_locks where locktype ="
			    " 'advisory' and not granted"),
		       times) != 0)
		assert_true(clk_mono_ms() < deadline_ms);
}

struct poll {
	struct loop_timer timer;
	void (*then)(void);
};

/* Runs the loop until a session waits at the gate. */
static void
on_poll(void *arg)
{
	struct poll *p = arg;

	if (strcmp(value("select count(*) from pg_locks where locktype ="
			 " 'advisory' and not granted"),
		    "0") == 0) {
		loop_timer_start(&p->timer, 5);
		return;
	}
	p->then();
}

static void
apply_until_gate(void (*then)(void))
{
	struct poll p = { .then = then };

	give(target);
	loop_timer_init(&p.timer, loop, on_poll, &p);
	loop_timer_start(&p.timer, 5);
	await();
	loop_timer_fini(&p.timer);
}

static void
a_session_that_is_ended_is_opened_again(void **state)
{
	(void)state;
	make_gate("");
	set_up();
	add(1, 0, "{\"id\":0,\"n\":500}");
	add(2, 0, "{\"id\":2}");
	add(3, 0, "{\"id\":1}");
	apply_until_gate(terminate);
	assert_int_equal(end, TARGET_AGAIN);
	assert_string_equal(fault.sqlstate, "57P01");
	assert_true(fault.retryable);
	value("select pg_advisory_unlock(1)");
	/* the piece that was committed stays, the poison is known */
	assert_int_equal(apply(), TARGET_DONE);
	assert_true(results[0].dlq);
	assert_int_equal(results[1].done, 1);
	assert_int_equal(results[2].done, 1);
	assert_string_equal(value("select count(*) from t"), "2");
	assert_int_equal(x.counts.applied, 2);
	assert_int_equal(x.counts.skipped, 0);
	/* idle */
	target_forget(target);
	terminate();
	batch_new();
	add(1, 9, "{\"id\":9}");
	if (apply() == TARGET_AGAIN)
		apply();
	assert_int_equal(end, TARGET_DONE);
}

/* Row 1 is held here, row 2 by the sink: each wants the other's. */
/* No plan that was made while the table was small may be stuck to. */
static void
progress_is_found_by_key_in_a_table_that_grew(void **state)
{
	int64_t deadline_ms = clk_mono_ms() + PATIENCE_MS;

	(void)state;
	assert_string_equal(set_up(), "");
	for (int i = 0; i < 10; i++) {
		batch_new();
		add(1, i, "{\"id\":%d}", i);
		apply_all();
	}
	value("insert into queen.sink_progress (sink, partition_id, partition,"
	      " last_offset) select 'tenant/orders', i, 'p', -1"
	      " from generate_series(100, 5099) i");
	batch_new();
	add(1, 10, "{\"id\":10}");
	add(2, 0, "{\"id\":11}");
	apply_all();
	/* a session tells what it read when it ends */
	target_free(target);
	target = target_new(&x, 1);
	while (strcmp(value("select count(*) from pg_stat_activity where"
			    " application_name like 'queen-pg/%'"),
		       "0") != 0)
		assert_true(clk_mono_ms() < deadline_ms);
	assert_string_equal(
		value("select seq_tup_read + idx_tup_fetch < 1000"
		      " from pg_stat_user_tables"
		      " where relid = 'queen.sink_progress'::regclass"),
		"t");
}

static void
a_deadlock_passes(void **state)
{
	PGconn *rival = pgserver_connect(&server, "postgres");
	PGresult *res;

	(void)state;
	doc.sink.mode = CONNDOC_UPSERT;
	value("insert into t values (1, 1), (2, 2);"
	      " alter role postgres set deadlock_timeout = '600ms'");
	set_up();
	pgserver_value(rival, "set deadlock_timeout = '1min'");
	pgserver_value(rival, "begin");
	pgserver_value(rival, "update t set n = 0 where id = 1");
	add(1, 0, "{\"id\":2,\"n\":20}");
	add(2, 0, "{\"id\":1,\"n\":10}");
	give(target);
	/* the sink's session looks for a deadlock once, when both wait */
	assert_int_equal(
		PQsendQuery(rival, "select pg_sleep(0.2); update t set n = 0"
				   " where id = 2"),
		1);
	await();
	assert_int_equal(end, TARGET_AGAIN);
	assert_string_equal(fault.sqlstate, "40P01");
	/* it has the row, or the next try could be the same again */
	while ((res = PQgetResult(rival)))
		PQclear(res);
	PQfinish(rival);
	apply_all();
	assert_string_equal(value("select string_agg(id || ':' || n, ' '"
				  " order by id) from t"),
		"1:10 2:20");
	value("alter role postgres reset all");
}

/*
 * COMMIT waits in a deferred trigger while the session's client is away: the
 * second session waits on the progress row and finds everything applied.
 */
static struct target *second;

static void
give_to_second(void)
{
	struct target *t = target;

	/* its answer is lost with it */
	target = NULL;
	target_free(t);
	answered = false;
	target_apply(second, batch, on_target, NULL);
	await_gate("1");
	value("select pg_advisory_unlock(1)");
}

static void
a_commit_in_doubt_is_waited_for(void **state)
{
	(void)state;
	make_gate("deferrable initially deferred");
	set_up();
	add(1, 0, "{\"id\":1}");
	add(2, 0, "{\"id\":2}");
	second = other;
	apply_until_gate(give_to_second);
	assert_int_equal(end, TARGET_DONE);
	assert_int_equal(results[0].done, 1);
	assert_int_equal(results[1].done, 1);
	assert_string_equal(value("select count(*) from t"), "2");
	assert_int_equal(x.counts.applied, 0);
	assert_int_equal(x.counts.skipped, 2);
}

static void
the_environment_never_makes_dead_letters(void **state)
{
	(void)state;
	set_up();
	add(1, 0, "{\"id\":1,\"n\":1}");
	value("drop role if exists clerk; create role clerk login;"
	      " grant usage on schema public, queen to clerk;"
	      " grant select, insert, update on queen.sink_progress to clerk");
	doc.conn.user = SPAN_LIT("clerk");
	assert_int_equal(apply(), TARGET_AGAIN);
	assert_string_equal(fault.sqlstate, "42501");
	value("grant select, insert on t to clerk");
	/* progress rows may not be written: not the message's fault either */
	value("alter table queen.sink_progress add check (last_offset <> 0)");
	assert_int_equal(apply(), TARGET_AGAIN);
	assert_string_equal(fault.sqlstate, "23514");
	value("alter table queen.sink_progress drop constraint"
	      " sink_progress_last_offset_check");
	/* a column that went away is seen after the first failure */
	value("alter table t drop column n");
	apply_all();
	add(1, 1, "{\"id\":2,\"n\":1}");
	apply_all();
	value("alter table t add column m int; drop table t");
	add(1, 2, "{\"id\":3}");
	while (apply() == TARGET_AGAIN)
		assert_string_equal(fault.code, "postgres");
	assert_int_equal(end, TARGET_OVER);
	assert_string_equal(fault.code, "table_missing");
	value("drop owned by clerk; drop role clerk");
}

/* The run ends, so that setup names what helps or makes it. */
static void
a_progress_table_that_goes_away_ends_it(void **state)
{
	static const char *const how[] = { "drop table queen.sink_progress",
		"drop schema queen cascade",
		"alter table queen.sink_progress drop column group_id",
		"alter table queen.sink_progress drop constraint"
		" sink_progress_pkey" };

	(void)state;
	for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
		value("create schema if not exists queen;"
		      " drop table if exists queen.sink_progress");
		assert_string_equal(set_up(), "");
		add(1, 2 * (int)i, "{\"id\":%d}", (int)i);
		apply_all();
		value(how[i]);
		add(1, 2 * (int)i + 1, "{\"id\":9}");
		assert_int_equal(apply(), TARGET_OVER);
		assert_string_equal(fault.code, "progress_table");
		assert_true(fault.retryable);
		target_forget(target);
		batch_new();
	}
}

static void
what_does_not_prepare_is_the_environment(void **state)
{
	struct span params[1] = { SPAN_LIT("$.id") };

	(void)state;
	doc.sink.mode = CONNDOC_SQL;
	doc.sink.params = (struct conndoc_list){ params, 1 };
	doc.sink.statement =
		SPAN_LIT("insert into kinds values ('a'::kind, $1::int)");
	value("create type kind as enum ('a'); create table kinds (k kind,"
	      " id int)");
	assert_string_equal(set_up(), "");
	add(1, 0, "{\"id\":1}");
	value("alter type kind rename value 'a' to 'b'");
	assert_int_equal(apply(), TARGET_AGAIN);
	assert_string_equal(fault.sqlstate, "22P02");
	value("alter type kind rename value 'b' to 'a'");
	apply_all();
	assert_string_equal(value("select id from kinds"), "1");
}

static void
a_password_that_does_not_open_ends_it(void **state)
{
	(void)state;
	add(1, 0, "{\"id\":1}");
	doc.conn.password_sealed = SPAN_LIT("AQID");
	assert_int_equal(apply(), TARGET_OVER);
	assert_string_equal(fault.code, "unseal");
	assert_non_null(strstr(fault.text, "QUEEN_ENCRYPTION_KEY"));
	assert_string_equal(set_up(), "unseal");
}

static void
an_unreachable_target_is_tried_again(void **state)
{
	(void)state;
	set_up();
	add(1, 0, "{\"id\":1}");
	doc.conn.port = 1;
	assert_int_equal(apply(), TARGET_AGAIN);
	assert_true(fault.retryable);
	assert_string_equal(set_up(), fault.code);
	doc.conn.port = server.port;
	apply_all();
	/* a role's settings give way; what is told to be committed is */
	value("alter role postgres set synchronous_commit = off;"
	      " alter role postgres set statement_timeout = '1ms';"
	      " alter role postgres set default_transaction_read_only = on");
	terminate();
	add(1, 1, "{\"id\":2}");
	if (apply() == TARGET_AGAIN)
		apply();
	assert_int_equal(end, TARGET_DONE);
	value("alter role postgres reset all");
	assert_string_equal(value("select count(*) from t"), "2");
}

/* ---- other lives, other cells ---- */

static void
rows_of_other_lives_and_cells_are_heeded(void **state)
{
	struct span user;

	(void)state;
	set_up();
	add(1, 5, "{\"id\":1}");
	apply_all();
	/* the group was made anew: what it delivers again is applied again */
	batch_new();
	batch->group_id = 6;
	add(1, 3, "{\"id\":2}");
	apply_all();
	assert_string_equal(value("select last_offset || ' ' || group_id from"
				  " queen.sink_progress"),
		"3 6");
	/* who slept over that applies nothing and acknowledges nothing */
	batch_new();
	add(0, 0, "{\"id\":7}");
	add(1, 6, "{\"id\":3}");
	assert_int_equal(apply(), TARGET_DONE);
	assert_int_equal(results[0].done, 0);
	assert_int_equal(results[1].done, 0);
	target_forget(target);
	assert_string_equal(value("select count(*) from t"), "2");
	/* the next life has its own */
	batch_new();
	batch->group_id = 7;
	add(1, 3, "{\"id\":5}");
	apply_all();
	/* but when 6 and 7 never were, they do not stop it for ever */
	for (int i = 0; i < 3; i++) {
		batch_new();
		add(1, 7, "{\"id\":6}");
		batch->messages[0].created_at_us += 1000;
		assert_int_equal(apply(), TARGET_DONE);
		assert_int_equal(results[0].done, i > 0);
		target_forget(target);
	}
	assert_string_equal(value("select count(*) from t"), "4");
	value("delete from t where id > 4; update queen.sink_progress set"
	      " group_id = 6, last_offset = 3, last_created_at ="
	      " last_created_at - interval '1 s'");
	/* the cell went back in time: lower offsets, later times */
	batch_new();
	batch->group_id = 6;
	add(1, 1, "{\"id\":4}");
	batch->messages[0].created_at_us += 1000;
	apply_all();
	apply_all();
	assert_string_equal(value("select string_agg(id::text, ' ' order by id)"
				  " from t"),
		"1 2 4");
	assert_string_equal(
		value("select last_offset from queen.sink_progress"), "1");
	/* another cell */
	memcpy(x.cell_tag, "00000000000b", 12);
	assert_int_equal(apply(), TARGET_OVER);
	assert_string_equal(fault.code, "cell_changed");
	assert_string_equal(set_up(), "cell_changed");
	assert_non_null(strstr(fault.text, "queenctl connector adopt orders"));
	/* asked for in another cell than this */
	doc.takeover = CONNDOC_RESET;
	doc.takeover_cell = SPAN_LIT("00000000000a");
	assert_string_equal(set_up(), "cell_changed");
	doc.takeover_cell = SPAN_LIT("00000000000b");
	value("drop role if exists poor; create role poor login;"
	      " grant usage on schema queen to poor; grant select, insert,"
	      " update on queen.sink_progress to poor; grant all on t to poor");
	user = doc.conn.user;
	doc.conn.user = SPAN_LIT("poor");
	assert_string_equal(set_up(), "progress_table");
	value(strstr(fault.text, "run: ") + 5);
	assert_string_equal(set_up(), "");
	doc.conn.user = user;
	value("drop owned by poor; drop role poor");
	assert_string_equal(
		value("select count(*) from queen.sink_progress"), "0");
}

/* ---- stops ---- */

static void
stop_now(void)
{
	target_stop(target);
	value("select pg_advisory_unlock(1)");
}

static void
a_stop_lets_the_transaction_end(void **state)
{
	(void)state;
	make_gate("");
	set_up();
	add(1, 0, "{\"id\":1}");
	apply_until_gate(stop_now);
	assert_int_equal(end, TARGET_DONE);
	assert_int_equal(results[0].done, 1);
	assert_string_equal(value("select count(*) from t"), "1");
	/* nothing more */
	target_forget(target);
	batch_new();
	add(1, 1, "{\"id\":2}");
	assert_int_equal(apply(), TARGET_DONE);
	assert_int_equal(results[0].done, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_setup, test_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(setup_makes_the_progress_table_and_finds_it),
		TEST(setup_refuses_what_an_operator_must_mend),
		TEST(setup_asks_for_the_progress_table_it_may_not_make),
		TEST(a_batch_and_its_progress_commit_together),
		TEST(progress_does_not_go_by_the_search_path),
		TEST(many_shapes_and_chunks_are_one_transaction),
		TEST(poison_is_filed_and_its_partition_waits),
		TEST(a_value_that_a_later_message_frees_is_filed),
		TEST(what_breaks_at_commit_is_found_by_halves),
		TEST(a_partitioned_table_is_a_table),
		TEST(moves_wait_for_their_count),
		TEST(a_session_that_is_ended_is_opened_again),
		TEST(progress_is_found_by_key_in_a_table_that_grew),
		TEST(a_deadlock_passes),
		TEST(a_commit_in_doubt_is_waited_for),
		TEST(the_environment_never_makes_dead_letters),
		TEST(a_progress_table_that_goes_away_ends_it),
		TEST(what_does_not_prepare_is_the_environment),
		TEST(a_password_that_does_not_open_ends_it),
		TEST(an_unreachable_target_is_tried_again),
		TEST(rows_of_other_lives_and_cells_are_heeded),
		TEST(a_stop_lets_the_transaction_end),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
