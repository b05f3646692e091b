/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pure halves of the HTTP server against tables of vectors.  Every vector
 * is fed whole and byte by byte, and must end in the same verdict.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hsrv_int.h"
#include "hsrv_vectors.h"

static const char *const methods[] = { "GET", "HEAD", "POST", "PUT", "DELETE",
	"OTHER" };

static void
summary(const struct hsrv_head *h, char *out, size_t room)
{
	struct span q = h->query.n ? h->query : SPAN_LIT("-");

	snprintf(out, room, "%s %.*s %.*s %lld%s%s%s", methods[h->method],
		SPAN_ARG(h->path), SPAN_ARG(q), (long long)h->length,
		h->keep_alive ? " keep" : "", h->chunked ? " chunked" : "",
		h->expect_continue ? " 100" : "");
}

/* The verdict on the head with step more bytes known at each look. */
static void
judge(struct span in, size_t step, int *status, char *text, size_t room)
{
	static struct hsrv_field fields[HSRV_FIELDS_MAX];
	struct hsrv_head h = { .status = 0 };
	size_t scanned = 0;
	int end = 0;

	for (size_t n = step; end == 0; n += step) {
		if (n > in.n)
			n = in.n;
		end = hsrv_head_end(span_make(in.p, n), &scanned, &h);
		if (n == in.n && end == 0) {
			*status = 1;
			snprintf(text, room, "more bytes needed");
			return;
		}
	}
	if (end > 0 &&
		hsrv_head_parse(span_make(in.p, (size_t)end), fields, &h)) {
		*status = 0;
		summary(&h, text, room);
		return;
	}
	*status = h.status;
	snprintf(text, room, "%s", h.error);
}

static void
each_head_gets_its_verdict_whole_and_in_pieces(void **state)
{
	struct vectors v;
	struct vector x;
	int n = 0;

	(void)state;
	vectors_open(&v, "tests/data/http_heads.tsv");
	while (vectors_next(&v, &x)) {
		static const size_t steps[] = { 1 << 20, 1, 7 };

		for (int i = 0; i < 3; i++) {
			char text[512];
			int status;

			judge(buf_span(&x.bytes), steps[i], &status, text,
				sizeof(text));
			if (status != (int)strtol(x.verdict, NULL, 10) ||
				strcmp(text, x.text) != 0)
				fail_msg("line %d, step %zu: %d %s", v.line,
					steps[i], status, text);
		}
		n++;
	}
	vectors_close(&v);
	assert_true(n > 90);
}

static void
a_head_ends_before_the_body(void **state)
{
	struct span in = SPAN_LIT("GET / HTTP/1.1\r\nHost: h\r\n\r\nrest\n");
	struct hsrv_head h;
	size_t scanned = 0;

	(void)state;
	assert_int_equal(hsrv_head_end(in, &scanned, &h), (int)in.n - 5);
}

static const char *
chunk_verdict(struct span in, size_t step, struct buf *out, const char **error)
{
	static const char *const words[] = { "more", "done", "bad", "large" };
	struct hsrv_chunk k = { .error = NULL };
	enum hsrv_chunk_verdict v = HSRV_CHUNK_MORE;

	buf_reset(out);
	while (in.n && v == HSRV_CHUNK_MORE) {
		size_t n = in.n < step ? in.n : step;
		struct span piece = span_make(in.p, n);

		v = hsrv_body_chunked(&k, &piece, out, 100);
		n -= piece.n;
		in = span_make(in.p + n, in.n - n);
	}
	if (v == HSRV_CHUNK_DONE)
		assert_int_equal(in.n, 0);
	*error = k.error;
	return words[v];
}

static void
each_chunked_body_gets_its_verdict_whole_and_in_pieces(void **state)
{
	struct vectors v;
	struct vector x;
	struct buf out = BUF_ZERO, want = BUF_ZERO;
	int n = 0;

	(void)state;
	vectors_open(&v, "tests/data/http_chunks.tsv");
	while (vectors_next(&v, &x)) {
		static const size_t steps[] = { 1 << 20, 1, 3 };

		buf_reset(&want);
		vectors_unescape(span_of(x.text), &want);
		for (int i = 0; i < 3; i++) {
			const char *error,
				*verdict = chunk_verdict(buf_span(&x.bytes),
					steps[i], &out, &error);
			struct span got =
				error ? span_of(error) : buf_span(&out);

			if (strcmp(verdict, x.verdict) != 0 ||
				!span_eq(got, buf_span(&want)))
				fail_msg("line %d, step %zu: %s %.*s", v.line,
					steps[i], verdict, SPAN_ARG(got));
		}
		n++;
	}
	vectors_close(&v);
	buf_fini(&out);
	buf_fini(&want);
	assert_true(n > 35);
}

static void
bytes_behind_a_chunked_body_are_left(void **state)
{
	struct span in = SPAN_LIT("1\r\na\r\n0\r\n\r\nGET / HTTP/1.1\r\n");
	struct hsrv_chunk k = { .error = NULL };
	struct buf out = BUF_ZERO;

	(void)state;
	assert_int_equal(
		hsrv_body_chunked(&k, &in, &out, 100), HSRV_CHUNK_DONE);
	assert_true(span_is(in, "GET / HTTP/1.1\r\n"));
	buf_fini(&out);
}

static void
match_is(const char *pattern, const char *path, const char *want)
{
	struct span params[HSRV_PARAMS_MAX];
	struct arena a = ARENA_ZERO;
	struct buf got = BUF_ZERO;
	int n = hsrv_uri_match(pattern, span_of(path), &a, params);

	if (n < 0)
		buf_puts(&got, "no");
	for (int i = 0; i < n; i++) {
		buf_putc(&got, '[');
		buf_put_span(&got, params[i]);
		buf_putc(&got, ']');
	}
	buf_putc(&got, '\0');
	if (strcmp(got.p, want) != 0)
		fail_msg("%s %s: %s", pattern, path, got.p);
	buf_fini(&got);
	arena_fini(&a);
}

static void
patterns_match_whole_segments(void **state)
{
	(void)state;
	match_is("/", "/", "");
	match_is("/", "/a", "no");
	match_is("/", "*", "no");
	match_is("/a/b", "/a/b", "");
	match_is("/a/b", "/a/b/", "no");
	match_is("/a/b", "/a", "no");
	match_is("/a/b", "/a/bc", "no");
	match_is("/a/bc", "/a/b", "no");
	match_is("/a/b", "//a/b", "no");
	match_is("/a/b", "/%61/b", "");
	match_is("/a/b", "/a%2Fb", "no");
	match_is("/q/:q", "/q/x", "[x]");
	match_is("/q/:q", "/q/", "no");
	match_is("/q/:q", "/q", "no");
	match_is("/q/:q", "/q/a%2Fb%20c", "[a/b c]");
	match_is("/q/:q", "/q/a/b", "no");
	match_is("/q/:q", "/q/a+b", "[a+b]");
	match_is("/:a/x/:b", "/1/x/2", "[1][2]");
	match_is("/k/:ns/*key", "/k/n/a/b%2fc", "[n][a/b/c]");
	match_is("/k/:ns/*key", "/k/n/", "no");
	match_is("/k/:ns/*key", "/k/n//a", "[n][/a]");
}

static void
query_is(const char *query, const char *key, const char *want)
{
	struct arena a = ARENA_ZERO;
	struct span v;

	if (!hsrv_uri_query(span_of(query), key, &a, &v))
		assert_null(want);
	else
		assert_true(want && span_is(v, want));
	arena_fini(&a);
}

static void
query_keys_are_decoded_and_the_first_wins(void **state)
{
	(void)state;
	query_is("", "a", NULL);
	query_is("a=1", "a", "1");
	query_is("b=2&a=1", "a", "1");
	query_is("a=1&a=2", "a", "1");
	query_is("aa=1", "a", NULL);
	query_is("a", "a", "");
	query_is("a=", "a", "");
	query_is("a=b=c", "a", "b=c");
	query_is("&&a=1&", "a", "1");
	query_is("a=x+y%2B%26%3d", "a", "x y+&=");
	query_is("%61=1", "a", "1");
	query_is("a=%c3%A9", "a", "\xc3\xa9");
}

static void
utf8_prefix_stops_at_the_first_bad_byte(void **state)
{
	(void)state;
	assert_int_equal(hsrv_uri_utf8_prefix(SPAN_LIT("abc")), 3);
	assert_int_equal(hsrv_uri_utf8_prefix(SPAN_LIT("a\xc3\xa9")), 3);
	assert_int_equal(hsrv_uri_utf8_prefix(SPAN_LIT("a\xc3")), 1);
	assert_int_equal(hsrv_uri_utf8_prefix(SPAN_LIT("a\xff"
						       "b")),
		1);
	assert_int_equal(
		hsrv_uri_utf8_prefix(SPAN_LIT("\xf0\x9f\x98\x80\xed\xa0\x80")),
		4);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			each_head_gets_its_verdict_whole_and_in_pieces),
		cmocka_unit_test(a_head_ends_before_the_body),
		cmocka_unit_test(
			each_chunked_body_gets_its_verdict_whole_and_in_pieces),
		cmocka_unit_test(bytes_behind_a_chunked_body_are_left),
		cmocka_unit_test(patterns_match_whole_segments),
		cmocka_unit_test(query_keys_are_decoded_and_the_first_wins),
		cmocka_unit_test(utf8_prefix_stops_at_the_first_bad_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
