/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is sent: path, query, headers, digests of the body.  The path is
 * encoded once; every header we set is signed.
 */
#include "s3_int.h"

#include <string.h>
#include <openssl/evp.h>

#include "clk.h"
#include "err.h"
#include "hash.h"
#include "sigv4.h"

#define EMPTY_SHA256                                                           \
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

enum { HEADERS_MAX = 8 };

void
s3_prepare(struct s3_req *r, enum s3_op op, void (*then)(struct s3_req *, bool))
{
	struct s3_send *send = &r->send;
	struct buf query = send->query, text = send->text;

	buf_reset(&query);
	buf_reset(&text);
	*send = (struct s3_send){ .op = op,
		.query = query,
		.text = text,
		.attempts_max = S3_ATTEMPTS };
	memcpy(send->sha256, EMPTY_SHA256, sizeof(send->sha256));
	r->then = then;
}

void
s3_body_sha256(struct s3_send *send, const uint8_t sha256[OBJECT_SHA256_BYTES])
{
	static const char hex[] = "0123456789abcdef";

	for (int i = 0; i < OBJECT_SHA256_BYTES; i++) {
		send->sha256[2 * i] = hex[sha256[i] >> 4];
		send->sha256[2 * i + 1] = hex[sha256[i] & 15];
	}
}

void
s3_body_md5(struct s3_send *send, const uint8_t md5[OBJECT_MD5_BYTES])
{
	memcpy(send->md5_raw, md5, OBJECT_MD5_BYTES);
	EVP_EncodeBlock((unsigned char *)send->md5, md5, OBJECT_MD5_BYTES);
}

void
s3_body_object(struct s3_req *r)
{
	r->send.type = r->type;
	r->send.o = r->o;
	r->send.n = r->o->len;
	s3_body_sha256(&r->send, r->o->sha256);
	s3_body_md5(&r->send, r->o->md5);
}

void
s3_body_text(struct s3_req *r)
{
	hash_sha256_hex(buf_span(&r->send.text), r->send.sha256);
}

static const char *
method_of(enum s3_op op)
{
	switch (op) {
	case S3_OP_PUT:
	case S3_OP_PART:
		return "PUT";
	case S3_OP_CREATE:
	case S3_OP_COMPLETE:
		return "POST";
	case S3_OP_ABORT:
		return "DELETE";
	case S3_OP_HEAD:
		return "HEAD";
	default:
		return "GET";
	}
}

void
s3_put_path(struct buf *b, const struct s3_req *r)
{
	buf_putc(b, '/');
	if (r->s->path_style)
		sigv4_encode(b, span_of(r->s->bucket), 0);
	if (r->kind == S3_OP_LIST)
		return;
	if (r->s->path_style)
		buf_putc(b, '/');
	sigv4_encode(b, buf_span(&r->key), 1);
}

static int
encrypted(const struct s3_req *r, struct sigv4_pair *to)
{
	const struct s3 *s = r->s;
	int n = 0;

	if (s->sse == S3_SSE_NONE ||
		(r->send.op != S3_OP_PUT && r->send.op != S3_OP_CREATE))
		return 0;
	to[n].name = SPAN_LIT("x-amz-server-side-encryption");
	to[n++].value = span_of(s->sse == S3_SSE_KMS ? "aws:kms" : "AES256");
	if (s->kms_key_id) {
		to[n].name =
			SPAN_LIT("x-amz-server-side-encryption-aws-kms-key-id");
		to[n++].value = span_of(s->kms_key_id);
	}
	return n;
}

/* All that are signed, which is all we set. */
static size_t
collect(const struct s3_req *r, const char *date, struct sigv4_pair *to)
{
	size_t n = 0;

	to[n].name = SPAN_LIT("host");
	to[n++].value = span_of(r->s->host);
	to[n].name = SPAN_LIT("x-amz-date");
	to[n++].value = span_of(date);
	to[n].name = SPAN_LIT("x-amz-content-sha256");
	to[n++].value = span_of(r->send.sha256);
	if (r->send.type) {
		to[n].name = SPAN_LIT("content-type");
		to[n++].value = span_of(r->send.type);
	}
	if (r->send.md5[0]) {
		to[n].name = SPAN_LIT("content-md5");
		to[n++].value = span_of(r->send.md5);
	}
	return n + (size_t)encrypted(r, to + n);
}

static void
add_header(struct s3_req *r, struct buf *b, struct span name, struct span value)
{
	struct curl_slist *more;

	buf_reset(b);
	buf_put_span(b, name);
	buf_puts(b, ": ");
	buf_put_span(b, value);
	buf_putc(b, '\0');
	more = curl_slist_append(r->headers, b->p);
	BUG(!more);
	r->headers = more;
}

void
s3_sign(struct s3_req *r, struct span path)
{
	const struct s3 *s = r->s;
	struct sigv4_key key = { s->access, s->secret, s->region };
	struct sigv4_pair headers[HEADERS_MAX];
	struct sigv4_request q = { .method = method_of(r->send.op),
		.path = path,
		.query = buf_span(&r->send.query),
		.headers = headers,
		.payload_sha256_hex = r->send.sha256,
		.at_us = clk_wall_us() };
	struct buf line = BUF_ZERO, proof = BUF_ZERO;
	char date[SIGV4_DATE_MAX];

	q.headers_n = collect(r, sigv4_date(q.at_us, date), headers);
	sigv4_sign(&proof, &key, &q);
	for (size_t i = 0; i < q.headers_n; i++)
		add_header(r, &line, headers[i].name, headers[i].value);
	add_header(r, &line, SPAN_LIT("authorization"), buf_span(&proof));
	buf_fini(&line);
	buf_fini(&proof);
}
