/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as path, names and values.  What is encoded decodes to what it
 * was, has no byte but those allowed, and a query is in order.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "err.h"
#include "sigv4.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PAIRS_MAX = 8 };

static struct span
cut(struct span *rest, char at)
{
	const char *end = rest->n ? memchr(rest->p, at, rest->n) : NULL;
	struct span s = { rest->p, end ? (size_t)(end - rest->p) : rest->n };

	rest->p += s.n + (end != NULL);
	rest->n -= s.n + (end != NULL);
	return s;
}

static void
decode(struct buf *b, struct span s)
{
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] != '%') {
			BUG(!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "abcdefghijklmnopqrstuvwxyz0123456789-._~/",
				s.p[i]));
			buf_putc(b, s.p[i]);
			continue;
		}
		BUG(i + 2 >= s.n);
		buf_putc(b, (char)(span_hex(s.p[i + 1]) << 4 |
				    span_hex(s.p[i + 2])));
		i += 2;
	}
}

static int
compare(struct span a, struct span b)
{
	size_t n = a.n < b.n ? a.n : b.n;
	int way = n ? memcmp(a.p, b.p, n) : 0;

	return way ? way : (a.n > b.n) - (a.n < b.n);
}

static void
check_query(struct span q, const struct sigv4_pair *pairs, size_t n)
{
	struct span last = SPAN_ZERO, last_value = SPAN_ZERO;
	struct buf back = BUF_ZERO;
	size_t name_n, found = 0;

	for (size_t seen = 0; seen < n; seen++) {
		struct span value = cut(&q, '&'), name = cut(&value, '=');
		int way = compare(last, name);

		BUG(seen > 0 && (way > 0 || (way == 0 && compare(last_value,
								 value) > 0)));
		last = name;
		last_value = value;
		buf_reset(&back);
		buf_reserve(&back, 1); /* or a sum with NULL */
		decode(&back, name);
		name_n = back.len;
		decode(&back, value);
		for (size_t i = 0; i < n; i++)
			if (span_eq(pairs[i].name, span_make(back.p, name_n)) &&
				span_eq(pairs[i].value,
					span_make(back.p + name_n,
						back.len - name_n))) {
				found++;
				break;
			}
	}
	BUG(q.n > 0 || found != n);
	buf_fini(&back);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct sigv4_key key = { "AK", "SK", "r" };
	struct span rest = span_make(data, size), path = cut(&rest, '\n');
	struct sigv4_pair pairs[PAIRS_MAX];
	struct sigv4_request r = {
		.method = "PUT", .payload_sha256_hex = "", .at_us = 1
	};
	struct buf b = BUF_ZERO, back = BUF_ZERO, proof = BUF_ZERO;
	size_t n = 0;

	sigv4_encode(&b, path, 1);
	decode(&back, buf_span(&b));
	BUG(!span_eq(buf_span(&back), path));
	r.path = buf_span(&b);
	for (; rest.n > 0 && n < PAIRS_MAX; n++) {
		pairs[n].value = cut(&rest, '\n');
		pairs[n].name = cut(&pairs[n].value, '=');
	}
	buf_reset(&back);
	sigv4_query(&back, pairs, n);
	check_query(buf_span(&back), pairs, n);
	r.query = buf_span(&back);
	r.headers = pairs;
	r.headers_n = n;
	sigv4_sign(&proof, &key, &r);
	buf_fini(&proof);
	buf_fini(&back);
	buf_fini(&b);
	return 0;
}
