/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of namespace queen-s3, the fence, lists. */
#include "cell_int.h"

#include "err.h"
#include "key.h"

/* Operations of kv_one_v1. */
enum { OP_PUT = 3, OP_DELETE = 4 };
/* Verdicts of lake_fence_v1. */
enum { WRITTEN, LEASE_LOST, POINTER_LOST, WAS_WRITTEN, LEASE_MOVED };

static const struct pgstmt STMT_ROWS = { "s3_rows",
	"select version, value from queen.lake_rows_v1($1, $2)" };
static const struct pgstmt STMT_LIST = { "s3_list",
	"select row_no, verdict, key, version, value from queen.kv_list_v1($1, "
	"'" KEY_NAMESPACE "', $2, $3, $4, false, false, null)" };
static const struct pgstmt STMT_ONE = { "s3_one",
	"select verdict, version, value from queen.kv_one_v1($1, $2, "
	"'" KEY_NAMESPACE "', $3, $4, $5, $6, false, null, null, null)" };
static const struct pgstmt STMT_FENCE = { "s3_fence",
	"select verdict, lease_version, version from queen.lake_fence_v1($1, "
	"$2, $3, $4, $5, $6, $7, $8, $9)" };
static const struct pgstmt STMT_QUEUES = { "s3_queues",
	"select name from queen.lake_queues_v1($1)" };
static const struct pgstmt STMT_SINKS = { "s3_sinks",
	"select tenant, cluster, enabled, config, secret, updated_at "
	"from queen.lake_sinks_v1()" };

/* A null is empty. */
static struct span
text(const PGresult *res, int row, int col)
{
	if (pgbin_null(res, row, col))
		return (struct span)SPAN_ZERO;
	return pgbin_bytes(res, row, col);
}

/* Ours are all under s3:, whatever a caller made. */
static void
put_key(struct pgargs *a, struct span key)
{
	BUG(key.n < 4 || memcmp(key.p, "s3:", 3) != 0);
	pgargs_text(a, key);
}

/* ---- one row ---- */

static void
on_row(struct cell_call *k, const PGresult *res, const struct err *e)
{
	enum { VERDICT, VERSION, VALUE };
	struct cell_row r = { .version = 0 };
	cell_row_fn fn = k->fn.row;
	void *arg = k->arg;
	bool removes = k->removes;

	cell_call_end(k);
	if (e) {
		fn(arg, NULL, e);
		return;
	}
	BUG(PQntuples(res) != 1);
	r.found = pgbin_i32(res, 0, VERDICT) == 0;
	if (!pgbin_null(res, 0, VERSION) && !(r.found && removes))
		r.version = pgbin_i64(res, 0, VERSION);
	if (r.version)
		r.value = text(res, 0, VALUE);
	fn(arg, &r, NULL);
}

/* Everything in front of value, expect and lifetime. */
static void
begin_one(
	struct pgargs *a, const struct qid *tenant, int32_t op, struct span key)
{
	pgargs_init(a);
	pgargs_uuid(a, tenant);
	pgargs_i32(a, op);
	put_key(a, key);
}

static void
put_expect(struct pgargs *a, int64_t expect)
{
	if (expect == CELL_ANY)
		pgargs_null(a);
	else
		pgargs_i64(a, expect);
}

struct cell_call *
cell_put(struct cell *c, const struct qid *tenant, struct span key,
	struct span value, int64_t expect, int64_t ttl_s, cell_row_fn fn,
	void *arg)
{
	struct cell_call *k = cell_call_new(c, tenant, arg);
	struct pgargs a;

	k->fn.row = fn;
	begin_one(&a, tenant, OP_PUT, key);
	pgargs_text(&a, value);
	put_expect(&a, expect);
	if (ttl_s)
		pgargs_i64(&a, ttl_s);
	else
		pgargs_null(&a);
	cell_send(k, CELL_KV, &STMT_ONE, &a, on_row);
	return k;
}

struct cell_call *
cell_delete(struct cell *c, const struct qid *tenant, struct span key,
	int64_t expect, cell_row_fn fn, void *arg)
{
	struct cell_call *k = cell_call_new(c, tenant, arg);
	struct pgargs a;

	k->fn.row = fn;
	k->removes = true;
	begin_one(&a, tenant, OP_DELETE, key);
	pgargs_null(&a);
	put_expect(&a, expect);
	pgargs_null(&a);
	cell_send(k, CELL_KV, &STMT_ONE, &a, on_row);
	return k;
}

/* ---- several ---- */

static struct cell_row
row_of(const PGresult *res, int row)
{
	enum { VERSION, VALUE };
	struct cell_row r = { .version = pgbin_i64(res, row, VERSION) };

	r.found = r.version != 0;
	r.value = text(res, row, VALUE);
	return r;
}

static void
on_get(struct cell_call *k, const PGresult *res, const struct err *e)
{
	struct cell_row r = { .version = 0 };
	cell_row_fn fn = k->fn.row;
	void *arg = k->arg;

	cell_call_end(k);
	if (!e)
		r = row_of(res, 0);
	fn(arg, e ? NULL : &r, e);
}

static void
send_rows(struct cell_call *k, const struct span *keys, size_t n, cell_on_fn on)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &k->tenant);
	pgargs_array(&a, PGARGS_TEXT);
	for (size_t i = 0; i < n; i++)
		pgargs_item_text(&a, keys[i]);
	pgargs_close(&a);
	cell_send(k, CELL_KV, &STMT_ROWS, &a, on);
}

struct cell_call *
cell_get(struct cell *c, const struct qid *tenant, struct span key,
	cell_row_fn fn, void *arg)
{
	struct cell_call *k = cell_call_new(c, tenant, arg);

	k->fn.row = fn;
	send_rows(k, &key, 1, on_get);
	return k;
}

/* Out of the books, with what it gathered still there. */
static void
tell_rows(struct cell_call *k, const struct cell_row *rows, size_t n,
	const struct err *e)
{
	struct arena keep = k->arena;
	cell_rows_fn fn = k->fn.rows;
	void *arg = k->arg;

	k->arena = (struct arena)ARENA_ZERO;
	cell_call_end(k);
	fn(arg, rows, n, e);
	arena_fini(&keep);
}

static void
on_get_many(struct cell_call *k, const PGresult *res, const struct err *e)
{
	struct cell_row *rows;
	int n;

	if (e) {
		tell_rows(k, NULL, 0, e);
		return;
	}
	n = PQntuples(res);
	rows = arena_alloc(&k->arena, (size_t)n * sizeof(*rows));
	for (int i = 0; i < n; i++)
		rows[i] = row_of(res, i);
	tell_rows(k, rows, (size_t)n, NULL);
}

struct cell_call *
cell_get_many(struct cell *c, const struct qid *tenant, const struct span *keys,
	size_t n, cell_rows_fn fn, void *arg)
{
	struct cell_call *k = cell_call_new(c, tenant, arg);

	k->fn.rows = fn;
	send_rows(k, keys, n, on_get_many);
	return k;
}

/* ---- a prefix, in pages ---- */

static void send_page(struct cell_call *k, struct span after);

static void
on_page(struct cell_call *k, const PGresult *res, const struct err *e)
{
	enum { ROW_NO, VERDICT, KEY, VERSION, VALUE };
	int last = e ? -1 : PQntuples(res) - 1;

	if (e) {
		tell_rows(k, NULL, 0, e);
		return;
	}
	/* the last row is about the page */
	for (int i = 0; i < last; i++) {
		k->found = arena_grown(&k->arena, k->found, k->found_n,
			&k->found_cap, sizeof(*k->found));
		k->found[k->found_n++] = (struct cell_row){
			.key = arena_dup(&k->arena, text(res, i, KEY)),
			.found = true,
			.version = pgbin_i64(res, i, VERSION),
			.value = arena_dup(&k->arena, text(res, i, VALUE)),
		};
	}
	if (pgbin_i32(res, last, VERDICT) == 1)
		send_page(k, text(res, last, KEY));
	else
		tell_rows(k, k->found, k->found_n, NULL);
}

static void
send_page(struct cell_call *k, struct span after)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &k->tenant);
	put_key(&a, k->prefix);
	pgargs_text(&a, after);
	pgargs_i32(&a, CELL_PAGE);
	cell_send(k, CELL_KV, &STMT_LIST, &a, on_page);
}

struct cell_call *
cell_list(struct cell *c, const struct qid *tenant, struct span prefix,
	cell_rows_fn fn, void *arg)
{
	struct cell_call *k = cell_call_new(c, tenant, arg);

	k->fn.rows = fn;
	k->prefix = arena_dup(&k->arena, prefix);
	send_page(k, SPAN_LIT(""));
	return k;
}

/* ---- the fence ---- */

static void
on_fence(struct cell_call *k, const PGresult *res, const struct err *e)
{
	enum { VERDICT, LEASE, POINTER };
	static const enum cell_fenced told[] = {
		[WRITTEN] = CELL_APPLIED,
		[LEASE_LOST] = CELL_LEASE_LOST,
		[POINTER_LOST] = CELL_POINTER_LOST,
		[WAS_WRITTEN] = CELL_APPLIED,
		[LEASE_MOVED] = CELL_LEASE_MOVED,
	};
	cell_fence_fn fn = k->fn.fence;
	void *arg = k->arg;
	int32_t v;

	cell_call_end(k);
	if (e) {
		fn(arg, CELL_LEASE_LOST, 0, 0, e);
		return;
	}
	v = pgbin_i32(res, 0, VERDICT);
	BUG(v < WRITTEN || v > LEASE_MOVED);
	fn(arg, told[v], pgbin_i64(res, 0, LEASE), pgbin_i64(res, 0, POINTER),
		NULL);
}

struct cell_call *
cell_fence(struct cell *c, const struct qid *tenant, const struct cell_fence *f,
	cell_fence_fn fn, void *arg)
{
	struct cell_call *k = cell_call_new(c, tenant, arg);
	struct pgargs a;

	k->fn.fence = fn;
	pgargs_init(&a);
	pgargs_uuid(&a, tenant);
	put_key(&a, f->lease_key);
	pgargs_text(&a, f->lease_value);
	pgargs_i64(&a, f->lease_expect);
	pgargs_i64(&a, f->lease_ttl_s);
	put_key(&a, f->key);
	pgargs_text(&a, f->value);
	pgargs_i64(&a, f->expect);
	if (f->drop.n)
		put_key(&a, f->drop);
	else
		pgargs_null(&a);
	cell_send(k, CELL_KV, &STMT_FENCE, &a, on_fence);
	return k;
}

/* ---- queues and sinks ---- */

static void
on_queues(struct cell_call *k, const PGresult *res, const struct err *e)
{
	struct arena keep = k->arena;
	cell_queues_fn fn = k->fn.queues;
	void *arg = k->arg;
	int n = e ? 0 : PQntuples(res);
	struct span *names =
		arena_alloc(&keep, ((size_t)n + 1) * sizeof(*names));

	k->arena = (struct arena)ARENA_ZERO;
	cell_call_end(k);
	for (int i = 0; i < n; i++)
		names[i] = text(res, i, 0);
	fn(arg, e ? NULL : names, (size_t)n, e);
	arena_fini(&keep);
}

struct cell_call *
cell_queues(
	struct cell *c, const struct qid *tenant, cell_queues_fn fn, void *arg)
{
	struct cell_call *k = cell_call_new(c, tenant, arg);
	struct pgargs a;

	k->fn.queues = fn;
	pgargs_init(&a);
	pgargs_uuid(&a, tenant);
	cell_send(k, CELL_READ, &STMT_QUEUES, &a, on_queues);
	return k;
}

static struct cell_sink
sink_of(const PGresult *res, int row)
{
	enum { TENANT, CLUSTER, ENABLED, CONFIG, SECRET, UPDATED };

	return (struct cell_sink){
		.tenant = pgbin_uuid(res, row, TENANT),
		.cluster = text(res, row, CLUSTER),
		.enabled = !pgbin_null(res, row, ENABLED) &&
			   pgbin_bool(res, row, ENABLED),
		.config = text(res, row, CONFIG),
		.secret = text(res, row, SECRET),
		.updated_us = pgbin_time(res, row, UPDATED),
	};
}

static void
on_sinks(struct cell_call *k, const PGresult *res, const struct err *e)
{
	struct arena keep = k->arena;
	cell_sinks_fn fn = k->fn.sinks;
	void *arg = k->arg;
	int n = e ? 0 : PQntuples(res);
	struct cell_sink *rows =
		arena_alloc(&keep, ((size_t)n + 1) * sizeof(*rows));

	k->arena = (struct arena)ARENA_ZERO;
	cell_call_end(k);
	for (int i = 0; i < n; i++)
		rows[i] = sink_of(res, i);
	fn(arg, e ? NULL : rows, (size_t)n, e);
	arena_fini(&keep);
}

struct cell_call *
cell_sinks(struct cell *c, cell_sinks_fn fn, void *arg)
{
	struct cell_call *k = cell_call_new(c, NULL, arg);
	struct pgargs a;

	k->fn.sinks = fn;
	pgargs_init(&a);
	cell_send(k, CELL_READ, &STMT_SINKS, &a, on_sinks);
	return k;
}
