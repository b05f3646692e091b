/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rule per setting, whichever source states it: its names, what it is,
 * its default, the words or the range.
 */
#include <stdarg.h>
#include <stddef.h>

#include "buf.h"
#include "err.h"
#include "jspan.h"
#include "s3conf_int.h"

static const struct s3conf_word sses[] = { { "AES256", S3_SSE_AES256 },
	{ "aws:kms", S3_SSE_KMS }, { "kms", S3_SSE_KMS }, { .name = NULL } };
static const struct s3conf_word formats[] = { { "jsonl", S3_JSONL },
	{ "json", S3_JSONL }, { "ndjson", S3_JSONL }, { "parquet", S3_PARQUET },
	{ .name = NULL } };
static const struct s3conf_word text_codecs[] = { { "zstd", S3_ZSTD },
	{ "zst", S3_ZSTD }, { "gzip", S3_GZIP }, { "gz", S3_GZIP },
	{ "none", S3_PLAIN }, { "off", S3_PLAIN }, { .name = NULL } };
static const struct s3conf_word page_codecs[] = { { "zstd", S3_ZSTD },
	{ "zst", S3_ZSTD }, { "snappy", S3_SNAPPY }, { "snap", S3_SNAPPY },
	{ .name = NULL } };
static const struct s3conf_word layouts[] = { { "merged", S3_MERGED },
	{ "per-partition", S3_PER_PARTITION },
	{ "per_partition", S3_PER_PARTITION },
	{ "perpartition", S3_PER_PARTITION }, { .name = NULL } };
static const struct s3conf_word aligns[] = { { "hour", S3_HOUR },
	{ "hourly", S3_HOUR }, { "day", S3_DAY }, { "daily", S3_DAY },
	{ "none", S3_UNALIGNED }, { "off", S3_UNALIGNED }, { .name = NULL } };
const struct s3conf_word s3conf_starts[] = { { "latest", S3_LATEST },
	{ "now", S3_LATEST }, { "end", S3_LATEST }, { "earliest", S3_EARLIEST },
	{ "beginning", S3_EARLIEST }, { .name = NULL } };

const struct s3conf_rule s3conf_rules[S3CONF_KEYS] = {
#define AT(member) offsetof(struct s3conf, member)
	[S3CONF_QUEUES] = { "QUEEN_S3_QUEUES", "queues",
		"a comma list of queues, or * for all of them", S3CONF_IS_OWN,
		true, .own = s3conf_set_queues },
	[S3CONF_ENDPOINT] = { "QUEEN_S3_ENDPOINT", "endpoint",
		"the address of the store, as https://s3.example.com",
		S3CONF_IS_OWN, true, .own = s3conf_set_endpoint },
	[S3CONF_REGION] = { "QUEEN_S3_REGION", "region",
		"the region that requests are signed for, as us-east-1",
		S3CONF_IS_TEXT, true, .at = AT(region) },
	[S3CONF_BUCKET] = { "QUEEN_S3_BUCKET", "bucket",
		"the bucket that is written to", S3CONF_IS_TEXT, true,
		.at = AT(bucket) },
	[S3CONF_ACCESS_KEY] = { "QUEEN_S3_ACCESS_KEY", "accessKey",
		"the id of the access key", S3CONF_IS_TEXT, true,
		.at = AT(access_key) },
	[S3CONF_SECRET_KEY] = { "QUEEN_S3_SECRET_KEY", NULL,
		"the secret of the access key", S3CONF_IS_SECRET, true,
		.at = AT(secret_key) },
	[S3CONF_PREFIX] = { "QUEEN_S3_PREFIX", "prefix",
		"the path that every key begins with", S3CONF_IS_OWN,
		.dflt = "queen", .own = s3conf_set_prefix },
	[S3CONF_PATH_STYLE] = { "QUEEN_S3_PATH_STYLE", "pathStyle",
		"whether the bucket is in the path, not in the host name",
		S3CONF_IS_BOOLEAN, .dflt = "false", .at = AT(path_style) },
	[S3CONF_SSE] = { "QUEEN_S3_SSE", "sse",
		"the encryption asked of the store; unset sends no header",
		S3CONF_IS_WORD, .at = AT(sse), .words = sses },
	[S3CONF_KMS_KEY_ID] = { "QUEEN_S3_SSE_KMS_KEY_ID", "sseKmsKeyId",
		"the key of aws:kms", S3CONF_IS_TEXT, .at = AT(kms_key_id) },
	[S3CONF_FORMAT] = { "QUEEN_S3_FORMAT", "format",
		"the format of the objects", S3CONF_IS_WORD, .dflt = "jsonl",
		.at = AT(format), .words = formats },
	[S3CONF_COMPRESSION] = { "QUEEN_S3_COMPRESSION", "compression",
		"the codec of JSONL", S3CONF_IS_WORD, .dflt = "zstd",
		.at = AT(text_codec), .words = text_codecs },
	[S3CONF_PARQUET_CODEC] = { "QUEEN_S3_PARQUET_CODEC", "parquetCodec",
		"the codec of the pages of Parquet", S3CONF_IS_WORD,
		.dflt = "zstd", .at = AT(parquet_codec), .words = page_codecs },
	[S3CONF_LAYOUT] = { "QUEEN_S3_LAYOUT", "layout",
		"one object for a window, or one for each of its partitions",
		S3CONF_IS_WORD, .dflt = "merged", .at = AT(layout),
		.words = layouts },
	[S3CONF_ALIGN] = { "QUEEN_S3_ALIGN", "align",
		"the boundary that no window crosses, in UTC", S3CONF_IS_WORD,
		.dflt = "hour", .at = AT(align), .words = aligns },
	[S3CONF_START] = { "QUEEN_S3_START", "start",
		"where a queue begins that was never committed",
		S3CONF_IS_START, .dflt = "latest" },
	[S3CONF_TARGET_MB] = { "QUEEN_S3_TARGET_MB", "targetMb",
		"the size at which a window closes, in MiB", S3CONF_IS_NUMBER,
		.dflt = "128", .at = AT(target_mb), .min = 1, .max = 5120 },
	[S3CONF_MAX_WINDOW_MS] = { "QUEEN_S3_MAX_WINDOW_MS", "maxWindowMs",
		"the longest that a window stays open, in ms", S3CONF_IS_NUMBER,
		.dflt = "300000", .at = AT(max_window_ms), .min = 100,
		.max = 86400000 },
	[S3CONF_SINK] = { "QUEEN_S3_SINK", "sink",
		"the name that the rows of this sink carry", S3CONF_IS_SINK,
		.dflt = "default" },
};

/* ---- names and refusals ---- */

const char *
s3conf_key_name(const struct s3conf_source *s, enum s3conf_key k)
{
	const struct s3conf_rule *r = &s3conf_rules[k];

	return s->doc && r->field ? r->field : r->env;
}

enum s3conf_key
s3conf_key_of(struct span field)
{
	int k = 0;

	while (k < S3CONF_KEYS &&
		!(s3conf_rules[k].field &&
			span_is(field, s3conf_rules[k].field)))
		k++;
	return (enum s3conf_key)k;
}

void
s3conf_put_fields(struct buf *b)
{
	const char *comma = "";

	for (int k = 0; k < S3CONF_KEYS; k++)
		if (s3conf_rules[k].field) {
			buf_printf(b, "%s%s", comma, s3conf_rules[k].field);
			comma = ", ";
		}
}

/* One line, at most 64 bytes of it, quoted when it is a text of a document. */
static void
put_value(struct buf *b, const struct s3conf_source *s, enum s3conf_key k)
{
	enum { SHOWN_MAX = 64 };
	const struct s3conf_value *v = &s->v[k];
	bool quoted = s->doc && v->is == S3CONF_TEXT;
	struct span whole = span_of(v->text), shown;

	if (k == S3CONF_KMS_KEY_ID || k == S3CONF_ACCESS_KEY) {
		s3conf_put_id(b, v->text ? v->text : "");
		return;
	}
	shown = jspan_utf8(whole) ? span_clip(whole, SHOWN_MAX)
				  : SPAN_LIT("(not UTF-8)");
	if (quoted)
		buf_putc(b, '"');
	for (size_t i = 0; i < shown.n; i++)
		buf_putc(b,
			(unsigned char)shown.p[i] < 0x20 || shown.p[i] == 0x7f
				? '?'
				: shown.p[i]);
	if (shown.n < whole.n)
		buf_puts(b, "...");
	if (quoted)
		buf_putc(b, '"');
}

int
s3conf_refuse(struct s3conf_source *s, enum s3conf_key k, const char *fmt, ...)
{
	const struct s3conf_rule *r = &s3conf_rules[k];
	struct buf b = BUF_ZERO;
	va_list ap;

	buf_puts(&b, s3conf_key_name(s, k));
	if (s->v[k].text && r->kind != S3CONF_IS_SECRET) {
		buf_putc(&b, '=');
		put_value(&b, s, k);
	}
	buf_putc(&b, ' ');
	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	err_set(s->e, s->doc ? ERR_INPUT : ERR_CONFIG, "%.*s",
		SPAN_ARG(span_clip(buf_span(&b), sizeof(s->e->text) - 1)));
	buf_fini(&b);
	return -1;
}
