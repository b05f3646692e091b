/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <archive.h>
#include <archive_entry.h>
#include <zstd.h>

#include "format_fix.h"
#include "jspan.h"
#include "zst.h"

#define N(a) (sizeof(a) / sizeof(*(a)))

static const struct format_of plain = { .format = S3_JSONL, .codec = S3_PLAIN };
static const struct format_of zstd = { .format = S3_JSONL, .codec = S3_ZSTD };
static const struct format_of gzip = { .format = S3_JSONL, .codec = S3_GZIP };

static void
assert_lines(const struct record *r, size_t n, const char *want)
{
	struct buf b = BUF_ZERO;

	fix_encode(&plain, r, n, &b);
	buf_putc(&b, '\0');
	assert_string_equal(b.p, want);
	buf_fini(&b);
}

static void
a_line_is_exact(void **state)
{
	const struct record r[] = {
		rec("cust-1", 0, "t-1", 1788516000121004, "{\"a\":1}"),
		rec("cust-1", 12, "t-2", 1788516000121004, "[]"),
		rec("cust-2", 7, "", 951827696000001, "\"x\""),
	};

	(void)state;
	assert_lines(r, N(r),
		"{\"partition\":\"cust-1\",\"offset\":0,"
		"\"transactionId\":\"t-1\",\"ts\":\"2026-09-04T10:00:00.121004Z\","
		"\"payload\":{\"a\":1}}\n"
		"{\"partition\":\"cust-1\",\"offset\":12,"
		"\"transactionId\":\"t-2\",\"ts\":\"2026-09-04T10:00:00.121004Z\","
		"\"payload\":[]}\n"
		"{\"partition\":\"cust-2\",\"offset\":7,"
		"\"transactionId\":\"\",\"ts\":\"2000-02-29T12:34:56.000001Z\","
		"\"payload\":\"x\"}\n");
}

static void
no_payload_is_null_and_negative_offsets_print(void **state)
{
	const struct record r[] = {
		rec("p", INT64_MIN, "t", -1, NULL),
		rec("p", INT64_MAX, "t", 0, NULL),
	};

	(void)state;
	assert_lines(r, N(r),
		"{\"partition\":\"p\",\"offset\":-9223372036854775808,"
		"\"transactionId\":\"t\",\"ts\":\"1969-12-31T23:59:59.999999Z\","
		"\"payload\":null}\n"
		"{\"partition\":\"p\",\"offset\":9223372036854775807,"
		"\"transactionId\":\"t\",\"ts\":\"1970-01-01T00:00:00.000000Z\","
		"\"payload\":null}\n");
}

static void
payload_text_is_spliced_without_its_line_breaks(void **state)
{
	const struct record r[] = {
		rec("p", 0, "t", 0,
			"{ \"b\" :1.500,\t\"a\":12345678901234567890}"),
		rec("p", 1, "t", 0, "\n{\r\n\"a\" : [ 1E+400 ,\r-0 ]\n}\n"),
		rec("p", 2, "t", 0, "\"\\n\xe2\x80\xa8\xc2\x85\x7f\""),
	};

	(void)state;
	assert_lines(r, N(r),
		"{\"partition\":\"p\",\"offset\":0,\"transactionId\":\"t\","
		"\"ts\":\"1970-01-01T00:00:00.000000Z\","
		"\"payload\":{ \"b\" :1.500,\t\"a\":12345678901234567890}}\n"
		"{\"partition\":\"p\",\"offset\":1,\"transactionId\":\"t\","
		"\"ts\":\"1970-01-01T00:00:00.000000Z\","
		"\"payload\": {  \"a\" : [ 1E+400 , -0 ] } }\n"
		"{\"partition\":\"p\",\"offset\":2,\"transactionId\":\"t\","
		"\"ts\":\"1970-01-01T00:00:00.000000Z\","
		"\"payload\":\"\\n\xe2\x80\xa8\xc2\x85\x7f\"}\n");
}

static void
a_large_payload_passes_in_steps(void **state)
{
	enum { BYTES = 1500000 };
	char *text = malloc(BYTES + 1);
	struct buf b = BUF_ZERO;
	struct record r;
	size_t front;

	(void)state;
	assert_non_null(text);
	for (size_t i = 0; i < BYTES; i++)
		text[i] = i % 7 == 3 ? '\n' : (char)('0' + i % 10);
	text[BYTES] = '\0';
	r = rec("p", 0, "t", 0, text);
	fix_encode(&plain, &r, 1, &b);
	front = b.len - BYTES - 2;
	assert_memory_equal(b.p + front - 10, "\"payload\":", 10);
	for (size_t i = 0; i < BYTES; i++)
		if (b.p[front + i] != (text[i] == '\n' ? ' ' : text[i]))
			fail_msg("byte %zu", i);
	assert_memory_equal(b.p + b.len - 2, "}\n", 2);
	buf_fini(&b);
	free(text);
}

/* As the reference escapes: short names, else lower-case hex, no more. */
static void
names_are_escaped_like_the_reference(void **state)
{
	char name[0x20 + 64];
	size_t n = 0;
	struct record r;
	struct buf b = BUF_ZERO;
	const char *want =
		"{\"partition\":\"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005"
		"\\u0006\\u0007\\b\\t\\n\\u000b\\f\\r\\u000e\\u000f\\u0010"
		"\\u0011\\u0012\\u0013\\u0014\\u0015\\u0016\\u0017\\u0018"
		"\\u0019\\u001a\\u001b\\u001c\\u001d\\u001e\\u001f"
		" \\\"\\\\/'<>&\x7f\xc2\x80\xe2\x80\xa8\xe2\x80\xa9"
		"\xf0\x9f\x90\x9d\xef\xbf\xbf\",\"offset\":0,"
		"\"transactionId\":\"";

	(void)state;
	for (; n < 0x20; n++)
		name[n] = (char)n;
	n += (size_t)snprintf(name + n, sizeof(name) - n,
		" \"\\/'<>&\x7f\xc2\x80\xe2\x80\xa8\xe2\x80\xa9"
		"\xf0\x9f\x90\x9d\xef\xbf\xbf");
	r = rec("", 0, "", 0, "0");
	r.partition = r.txn = span_make(name, n);
	fix_encode(&plain, &r, 1, &b);
	assert_memory_equal(b.p, want, strlen(want));
	/* the id is the same text */
	assert_memory_equal(
		b.p + strlen(want), want + 14, strlen("\\u0000\\u0001"));
	assert_non_null(strstr(b.p + strlen(want), "\xef\xbf\xbf\",\"ts\":"));
	buf_fini(&b);
}

static void
assert_member(
	struct jspan *j, struct arena *a, const char *key, struct span want)
{
	struct jspan_val v;
	struct span got;

	assert_true(jspan_next_key(j, a, &got));
	assert_true(span_is(got, key));
	assert_true(jspan_take(j, &v));
	got = v.raw;
	if (v.type == JSPAN_STRING && strcmp(key, "payload") != 0)
		assert_true(jspan_text(&v, a, &got));
	if (want.p)
		assert_true(span_eq(got, want));
}

static void
every_line_parses_with_the_members_in_order(void **state)
{
	enum { RECORDS = 600 };
	struct arena a = ARENA_ZERO;
	struct record *r = fix_records(&a, RECORDS);
	struct buf b = BUF_ZERO;
	char *p, *end;

	(void)state;
	fix_encode(&plain, r, RECORDS, &b);
	p = b.p;
	for (size_t i = 0; i < RECORDS; i++, p = end + 1) {
		struct span payload = r[i].payload;
		struct jspan j;
		struct span none = SPAN_ZERO;

		end = memchr(p, '\n', (size_t)(b.p + b.len - p));
		assert_non_null(end);
		if (r[i].null)
			payload = SPAN_LIT("null");
		else if (memchr(payload.p, '\n', payload.n))
			payload = SPAN_LIT("[1,   2]");
		jspan_open(&j, span_make(p, (size_t)(end - p)));
		assert_true(jspan_enter_object(&j));
		assert_member(&j, &a, "partition", r[i].partition);
		assert_member(&j, &a, "offset",
			arena_printf(&a, "%lld", (long long)r[i].offset));
		assert_member(&j, &a, "transactionId", r[i].txn);
		assert_member(&j, &a, "ts", none);
		assert_member(&j, &a, "payload", payload);
		assert_false(jspan_next_key(&j, &a, &none));
		assert_true(jspan_end(&j));
	}
	assert_ptr_equal(p, b.p + b.len);
	buf_fini(&b);
	arena_fini(&a);
}

static void
gunzip(const struct buf *in, struct buf *out)
{
	struct archive *a = archive_read_new();
	struct archive_entry *entry;
	la_ssize_t n;

	buf_reset(out);
	archive_read_support_filter_gzip(a);
	archive_read_support_format_raw(a);
	archive_read_support_format_empty(a);
	assert_int_equal(
		archive_read_open_memory(a, in->p, in->len), ARCHIVE_OK);
	assert_int_equal(archive_filter_code(a, 0), ARCHIVE_FILTER_GZIP);
	if (archive_read_next_header(a, &entry) == ARCHIVE_OK) {
		while ((n = archive_read_data(
				a, buf_reserve(out, 65536), 65536)) > 0)
			out->len += (size_t)n;
		assert_int_equal(n, 0);
	}
	archive_read_free(a);
}

static void
unzstd(const struct buf *in, struct buf *out)
{
	struct err e = ERR_ZERO;

	buf_reset(out);
	assert_int_equal(zst_unpack(buf_span(in), 64 << 20, out, &e), 0);
}

static void
codecs_give_the_same_bytes_again_and_decode_to_the_plain(void **state)
{
	enum { RECORDS = 20000 };
	struct arena a = ARENA_ZERO;
	struct record *r = fix_records(&a, RECORDS);
	struct buf lines = BUF_ZERO, one = BUF_ZERO, two = BUF_ZERO;
	const struct format_of *packed[] = { &zstd, &gzip };

	(void)state;
	fix_encode(&plain, r, RECORDS, &lines);
	fix_encode(&plain, r, RECORDS, &one);
	assert_true(span_eq(buf_span(&lines), buf_span(&one)));
	for (size_t i = 0; i < N(packed); i++) {
		fix_encode(packed[i], r, RECORDS, &one);
		/* a context that has packed something else since */
		fix_encode(packed[i], r, 3, &two);
		fix_encode(packed[i], r, RECORDS, &two);
		assert_true(span_eq(buf_span(&one), buf_span(&two)));
		assert_true(one.len < lines.len / 2);
		(packed[i] == &zstd ? unzstd : gunzip)(&one, &two);
		assert_true(span_eq(buf_span(&two), buf_span(&lines)));
	}
	buf_fini(&lines);
	buf_fini(&one);
	buf_fini(&two);
	arena_fini(&a);
}

static void
writers_side_by_side_do_not_mix(void **state)
{
	enum { RECORDS = 3000 };
	struct arena a = ARENA_ZERO;
	struct record *r = fix_records(&a, RECORDS);
	struct buf want = BUF_ZERO, got = BUF_ZERO;
	struct object o[2];
	struct format *f[2];
	struct err e = ERR_ZERO;

	(void)state;
	fix_encode(&zstd, r, RECORDS, &want);
	for (int i = 0; i < 2; i++) {
		object_init(&o[i]);
		f[i] = format_new(&zstd, &o[i], &e);
		assert_non_null(f[i]);
	}
	for (size_t k = 0; k < RECORDS; k++)
		for (int i = 0; i < 2; i++)
			assert_int_equal(format_add(f[i], &r[k], &e), 0);
	for (int i = 0; i < 2; i++) {
		fix_finish(f[i], &o[i], &got);
		assert_true(span_eq(buf_span(&got), buf_span(&want)));
	}
	buf_fini(&want);
	buf_fini(&got);
	arena_fini(&a);
}

static void
headers_of_the_codecs_hold_no_time_and_no_name(void **state)
{
	const struct record r = rec("p", 0, "t", 0, "1");
	/* magic, deflate, no flags, no time, level, Unix */
	const uint8_t head[10] = { 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3 };
	struct buf b = BUF_ZERO;

	(void)state;
	fix_encode(&gzip, &r, 1, &b);
	assert_memory_equal(b.p, head, sizeof(head));
	fix_encode(&zstd, &r, 1, &b);
	/* one frame: no content size, no single segment, no checksum, no id */
	assert_memory_equal(b.p, "\x28\xb5\x2f\xfd\x00", 5);
	assert_int_equal(ZSTD_findFrameCompressedSize(b.p, b.len), b.len);
	buf_fini(&b);
}

static void
extension_content_type_and_writer_of_each_codec(void **state)
{
	char w[FORMAT_WRITER_MAX], want[FORMAT_WRITER_MAX];

	(void)state;
	assert_string_equal(format_extension(S3_JSONL, S3_ZSTD), "jsonl.zst");
	assert_string_equal(format_extension(S3_JSONL, S3_GZIP), "jsonl.gz");
	assert_string_equal(format_extension(S3_JSONL, S3_PLAIN), "jsonl");
	assert_string_equal(
		format_content_type(S3_JSONL), "application/x-ndjson");
	assert_string_equal(format_writer(S3_JSONL, S3_PLAIN, w),
		"queen-s3/" QUEEN_VERSION " jsonl");
	snprintf(want, sizeof(want), "queen-s3/" QUEEN_VERSION " jsonl+zstd/%s",
		ZSTD_versionString());
	assert_string_equal(format_writer(S3_JSONL, S3_ZSTD, w), want);
	snprintf(want, sizeof(want), "queen-s3/" QUEEN_VERSION " jsonl+gzip/%s",
		archive_zlib_version());
	assert_string_equal(format_writer(S3_JSONL, S3_GZIP, w), want);
}

static void
assert_order(const struct record *first, const struct record *then, bool ok)
{
	struct err e = ERR_ZERO;
	struct object o;
	struct format *f;

	object_init(&o);
	f = format_new(&plain, &o, &e);
	assert_int_equal(format_add(f, first, &e), 0);
	assert_int_equal(format_add(f, then, &e), ok ? 0 : -1);
	if (!ok) {
		assert_int_equal(e.kind, ERR_BUG);
		assert_non_null(strstr(e.text, "record out of order"));
	}
	assert_int_equal(format_records(f), ok ? 2 : 1);
	format_free(f);
	object_fini(&o);
}

static void
records_come_in_order(void **state)
{
	const struct record r = rec("b", 5, "t", 100, "1");
	const struct record worse[] = {
		rec("a", 6, "t", 101, "1"),
		rec("", 6, "t", 101, "1"),
		rec("b", 6, "t", 99, "1"),
		rec("b", 4, "t", 100, "1"),
		rec("b", 5, "t", 100, "1"),
	};
	const struct record better[] = {
		rec("b", 6, "t", 100, "1"),
		rec("ba", 0, "t", 0, "1"),
		rec("\xc3\xa9", 0, "t", 0, "1"),
		/* a partition of that name made anew counts from 0 */
		rec("b", 0, "t", 101, "1"),
	};

	(void)state;
	for (size_t i = 0; i < N(worse); i++)
		assert_order(&r, &worse[i], false);
	for (size_t i = 0; i < N(better); i++)
		assert_order(&r, &better[i], true);
}

static void
a_writer_is_for_one_object(void **state)
{
	const struct record r = rec("b", 5, "t", 100, "1");
	struct err e = ERR_ZERO;
	struct object o;
	struct format *f;

	(void)state;
	object_init(&o);
	f = format_new(&gzip, &o, &e);
	assert_int_equal(format_finish(f, &e), 0);
	assert_int_equal(format_add(f, &r, &e), -1);
	assert_int_equal(e.kind, ERR_BUG);
	assert_int_equal(format_finish(f, &e), -1);
	format_free(f);
	object_fini(&o);
	/* given up halfway, the object first */
	object_init(&o);
	f = format_new(&gzip, &o, &e);
	assert_int_equal(format_add(f, &r, &e), 0);
	object_fini(&o);
	format_free(f);
}

static void
no_records_are_an_empty_object(void **state)
{
	struct buf b = BUF_ZERO, lines = BUF_ZERO;

	(void)state;
	fix_encode(&plain, NULL, 0, &b);
	assert_int_equal(b.len, 0);
	fix_encode(&zstd, NULL, 0, &b);
	assert_true(b.len > 0);
	unzstd(&b, &lines);
	assert_int_equal(lines.len, 0);
	fix_encode(&gzip, NULL, 0, &b);
	assert_int_equal(b.len, 20);
	gunzip(&b, &lines);
	assert_int_equal(lines.len, 0);
	buf_fini(&b);
	buf_fini(&lines);
}

static void
a_hundred_thousand_records_are_as_large_as_they_must(void **state)
{
	enum { RECORDS = 100000 };
	struct record *r = calloc(RECORDS, sizeof(*r));
	struct buf b = BUF_ZERO;
	size_t line = strlen("{\"partition\":\"cust-0420\",\"offset\":100000,"
			     "\"transactionId\":\"t\",\"ts\":"
			     "\"2026-09-04T10:00:00.121004Z\",\"payload\":"
			     "{\"n\":1}}\n");

	(void)state;
	assert_non_null(r);
	for (size_t i = 0; i < RECORDS; i++)
		r[i] = rec("cust-0420", (int64_t)(100000 + i), "t",
			1788516000121004 + (int64_t)i, "{\"n\":1}");
	fix_encode(&plain, r, RECORDS, &b);
	assert_int_equal(b.len, RECORDS * line);
	fix_encode(&zstd, r, RECORDS, &b);
	assert_true(b.len < RECORDS * line / 10);
	fix_encode(&gzip, r, RECORDS, &b);
	assert_true(b.len < RECORDS * line / 10);
	buf_fini(&b);
	free(r);
}

static void
lines_are_never_snappy(void **state)
{
	const struct format_of of = { .format = S3_JSONL, .codec = S3_SNAPPY };
	struct err e = ERR_ZERO;
	struct object o;

	(void)state;
	object_init(&o);
	assert_null(format_new(&of, &o, &e));
	assert_int_equal(e.kind, ERR_CONFIG);
	assert_int_equal(o.len, 0);
	object_fini(&o);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_is_exact),
		cmocka_unit_test(no_payload_is_null_and_negative_offsets_print),
		cmocka_unit_test(
			payload_text_is_spliced_without_its_line_breaks),
		cmocka_unit_test(a_large_payload_passes_in_steps),
		cmocka_unit_test(names_are_escaped_like_the_reference),
		cmocka_unit_test(every_line_parses_with_the_members_in_order),
		cmocka_unit_test(
			codecs_give_the_same_bytes_again_and_decode_to_the_plain),
		cmocka_unit_test(writers_side_by_side_do_not_mix),
		cmocka_unit_test(
			headers_of_the_codecs_hold_no_time_and_no_name),
		cmocka_unit_test(
			extension_content_type_and_writer_of_each_codec),
		cmocka_unit_test(records_come_in_order),
		cmocka_unit_test(a_writer_is_for_one_object),
		cmocka_unit_test(no_records_are_an_empty_object),
		cmocka_unit_test(
			a_hundred_thousand_records_are_as_large_as_they_must),
		cmocka_unit_test(lines_are_never_snappy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
