/* SPDX-License-Identifier: Apache-2.0 */
/* Records into the bytes of an object, for the tests of both formats. */
#ifndef QUEEN_FORMAT_FIX_H
#define QUEEN_FORMAT_FIX_H

#include <stdio.h>
#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "err.h"
#include "format.h"
#include "object.h"

static inline struct record
rec(const char *partition, int64_t offset, const char *txn, int64_t ts_us,
	const char *payload)
{
	return (struct record){ .partition = span_of(partition),
		.txn = span_of(txn),
		.offset = offset,
		.ts_us = ts_us,
		.payload = span_of(payload),
		.null = payload == NULL };
}

static inline void
fix_bytes(struct object *o, struct buf *out)
{
	struct span s;

	buf_reset(out);
	for (size_t at = 0; (s = object_at(o, at)).n > 0; at += s.n)
		buf_put_span(out, s);
	assert_int_equal(out->len, o->len);
	object_fini(o);
}

static inline void
fix_finish(struct format *f, struct object *o, struct buf *out)
{
	struct err e = ERR_ZERO;
	int rc;

	while ((rc = format_finish(f, &e)) == 1)
		assert_non_null(o->digest);
	assert_int_equal(rc, 0);
	assert_null(o->digest);
	format_free(f);
	fix_bytes(o, out);
}

/* The object of n records. */
static inline void
fix_encode(const struct format_of *of, const struct record *r, size_t n,
	struct buf *out)
{
	struct err e = ERR_ZERO;
	struct object o;
	struct format *f;

	object_init(&o);
	f = format_new(of, &o, &e);
	assert_non_null(f);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(format_add(f, &r[i], &e), 0);
	assert_int_equal(format_records(f), n);
	fix_finish(f, &o, out);
}

static inline uint32_t
fix_random(uint32_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 17;
	return *x ^= *x << 5;
}

/* Bytes of the lake as they come: awkward names and payloads, in order. */
static inline struct record *
fix_records(struct arena *a, size_t n)
{
	static const char *const names[] = { "", "a\"b\\c", "caff\xc3\xa8",
		"line\nbreak", "z\xe2\x80\xa8", "\xf0\x9f\x90\x9d" };
	static const char *const payloads[] = { "1E+400", "{ \"a\" :\t1.500 }",
		"123456789012345678901234567890", "[1,\r\n 2]",
		"\"\\u0000 \xe2\x80\xa8 \\\"\"", NULL, "-0", "\"\"" };
	struct record *r = arena_alloc(a, (n ? n : 1) * sizeof(*r));
	uint32_t x = 1;

	for (size_t i = 0; i < n; i++) {
		char *id = arena_alloc(a, 40);

		snprintf(id, 40, "id-%zu-%08x\"\x01\x7f", i, fix_random(&x));
		r[i] = rec(names[i * 6 / n], (int64_t)i, id,
			1788516000000000 + (int64_t)i / 3,
			payloads[fix_random(&x) % 8]);
	}
	return r;
}

#endif
