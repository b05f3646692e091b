/* SPDX-License-Identifier: Apache-2.0 */
/* Thrift's compact protocol, as much of it as a footer needs. */
#include "err.h"
#include "parquet_int.h"

enum { T_TRUE = 1, T_FALSE = 2, T_I64 = 6, T_LIST = 9 };

void
parquet_t_init(struct parquet_thrift *t, struct buf *b)
{
	*t = (struct parquet_thrift){ .b = b };
}

static void
head(struct parquet_thrift *t, int id, int type)
{
	int step = id - t->last[t->depth];

	BUG(step < 1 || step > 15);
	buf_putc(t->b, (char)(step << 4 | type));
	t->last[t->depth] = id;
}

static void
down(struct parquet_thrift *t)
{
	t->depth++;
	BUG((size_t)t->depth == sizeof(t->last) / sizeof(t->last[0]));
	t->last[t->depth] = 0;
}

void
parquet_t_i32(struct parquet_thrift *t, int id, int32_t v)
{
	head(t, id, PARQUET_T_I32);
	parquet_varint(t->b, parquet_zigzag(v));
}

void
parquet_t_i64(struct parquet_thrift *t, int id, int64_t v)
{
	head(t, id, T_I64);
	parquet_varint(t->b, parquet_zigzag(v));
}

void
parquet_t_bool(struct parquet_thrift *t, int id, bool v)
{
	head(t, id, v ? T_TRUE : T_FALSE);
}

void
parquet_t_text(struct parquet_thrift *t, int id, struct span s)
{
	head(t, id, PARQUET_T_BINARY);
	parquet_t_item_text(t, s);
}

void
parquet_t_list(struct parquet_thrift *t, int id, int type, size_t n)
{
	head(t, id, T_LIST);
	buf_putc(t->b, (char)((n < 15 ? n : 15) << 4 | (unsigned)type));
	if (n >= 15)
		parquet_varint(t->b, n);
}

void
parquet_t_field(struct parquet_thrift *t, int id)
{
	head(t, id, PARQUET_T_STRUCT);
	down(t);
}

void
parquet_t_item(struct parquet_thrift *t)
{
	down(t);
}

void
parquet_t_close(struct parquet_thrift *t)
{
	BUG(t->depth < 0);
	buf_putc(t->b, 0);
	t->depth--;
}

void
parquet_t_item_i32(struct parquet_thrift *t, int32_t v)
{
	parquet_varint(t->b, parquet_zigzag(v));
}

void
parquet_t_item_text(struct parquet_thrift *t, struct span s)
{
	parquet_varint(t->b, s.n);
	buf_put_span(t->b, s);
}
