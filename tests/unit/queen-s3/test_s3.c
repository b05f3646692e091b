/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of the client, byte for byte, and what it makes of answers. */
#include "s3_fix.h"
#include "s3_int.h"

#define KEY "queen/tenant=t1/queue=a%2Fb/dt=2026-09-04/w-1.jsonl.zst"
#define WIRE "queen/tenant%3Dt1/queue%3Da%252Fb/dt%3D2026-09-04/w-1.jsonl.zst"
#define EMPTY_SHA                                                              \
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
/* of "abc" */
#define ABC_SHA                                                                \
	"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define ABC_MD5 "900150983cd24fb0d6963f7d28e17f72"
#define ABC_MD5_BASE64 "kAFQmDzST7DWlj99KOF/cg=="
#define SIGNED_PUT                                                             \
	"content-md5;content-type;host;x-amz-content-sha256;x-amz-date"

static void
assert_put(struct bed *b, const char *uri, const char *host)
{
	ANSWERS(b, { 200, "ETag", "\"" ABC_MD5 "\"", NULL });
	put_and_run(b, KEY, 3);
	assert_true(b->ok);
	assert_string_equal(b->etag, ABC_MD5);
	assert_int_equal(b->seen_n, 1);
	assert_seen(b, 0, "PUT", uri);
	assert_string_equal(b->seen[0].host, host);
	assert_string_equal(b->seen[0].body, "abc");
	assert_string_equal(b->seen[0].sha, ABC_SHA);
	assert_string_equal(b->seen[0].md5, ABC_MD5_BASE64);
	assert_string_equal(b->seen[0].type, "application/zstd");
	assert_string_equal(b->seen[0].names, SIGNED_PUT);
	assert_int_equal(b->hooks_n, 0);
}

static void
assert_reads(struct bed *b, const char *uri, const char *root)
{
	char want[160];

	ANSWERS(b, { 200, "ETag", "\"x-2\"", "hello" });
	get_and_run(b, KEY);
	assert_true(b->ok);
	assert_string_equal(b->body, "hello");
	assert_string_equal(b->etag, "x-2");
	assert_seen(b, 0, "GET", uri);
	assert_string_equal(b->seen[0].sha, EMPTY_SHA);
	assert_string_equal(
		b->seen[0].names, "host;x-amz-content-sha256;x-amz-date");
	ANSWERS(b, { 200, "Content-Length", "5", NULL });
	s3_head(b->s, span_of(KEY), on_answer, b);
	run(b, 2);
	assert_seen(b, 0, "HEAD", uri);
	assert_int_equal(b->size, 5);
	ANSWERS(b, { 200, NULL, NULL,
			   "<ListBucketResult><IsTruncated>false</IsTruncated>"
			   "</ListBucketResult>" });
	s3_list(b->s, SPAN_LIT("queen/a=1/"), SPAN_LIT(""), 7, on_answer, b);
	run(b, 3);
	snprintf(want, sizeof(want),
		"%s?list-type=2&max-keys=7&prefix=queen%%2Fa%%3D1%%2F", root);
	assert_seen(b, 0, "GET", want);
	assert_int_equal(b->keys_n, 0);
	assert_false(b->truncated);
}

static void
requests_are_exact_in_both_styles(void **state)
{
	struct bed b;
	char host[64];
	(void)state;

	bed_up(&b);
	snprintf(host, sizeof(host), "localhost:%d", b.port);
	assert_put(&b, "/lake/" WIRE, host);
	assert_reads(&b, "/lake/" WIRE, "/lake");
	b.sink.path_style = false;
	bed_client(&b);
	snprintf(host, sizeof(host), "lake.localhost:%d", b.port);
	assert_put(&b, "/" WIRE, host);
	assert_reads(&b, "/" WIRE, "/");
	bed_down(&b);
}

/* Put and create alone carry them. */
static void
encryption_is_asked_for_as_configured(void **state)
{
	static const struct {
		enum s3_sse sse;
		const char *kms, *sse_text, *names;
	} all[] = {
		{ S3_SSE_NONE, NULL, "", SIGNED_PUT },
		{ S3_SSE_AES256, NULL, "AES256",
			SIGNED_PUT ";x-amz-server-side-encryption" },
		{ S3_SSE_KMS, NULL, "aws:kms",
			SIGNED_PUT ";x-amz-server-side-encryption" },
		{ S3_SSE_KMS, "key/1", "aws:kms",
			SIGNED_PUT ";x-amz-server-side-encryption;"
				   "x-amz-server-side-encryption-aws-kms-key-"
				   "id" },
	};
	struct bed b;
	char kms[16];
	(void)state;

	bed_up(&b);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		b.sink.sse = all[i].sse;
		snprintf(kms, sizeof(kms), "%s", all[i].kms ? all[i].kms : "");
		b.sink.kms_key_id = all[i].kms ? kms : NULL;
		bed_client(&b);
		ANSWERS(&b, { 200, "ETag", "\"e\"", NULL });
		put_and_run(&b, "k", 3);
		assert_true(b.ok);
		assert_string_equal(b.seen[0].sse, all[i].sse_text);
		assert_string_equal(b.seen[0].kms, kms);
		assert_string_equal(b.seen[0].names, all[i].names);
	}
	ANSWERS(&b, { 200, NULL, NULL, "<R><UploadId>u</UploadId></R>" },
		{ 200, "ETag", "\"1\"", NULL }, { 200, "ETag", "\"2\"", NULL },
		{ 200, NULL, NULL, "<CompleteMultipartUploadResult/>" });
	put_and_run(&b, "k", 1001);
	assert_true(b.ok);
	assert_int_equal(b.seen_n, 4);
	assert_string_equal(b.seen[0].kms, "key/1");
	for (int i = 1; i < 4; i++)
		assert_string_equal(b.seen[i].sse, "");
	bed_down(&b);
}

static void
etags_are_compared_when_they_are_digests(void **state)
{
	static const char *const opaque[] = { "\"opaque\"", "abc-3",
		"\"000102030405060708090a0b0c0d0e0g\"" };
	struct bed b;
	(void)state;

	bed_up(&b);
	ANSWERS(&b,
		{ 200, "ETag", "\"00000000000000000000000000000000\"", NULL });
	put_and_run(&b, "k", 3);
	assert_false(b.ok);
	assert_int_equal(b.e.cls, S3_INTEGRITY);
	assert_true(b.e.retriable);
	assert_int_equal(b.seen_n, 6);
	assert_string_equal(b.e.text,
		"put k: the ETag 00000000000000000000000000000000 is not the "
		"digest of what was sent");
	for (size_t i = 0; i < 3; i++) {
		struct answer a = { 200, "ETag", opaque[i], NULL };

		b.answers = &a;
		b.answers_n = 1;
		put_and_run(&b, "k", 3);
		assert_true(b.ok);
	}
	/* those of KMS look like it */
	b.sink.sse = S3_SSE_KMS;
	bed_client(&b);
	ANSWERS(&b,
		{ 200, "ETag", "\"00000000000000000000000000000000\"", NULL });
	put_and_run(&b, "k", 3);
	assert_true(b.ok);
	bed_down(&b);
}

static void
large_objects_go_up_in_parts(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b);
	ANSWERS(&b,
		{ 200, NULL, NULL,
			"<InitiateMultipartUploadResult><UploadId>x/y=&amp;"
			"</UploadId></InitiateMultipartUploadResult>" },
		{ 200, "ETag", "\"one\"", NULL },
		{ 200, "ETag", "\"t&wo\"", NULL },
		{ 200, "ETag", "three", NULL },
		{ 200, NULL, NULL,
			"<CompleteMultipartUploadResult><ETag>&quot;abc-3"
			"&quot;</ETag></CompleteMultipartUploadResult>" });
	put_and_run(&b, "a=1/b", 2500);
	assert_true(b.ok);
	assert_string_equal(b.etag, "abc-3");
	assert_int_equal(b.seen_n, 5);
	assert_seen(&b, 0, "POST", "/lake/a%3D1/b?uploads=");
	assert_string_equal(b.seen[0].type, "application/zstd");
	assert_int_equal(b.seen[0].body_n, 0);
	assert_seen(&b, 1, "PUT",
		"/lake/a%3D1/b?partNumber=1&uploadId=x%2Fy%3D%26");
	assert_seen(&b, 3, "PUT",
		"/lake/a%3D1/b?partNumber=3&uploadId=x%2Fy%3D%26");
	assert_int_equal(b.seen[1].body_n, 1000);
	assert_int_equal(b.seen[2].body_n, 1000);
	assert_int_equal(b.seen[3].body_n, 500);
	/* goes on where the one before ended */
	assert_int_equal(b.seen[3].body[0], 'a' + 2000 % 23);
	assert_string_equal(b.seen[1].names,
		"content-md5;host;x-amz-content-sha256;x-amz-date");
	assert_seen(&b, 4, "POST", "/lake/a%3D1/b?uploadId=x%2Fy%3D%26");
	assert_string_equal(b.seen[4].type, "application/xml");
	assert_string_equal(b.seen[4].body,
		"<CompleteMultipartUpload>"
		"<Part><PartNumber>1</PartNumber><ETag>\"one\"</ETag></Part>"
		"<Part><PartNumber>2</PartNumber><ETag>\"t&#38;wo\"</ETag>"
		"</Part>"
		"<Part><PartNumber>3</PartNumber><ETag>\"three\"</ETag></Part>"
		"</CompleteMultipartUpload>");
	/* between the parts only */
	assert_int_equal(b.hooks_n, 2);
	assert_int_equal(b.hooks[0], 1);
	assert_int_equal(b.hooks[1], 2);
	bed_down(&b);
}

static void
lists_go_on_behind_the_last_key(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b);
	ANSWERS(&b, { 200, NULL, NULL,
			    "<ListBucketResult><IsTruncated>true</IsTruncated>"
			    "<Contents><Key>q/a=1&amp;2</Key></Contents>"
			    "<Contents><Key>q/&#98;</Key></Contents>"
			    "</ListBucketResult>" });
	s3_list(b.s, SPAN_LIT("q/"), SPAN_LIT("q/a=1"), 2, on_answer, &b);
	run(&b, 1);
	assert_seen(&b, 0, "GET",
		"/lake?list-type=2&max-keys=2&prefix=q%2F"
		"&start-after=q%2Fa%3D1");
	assert_true(b.ok);
	assert_true(b.truncated);
	assert_int_equal(b.keys_n, 2);
	assert_string_equal(b.keys[0], "q/a=1&2");
	assert_string_equal(b.keys[1], "q/b");
	ANSWERS(&b,
		{ 200, NULL, NULL, "<ListBucketResult><Contents><Key>q</Key>" },
		{ 200, NULL, NULL, "<html/>" },
		{ 200, NULL, NULL,
			"<ListBucketResult><IsTruncated>true</IsTruncated>"
			"</ListBucketResult>" });
	s3_list(b.s, SPAN_LIT("q/"), SPAN_LIT(""), 2, on_answer, &b);
	run(&b, 2);
	assert_false(b.ok);
	assert_int_equal(b.e.cls, S3_BODY);
	assert_string_equal(
		b.e.text, "list q/: status 200 without keys, and more of them");
	assert_int_equal(b.seen_n, 6);
	/* a server that does not know start-after tells its first page for ever */
	ANSWERS(&b, { 200, NULL, NULL,
			    "<ListBucketResult><IsTruncated>true</IsTruncated>"
			    "<Contents><Key>q/a</Key></Contents>"
			    "<Contents><Key>q/b</Key></Contents>"
			    "</ListBucketResult>" });
	s3_list(b.s, SPAN_LIT("q/"), SPAN_LIT("q/b"), 2, on_answer, &b);
	run(&b, 3);
	assert_false(b.ok);
	assert_true(b.e.retriable);
	assert_string_equal(b.e.text,
		"list q/: status 200 without keys behind the one it was asked "
		"for");
	bed_down(&b);
}

static void
a_page_of_a_gateway_is_no_answer_to_a_put(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b);
	ANSWERS(&b,
		{ 200, "Content-Type", "text/html", "<html>sign in</html>" });
	put_and_run(&b, "k", 3);
	assert_false(b.ok);
	assert_true(b.e.retriable);
	assert_string_equal(b.e.text, "put k: status 200 without an ETag");
	ANSWERS(&b, { 200, NULL, NULL, NULL });
	put_and_run(&b, "k", 3);
	assert_true(b.ok);
	bed_down(&b);
}

static void
absent_objects_are_an_answer(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b);
	ANSWERS(&b,
		{ 404, NULL, NULL, "<Error><Code>NoSuchKey</Code></Error>" });
	get_and_run(&b, "k");
	assert_true(b.ok && b.absent);
	assert_string_equal(b.body, "");
	s3_head(b.s, SPAN_LIT("k"), on_answer, &b);
	run(&b, 2);
	assert_true(b.ok && b.absent);
	assert_int_equal(b.seen_n, 2);
	/* but not when the bucket is absent */
	ANSWERS(&b, { 404, NULL, NULL,
			    "<Error><Code>NoSuchBucket</Code></Error>" });
	get_and_run(&b, "k");
	assert_false(b.ok);
	assert_string_equal(b.e.code, "NoSuchBucket");
	put_and_run(&b, "k", 3);
	assert_false(b.ok);
	assert_false(b.e.retriable);
	assert_int_equal(b.seen_n, 2);
	bed_down(&b);
}

static void
answers_have_a_bound(void **state)
{
	static char large[MAX_GET + 2];
	const struct answer a = { 200, NULL, NULL, large };
	struct bed b;
	(void)state;

	bed_up(&b);
	memset(large, 'x', MAX_GET + 1);
	b.answers = &a;
	b.answers_n = 1;
	get_and_run(&b, "k");
	assert_false(b.ok);
	assert_int_equal(b.e.cls, S3_BODY);
	assert_false(b.e.retriable);
	assert_string_equal(
		b.e.text, "get k: the answer has more than 4096 bytes");
	assert_int_equal(b.seen_n, 1);
	large[MAX_GET] = '\0';
	get_and_run(&b, "k");
	assert_true(b.ok);
	assert_int_equal(strlen(b.body), MAX_GET);
	/* and all of them together: the others will be over */
	s3_held_max = MAX_GET - 1;
	get_and_run(&b, "k");
	assert_false(b.ok);
	assert_true(b.e.retriable);
	assert_string_equal(b.e.text,
		"get k: all answers together have more than 4095 bytes");
	s3_held_max = MAX_GET;
	get_and_run(&b, "k");
	assert_true(b.ok);
	s3_held_max = (size_t)512 << 20;
	bed_down(&b);
}

static void
nothing_unusable_is_accepted(void **state)
{
	struct bed b;
	struct err e = ERR_ZERO;
	char endpoint[] = "ftp://x";
	(void)state;

	bed_up(&b);
	b.conf.ca_file = "/nonexistent/ca.pem";
	assert_null(s3_new(b.loop, &b.conf, &e));
	assert_int_equal(e.kind, ERR_CONFIG);
	assert_string_equal(e.text,
		"cannot read QUEEN_CA_FILE /nonexistent/ca.pem: No such file "
		"or directory");
	b.conf.ca_file = "";
	b.sink.endpoint = endpoint;
	assert_null(s3_new(b.loop, &b.conf, &e));
	assert_int_equal(e.kind, ERR_CONFIG);
	bed_down(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_are_exact_in_both_styles),
		cmocka_unit_test(encryption_is_asked_for_as_configured),
		cmocka_unit_test(etags_are_compared_when_they_are_digests),
		cmocka_unit_test(large_objects_go_up_in_parts),
		cmocka_unit_test(lists_go_on_behind_the_last_key),
		cmocka_unit_test(a_page_of_a_gateway_is_no_answer_to_a_put),
		cmocka_unit_test(absent_objects_are_an_answer),
		cmocka_unit_test(answers_have_a_bound),
		cmocka_unit_test(nothing_unusable_is_accepted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
