/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of any names, numbers and payloads: what Parquet holds is what was
 * put in, byte for byte; lines parse and hold the names and the payload, each
 * line break of it a space.
 */
#include <stdint.h>
#include <stdlib.h>

#include "err.h"
#include "jspan.h"
#include "jwrite.h"
#include "object.h"
#include "parquet.h"
#include "queen-s3/parquet_read.h"

enum { RECORDS_MAX = 300 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct in {
	const uint8_t *p;
	size_t n;
};

static uint8_t
take(struct in *in)
{
	if (in->n == 0)
		return 0;
	in->n--;
	return *in->p++;
}

static struct span
take_bytes(struct in *in)
{
	size_t n = take(in);
	struct span s;

	if (n > 250)
		n = n * 40 % 3000;
	n = n < in->n ? n : in->n;
	s = span_make(in->p, n);
	in->p += n;
	in->n -= n;
	return s;
}

static int64_t
take_number(struct in *in)
{
	unsigned n = take(in) % 9;
	uint64_t v = 0;

	while (n-- > 0)
		v = v << 8 | take(in);
	return (int64_t)v;
}

/* As stored: JSON; what is none becomes a string. */
static struct span
payload_of(struct span s, struct arena *a)
{
	struct buf b = BUF_ZERO;
	const char *what;
	size_t at;

	if (jspan_valid(s, &what, &at))
		return s;
	if (!jspan_utf8(s))
		return SPAN_LIT("[\r\n 1.50 ]");
	jwrite_quoted(&b, s);
	s = arena_dup(a, buf_span(&b));
	buf_fini(&b);
	return s;
}

static size_t
take_records(struct in *in, struct record *r, struct arena *a)
{
	size_t n = 0;

	for (; in->n > 0 && n < RECORDS_MAX; n++) {
		uint8_t flags = take(in);

		r[n] = (struct record){ .null = flags & 1 };
		r[n].partition = flags & 2 && n > 0 ? r[n - 1].partition
						    : take_bytes(in);
		r[n].txn = take_bytes(in);
		r[n].offset = take_number(in);
		r[n].ts_us = take_number(in);
		if (!r[n].null)
			r[n].payload = payload_of(take_bytes(in), a);
	}
	return n;
}

static int
by_order(const void *a, const void *b)
{
	const struct record *x = a, *y = b;
	size_t n = x->partition.n < y->partition.n ? x->partition.n
						   : y->partition.n;
	int c = n ? memcmp(x->partition.p, y->partition.p, n) : 0;

	if (c == 0)
		c = (x->partition.n > y->partition.n) -
		    (x->partition.n < y->partition.n);
	if (c == 0)
		c = (x->ts_us > y->ts_us) - (x->ts_us < y->ts_us);
	return c ? c : (x->offset > y->offset) - (x->offset < y->offset);
}

/* All of the object in one piece. */
static struct span
bytes_of(struct object *o, struct arena *a)
{
	char *p = arena_alloc(a, o->len + 1);
	size_t at = 0;

	for (struct span s; (s = object_at(o, at)).n > 0; at += s.n)
		memcpy(p + at, s.p, s.n);
	object_fini(o);
	return span_make(p, at);
}

static void
check_parquet(const struct record *r, size_t n, int64_t group, bool snappy,
	struct arena *a)
{
	const struct format_of of = { .format = S3_PARQUET,
		.codec = snappy ? S3_SNAPPY : S3_ZSTD };
	struct err e = ERR_ZERO;
	struct parquet *p;
	struct record *got;
	struct object o;
	size_t got_n;

	object_init(&o);
	p = parquet_new(&of, group, &o, &e);
	PQ_CHECK(p);
	for (size_t i = 0; i < n; i++)
		PQ_CHECK(parquet_add(p, &r[i], &e) == 0);
	while (parquet_finish(p, &e) == 1)
		;
	parquet_free(p);
	got = pq_rows(bytes_of(&o, a), a, &got_n);
	PQ_CHECK(got_n == n);
	for (size_t i = 0; i < n; i++)
		PQ_CHECK(span_eq(got[i].partition, r[i].partition) &&
			 span_eq(got[i].txn, r[i].txn) &&
			 span_eq(got[i].payload, r[i].payload) &&
			 got[i].null == r[i].null &&
			 got[i].offset == r[i].offset &&
			 got[i].ts_us == r[i].ts_us);
}

/* The next member; its text when it is a string but not the payload. */
static struct span
member(struct jspan *j, const char *key, bool text, struct arena *a)
{
	struct jspan_val v;
	struct span name, got;

	PQ_CHECK(jspan_next_key(j, a, &name) && span_is(name, key));
	PQ_CHECK(jspan_take(j, &v));
	if (!text)
		return v.raw;
	PQ_CHECK(jspan_text(&v, a, &got));
	return got;
}

static bool
same_payload(const struct record *r, struct span got)
{
	struct span want = r->null ? SPAN_LIT("null") : span_trim(r->payload);

	if (got.n != want.n)
		return false;
	for (size_t i = 0; i < want.n; i++)
		if (got.p[i] != (want.p[i] == '\n' || want.p[i] == '\r'
						? ' '
						: want.p[i]))
			return false;
	return true;
}

static void
check_line(struct span line, const struct record *r, struct arena *a)
{
	char offset[24];
	struct jspan j;
	struct span key;

	snprintf(offset, sizeof(offset), "%lld", (long long)r->offset);
	jspan_open(&j, line);
	PQ_CHECK(jspan_enter_object(&j));
	PQ_CHECK(span_eq(member(&j, "partition", true, a), r->partition));
	PQ_CHECK(span_is(member(&j, "offset", false, a), offset));
	PQ_CHECK(span_eq(member(&j, "transactionId", true, a), r->txn));
	PQ_CHECK(member(&j, "ts", true, a).n >= 20);
	PQ_CHECK(same_payload(r, member(&j, "payload", false, a)));
	PQ_CHECK(!jspan_next_key(&j, a, &key) && jspan_end(&j));
}

static void
check_lines(const struct record *r, size_t n, struct arena *a)
{
	const struct format_of of = { .format = S3_JSONL, .codec = S3_PLAIN };
	struct err e = ERR_ZERO;
	struct object o;
	struct format *f;
	struct span s;
	size_t k = 0;

	object_init(&o);
	f = format_new(&of, &o, &e);
	PQ_CHECK(f);
	for (size_t i = 0; i < n; i++) {
		bool behind = i == 0 || by_order(&r[i - 1], &r[i]) < 0;

		/* a record twice is refused */
		PQ_CHECK((format_add(f, &r[i], &e) == 0) == behind);
	}
	PQ_CHECK(format_finish(f, &e) == 0);
	format_free(f);
	s = bytes_of(&o, a);
	for (size_t i = 0; i < n; i++) {
		const char *end;

		if (i > 0 && by_order(&r[i - 1], &r[i]) == 0)
			continue;
		end = memchr(s.p + k, '\n', s.n - k);
		PQ_CHECK(end);
		if (jspan_utf8(r[i].partition) && jspan_utf8(r[i].txn))
			check_line(span_make(s.p + k, (size_t)(end - s.p) - k),
				&r[i], a);
		k = (size_t)(end - s.p) + 1;
	}
	PQ_CHECK(k == s.n);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct in in = { data, size };
	struct arena a = ARENA_ZERO;
	struct record *r = arena_alloc(&a, RECORDS_MAX * sizeof(*r));
	uint8_t shape = take(&in);
	size_t n = take_records(&in, r, &a);

	/* Parquet itself takes any order but for partitions. */
	qsort(r, n, sizeof(*r), by_order);
	check_parquet(r, n, shape >> 1, shape & 1, &a);
	check_lines(r, n, &a);
	arena_fini(&a);
	return 0;
}
