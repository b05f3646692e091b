/* SPDX-License-Identifier: Apache-2.0 */
/* Against the examples published with the rules of the signature. */
#include "sigv4.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "buf.h"
#include "hash.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define DATE "20130524T000000Z"
#define PAIR(n, v)                                                             \
	{                                                                      \
		{ n, sizeof(n) - 1 },                                          \
		{                                                              \
			v, sizeof(v) - 1                                       \
		}                                                              \
	}
#define HOST PAIR("host", "examplebucket.s3.amazonaws.com")
#define AT_US 1369353600000000 /* 2013-05-24 */
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct sigv4_key key = { "AKIAIOSFODNN7EXAMPLE",
	"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1" };

static void
assert_signed(
	const struct sigv4_request *r, const char *names, const char *signature)
{
	struct buf got = BUF_ZERO, want = BUF_ZERO;

	sigv4_sign(&got, &key, r);
	buf_putc(&got, '\0');
	buf_printf(&want,
		"AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/"
		"us-east-1/s3/aws4_request,SignedHeaders=%s,Signature=%s",
		names, signature);
	buf_putc(&want, '\0');
	assert_string_equal(got.p, want.p);
	buf_fini(&got);
	buf_fini(&want);
}

static void
published_get_of_a_range(void **state)
{
	const struct sigv4_pair headers[] = { PAIR("x-amz-date", DATE),
		PAIR("range", "bytes=0-9"), PAIR("x-amz-content-sha256", EMPTY),
		HOST };
	const struct sigv4_request r = { .method = "GET",
		.path = SPAN_LIT("/test.txt"),
		.headers = headers,
		.headers_n = COUNT(headers),
		.payload_sha256_hex = EMPTY,
		.at_us = AT_US + 999999 };
	(void)state;

	assert_signed(&r, "host;range;x-amz-content-sha256;x-amz-date",
		"f0e8bdb87c964420e857bd35b5d6ed31"
		"0bd44f0170aba48dd91039c6036bdb41");
}

static void
published_put_with_an_encoded_path(void **state)
{
	char digest[65];
	struct buf path = BUF_ZERO;
	struct sigv4_pair headers[] = { HOST,
		PAIR("x-amz-storage-class", "REDUCED_REDUNDANCY"),
		PAIR("date", "Fri, 24 May 2013 00:00:00 GMT"),
		PAIR("x-amz-date", DATE), PAIR("x-amz-content-sha256", "") };
	struct sigv4_request r = { .method = "PUT",
		.headers = headers,
		.headers_n = COUNT(headers),
		.payload_sha256_hex = digest,
		.at_us = AT_US };
	(void)state;

	hash_sha256_hex(SPAN_LIT("Welcome to Amazon S3."), digest);
	headers[4].value = span_of(digest);
	sigv4_encode(&path, SPAN_LIT("/test$file.text"), 1);
	r.path = buf_span(&path);
	assert_signed(&r,
		"date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
		"98ad721746da40c64f1a55b78f14c238"
		"d841ea1380cd77a1b5971af0ece108bd");
	buf_fini(&path);
}

static void
published_queries(void **state)
{
	const struct sigv4_pair headers[] = { HOST,
		PAIR("x-amz-content-sha256", EMPTY), PAIR("x-amz-date", DATE) };
	const struct sigv4_pair lifecycle[] = { PAIR("lifecycle", "") };
	const struct sigv4_pair list[] = { PAIR("prefix", "J"),
		PAIR("max-keys", "2") };
	struct sigv4_request r = { .method = "GET",
		.path = SPAN_LIT("/"),
		.headers = headers,
		.headers_n = COUNT(headers),
		.payload_sha256_hex = EMPTY,
		.at_us = AT_US };
	struct buf query = BUF_ZERO;
	(void)state;

	sigv4_query(&query, lifecycle, 1);
	r.query = buf_span(&query);
	assert_signed(&r, "host;x-amz-content-sha256;x-amz-date",
		"fea454ca298b7da1c68078a5d1bdbfbb"
		"e0d65c699e0f91ac7a200a0136783543");
	buf_reset(&query);
	sigv4_query(&query, list, COUNT(list));
	r.query = buf_span(&query);
	assert_signed(&r, "host;x-amz-content-sha256;x-amz-date",
		"34b48302e7b5fa45bde8084f4b7868a8"
		"6f0a534bc59db6670ed5711ef69dc6f7");
	buf_fini(&query);
}

/* A value counts without its outer spaces, and with one of several inside. */
static void
values_of_headers_are_folded(void **state)
{
	struct sigv4_pair plain[] = { HOST, PAIR("x-amz-meta", "a b c") };
	struct sigv4_pair loose[] = { HOST, PAIR("x-amz-meta", "  a   b  c ") };
	struct sigv4_request r = { .method = "GET",
		.path = SPAN_LIT("/"),
		.headers = plain,
		.headers_n = 2,
		.payload_sha256_hex = EMPTY };
	struct buf a = BUF_ZERO, b = BUF_ZERO;
	(void)state;

	sigv4_sign(&a, &key, &r);
	r.headers = loose;
	sigv4_sign(&b, &key, &r);
	assert_true(span_eq(buf_span(&a), buf_span(&b)));
	buf_fini(&a);
	buf_fini(&b);
}

static void
assert_encoded(struct span s, int keep_slash, const char *want)
{
	struct buf b = BUF_ZERO;

	sigv4_encode(&b, s, keep_slash);
	buf_putc(&b, '\0');
	assert_string_equal(b.p, want);
	buf_fini(&b);
}

static void
paths_are_encoded_once(void **state)
{
	(void)state;
	assert_encoded(SPAN_LIT("q/tenant=t1/queue=a%2Fb/dt=2026-09-04/w-1"), 1,
		"q/tenant%3Dt1/queue%3Da%252Fb/dt%3D2026-09-04/w-1");
	assert_encoded(SPAN_LIT("a/b"), 0, "a%2Fb");
	assert_encoded(SPAN_LIT("AZaz09-._~"), 0, "AZaz09-._~");
	assert_encoded(SPAN_LIT(" !\"#$&'()*+,:;<>?@[\\]^`{|}"), 0,
		"%20%21%22%23%24%26%27%28%29%2A%2B%2C%3A%3B%3C%3E%3F%40%5B%5C"
		"%5D%5E%60%7B%7C%7D");
	assert_encoded(
		SPAN_LIT("caff\xc3\xa8\x00\x7f\xff"), 0, "caff%C3%A8%00%7F%FF");
	assert_encoded(SPAN_LIT(""), 1, "");
}

static void
queries_are_sorted_by_name_then_value(void **state)
{
	const struct sigv4_pair q[] = { PAIR("uploadId", "x/y+z="),
		PAIR("partNumber", "10"), PAIR("a-b", "1"), PAIR("a", "2"),
		PAIR("a", "10"), PAIR("a", ""), PAIR("A", "z"),
		PAIR("\xc3\xa9", "1"), PAIR("z", "1") };
	struct buf b = BUF_ZERO;
	(void)state;

	sigv4_query(&b, q, COUNT(q));
	buf_putc(&b, '\0');
	assert_string_equal(b.p, "%C3%A9=1&A=z&a=&a=10&a=2&a-b=1&partNumber=10"
				 "&uploadId=x%2Fy%2Bz%3D&z=1");
	buf_reset(&b);
	sigv4_query(&b, NULL, 0);
	assert_int_equal(b.len, 0);
	buf_fini(&b);
}

static void
dates_have_16_characters(void **state)
{
	char out[SIGV4_DATE_MAX];
	(void)state;

	assert_string_equal(
		sigv4_date(1788516000999999, out), "20260904T100000Z");
	assert_string_equal(sigv4_date(0, out), "19700101T000000Z");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_get_of_a_range),
		cmocka_unit_test(published_put_with_an_encoded_path),
		cmocka_unit_test(published_queries),
		cmocka_unit_test(values_of_headers_are_folded),
		cmocka_unit_test(paths_are_encoded_once),
		cmocka_unit_test(queries_are_sorted_by_name_then_value),
		cmocka_unit_test(dates_have_16_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
