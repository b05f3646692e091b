/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One column: values gather in a page, pages are compressed as they fill and
 * kept until the row group closes.
 */
#include <limits.h>
#include <snappy-c.h>
#include <stdlib.h>

#include "err.h"
#include "parquet_int.h"

/*
 * Page and dictionary limits.  They are checked at each row: a
 * page holds one value more than the limit at most.
 */
enum {
	PAGE_BYTES = 1 << 20,
	PAGE_ROWS = 20000,
	DICT_BYTES = 1 << 20,
	/* of levels: two bytes for eight rows at worst, and their length */
	FRONT_BYTES = PAGE_ROWS / 4 + 32
};

void
parquet_pieces_init(struct parquet_pieces *l)
{
	l->first = NULL;
	l->last = &l->first;
}

void
parquet_pieces_fini(struct parquet_pieces *l)
{
	for (struct parquet_piece *p; (p = l->first);) {
		l->first = p->next;
		free(p);
	}
	l->last = &l->first;
}

void
parquet_pieces_add(struct parquet_pieces *l, struct span head, struct span body)
{
	struct parquet_piece *p = malloc(sizeof(*p) + head.n + body.n);

	BUG(!p);
	p->next = NULL;
	p->n = head.n + body.n;
	memcpy(p->b, head.p, head.n);
	if (body.n > 0)
		memcpy(p->b + head.n, body.p, body.n);
	*l->last = p;
	l->last = &p->next;
}

static void
pieces_move(struct parquet_pieces *to, struct parquet_pieces *from)
{
	if (!from->first)
		return;
	*to->last = from->first;
	to->last = from->last;
	parquet_pieces_init(from);
}

static void
page_begin(struct parquet_column *c)
{
	buf_reset(&c->page);
	buf_reserve(&c->page, FRONT_BYTES);
	c->page.len = FRONT_BYTES;
	c->page_rows = 0;
	c->level_n = 0;
	c->runs_n = 0;
	parquet_hybrid_begin(&c->levels, 1);
}

static void
chunk_begin(struct parquet_column *c)
{
	buf_reset(&c->dict);
	c->dict_n = 0;
	c->encoding = c->is->encoding;
	c->stat.any = false;
	c->rows = c->nulls = c->plain_bytes = c->packed_bytes = 0;
	memset(c->pages, 0, sizeof(c->pages));
	page_begin(c);
}

void
parquet_column_init(struct parquet_column *c,
	const struct parquet_column_is *is, struct parquet_pack *pack)
{
	*c = (struct parquet_column){ .is = is, .pack = pack };
	parquet_pieces_init(&c->pieces);
	if (is->encoding == PARQUET_PLAIN_DICTIONARY) {
		c->runs = malloc(PAGE_ROWS * sizeof(uint32_t));
		BUG(!c->runs);
	}
	chunk_begin(c);
}

void
parquet_column_fini(struct parquet_column *c)
{
	parquet_pieces_fini(&c->pieces);
	buf_fini(&c->page);
	buf_fini(&c->dict);
	parquet_hybrid_fini(&c->levels);
	parquet_hybrid_fini(&c->indexes);
	free(c->runs);
}

static void
compress(struct parquet_pack *k, struct span s)
{
	size_t n;
	char *to;

	buf_reset(&k->packed);
	if (k->codec == S3_SNAPPY) {
		n = snappy_max_compressed_length(s.n);
		to = buf_reserve(&k->packed, n);
		BUG(snappy_compress(s.p, s.n, to, &n) != SNAPPY_OK);
	} else {
		n = ZSTD_compressBound(s.n);
		to = buf_reserve(&k->packed, n);
		n = ZSTD_compress2(k->zstd, to, n, s.p, s.n);
		BUG(ZSTD_isError(n));
	}
	k->packed.len = n;
}

/* body, compressed, becomes a page of the chunk, in front or behind. */
static void
put_page(struct parquet_column *c, int type, uint32_t rows, int encoding,
	struct span body, struct parquet_pieces *to)
{
	struct parquet_pack *k = c->pack;
	struct parquet_thrift t;

	compress(k, body);
	BUG(body.n > INT32_MAX || k->packed.len > INT32_MAX);
	buf_reset(&k->head);
	parquet_t_init(&t, &k->head);
	parquet_t_i32(&t, 1, type);
	parquet_t_i32(&t, 2, (int32_t)body.n);
	parquet_t_i32(&t, 3, (int32_t)k->packed.len);
	parquet_t_field(&t, type == PARQUET_DATA_PAGE ? 5 : 7);
	parquet_t_i32(&t, 1, (int32_t)rows);
	parquet_t_i32(&t, 2, encoding);
	if (type == PARQUET_DATA_PAGE) {
		parquet_t_i32(&t, 3, PARQUET_RLE);
		parquet_t_i32(&t, 4, PARQUET_RLE);
	}
	parquet_t_close(&t);
	parquet_t_close(&t);
	parquet_pieces_add(to, buf_span(&k->head), buf_span(&k->packed));
	c->plain_bytes += (int64_t)(k->head.len + body.n);
	c->packed_bytes += (int64_t)(k->head.len + k->packed.len);
}

/* Index of each row of the page, behind a byte that tells its width. */
static void
put_indexes(struct parquet_column *c)
{
	unsigned width = parquet_width(c->dict_n - 1);

	/* Width 0, of a dictionary of one, is not read by all. */
	width = width ? width : 1;
	parquet_hybrid_begin(&c->indexes, width);
	for (uint32_t i = 0; i < c->runs_n; i++)
		parquet_hybrid_run(&c->indexes, c->first_index + i, c->runs[i]);
	parquet_hybrid_end(&c->indexes);
	buf_putc(&c->page, (char)width);
	buf_put_span(&c->page, buf_span(&c->indexes.out));
}

/* Puts it right in front of the values; returns where that begins. */
static size_t
put_front(struct parquet_column *c, size_t at, const void *p, size_t n)
{
	BUG(n > at);
	memcpy(c->page.p + at - n, p, n);
	return at - n;
}

static size_t
put_levels(struct parquet_column *c, size_t at)
{
	char len[4];
	size_t n;

	parquet_hybrid_run(&c->levels, c->level, c->level_n);
	parquet_hybrid_end(&c->levels);
	n = c->levels.out.len;
	for (size_t i = 0; i < sizeof(len); i++)
		len[i] = (char)(n >> 8 * i);
	at = put_front(c, at, c->levels.out.p, n);
	return put_front(c, at, len, sizeof(len));
}

static void
page_end(struct parquet_column *c)
{
	uint8_t head[PARQUET_DELTA_HEAD_MAX];
	size_t n, at = FRONT_BYTES;

	if (c->page_rows == 0)
		return;
	if (c->encoding == PARQUET_PLAIN_DICTIONARY)
		put_indexes(c);
	if (c->encoding == PARQUET_DELTA_BINARY_PACKED) {
		n = parquet_delta_end(&c->delta, &c->page, head);
		at = put_front(c, at, head, n);
	}
	if (c->is->repetition == PARQUET_OPTIONAL)
		at = put_levels(c, at);
	put_page(c, PARQUET_DATA_PAGE, c->page_rows, c->encoding,
		span_make(c->page.p + at, c->page.len - at), &c->pieces);
	c->pages[c->encoding]++;
	page_begin(c);
}

static void
row_end(struct parquet_column *c)
{
	c->rows++;
	c->page_rows++;
	if (c->page_rows == PAGE_ROWS ||
		c->page.len - FRONT_BYTES >= PAGE_BYTES)
		page_end(c);
}

static void
put_plain(struct buf *b, struct span v)
{
	char *p = buf_reserve(b, 4 + v.n);

	for (size_t i = 0; i < 4; i++)
		p[i] = (char)(v.n >> 8 * i);
	if (v.n > 0)
		memcpy(p + 4, v.p, v.n);
	b->len += 4 + v.n;
}

/* False when the dictionary is full. */
static bool
put_name(struct parquet_column *c, struct span v)
{
	uint32_t index;

	if (c->dict_n == 0 ||
		!span_eq(span_make(c->dict.p + c->newest_at, c->newest_n), v)) {
		if (c->dict.len + 4 + v.n > DICT_BYTES)
			return false;
		put_plain(&c->dict, v);
		c->newest_at = c->dict.len - v.n;
		c->newest_n = v.n;
		c->dict_n++;
		parquet_stat_text(&c->stat, v);
	}
	index = c->dict_n - 1;
	if (c->runs_n == 0)
		c->first_index = index;
	if (c->runs_n == index - c->first_index)
		c->runs[c->runs_n++] = 0;
	c->runs[c->runs_n - 1]++;
	return true;
}

static void
put_level(struct parquet_column *c, bool there)
{
	if (c->level != there) {
		parquet_hybrid_run(&c->levels, c->level, c->level_n);
		c->level_n = 0;
		c->level = there;
	}
	c->level_n++;
}

void
parquet_column_text(struct parquet_column *c, struct span v)
{
	if (c->encoding == PARQUET_PLAIN_DICTIONARY && !put_name(c, v)) {
		page_end(c);
		c->encoding = PARQUET_PLAIN;
	}
	if (c->encoding == PARQUET_PLAIN) {
		put_plain(&c->page, v);
		parquet_stat_text(&c->stat, v);
	}
	if (c->is->repetition == PARQUET_OPTIONAL)
		put_level(c, true);
	row_end(c);
}

void
parquet_column_null(struct parquet_column *c)
{
	c->nulls++;
	put_level(c, false);
	row_end(c);
}

void
parquet_column_i64(struct parquet_column *c, int64_t v)
{
	parquet_delta_add(&c->delta, v, &c->page);
	parquet_stat_i64(&c->stat, v);
	row_end(c);
}

static const int encodings[] = { PARQUET_PLAIN, PARQUET_PLAIN_DICTIONARY,
	PARQUET_DELTA_BINARY_PACKED };
enum { ENCODINGS = sizeof(encodings) / sizeof(encodings[0]) };

static void
write_encodings(
	const struct parquet_column *c, bool dict, struct parquet_thrift *t)
{
	bool levels = c->is->repetition == PARQUET_OPTIONAL;
	size_t n = levels;

	for (size_t i = 0; i < ENCODINGS; i++)
		n += c->pages[encodings[i]] > 0 ||
		     (dict && encodings[i] == PARQUET_PLAIN);
	parquet_t_list(t, 2, PARQUET_T_I32, n);
	for (size_t i = 0; i < ENCODINGS; i++)
		if (c->pages[encodings[i]] > 0 ||
			(dict && encodings[i] == PARQUET_PLAIN))
			parquet_t_item_i32(t, encodings[i]);
	if (levels)
		parquet_t_item_i32(t, PARQUET_RLE);
}

static void
write_page_count(
	struct parquet_thrift *t, int type, int encoding, int32_t count)
{
	if (count == 0)
		return;
	parquet_t_item(t);
	parquet_t_i32(t, 1, type);
	parquet_t_i32(t, 2, encoding);
	parquet_t_i32(t, 3, count);
	parquet_t_close(t);
}

/* Tells a reader whether the dictionary names all values of the chunk. */
static void
write_page_counts(
	const struct parquet_column *c, bool dict, struct parquet_thrift *t)
{
	size_t n = dict;

	for (size_t i = 0; i < ENCODINGS; i++)
		n += c->pages[encodings[i]] > 0;
	parquet_t_list(t, 13, PARQUET_T_STRUCT, n);
	write_page_count(t, PARQUET_DICTIONARY_PAGE, PARQUET_PLAIN, dict);
	for (size_t i = 0; i < ENCODINGS; i++)
		write_page_count(t, PARQUET_DATA_PAGE, encodings[i],
			c->pages[encodings[i]]);
}

/* data_at: of the first data page. */
static void
write_meta(const struct parquet_column *c, int64_t at, int64_t data_at,
	struct parquet_thrift *t)
{
	bool dict = data_at > at;

	parquet_t_item(t);
	parquet_t_i64(t, 2, 0); /* no metadata outside the footer */
	parquet_t_field(t, 3);
	parquet_t_i32(t, 1, c->is->type);
	write_encodings(c, dict, t);
	parquet_t_list(t, 3, PARQUET_T_BINARY, 1);
	parquet_t_item_text(t, span_of(c->is->name));
	parquet_t_i32(t, 4,
		c->pack->codec == S3_SNAPPY ? PARQUET_SNAPPY : PARQUET_ZSTD);
	parquet_t_i64(t, 5, c->rows);
	parquet_t_i64(t, 6, c->plain_bytes);
	parquet_t_i64(t, 7, c->packed_bytes);
	parquet_t_i64(t, 9, data_at);
	if (dict)
		parquet_t_i64(t, 11, at);
	parquet_stat_write(&c->stat, c->is->type, c->nulls, t, 12);
	write_page_counts(c, dict, t);
	parquet_t_close(t);
	parquet_t_close(t);
}

void
parquet_column_end(struct parquet_column *c, int64_t at,
	struct parquet_pieces *out, struct parquet_chunk *chunk,
	struct parquet_thrift *t)
{
	int64_t data_at = at, packed;

	page_end(c);
	packed = c->packed_bytes;
	if (c->pages[PARQUET_PLAIN_DICTIONARY] > 0) {
		put_page(c, PARQUET_DICTIONARY_PAGE, c->dict_n, PARQUET_PLAIN,
			buf_span(&c->dict), out);
		data_at += c->packed_bytes - packed;
	}
	pieces_move(out, &c->pieces);
	write_meta(c, at, data_at, t);
	chunk->plain_bytes = c->plain_bytes;
	chunk->packed_bytes = c->packed_bytes;
	chunk_begin(c);
}
