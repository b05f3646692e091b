/* SPDX-License-Identifier: Apache-2.0 */
/* KV operations as arguments, and the rows that answer them as JSON. */
#include "buf.h"
#include "ctx.h"
#include "err.h"
#include "fault.h"
#include "jwrite.h"
#include "kv_ops.h"
#include "pgbin.h"
#include "pgpool.h"
#include "settings.h"

enum { DETAIL_MAX_BYTES = 4096, ROW_MISSING = 1 };

/* ---- arguments ---- */

static void
put_texts(struct pgargs *a, const struct kv_ops *o, size_t at, bool empty_null)
{
	pgargs_array(a, PGARGS_TEXT);
	for (size_t i = 0; i < o->n; i++) {
		struct span s;

		memcpy(&s, (const char *)&o->v[i] + at, sizeof(s));
		if (s.n == 0 && empty_null)
			pgargs_item_null(a);
		else
			pgargs_item_text(a, s);
	}
	pgargs_close(a);
}

static void
put_numbers(struct pgargs *a, const struct kv_ops *o)
{
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < o->n; i++) {
		if (o->v[i].expect < 0)
			pgargs_item_null(a);
		else
			pgargs_item_i64(a, o->v[i].expect);
	}
	pgargs_close(a);
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < o->n; i++) {
		if (o->v[i].ttl_s == 0)
			pgargs_item_null(a);
		else
			pgargs_item_i64(a, o->v[i].ttl_s);
	}
	pgargs_close(a);
	pgargs_array(a, PGARGS_BOOL);
	for (size_t i = 0; i < o->n; i++)
		pgargs_item_bool(a, o->v[i].required);
	pgargs_close(a);
}

static void
put_keys(struct pgargs *a, const struct kv_ops *o)
{
	pgargs_array(a, PGARGS_I32);
	for (size_t i = 0; i < o->n; i++)
		for (size_t k = 0; k < o->v[i].keys_n; k++)
			pgargs_item_i32(a, (int32_t)i + 1);
	pgargs_close(a);
	pgargs_array(a, PGARGS_TEXT);
	for (size_t i = 0; i < o->n; i++)
		for (size_t k = 0; k < o->v[i].keys_n; k++)
			pgargs_item_text(a, o->v[i].keys[k]);
	pgargs_close(a);
}

void
kv_ops_args(struct pgargs *a, const struct kv_ops *o, const struct ctx *x)
{
	pgargs_i64(a, x->conf->kv_max_read_bytes);
	pgargs_array(a, PGARGS_I16);
	for (size_t i = 0; i < o->n; i++)
		pgargs_item_i16(a, (int16_t)o->v[i].kind);
	pgargs_close(a);
	put_texts(a, o, offsetof(struct kv_op, ns), false);
	put_texts(a, o, offsetof(struct kv_op, key), true);
	put_texts(a, o, offsetof(struct kv_op, value), true);
	put_numbers(a, o);
	put_texts(a, o, offsetof(struct kv_op, delta), true);
	put_texts(a, o, offsetof(struct kv_op, min), true);
	put_texts(a, o, offsetof(struct kv_op, max), true);
	put_texts(a, o, offsetof(struct kv_op, after), true);
	pgargs_array(a, PGARGS_I32);
	for (size_t i = 0; i < o->n; i++)
		pgargs_item_i32(a, o->v[i].limit);
	pgargs_close(a);
	pgargs_array(a, PGARGS_BOOL);
	for (size_t i = 0; i < o->n; i++)
		pgargs_item_bool(a, o->v[i].keys_only);
	pgargs_close(a);
	put_keys(a, o);
}

static void
put_text(struct pgargs *a, struct span s)
{
	if (s.n == 0)
		pgargs_null(a);
	else
		pgargs_text(a, s);
}

void
kv_ops_args_one(struct pgargs *a, const struct kv_op *op)
{
	pgargs_i32(a, op->kind);
	pgargs_text(a, op->ns);
	pgargs_text(a, op->key);
	put_text(a, op->value);
	if (op->expect < 0)
		pgargs_null(a);
	else
		pgargs_i64(a, op->expect);
	if (op->ttl_s == 0)
		pgargs_null(a);
	else
		pgargs_i64(a, op->ttl_s);
	pgargs_bool(a, op->required);
	put_text(a, op->delta);
	put_text(a, op->min);
	put_text(a, op->max);
}

/* ---- rows ---- */

size_t
kv_ops_of_row(const PGresult *res, const struct kv_cols *c, int row)
{
	return (size_t)pgbin_i32(res, row, c->ord) - 1;
}

bool
kv_ops_index(struct kv_ops *o, const PGresult *res, const struct kv_cols *c,
	int from, int to)
{
	size_t done = 0;

	for (size_t i = 0; i < o->n; i++)
		o->v[i].row = -1;
	for (int row = from; row < to;) {
		size_t at = kv_ops_of_row(res, c, row);

		if (at >= o->n || o->v[at].row >= 0)
			return false;
		o->v[at].row = row;
		while (row < to && kv_ops_of_row(res, c, row) == at)
			row++;
		o->v[at].rows_end = row;
		/* the operation's own row comes last */
		if (pgbin_i32(res, row - 1, c->row_no) != 0)
			return false;
		done++;
	}
	return done == o->n;
}

int
kv_ops_lost(const PGresult *res, const struct kv_cols *c, int from, int to)
{
	enum { LOST = 2 };

	if (to > from && pgbin_i32(res, to - 1, c->verdict) == LOST)
		return to - 1;
	return -1;
}

static void
write_value(
	struct jwrite *w, const PGresult *res, const struct kv_cols *c, int row)
{
	jwrite_key(w, "value");
	if (pgbin_null(res, row, c->value))
		jwrite_null(w);
	else
		jwrite_raw(w, pgbin_bytes(res, row, c->value));
}

/* The members of a row that was found. */
static void
write_row(struct jwrite *w, const PGresult *res, const struct kv_cols *c,
	int row, bool keys_only)
{
	jwrite_kv_str(w, "key", pgbin_bytes(res, row, c->key));
	if (!keys_only)
		write_value(w, res, c, row);
	jwrite_kv_i64(w, "version", pgbin_i64(res, row, c->version));
	jwrite_key(w, "expiresAt");
	if (pgbin_null(res, row, c->expires_at))
		jwrite_null(w);
	else
		jwrite_iso_us(w, pgbin_time(res, row, c->expires_at));
	jwrite_key(w, "updatedAt");
	jwrite_iso_us(w, pgbin_time(res, row, c->updated_at));
}

static void
write_rows(struct jwrite *w, const struct kv_op *op, const PGresult *res,
	const struct kv_cols *c)
{
	int own = op->rows_end - 1, row = op->row;

	jwrite_key(w, "rows");
	jwrite_array(w);
	for (; row < own && pgbin_i32(res, row, c->verdict) != ROW_MISSING;
		row++) {
		jwrite_object(w);
		write_row(w, res, c, row, op->keys_only);
		jwrite_end(w);
	}
	jwrite_end(w);
	if (op->kind == KV_GET_MANY) {
		jwrite_key(w, "missing");
		jwrite_array(w);
		for (; row < own; row++)
			jwrite_str(w, pgbin_bytes(res, row, c->key));
		jwrite_end(w);
	}
	jwrite_kv_bool(w, "truncated", pgbin_i32(res, own, c->verdict) != 0);
	if (op->kind == KV_GET_MANY)
		return;
	jwrite_key(w, "nextAfter");
	if (pgbin_null(res, own, c->key))
		jwrite_null(w);
	else
		jwrite_str(w, pgbin_bytes(res, own, c->key));
}

void
kv_ops_write(struct jwrite *w, const struct kv_ops *o, size_t i,
	const PGresult *res, const struct kv_cols *c)
{
	const struct kv_op *op = &o->v[i];
	bool good = pgbin_i32(res, op->row, c->verdict) == 0;

	jwrite_kv_str(w, "op", op->name);
	switch (op->kind) {
	case KV_GET:
		jwrite_kv_bool(w, "found", good);
		if (good)
			write_row(w, res, c, op->row, false);
		else
			jwrite_kv_str(w, "key", op->key);
		break;
	case KV_GET_MANY:
	case KV_GET_PREFIX:
		write_rows(w, op, res, c);
		break;
	default:
		jwrite_kv_bool(w, "applied", good);
		if (!good)
			jwrite_kv_str(w, "reason",
				pgbin_bytes(res, op->row, c->reason));
		jwrite_kv_str(w, "key", op->key);
		write_value(w, res, c, op->row);
		jwrite_kv_i64(
			w, "version", pgbin_i64(res, op->row, c->version));
	}
}

void
kv_ops_write_lost(struct jwrite *w, const struct kv_ops *o,
	int64_t failed_index, const PGresult *res, const struct kv_cols *c,
	int row)
{
	const struct kv_op *op = &o->v[kv_ops_of_row(res, c, row)];
	struct buf b = BUF_ZERO;
	struct jwrite d;

	/* the detail a client may be told has this form and size */
	jwrite_init(&d, &b);
	jwrite_object(&d);
	jwrite_kv_i64(&d, "index", failed_index);
	jwrite_kv_str(&d, "op", op->name);
	jwrite_kv_str(&d, "ns", op->ns);
	jwrite_kv_str(&d, "key", op->key);
	jwrite_kv_str(&d, "reason", pgbin_bytes(res, row, c->reason));
	jwrite_kv_i64(&d, "version", pgbin_i64(res, row, c->version));
	write_value(&d, res, c, row);
	jwrite_end(&d);
	if (b.len <= DETAIL_MAX_BYTES) {
		jwrite_kv_i64(w, "failedIndex", failed_index);
		jwrite_kv_str(w, "kvReason", pgbin_bytes(res, row, c->reason));
		jwrite_kv_i64(w, "version", pgbin_i64(res, row, c->version));
		write_value(w, res, c, row);
	}
	buf_fini(&b);
}

/* ---- errors ---- */

void
kv_ops_fault(const struct err *e, struct fault *f)
{
	static const struct fault_words words = { .prefix = "kv_",
		.unavailable = "kv_unavailable",
		.pool_exhausted = "kv_pool_exhausted",
		.timeout = "kv_timeout",
		.bad_request = "kv_bad_request",
		.misconfigured = "kv_misconfigured",
		.error = "kv_error" };

	fault_of_err(e, &words, f);
	if (f->status == 400 && strcmp(e->sqlstate, "22001") == 0) {
		f->status = 413;
		f->error = "payload_too_large";
		f->reason = f->reason_text;
		f->detail[0] = '\0';
	}
}
