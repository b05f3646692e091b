/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PostgreSQL's binary format.  Writing appends in network order to one buffer
 * and remembers where each parameter lies; reading checks the width, because
 * a wrong one means that our SQL and our C disagree.
 */
#include "pgbin.h"

#include <endian.h>
#include <limits.h>
#include <string.h>

#include "err.h"

/* 2000-01-01 in microseconds since 1970: where the server's times start. */
#define PGBIN_EPOCH_US INT64_C(946684800000000)

enum {
	HEAD_BYTES = 20, /* of an array with one dimension */
	HEAD_EMPTY_BYTES = 12, /* of one without any */
	UUID_BYTES = 16
};

void
pgargs_init(struct pgargs *a)
{
	*a = (struct pgargs){ .open = -1 };
}

void
pgargs_fini(struct pgargs *a)
{
	buf_fini(&a->data);
	pgargs_init(a);
}

/* ---- writing ---- */

static void
put16(struct buf *b, uint16_t v)
{
	v = htobe16(v);
	buf_put(b, &v, sizeof v);
}

static void
put32(struct buf *b, uint32_t v)
{
	v = htobe32(v);
	buf_put(b, &v, sizeof v);
}

static void
put64(struct buf *b, uint64_t v)
{
	v = htobe64(v);
	buf_put(b, &v, sizeof v);
}

static int64_t
time_out(int64_t at_us)
{
	/* the infinities are the same numbers on both sides */
	if (at_us == INT64_MIN || at_us == INT64_MAX)
		return at_us;
	/* a time before the server's range stays finite */
	if (at_us < INT64_MIN + 1 + PGBIN_EPOCH_US)
		return INT64_MIN + 1;
	return at_us - PGBIN_EPOCH_US;
}

static int64_t
time_in(int64_t v)
{
	if (v == INT64_MIN || v == INT64_MAX)
		return v;
	if (v > INT64_MAX - 1 - PGBIN_EPOCH_US)
		return INT64_MAX - 1;
	return v + PGBIN_EPOCH_US;
}

/* Starts parameter n; end_param fixes its length. */
static struct buf *
start_param(struct pgargs *a)
{
	BUG(a->open >= 0 || a->n >= PGARGS_MAX);
	a->at[a->n] = a->data.len;
	a->null[a->n] = false;
	return &a->data;
}

static void
end_param(struct pgargs *a)
{
	a->len[a->n] = a->data.len - a->at[a->n];
	BUG(a->len[a->n] > INT_MAX);
	a->n++;
}

void
pgargs_i16(struct pgargs *a, int16_t v)
{
	put16(start_param(a), (uint16_t)v);
	end_param(a);
}

void
pgargs_i32(struct pgargs *a, int32_t v)
{
	put32(start_param(a), (uint32_t)v);
	end_param(a);
}

void
pgargs_i64(struct pgargs *a, int64_t v)
{
	put64(start_param(a), (uint64_t)v);
	end_param(a);
}

void
pgargs_bool(struct pgargs *a, bool v)
{
	buf_putc(start_param(a), v);
	end_param(a);
}

void
pgargs_text(struct pgargs *a, struct span s)
{
	buf_put(start_param(a), s.p, s.n);
	end_param(a);
}

void
pgargs_bytea(struct pgargs *a, struct span s)
{
	pgargs_text(a, s);
}

void
pgargs_uuid(struct pgargs *a, const struct qid *q)
{
	buf_put(start_param(a), q->b, sizeof q->b);
	end_param(a);
}

void
pgargs_time(struct pgargs *a, int64_t at_us)
{
	pgargs_i64(a, time_out(at_us));
}

void
pgargs_null(struct pgargs *a)
{
	start_param(a);
	a->null[a->n] = true;
	end_param(a);
}

/* ---- arrays ---- */

/* Overwrites four bytes of the array's head. */
static void
patch32(struct pgargs *a, size_t off, uint32_t v)
{
	v = htobe32(v);
	memcpy(a->data.p + a->at[a->open] + off, &v, sizeof v);
}

void
pgargs_array(struct pgargs *a, enum pgargs_type type)
{
	struct buf *b = start_param(a);

	put32(b, 1); /* dimensions */
	put32(b, 0); /* set to 1 by the first null */
	put32(b, (uint32_t)type);
	put32(b, 0); /* length, set by pgargs_close */
	put32(b, 1); /* lower bound */
	a->open = a->n;
	a->items = 0;
}

void
pgargs_close(struct pgargs *a)
{
	BUG(a->open < 0);
	if (a->items == 0) {
		patch32(a, 0, 0);
		a->data.len = a->at[a->open] + HEAD_EMPTY_BYTES;
	} else {
		patch32(a, 12, a->items);
	}
	a->open = -1;
	end_param(a);
}

static struct buf *
start_item(struct pgargs *a, size_t n)
{
	BUG(a->open < 0 || n > INT_MAX);
	a->items++;
	put32(&a->data, (uint32_t)n);
	return &a->data;
}

void
pgargs_item_i16(struct pgargs *a, int16_t v)
{
	put16(start_item(a, 2), (uint16_t)v);
}

void
pgargs_item_i32(struct pgargs *a, int32_t v)
{
	put32(start_item(a, 4), (uint32_t)v);
}

void
pgargs_item_i64(struct pgargs *a, int64_t v)
{
	put64(start_item(a, 8), (uint64_t)v);
}

void
pgargs_item_bool(struct pgargs *a, bool v)
{
	buf_putc(start_item(a, 1), v);
}

void
pgargs_item_text(struct pgargs *a, struct span s)
{
	buf_put(start_item(a, s.n), s.p, s.n);
}

void
pgargs_item_bytea(struct pgargs *a, struct span s)
{
	pgargs_item_text(a, s);
}

void
pgargs_item_uuid(struct pgargs *a, const struct qid *q)
{
	buf_put(start_item(a, sizeof q->b), q->b, sizeof q->b);
}

void
pgargs_item_time(struct pgargs *a, int64_t at_us)
{
	pgargs_item_i64(a, time_out(at_us));
}

void
pgargs_item_null(struct pgargs *a)
{
	BUG(a->open < 0);
	a->items++;
	put32(&a->data, UINT32_MAX);
	patch32(a, 4, 1);
}

/* ---- reading ---- */

static uint32_t
load32(const char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return be32toh(v);
}

static uint64_t
load64(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return be64toh(v);
}

/* A value that is there and has the width that its type promises. */
static const char *
fixed(const PGresult *r, int row, int col, int width)
{
	BUG(PQfformat(r, col) != 1);
	BUG(PQgetisnull(r, row, col));
	BUG(PQgetlength(r, row, col) != width);
	return PQgetvalue(r, row, col);
}

bool
pgbin_null(const PGresult *r, int row, int col)
{
	return PQgetisnull(r, row, col) == 1;
}

int16_t
pgbin_i16(const PGresult *r, int row, int col)
{
	uint16_t v;

	memcpy(&v, fixed(r, row, col, 2), sizeof v);
	return (int16_t)be16toh(v);
}

int32_t
pgbin_i32(const PGresult *r, int row, int col)
{
	return (int32_t)load32(fixed(r, row, col, 4));
}

int64_t
pgbin_i64(const PGresult *r, int row, int col)
{
	return (int64_t)load64(fixed(r, row, col, 8));
}

bool
pgbin_bool(const PGresult *r, int row, int col)
{
	return fixed(r, row, col, 1)[0] != 0;
}

double
pgbin_f64(const PGresult *r, int row, int col)
{
	uint64_t v = load64(fixed(r, row, col, 8));
	double d;

	memcpy(&d, &v, sizeof d);
	return d;
}

int64_t
pgbin_time(const PGresult *r, int row, int col)
{
	return time_in(pgbin_i64(r, row, col));
}

struct qid
pgbin_uuid(const PGresult *r, int row, int col)
{
	struct qid q;

	memcpy(q.b, fixed(r, row, col, UUID_BYTES), sizeof q.b);
	return q;
}

struct span
pgbin_bytes(const PGresult *r, int row, int col)
{
	BUG(PQfformat(r, col) != 1);
	return span_make(
		PQgetvalue(r, row, col), (size_t)PQgetlength(r, row, col));
}

struct pgbin_array
pgbin_array(const PGresult *r, int row, int col)
{
	struct span s = pgbin_bytes(r, row, col);
	struct pgbin_array a = { .left = 0 };

	/* a null array walks like an empty one */
	if (s.n == 0)
		return a;
	BUG(s.n < HEAD_EMPTY_BYTES);
	if (load32(s.p) == 0)
		return a;
	BUG(load32(s.p) != 1 || s.n < HEAD_BYTES);
	a.left = (int32_t)load32(s.p + 12);
	a.rest = span_make(s.p + HEAD_BYTES, s.n - HEAD_BYTES);
	return a;
}

bool
pgbin_array_next(struct pgbin_array *a, struct span *item, bool *null)
{
	int32_t n;

	if (a->left <= 0)
		return false;
	BUG(a->rest.n < 4);
	n = (int32_t)load32(a->rest.p);
	a->rest = span_make(a->rest.p + 4, a->rest.n - 4);
	a->left--;
	if (null != NULL)
		*null = n < 0;
	if (n < 0) {
		*item = span_make(NULL, 0);
		return true;
	}
	BUG(a->rest.n < (size_t)n);
	*item = span_make(a->rest.p, (size_t)n);
	a->rest = span_make(a->rest.p + n, a->rest.n - (size_t)n);
	return true;
}

int32_t
pgbin_span_i32(struct span s)
{
	BUG(s.n != 4);
	return (int32_t)load32(s.p);
}

int64_t
pgbin_span_i64(struct span s)
{
	BUG(s.n != 8);
	return (int64_t)load64(s.p);
}
