/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints and plans: through zstd and back, bounds, damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include <cmocka.h>

#include "buf.h"
#include "doc.h"
#include "err.h"
#include "object.h"

static struct buf shown, packed;

static int
teardown(void **state)
{
	(void)state;
	buf_fini(&shown);
	buf_fini(&packed);
	return 0;
}

/* The bytes of the object in one piece, in `packed`; the object is gone. */
static struct span
bytes_of(struct object *o)
{
	buf_reset(&packed);
	object_seal(o);
	for (size_t at = 0; at < o->len;) {
		struct span s = object_at(o, at);

		buf_put_span(&packed, s);
		at += s.n;
	}
	object_fini(o);
	return buf_span(&packed);
}

/* As another tool would have packed it. */
static struct span
pack(const char *json)
{
	size_t n = strlen(json), max = ZSTD_compressBound(n);

	buf_reset(&packed);
	packed.len = ZSTD_compress(buf_reserve(&packed, max), max, json, n, 3);
	assert_false(ZSTD_isError(packed.len));
	return buf_span(&packed);
}

/* `name offset part` a line, then `k end cell`; or the error. */
static const char *
show(struct span s)
{
	struct doc_checkpoint_reader *r = doc_checkpoint_open(s);
	struct doc_checkpoint c;
	struct doc_position p;
	struct err e = ERR_ZERO;
	int rc;

	buf_reset(&shown);
	while ((rc = doc_checkpoint_next(r, &p, &c, &e)) > 0)
		buf_printf(&shown, "%.*s %lld %lld\n", SPAN_ARG(p.name),
			(long long)p.offset, (long long)p.part);
	if (rc < 0) {
		buf_reset(&shown);
		buf_printf(&shown, "error: %s", e.text);
	} else {
		buf_printf(&shown, "%lld %lld %s", (long long)c.k,
			(long long)c.end_us, c.cell);
	}
	buf_putc(&shown, '\0');
	doc_checkpoint_close(r);
	return shown.p;
}

static struct span
plain(struct span s)
{
	static struct buf b;
	struct span out;

	buf_fini(&b);
	b.len = ZSTD_decompress(buf_reserve(&b, 65536), 65536, s.p, s.n);
	assert_false(ZSTD_isError(b.len));
	out = buf_span(&b);
	return out;
}

static void
checkpoint_is_one_frame_of_json(void **state)
{
	struct doc_checkpoint c = { .k = 1840,
		.end_us = INT64_C(1788515700000000),
		.cell = "0123456789ab" };
	static const struct doc_position positions[] = {
		{ { .p = "a\"\\\n", .n = 4 }, 1812, 77 },
		{ { .p = "cust \xc3\xa8/\xe2\x80\xa8", .n = 11 }, 0, 0 },
		{ { .p = "old", .n = 3 }, INT64_MAX, -1 },
	};
	struct doc_checkpoint_writer *w;
	struct object o;
	struct span s;
	(void)state;

	object_init(&o);
	w = doc_checkpoint_begin(&o, &c);
	for (size_t i = 0; i < 3; i++)
		doc_checkpoint_add(w, &positions[i]);
	doc_checkpoint_end(w);
	s = bytes_of(&o);
	assert_int_equal(ZSTD_findFrameCompressedSize(s.p, s.n), s.n);
	/* no checksum */
	assert_int_equal(s.p[4] & 0x04, 0);
	assert_true(span_is(plain(s),
		"{\"k\":1840,\"tEnd\":1788515700000000,"
		"\"cell\":\"0123456789ab\",\"positions\":["
		"[\"a\\\"\\\\\\n\",1812,77],[\"cust \xc3\xa8/\xe2\x80\xa8\",0,0],"
		"[\"old\",9223372036854775807]]}"));
	assert_string_equal(show(s),
		"a\"\\\n 1812 77\ncust \xc3\xa8/\xe2\x80\xa8 0 0\n"
		"old 9223372036854775807 -1\n"
		"1840 1788515700000000 0123456789ab");
}

static void
checkpoints_of_other_writers(void **state)
{
	(void)state;
	/* any order, ids of another kind, more behind them, white space */
	assert_string_equal(
		show(pack(" { \"positions\" : [ [ \"a\" , 1812 , "
			  "\"0198-uuid\" ] ,\n[\"b\",44],[\"]\\\"[\",1,7,{}, "
			  "null],[\"c\",2,null],[\"d\",3,-4] ],\"new\":"
			  "{\"x\":[\"}\"]},\"tEnd\":5,\"k\":3 } \n")),
		"a 1812 -1\nb 44 -1\n]\"[ 1 7\nc 2 -1\nd 3 -1\n3 5 ");
	assert_string_equal(
		show(pack("{\"k\":1,\"tEnd\":2,\"positions\":[]}")), "1 2 ");
}

static void
checkpoint_that_is_none(void **state)
{
	static const char *const bad[] = { "", "null", "{}", "[]",
		"{\"k\":1,\"tEnd\":2}", "{\"k\":1,\"positions\":[]}",
		"{\"tEnd\":1,\"positions\":[]}",
		"{\"k\":-1,\"tEnd\":1,\"positions\":[]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[]",
		"{\"k\":1,\"tEnd\":2,\"positions\":[]} {}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[],}",
		"{\"k\":1,\"tEnd\":2,\"positions\":{}}",
		"{,\"k\":1,\"tEnd\":2,\"positions\":[]}",
		"{\"k\":1 \"tEnd\":2,\"positions\":[]}",
		"{\"k\":1,\"tEnd\":2,\"cell\":\"x\",\"positions\":[]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[[\"a\"]]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[[\"a\",-1]]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[[\"a\",1.5]]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[[7,1]]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[[\"\\ud800\",1]]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[[\"\xff\",1]]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[[\"a\",1,01]]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[[\"a\",1]x]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[[\"a\",1],]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[,[\"a\",1]]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[[\"a\",1] [\"b\",1]]}",
		"{\"k\":1,\"tEnd\":2,\"positions\":[\"a\",1]}" };
	(void)state;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (strncmp(show(pack(bad[i])), "error: ", 7) != 0)
			fail_msg("%s was taken: %s", bad[i], shown.p);
}

static void
damaged_frames(void **state)
{
	static const char json[] =
		"{\"k\":1,\"tEnd\":2,\"positions\":[[\"a\",1],[\"b\",2]]}";
	struct span s = pack(json);
	char copy[256];
	(void)state;

	assert_true(s.n < sizeof(copy) - 1);
	memcpy(copy, s.p, s.n);
	for (size_t n = 0; n < s.n; n++)
		assert_memory_equal(show(span_make(copy, n)), "error: ", 7);
	copy[s.n] = '\0';
	assert_string_equal(show(span_make(copy, s.n + 1)),
		"error: bytes behind the zstd frame");
	copy[0] ^= 1;
	assert_memory_equal(show(span_make(copy, s.n)), "error: ", 7);
	assert_memory_equal(show(SPAN_LIT("{\"k\":1}")), "error: ", 7);
}

/* n plain bytes of one repeated character inside a name, as one frame. */
static struct span
bomb(size_t n)
{
	ZSTD_CCtx *ctx = ZSTD_createCCtx();
	static const char head[] = "{\"k\":1,\"tEnd\":2,\"positions\":[[\"";
	static char run[1 << 20];
	size_t done = 0;

	memset(run, 'a', sizeof(run));
	buf_reset(&packed);
	while (done < n) {
		ZSTD_inBuffer in = { .src = done ? run : head,
			.size = done ? sizeof(run) : sizeof(head) - 1 };
		ZSTD_EndDirective how =
			done + in.size < n ? ZSTD_e_continue : ZSTD_e_end;
		size_t left;

		do {
			ZSTD_outBuffer out = { .size = 65536 };

			out.dst = buf_reserve(&packed, 65536);
			left = ZSTD_compressStream2(ctx, &out, &in, how);
			packed.len += out.pos;
		} while (how == ZSTD_e_end ? left > 0 : in.pos < in.size);
		done += in.size;
	}
	ZSTD_freeCCtx(ctx);
	return buf_span(&packed);
}

static void
a_value_without_an_end_costs_a_megabyte(void **state)
{
	(void)state;
	assert_string_equal(
		show(bomb(4 << 20)), "error: a value without an end");
}

/* The same for ever between two positions: the size of it all is bounded. */
static void
more_than_the_ceiling_is_refused(void **state)
{
	static char spaces[1 << 20];
	ZSTD_CCtx *ctx = ZSTD_createCCtx();
	(void)state;

	memset(spaces, ' ', sizeof(spaces));
	buf_reset(&packed);
	for (int i = 0; i <= 513; i++) {
		ZSTD_inBuffer in = { .src = spaces, .size = sizeof(spaces) };
		ZSTD_EndDirective how = i < 513 ? ZSTD_e_continue : ZSTD_e_end;
		size_t left;

		do {
			ZSTD_outBuffer out = { .size = 65536 };

			out.dst = buf_reserve(&packed, 65536);
			left = ZSTD_compressStream2(ctx, &out, &in, how);
			packed.len += out.pos;
		} while (how == ZSTD_e_end ? left > 0 : in.pos < in.size);
	}
	ZSTD_freeCCtx(ctx);
	assert_string_equal(
		show(buf_span(&packed)), "error: unpacks to more than 512 MiB");
}

/* ---- a million ---- */

enum { MILLION = 1000000 };

/* Offsets and ids as a cell has them: neither in the order of names. */
static struct doc_position
position(int i, char name[16])
{
	uint64_t h = span_hash(span_make(&i, sizeof(i)), 0);

	return (struct doc_position){
		.name = span_make(
			name, (size_t)snprintf(name, 16, "cust-%07d", i)),
		.offset = (int64_t)(h % 1000000),
		.part = (int64_t)(h >> 32) % MILLION,
	};
}

static void
write_positions(struct object *o, int n, int changed)
{
	struct doc_checkpoint c = { .k = 20, .end_us = 1 };
	struct doc_checkpoint_writer *w;

	object_init(o);
	w = doc_checkpoint_begin(o, &c);
	for (int i = 0; i < n; i++) {
		char name[16];
		struct doc_position p = position(i, name);

		p.offset += i == changed;
		doc_checkpoint_add(w, &p);
	}
	doc_checkpoint_end(w);
}

static void
a_million_positions(void **state)
{
	struct doc_checkpoint_reader *r;
	struct doc_checkpoint c;
	struct doc_position p;
	struct err e = ERR_ZERO;
	struct object o;
	char name[16];
	int n = 0;
	(void)state;

	write_positions(&o, MILLION, -1);
	r = doc_checkpoint_open(bytes_of(&o));
	assert_in_range(packed.len, 1, 39 << 20);
	while (doc_checkpoint_next(r, &p, &c, &e) > 0) {
		struct doc_position want = position(n++, name);

		if (!span_eq(p.name, want.name) || p.offset != want.offset ||
			p.part != want.part)
			fail_msg("position %d: %.*s", n, SPAN_ARG(p.name));
	}
	assert_string_equal(e.text, "");
	assert_int_equal(n, MILLION);
	assert_int_equal(c.k, 20);
	doc_checkpoint_close(r);
}

static void
bytes_follow_the_content_alone(void **state)
{
	enum { N = 20000 };
	uint8_t sha256[OBJECT_SHA256_BYTES];
	struct object o;
	(void)state;

	write_positions(&o, N, -1);
	object_seal(&o);
	memcpy(sha256, o.sha256, sizeof(sha256));
	object_fini(&o);
	write_positions(&o, N, -1);
	object_seal(&o);
	assert_memory_equal(o.sha256, sha256, sizeof(sha256));
	object_fini(&o);
	write_positions(&o, N, 7777);
	object_seal(&o);
	assert_memory_not_equal(o.sha256, sha256, sizeof(sha256));
	object_fini(&o);
}

/* ---- plan ---- */

static void
a_plan_names_its_keys(void **state)
{
	struct doc_plan_reader *r;
	struct doc_plan_writer *w;
	struct err e = ERR_ZERO;
	struct object o;
	struct span key, s;
	int64_t k = 0;
	(void)state;

	object_init(&o);
	w = doc_plan_begin(&o, 7);
	doc_plan_add(w, SPAN_LIT("queen/a-p-x.jsonl"));
	doc_plan_add(w, SPAN_LIT("queen/a-p-y%20.jsonl"));
	doc_plan_end(w);
	s = bytes_of(&o);
	assert_true(
		span_is(plain(s), "{\"k\":7,\"keys\":[\"queen/a-p-x.jsonl\","
				  "\"queen/a-p-y%20.jsonl\"]}"));
	r = doc_plan_open(s);
	assert_int_equal(doc_plan_next(r, &key, &k, &e), 1);
	assert_true(span_is(key, "queen/a-p-x.jsonl"));
	assert_int_equal(doc_plan_next(r, &key, &k, &e), 1);
	assert_true(span_is(key, "queen/a-p-y%20.jsonl"));
	assert_int_equal(doc_plan_next(r, &key, &k, &e), 0);
	assert_int_equal(k, 7);
	doc_plan_close(r);
	r = doc_plan_open(pack("{\"k\":7,\"keys\":[7]}"));
	assert_int_equal(doc_plan_next(r, &key, &k, &e), -1);
	assert_int_equal(e.kind, ERR_INPUT);
	doc_plan_close(r);
	r = doc_plan_open(pack("{\"keys\":[]}"));
	assert_int_equal(doc_plan_next(r, &key, &k, &e), -1);
	doc_plan_close(r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(checkpoint_is_one_frame_of_json),
		cmocka_unit_test(checkpoints_of_other_writers),
		cmocka_unit_test(checkpoint_that_is_none),
		cmocka_unit_test(damaged_frames),
		cmocka_unit_test(a_value_without_an_end_costs_a_megabyte),
		cmocka_unit_test(more_than_the_ceiling_is_refused),
		cmocka_unit_test(a_million_positions),
		cmocka_unit_test(bytes_follow_the_content_alone),
		cmocka_unit_test(a_plan_names_its_keys),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
