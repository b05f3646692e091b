/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the Parquet writer: Thrift, encodings, statistics, columns. */
#ifndef QUEEN_S3_PARQUET_INT_H
#define QUEEN_S3_PARQUET_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zstd.h>

#include "buf.h"
#include "parquet.h"
#include "s3conf.h"
#include "span.h"

/* Numbers of the format. */
enum { PARQUET_INT64 = 2, PARQUET_BYTE_ARRAY = 6 };
enum { PARQUET_REQUIRED = 0, PARQUET_OPTIONAL = 1 };
enum { PARQUET_SNAPPY = 1, PARQUET_ZSTD = 6 };
enum { PARQUET_DATA_PAGE = 0, PARQUET_DICTIONARY_PAGE = 2 };
enum {
	PARQUET_PLAIN = 0,
	PARQUET_PLAIN_DICTIONARY = 2,
	PARQUET_RLE = 3,
	PARQUET_DELTA_BINARY_PACKED = 5
};

/* ---- Thrift, compact protocol ---- */
enum { PARQUET_T_I32 = 5, PARQUET_T_BINARY = 8, PARQUET_T_STRUCT = 12 };

struct parquet_thrift {
	struct buf *b;
	int depth;
	int last[8]; /* field id written last, per level */
};

void parquet_t_init(struct parquet_thrift *t, struct buf *b);
void parquet_t_i32(struct parquet_thrift *t, int id, int32_t v);
void parquet_t_i64(struct parquet_thrift *t, int id, int64_t v);
void parquet_t_bool(struct parquet_thrift *t, int id, bool v);
void parquet_t_text(struct parquet_thrift *t, int id, struct span s);
void parquet_t_list(struct parquet_thrift *t, int id, int type, size_t n);
/* A struct as a field or as an item of a list, until its close. */
void parquet_t_field(struct parquet_thrift *t, int id);
void parquet_t_item(struct parquet_thrift *t);
void parquet_t_close(struct parquet_thrift *t);
/* Items of lists. */
void parquet_t_item_i32(struct parquet_thrift *t, int32_t v);
void parquet_t_item_text(struct parquet_thrift *t, struct span s);

/* ---- encodings ---- */
void parquet_varint(struct buf *b, uint64_t v);
uint64_t parquet_zigzag(int64_t v);
unsigned parquet_width(uint64_t v); /* bits of it; 0 for 0 */

/* Runs and bit-packed groups of eight, as they come. */
struct parquet_hybrid {
	struct buf out;
	struct buf packed; /* whole groups, their header still to come */
	unsigned width;
	uint32_t eight[8];
	unsigned n; /* of the eight */
};
void parquet_hybrid_begin(struct parquet_hybrid *h, unsigned width);
void parquet_hybrid_run(struct parquet_hybrid *h, uint32_t v, uint32_t n);
void parquet_hybrid_end(struct parquet_hybrid *h);
void parquet_hybrid_fini(struct parquet_hybrid *h);

enum { PARQUET_DELTA_BLOCK = 128, PARQUET_DELTA_HEAD_MAX = 24 };
struct parquet_delta {
	uint32_t count; /* of values */
	uint32_t n; /* of the block */
	int64_t first, last;
	int64_t block[PARQUET_DELTA_BLOCK];
};
/* Whole blocks are appended to b. */
void parquet_delta_add(struct parquet_delta *d, int64_t v, struct buf *b);
/* The last block, and what belongs in front; begins anew. */
size_t parquet_delta_end(struct parquet_delta *d, struct buf *b,
	uint8_t head[PARQUET_DELTA_HEAD_MAX]);

/* ---- statistics of a chunk ---- */
/* 64 bytes are kept of a text, and the one that tells whether a cut is one. */
enum { PARQUET_STAT_MAX = 64 };
struct parquet_bound {
	uint8_t n;
	char b[PARQUET_STAT_MAX + 1];
};
struct parquet_stat {
	bool any;
	struct parquet_bound min, max;
	int64_t low, high;
};
void parquet_stat_text(struct parquet_stat *s, struct span v);
void parquet_stat_i64(struct parquet_stat *s, int64_t v);
/* The field `statistics` of a column of the type. */
void parquet_stat_write(const struct parquet_stat *s, int type, int64_t nulls,
	struct parquet_thrift *t, int id);

/* ---- columns ---- */
struct parquet_column_is {
	const char *name;
	int type, repetition, encoding;
	int converted; /* -1: none */
};
enum { PARQUET_COLUMNS = 5 };

/* Finished bytes of the file, waiting for their turn. */
struct parquet_piece {
	struct parquet_piece *next;
	size_t n;
	char b[];
};
struct parquet_pieces {
	struct parquet_piece *first, **last;
};
void parquet_pieces_init(struct parquet_pieces *l);
void parquet_pieces_fini(struct parquet_pieces *l);
void parquet_pieces_add(
	struct parquet_pieces *l, struct span head, struct span body);

struct parquet_pack {
	enum s3_codec codec;
	ZSTD_CCtx *zstd;
	struct buf packed, head; /* of the page at hand */
};

struct parquet_chunk {
	int64_t plain_bytes, packed_bytes; /* with the headers of pages */
};

enum { PARQUET_DATA_ENCODINGS = 6 };
struct parquet_column {
	const struct parquet_column_is *is;
	struct parquet_pack *pack;
	/* the page at hand */
	struct buf page; /* its values, behind room for what goes in front */
	uint32_t page_rows;
	int encoding;
	struct parquet_delta delta;
	struct parquet_hybrid levels, indexes;
	bool level;
	uint32_t level_n; /* rows of that level, not yet in levels */
	/* the dictionary: names come in order, so an old one is the newest */
	struct buf dict;
	size_t newest_at, newest_n;
	uint32_t dict_n;
	uint32_t *runs; /* rows per index, from first_index on */
	uint32_t runs_n, first_index;
	/* the chunk */
	struct parquet_pieces pieces;
	struct parquet_stat stat;
	int64_t rows, nulls, plain_bytes, packed_bytes;
	int32_t pages[PARQUET_DATA_ENCODINGS]; /* by encoding */
};
void parquet_column_init(struct parquet_column *c,
	const struct parquet_column_is *is, struct parquet_pack *pack);
void parquet_column_fini(struct parquet_column *c);
void parquet_column_text(struct parquet_column *c, struct span v);
void parquet_column_null(struct parquet_column *c);
void parquet_column_i64(struct parquet_column *c, int64_t v);
/*
 * Ends the chunk: its pages, which begin at that place of the file, go to out,
 * its ColumnChunk to t; the column begins anew.
 */
void parquet_column_end(struct parquet_column *c, int64_t at,
	struct parquet_pieces *out, struct parquet_chunk *chunk,
	struct parquet_thrift *t);

#endif
