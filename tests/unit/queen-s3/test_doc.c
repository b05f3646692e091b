/* SPDX-License-Identifier: Apache-2.0 */
/* Rows and manifests: the bytes written, and what older writers left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "doc.h"
#include "err.h"

#define TENANT "00000000-0000-0000-0000-000000000001"

static struct arena arena;
static struct buf out;

static int
teardown(void **state)
{
	(void)state;
	arena_fini(&arena);
	buf_fini(&out);
	return 0;
}

static const char *
text(void)
{
	buf_putc(&out, '\0');
	return out.p;
}

/* ---- rows ---- */

static void
a_lease_is_written_and_read(void **state)
{
	static const char json[] =
		"{\"instance\":\"sink-0\",\"incarnation\":\"0123456789abcdef\","
		"\"sinceMs\":1788516000123}";
	static const char *const bad[] = { "", "null", "[]", "{}",
		"{\"instance\":\"a\",\"incarnation\":\"0123456789abcde\","
		"\"sinceMs\":1}",
		"{\"instance\":7,\"incarnation\":\"0123456789abcdef\","
		"\"sinceMs\":1}",
		"{\"instance\":\"a\",\"sinceMs\":1}",
		"{\"instance\":\"a\",\"incarnation\":\"0123456789abcdef\","
		"\"sinceMs\":1} x" };
	struct doc_lease l = {
		.instance = SPAN_LIT("sink-0"),
		.incarnation = "0123456789abcdef",
		.since_ms = INT64_C(1788516000123),
	};
	struct doc_lease got;
	(void)state;

	buf_reset(&out);
	doc_lease_write(&out, &l);
	assert_string_equal(text(), json);
	assert_true(doc_lease_read(
		SPAN_LIT("{\"new\":[{}],\"sinceMs\":9,\"incarnation\":"
			 "\"0123456789abcdef\",\"instance\":\"a\\u0062\"}"),
		&arena, &got));
	assert_true(span_is(got.instance, "ab"));
	assert_int_equal(got.since_ms, 9);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(doc_lease_read(span_of(bad[i]), &arena, &got));
}

static const struct doc_intent intent = {
	.k = 7,
	.start_us = INT64_C(1788516000000000),
	.end_us = INT64_C(1788516300000000),
	.format = S3_JSONL,
	.codec = S3_ZSTD,
	.layout = S3_PER_PARTITION,
	.align = S3_UNALIGNED,
	.align_known = true,
	.writer = { .p = "queen-s3/0.1.0 jsonl+zstd/1.5.4", .n = 31 },
	.prefix = { .p = "queen", .n = 5 },
	.bucket = { .p = "my-lake", .n = 7 },
	.cell = "0123456789ab",
};

static void
an_intent_is_written_and_read(void **state)
{
	static const char json[] =
		"{\"k\":7,\"tStart\":1788516000000000,"
		"\"tEnd\":1788516300000000,\"format\":\"jsonl\","
		"\"compression\":\"zstd\",\"layout\":\"per-partition\","
		"\"writer\":\"queen-s3/0.1.0 jsonl+zstd/1.5.4\","
		"\"prefix\":\"queen\",\"bucket\":\"my-lake\","
		"\"align\":\"none\",\"cell\":\"0123456789ab\"}";
	struct doc_intent got;
	(void)state;

	buf_reset(&out);
	doc_intent_write(&out, &intent);
	assert_string_equal(text(), json);
	assert_true(doc_intent_read(SPAN_LIT(json), &arena, &got));
	buf_reset(&out);
	doc_intent_write(&out, &got);
	assert_string_equal(text(), json);
}

#define INTENT(rest)                                                           \
	"{\"k\":1,\"tStart\":-5,\"tEnd\":10,\"layout\":\"merged\"," rest "}"

static void
an_intent_of_an_older_writer_is_read(void **state)
{
	struct doc_intent got;
	(void)state;

	assert_true(doc_intent_read(
		SPAN_LIT(INTENT("\"format\":\"parquet\",\"compression\":"
				"\"none\",\"writer\":\"queen-s3/1.5.0 "
				"parquet/2 snappy\"")),
		&arena, &got));
	assert_int_equal(got.codec, S3_SNAPPY);
	assert_int_equal(got.start_us, -5);
	assert_false(got.align_known);
	assert_int_equal(got.prefix.n, 0);
	assert_int_equal(got.bucket.n, 0);
	assert_string_equal(got.cell, "");
	/* another writer's `none` is taken at its word */
	assert_true(doc_intent_read(
		SPAN_LIT(INTENT("\"format\":\"parquet\",\"compression\":"
				"\"none\",\"writer\":\"x\"")),
		&arena, &got));
	assert_int_equal(got.codec, S3_PLAIN);
	assert_true(doc_intent_read(
		SPAN_LIT(INTENT("\"format\":\"jsonl\",\"compression\":"
				"\"none\",\"writer\":\"snappy\"")),
		&arena, &got));
	assert_int_equal(got.codec, S3_PLAIN);
}

static void
what_is_no_intent_is_refused(void **state)
{
	static const char *const bad[] = {
		INTENT("\"format\":\"orc\",\"compression\":\"zstd\","
		       "\"writer\":\"x\""),
		INTENT("\"format\":\"jsonl\",\"compression\":\"lz4\","
		       "\"writer\":\"x\""),
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\""),
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\","
		       "\"writer\":\"x\",\"prefix\":\"a/../b\""),
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\","
		       "\"writer\":\"x\",\"cell\":\"0123\""),
		/* k from 1, and a window has a length */
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\","
		       "\"writer\":\"x\",\"k\":0"),
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\","
		       "\"writer\":\"x\",\"tStart\":10"),
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\","
		       "\"writer\":\"x\",\"tEnd\":1.5"),
		/* numbers that sums of would leave 64 bits */
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\","
		       "\"writer\":\"x\",\"k\":9223372036854775807"),
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\","
		       "\"writer\":\"x\",\"tEnd\":9223372036854775807"),
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\","
		       "\"writer\":\"x\",\"tStart\":-9223372036854775808"),
		/* buckets that would lead to another host, or path */
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\","
		       "\"writer\":\"x\",\"bucket\":\"evil.example/\""),
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\","
		       "\"writer\":\"x\",\"bucket\":\"a@evil.example:80\""),
		INTENT("\"format\":\"jsonl\",\"compression\":\"zstd\","
		       "\"writer\":\"x\",\"bucket\":\"a\\nb\""),
	};
	struct doc_intent got;
	(void)state;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (doc_intent_read(span_of(bad[i]), &arena, &got))
			fail_msg("%s was taken", bad[i]);
}

static void
a_pointer_is_a_text_or_microseconds(void **state)
{
	static const char json[] =
		"{\"k\":7,\"tEnd\":\"2026-09-04T10:05:00.000000Z\","
		"\"manifest\":\"queen/_queen/x.json\",\"records\":40,"
		"\"bytes\":5120,\"committedAtMs\":1788516307412,"
		"\"cell\":\"0123456789ab\"}";
	struct doc_committed c = {
		.k = 7,
		.end_us = INT64_C(1788516300000000),
		.manifest = SPAN_LIT("queen/_queen/x.json"),
		.records = 40,
		.bytes = 5120,
		.at_ms = INT64_C(1788516307412),
		.cell = "0123456789ab",
	};
	struct doc_committed got;
	(void)state;

	buf_reset(&out);
	doc_committed_write(&out, &c);
	assert_string_equal(text(), json);
	assert_true(doc_committed_read(SPAN_LIT(json), &arena, &got));
	buf_reset(&out);
	doc_committed_write(&out, &got);
	assert_string_equal(text(), json);
	/* integer microseconds, no tag */
	assert_true(doc_committed_read(
		SPAN_LIT("{\"k\":7,\"tEnd\":1788516300000000}"), &arena, &got));
	assert_int_equal(got.end_us, c.end_us);
	assert_string_equal(got.cell, "");
	assert_false(doc_committed_read(
		SPAN_LIT("{\"k\":7,\"tEnd\":\"yesterday\"}"), &arena, &got));
	/* what no text could say */
	assert_false(doc_committed_read(
		SPAN_LIT("{\"k\":7,\"tEnd\":253402300800000000}"), &arena,
		&got));
	assert_false(doc_committed_read(SPAN_LIT("{\"k\":7}"), &arena, &got));
	assert_false(doc_committed_read(
		SPAN_LIT("{\"k\":0,\"tEnd\":1}"), &arena, &got));
}

static void
a_wish_to_resume_is_read(void **state)
{
	static const char *const bad[] = { "{}", "{\"resume\":\"newest\"}",
		"{\"resume\":\"prefix\",\"atMs\":1}",
		"{\"resume\":\"prefix\",\"prefix\":\"/a\",\"atMs\":1}",
		"{\"resume\":\"oldest\",\"prefix\":\"a\",\"atMs\":1}" };
	struct doc_resume got;
	(void)state;

	assert_true(doc_resume_read(
		SPAN_LIT("{\"resume\":\"newest\",\"atMs\":5}"), &arena, &got));
	assert_true(got.newest);
	assert_int_equal(got.at_ms, 5);
	assert_true(
		doc_resume_read(SPAN_LIT("{\"resume\":\"prefix\",\"prefix\":"
					 "\"lake/2\",\"atMs\":5}"),
			&arena, &got));
	assert_false(got.newest);
	assert_true(span_is(got.prefix, "lake/2"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(doc_resume_read(span_of(bad[i]), &arena, &got));
}

/* ---- manifest ---- */

#define SHA "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define HEAD(layout)                                                           \
	"{\"sink\":\"default\",\"tenant\":\"" TENANT                           \
	"\",\"queue\":\"orders\",\"k\":7,\"tStart\":1788516000000000,"         \
	"\"tEnd\":1788516300000000,\"format\":\"jsonl\","                      \
	"\"compression\":\"zstd\",\"layout\":\"" layout "\","
#define FOOT                                                                   \
	"\"writer\":\"queen-s3/0.1.0 jsonl+zstd/1.5.4\","                      \
	"\"committedAt\":\"2026-09-04T10:05:07.412000Z\"}"

static struct doc_manifest
manifest(struct doc_object *objects, size_t n)
{
	return (struct doc_manifest){
		.sink = SPAN_LIT("default"),
		.tenant = SPAN_LIT(TENANT),
		.queue = SPAN_LIT("orders"),
		.writer = intent.writer,
		.k = 7,
		.start_us = intent.start_us,
		.end_us = intent.end_us,
		.layout = n > 1 ? S3_PER_PARTITION : S3_MERGED,
		.objects = objects,
		.objects_n = n,
		.committed_at_us = INT64_C(1788516307412999),
	};
}

static const char *
written(const struct doc_manifest *m)
{
	buf_reset(&out);
	doc_manifest_write(&out, m);
	return text();
}

/* What is read back is written as the same bytes. */
static void
check_again(const char *json)
{
	struct err e = ERR_ZERO;
	struct doc_manifest got;
	char *was = strdup(json);

	if (doc_manifest_read(span_of(was), &arena, &got, &e) != 0)
		fail_msg("%s", e.text);
	assert_string_equal(written(&got), was);
	free(was);
}

static void
manifest_of_a_merged_window(void **state)
{
	struct doc_object o = { .key = SPAN_LIT("queen/w.jsonl.zst"),
		.bytes = 5120,
		.records = 40,
		.sha256 = SHA };
	struct doc_lost lost = { SPAN_LIT("cust-7"), 10, 14 };
	struct doc_manifest m = manifest(&o, 1);
	(void)state;

	m.records = 40;
	m.bytes = 5120;
	m.partitions = 3;
	m.min_us = INT64_C(1788516000121004);
	m.max_us = INT64_C(1788516299904881);
	m.lost = &lost;
	m.lost_n = 1;
	assert_string_equal(written(&m),
		HEAD("merged") "\"objects\":[{\"key\":\"queen/w.jsonl.zst\","
			       "\"bytes\":5120,\"records\":40,"
			       "\"sha256\":\"" SHA
			       "\"}],\"records\":40,\"bytes\":5120,"
			       "\"partitions\":3,\"minTs\":1788516000121004,"
			       "\"maxTs\":1788516299904881,\"lost\":[{"
			       "\"partition\":\"cust-7\",\"from\":10,"
			       "\"to\":14}]," FOOT);
	check_again(out.p);
}

static void
manifest_of_partitions_without_records(void **state)
{
	struct doc_object o[2] = {
		{ .key = SPAN_LIT("a"),
			.sha256 = SHA,
			.per_partition = true,
			.partition = SPAN_LIT("p \"1\""),
			.first = 3,
			.last = 5 },
		{ .key = SPAN_LIT("b"),
			.sha256 = SHA,
			.per_partition = true,
			.partition = SPAN_LIT("") },
	};
	struct doc_manifest m = manifest(o, 2);
	(void)state;

	/* the stamps of no record are not there */
	assert_string_equal(written(&m),
		HEAD("per-partition") "\"objects\":[{\"key\":\"a\",\"bytes\":0,"
				      "\"records\":0,\"sha256\":\"" SHA
				      "\",\"partition\":\"p \\\"1\\\"\","
				      "\"firstOffset\":3,\"lastOffset\":5},"
				      "{\"key\":\"b\",\"bytes\":0,"
				      "\"records\":0,\"sha256\":\"" SHA
				      "\",\"partition\":\"\",\"firstOffset\":0,"
				      "\"lastOffset\":0}],\"records\":0,"
				      "\"bytes\":0,\"partitions\":0,"
				      "\"lost\":[]," FOOT);
	check_again(out.p);
}

static void
manifest_that_is_none(void **state)
{
	static const char *const bad[] = { "", "{", "[]", "{}", "nonsense",
		HEAD("merged") "\"records\":0,\"bytes\":0,\"lost\":[]," FOOT,
		HEAD("merged") "\"objects\":{},\"records\":0,\"bytes\":0," FOOT,
		HEAD("merged") "\"objects\":[{\"key\":\"a\"}],\"records\":0,"
			       "\"bytes\":0," FOOT,
		HEAD("merged") "\"objects\":[],\"records\":-1,"
			       "\"bytes\":0," FOOT,
		HEAD("merged") "\"objects\":[],\"records\":0,\"bytes\":0,"
			       "\"lost\":[{\"from\":1,\"to\":2}]," FOOT,
		HEAD("merged") "\"objects\":[],\"records\":0,\"bytes\":0,"
			       "\"lost\":[7]," FOOT };
	struct doc_manifest got;
	(void)state;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err e = ERR_ZERO;

		assert_int_equal(
			doc_manifest_read(span_of(bad[i]), &arena, &got, &e),
			-1);
		assert_int_equal(e.kind, ERR_INPUT);
	}
}

static bool
is(const struct doc_manifest *m)
{
	struct doc_intent i = intent;

	i.layout = S3_MERGED;
	return doc_manifest_is(m, &i, SPAN_LIT("default"), SPAN_LIT(TENANT),
		SPAN_LIT("orders"));
}

static void
manifest_matches_the_intent_in_ten_things(void **state)
{
	struct doc_manifest m = manifest(NULL, 0);
	(void)state;

	m.records = 12;
	m.committed_at_us = 0;
	assert_true(is(&m));
#define DIFFERS(field, value)                                                  \
	do {                                                                   \
		struct doc_manifest was = m;                                   \
		m.field = value;                                               \
		assert_false(is(&m));                                          \
		m = was;                                                       \
	} while (0)
	DIFFERS(k, 8);
	DIFFERS(start_us, 0);
	DIFFERS(end_us, 0);
	DIFFERS(format, S3_PARQUET);
	DIFFERS(codec, S3_GZIP);
	DIFFERS(layout, S3_PER_PARTITION);
	DIFFERS(writer, SPAN_LIT("queen-s3/0.2.0 jsonl+zstd/1.5.4"));
	DIFFERS(sink, SPAN_LIT("other"));
	DIFFERS(tenant, SPAN_LIT(""));
	DIFFERS(queue, SPAN_LIT("clicks"));
	assert_true(is(&m));
}

static void
manifest_of_an_older_writer(void **state)
{
	struct err e = ERR_ZERO;
	struct doc_manifest got;
	(void)state;

	assert_int_equal(
		doc_manifest_read(
			SPAN_LIT("{\"sink\":\"default\",\"queue\":\"orders\","
				 "\"k\":7,\"tStart\":1,\"tEnd\":2,\"format\":"
				 "\"parquet\",\"compression\":\"none\","
				 "\"layout\":\"merged\",\"objects\":[],"
				 "\"records\":0,\"bytes\":0,\"extra\":null,"
				 "\"writer\":\"queen-s3/1.5.0 parquet/2 "
				 "snappy\"}"),
			&arena, &got, &e),
		0);
	assert_int_equal(got.codec, S3_SNAPPY);
	assert_int_equal(got.tenant.n, 0);
	assert_int_equal(got.lost_n, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lease_is_written_and_read),
		cmocka_unit_test(an_intent_is_written_and_read),
		cmocka_unit_test(an_intent_of_an_older_writer_is_read),
		cmocka_unit_test(what_is_no_intent_is_refused),
		cmocka_unit_test(a_pointer_is_a_text_or_microseconds),
		cmocka_unit_test(a_wish_to_resume_is_read),
		cmocka_unit_test(manifest_of_a_merged_window),
		cmocka_unit_test(manifest_of_partitions_without_records),
		cmocka_unit_test(manifest_that_is_none),
		cmocka_unit_test(manifest_matches_the_intent_in_ten_things),
		cmocka_unit_test(manifest_of_an_older_writer),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
