/* SPDX-License-Identifier: Apache-2.0 */
/* What the client does when something fails, or is called off. */
#include "s3_fix.h"

#define UPLOAD_ID                                                              \
	{                                                                      \
		200, NULL, NULL, "<R><UploadId>u</UploadId></R>"               \
	}
#define PART                                                                   \
	{                                                                      \
		200, "ETag", "\"p\"", NULL                                     \
	}
#define ERROR(code) "<Error><Code>" code "</Code><Message>m</Message></Error>"
#define RESULT                                                                 \
	"<CompleteMultipartUploadResult><ETag>\"x-2\"</ETag>"                  \
	"</CompleteMultipartUploadResult>"

/* A get that is answered so for ever. */
static void
assert_judged(struct bed *b, int status, const char *body, size_t seen,
	enum s3_class cls, const char *text)
{
	struct answer a = { status, NULL, NULL, body };

	b->answers = &a;
	b->answers_n = 1;
	b->seen_n = 0;
	get_and_run(b, "k");
	assert_false(b->ok);
	assert_string_equal(b->e.text, text);
	assert_int_equal(b->e.cls, cls);
	assert_int_equal(b->e.status, status);
	assert_int_equal(b->e.retriable, seen > 1);
	assert_int_equal(b->seen_n, seen);
}

static void
what_passes_is_tried_six_times(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b);
	assert_judged(&b, 503, ERROR("SlowDown"), 6, S3_STATUS,
		"get k: status 503 SlowDown: m");
	assert_judged(&b, 500, NULL, 6, S3_STATUS, "get k: status 500");
	assert_judged(&b, 429, "<html>", 6, S3_STATUS, "get k: status 429");
	assert_judged(&b, 408, "", 6, S3_STATUS, "get k: status 408");
	assert_judged(&b, 400, ERROR("RequestTimeout"), 6, S3_STATUS,
		"get k: status 400 RequestTimeout: m");
	assert_judged(&b, 409, ERROR("OperationAborted"), 6, S3_STATUS,
		"get k: status 409 OperationAborted: m");
	assert_judged(&b, 409, ERROR("ConditionalRequestConflict"), 6,
		S3_STATUS, "get k: status 409 ConditionalRequestConflict: m");
	assert_judged(&b, 400, ERROR("BadDigest"), 6, S3_INTEGRITY,
		"get k: status 400 BadDigest: m");
	assert_judged(&b, 403, ERROR("AccessDenied"), 1, S3_STATUS,
		"get k: status 403 AccessDenied: m");
	assert_judged(&b, 400, ERROR("InvalidRequest"), 1, S3_STATUS,
		"get k: status 400 InvalidRequest: m");
	assert_judged(&b, 409, ERROR("BucketNotEmpty"), 1, S3_STATUS,
		"get k: status 409 BucketNotEmpty: m");
	assert_judged(&b, 301, NULL, 1, S3_STATUS, "get k: status 301");
	/* then it is well again */
	ANSWERS(&b, { 503, NULL, NULL, NULL }, { 500, NULL, NULL, NULL },
		{ 200, NULL, NULL, "well" });
	get_and_run(&b, "k");
	assert_true(b.ok);
	assert_string_equal(b.body, "well");
	bed_down(&b);
}

static void
every_attempt_is_counted(void **state)
{
	static const char *const counted[][3] = {
		{ "put", "200", "1" },
		{ "multipart_create", "200", "1" },
		{ "multipart_part", "200", "1" },
		{ "multipart_part", "403", "1" },
		{ "multipart_abort", "204", "1" },
		{ "head", "0", "1" },
		{ "get", "0", "6" },
		{ "get", "404", "1" },
		{ "get", "500", "1" },
		{ "get", "503", "2" },
	};
	struct bed b;
	(void)state;

	bed_up(&b);
	assert_counts(&b, NULL, 0);
	ANSWERS(&b, { 503, NULL, NULL, NULL }, { 500, NULL, NULL, NULL },
		{ 503, NULL, NULL, NULL }, { 404, NULL, NULL, NULL });
	get_and_run(&b, "k");
	ANSWERS(&b, UPLOAD_ID, PART, { 403, NULL, NULL, NULL },
		{ 204, NULL, NULL, NULL });
	put_and_run(&b, "k", 1500);
	ANSWERS(&b, { 200, "ETag", "e", NULL });
	put_and_run(&b, "k", 5);
	/* a port nobody listens on */
	evhttp_free(b.http);
	b.http = evhttp_new(loop_base(b.loop));
	s3_head(b.s, SPAN_LIT("k"), on_answer, &b);
	run(&b, 2);
	assert_false(b.ok);
	assert_int_equal(b.e.cls, S3_TRANSPORT);
	assert_true(b.e.retriable);
	assert_int_equal(b.e.status, 0);
	get_and_run(&b, "k");
	assert_false(b.ok);
	assert_counts(&b, counted, sizeof(counted) / sizeof(counted[0]));
	bed_down(&b);
}

static void
the_servers_wish_is_a_floor(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b);
	ANSWERS(&b, { 503, "Retry-After", "1", NULL },
		{ 200, NULL, NULL, NULL });
	get_and_run(&b, "k");
	assert_true(b.ok);
	assert_true(b.seen[1].at_ms - b.seen[0].at_ms >= 995);
	/* whoever asked learns of it too, as far as we would wait */
	ANSWERS(&b, { 503, "Retry-After", "7200", NULL });
	s3_head(b.s, SPAN_LIT("k"), on_answer, &b);
	run(&b, 2);
	assert_int_equal(b.e.retry_after_ms, 60000);
	/* in a hurry it is not */
	s3_get(b.s, SPAN_LIT("k"), 1, on_answer, &b);
	run_seen(&b, 2);
	s3_hurry(b.s);
	run(&b, 3);
	assert_false(b.ok);
	assert_int_equal(b.seen_n, 7);
	assert_true(b.seen[6].at_ms - b.seen[1].at_ms < 5000);
	bed_down(&b);
}

static void
a_wrong_clock_is_told(void **state)
{
	struct bed b;
	time_t at = time(NULL) - 1000;
	char date[64];
	struct answer all[] = { { 403, "Date", date,
					ERROR("RequestTimeTooSkewed") },
		{ 200, NULL, NULL, NULL } };
	(void)state;

	bed_up(&b);
	strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime(&at));
	b.answers = all;
	b.answers_n = 2;
	get_and_run(&b, "k");
	assert_true(b.ok);
	b.answers_n = 1;
	s3_head(b.s, SPAN_LIT("k"), on_answer, &b);
	run(&b, 2);
	get_and_run(&b, "k");
	assert_true(b.e.retriable);
	assert_non_null(strstr(b.e.text,
		"get k: status 403 RequestTimeTooSkewed: m; this clock is "
		"10"));
	assert_non_null(strstr(b.e.text, " s ahead of the server's"));
	bed_down(&b);
}

static void
the_region_of_the_bucket_is_told(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b);
	ANSWERS(&b, { 301, "x-amz-bucket-region", "us-west-2",
			    ERROR("PermanentRedirect") });
	get_and_run(&b, "k");
	assert_string_equal(b.e.text,
		"get k: status 301 PermanentRedirect: m; the bucket is in "
		"region us-west-2");
	assert_int_equal(b.seen_n, 1);
	assert_judged(&b, 400,
		"<Error><Code>AuthorizationHeaderMalformed</Code>"
		"<Message>expecting 'us-west-2'</Message>"
		"<Region>us-west-2</Region></Error>",
		1, S3_STATUS,
		"get k: status 400 AuthorizationHeaderMalformed: expecting "
		"'us-west-2'; the bucket is in region us-west-2");
	/* a redirect is not followed either */
	ANSWERS(&b, { 307, "Location", "http://localhost:1/", NULL });
	get_and_run(&b, "k");
	assert_int_equal(b.e.status, 307);
	assert_int_equal(b.seen_n, 1);
	bed_down(&b);
}

static void
assert_upload(struct bed *b, bool ok, size_t seen, const char *last_method)
{
	put_and_run(b, "k", 1500);
	assert_int_equal(b->ok, ok);
	assert_int_equal(b->seen_n, seen);
	assert_string_equal(b->seen[seen - 1].method, last_method);
}

static void
failed_uploads_are_aborted(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b);
	ANSWERS(&b, UPLOAD_ID, PART, { 403, NULL, NULL, ERROR("AccessDenied") },
		{ 204, NULL, NULL, NULL });
	assert_upload(&b, false, 4, "DELETE");
	assert_string_equal(b.seen[3].uri, "/lake/k?uploadId=u");
	assert_string_equal(
		b.e.text, "multipart_part k: status 403 AccessDenied: m");
	/* a part without an ETag */
	ANSWERS(&b, UPLOAD_ID, { 200, NULL, NULL, NULL });
	put_and_run(&b, "k", 1500);
	assert_string_equal(
		b.e.text, "multipart_part k: status 200 without an ETag");
	assert_int_equal(b.seen_n, 1 + 6 + 1);
	/* whose digest is another's */
	ANSWERS(&b, UPLOAD_ID,
		{ 200, "ETag", "\"00000000000000000000000000000000\"", NULL });
	put_and_run(&b, "k", 1500);
	assert_int_equal(b.e.cls, S3_INTEGRITY);
	/* an error in the body of a 200, by its code */
	ANSWERS(&b, UPLOAD_ID, PART, PART,
		{ 200, NULL, NULL, ERROR("InvalidPart") },
		{ 204, NULL, NULL, NULL });
	assert_upload(&b, false, 5, "DELETE");
	assert_string_equal(
		b.e.text, "multipart_complete k: status 200 InvalidPart: m");
	assert_false(b.e.retriable);
	/* an attempt to abort is repeated, and does not hide why */
	ANSWERS(&b, UPLOAD_ID, { 403, NULL, NULL, NULL },
		{ 503, NULL, NULL, NULL });
	assert_upload(&b, false, 4, "DELETE");
	assert_string_equal(b.e.text, "multipart_part k: status 403");
	/* there is nothing to abort */
	ANSWERS(&b, { 200, NULL, NULL, "<R></R>" });
	assert_upload(&b, false, 6, "POST");
	assert_string_equal(
		b.e.text, "multipart_create k: status 200 without an UploadId");
	bed_down(&b);
}

static void
completing_needs_a_whole_result(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b);
	ANSWERS(&b, UPLOAD_ID, PART, PART,
		{ 200, NULL, NULL, ERROR("InternalError") },
		{ 200, NULL, NULL, "" },
		{ 200, NULL, NULL, "<CompleteMultipartUploadResult><ETag>" },
		{ 200, NULL, NULL, RESULT });
	assert_upload(&b, true, 7, "POST");
	assert_string_equal(b.etag, "x-2");
	ANSWERS(&b, UPLOAD_ID, PART, PART,
		{ 200, NULL, NULL,
			"<CompleteMultipartUploadResult><ETag>&#34;x-3&#34;"
			"</ETag></CompleteMultipartUploadResult>" });
	put_and_run(&b, "k", 1500);
	assert_false(b.ok);
	assert_int_equal(b.e.cls, S3_INTEGRITY);
	assert_true(b.e.retriable);
	assert_string_equal(b.e.text,
		"multipart_complete k: the ETag x-3 is not of 2 parts");
	bed_down(&b);
}

/* The answer to a completion may be lost: the object tells. */
static void
an_unknown_upload_is_looked_for(void **state)
{
	static const struct answer gone = { 404, NULL, NULL,
		ERROR("NoSuchUpload") };
	struct answer all[12] = { UPLOAD_ID, PART, PART, gone,
		{ 200, "Content-Length", "1500", NULL } };
	struct bed b;
	(void)state;

	bed_up(&b);
	b.answers = all;
	b.answers_n = 5;
	assert_upload(&b, true, 5, "HEAD");
	/* another object: from the beginning */
	all[4].value = "1499";
	memcpy(all + 5, all, 3 * sizeof(all[0]));
	all[8] = (struct answer){ 200, NULL, NULL, RESULT };
	b.answers_n = 9;
	b.seen_n = 0;
	assert_upload(&b, true, 9, "POST");
	assert_int_equal(b.hooks_n, 2);
	/* no object, and never an upload */
	all[4] = (struct answer){ 404, NULL, NULL, NULL };
	all[5] = (struct answer)UPLOAD_ID;
	all[6] = gone; /* of a part */
	all[7] = (struct answer)UPLOAD_ID;
	all[8] = gone;
	b.answers_n = 9;
	b.seen_n = 0;
	assert_upload(&b, false, 9, "PUT");
	assert_string_equal(b.e.code, "NoSuchUpload");
	assert_true(b.e.retriable);
	bed_down(&b);
}

/* What is ready now, and what follows from it. */
static void
turns(struct bed *b)
{
	for (int i = 0; i < 10; i++)
		event_base_loop(loop_base(b->loop), EVLOOP_NONBLOCK);
}

static void
calls_end_at_any_time(void **state)
{
	struct s3_req *r;
	struct bed b;
	(void)state;

	bed_up(&b);
	ANSWERS(&b, { 0, NULL, NULL, NULL });
	s3_cancel(put(&b, "k", 3)); /* the loop did not run */
	r = put(&b, "k", 3);
	run_seen(&b, 1);
	s3_cancel(r); /* sent */
	b.conf.retry_first_ms = 60000;
	bed_client(&b);
	ANSWERS(&b, { 503, NULL, NULL, NULL });
	r = put(&b, "k", 3);
	run_seen(&b, 1);
	turns(&b);
	s3_cancel(r); /* waits */
	assert_int_equal(b.done, 0);
	/* in the hook, and its parts do not stay */
	ANSWERS(&b, UPLOAD_ID, PART, { 204, NULL, NULL, NULL });
	b.in_hook = put(&b, "k", 1500);
	run_seen(&b, 3);
	assert_seen(&b, 2, "DELETE", "/lake/k?uploadId=u");
	b.free_in_hook = true;
	ANSWERS(&b, UPLOAD_ID, PART);
	put(&b, "k", 1500);
	while (b.s)
		event_base_loop(loop_base(b.loop), EVLOOP_ONCE);
	assert_int_equal(b.done, 0);
	bed_client(&b);
	/* in its callback the bucket may go, with what is under way there */
	ANSWERS(&b, { 404, NULL, NULL, NULL });
	b.free_in_callback = true;
	put(&b, "k", 1500);
	s3_get(b.s, SPAN_LIT("k"), 1, on_answer, &b);
	s3_get(b.s, SPAN_LIT("k"), 1, on_answer, &b);
	run(&b, 1);
	assert_null(b.s);
	bed_down(&b);
}

/* What waits for its turn is not signed before it has it. */
static void
few_requests_are_under_way(void **state)
{
	struct s3_req *all[12];
	struct bed b;
	(void)state;

	bed_up(&b);
	ANSWERS(&b, { 0, NULL, NULL, NULL });
	for (int i = 0; i < 12; i++) {
		all[i] = s3_get(b.s, SPAN_LIT("k"), 1, on_answer, &b);
		run_seen(&b, i < 8 ? (size_t)i + 1 : 8);
		turns(&b);
	}
	/* a probe waits for none of them */
	s3_head(b.s, SPAN_LIT("probe"), on_answer, &b);
	run_seen(&b, 9);
	assert_string_equal(b.seen[8].method, "HEAD");
	s3_cancel(all[9]); /* had no turn */
	s3_cancel(all[0]);
	s3_cancel(all[8]); /* has it now, did not go */
	run_seen(&b, 10);
	assert_string_equal(b.seen[9].method, "GET");
	s3_cancel(all[1]);
	run_seen(&b, 11);
	turns(&b);
	assert_int_equal(b.seen_n, 11);
	assert_int_equal(b.done, 0);
	bed_down(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_passes_is_tried_six_times),
		cmocka_unit_test(every_attempt_is_counted),
		cmocka_unit_test(the_servers_wish_is_a_floor),
		cmocka_unit_test(a_wrong_clock_is_told),
		cmocka_unit_test(the_region_of_the_bucket_is_told),
		cmocka_unit_test(failed_uploads_are_aborted),
		cmocka_unit_test(completing_needs_a_whole_result),
		cmocka_unit_test(an_unknown_upload_is_looked_for),
		cmocka_unit_test(calls_end_at_any_time),
		cmocka_unit_test(few_requests_are_under_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
