/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "format_fix.h"
#include "parquet.h"
#include "parquet_read.h"

#define N(a) (sizeof(a) / sizeof(*(a)))

static const struct format_of zstd = { .format = S3_PARQUET,
	.codec = S3_ZSTD,
	.queue = { "orders", 6 },
	.tenant = { "t-1", 3 } };
static const struct format_of snappy = { .format = S3_PARQUET,
	.codec = S3_SNAPPY,
	.queue = { "orders", 6 },
	.tenant = { "t-1", 3 } };
static const struct format_of *const both[] = { &zstd, &snappy };

static void
encode_groups(const struct format_of *of, int64_t group_rows,
	const struct record *r, size_t n, struct buf *out)
{
	struct err e = ERR_ZERO;
	struct object o;
	struct parquet *p;
	int rc;

	object_init(&o);
	p = parquet_new(of, group_rows, &o, &e);
	assert_non_null(p);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(parquet_add(p, &r[i], &e), 0);
	while ((rc = parquet_finish(p, &e)) == 1)
		;
	assert_int_equal(rc, 0);
	parquet_free(p);
	object_seal(&o);
	fix_bytes(&o, out);
}

static void
assert_rows(const struct buf *file, const struct record *want, size_t n)
{
	struct arena a = ARENA_ZERO;
	size_t got_n;
	struct record *got = pq_rows(buf_span(file), &a, &got_n);

	assert_int_equal(got_n, n);
	for (size_t i = 0; i < n; i++)
		if (!span_eq(got[i].partition, want[i].partition) ||
			got[i].offset != want[i].offset ||
			got[i].ts_us != want[i].ts_us ||
			!span_eq(got[i].txn, want[i].txn) ||
			got[i].null != want[i].null ||
			!span_eq(got[i].payload, want[i].payload))
			fail_msg("row %zu", i);
	arena_fini(&a);
}

static const struct pq_node *
column(const struct pq_node *footer, size_t group, size_t which)
{
	const struct pq_node *groups = pq_get(footer, 4);

	assert_true(group < groups->kids_n);
	return pq_get(&pq_get(&groups->kids[group], 1)->kids[which], 3);
}

static void
assert_print(const struct pq_node *v, const char *want)
{
	struct buf b = BUF_ZERO;

	pq_print(v, &b);
	buf_putc(&b, '\0');
	assert_string_equal(b.p, want);
	buf_fini(&b);
}

static void
same_records_give_the_same_bytes(void **state)
{
	enum { RECORDS = 5000 };
	struct arena a = ARENA_ZERO;
	struct record *r = fix_records(&a, RECORDS);
	struct buf one[2] = { BUF_ZERO, BUF_ZERO }, two = BUF_ZERO;
	struct object o[2];
	struct format *f[2];
	struct err e = ERR_ZERO;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		fix_encode(both[i], r, RECORDS, &one[i]);
		fix_encode(both[i], r, 3, &two);
		fix_encode(both[i], r, RECORDS, &two);
		assert_true(span_eq(buf_span(&one[i]), buf_span(&two)));
		object_init(&o[i]);
		f[i] = format_new(both[i], &o[i], &e);
	}
	for (size_t k = 0; k < RECORDS; k++)
		for (size_t i = 0; i < 2; i++)
			assert_int_equal(format_add(f[i], &r[k], &e), 0);
	for (size_t i = 0; i < 2; i++) {
		fix_finish(f[i], &o[i], &two);
		assert_true(span_eq(buf_span(&one[i]), buf_span(&two)));
		assert_rows(&two, r, RECORDS);
	}
	assert_false(span_eq(buf_span(&one[0]), buf_span(&one[1])));
	buf_fini(&one[0]);
	buf_fini(&one[1]);
	buf_fini(&two);
	arena_fini(&a);
}

static void
row_groups_close_at_the_count_and_change_no_content(void **state)
{
	static const struct {
		int64_t size, rows, groups, last;
	} t[] = { { 0, 3, 3, 1 }, { 1, 3, 3, 1 }, { 7, 21, 3, 7 },
		{ 7, 22, 4, 1 }, { 100, 99, 1, 99 }, { 100, 100, 1, 100 } };
	struct arena a = ARENA_ZERO;
	struct buf b = BUF_ZERO;

	(void)state;
	for (size_t i = 0; i < 2 * N(t); i++) {
		size_t n = (size_t)t[i / 2].rows;
		struct record *r = fix_records(&a, n);
		const struct pq_node *groups;
		struct pq_node footer;

		encode_groups(both[i % 2], t[i / 2].size, r, n, &b);
		assert_rows(&b, r, n);
		footer = pq_footer(buf_span(&b), &a);
		groups = pq_get(&footer, 4);
		assert_int_equal(pq_int(&footer, 3), n);
		assert_int_equal(groups->kids_n, t[i / 2].groups);
		assert_int_equal(pq_int(&groups->kids[groups->kids_n - 1], 3),
			t[i / 2].last);
	}
	buf_fini(&b);
	arena_fini(&a);
}

#define SCHEMA                                                                 \
	"{4='queen_record',5=5},"                                              \
	"{1=6,3=0,4='partition',6=0,10={1={}}},"                               \
	"{1=2,3=0,4='offset'},"                                                \
	"{1=6,3=0,4='transaction_id',6=0,10={1={}}},"                          \
	"{1=2,3=0,4='ts',6=10,10={8={1=T,2={2={}}}}},"                         \
	"{1=6,3=1,4='payload',6=0,10={1={}}}"
#define ORDERS "[{1={}},{1={}},{1={}},{1={}},{1={}}]"

/*
 * All there is in the footer of one record: types, encodings, bounds; no
 * legacy bounds, no indexes, no time, no version.
 */
static void
the_footer_is_golden(void **state)
{
	const struct record r =
		rec("caff\xc3\xa8", 258, "t-1", 1788516000121004, NULL);
	struct arena a = ARENA_ZERO;
	struct buf b = BUF_ZERO;
	struct pq_node footer;

	(void)state;
	fix_encode(&snappy, &r, 1, &b);
	footer = pq_footer(buf_span(&b), &a);
	assert_print(&footer,
		"{1=1,2=[" SCHEMA "],3=1,4=[{1=["
		"{2=0,3={1=6,2=[0,2],3=['partition'],4=1,5=1,6=43,7=47,9=29,"
		"11=4,12={3=0,5='caff\\c3\\a8',6='caff\\c3\\a8',7=T,8=T},"
		"13=[{1=2,2=0,3=1},{1=0,2=2,3=1}]}},"
		"{2=0,3={1=2,2=[5],3=['offset'],4=1,5=1,6=23,7=25,9=51,"
		"12={3=0,5='\\02\\01\\00\\00\\00\\00\\00\\00',"
		"6='\\02\\01\\00\\00\\00\\00\\00\\00',7=T,8=T},"
		"13=[{1=0,2=5,3=1}]}},"
		"{2=0,3={1=6,2=[0],3=['transaction_id'],4=1,5=1,6=24,7=26,"
		"9=76,12={3=0,5='t-1',6='t-1',7=T,8=T},13=[{1=0,2=0,3=1}]}},"
		"{2=0,3={1=2,2=[5],3=['ts'],4=1,5=1,6=29,7=31,9=102,"
		"12={3=0,5='\\ac\\c0\\dcT\\a5Z\\06\\00',"
		"6='\\ac\\c0\\dcT\\a5Z\\06\\00',7=T,8=T},13=[{1=0,2=5,3=1}]}},"
		"{2=0,3={1=6,2=[0,3],3=['payload'],4=1,5=1,6=23,7=25,9=133,"
		"12={3=1},13=[{1=0,2=0,3=1}]}}],"
		"2=142,3=1,5=4,6=154}],"
		"5=[{1='queen.envelope',2='1'},{1='queen.queue',2='orders'},"
		"{1='queen.tenant',2='t-1'}],6='queen-s3',7=" ORDERS "}");
	assert_rows(&b, &r, 1);
	buf_fini(&b);
	arena_fini(&a);
}

static void
no_records_are_a_file_all_the_same(void **state)
{
	struct arena a = ARENA_ZERO;
	struct buf b = BUF_ZERO;
	struct pq_node footer;

	(void)state;
	fix_encode(&zstd, NULL, 0, &b);
	footer = pq_footer(buf_span(&b), &a);
	assert_print(&footer,
		"{1=1,2=[" SCHEMA "],3=0,4=[],"
		"5=[{1='queen.envelope',2='1'}],6='queen-s3',7=" ORDERS "}");
	assert_rows(&b, NULL, 0);
	buf_fini(&b);
	arena_fini(&a);
}

static void
names_of_queue_and_tenant_are_all_that_differs(void **state)
{
	const struct record r = rec("p", 1, "t", 2, "{}");
	struct format_of of = zstd;
	struct arena a = ARENA_ZERO;
	struct buf one = BUF_ZERO, two = BUF_ZERO;
	struct pq_node footer;

	(void)state;
	fix_encode(&of, &r, 1, &one);
	of.queue = SPAN_LIT("caff\xc3\xa8/a b");
	of.tenant = SPAN_LIT("t-1234");
	fix_encode(&of, &r, 1, &two);
	assert_int_equal(two.len - one.len, 10 - 6 + 6 - 3);
	assert_memory_equal(one.p, two.p, one.len - 150);
	footer = pq_footer(buf_span(&two), &a);
	assert_print(pq_get(&footer, 5),
		"[{1='queen.envelope',2='1'},"
		"{1='queen.queue',2='caff\\c3\\a8/a b'},"
		"{1='queen.tenant',2='t-1234'}]");
	buf_fini(&one);
	buf_fini(&two);
	arena_fini(&a);
}

static int64_t
little(struct span s)
{
	uint64_t v = 0;

	assert_int_equal(s.n, 8);
	for (int i = 0; i < 8; i++)
		v |= (uint64_t)(uint8_t)s.p[i] << 8 * i;
	return (int64_t)v;
}

static void
assert_texts(const struct pq_node *stat, const char *min, const char *max)
{
	assert_int_equal(pq_int(stat, 3), 0);
	assert_true(span_is(pq_get(stat, 6)->text, min));
	assert_true(span_is(pq_get(stat, 5)->text, max));
}

static void
assert_numbers(const struct pq_node *stat, int64_t min, int64_t max)
{
	assert_int_equal(pq_int(stat, 3), 0);
	assert_true(little(pq_get(stat, 6)->text) == min);
	assert_true(little(pq_get(stat, 5)->text) == max);
}

static void
bounds_of_each_row_group_are_true(void **state)
{
	const struct record r[] = {
		rec("a", 9, "t5", 50, "7"),
		rec("b", INT64_MIN, "t1", -4, NULL),
		rec("c", 0, "t9", INT64_MIN, "\"\xf0\x9f\x90\x9d\""),
		/* the next group */
		rec("c", INT64_MAX, "t3", INT64_MAX, NULL),
		rec("d", 2, "t3", 2, NULL),
		rec("\xc3\xa9", 3, "t3", 1, NULL),
	};
	struct arena a = ARENA_ZERO;
	struct buf b = BUF_ZERO;
	struct pq_node footer;

	(void)state;
	encode_groups(&zstd, 3, r, N(r), &b);
	assert_rows(&b, r, N(r));
	footer = pq_footer(buf_span(&b), &a);
#define STAT(g, c) pq_get(column(&footer, (g), (c)), 12)
	assert_texts(STAT(0, 0), "a", "c");
	assert_numbers(STAT(0, 1), INT64_MIN, 9);
	assert_texts(STAT(0, 2), "t1", "t9");
	assert_numbers(STAT(0, 3), INT64_MIN, 50);
	assert_print(
		STAT(0, 4), "{3=1,5='7',6='\"\\f0\\9f\\90\\9d\"',7=T,8=T}");
	assert_texts(STAT(1, 0), "c", "\xc3\xa9");
	assert_numbers(STAT(1, 1), 2, INT64_MAX);
	assert_numbers(STAT(1, 3), 1, INT64_MAX);
	assert_print(STAT(1, 4), "{3=3}");
#undef STAT
	buf_fini(&b);
	arena_fini(&a);
}

#define X60 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define XX60                                                                   \
	"\\ef\\bf\\bf\\ef\\bf\\bf\\ef\\bf\\bf\\ef\\bf\\bf\\ef\\bf\\bf\\ef\\bf\\bf"

/*
 * Cut at a character; the upper one raised at the last character that has a
 * next one of as many bytes; dropped when none has.
 */
static void
long_bounds_are_cut_and_the_upper_one_is_raised(void **state)
{
	static const struct {
		const char *text, *want;
	} t[] = {
		{ X60 "abcd", "5='" X60 "abcd',6='" X60 "abcd',7=T,8=T" },
		{ X60 "abcde", "5='" X60 "abce',6='" X60 "abcd',7=F,8=F" },
		{ X60 "abc\x7fz", "5='" X60 "abd',6='" X60 "abc\\7f',7=F,8=F" },
		{ X60 "ab\xc3\xa9z",
			"5='" X60 "ab\\c3\\aa',6='" X60 "ab\\c3\\a9',7=F,8=F" },
		/* the character would be cut: it goes whole */
		{ X60 "abc\xc3\xa9", "5='" X60 "abd',6='" X60 "abc',7=F,8=F" },
		{ X60 "\xf0\x9f\x90\xbfz", "5='" X60 "\\f0\\9f\\91\\80',6='" X60
					   "\\f0\\9f\\90\\bf',7=F,8=F" },
		{ X60 "a\xef\xbf\xbfz",
			"5='" X60 "b',6='" X60 "a\\ef\\bf\\bf',7=F,8=F" },
		/* over the surrogates */
		{ X60 "a\xed\x9f\xbfz", "5='" X60 "a\\ee\\80\\80',6='" X60
					"a\\ed\\9f\\bf',7=F,8=F" },
		{ X60 "\xf4\x8f\xbf\xbfz",
			"5='xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
			"xxxxxxxxy',6='" X60 "\\f4\\8f\\bf\\bf',7=F,8=F" },
	};
	struct arena a = ARENA_ZERO;
	struct buf b = BUF_ZERO, high = BUF_ZERO;
	struct record r;
	struct pq_node f;

	(void)state;
	for (size_t i = 0; i < N(t); i++) {
		struct span want = arena_printf(&a, "{3=0,%s}", t[i].want);

		r = rec(t[i].text, 1, t[i].text, 1, t[i].text);
		fix_encode(&zstd, &r, 1, &b);
		f = pq_footer(buf_span(&b), &a);
		assert_print(pq_get(column(&f, 0, 0), 12), want.p);
		assert_print(pq_get(column(&f, 0, 2), 12), want.p);
		assert_print(pq_get(column(&f, 0, 4), 12), want.p);
	}
	for (int i = 0; i < 30; i++)
		buf_puts(&high, "\xef\xbf\xbf");
	r = rec("p", 1, "t", 1, "");
	r.payload = buf_span(&high);
	fix_encode(&zstd, &r, 1, &b);
	f = pq_footer(buf_span(&b), &a);
	assert_print(pq_get(column(&f, 0, 4), 12),
		"{3=0,6='" XX60 XX60 XX60 "\\ef\\bf\\bf\\ef\\bf\\bf"
		"\\ef\\bf\\bf',8=F}");
	buf_fini(&high);
	buf_fini(&b);
	arena_fini(&a);
}

static int64_t
pages(const struct pq_node *column_meta, int64_t encoding)
{
	const struct pq_node *counts = pq_get(column_meta, 13);

	for (size_t i = 0; i < counts->kids_n; i++)
		if (pq_int(&counts->kids[i], 1) == 0 &&
			pq_int(&counts->kids[i], 2) == encoding)
			return pq_int(&counts->kids[i], 3);
	return 0;
}

/* A dictionary beyond 1 MiB: plain pages for the rest of that chunk alone. */
static void
many_long_names_fall_back_to_plain(void **state)
{
	enum { RECORDS = 30000, GROUP = 20000, NAME = 104 };
	struct arena a = ARENA_ZERO;
	struct record *r = fix_records(&a, RECORDS);
	struct buf b = BUF_ZERO;
	struct pq_node f;

	(void)state;
	for (size_t i = 0; i < RECORDS; i++)
		r[i].partition =
			arena_printf(&a, "%0*zu", NAME, i < GROUP ? i : i / 9);
	encode_groups(&snappy, GROUP, r, RECORDS, &b);
	assert_rows(&b, r, RECORDS);
	f = pq_footer(buf_span(&b), &a);
	assert_print(pq_get(column(&f, 0, 0), 2), "[0,2]");
	assert_int_equal(pages(column(&f, 0, 0), 2), 1);
	assert_int_equal(pages(column(&f, 0, 0), 0), 2);
	assert_texts(pq_get(column(&f, 0, 0), 12),
		"000000000000000000000000000000000000000000000000000000000000"
		"0000",
		"000000000000000000000000000000000000000000000000000000000000"
		"0001");
	assert_int_equal(pages(column(&f, 1, 0), 2), 1);
	assert_int_equal(pages(column(&f, 1, 0), 0), 0);
	buf_fini(&b);
	arena_fini(&a);
}

static void
pages_hold_20000_rows_or_a_mebibyte(void **state)
{
	enum { RECORDS = 45000, LARGE = 9 };
	char *text = malloc((1 << 20) + 1);
	struct arena a = ARENA_ZERO;
	struct record *r = fix_records(&a, RECORDS);
	struct buf b = BUF_ZERO;
	struct pq_node f;

	(void)state;
	assert_non_null(text);
	memset(text, 'x', 1 << 20);
	for (size_t i = 0; i < RECORDS; i++) {
		r[i].payload =
			i < LARGE ? span_make(text, 1 << 19) : span_of("1");
		r[i].null = false;
	}
	r[3].payload.n = 1 << 20;
	r[4].payload.n = (1 << 20) - 4;
	fix_encode(&zstd, r, RECORDS, &b);
	assert_rows(&b, r, RECORDS);
	f = pq_footer(buf_span(&b), &a);
	for (size_t c = 0; c < 4; c++)
		assert_int_equal(pages(column(&f, 0, c), c == 0   ? 2
							 : c == 2 ? 0
								  : 5),
			3);
	/* 0 1, 2 3, 4, 5 6, 7 8, 20000, 20000, the rest */
	assert_int_equal(pages(column(&f, 0, 4), 0), 8);
	buf_fini(&b);
	arena_fini(&a);
	free(text);
}

/* Bytes move into the object while the next group fills. */
static void
shapes_of_all_kinds_come_back(void **state)
{
	enum { RECORDS = 1500 };
	struct buf b = BUF_ZERO;
	uint32_t x = 42;

	(void)state;
	for (int round = 0; round < 40; round++) {
		struct arena a = ARENA_ZERO;
		size_t n = 1 + fix_random(&x) % RECORDS;
		unsigned width = fix_random(&x) % 65;
		unsigned names = 1 + fix_random(&x) % 40;
		unsigned nulls = 1 + fix_random(&x) % 20;
		struct record *r = fix_records(&a, n);

		for (size_t i = 0; i < n; i++) {
			uint64_t v =
				(uint64_t)fix_random(&x) << 32 | fix_random(&x);

			r[i].partition =
				arena_printf(&a, "%05zu", i * names / n);
			r[i].offset = (int64_t)(width ? v >> (64 - width) : 0);
			r[i].ts_us = (int64_t)(i * 1000 - v % 7);
			r[i].null = fix_random(&x) % nulls == 0;
			if (r[i].null)
				r[i].payload = (struct span)SPAN_ZERO;
			else
				r[i].payload = arena_printf(
					&a, "[%llu]", (unsigned long long)v);
		}
		encode_groups(both[round % 2], 1 + fix_random(&x) % RECORDS, r,
			n, &b);
		assert_rows(&b, r, n);
		arena_fini(&a);
	}
	buf_fini(&b);
}

static void
a_writer_is_for_one_object_and_knows_the_order(void **state)
{
	const struct record r = rec("b", 5, "t", 100, "1");
	const struct record before = rec("b", 4, "t", 100, "1");
	struct err e = ERR_ZERO;
	struct object o;
	struct format *f;
	int rc;

	(void)state;
	object_init(&o);
	f = format_new(&zstd, &o, &e);
	assert_int_equal(format_add(f, &r, &e), 0);
	assert_int_equal(format_add(f, &before, &e), -1);
	assert_int_equal(e.kind, ERR_BUG);
	assert_int_equal(format_finish(f, &e), 1);
	assert_int_equal(format_add(f, &r, &e), -1);
	while ((rc = format_finish(f, &e)) == 1)
		;
	assert_int_equal(rc, 0);
	assert_int_equal(format_records(f), 1);
	assert_int_equal(format_finish(f, &e), -1);
	assert_int_equal(format_add(f, &r, &e), -1);
	format_free(f);
	object_fini(&o);
	/* given up halfway */
	object_init(&o);
	f = format_new(&snappy, &o, &e);
	assert_int_equal(format_add(f, &r, &e), 0);
	format_free(f);
	object_fini(&o);
}

static void
a_hundred_thousand_records_shrink_to_less_than_half(void **state)
{
	enum { RECORDS = 100001 };
	struct arena a = ARENA_ZERO;
	struct record *r = fix_records(&a, RECORDS);
	struct buf b = BUF_ZERO;
	size_t plain = 0;
	uint32_t x = 7;

	(void)state;
	for (size_t i = 0; i < RECORDS; i++) {
		r[i].payload = arena_printf(&a,
			"{\"order\":%u,\"customer\":\"c-%u\",\"amount\":%u.50,"
			"\"currency\":\"EUR\",\"status\":\"shipped\",\"items\":"
			"[{\"sku\":\"SKU-%05u\",\"quantity\":%u}]}",
			fix_random(&x) % 1000000, fix_random(&x) % 1000,
			fix_random(&x) % 1000, fix_random(&x) % 100000,
			fix_random(&x) % 9);
		r[i].null = false;
		plain += r[i].payload.n + r[i].txn.n + r[i].partition.n + 16;
	}
	for (size_t i = 0; i < 2; i++) {
		struct arena own = ARENA_ZERO;
		struct pq_node f;

		fix_encode(both[i], r, RECORDS, &b);
		assert_true(b.len < plain / 2);
		f = pq_footer(buf_span(&b), &own);
		assert_int_equal(pq_get(&f, 4)->kids_n, 2);
		assert_int_equal(pq_int(&pq_get(&f, 4)->kids[0], 3), 100000);
		assert_int_equal(pq_int(&pq_get(&f, 4)->kids[1], 3), 1);
		assert_rows(&b, r, RECORDS);
		arena_fini(&own);
	}
	buf_fini(&b);
	arena_fini(&a);
}

static void
extension_content_type_and_writer_of_each_codec(void **state)
{
	char w[FORMAT_WRITER_MAX], want[FORMAT_WRITER_MAX];
	const char *version = "queen-s3/" QUEEN_VERSION " parquet/1 snappy/";

	(void)state;
	assert_string_equal(format_extension(S3_PARQUET, S3_ZSTD), "parquet");
	assert_string_equal(format_extension(S3_PARQUET, S3_SNAPPY), "parquet");
	assert_string_equal(format_content_type(S3_PARQUET),
		"application/vnd.apache.parquet");
	snprintf(want, sizeof(want),
		"queen-s3/" QUEEN_VERSION " parquet/1 zstd/%s",
		ZSTD_versionString());
	assert_string_equal(format_writer(S3_PARQUET, S3_ZSTD, w), want);
	format_writer(S3_PARQUET, S3_SNAPPY, w);
	assert_memory_equal(w, version, strlen(version));
	assert_true(w[strlen(version)] >= '1' && w[strlen(version)] <= '9');
}

static void
pages_are_never_gzip_or_plain(void **state)
{
	static const enum s3_codec codecs[] = { S3_GZIP, S3_PLAIN };
	struct err e = ERR_ZERO;
	struct object o;

	(void)state;
	for (size_t i = 0; i < N(codecs); i++) {
		struct format_of of = zstd;

		of.codec = codecs[i];
		object_init(&o);
		assert_null(format_new(&of, &o, &e));
		assert_int_equal(e.kind, ERR_CONFIG);
		object_fini(&o);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_records_give_the_same_bytes),
		cmocka_unit_test(
			row_groups_close_at_the_count_and_change_no_content),
		cmocka_unit_test(the_footer_is_golden),
		cmocka_unit_test(no_records_are_a_file_all_the_same),
		cmocka_unit_test(
			names_of_queue_and_tenant_are_all_that_differs),
		cmocka_unit_test(bounds_of_each_row_group_are_true),
		cmocka_unit_test(
			long_bounds_are_cut_and_the_upper_one_is_raised),
		cmocka_unit_test(many_long_names_fall_back_to_plain),
		cmocka_unit_test(pages_hold_20000_rows_or_a_mebibyte),
		cmocka_unit_test(shapes_of_all_kinds_come_back),
		cmocka_unit_test(
			a_writer_is_for_one_object_and_knows_the_order),
		cmocka_unit_test(
			a_hundred_thousand_records_shrink_to_less_than_half),
		cmocka_unit_test(
			extension_content_type_and_writer_of_each_codec),
		cmocka_unit_test(pages_are_never_gzip_or_plain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
