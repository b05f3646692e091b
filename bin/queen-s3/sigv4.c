/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signature version 4 of AWS.  For S3 the path is encoded once: what goes on
 * the wire is what is signed, byte for byte.
 */
#include "sigv4.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "buf.h"
#include "err.h"
#include "hash.h"

enum { MAC_BYTES = 32, DAY_CHARS = 8 };

char *
sigv4_date(int64_t at_us, char out[SIGV4_DATE_MAX])
{
	time_t at_s = (time_t)(at_us / 1000000);
	struct tm tm;

	BUG(!gmtime_r(&at_s, &tm));
	BUG(strftime(out, SIGV4_DATE_MAX, "%Y%m%dT%H%M%SZ", &tm) !=
		SIGV4_DATE_MAX - 1);
	return out;
}

/* Those of RFC 3986; isalnum would ask the locale. */
static bool
is_plain(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
	       c == '~';
}

void
sigv4_encode(struct buf *b, struct span s, int keep_slash)
{
	static const char hex[] = "0123456789ABCDEF";

	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (is_plain(s.p[i]) || (keep_slash && c == '/')) {
			buf_putc(b, s.p[i]);
			continue;
		}
		buf_putc(b, '%');
		buf_putc(b, hex[c >> 4]);
		buf_putc(b, hex[c & 15]);
	}
}

/* A name and its value, encoded, and in one piece to be compared. */
struct part {
	struct span text;
	size_t name_n;
};

/* By name, then value, as bytes: `=` would sort behind digits. */
static int
compare_parts(const void *a, const void *b)
{
	const struct part *x = a, *y = b;
	size_t n = x->name_n < y->name_n ? x->name_n : y->name_n;
	int way = memcmp(x->text.p, y->text.p, n);

	if (way == 0 && x->name_n != y->name_n)
		return x->name_n < y->name_n ? -1 : 1;
	if (way != 0)
		return way;
	n = x->text.n < y->text.n ? x->text.n : y->text.n;
	way = memcmp(x->text.p, y->text.p, n);
	return way ? way : (x->text.n > y->text.n) - (x->text.n < y->text.n);
}

void
sigv4_query(struct buf *b, const struct sigv4_pair *q, size_t n)
{
	struct buf text = BUF_ZERO;
	struct part *parts;
	size_t at = 0;

	if (n == 0)
		return;
	parts = calloc(n, sizeof(*parts));
	BUG(!parts);
	for (size_t i = 0; i < n; i++) {
		at = text.len;
		sigv4_encode(&text, q[i].name, 0);
		parts[i].name_n = text.len - at;
		buf_putc(&text, '=');
		sigv4_encode(&text, q[i].value, 0);
		parts[i].text.n = text.len - at;
	}
	at = 0;
	for (size_t i = 0; i < n; i++) {
		parts[i].text.p = text.p + at;
		at += parts[i].text.n;
	}
	qsort(parts, n, sizeof(*parts), compare_parts);
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			buf_putc(b, '&');
		buf_put_span(b, parts[i].text);
	}
	buf_fini(&text);
	free(parts);
}

static int
compare_headers(const void *a, const void *b)
{
	const struct sigv4_pair *const *x = a, *const *y = b;
	struct span m = (*x)->name, n = (*y)->name;
	int way = memcmp(m.p, n.p, m.n < n.n ? m.n : n.n);

	return way ? way : (m.n > n.n) - (m.n < n.n);
}

static const struct sigv4_pair **
sorted_headers(const struct sigv4_request *r)
{
	const struct sigv4_pair **all =
		calloc(r->headers_n, sizeof(struct sigv4_pair *));

	BUG(!all);
	for (size_t i = 0; i < r->headers_n; i++)
		all[i] = &r->headers[i];
	qsort(all, r->headers_n, sizeof(struct sigv4_pair *), compare_headers);
	return all;
}

/* Without spaces around it, and one where there are several. */
static void
put_header_value(struct buf *b, struct span s)
{
	s = span_trim(s);
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] != ' ' || s.p[i - 1] != ' ')
			buf_putc(b, s.p[i]);
}

static void
put_names(struct buf *b, const struct sigv4_pair **all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			buf_putc(b, ';');
		buf_put_span(b, all[i]->name);
	}
}

static void
put_canonical(struct buf *b, const struct sigv4_request *r,
	const struct sigv4_pair **all)
{
	buf_printf(b, "%s\n", r->method);
	buf_put_span(b, r->path);
	buf_putc(b, '\n');
	buf_put_span(b, r->query);
	buf_putc(b, '\n');
	for (size_t i = 0; i < r->headers_n; i++) {
		buf_put_span(b, all[i]->name);
		buf_putc(b, ':');
		put_header_value(b, all[i]->value);
		buf_putc(b, '\n');
	}
	buf_putc(b, '\n');
	put_names(b, all, r->headers_n);
	buf_printf(b, "\n%s", r->payload_sha256_hex);
}

static void
mac(unsigned char out[MAC_BYTES], const void *key, size_t key_n,
	struct span text)
{
	unsigned int n = 0;

	BUG(!HMAC(EVP_sha256(), key, (int)key_n, (const unsigned char *)text.p,
		    text.n, out, &n) ||
		n != MAC_BYTES);
}

/* Day, region, service and end, each the key of the next. */
static void
signing_key(unsigned char out[MAC_BYTES], const struct sigv4_key *k,
	const char *date)
{
	struct buf first = BUF_ZERO;

	buf_puts(&first, "AWS4");
	buf_puts(&first, k->secret);
	mac(out, first.p, first.len, span_make(date, DAY_CHARS));
	buf_wipe(&first);
	mac(out, out, MAC_BYTES, span_of(k->region));
	mac(out, out, MAC_BYTES, SPAN_LIT("s3"));
	mac(out, out, MAC_BYTES, SPAN_LIT("aws4_request"));
}

void
sigv4_sign(
	struct buf *b, const struct sigv4_key *k, const struct sigv4_request *r)
{
	const struct sigv4_pair **all = sorted_headers(r);
	unsigned char key[MAC_BYTES], sig[MAC_BYTES];
	struct buf text = BUF_ZERO;
	char date[SIGV4_DATE_MAX], digest[65];

	sigv4_date(r->at_us, date);
	put_canonical(&text, r, all);
	hash_sha256_hex(buf_span(&text), digest);
	buf_reset(&text);
	buf_printf(&text, "AWS4-HMAC-SHA256\n%s\n%.*s/%s/s3/aws4_request\n%s",
		date, DAY_CHARS, date, k->region, digest);
	signing_key(key, k, date);
	mac(sig, key, sizeof(key), buf_span(&text));
	OPENSSL_cleanse(key, sizeof(key));

	buf_printf(b,
		"AWS4-HMAC-SHA256 Credential=%s/%.*s/%s/s3/aws4_request,"
		"SignedHeaders=",
		k->access, DAY_CHARS, date, k->region);
	put_names(b, all, r->headers_n);
	buf_puts(b, ",Signature=");
	for (size_t i = 0; i < sizeof(sig); i++)
		buf_printf(b, "%02x", sig[i]);
	buf_fini(&text);
	free(all);
}
