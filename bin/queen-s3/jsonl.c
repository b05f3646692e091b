/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSONL.  Lines gather in one buffer that goes to the codec in steps; the
 * codec writes into the object.  What repeats from record to record, the
 * partition in its quotes and the time, is kept as text.
 */
#include "jsonl.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "clk.h"
#include "err.h"
#include "format.h"
#include "format_int.h"
#include "jwrite.h"
#include "object.h"

/* What is written here is read again while it is in the nearest cache. */
enum { STEP_BYTES = 16 << 10 };

struct jsonl {
	struct object *out; /* NULL: nothing is kept any more */
	ZSTD_CCtx *zstd;
	struct archive *gzip;
	struct buf lines; /* not yet with the codec */
	struct buf partition; /* raw */
	struct buf head; /* {"partition":"...","offset": */
	int64_t ts_us;
	struct buf ts; /* ,"ts":"...","payload": */
};

static int
pack_zstd(struct jsonl *j, ZSTD_EndDirective how, struct err *e)
{
	ZSTD_inBuffer in = { j->lines.p, j->lines.len, 0 };
	size_t left, room;

	do {
		ZSTD_outBuffer to = { object_room(j->out, &room), 0, 0 };

		to.size = room;
		left = ZSTD_compressStream2(j->zstd, &to, &in, how);
		if (ZSTD_isError(left))
			return err_set(e, ERR_BUG, "zstd: %s",
				ZSTD_getErrorName(left));
		object_took(j->out, to.pos);
	} while (in.pos < in.size || (how == ZSTD_e_end && left > 0));
	return 0;
}

static int
pack_gzip(struct jsonl *j, struct err *e)
{
	size_t n = j->lines.len;

	if (archive_write_data(j->gzip, j->lines.p, n) != (la_ssize_t)n)
		return err_set(
			e, ERR_BUG, "gzip: %s", archive_error_string(j->gzip));
	return 0;
}

/* The lines so far go to the codec. */
static int
pack(struct jsonl *j, struct err *e)
{
	int rc = 0;

	if (j->lines.len == 0)
		return 0;
	if (j->zstd)
		rc = pack_zstd(j, ZSTD_e_continue, e);
	else if (j->gzip)
		rc = pack_gzip(j, e);
	else
		object_put(j->out, j->lines.p, j->lines.len);
	buf_reset(&j->lines);
	return rc;
}

static la_ssize_t
on_gzip(struct archive *a, void *arg, const void *p, size_t n)
{
	struct jsonl *j = arg;

	(void)a;
	if (j->out)
		object_put(j->out, p, n);
	return (la_ssize_t)n;
}

/*
 * The bare filter is not to be had; a raw archive of one entry is its output
 * and nothing else.  Without a block size nothing is gathered or padded.
 */
static int
gzip_open(struct jsonl *j, struct err *e)
{
	struct archive_entry *entry = archive_entry_new();
	struct archive *a = j->gzip = archive_write_new();
	int rc = ARCHIVE_FATAL;

	BUG(!a || !entry);
	archive_entry_set_pathname(entry, "lines");
	archive_entry_set_filetype(entry, AE_IFREG);
	if (archive_write_set_format_raw(a) == ARCHIVE_OK &&
		archive_write_add_filter_gzip(a) == ARCHIVE_OK &&
		archive_write_set_filter_option(
			a, "gzip", "compression-level", "6") == ARCHIVE_OK &&
		archive_write_set_filter_option(a, "gzip", "timestamp", NULL) ==
			ARCHIVE_OK &&
		archive_write_set_bytes_per_block(a, 0) == ARCHIVE_OK &&
		archive_write_open(a, j, NULL, on_gzip, NULL) == ARCHIVE_OK)
		rc = archive_write_header(a, entry);
	archive_entry_free(entry);
	if (rc != ARCHIVE_OK)
		return err_set(e, ERR_BUG, "gzip: %s", archive_error_string(a));
	return 0;
}

static void
turn_to_time(struct jsonl *j, int64_t ts_us)
{
	char iso[CLK_ISO_MAX];

	j->ts_us = ts_us;
	buf_reset(&j->ts);
	buf_puts(&j->ts, ",\"ts\":\"");
	buf_puts(&j->ts, clk_iso_us(ts_us, iso));
	buf_puts(&j->ts, "\",\"payload\":");
}

struct jsonl *
jsonl_new(enum s3_codec c, struct object *out, struct err *e)
{
	struct jsonl *j;

	if (c == S3_SNAPPY) {
		err_set(e, ERR_CONFIG, "lines have no codec snappy");
		return NULL;
	}
	j = calloc(1, sizeof(*j));
	BUG(!j);
	j->out = out;
	turn_to_time(j, 0);
	if (c == S3_ZSTD)
		j->zstd = format_zstd_take();
	if (c == S3_GZIP && gzip_open(j, e) < 0) {
		jsonl_free(j);
		return NULL;
	}
	return j;
}

void
jsonl_free(struct jsonl *j)
{
	if (!j)
		return;
	format_zstd_give(j->zstd);
	/* Freed without its close it would leak; the close writes. */
	j->out = NULL;
	archive_write_free(j->gzip);
	buf_fini(&j->lines);
	buf_fini(&j->partition);
	buf_fini(&j->head);
	buf_fini(&j->ts);
	free(j);
}

static void
turn_to(struct jsonl *j, struct span partition)
{
	buf_reset(&j->partition);
	buf_put_span(&j->partition, partition);
	buf_reset(&j->head);
	buf_puts(&j->head, "{\"partition\":");
	jwrite_quoted(&j->head, partition);
	buf_puts(&j->head, ",\"offset\":");
}

static void
put_lit(struct buf *b, const char *s, size_t n)
{
	buf_put(b, s, n);
}
#define PUT(b, lit) put_lit((b), (lit), sizeof(lit) - 1)

static void
put_front(struct jsonl *j, const struct record *r)
{
	struct buf *b = &j->lines;
	struct jwrite w;

	if (j->head.len == 0 || !span_eq(buf_span(&j->partition), r->partition))
		turn_to(j, r->partition);
	if (r->ts_us != j->ts_us)
		turn_to_time(j, r->ts_us);
	buf_put_span(b, buf_span(&j->head));
	jwrite_init(&w, b);
	jwrite_i64(&w, r->offset);
	PUT(b, ",\"transactionId\":");
	jwrite_quoted(b, r->txn);
	buf_put_span(b, buf_span(&j->ts));
}

static void
blank(char *p, size_t n, char c)
{
	char *end = p + n;

	while ((p = memchr(p, c, (size_t)(end - p))))
		*p++ = ' ';
}

/*
 * A line break in valid JSON is white space between tokens.  A large payload
 * passes in steps.
 */
static int
put_payload(struct jsonl *j, struct span s, struct err *e)
{
	while (s.n > 0) {
		size_t n = s.n < STEP_BYTES ? s.n : STEP_BYTES;

		buf_put(&j->lines, s.p, n);
		blank(j->lines.p + j->lines.len - n, n, '\n');
		blank(j->lines.p + j->lines.len - n, n, '\r');
		s.p += n;
		s.n -= n;
		if (j->lines.len >= STEP_BYTES && pack(j, e) < 0)
			return -1;
	}
	return 0;
}

int
jsonl_add(struct jsonl *j, const struct record *r, struct err *e)
{
	struct span payload = r->null ? SPAN_LIT("null") : r->payload;

	put_front(j, r);
	if (put_payload(j, payload, e) < 0)
		return -1;
	PUT(&j->lines, "}\n");
	return 0;
}

int
jsonl_finish(struct jsonl *j, struct err *e)
{
	if (pack(j, e) < 0)
		return -1;
	if (j->zstd)
		return pack_zstd(j, ZSTD_e_end, e);
	if (j->gzip && archive_write_close(j->gzip) != ARCHIVE_OK)
		return err_set(
			e, ERR_BUG, "gzip: %s", archive_error_string(j->gzip));
	return 0;
}
