/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rule per setting, whichever source states it: its names, what it is,
 * its default, the words or the range.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "buf.h"
#include "clk.h"
#include "err.h"
#include "jspan.h"
#include "s3conf_int.h"

/* What one means; the aliases of a word follow it. */
struct word {
	const char *name;
	int value;
};

static const struct word sses[] = { { "AES256", S3_SSE_AES256 },
	{ "aws:kms", S3_SSE_KMS }, { "kms", S3_SSE_KMS }, { .name = NULL } };
static const struct word formats[] = { { "jsonl", S3_JSONL },
	{ "json", S3_JSONL }, { "ndjson", S3_JSONL }, { "parquet", S3_PARQUET },
	{ .name = NULL } };
static const struct word text_codecs[] = { { "zstd", S3_ZSTD },
	{ "zst", S3_ZSTD }, { "gzip", S3_GZIP }, { "gz", S3_GZIP },
	{ "none", S3_PLAIN }, { "off", S3_PLAIN }, { .name = NULL } };
static const struct word page_codecs[] = { { "zstd", S3_ZSTD },
	{ "zst", S3_ZSTD }, { "snappy", S3_SNAPPY }, { "snap", S3_SNAPPY },
	{ .name = NULL } };
static const struct word layouts[] = { { "merged", S3_MERGED },
	{ "per-partition", S3_PER_PARTITION },
	{ "per_partition", S3_PER_PARTITION },
	{ "perpartition", S3_PER_PARTITION }, { .name = NULL } };
static const struct word aligns[] = { { "hour", S3_HOUR },
	{ "hourly", S3_HOUR }, { "day", S3_DAY }, { "daily", S3_DAY },
	{ "none", S3_UNALIGNED }, { "off", S3_UNALIGNED }, { .name = NULL } };
static const struct word starts[] = { { "latest", S3_LATEST },
	{ "now", S3_LATEST }, { "end", S3_LATEST }, { "earliest", S3_EARLIEST },
	{ "beginning", S3_EARLIEST }, { .name = NULL } };

enum kind { TEXT, SECRET, WORD, NUMBER, BOOLEAN, START, SINK, OWN };

static const struct rule {
	const char *env, *field; /* NULL: not in a document */
	const char *what; /* It is ... */
	enum kind kind;
	bool needed;
	const char *dflt;
	size_t at;
	const struct word *words;
	int64_t min, max;
	int (*own)(struct s3conf_source *s);
} rules[S3CONF_KEYS] = {
#define AT(member) offsetof(struct s3conf, member)
	[S3CONF_QUEUES] = { "QUEEN_S3_QUEUES", "queues",
		"a comma list of queues, or * for all of them", OWN, true,
		.own = s3conf_set_queues },
	[S3CONF_ENDPOINT] = { "QUEEN_S3_ENDPOINT", "endpoint",
		"the address of the store, as https://s3.example.com", OWN,
		true, .own = s3conf_set_endpoint },
	[S3CONF_REGION] = { "QUEEN_S3_REGION", "region",
		"the region that requests are signed for, as us-east-1", TEXT,
		true, .at = AT(region) },
	[S3CONF_BUCKET] = { "QUEEN_S3_BUCKET", "bucket",
		"the bucket that is written to", TEXT, true, .at = AT(bucket) },
	[S3CONF_ACCESS_KEY] = { "QUEEN_S3_ACCESS_KEY", "accessKey",
		"the id of the access key", TEXT, true, .at = AT(access_key) },
	[S3CONF_SECRET_KEY] = { "QUEEN_S3_SECRET_KEY", NULL,
		"the secret of the access key", SECRET, true,
		.at = AT(secret_key) },
	[S3CONF_PREFIX] = { "QUEEN_S3_PREFIX", "prefix",
		"the path that every key begins with", OWN, .dflt = "queen",
		.own = s3conf_set_prefix },
	[S3CONF_PATH_STYLE] = { "QUEEN_S3_PATH_STYLE", "pathStyle",
		"whether the bucket is in the path, not in the host name",
		BOOLEAN, .dflt = "false", .at = AT(path_style) },
	[S3CONF_SSE] = { "QUEEN_S3_SSE", "sse",
		"the encryption asked of the store; unset sends no header",
		WORD, .at = AT(sse), .words = sses },
	[S3CONF_KMS_KEY_ID] = { "QUEEN_S3_SSE_KMS_KEY_ID", "sseKmsKeyId",
		"the key of aws:kms", TEXT, .at = AT(kms_key_id) },
	[S3CONF_FORMAT] = { "QUEEN_S3_FORMAT", "format",
		"the format of the objects", WORD, .dflt = "jsonl",
		.at = AT(format), .words = formats },
	[S3CONF_COMPRESSION] = { "QUEEN_S3_COMPRESSION", "compression",
		"the codec of JSONL", WORD, .dflt = "zstd",
		.at = AT(text_codec), .words = text_codecs },
	[S3CONF_PARQUET_CODEC] = { "QUEEN_S3_PARQUET_CODEC", "parquetCodec",
		"the codec of the pages of Parquet", WORD, .dflt = "zstd",
		.at = AT(parquet_codec), .words = page_codecs },
	[S3CONF_LAYOUT] = { "QUEEN_S3_LAYOUT", "layout",
		"one object for a window, or one for each of its partitions",
		WORD, .dflt = "merged", .at = AT(layout), .words = layouts },
	[S3CONF_ALIGN] = { "QUEEN_S3_ALIGN", "align",
		"the boundary that no window crosses, in UTC", WORD,
		.dflt = "hour", .at = AT(align), .words = aligns },
	[S3CONF_START] = { "QUEEN_S3_START", "start",
		"where a queue begins that was never committed", START,
		.dflt = "latest" },
	[S3CONF_TARGET_MB] = { "QUEEN_S3_TARGET_MB", "targetMb",
		"the size at which a window closes, in MiB", NUMBER,
		.dflt = "128", .at = AT(target_mb), .min = 1, .max = 5120 },
	[S3CONF_MAX_WINDOW_MS] = { "QUEEN_S3_MAX_WINDOW_MS", "maxWindowMs",
		"the longest that a window stays open, in ms", NUMBER,
		.dflt = "300000", .at = AT(max_window_ms), .min = 100,
		.max = 86400000 },
	[S3CONF_SINK] = { "QUEEN_S3_SINK", "sink",
		"the name that the rows of this sink carry", SINK,
		.dflt = "default" },
};

/* ---- names and refusals ---- */

const char *
s3conf_key_name(const struct s3conf_source *s, enum s3conf_key k)
{
	const struct rule *r = &rules[k];

	return s->doc && r->field ? r->field : r->env;
}

enum s3conf_key
s3conf_key_of(struct span field)
{
	int k = 0;

	while (k < S3CONF_KEYS &&
		!(rules[k].field && span_is(field, rules[k].field)))
		k++;
	return (enum s3conf_key)k;
}

void
s3conf_put_fields(struct buf *b)
{
	const char *comma = "";

	for (int k = 0; k < S3CONF_KEYS; k++)
		if (rules[k].field) {
			buf_printf(b, "%s%s", comma, rules[k].field);
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
	const struct rule *r = &rules[k];
	struct buf b = BUF_ZERO;
	va_list ap;

	buf_puts(&b, s3conf_key_name(s, k));
	if (s->v[k].text && r->kind != SECRET) {
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

/* ---- kinds ---- */

static void *
place(const struct s3conf_source *s, const struct rule *r)
{
	return (char *)s->c + r->at;
}

/* It goes into a header, a host name or a path as it is. */
static int
set_text(struct s3conf_source *s, enum s3conf_key k)
{
	const char *t = s->v[k].text;

	for (const char *p = t; *p; p++)
		if (*p <= ' ' || *p > '~' ||
			(*p == '/' && k != S3CONF_KMS_KEY_ID))
			return s3conf_refuse(s, k,
				"must be one word of ASCII, no slash, no "
				"space. It is %s",
				rules[k].what);
	*(char **)place(s, &rules[k]) = s3conf_dup(span_of(t));
	return 0;
}

static int
set_bucket(struct s3conf_source *s)
{
	const char *t = s->v[S3CONF_BUCKET].text;

	for (const char *p = t; *p; p++)
		if (!(*p >= 'a' && *p <= 'z') && !(*p >= 'A' && *p <= 'Z') &&
			!(*p >= '0' && *p <= '9') && !strchr("._-", *p))
			return s3conf_refuse(s, S3CONF_BUCKET,
				"must be one name, no slash, no space; a "
				"folder in the bucket is %s",
				s3conf_key_name(s, S3CONF_PREFIX));
	s->c->bucket = s3conf_dup(span_of(t));
	return 0;
}

static int
set_secret(struct s3conf_source *s, enum s3conf_key k)
{
	const char *t = s->v[k].text;

	if (strlen(t) > S3CONF_SECRET_MAX)
		return s3conf_refuse(
			s, k, "is longer than %d bytes", S3CONF_SECRET_MAX);
	s->c->secret_key = s3conf_dup(span_of(t));
	return 0;
}

/* `a (b, c), d`: what follows with the same meaning is an alias. */
static void
put_words(struct buf *b, const struct word *w)
{
	for (const struct word *p = w; p->name; p++) {
		bool alias = p > w && p[-1].value == p->value;
		bool more = p[1].name && p[1].value == p->value;
		bool first_alias =
			alias && (p - 1 == w || p[-2].value != p->value);

		if (p > w)
			buf_puts(b, first_alias ? " (" : ", ");
		buf_puts(b, p->name);
		if (alias && !more)
			buf_putc(b, ')');
	}
}

static const struct word *
find_word(const struct word *w, const char *text)
{
	while (w->name && strcasecmp(w->name, text) != 0)
		w++;
	return w->name ? w : NULL;
}

static int
no_word(struct s3conf_source *s, enum s3conf_key k, const struct word *words,
	const char *more)
{
	struct buf b = BUF_ZERO;
	int rc;

	put_words(&b, words);
	buf_putc(&b, '\0');
	rc = s3conf_refuse(
		s, k, "is not one of %s%s. It is %s", b.p, more, rules[k].what);
	buf_fini(&b);
	return rc;
}

static int
set_word(struct s3conf_source *s, enum s3conf_key k, const char *text)
{
	const struct word *w = find_word(rules[k].words, text);

	if (!w) {
		char more[64] = "";

		if (k == S3CONF_COMPRESSION)
			snprintf(more, sizeof(more), "; that of Parquet is %s",
				s3conf_key_name(s, S3CONF_PARQUET_CODEC));
		return no_word(s, k, rules[k].words, more);
	}
	memcpy(place(s, &rules[k]), &w->value, sizeof(w->value));
	return 0;
}

static int
set_number(struct s3conf_source *s, enum s3conf_key k, const char *text)
{
	const struct rule *r = &rules[k];
	int64_t n;

	if (!span_i64(span_of(text), &n))
		return s3conf_refuse(s, k,
			"is not a whole number. It is %s, in %" PRId64
			"..=%" PRId64,
			r->what, r->min, r->max);
	if (n < r->min || n > r->max)
		return s3conf_refuse(s, k,
			"is outside %" PRId64 "..=%" PRId64 ". It is %s",
			r->min, r->max, r->what);
	memcpy(place(s, r), &n, sizeof(n));
	return 0;
}

static int
set_boolean(struct s3conf_source *s, enum s3conf_key k, const char *text)
{
	static const struct word words[] = { { "true", 1 }, { "1", 1 },
		{ "yes", 1 }, { "on", 1 }, { "false", 0 }, { "0", 0 },
		{ "no", 0 }, { "off", 0 }, { .name = NULL } };
	const struct word *w = find_word(words, text);

	if (!w)
		return s3conf_refuse(s, k,
			"is not a boolean (true/false, 1/0, yes/no, on/off). "
			"It is %s",
			rules[k].what);
	*(bool *)place(s, &rules[k]) = w->value;
	return 0;
}

static int
set_start(struct s3conf_source *s, const char *text)
{
	static const char at[] = "timestamp:";
	enum { N = sizeof(at) - 1 };
	const struct word *w = find_word(starts, text);
	struct span t = span_of(text);

	if (w) {
		s->c->start = (enum s3_start)w->value;
		return 0;
	}
	if (t.n > N && strncasecmp(text, at, N) == 0 && t.p[t.n - 1] == 'Z' &&
		memchr(t.p + N, 'T', t.n - N) &&
		clk_parse_iso(span_make(t.p + N, t.n - N), &s->c->start_us)) {
		s->c->start = S3_TIMESTAMP;
		return 0;
	}
	return no_word(
		s, S3CONF_START, starts, ", timestamp:2026-01-31T00:00:00Z");
}

static int
set_sink(struct s3conf_source *s, const char *text)
{
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				       "abcdefghijklmnopqrstuvwxyz"
				       "0123456789._-";
	size_t n = strlen(text);

	if (n > S3CONF_SINK_MAX || strspn(text, alphabet) != n)
		return s3conf_refuse(s, S3CONF_SINK,
			"must be 1 to %d of A-Z a-z 0-9 . _ -. It is %s, so "
			"two sinks on one queue need different prefixes too",
			S3CONF_SINK_MAX, rules[S3CONF_SINK].what);
	memcpy(s->c->sink, text, n + 1);
	return 0;
}

static int
set_one(struct s3conf_source *s, enum s3conf_key k, const char *text)
{
	const struct rule *r = &rules[k];

	switch (r->kind) {
	case TEXT:
		return k == S3CONF_BUCKET ? set_bucket(s) : set_text(s, k);
	case SECRET:
		return set_secret(s, k);
	case WORD:
		return set_word(s, k, text);
	case NUMBER:
		return set_number(s, k, text);
	case BOOLEAN:
		return set_boolean(s, k, text);
	case START:
		return set_start(s, text);
	case SINK:
		return set_sink(s, text);
	case OWN:
		return r->own(s);
	}
	return 0;
}

/* ---- all of them ---- */

/* JSON that is neither a text nor a list of them. */
static int
set_json(struct s3conf_source *s, enum s3conf_key k)
{
	const struct rule *r = &rules[k];
	const char *t = s->v[k].text;

	if (r->kind == NUMBER)
		return set_number(s, k, t);
	if (r->kind == BOOLEAN)
		return set_boolean(s, k, *t == 't' || *t == 'f' ? t : "");
	return s3conf_refuse(s, k, "is not a text. It is %s", r->what);
}

static int
apply_one(struct s3conf_source *s, enum s3conf_key k)
{
	const struct rule *r = &rules[k];
	const struct s3conf_value *v = &s->v[k];
	struct span t = span_of(v->text);

	if (s->doc && !r->field)
		return 0;
	if (v->is == S3CONF_UNSET && r->needed)
		return s3conf_refuse(s, k, "is not set: it is %s", r->what);
	if (v->is == S3CONF_UNSET)
		return r->dflt ? set_one(s, k, r->dflt) : 0;
	if (v->is == S3CONF_OTHER)
		return set_json(s, k);
	if (t.n && !jspan_utf8(t))
		return s3conf_refuse(s, k, "is no text");
	for (size_t i = 0; i < t.n; i++)
		if ((unsigned char)t.p[i] < 0x20 || t.p[i] == 0x7f)
			return s3conf_refuse(s, k, "holds a control character");
	return set_one(s, k, v->text);
}

/* The bucket goes in front of the host by itself; twice is a folder. */
static int
check_first_label(struct s3conf_source *s)
{
	const char *host = strstr(s->c->endpoint, "://") + 3;
	size_t n = strlen(s->c->bucket);

	if (strncasecmp(host, s->c->bucket, n) == 0 && host[n] == '.')
		return s3conf_refuse(s, S3CONF_ENDPOINT,
			"begins with the bucket: leave it out, %s alone says "
			"where the bucket is put",
			s3conf_key_name(s, S3CONF_PATH_STYLE));
	return 0;
}

int
s3conf_apply(struct s3conf_source *s)
{
	for (int k = 0; k < S3CONF_KEYS; k++)
		if (apply_one(s, (enum s3conf_key)k) < 0)
			return -1;
	if (s->c->kms_key_id && s->c->sse != S3_SSE_KMS)
		return s3conf_refuse(s, S3CONF_KMS_KEY_ID,
			"would be ignored: it is for %s=aws:kms alone",
			s3conf_key_name(s, S3CONF_SSE));
	return check_first_label(s);
}
