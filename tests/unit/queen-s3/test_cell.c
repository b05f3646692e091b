/* SPDX-License-Identifier: Apache-2.0 */
#include "cell_int.h"

#include "buf.h"
#include "cell_fix.h"
#include "engine.h"
#include "frame.h"
#include "seal.h"
#include "seg.h"

#define TENANT "01020300-0000-0000-0000-000000000000"
#define KEY_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define KEY_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static struct cell *cell;
static struct seal *ours, *theirs;

/* ---- rows ---- */

struct got {
	bool done, failed;
	struct cell_row row;
	char value[64];
	size_t n;
	char text[256]; /* key=value of several, one behind the other */
};

static void
on_row(void *arg, const struct cell_row *r, const struct err *e)
{
	struct got *g = arg;

	assert_false(g->done);
	g->done = true;
	g->failed = e != NULL;
	if (e)
		return;
	g->row = *r;
	snprintf(g->value, sizeof(g->value), "%.*s", SPAN_ARG(r->value));
}

static void
on_rows(void *arg, const struct cell_row *rows, size_t n, const struct err *e)
{
	struct got *g = arg;
	size_t used = 0;

	g->done = true;
	g->failed = e != NULL;
	g->n = n;
	for (size_t i = 0; i < n && used < sizeof(g->text); i++)
		used += (size_t)snprintf(g->text + used, sizeof(g->text) - used,
			"%.*s=%.*s;", SPAN_ARG(rows[i].key),
			SPAN_ARG(rows[i].value));
}

static struct got
put(const char *key, const char *value, int64_t expect, int64_t ttl_s)
{
	struct got g = { .done = false };

	cell_put(cell, &tenant, span_of(key), span_of(value), expect, ttl_s,
		on_row, &g);
	assert_false(g.done); /* never from inside */
	run_until(is_true, &g.done);
	assert_false(g.failed);
	return g;
}

static struct got
get(const char *key)
{
	struct got g = { .done = false };

	cell_get(cell, &tenant, span_of(key), on_row, &g);
	run_until(is_true, &g.done);
	assert_false(g.failed);
	return g;
}

static void
test_rows_are_put_read_and_removed(void **state)
{
	struct span keys[] = { SPAN_LIT("s3:none"), SPAN_LIT("s3:b"),
		SPAN_LIT("s3:a") };
	struct got g = get("s3:a");
	int64_t v;

	(void)state;
	assert_false(g.row.found);
	assert_int_equal(g.row.version, CELL_ABSENT);
	g = put("s3:a", "{\"x\":1}", CELL_ABSENT, 0);
	v = g.row.version;
	assert_true(g.row.found && v > 0);
	/* who loses learns what is there */
	g = put("s3:a", "2", CELL_ABSENT, 0);
	assert_false(g.row.found);
	assert_int_equal(g.row.version, v);
	assert_string_equal(g.value, "{\"x\": 1}");
	put("s3:b", "[7]", CELL_ANY, 1000);
	assert_string_equal(value_of("select count(*) from queen.kv where "
				     "namespace = 'queen-s3' and expires_at > "
				     "now() + interval '990 s'"),
		"1");
	g = (struct got){ .done = false };
	cell_get_many(cell, &tenant, keys, 3, on_rows, &g);
	run_until(is_true, &g.done);
	assert_int_equal(g.n, 3);
	assert_string_equal(g.text, "=;=[7];={\"x\": 1};");
	g = (struct got){ .done = false };
	cell_delete(cell, &tenant, keys[2], v, on_row, &g);
	run_until(is_true, &g.done);
	assert_true(g.row.found && g.row.version == 0);
	assert_false(get("s3:a").row.found);
}

static void
test_a_prefix_is_listed_over_its_pages(void **state)
{
	struct got g = { .done = false };

	(void)state;
	pgserver_run(sql, "insert into queen.kv (tenant, namespace, key, "
			  "value, version, expires_at, created_at, updated_at) "
			  "select '" TENANT "', 'queen-s3', 's3:x:node=' || i, "
			  "to_jsonb(i), i, case when i = 5 then now() end, "
			  "now(), now() from generate_series(1, 2345) i");
	cell_list(cell, &tenant, SPAN_LIT("s3:x:node="), on_rows, &g);
	run_until(is_true, &g.done);
	assert_int_equal(g.n, 2344);
	assert_memory_equal(g.text, "s3:x:node=1=1;s3:x:node=10=10;s3:", 33);
	g = (struct got){ .done = false };
	cell_list(cell, &tenant, SPAN_LIT("s3:none"), on_rows, &g);
	run_until(is_true, &g.done);
	assert_int_equal(g.n, 0);
	pgserver_run(sql, "delete from queen.kv");
}

/* ---- lists ---- */

static void
on_queues(void *arg, const struct span *names, size_t n, const struct err *e)
{
	struct got *g = arg;

	g->done = true;
	assert_null(e);
	assert_int_equal(n, 2);
	assert_true(span_is(names[0], "a") && span_is(names[1], "b"));
}

static void
on_sinks(void *arg, const struct cell_sink *rows, size_t n, const struct err *e)
{
	struct got *g = arg;

	g->done = true;
	assert_null(e);
	assert_int_equal(n, 1);
	assert_memory_equal(&rows[0].tenant, &tenant, sizeof(tenant));
	assert_true(span_is(rows[0].cluster, "acme") && rows[0].enabled);
	assert_true(span_is(rows[0].config, "{\"bucket\": \"b\"}"));
	assert_true(span_is(rows[0].secret, "sealed"));
	assert_int_equal(rows[0].updated_us, INT64_C(1767225600000001));
}

static void
test_queues_and_sinks_are_listed(void **state)
{
	struct got g = { .done = false };

	(void)state;
	pgserver_run(sql, "select * from queen.queue_resolve_v1('" TENANT
			  "', '{b,a}', true)");
	pgserver_run(sql, "select queen.lake_sink_put_v1('" TENANT
			  "', 'acme', true, '{\"bucket\":\"b\"}', 'sealed', "
			  "'2026-01-01 00:00:00.000001Z')");
	cell_queues(cell, &tenant, on_queues, &g);
	run_until(is_true, &g.done);
	g.done = false;
	cell_sinks(cell, on_sinks, &g);
	run_until(is_true, &g.done);
	pgserver_run(sql, "delete from queen.kv; delete from queen.queues");
}

/* ---- records ---- */

/* A partition of queue q, by its name. */
static int64_t
part(const char *name)
{
	pgserver_run(sql, "select * from queen.queue_resolve_v1('" TENANT
			  "', '{q}', true)");
	return atoll(
		value_of("select id from queen.partitions_ensure_v1('" TENANT
			 "', (select array[id] from queen.queues), "
			 "'{%s}')",
			name));
}

/*
 * Messages m<from>..m<to> with the payload of their number, the one with 0
 * without; an hour ago.
 */
static void
segment(int64_t to_part, int from, int to, const struct seal *seal,
	const char *damage)
{
	struct buf frames = BUF_ZERO, blob = BUF_ZERO, hex = BUF_ZERO,
		   box = BUF_ZERO;

	for (int i = from; i <= to; i++) {
		char txn[16], payload[16];
		struct frame f = { .id = qid_new() };

		snprintf(txn, sizeof(txn), "m%d", i);
		snprintf(payload, sizeof(payload), "%d", i);
		f.txn = span_of(txn);
		f.payload = span_of(i ? payload : "");
		if (seal) {
			buf_reset(&box);
			seal_box(seal, &f.id, f.payload, &box);
			f.payload = buf_span(&box);
			f.flags |= FRAME_SEALED;
		}
		frame_write(&frames, &f);
	}
	if (damage)
		buf_puts(&blob, damage);
	else
		seg_pack(buf_span(&frames), &blob);
	for (size_t i = 0; i < blob.len; i++)
		buf_printf(&hex, "%02x", (unsigned char)blob.p[i]);
	buf_putc(&hex, '\0');
	{
		struct buf q = BUF_ZERO;

		buf_printf(&q,
			"insert into queen.segments values (%lld, %d, "
			"%d, now() - interval '1 h' + %d * interval "
			"'1 s', %d, ",
			(long long)to_part, from, to, from, (int)frames.len);
		if (seal)
			buf_printf(&q, "%d, ", seal_key_id(seal));
		else
			buf_puts(&q, "null, ");
		buf_printf(&q,
			"decode('%s', 'hex')); update "
			"queen.partition_heads set last_write_at = "
			"now() - interval '1 h' where id = %lld",
			hex.p, (long long)to_part);
		buf_putc(&q, '\0');
		pgserver_run(sql, q.p);
		buf_fini(&q);
	}
	buf_fini(&frames);
	buf_fini(&blob);
	buf_fini(&hex);
	buf_fini(&box);
}

static int
clean(void **state)
{
	(void)state;
	pgserver_run(sql, "delete from queen.segments; delete from "
			  "queen.partition_heads; delete from "
			  "queen.partitions; delete from queen.queues");
	return 0;
}

static struct engine *
engine(void)
{
	const struct engine_conf c = { .target_bytes = 1 << 30,
		.max_window_us = 100000,
		.align = S3_UNALIGNED,
		.start = S3_EARLIEST,
		.fetch_concurrency = 4 };
	const struct engine_restore r = { .committed_k = 0 };

	return engine_new(&c, &r);
}

struct turn {
	bool done;
	struct err err;
};

static void
on_step(void *arg, const struct err *e)
{
	struct turn *t = arg;

	assert_false(t->done);
	t->done = true;
	t->err = e ? *e : (struct err)ERR_ZERO;
}

static struct turn
run_step(struct engine *e, const struct engine_step *s)
{
	struct turn t = { .done = false };

	cell_step(cell, &tenant, "q", e, s, on_step, &t);
	assert_false(t.done);
	run_until(is_true, &t.done);
	return t;
}

/* Does what the engine wants until it wants something else than the cell. */
static enum engine_what
run_engine(struct engine *e, int idles)
{
	struct engine_step s;

	for (int i = 0; i < 1000; i++) {
		engine_next(e, &s);
		if (s.what == ENGINE_DISCOVER || s.what == ENGINE_SEEK ||
			s.what == ENGINE_FETCH)
			assert_int_equal(run_step(e, &s).err.kind, ERR_NONE);
		else if (s.what == ENGINE_IDLE && idles-- > 0)
			engine_woken(e);
		else if (s.what != ENGINE_BUSY)
			return s.what;
	}
	fail_msg("the engine goes on for ever");
	return ENGINE_WAIT;
}

/* The window that closes, as `partition/offset/id/payload `. */
static const char *
plan(struct engine *e)
{
	static char text[1024];
	size_t used = 0;
	struct record r;

	while (!engine_plan_ready(e))
		;
	engine_plan_rewind(e);
	text[0] = '\0';
	while (engine_plan_next(e, &r) && used < sizeof(text))
		used += (size_t)snprintf(text + used, sizeof(text) - used,
			"%.*s/%d/%.*s/%.*s%s ", SPAN_ARG(r.partition),
			(int)r.offset, SPAN_ARG(r.txn), SPAN_ARG(r.payload),
			r.null ? "null" : "");
	return text;
}

static void
test_an_engine_reads_what_is_there(void **state)
{
	struct engine *e = engine();
	int64_t a = part("a"), b = part("b");

	(void)state;
	part("empty");
	segment(b, 0, 1, NULL, NULL);
	segment(a, 0, 2, ours, NULL);
	segment(a, 3, 3, NULL, NULL);
	assert_int_equal(run_engine(e, 5), ENGINE_CLOSE);
	assert_string_equal(plan(e), "a/0/m0/null a/1/m1/1 a/2/m2/2 a/3/m3/3 "
				     "b/0/m0/null b/1/m1/1 ");
	engine_free(e);
}

static void
test_reading_starts_inside_a_segment(void **state)
{
	struct engine *e = engine();
	int64_t a = part("a");

	(void)state;
	segment(a, 0, 5, NULL, NULL);
	pgserver_run(sql, "update queen.partition_heads set log_start = 4");
	assert_int_equal(run_engine(e, 5), ENGINE_CLOSE);
	assert_string_equal(plan(e), "a/4/m4/4 a/5/m5/5 ");
	engine_free(e);
}

static void
test_seeks_are_answered_by_the_cell(void **state)
{
	const struct engine_conf c = { .target_bytes = 1 << 30,
		.max_window_us = 100000,
		.align = S3_UNALIGNED,
		.start = S3_TIMESTAMP,
		.start_us = clk_wall_us() - INT64_C(3597500000),
		.fetch_concurrency = 4 };
	const struct engine_restore r = { .committed_k = 0 };
	struct engine *e = engine_new(&c, &r);
	int64_t a = part("a");

	(void)state;
	for (int i = 0; i < 8; i++)
		segment(a, i, i, NULL, NULL);
	pgserver_run(sql, "update queen.partition_heads set last_write_at = "
			  "now()");
	assert_int_equal(run_engine(e, 5), ENGINE_CLOSE);
	assert_string_equal(plan(e), "a/3/m3/3 a/4/m4/4 a/5/m5/5 a/6/m6/6 "
				     "a/7/m7/7 ");
	engine_free(e);
}

static void
test_a_frame_that_does_not_open_blocks_its_partition(void **state)
{
	struct engine_stats s;
	struct engine *e = engine();
	int64_t a = part("a"), b = part("b");

	(void)state;
	segment(a, 0, 1, ours, NULL);
	segment(a, 2, 3, theirs, NULL);
	segment(a, 4, 4, NULL, NULL);
	segment(b, 0, 1, NULL, NULL);
	run_engine(e, 5);
	engine_stats(e, &s);
	assert_int_equal(s.blocked_part, a);
	assert_int_equal(s.blocked_offset, 2);
	assert_int_equal(s.blocked_key_id, seal_key_id(theirs));
	/* what comes before it ships */
	assert_string_equal(plan(e), "a/0/m0/null a/1/m1/1 b/0/m0/null "
				     "b/1/m1/1 ");
	engine_free(e);

	clean(NULL);
	e = engine();
	a = part("a");
	segment(a, 0, 1, NULL, "\x01");
	run_engine(e, 5);
	engine_stats(e, &s);
	assert_int_equal(s.blocked_part, a);
	assert_int_equal(s.blocked_offset, 0);
	assert_int_equal(s.blocked_key_id, -1);
	engine_free(e);
}

static void
test_what_is_gone_is_told(void **state)
{
	struct engine *e = engine();
	struct engine_step s;
	int64_t a = part("a"), from = -1, to = -1;
	struct span name;
	size_t at = 0;

	(void)state;
	segment(a, 0, 4, NULL, NULL);
	segment(part("b"), 0, 1, NULL, NULL);
	engine_next(e, &s);
	assert_int_equal(s.what, ENGINE_DISCOVER);
	assert_int_equal(run_step(e, &s).err.kind, ERR_NONE);
	value_of("with h as (delete from queen.partition_heads where id = "
		 "%lld) delete from queen.partitions where id = %lld",
		(long long)a, (long long)a);
	assert_int_equal(run_engine(e, 5), ENGINE_CLOSE);
	assert_string_equal(plan(e), "b/0/m0/null b/1/m1/1 ");
	assert_true(engine_lost_next(e, &at, &name, &from, &to));
	assert_true(span_is(name, "a") && from == 0 && to == 4);
	engine_free(e);

	clean(NULL);
	e = engine();
	assert_int_equal(run_engine(e, 5), ENGINE_MISSING);
	engine_free(e);
}

static void
test_a_step_that_fails_is_done_again(void **state)
{
	struct engine *e = engine();
	struct engine_step s;
	struct turn t;

	(void)state;
	segment(part("a"), 0, 0, NULL, NULL);
	pgserver_run(sql, "alter function queen.changed_parts_v1 rename to x");
	engine_next(e, &s);
	t = run_step(e, &s);
	pgserver_run(sql, "alter function queen.x rename to changed_parts_v1");
	assert_int_equal(t.err.kind, ERR_BUG);
	assert_string_equal(t.err.sqlstate, "42883");
	assert_int_equal(run_engine(e, 5), ENGINE_CLOSE);
	assert_string_equal(plan(e), "a/0/m0/null ");
	engine_free(e);
}

/* ---- cancelling ---- */

static bool
is_quiet(void *arg)
{
	(void)arg;
	return LIST_EMPTY(&cell->calls);
}

static bool
is_slicing(void *arg)
{
	return ((struct cell_call *)arg)->at == CELL_SLICING;
}

static void
test_what_is_cancelled_tells_nobody(void **state)
{
	enum { N = 3 * CELL_FETCHES };
	struct engine *e = engine();
	const int64_t parts[] = { part("a") }, offsets[] = { 0 };
	struct engine_step s = { .what = ENGINE_FETCH,
		.call = 7,
		.n = 1,
		.part = parts,
		.offset = offsets,
		.entry_bytes = 1000 };
	struct turn t = { .done = false };
	struct cell_call *k[N];

	(void)state;
	segment(parts[0], 0, 9, NULL, NULL);
	for (int i = 0; i < N; i++)
		k[i] = cell_step(cell, &tenant, "q", e, &s, on_step, &t);
	/* no more are in hand than may be */
	assert_int_equal(cell->fetches, CELL_FETCHES);
	assert_int_equal(k[N - 1]->at, CELL_QUEUED);
	for (int i = N; i-- > 0;)
		cell_cancel(k[i]);
	run_until(is_quiet, NULL);
	assert_int_equal(cell->fetches, 0);

	s.what = ENGINE_DISCOVER;
	cell_cancel(cell_step(cell, &tenant, "q", e, &s, on_step, &t));
	cell_cancel(NULL);
	run_until(is_quiet, NULL);
	assert_false(t.done);
	engine_free(e);
}

/* A large answer goes in slices, and may be cancelled between two of them. */
static void
test_a_fetch_is_cancelled_while_it_is_decoded(void **state)
{
	struct engine *e = engine();
	struct engine_window w;
	struct engine_step s;
	struct turn t = { .done = false };
	struct cell_call *k;
	int64_t a = part("a");

	(void)state;
	segment(a, 0, 999, NULL, NULL);
	for (char name[] = "b"; *name <= 'h'; ++*name)
		segment(part(name), 0, 0, NULL, NULL);
	pgserver_run(sql, "insert into queen.segments select p.id, i * 1000, "
			  "i * 1000 + 999, s.created_at, s.raw_bytes, null, "
			  "s.blob from queen.segments s, queen.partitions p, "
			  "generate_series(0, 9) i where s.end_offset = 999 "
			  "on conflict (partition_id, base_offset) do update "
			  "set end_offset = 999, blob = excluded.blob");
	engine_next(e, &s);
	assert_int_equal(run_step(e, &s).err.kind, ERR_NONE);
	engine_next(e, &s);
	assert_int_equal(s.what, ENGINE_FETCH);
	k = cell_step(cell, &tenant, "q", e, &s, on_step, &t);
	run_until(is_slicing, k);
	cell_cancel(k);
	assert_true(is_quiet(NULL));
	assert_int_equal(cell->fetches, 0);
	engine_on_failed(e, s.call);
	/* what was told of it by then counts once */
	assert_int_equal(run_engine(e, 5), ENGINE_CLOSE);
	while (!engine_plan_ready(e))
		;
	engine_window(e, &w);
	assert_int_equal(w.records, 80000);
	assert_false(t.done);
	engine_free(e);
}

/* Those that wait behind a cancelled one still get their turn. */
static void
test_fetches_wait_for_their_turn(void **state)
{
	enum { N = 2 * CELL_FETCHES };
	struct engine *e[N];
	struct engine_step s;
	struct turn t[N];
	struct cell_call *first = NULL, *k;

	(void)state;
	segment(part("a"), 0, 9, NULL, NULL);
	for (int i = 0; i < N; i++) {
		e[i] = engine();
		engine_next(e[i], &s);
		assert_int_equal(run_step(e[i], &s).err.kind, ERR_NONE);
		t[i].done = false;
	}
	for (int i = 0; i < N; i++) {
		engine_next(e[i], &s);
		assert_int_equal(s.what, ENGINE_FETCH);
		k = cell_step(cell, &tenant, "q", e[i], &s, on_step, &t[i]);
		first = first ? first : k;
	}
	cell_cancel(first);
	for (int i = 1; i < N; i++)
		run_until(is_true, &t[i].done);
	assert_false(t[0].done);
	assert_int_equal(cell->fetches, 0);
	for (int i = 1; i < N; i++)
		assert_int_equal(run_engine(e[i], 5), ENGINE_CLOSE);
	for (int i = 0; i < N; i++)
		engine_free(e[i]);
}

/* What is out when the cell ends is dropped. */
static void
test_a_cell_may_end_with_calls_out(void **state)
{
	struct cell_conf c = { .conninfo = server.conninfo, .seal = ours };
	struct cell *other = cell_new(loop, &c);
	struct got g = { .done = false };

	(void)state;
	cell_get(other, &tenant, SPAN_LIT("s3:x"), on_row, &g);
	cell_free(other);
	get("s3:x");
	assert_false(g.done);
}

static int
start(void **state)
{
	struct cell_conf c;
	struct err e = ERR_ZERO;

	if (cell_start(state) != 0)
		return -1;
	assert_int_equal(seal_new(KEY_A, NULL, &ours, &e), 0);
	assert_int_equal(seal_new(KEY_B, NULL, &theirs, &e), 0);
	c = (struct cell_conf){ .conninfo = server.conninfo,
		.seal = ours,
		.guard_ms = 500,
		.floor_ms = 30000 };
	cell = cell_new(loop, &c);
	return 0;
}

static int
stop(void **state)
{
	cell_free(cell);
	seal_free(ours);
	seal_free(theirs);
	return cell_stop(state);
}

#define T(fn) cmocka_unit_test_setup(fn, clean)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_rows_are_put_read_and_removed),
		T(test_a_prefix_is_listed_over_its_pages),
		T(test_queues_and_sinks_are_listed),
		T(test_an_engine_reads_what_is_there),
		T(test_reading_starts_inside_a_segment),
		T(test_seeks_are_answered_by_the_cell),
		T(test_a_frame_that_does_not_open_blocks_its_partition),
		T(test_what_is_gone_is_told),
		T(test_a_step_that_fails_is_done_again),
		T(test_what_is_cancelled_tells_nobody),
		T(test_a_fetch_is_cancelled_while_it_is_decoded),
		T(test_fetches_wait_for_their_turn),
		T(test_a_cell_may_end_with_calls_out),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
