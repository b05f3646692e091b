/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Head, target and body parsers of the HTTP server.  Beyond not crashing: the
 * verdict must not depend on how the bytes were cut into pieces.
 */
#include <stdlib.h>

#include "hsrv_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(cond)                                                             \
	do {                                                                   \
		if (!(cond))                                                   \
			abort();                                               \
	} while (0)

enum { LIMIT = 1000 };

static void
use_head(const struct hsrv_head *h)
{
	static const char *const patterns[] = { "/", "/a", "/q/:q",
		"/q/:q/p/:p", "/k/:ns/*key" };
	struct span params[HSRV_PARAMS_MAX], v;
	struct arena a = ARENA_ZERO;

	MUST(h->status == 0 && h->path.n > 0);
	MUST(!h->chunked || h->length < 0);
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		int k = hsrv_uri_match(patterns[i], h->path, &a, params);

		for (int j = 0; j < k; j++) {
			MUST(params[j].n > 0);
			MUST(!memchr(params[j].p, '\0', params[j].n));
			MUST(hsrv_uri_utf8_prefix(params[j]) == params[j].n);
		}
	}
	if (hsrv_uri_query(h->query, "a", &a, &v))
		MUST(hsrv_uri_utf8_prefix(v) == v.n);
	arena_fini(&a);
}

/* Returns where the body begins, 0 = no whole head. */
static int
head(struct span in, size_t step, struct hsrv_head *h)
{
	static struct hsrv_field fields[HSRV_FIELDS_MAX];
	size_t scanned = 0;
	int end = 0;

	*h = (struct hsrv_head){ .status = 0 };
	for (size_t n = 0; n < in.n && end == 0;) {
		n += step;
		if (n > in.n)
			n = in.n;
		end = hsrv_head_end(span_make(in.p, n), &scanned, h);
	}
	if (end <= 0)
		return 0;
	MUST((size_t)end <= in.n);
	if (!hsrv_head_parse(span_make(in.p, (size_t)end), fields, h))
		return 0;
	use_head(h);
	return end;
}

static enum hsrv_chunk_verdict
body(struct span in, size_t step, struct buf *out, size_t *left)
{
	struct hsrv_chunk k = { .error = NULL };
	enum hsrv_chunk_verdict v = HSRV_CHUNK_MORE;

	while (in.n && v == HSRV_CHUNK_MORE) {
		size_t n = in.n < step ? in.n : step;
		struct span piece = span_make(in.p, n);

		v = hsrv_body_chunked(&k, &piece, out, LIMIT);
		n -= piece.n;
		in = span_make(in.p + n, in.n - n);
	}
	*left = in.n;
	MUST(out->len <= LIMIT);
	MUST((v == HSRV_CHUNK_BAD) == (k.error != NULL));
	return v;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct span in = span_make(data, n);
	struct hsrv_head whole, pieces;
	struct buf a = BUF_ZERO, b = BUF_ZERO;
	size_t a_left, b_left;
	int end = head(in, n ? n : 1, &whole);

	MUST(end == head(in, 1, &pieces));
	MUST(whole.status == pieces.status);
	if (end > 0) {
		MUST(span_eq(whole.path, pieces.path));
		in = span_make(in.p + end, in.n - (size_t)end);
	}
	MUST(body(in, in.n + 1, &a, &a_left) == body(in, 1, &b, &b_left));
	MUST(a_left == b_left && span_eq(buf_span(&a), buf_span(&b)));
	buf_fini(&a);
	buf_fini(&b);
	return 0;
}
