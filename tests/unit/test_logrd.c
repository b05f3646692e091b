/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of segments: any part of them, sealed ones, damaged ones. */
#include "logrd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "seal.h"
#include "seg.h"

#define K1 "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define K2 "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"

enum { MANY = 40 };

static struct buf frames, blob;
static struct arena arena;
static struct logrd_message got[MANY];
static struct err e;

static struct seal *
ring(const char *key)
{
	struct seal *s;

	assert_int_equal(seal_new(key, NULL, &s, &e), 0);
	return s;
}

/* n messages `t<i>` with payload i; every third one sealed when s is there. */
static void
make(int n, const struct seal *s)
{
	struct buf box = BUF_ZERO;

	buf_reset(&frames);
	buf_reset(&blob);
	for (int i = 0; i < n; i++) {
		char txn[16], payload[64];
		struct frame f = { .id = qid_new() };

		snprintf(txn, sizeof(txn), "t%d", i);
		snprintf(payload, sizeof(payload),
			"{\"big\":98765432109876543210,\"n\":%d}", i);
		f.txn = span_of(txn);
		f.payload = span_of(payload);
		if (s && i % 3 == 0) {
			buf_reset(&box);
			seal_box(s, &f.id, f.payload, &box);
			f.payload = buf_span(&box);
			f.flags |= FRAME_SEALED;
		}
		frame_write(&frames, &f);
	}
	seg_pack(buf_span(&frames), &blob);
	buf_fini(&box);
}

static struct logrd_room room;

static void
on_message(void *arg, const struct logrd_message *m)
{
	size_t *n = arg;

	assert_int_equal(m->offset, got[*n].offset);
	assert_int_equal(m->frame.flags, got[*n].frame.flags);
	assert_true(span_eq(m->frame.txn, got[*n].frame.txn));
	assert_true(span_eq(m->payload, got[*n].payload));
	*n += 1;
}

/* Both ways tell the same. */
static size_t
read_slice(int32_t skip, int32_t take, const struct seal *s)
{
	struct logrd_slice slice = { .blob = buf_span(&blob),
		.base = 1000,
		.skip = skip,
		.take = take };
	struct err other = ERR_ZERO;
	size_t n, told = 0;

	arena_fini(&arena);
	e = (struct err)ERR_ZERO;
	n = logrd_read(&slice, s, &arena, got, &e);
	assert_int_equal(
		logrd_each(&slice, s, &room, on_message, &told, &other), n);
	assert_int_equal(told, n);
	assert_int_equal(other.kind, e.kind);
	assert_string_equal(other.text, e.text);
	return n;
}

static void
assert_message(size_t at, int n)
{
	char want[64];

	snprintf(want, sizeof(want), "t%d", n);
	assert_true(span_is(got[at].frame.txn, want));
	snprintf(want, sizeof(want), "{\"big\":98765432109876543210,\"n\":%d}",
		n);
	assert_true(span_is(got[at].payload, want));
	assert_int_equal(got[at].offset, 1000 + n);
}

static void
a_slice_is_what_was_asked_for(void **state)
{
	(void)state;
	make(MANY, NULL);
	assert_int_equal(read_slice(0, MANY, NULL), MANY);
	for (int i = 0; i < MANY; i++)
		assert_message((size_t)i, i);
	assert_int_equal(read_slice(7, 3, NULL), 3);
	for (int i = 0; i < 3; i++)
		assert_message((size_t)i, 7 + i);
	assert_int_equal(read_slice(MANY - 1, 1, NULL), 1);
	assert_message(0, MANY - 1);
	assert_int_equal(read_slice(3, 0, NULL), 0);
}

static void
what_lies_in_the_arena_outlives_the_segment(void **state)
{
	(void)state;
	make(3, NULL);
	assert_int_equal(read_slice(1, 2, NULL), 2);
	memset(blob.p, 0xff, blob.len);
	assert_message(0, 1);
	assert_message(1, 2);
	struct span whole = got[1].frame.whole;
	struct frame f;

	assert_int_equal(frame_next(&whole, &f, &e), 1);
	assert_true(span_is(f.txn, "t2"));
	assert_int_equal(whole.n, 0);
}

static void
sealed_ones_are_opened_and_kept_as_they_were(void **state)
{
	struct seal *s = ring(K1);

	(void)state;
	make(8, s);
	assert_int_equal(read_slice(2, 6, s), 6);
	for (int i = 0; i < 6; i++)
		assert_message((size_t)i, 2 + i);
	assert_true(got[1].frame.flags & FRAME_SEALED);
	assert_int_equal(
		got[1].frame.payload.n, got[1].payload.n + SEAL_OVERHEAD_BYTES);
	assert_false(got[2].frame.flags & FRAME_SEALED);
	seal_free(s);
}

static void
reading_ends_before_what_does_not_open(void **state)
{
	struct seal *s = ring(K1), *other = ring(K2);

	(void)state;
	make(5, s);
	assert_int_equal(read_slice(1, 4, other), 2);
	assert_message(1, 2);
	assert_int_equal(e.kind, ERR_DB_DATA);
	assert_non_null(strstr(e.text, "key id"));
	assert_int_equal(read_slice(1, 4, NULL), 2);
	assert_int_equal(read_slice(0, 5, NULL), 0);
	/* one bit of the box of message 3; stored plain, since it is small */
	assert_int_equal(blob.p[1], SEG_CODEC_NONE);
	struct span rest = buf_span(&blob);

	rest.p += 2;
	rest.n -= 2;
	assert_int_equal(seg_skip(&rest, 4, &e), 0);
	blob.p[rest.p - blob.p - 1] ^= 1;
	assert_int_equal(read_slice(1, 4, s), 2);
	assert_int_equal(e.kind, ERR_DB_DATA);
	seal_free(s);
	seal_free(other);
}

static void
reading_ends_before_what_is_damaged(void **state)
{
	static const char junk[] = "\x07\x07whatever";

	(void)state;
	make(4, NULL);
	/* fewer than the row says */
	assert_int_equal(read_slice(2, 5, NULL), 2);
	assert_message(1, 3);
	assert_string_equal(
		e.text, "segment has fewer frames than its row says");
	assert_int_equal(read_slice(5, 1, NULL), 0);
	/* cut short */
	blob.len -= 3;
	assert_int_equal(read_slice(0, 4, NULL), 3);
	assert_string_equal(e.text, "frame longer than its segment");
	for (size_t n = blob.len; n-- > 0;) {
		blob.len = n;
		assert_true(read_slice(0, 4, NULL) < 4);
		assert_true(e.kind != ERR_NONE);
	}
	buf_put_span(&blob, span_make(junk, sizeof(junk)));
	assert_int_equal(read_slice(0, 4, NULL), 0);
	assert_string_equal(e.text, "unknown segment version 7");
}

static int
end(void **state)
{
	(void)state;
	buf_fini(&frames);
	logrd_room_fini(&room);
	buf_fini(&blob);
	arena_fini(&arena);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slice_is_what_was_asked_for),
		cmocka_unit_test(what_lies_in_the_arena_outlives_the_segment),
		cmocka_unit_test(sealed_ones_are_opened_and_kept_as_they_were),
		cmocka_unit_test(reading_ends_before_what_does_not_open),
		cmocka_unit_test(reading_ends_before_what_is_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, end);
}
