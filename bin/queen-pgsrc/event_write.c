/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event bytes.  Hot: one per changed row, so members are appended as they
 * stand, without a writer's state; names of columns come ready from the shape.
 */
#include "event.h"

#include "buf.h"
#include "clk.h"
#include "jwrite.h"
#include "pgoutput.h"
#include "shape.h"
#include "value.h"
#include "wal.h"

static void
put_lit(struct buf *b, struct span s)
{
	buf_put_span(b, s);
}

static void
put_u64(struct buf *b, uint64_t v)
{
	char text[20];
	size_t at = sizeof(text);

	do {
		text[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v > 0);
	buf_put(b, text + at, sizeof(text) - at);
}

static void
put_datum(struct buf *b, const struct shape_column *c, const struct datum *d)
{
	buf_put_span(b, c->json_key);
	if (d->state == DATUM_TEXT)
		value_write(b, c->type, d->text);
	else
		buf_put(b, "null", 4);
}

static void
put_key(struct buf *b, const struct shape *s, const struct tuple *row)
{
	buf_putc(b, '{');
	for (size_t i = 0; i < s->key_n; i++) {
		size_t c = s->key[i];

		if (i > 0)
			buf_putc(b, ',');
		put_datum(b, &s->columns[c], &row->d[c]);
	}
	buf_putc(b, '}');
}

static bool
has_bit(const uint64_t *bits, size_t i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

static bool
is_key(const struct shape *s, size_t column)
{
	for (size_t i = 0; i < s->key_n; i++) {
		if (s->key[i] == column)
			return true;
	}
	return false;
}

/* Is the column part of `after`?  Fills carry the key and some columns. */
static bool
carries(const struct shape *s, const struct tuple *row, const uint64_t *fill,
	size_t column)
{
	if (fill)
		return has_bit(fill, column) || is_key(s, column);
	return row->d[column].state != DATUM_UNCHANGED;
}

/* True when a column was left out. */
static bool
put_row(struct buf *b, const struct shape *s, const struct tuple *row,
	const uint64_t *fill)
{
	bool first = true, left_out = false;

	buf_putc(b, '{');
	for (size_t i = 0; i < s->n; i++) {
		if (!carries(s, row, fill, i)) {
			left_out = true;
			continue;
		}
		if (!first)
			buf_putc(b, ',');
		first = false;
		put_datum(b, &s->columns[i], &row->d[i]);
	}
	buf_putc(b, '}');
	return left_out;
}

static void
put_unchanged(struct buf *b, const struct shape *s, const struct tuple *row,
	const uint64_t *fill)
{
	bool first = true;

	put_lit(b, SPAN_LIT(",\"unchanged\":["));
	for (size_t i = 0; i < s->n; i++) {
		if (carries(s, row, fill, i))
			continue;
		if (!first)
			buf_putc(b, ',');
		first = false;
		/* the key without its colon */
		buf_put(b, s->columns[i].json_key.p,
			s->columns[i].json_key.n - 1);
	}
	buf_putc(b, ']');
}

void
event_time(struct buf *b, int64_t at_us)
{
	/* the calendar repeats after 400 years of 146097 days */
	const int64_t cycle_us = INT64_C(146097) * 86400000000;
	const int64_t year0_us = INT64_C(-719528) * 86400000000;
	const int64_t year10000_us = INT64_C(2932897) * 86400000000;
	char text[CLK_ISO_MAX];
	long year = 0;

	buf_putc(b, '"');
	if (at_us >= year0_us && at_us < year10000_us) {
		buf_puts(b, clk_iso_us(at_us, text));
	} else {
		for (; at_us < year0_us; at_us += cycle_us)
			year -= 400;
		for (; at_us >= year10000_us; at_us -= cycle_us)
			year += 400;
		clk_iso_us(at_us, text);
		for (int i = 0, place = 1000; i < 4; i++, place /= 10)
			year += (text[i] - '0') * place;
		buf_printf(b, "%+07ld%s", year, text + 4);
	}
	buf_putc(b, '"');
}

/* lsn, xid, ts, seq and the end. */
static void
put_at(struct buf *b, const struct event_at *at)
{
	char lsn[WAL_LSN_MAX];

	put_lit(b, SPAN_LIT(",\"lsn\":\""));
	buf_puts(b, wal_lsn_text(at->lsn, lsn));
	buf_putc(b, '"');
	if (!at->snapshot) {
		put_lit(b, SPAN_LIT(",\"xid\":"));
		put_u64(b, at->xid);
	}
	put_lit(b, SPAN_LIT(",\"ts\":"));
	event_time(b, at->at_us);
	put_lit(b, SPAN_LIT(",\"seq\":"));
	put_u64(b, at->seq);
	buf_putc(b, '}');
}

static void
put_head(struct buf *b, char op, const struct shape *s, const struct tuple *key)
{
	put_lit(b, SPAN_LIT("{\"op\":\""));
	buf_putc(b, op);
	put_lit(b, SPAN_LIT("\",\"table\":"));
	jwrite_quoted(b, s->table->label);
	put_lit(b, SPAN_LIT(",\"key\":"));
	put_key(b, s, key);
	put_lit(b, SPAN_LIT(",\"after\":"));
}

void
event_write(struct buf *b, const struct shape *s, const struct event *ev,
	const struct event_at *at)
{
	bool left_out = false;

	put_head(b, ev->op, s, ev->key);
	if (ev->after)
		left_out = put_row(b, s, ev->after, NULL);
	else
		put_lit(b, SPAN_LIT("null"));
	put_lit(b, SPAN_LIT(",\"before\":"));
	if (!ev->before)
		put_lit(b, SPAN_LIT("null"));
	else if (ev->before_is_key)
		put_key(b, s, ev->before);
	else
		put_row(b, s, ev->before, NULL);
	if (left_out)
		put_unchanged(b, s, ev->after, NULL);
	put_at(b, at);
}

void
event_write_fill(struct buf *b, const struct shape *s, const struct tuple *row,
	const uint64_t *columns, const struct event_at *at)
{
	bool left_out;

	put_head(b, 'u', s, row);
	left_out = put_row(b, s, row, columns);
	put_lit(b, SPAN_LIT(",\"before\":null"));
	if (left_out)
		put_unchanged(b, s, row, columns);
	put_at(b, at);
}

void
event_write_truncate(struct buf *b, const struct span *tables, size_t n,
	const struct pgoutput_truncate *t, const struct event_at *at)
{
	put_lit(b, SPAN_LIT("{\"op\":\"t\",\"tables\":["));
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			buf_putc(b, ',');
		jwrite_quoted(b, tables[i]);
	}
	put_lit(b, SPAN_LIT("],\"cascade\":"));
	buf_puts(b, t->cascade ? "true" : "false");
	put_lit(b, SPAN_LIT(",\"restartIdentity\":"));
	buf_puts(b, t->restart_identity ? "true" : "false");
	put_at(b, at);
}

/* ---- ids ---- */

/* Sixteen upper-case hex digits. */
static void
put_hex16(struct buf *b, uint64_t v)
{
	char *p = buf_reserve(b, 16);

	for (int i = 15; i >= 0; i--, v >>= 4)
		p[i] = "0123456789ABCDEF"[v & 15];
	b->len += 16;
}

static void
put_id(struct buf *b, const char *epoch, const struct event_at *at,
	const char *mark)
{
	put_lit(b, SPAN_LIT("pg:"));
	buf_puts(b, epoch);
	buf_puts(b, at->snapshot ? ":s:" : ":");
	put_hex16(b, at->lsn);
	buf_putc(b, ':');
	buf_puts(b, mark);
	put_u64(b, at->seq);
}

void
event_id(
	struct buf *b, const char *epoch, const struct event_at *at, size_t nth)
{
	put_id(b, epoch, at, "");
	if (nth > 0) {
		buf_putc(b, '.');
		put_u64(b, nth);
	}
}

void
event_fill_id(struct buf *b, const char *epoch, const struct event_at *at)
{
	put_id(b, epoch, at, "f");
}
