/* SPDX-License-Identifier: Apache-2.0 */
#include "packer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "err.h"
#include "frame.h"
#include "hash.h"
#include "pgbin.h"
#include "seal.h"
#include "seg.h"

enum { MAX = 64 };

/* The parameters as the server would read them. */
struct read {
	int32_t ends[MAX], n[MAX], raw[MAX];
	int64_t part[MAX];
	int16_t key[MAX]; /* -1 = null */
	struct span ids[MAX], blob[MAX];
	int segs, rounds;
};

static int64_t
be(const uint8_t **p, int bytes)
{
	uint64_t v = 0;

	for (int i = 0; i < bytes; i++)
		v = v << 8 | *(*p)++;
	return (int64_t)(bytes == 4 ? (uint64_t)(int64_t)(int32_t)v : v);
}

/* Items of array i; returns how many. */
static int
items(const struct pgargs *a, int i, struct span *out)
{
	const uint8_t *p = (const uint8_t *)a->data.p + a->at[i];
	int n = 0;
	int64_t dims = be(&p, 4);

	p += 8;
	if (dims == 0)
		return 0;
	n = (int)be(&p, 4);
	p += 4;
	assert_true(n <= MAX);
	for (int k = 0; k < n; k++) {
		int64_t len = be(&p, 4);

		out[k] = span_make(
			len < 0 ? NULL : p, len < 0 ? 0 : (size_t)len);
		p += len < 0 ? 0 : len;
	}
	return n;
}

static void
take(struct packer *const *p, size_t n, struct pgargs *a, struct read *r)
{
	struct span s[MAX];

	pgargs_init(a);
	packer_args(a, p, n);
	assert_int_equal(a->n, 7);
	memset(r, 0, sizeof(*r));
	r->rounds = items(a, 0, s);
	for (int i = 0; i < r->rounds; i++)
		r->ends[i] = pgbin_span_i32(s[i]);
	r->segs = items(a, 1, s);
	for (int i = 0; i < r->segs; i++)
		r->part[i] = pgbin_span_i64(s[i]);
	assert_int_equal(items(a, 2, s), r->segs);
	for (int i = 0; i < r->segs; i++)
		r->n[i] = pgbin_span_i32(s[i]);
	assert_int_equal(items(a, 3, r->ids), r->segs);
	assert_int_equal(items(a, 4, s), r->segs);
	for (int i = 0; i < r->segs; i++)
		r->raw[i] = pgbin_span_i32(s[i]);
	assert_int_equal(items(a, 5, s), r->segs);
	for (int i = 0; i < r->segs; i++) {
		const uint8_t *at = (const uint8_t *)s[i].p;

		r->key[i] = at ? (int16_t)(at[0] << 8 | at[1]) : -1;
	}
	assert_int_equal(items(a, 6, r->blob), r->segs);
}

static void
add(struct packer *p, const char *txn, struct span payload)
{
	struct frame f = {
		.id = { { 7 } }, .txn = span_of(txn), .payload = payload
	};
	struct hash_id h;

	memset(h.b, txn[strlen(txn) - 1], sizeof(h.b));
	assert_true(packer_add(p, &f, &h) >= payload.n);
}

/* The transaction ids of a segment, with a space behind each. */
static void
check_seg(const struct read *r, int i, const char *txns, struct buf *frames)
{
	struct buf raw = BUF_ZERO, got = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct span rest;
	struct frame f;
	int n = 0;

	assert_int_equal(seg_unpack(r->blob[i], &raw, &e), 0);
	assert_int_equal(raw.len, r->raw[i]);
	rest = buf_span(&raw);
	while (frame_next(&rest, &f, &e) == 1) {
		assert_int_equal(r->ids[i].p[n * 16], f.txn.p[f.txn.n - 1]);
		buf_put_span(&got, f.txn);
		buf_putc(&got, ' ');
		if (frames)
			buf_put_span(frames, f.payload);
		n++;
	}
	assert_int_equal(rest.n, 0);
	assert_int_equal(n, r->n[i]);
	assert_int_equal(r->ids[i].n, n * 16);
	buf_putc(&got, '\0');
	assert_string_equal(got.p, txns);
	buf_fini(&raw);
	buf_fini(&got);
}

/* Any order in, ascending out, each in the order in which it was filled. */
static void
test_partitions(void **state)
{
	struct packer p[3], *all[] = { &p[0], &p[1], &p[2] };
	struct pgargs a, b;
	struct read r;

	(void)state;
	for (int i = 0; i < 3; i++)
		packer_init(&p[i], NULL);
	p[0].part = 30;
	p[1].part = 10;
	p[2].part = 20;
	add(&p[0], "a", SPAN_LIT("1"));
	add(&p[1], "b", SPAN_LIT("2"));
	add(&p[0], "c", SPAN_LIT(""));
	add(&p[2], "d", SPAN_LIT("4"));
	for (int i = 0; i < 3; i++)
		assert_true(packer_close(&p[i]) > 0);
	assert_int_equal(packer_close(&p[0]), 0);
	take(all, 3, &a, &r);
	assert_int_equal(r.segs, 3);
	assert_int_equal(r.rounds, 1);
	assert_int_equal(r.ends[0], 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(r.part[i], 10 * (i + 1));
		assert_int_equal(r.key[i], -1);
	}
	check_seg(&r, 0, "b ", NULL);
	check_seg(&r, 1, "d ", NULL);
	check_seg(&r, 2, "a c ", NULL);

	/* again: the same bytes, also under other ids */
	take(all, 3, &b, &r);
	assert_int_equal(a.data.len, b.data.len);
	assert_memory_equal(a.data.p, b.data.p, a.data.len);
	pgargs_fini(&b);
	p[0].part = 5;
	take(all, 3, &b, &r);
	check_seg(&r, 0, "a c ", NULL);
	pgargs_fini(&a);
	pgargs_fini(&b);
	for (int i = 0; i < 3; i++)
		packer_fini(&p[i]);

	/* nothing at all */
	take(NULL, 0, &a, &r);
	assert_int_equal(r.segs + r.rounds, 0);
	pgargs_fini(&a);
}

/* Segments end at the cap; a frame above it goes alone; rounds follow. */
static void
test_the_cap(void **state)
{
	size_t half_n = SEG_RAW_CAP_BYTES / 2, big_n = SEG_RAW_CAP_BYTES * 2;
	struct packer p, q, *all[] = { &q, &p };
	char *text = malloc(big_n);
	struct pgargs a;
	struct read r;

	(void)state;
	memset(text, 'x', big_n);
	packer_init(&p, NULL);
	packer_init(&q, NULL);
	p.part = 1;
	q.part = 2;
	add(&p, "a", SPAN_LIT("1"));
	add(&p, "b", span_make(text, half_n - 200));
	add(&p, "c", span_make(text, half_n - 200));
	add(&p, "d", span_make(text, half_n));
	add(&p, "e", span_make(text, big_n));
	add(&p, "f", SPAN_LIT("1"));
	add(&q, "g", span_make(text, SEG_RAW_CAP_BYTES));
	add(&q, "h", SPAN_LIT("2"));
	packer_close(&p);
	packer_close(&q);
	take(all, 2, &a, &r);
	assert_int_equal(r.rounds, 4);
	assert_int_equal(r.segs, 6);
	assert_int_equal(r.ends[0], 2);
	assert_int_equal(r.ends[1], 4);
	assert_int_equal(r.ends[2], 5);
	assert_int_equal(r.ends[3], 6);
	check_seg(&r, 0, "a b c ", NULL);
	check_seg(&r, 1, "g ", NULL);
	check_seg(&r, 2, "d ", NULL);
	check_seg(&r, 3, "h ", NULL);
	check_seg(&r, 4, "e ", NULL);
	check_seg(&r, 5, "f ", NULL);
	assert_true(r.raw[0] <= SEG_RAW_CAP_BYTES);
	assert_int_equal(r.part[4], 1);
	pgargs_fini(&a);
	packer_fini(&p);
	packer_fini(&q);
	free(text);
}

static void
test_sealed(void **state)
{
	static const char key[] = "00112233445566778899aabbccddeeff"
				  "00112233445566778899aabbccddeeff";
	struct qid id = { { 7 } };
	struct packer p, *all[] = { &p };
	struct buf sealed = BUF_ZERO, open = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct pgargs a;
	struct read r;
	struct seal *s;

	(void)state;
	assert_int_equal(seal_new(key, NULL, &s, &e), 0);
	packer_init(&p, s);
	p.part = 1;
	add(&p, "a", SPAN_LIT("{\"x\":1}"));
	packer_close(&p);
	take(all, 1, &a, &r);
	assert_int_equal(r.key[0], seal_key_id(s));
	check_seg(&r, 0, "a ", &sealed);
	assert_int_equal(seal_open(s, &id, buf_span(&sealed), &open, &e), 0);
	assert_true(span_is(buf_span(&open), "{\"x\":1}"));
	buf_fini(&sealed);
	buf_fini(&open);
	pgargs_fini(&a);
	packer_fini(&p);
	seal_free(s);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_partitions),
		cmocka_unit_test(test_the_cap),
		cmocka_unit_test(test_sealed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
