/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a sink: each rule from both sources, refusals, the line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "err.h"
#include "s3conf.h"

/* ---- sources ---- */

/* name, value, name, value, ..., NULL: over the smallest configuration. */
static const char *const smallest[] = { "QUEEN_S3_QUEUES", "orders",
	"QUEEN_S3_ENDPOINT", "https://s3.example.com", "QUEEN_S3_REGION",
	"us-east-1", "QUEEN_S3_BUCKET", "my-lake", "QUEEN_S3_ACCESS_KEY",
	"AKIAEXAMPLE", "QUEEN_S3_SECRET_KEY", "s3cr3t", NULL };

static const char *
find(const char *const *pairs, const char *name)
{
	for (; *pairs; pairs += 2)
		if (strcmp(pairs[0], name) == 0)
			return pairs[1];
	return NULL;
}

/* "" in the pairs: not set at all. */
static const char *
get_over(void *arg, const char *name)
{
	const char *v = find(arg, name);

	return v ? (*v ? v : NULL) : find(smallest, name);
}

static const char *
get_alone(void *arg, const char *name)
{
	return find(arg, name);
}

static struct err e;

static int
over(struct s3conf *c, const char *const *pairs)
{
	e = (struct err)ERR_ZERO;
	/* the callback gets it as it was given */
	return s3conf_from_env(c, get_over, (void *)(uintptr_t)pairs, &e);
}

#define OVER(c, ...) over((c), (const char *const[]){ __VA_ARGS__, NULL })

static void
refused(const char *const *pairs, const char *text)
{
	struct s3conf c;

	assert_int_equal(over(&c, pairs), -1);
	assert_int_equal(e.kind, ERR_CONFIG);
	assert_string_equal(e.text, text);
	assert_null(strstr(e.text, "s3cr3t"));
}

#define REFUSED(text, ...)                                                     \
	refused((const char *const[]){ __VA_ARGS__, NULL }, text)

#define BASE                                                                   \
	"\"queues\":\"orders\",\"endpoint\":\"https://s3.example.com\","       \
	"\"region\":\"us-east-1\",\"bucket\":\"my-lake\","                     \
	"\"accessKey\":\"AKIAEXAMPLE\""

static int
doc(struct s3conf *c, const char *json)
{
	e = (struct err)ERR_ZERO;
	return s3conf_from_doc(c, span_of(json), &e);
}

static void
doc_refused(const char *json, const char *text)
{
	struct s3conf c;

	assert_int_equal(doc(&c, json), -1);
	assert_int_equal(e.kind, ERR_INPUT);
	assert_string_equal(e.text, text);
}

/* ---- the environment ---- */

static void
smallest_has_every_default(void **state)
{
	struct s3conf c;
	(void)state;

	assert_int_equal(over(&c, (const char *const[]){ NULL }), 0);
	assert_false(c.all_queues);
	assert_int_equal(c.queues_n, 1);
	assert_string_equal(c.queues[0], "orders");
	assert_string_equal(c.endpoint, "https://s3.example.com");
	assert_string_equal(c.region, "us-east-1");
	assert_string_equal(c.bucket, "my-lake");
	assert_string_equal(c.access_key, "AKIAEXAMPLE");
	assert_string_equal(c.secret_key, "s3cr3t");
	assert_string_equal(c.prefix, "queen");
	assert_false(c.path_style);
	assert_int_equal(c.sse, S3_SSE_NONE);
	assert_null(c.kms_key_id);
	assert_int_equal(c.format, S3_JSONL);
	assert_int_equal(c.text_codec, S3_ZSTD);
	assert_int_equal(c.parquet_codec, S3_ZSTD);
	assert_int_equal(c.layout, S3_MERGED);
	assert_int_equal(c.align, S3_HOUR);
	assert_int_equal(c.start, S3_LATEST);
	assert_int_equal(c.target_mb, 128);
	assert_int_equal(c.max_window_ms, 300000);
	assert_string_equal(c.sink, "default");
	s3conf_fini(&c);
}

static void
what_is_missing_is_named(void **state)
{
	static const char *const names[] = { "QUEEN_S3_ENDPOINT",
		"QUEEN_S3_REGION", "QUEEN_S3_BUCKET", "QUEEN_S3_ACCESS_KEY",
		"QUEEN_S3_SECRET_KEY" };
	(void)state;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct s3conf c;
		char start[64];

		/* blank is not set */
		assert_int_equal(OVER(&c, names[i], " \t"), -1);
		snprintf(start, sizeof(start), "%s is not set: it is ",
			names[i]);
		assert_memory_equal(e.text, start, strlen(start));
	}
	REFUSED("QUEEN_S3_BUCKET is not set: it is the bucket that is written "
		"to",
		"QUEEN_S3_BUCKET", "");
}

static void
blank_is_the_default(void **state)
{
	struct s3conf c;
	(void)state;

	assert_int_equal(OVER(&c, "QUEEN_S3_FORMAT", "  ", "QUEEN_S3_TARGET_MB",
				 " ", "QUEEN_S3_SSE", "\t", "QUEEN_S3_PREFIX",
				 " ", "QUEEN_S3_REGION", " auto "),
		0);
	assert_int_equal(c.target_mb, 128);
	assert_string_equal(c.prefix, "queen");
	assert_string_equal(c.region, "auto");
	s3conf_fini(&c);
}

static void
without_queues_there_is_no_sink(void **state)
{
	struct s3conf c;
	(void)state;

	assert_int_equal(s3conf_from_env(&c, get_alone,
				 (void *)(const char *[]){ NULL }, &e),
		1);
	REFUSED("QUEEN_S3_ENDPOINT is set, but QUEEN_S3_QUEUES is not, which "
		"turns the sink of the environment on: set it, or unset the "
		"other to run the sinks of tenants alone",
		"QUEEN_S3_QUEUES", "");
}

static void
lists_of_queues(void **state)
{
	struct s3conf c;
	(void)state;

	assert_int_equal(
		OVER(&c, "QUEEN_S3_QUEUES", " clicks, orders ,,a b,orders,"),
		0);
	assert_int_equal(c.queues_n, 3);
	assert_string_equal(c.queues[0], "clicks");
	assert_string_equal(c.queues[1], "orders");
	assert_string_equal(c.queues[2], "a b");
	s3conf_fini(&c);
	assert_int_equal(OVER(&c, "QUEEN_S3_QUEUES", " * "), 0);
	assert_true(c.all_queues);
	assert_int_equal(c.queues_n, 0);
	s3conf_fini(&c);
	REFUSED("QUEEN_S3_QUEUES=, , names no queue", "QUEEN_S3_QUEUES", ", ,");
	REFUSED("QUEEN_S3_QUEUES=a,* holds * among names: alone and as a text "
		"it is every queue",
		"QUEEN_S3_QUEUES", "a,*");
}

static void
endpoints_have_no_path(void **state)
{
	static const char *const good[][2] = {
		{ "http://localhost:9000", "http://localhost:9000" },
		{ "HTTPS://s3.example.com/", "https://s3.example.com" },
		{ "https://[::1]:443/", "https://[::1]:443" },
		{ "http://10.0.0.1", "http://10.0.0.1" },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct s3conf c;

		assert_int_equal(OVER(&c, "QUEEN_S3_ENDPOINT", good[i][0]), 0);
		assert_string_equal(c.endpoint, good[i][1]);
		s3conf_fini(&c);
	}
#define E(value, why)                                                          \
	REFUSED("QUEEN_S3_ENDPOINT=" value " " why, "QUEEN_S3_ENDPOINT", value)
	E("s3.example.com",
		"has no scheme: it begins with http:// or https://");
	E("ftp://s3.example.com",
		"has no scheme: it begins with http:// or https://");
	E("https://", "names no host");
	E("https:///", "names no host");
	E("https://:9000", "names no host");
	E("https://a b", "names no host");
	E("https://h/lake", "carries a path: it belongs into QUEEN_S3_PREFIX");
	E("https://h//", "carries a path: it belongs into QUEEN_S3_PREFIX");
	E("https://h?x", "carries a path: it belongs into QUEEN_S3_PREFIX");
	E("https://h:https", "has a port that is none of 1 to 65535");
	E("https://h:", "has a port that is none of 1 to 65535");
	E("https://h:0", "has a port that is none of 1 to 65535");
	E("https://h:65536", "has a port that is none of 1 to 65535");
	E("https://::1", "has a port that is none of 1 to 65535");
	E("https://my-lake.s3.example.com",
		"begins with the bucket: leave it out, QUEEN_S3_PATH_STYLE "
		"alone says where the bucket is put");
	REFUSED("QUEEN_S3_ENDPOINT=(not shown) names a user: the keys are "
		"settings of their own",
		"QUEEN_S3_ENDPOINT", "https://me:s3cr3t@h");
}

static void
bucket_prefix_and_sink(void **state)
{
	struct s3conf c;
	char long_name[66];
	(void)state;

#define B                                                                      \
	" must be one name, no slash, no space; a folder in the bucket is "    \
	"QUEEN_S3_PREFIX"
	REFUSED("QUEEN_S3_BUCKET=a/b" B, "QUEEN_S3_BUCKET", "a/b");
	REFUSED("QUEEN_S3_BUCKET=a b" B, "QUEEN_S3_BUCKET", "a b");
	assert_int_equal(OVER(&c, "QUEEN_S3_PREFIX", "//lake/ev ents//"), 0);
	assert_string_equal(c.prefix, "lake/ev ents");
	s3conf_fini(&c);
	REFUSED("QUEEN_S3_PREFIX=/ is empty: write it as lake/events",
		"QUEEN_S3_PREFIX", "/");
	REFUSED("QUEEN_S3_PREFIX=a/../b has the segment \"..\", which no path "
		"may have: write it as lake/events",
		"QUEEN_S3_PREFIX", "a/../b");
	REFUSED("QUEEN_S3_PREFIX=a//b has the segment \"\", which no path may "
		"have: write it as lake/events",
		"QUEEN_S3_PREFIX", "a//b");
	REFUSED("QUEEN_S3_PREFIX=. has the segment \".\", which no path may "
		"have: write it as lake/events",
		"QUEEN_S3_PREFIX", ".");
	memset(long_name, 'a', 65);
	long_name[65] = '\0';
	assert_int_equal(OVER(&c, "QUEEN_S3_SINK", long_name + 1), 0);
	s3conf_fini(&c);
	assert_int_equal(OVER(&c, "QUEEN_S3_SINK", long_name), -1);
	REFUSED("QUEEN_S3_SINK=a:b must be 1 to 64 of A-Z a-z 0-9 . _ -. It is "
		"the name that the rows of this sink carry, so two sinks on "
		"one queue need different prefixes too",
		"QUEEN_S3_SINK", "a:b");
}

static void
keys_are_one_word_and_shown_as_four_characters(void **state)
{
	(void)state;
	REFUSED("QUEEN_S3_REGION=eu west must be one word of ASCII, no slash, "
		"no space. It is the region that requests are signed for, as "
		"us-east-1",
		"QUEEN_S3_REGION", "eu west");
	REFUSED("QUEEN_S3_ACCESS_KEY=\xe2\x80\xa6"
		"/KEY must be one word of "
		"ASCII, no slash, no space. It is the id of the access key",
		"QUEEN_S3_ACCESS_KEY", "AKIA/KEY");
	REFUSED("QUEEN_S3_SSE_KMS_KEY_ID=\xe2\x80\xa6"
		"beef would be "
		"ignored: it is for QUEEN_S3_SSE=aws:kms alone",
		"QUEEN_S3_SSE_KMS_KEY_ID", "1234-deadbeef");
	REFUSED("QUEEN_S3_SSE_KMS_KEY_ID=\xe2\x80\xa6"
		"beef would be "
		"ignored: it is for QUEEN_S3_SSE=aws:kms alone",
		"QUEEN_S3_SSE_KMS_KEY_ID", "1234-deadbeef", "QUEEN_S3_SSE",
		"AES256");
	REFUSED("QUEEN_S3_SECRET_KEY holds a control character",
		"QUEEN_S3_SECRET_KEY", "s3cr3t\nx");
	REFUSED("QUEEN_S3_PREFIX=a?b holds a control character",
		"QUEEN_S3_PREFIX", "a\nb");
	REFUSED("QUEEN_S3_PREFIX=(not UTF-8) is no text", "QUEEN_S3_PREFIX",
		"a\xff");
}

/* ---- words, numbers, booleans ---- */

static void
every_word_and_alias(void **state)
{
	static const struct {
		const char *name, *value;
		size_t at;
		int is;
	} cases[] = {
#define C(name, value, field, is)                                              \
	{ "QUEEN_S3_" name, value, offsetof(struct s3conf, field), is }
		C("FORMAT", "jsonl", format, S3_JSONL),
		C("FORMAT", "JSON", format, S3_JSONL),
		C("FORMAT", "ndjson", format, S3_JSONL),
		C("FORMAT", "Parquet", format, S3_PARQUET),
		C("COMPRESSION", "zstd", text_codec, S3_ZSTD),
		C("COMPRESSION", "zst", text_codec, S3_ZSTD),
		C("COMPRESSION", "gzip", text_codec, S3_GZIP),
		C("COMPRESSION", "GZ", text_codec, S3_GZIP),
		C("COMPRESSION", "none", text_codec, S3_PLAIN),
		C("COMPRESSION", "off", text_codec, S3_PLAIN),
		C("PARQUET_CODEC", "zstd", parquet_codec, S3_ZSTD),
		C("PARQUET_CODEC", "zst", parquet_codec, S3_ZSTD),
		C("PARQUET_CODEC", "snappy", parquet_codec, S3_SNAPPY),
		C("PARQUET_CODEC", "snap", parquet_codec, S3_SNAPPY),
		C("LAYOUT", "merged", layout, S3_MERGED),
		C("LAYOUT", "per-partition", layout, S3_PER_PARTITION),
		C("LAYOUT", "per_partition", layout, S3_PER_PARTITION),
		C("LAYOUT", "PerPartition", layout, S3_PER_PARTITION),
		C("ALIGN", "hour", align, S3_HOUR),
		C("ALIGN", "hourly", align, S3_HOUR),
		C("ALIGN", "day", align, S3_DAY),
		C("ALIGN", "daily", align, S3_DAY),
		C("ALIGN", "none", align, S3_UNALIGNED),
		C("ALIGN", "off", align, S3_UNALIGNED),
		C("START", "latest", start, S3_LATEST),
		C("START", "now", start, S3_LATEST),
		C("START", "end", start, S3_LATEST),
		C("START", "earliest", start, S3_EARLIEST),
		C("START", "beginning", start, S3_EARLIEST),
		C("START", "timestamp:2026-09-04T10:00:00Z", start,
			S3_TIMESTAMP),
		C("SSE", "aes256", sse, S3_SSE_AES256),
		C("SSE", "aws:kms", sse, S3_SSE_KMS),
		C("SSE", "KMS", sse, S3_SSE_KMS),
#undef C
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct s3conf c;
		int got;

		if (OVER(&c, cases[i].name, cases[i].value) != 0)
			fail_msg("%s", e.text);
		memcpy(&got, (char *)&c + cases[i].at, sizeof(got));
		assert_int_equal(got, cases[i].is);
		s3conf_fini(&c);
	}
}

static void
bad_words_list_the_others(void **state)
{
	(void)state;
	REFUSED("QUEEN_S3_FORMAT=csv is not one of jsonl (json, ndjson), "
		"parquet. It is the format of the objects",
		"QUEEN_S3_FORMAT", "csv");
	REFUSED("QUEEN_S3_COMPRESSION=snappy is not one of zstd (zst), gzip "
		"(gz), none (off); that of Parquet is QUEEN_S3_PARQUET_CODEC. "
		"It is the codec of JSONL",
		"QUEEN_S3_COMPRESSION", "snappy");
	REFUSED("QUEEN_S3_PARQUET_CODEC=gzip is not one of zstd (zst), snappy "
		"(snap). It is the codec of the pages of Parquet",
		"QUEEN_S3_PARQUET_CODEC", "gzip");
	REFUSED("QUEEN_S3_LAYOUT=x is not one of merged, per-partition "
		"(per_partition, perpartition). It is one object for a window, "
		"or one for each of its partitions",
		"QUEEN_S3_LAYOUT", "x");
	REFUSED("QUEEN_S3_ALIGN=week is not one of hour (hourly), day (daily), "
		"none (off). It is the boundary that no window crosses, in UTC",
		"QUEEN_S3_ALIGN", "week");
	REFUSED("QUEEN_S3_SSE=des is not one of AES256, aws:kms (kms). It is "
		"the encryption asked of the store; unset sends no header",
		"QUEEN_S3_SSE", "des");
#define STARTS                                                                 \
	" is not one of latest (now, end), earliest (beginning), "             \
	"timestamp:2026-01-31T00:00:00Z. It is where a queue begins that was " \
	"never committed"
	REFUSED("QUEEN_S3_START=newest" STARTS, "QUEEN_S3_START", "newest");
	REFUSED("QUEEN_S3_START=timestamp:2026-09-04" STARTS, "QUEEN_S3_START",
		"timestamp:2026-09-04");
	REFUSED("QUEEN_S3_START=timestamp:2026-09-04T10:00:00+02:00" STARTS,
		"QUEEN_S3_START", "timestamp:2026-09-04T10:00:00+02:00");
}

static void
numbers_have_a_range(void **state)
{
	static const char *const bad[] = { "12MiB", "1.5", "1e3", "--1", "+" };
	struct s3conf c;
	(void)state;

	assert_int_equal(OVER(&c, "QUEEN_S3_TARGET_MB", "1",
				 "QUEEN_S3_MAX_WINDOW_MS", "100"),
		0);
	s3conf_fini(&c);
	assert_int_equal(OVER(&c, "QUEEN_S3_TARGET_MB", "5120",
				 "QUEEN_S3_MAX_WINDOW_MS", "86400000"),
		0);
	assert_int_equal(c.target_mb, 5120);
	assert_int_equal(c.max_window_ms, 86400000);
	s3conf_fini(&c);
	REFUSED("QUEEN_S3_TARGET_MB=0 is outside 1..=5120. It is the size at "
		"which a window closes, in MiB",
		"QUEEN_S3_TARGET_MB", "0");
	REFUSED("QUEEN_S3_TARGET_MB=-1 is outside 1..=5120. It is the size at "
		"which a window closes, in MiB",
		"QUEEN_S3_TARGET_MB", "-1");
	REFUSED("QUEEN_S3_MAX_WINDOW_MS=86400001 is outside 100..=86400000. It "
		"is the longest that a window stays open, in ms",
		"QUEEN_S3_MAX_WINDOW_MS", "86400001");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(OVER(&c, "QUEEN_S3_TARGET_MB", bad[i]), -1);
		assert_non_null(strstr(e.text,
			" is not a whole number. It is the size at which a "
			"window closes, in MiB, in 1..=5120"));
	}
}

static void
booleans_have_eight_spellings(void **state)
{
	static const char *const words[] = { "true", "1", "YES", "on", "false",
		"0", "No", "off" };
	struct s3conf c;
	(void)state;

	for (int i = 0; i < 8; i++) {
		assert_int_equal(OVER(&c, "QUEEN_S3_PATH_STYLE", words[i]), 0);
		assert_int_equal(c.path_style, i < 4);
		s3conf_fini(&c);
	}
	REFUSED("QUEEN_S3_PATH_STYLE=maybe is not a boolean (true/false, 1/0, "
		"yes/no, on/off). It is whether the bucket is in the path, not "
		"in the host name",
		"QUEEN_S3_PATH_STYLE", "maybe");
}

static void
static_partitions_are_read_and_refused(void **state)
{
	(void)state;
#define P(value, text)                                                         \
	REFUSED("QUEEN_S3_PARTITIONS" text, "QUEEN_S3_PARTITIONS", value)
#define UNSUPPORTED                                                            \
	" is not supported: a window closes against safeTime, which "          \
	"discovery alone answers, so there is no static list; unset it"
	P("orders:0..1023,clicks:a,b", UNSUPPORTED);
	P("q:a:b", UNSUPPORTED);
	P("q:0..999999", UNSUPPORTED);
	P(":a", ": \":a\" has no queue before the `:`");
	P("a,q:b", ": \"a\" stands before any queue");
	P("q:0..x", ": \"0..x\" is no range of two whole numbers");
	P("q:-1..2", ": \"-1..2\" is no range of two whole numbers");
	P("q:5..4", ": \"5..4\" is a range that runs backwards");
	P("q:0..1000000", ": \"0..1000000\" names more than 1000000 "
			  "partitions");
	P("q:0..999998,a,b,0..1", ": \"0..1\" names more than 1000000 "
				  "partitions");
	P("q:", ": \"q:\" names no partition");
	P(",", ": \",\" names no partition");
}

/* ---- documents ---- */

static void
same(const struct s3conf *a, const struct s3conf *b)
{
	struct buf x = BUF_ZERO, y = BUF_ZERO;

	s3conf_line(a, &x);
	s3conf_line(b, &y);
	assert_int_equal(x.len, y.len);
	assert_memory_equal(x.p, y.p, x.len);
	assert_string_equal(a->access_key, b->access_key);
	assert_int_equal(a->text_codec, b->text_codec);
	assert_int_equal(a->parquet_codec, b->parquet_codec);
	buf_fini(&x);
	buf_fini(&y);
}

static void
a_document_equals_the_environment(void **state)
{
	struct s3conf c, d;
	(void)state;

	assert_int_equal(over(&c, (const char *const[]){ NULL }), 0);
	assert_int_equal(doc(&d, "{" BASE "}"), 0);
	assert_null(d.secret_key);
	same(&c, &d);
	s3conf_fini(&c);
	s3conf_fini(&d);
	assert_int_equal(
		OVER(&c, "QUEEN_S3_QUEUES", "a,b c", "QUEEN_S3_PREFIX", "x/y",
			"QUEEN_S3_PATH_STYLE", "on", "QUEEN_S3_SSE", "kms",
			"QUEEN_S3_SSE_KMS_KEY_ID", "arn:aws:kms:x:key/beef",
			"QUEEN_S3_FORMAT", "parquet", "QUEEN_S3_COMPRESSION",
			"gzip", "QUEEN_S3_PARQUET_CODEC", "snappy",
			"QUEEN_S3_LAYOUT", "per-partition", "QUEEN_S3_ALIGN",
			"day", "QUEEN_S3_START",
			"timestamp:2026-09-04T10:00:"
			"00.5Z",
			"QUEEN_S3_TARGET_MB", "7", "QUEEN_S3_MAX_WINDOW_MS",
			"1000", "QUEEN_S3_SINK", "s-2"),
		0);
	assert_int_equal(
		doc(&d, "{\"queues\":[\"a\",\" b c \",\"\"],\"endpoint\":"
			"\"https://s3.example.com/\",\"region\":\"us-east-1\","
			"\"bucket\":\"my-lake\",\"accessKey\":\"AKIAEXAMPLE\","
			"\"prefix\":\"/x/y/\",\"pathStyle\":true,\"sse\":"
			"\"aws:kms\",\"sseKmsKeyId\":\"arn:aws:kms:x:key/beef\""
			",\"format\":\"Parquet\",\"compression\":\"gz\","
			"\"parquetCodec\":\"snap\",\"layout\":"
			"\"per_partition\",\"align\":\"daily\",\"start\":"
			"\"timestamp:2026-09-04T10:00:00.500Z\",\"targetMb\":7,"
			"\"maxWindowMs\":\"1000\",\"sink\":\"s-2\"}"),
		0);
	same(&c, &d);
	s3conf_fini(&c);
	s3conf_fini(&d);
}

static void
null_and_blank_are_not_set(void **state)
{
	struct s3conf c;
	(void)state;

	assert_int_equal(
		doc(&c, "{" BASE ",\"prefix\":null,\"sse\":\" \",\"targetMb\":"
			"null,\"sink\":\"\",\"pathStyle\":\"\"}"),
		0);
	assert_string_equal(c.prefix, "queen");
	assert_string_equal(c.sink, "default");
	s3conf_fini(&c);
	doc_refused("{\"queues\":null}",
		"queues is not set: it is a comma list of queues, or * for all "
		"of them");
}

static void
queues_of_a_document(void **state)
{
#define Q(list)                                                                \
	"{\"queues\":" list ",\"endpoint\":\"http://h\",\"region\":\"r\","     \
	"\"bucket\":\"b\",\"accessKey\":\"k\"}"
	struct s3conf c;
	(void)state;

	assert_int_equal(doc(&c, Q("\"*\"")), 0);
	assert_true(c.all_queues);
	s3conf_fini(&c);
	assert_int_equal(doc(&c, Q("\"a, b\"")), 0);
	assert_int_equal(c.queues_n, 2);
	s3conf_fini(&c);
	assert_int_equal(doc(&c, Q("[\"a,b\",\"c\"]")), 0);
	assert_int_equal(c.queues_n, 2);
	assert_string_equal(c.queues[0], "a,b");
	s3conf_fini(&c);
	doc_refused(Q("[\"a\",\"*\"]"),
		"queues holds * among names: alone and as a text it is every "
		"queue");
	doc_refused(Q("[]"), "queues names no queue");
	doc_refused(Q("[\"a\",7]"),
		"queues=7 is an item that is no text: a list holds names of "
		"queues");
	doc_refused(Q("7"), "queues=7 is not a text. It is a comma list of "
			    "queues, or * for all of them");
}

static void
documents_are_refused_by_field(void **state)
{
	(void)state;
	doc_refused("[]", "the settings are an object, not a list");
	doc_refused("\"x\"", "the settings are an object, not a text");
	doc_refused("{" BASE ",\"secretKey\":\"s3cr3t\"}",
		"secretKey is no field of the settings: the secret goes beside "
		"them, as secretKey");
	doc_refused("{" BASE ",\"secretAccessKey\":\"s3cr3t\"}",
		"secretAccessKey is no field of the settings: the secret goes "
		"beside them, as secretKey");
	doc_refused("{" BASE ",\"memoryMb\":1}",
		"memoryMb is of the node, not of a sink: QUEEN_S3_MEMORY_MB "
		"sets it");
	doc_refused("{" BASE ",\"crashAt\":1}",
		"crashAt is of the node, not of a sink: QUEEN_S3_CRASH_AT sets "
		"it");
	doc_refused("{" BASE ",\"partitions\":\"a:b\"}",
		"partitions is no field; there are queues, endpoint, region, "
		"bucket, accessKey, prefix, pathStyle, sse, sseKmsKeyId, "
		"format, compression, parquetCodec, layout, align, start, "
		"targetMb, maxWindowMs, sink");
	doc_refused("{" BASE ",\"targetMb\":\"x\"}",
		"targetMb=\"x\" is not a whole number. It is the size at which "
		"a window closes, in MiB, in 1..=5120");
	doc_refused("{" BASE ",\"targetMb\":1.5}",
		"targetMb=1.5 is not a whole number. It is the size at which a "
		"window closes, in MiB, in 1..=5120");
	doc_refused("{" BASE ",\"maxWindowMs\":99}",
		"maxWindowMs=99 is outside 100..=86400000. It is the longest "
		"that a window stays open, in ms");
	doc_refused("{" BASE ",\"pathStyle\":1}",
		"pathStyle=1 is not a boolean (true/false, 1/0, yes/no, "
		"on/off). It is whether the bucket is in the path, not in the "
		"host name");
	doc_refused("{" BASE ",\"prefix\":{}}",
		"prefix={} is not a text. It is the path that every key begins "
		"with");
	doc_refused("{" BASE ",\"compression\":\"snappy\"}",
		"compression=\"snappy\" is not one of zstd (zst), gzip (gz), "
		"none (off); that of Parquet is parquetCodec. It is the codec "
		"of JSONL");
	doc_refused("{" BASE ",\"sseKmsKeyId\":\"dead-beef\"}",
		"sseKmsKeyId=\xe2\x80\xa6"
		"beef would be ignored: it is for "
		"sse=aws:kms alone");
	/* four bytes from the end is in the middle of a character */
	doc_refused("{\"queues\":\"a\",\"endpoint\":\"http://h\","
		    "\"region\":\"r\",\"bucket\":\"b\",\"accessKey\":"
		    "\"key\xd2\x9d"
		    "ake\"}",
		"accessKey=\xe2\x80\xa6"
		"ake must be one word of ASCII, no slash, no space. It is the "
		"id of the access key");
	doc_refused("{" BASE ",\"sseKmsKeyId\":\"k\xf0\x9f\x98\x80x\"}",
		"sseKmsKeyId=\xe2\x80\xa6"
		"x must be one word of ASCII, no slash, no space. It is the "
		"key of aws:kms");
	doc_refused("{" BASE ",\"sink\":\"a\",\"sink\":\"b\"}",
		"sink=\"a\" is there twice");
	doc_refused("{" BASE,
		"the settings are no JSON: unexpected end of an object at byte "
		"120");
}

static void
a_document_has_a_size(void **state)
{
	static char json[S3CONF_DOC_MAX + 64];
	struct s3conf c;
	int n = snprintf(json, sizeof(json), "{" BASE "}");
	(void)state;

	memset(json + n, ' ', sizeof(json) - (size_t)n);
	assert_int_equal(
		s3conf_from_doc(&c, span_make(json, S3CONF_DOC_MAX), &e), 0);
	s3conf_fini(&c);
	assert_int_equal(
		s3conf_from_doc(&c, span_make(json, S3CONF_DOC_MAX + 1), &e),
		-1);
	assert_string_equal(e.text, "the settings are larger than 32768 bytes");
}

/* ---- the line ---- */

static void
the_line_spells_as_the_environment(void **state)
{
	struct buf b = BUF_ZERO;
	struct s3conf c;
	(void)state;

	assert_int_equal(
		OVER(&c, "QUEEN_S3_QUEUES", "orders,clicks", "QUEEN_S3_SSE",
			"aws:kms", "QUEEN_S3_SSE_KMS_KEY_ID", "1234-deadbeef"),
		0);
	s3conf_line(&c, &b);
	buf_putc(&b, '\0');
	assert_string_equal(b.p,
		" sink=default queues=orders,clicks s3=https://s3.example.com "
		"bucket=my-lake prefix=queen region=us-east-1 "
		"addressing=virtual-host sse=aws:kms(\xe2\x80\xa6"
		"beef) "
		"format=jsonl compression=zstd layout=merged align=hour "
		"target_mb=128 max_window_ms=300000 start=latest");
	s3conf_fini(&c);
	buf_reset(&b);
	assert_int_equal(
		OVER(&c, "QUEEN_S3_QUEUES", "*", "QUEEN_S3_FORMAT", "parquet",
			"QUEEN_S3_PARQUET_CODEC", "snap", "QUEEN_S3_LAYOUT",
			"perpartition", "QUEEN_S3_PATH_STYLE", "1",
			"QUEEN_S3_PREFIX", "a b", "QUEEN_S3_START",
			"timestamp:2026-09-04T10:00:00Z"),
		0);
	s3conf_line(&c, &b);
	buf_putc(&b, '\0');
	assert_string_equal(b.p,
		" sink=default queues=* s3=https://s3.example.com "
		"bucket=my-lake prefix=\"a b\" region=us-east-1 "
		"addressing=path sse=none format=parquet compression=snappy "
		"layout=per-partition align=hour target_mb=128 "
		"max_window_ms=300000 "
		"start=timestamp:2026-09-04T10:00:00.000000Z");
	s3conf_fini(&c);
	buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(smallest_has_every_default),
		cmocka_unit_test(what_is_missing_is_named),
		cmocka_unit_test(blank_is_the_default),
		cmocka_unit_test(without_queues_there_is_no_sink),
		cmocka_unit_test(lists_of_queues),
		cmocka_unit_test(endpoints_have_no_path),
		cmocka_unit_test(bucket_prefix_and_sink),
		cmocka_unit_test(
			keys_are_one_word_and_shown_as_four_characters),
		cmocka_unit_test(every_word_and_alias),
		cmocka_unit_test(bad_words_list_the_others),
		cmocka_unit_test(numbers_have_a_range),
		cmocka_unit_test(booleans_have_eight_spellings),
		cmocka_unit_test(static_partitions_are_read_and_refused),
		cmocka_unit_test(a_document_equals_the_environment),
		cmocka_unit_test(null_and_blank_are_not_set),
		cmocka_unit_test(queues_of_a_document),
		cmocka_unit_test(documents_are_refused_by_field),
		cmocka_unit_test(a_document_has_a_size),
		cmocka_unit_test(the_line_spells_as_the_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
