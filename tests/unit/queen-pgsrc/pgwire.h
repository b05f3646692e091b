/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages as the server sends them, built by hand.  Values of a row: NULL is
 * null, "\1" is unchanged, anything else text; the list ends at WIRE_END.
 */
#ifndef QUEEN_TEST_PGWIRE_H
#define QUEEN_TEST_PGWIRE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "buf.h"

#define WIRE_END "\2"
#define WIRE_UNCHANGED "\1"

static inline void
wire_be(struct buf *b, uint64_t v, int n)
{
	for (int i = n - 1; i >= 0; i--)
		buf_putc(b, (char)(v >> (8 * i)));
}

static inline void
wire_cstr(struct buf *b, const char *s)
{
	buf_put(b, s, strlen(s) + 1);
}

/* at_us since 1970 */
static inline void
wire_begin(struct buf *b, uint64_t final_lsn, int64_t at_us, uint32_t xid)
{
	buf_reset(b);
	buf_putc(b, 'B');
	wire_be(b, final_lsn, 8);
	wire_be(b, (uint64_t)(at_us - 946684800000000), 8);
	wire_be(b, xid, 4);
}

static inline void
wire_commit(struct buf *b, uint64_t lsn, uint64_t end_lsn)
{
	buf_reset(b);
	buf_putc(b, 'C');
	buf_putc(b, 0);
	wire_be(b, lsn, 8);
	wire_be(b, end_lsn, 8);
	wire_be(b, 0, 8);
}

/* columns: "name", "*name" for a key column; types in parallel */
static inline void
wire_relation(struct buf *b, uint32_t oid, const char *schema, const char *name,
	char identity, const char *const *columns, const uint32_t *types,
	size_t n)
{
	buf_reset(b);
	buf_putc(b, 'R');
	wire_be(b, oid, 4);
	wire_cstr(b, schema);
	wire_cstr(b, name);
	buf_putc(b, identity);
	wire_be(b, n, 2);
	for (size_t i = 0; i < n; i++) {
		bool key = columns[i][0] == '*';

		buf_putc(b, key);
		wire_cstr(b, columns[i] + key);
		wire_be(b, types[i], 4);
		wire_be(b, UINT32_MAX, 4);
	}
}

static inline void
wire_vrow(struct buf *b, char mark, va_list ap)
{
	size_t at, n = 0;
	const char *s;

	buf_putc(b, mark);
	at = b->len;
	wire_be(b, 0, 2);
	while (!(s = va_arg(ap, const char *)) || strcmp(s, WIRE_END) != 0) {
		n++;
		if (!s) {
			buf_putc(b, 'n');
		} else if (strcmp(s, WIRE_UNCHANGED) == 0) {
			buf_putc(b, 'u');
		} else {
			buf_putc(b, 't');
			wire_be(b, strlen(s), 4);
			buf_puts(b, s);
		}
	}
	b->p[at] = (char)(n >> 8);
	b->p[at + 1] = (char)n;
}

/* Appends a row: mark N, K or O. */
static inline void
wire_row(struct buf *b, int mark, ...)
{
	va_list ap;

	va_start(ap, mark);
	wire_vrow(b, (char)mark, ap);
	va_end(ap);
}

/* Begins I, U or D; rows follow by wire_row. */
static inline void
wire_change(struct buf *b, char tag, uint32_t oid)
{
	buf_reset(b);
	buf_putc(b, tag);
	wire_be(b, oid, 4);
}

static inline void
wire_insert(struct buf *b, uint32_t oid, ...)
{
	va_list ap;

	wire_change(b, 'I', oid);
	va_start(ap, oid);
	wire_vrow(b, 'N', ap);
	va_end(ap);
}

static inline void
wire_truncate(struct buf *b, int options, const uint32_t *oids, size_t n)
{
	buf_reset(b);
	buf_putc(b, 'T');
	wire_be(b, n, 4);
	wire_be(b, (uint64_t)options, 1);
	for (size_t i = 0; i < n; i++)
		wire_be(b, oids[i], 4);
}

static inline void
wire_message(struct buf *b, bool transactional, uint64_t lsn,
	const char *prefix, const char *content)
{
	buf_reset(b);
	buf_putc(b, 'M');
	wire_be(b, transactional, 1);
	wire_be(b, lsn, 8);
	wire_cstr(b, prefix);
	wire_be(b, strlen(content), 4);
	buf_puts(b, content);
}

#endif
