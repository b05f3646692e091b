/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file: row groups, footer, and the line of finished pieces before the
 * object.  A piece of a row group that closed enters the object while the next
 * one fills, so that no single call moves and digests all of it.
 */
#include "parquet.h"

#include <stdlib.h>

#include "err.h"
#include "format.h"
#include "format_int.h"
#include "object.h"
#include "parquet_int.h"

enum {
	MAGIC_BYTES = 4,
	MOVE_BYTES = 4 << 10, /* per record, beside its own */
	MOVE_END_BYTES = 1 << 20 /* per step of the end */
};
enum { UTF8 = 0, TIMESTAMP_MICROS = 10 };

static const char magic[] = "PAR1";

static const struct parquet_column_is columns[PARQUET_COLUMNS] = {
	{ "partition", PARQUET_BYTE_ARRAY, PARQUET_REQUIRED,
		PARQUET_PLAIN_DICTIONARY, UTF8 },
	{ "offset", PARQUET_INT64, PARQUET_REQUIRED,
		PARQUET_DELTA_BINARY_PACKED, -1 },
	{ "transaction_id", PARQUET_BYTE_ARRAY, PARQUET_REQUIRED, PARQUET_PLAIN,
		UTF8 },
	{ "ts", PARQUET_INT64, PARQUET_REQUIRED, PARQUET_DELTA_BINARY_PACKED,
		TIMESTAMP_MICROS },
	{ "payload", PARQUET_BYTE_ARRAY, PARQUET_OPTIONAL, PARQUET_PLAIN,
		UTF8 },
};

struct parquet {
	struct object *out;
	struct buf queue, tenant;
	struct parquet_pack pack;
	struct parquet_column columns[PARQUET_COLUMNS];
	struct parquet_pieces ready; /* to the object, in order */
	size_t moved; /* bytes of the first of them */
	bool ended; /* the footer is among them */
	int64_t group_max, group_rows, rows;
	int64_t at; /* where the next row group begins */
	struct buf groups; /* RowGroup of each, of groups_n */
	size_t groups_n;
};

struct parquet *
parquet_new(const struct format_of *o, int64_t group_rows, struct object *out,
	struct err *e)
{
	struct parquet *p;

	if (o->codec != S3_ZSTD && o->codec != S3_SNAPPY) {
		err_set(e, ERR_CONFIG,
			"Parquet is written with zstd or snappy");
		return NULL;
	}
	p = calloc(1, sizeof(*p));
	BUG(!p);
	p->out = out;
	p->group_max = group_rows < 1 ? 1 : group_rows;
	p->pack.codec = o->codec;
	if (o->codec == S3_ZSTD)
		p->pack.zstd = format_zstd_take();
	buf_put_span(&p->queue, o->queue);
	buf_put_span(&p->tenant, o->tenant);
	for (size_t i = 0; i < PARQUET_COLUMNS; i++)
		parquet_column_init(&p->columns[i], &columns[i], &p->pack);
	parquet_pieces_init(&p->ready);
	object_put(out, magic, MAGIC_BYTES);
	p->at = MAGIC_BYTES;
	return p;
}

void
parquet_free(struct parquet *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < PARQUET_COLUMNS; i++)
		parquet_column_fini(&p->columns[i]);
	parquet_pieces_fini(&p->ready);
	format_zstd_give(p->pack.zstd);
	buf_fini(&p->pack.packed);
	buf_fini(&p->pack.head);
	buf_fini(&p->queue);
	buf_fini(&p->tenant);
	buf_fini(&p->groups);
	free(p);
}

static void
move(struct parquet *p, size_t bytes)
{
	struct parquet_piece *first;

	while (bytes > 0 && (first = p->ready.first)) {
		size_t n = first->n - p->moved;

		n = n < bytes ? n : bytes;
		object_put(p->out, first->b + p->moved, n);
		p->moved += n;
		bytes -= n;
		if (p->moved < first->n)
			continue;
		p->moved = 0;
		p->ready.first = first->next;
		if (!first->next)
			p->ready.last = &p->ready.first;
		free(first);
	}
}

static void
group_end(struct parquet *p)
{
	struct parquet_chunk all = { 0, 0 }, chunk;
	struct parquet_thrift t;

	if (p->group_rows == 0)
		return;
	parquet_t_init(&t, &p->groups);
	parquet_t_list(&t, 1, PARQUET_T_STRUCT, PARQUET_COLUMNS);
	for (size_t i = 0; i < PARQUET_COLUMNS; i++) {
		parquet_column_end(&p->columns[i], p->at + all.packed_bytes,
			&p->ready, &chunk, &t);
		all.plain_bytes += chunk.plain_bytes;
		all.packed_bytes += chunk.packed_bytes;
	}
	parquet_t_i64(&t, 2, all.plain_bytes);
	parquet_t_i64(&t, 3, p->group_rows);
	parquet_t_i64(&t, 5, p->at);
	parquet_t_i64(&t, 6, all.packed_bytes);
	parquet_t_close(&t);
	p->at += all.packed_bytes;
	p->groups_n++;
	p->group_rows = 0;
}

int
parquet_add(struct parquet *p, const struct record *r, struct err *e)
{
	struct parquet_column *c = p->columns;

	if (p->ended)
		return err_set(e, ERR_BUG, "the object is finished");
	parquet_column_text(c++, r->partition);
	parquet_column_i64(c++, r->offset);
	parquet_column_text(c++, r->txn);
	parquet_column_i64(c++, r->ts_us);
	if (r->null)
		parquet_column_null(c);
	else
		parquet_column_text(c, r->payload);
	p->rows++;
	if (++p->group_rows == p->group_max)
		group_end(p);
	move(p, MOVE_BYTES + r->payload.n);
	return 0;
}

static void
write_column(struct parquet_thrift *t, const struct parquet_column_is *is)
{
	parquet_t_item(t);
	parquet_t_i32(t, 1, is->type);
	parquet_t_i32(t, 3, is->repetition);
	parquet_t_text(t, 4, span_of(is->name));
	if (is->converted >= 0) {
		parquet_t_i32(t, 6, is->converted);
		parquet_t_field(t, 10);
		if (is->converted == UTF8) {
			parquet_t_field(t, 1);
		} else {
			parquet_t_field(t, 8);
			parquet_t_bool(t, 1, true); /* UTC */
			parquet_t_field(t, 2);
			parquet_t_field(t, 2); /* microseconds */
			parquet_t_close(t);
			parquet_t_close(t);
		}
		parquet_t_close(t);
		parquet_t_close(t);
	}
	parquet_t_close(t);
}

static void
write_schema(struct parquet_thrift *t)
{
	parquet_t_list(t, 2, PARQUET_T_STRUCT, 1 + PARQUET_COLUMNS);
	parquet_t_item(t);
	parquet_t_text(t, 4, SPAN_LIT("queen_record"));
	parquet_t_i32(t, 5, PARQUET_COLUMNS);
	parquet_t_close(t);
	for (size_t i = 0; i < PARQUET_COLUMNS; i++)
		write_column(t, &columns[i]);
}

static void
write_pair(struct parquet_thrift *t, struct span key, struct span value)
{
	parquet_t_item(t);
	parquet_t_text(t, 1, key);
	parquet_t_text(t, 2, value);
	parquet_t_close(t);
}

static void
write_footer(const struct parquet *p, struct buf *b)
{
	struct parquet_thrift t;

	parquet_t_init(&t, b);
	parquet_t_i32(&t, 1, 1);
	write_schema(&t);
	parquet_t_i64(&t, 3, p->rows);
	parquet_t_list(&t, 4, PARQUET_T_STRUCT, p->groups_n);
	buf_put_span(b, buf_span(&p->groups));
	parquet_t_list(&t, 5, PARQUET_T_STRUCT, p->rows > 0 ? 3 : 1);
	write_pair(&t, SPAN_LIT("queen.envelope"), SPAN_LIT("1"));
	if (p->rows > 0) {
		write_pair(&t, SPAN_LIT("queen.queue"), buf_span(&p->queue));
		write_pair(&t, SPAN_LIT("queen.tenant"), buf_span(&p->tenant));
	}
	parquet_t_text(&t, 6, SPAN_LIT("queen-s3"));
	parquet_t_list(&t, 7, PARQUET_T_STRUCT, PARQUET_COLUMNS);
	for (size_t i = 0; i < PARQUET_COLUMNS; i++) {
		parquet_t_item(&t);
		parquet_t_field(&t, 1); /* order of the type */
		parquet_t_close(&t);
		parquet_t_close(&t);
	}
	parquet_t_close(&t);
}

static void
end(struct parquet *p)
{
	struct buf b = BUF_ZERO;
	size_t n;

	group_end(p);
	write_footer(p, &b);
	n = b.len;
	for (size_t i = 0; i < 4; i++)
		buf_putc(&b, (char)(n >> 8 * i));
	parquet_pieces_add(
		&p->ready, buf_span(&b), span_make(magic, MAGIC_BYTES));
	buf_fini(&b);
	p->ended = true;
}

int
parquet_finish(struct parquet *p, struct err *e)
{
	if (p->ended && !p->ready.first)
		return err_set(e, ERR_BUG, "the object is finished");
	if (!p->ended)
		end(p);
	else
		move(p, MOVE_END_BYTES);
	return p->ready.first ? 1 : 0;
}
