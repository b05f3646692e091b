/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call is one statement and one commit; with a `required` operation it is a
 * bundle, rolled back when that one is lost.
 */
#include "kv_batch.h"

#include "arena.h"
#include "ctx.h"
#include "fault.h"
#include "hsrv.h"
#include "jwrite.h"
#include "kv_call.h"
#include "kv_ops.h"
#include "kv_reply.h"
#include "kvlimit.h"
#include "pgbin.h"
#include "pgpool.h"

/* clang-format off */
static const struct pgstmt STMT_APPLY = { "kv_apply",
	"select ord, row_no, verdict, reason, key, value, version, expires_at,"
	" updated_at from queen.kv_apply_v1($1, $2, $3, $4, $5, $6, $7, $8, $9,"
	" $10, $11, $12, $13, $14, $15, $16, $17, $18)" };
static const struct pgstmt STMT_ONE = { "kv_one",
	"select ord, row_no, verdict, reason, key, value, version, expires_at,"
	" updated_at from queen.kv_one_v1($1, $2, $3, $4, $5, $6, $7, $8, $9,"
	" $10, $11)" };
/* clang-format on */
static const struct kv_cols COLS = { 0, 1, 2, 3, 4, 5, 6, 7, 8 };

struct batch {
	struct kv_call call;
	struct kv_ops ops;
	bool bare; /* a path route: the element alone */
	bool lost; /* a required operation */
	bool misaligned;
};

/* ---- answers ---- */

static void
count_ops(const struct batch *b, const PGresult *res)
{
	for (size_t i = 0; i < b->ops.n; i++) {
		const struct kv_op *op = &b->ops.v[i];
		enum kvlimit_result how =
			!res ? KVLIMIT_ERROR
			: b->lost || (op->kind >= KV_PUT &&
					     pgbin_i32(res, op->row,
						     COLS.verdict) != 0)
				? KVLIMIT_REJECTED
				: KVLIMIT_APPLIED;

		kvlimit_count(
			ctx_of(b->call.r), (enum kvlimit_op)op->kind, how);
	}
}

static void
reply_lost(struct batch *b, const PGresult *res, int row)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(b->call.r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "ok", false);
	jwrite_kv_cstr(&w, "reason", "kv_precondition");
	kv_ops_write_lost(&w, &b->ops, (int64_t)kv_ops_of_row(res, &COLS, row),
		res, &COLS, row);
	jwrite_end(&w);
	hsrv_reply(b->call.r, 200);
}

static void
write_element(
	struct jwrite *w, const struct batch *b, size_t i, const PGresult *res)
{
	jwrite_object(w);
	jwrite_kv_i64(w, "index", (int64_t)i);
	kv_ops_write(w, &b->ops, i, res, &COLS);
	jwrite_end(w);
}

static void
reply_results(struct batch *b, const PGresult *res)
{
	const struct kv_op *op = &b->ops.v[0];
	struct jwrite w;

	jwrite_init(&w, hsrv_out(b->call.r));
	if (b->bare) {
		if (op->kind == KV_GET &&
			!pgbin_null(res, op->row, COLS.version))
			hsrv_add_header(b->call.r, "ETag",
				arena_cstr(hsrv_arena(b->call.r),
					arena_printf(hsrv_arena(b->call.r),
						"\"%lld\"",
						(long long)pgbin_i64(res,
							op->row,
							COLS.version))));
		write_element(&w, b, 0, res);
	} else {
		jwrite_object(&w);
		jwrite_key(&w, "results");
		jwrite_array(&w);
		for (size_t i = 0; i < b->ops.n; i++)
			write_element(&w, b, i, res);
		jwrite_end(&w);
		jwrite_end(&w);
	}
	hsrv_reply(b->call.r, 200);
}

/* ---- the call ---- */

static bool
index_rows(struct kv_call *c, const PGresult *res)
{
	struct batch *b = (struct batch *)c;

	b->lost = kv_ops_lost(res, &COLS, 0, PQntuples(res)) >= 0;
	b->misaligned = !b->lost &&
			!kv_ops_index(&b->ops, res, &COLS, 0, PQntuples(res));
	return !b->lost && !b->misaligned;
}

static void
on_failed(struct kv_call *c)
{
	count_ops((struct batch *)c, NULL);
}

static void
on_answer(struct kv_call *c, const PGresult *res)
{
	struct batch *b = (struct batch *)c;

	/* a bundle has been looked at before its end */
	if (!b->ops.required)
		index_rows(c, res);
	if (b->lost || b->misaligned)
		kv_call_refund(c);
	if (b->misaligned) {
		kv_reply_missing(c->r);
		return;
	}
	count_ops(b, res);
	if (b->lost)
		reply_lost(b, res, kv_ops_lost(res, &COLS, 0, PQntuples(res)));
	else
		reply_results(b, res);
}

/* Of one operation on one key: nearly every call, and the cheaper function. */
static bool
is_one(const struct kv_ops *o)
{
	return o->n == 1 && o->v[0].kind != KV_GET_MANY &&
	       o->v[0].kind != KV_GET_PREFIX;
}

static void
add_args(struct kv_call *c, struct pgargs *a)
{
	const struct kv_ops *o = &((struct batch *)c)->ops;

	if (is_one(o)) {
		kv_ops_args_one(a, &o->v[0]);
		return;
	}
	pgargs_bool(a, false);
	kv_ops_args(a, o, ctx_of(c->r));
}

void
kv_batch_start(struct hsrv_req *r, struct span ops, bool bare)
{
	struct batch *b = arena_zalloc(hsrv_arena(r), sizeof(*b));
	struct fault f;

	if (kv_ops_parse(ops, false, ctx_of(r), hsrv_arena(r), &b->ops, &f) <
		0) {
		fault_reply(r, &f);
		return;
	}
	if (b->ops.n == 0) {
		buf_puts(hsrv_out(r), "{\"results\":[]}");
		hsrv_reply(r, 200);
		return;
	}
	b->bare = bare;
	b->call = (struct kv_call){ .r = r,
		.stmt = is_one(&b->ops) ? &STMT_ONE : &STMT_APPLY,
		.ask = { .kv_write = b->ops.writes > 0,
			.rows = b->ops.rows,
			.bytes = b->ops.bytes },
		.args = add_args,
		.decide = b->ops.required ? index_rows : NULL,
		.answer = on_answer,
		.failed = on_failed };
	kv_call_start(&b->call);
}
