/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key/value calls of the tools: one statement each, and the row it answers.
 * Reasons of a lost write are dropped: version and value say what is there.
 */
#include "cellkv.h"

#include <stdio.h>
#include <stdlib.h>

#include "err.h"
#include "pgbin.h"
#include "pgconn.h"

/* Operations of kv_one_v1. */
enum { OP_GET = 0, OP_PUT = 3, OP_DELETE = 4 };
enum { COL_VERDICT, COL_VERSION, COL_VALUE };

static const struct pgstmt STMT_ONE = { "cellkv_one",
	"select verdict, version, value from queen.kv_one_v1($1, $2, $3, $4, "
	"$5, $6, $7, false, null, null, null)" };
static const struct pgstmt STMT_SETTLE = { "cellkv_settle",
	"select verdict, version, value from queen.kv_settle_v1($1, $2, $3)" };

/* One call in flight. */
struct waiting {
	cellkv_fn fn;
	void *arg;
	bool removes; /* what it answers with is there no more */
};

static void
on_result(void *arg, const PGresult *res, const struct err *err)
{
	struct waiting w = *(struct waiting *)arg;
	struct cellkv_row row = { .version = 0 };

	free(arg);
	if (err) {
		w.fn(w.arg, NULL, err);
		return;
	}
	BUG(PQntuples(res) != 1);
	row.applied = pgbin_i32(res, 0, COL_VERDICT) == 0;
	if (!pgbin_null(res, 0, COL_VERSION) && !(row.applied && w.removes))
		row.version = pgbin_i64(res, 0, COL_VERSION);
	if (row.version && !pgbin_null(res, 0, COL_VALUE))
		row.value = pgbin_bytes(res, 0, COL_VALUE);
	w.fn(w.arg, &row, NULL);
}

static void
call(struct pgconn *c, const struct pgstmt *s, struct pgargs *a, bool removes,
	cellkv_fn fn, void *arg)
{
	struct waiting *w = malloc(sizeof(*w));

	if (!w) {
		fprintf(stderr, "out of memory: a key/value call\n");
		abort();
	}
	*w = (struct waiting){ .fn = fn, .arg = arg, .removes = removes };
	pgconn_call(c, s, false, a, on_result, w);
	pgargs_fini(a);
}

/* Everything in front of value, expect and lifetime. */
static void
begin_args(struct pgargs *a, int op, const struct cellkv_key *k)
{
	pgargs_init(a);
	pgargs_uuid(a, k->tenant);
	pgargs_i32(a, op);
	pgargs_text(a, span_of(k->ns));
	pgargs_text(a, k->key);
}

static void
put_expect(struct pgargs *a, int64_t expect)
{
	if (expect == CELLKV_ANY)
		pgargs_null(a);
	else
		pgargs_i64(a, expect);
}

void
cellkv_get(
	struct pgconn *c, const struct cellkv_key *k, cellkv_fn fn, void *arg)
{
	struct pgargs a;

	begin_args(&a, OP_GET, k);
	pgargs_null(&a);
	pgargs_null(&a);
	pgargs_null(&a);
	call(c, &STMT_ONE, &a, false, fn, arg);
}

void
cellkv_put(struct pgconn *c, const struct cellkv_key *k, struct span value,
	int64_t expect, int64_t ttl_s, cellkv_fn fn, void *arg)
{
	struct pgargs a;

	begin_args(&a, OP_PUT, k);
	pgargs_text(&a, value);
	put_expect(&a, expect);
	if (ttl_s == CELLKV_FOREVER)
		pgargs_null(&a);
	else
		pgargs_i64(&a, ttl_s);
	call(c, &STMT_ONE, &a, false, fn, arg);
}

void
cellkv_delete(struct pgconn *c, const struct cellkv_key *k, int64_t expect,
	cellkv_fn fn, void *arg)
{
	struct pgargs a;

	begin_args(&a, OP_DELETE, k);
	pgargs_null(&a);
	put_expect(&a, expect);
	pgargs_null(&a);
	call(c, &STMT_ONE, &a, true, fn, arg);
}

void
cellkv_settle(
	struct pgconn *c, const struct cellkv_key *k, cellkv_fn fn, void *arg)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, k->tenant);
	pgargs_text(&a, span_of(k->ns));
	pgargs_text(&a, k->key);
	call(c, &STMT_SETTLE, &a, false, fn, arg);
}
