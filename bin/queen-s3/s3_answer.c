/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer means.  A status alone does not tell: a
 * completed upload may be answered 200 with an error in the body, and some
 * refusals pass when they are tried again.
 */
#include "s3_int.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "err.h"
#include "s3xml.h"

enum { KEY_TEXT_MAX = 160, MESSAGE_MAX = 120 };

static void set_error(struct s3_req *r, enum s3_class cls, bool retriable,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* ---- as it comes in ---- */

static void
keep(char *to, size_t to_n, struct span value)
{
	size_t n = value.n < to_n ? value.n : to_n - 1;

	if (n)
		memcpy(to, value.p, n);
	to[n] = '\0';
}

static struct span
unquoted(struct span s)
{
	if (s.n > 1 && s.p[0] == '"' && s.p[s.n - 1] == '"')
		return span_make(s.p + 1, s.n - 2);
	return s;
}

static void
take_header(struct s3_reply *p, struct span name, struct span value)
{
	char date[64];
	int64_t n;

	if (name.n == 4 && strncasecmp(name.p, "etag", 4) == 0) {
		keep(p->etag, sizeof(p->etag), unquoted(value));
	} else if (name.n == 11 &&
		   strncasecmp(name.p, "retry-after", 11) == 0) {
		/* a date is not honoured */
		if (span_i64(value, &n) && n > 0)
			p->retry_after_ms = n < S3_WAIT_MAX_MS / 1000
						    ? n * 1000
						    : S3_WAIT_MAX_MS;
	} else if (name.n == 4 && strncasecmp(name.p, "date", 4) == 0) {
		keep(date, sizeof(date), value);
		p->date_s = curl_getdate(date, NULL);
	} else if (name.n == 19 &&
		   strncasecmp(name.p, "x-amz-bucket-region", 19) == 0) {
		keep(p->region, sizeof(p->region), value);
	} else if (name.n == 28 &&
		   strncasecmp(name.p, "x-amz-server-side-encryption", 28) ==
			   0) {
		keep(p->sse, sizeof(p->sse), value);
	}
}

size_t
s3_on_header(char *p, size_t one, size_t n, void *arg)
{
	struct s3_req *r = arg;
	struct span line = span_make(p, one * n);
	const char *colon = memchr(p, ':', line.n);

	if (line.n > 5 && memcmp(p, "HTTP/", 5) == 0) {
		/* of the last of them: 100 Continue may come first */
		r->reply.etag[0] = r->reply.region[0] = '\0';
		r->reply.sse[0] = '\0';
		r->reply.retry_after_ms = r->reply.date_s = 0;
	} else if (colon) {
		take_header(&r->reply, span_make(p, (size_t)(colon - p)),
			span_trim(span_make(
				colon + 1, line.n - (size_t)(colon - p) - 1)));
	}
	return line.n;
}

size_t
s3_on_body(char *p, size_t one, size_t n, void *arg)
{
	struct s3_req *r = arg;
	struct buf *b = &r->reply.body;
	curl_off_t all = 0;
	long status = 0;

	n *= one;
	curl_easy_getinfo(r->call.easy, CURLINFO_RESPONSE_CODE, &status);
	if (status >= 300) {
		/* the beginning tells enough */
		if (b->len + n <= S3_TEXT_MAX_BYTES)
			buf_put(b, p, n);
		return n;
	}
	curl_easy_getinfo(
		r->call.easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &all);
	if (n > r->reply.body_max - b->len ||
		(all > 0 && (uint64_t)all > r->reply.body_max)) {
		r->reply.too_large = true;
		return 0; /* ends the attempt */
	}
	if (!s3_hold(r, n)) {
		r->reply.too_many = true;
		return 0;
	}
	if (b->len == 0 && all > 0)
		buf_reserve(b, (size_t)all);
	buf_put(b, p, n);
	return n;
}

/* ---- errors ---- */

static void
set_error(struct s3_req *r, enum s3_class cls, bool retriable, const char *fmt,
	...)
{
	struct s3_error *e = &r->error;
	struct span key = buf_span(&r->key);
	bool cut = key.n > KEY_TEXT_MAX;
	va_list ap;
	int n;

	if (cut)
		key = span_make(key.p + key.n - KEY_TEXT_MAX, KEY_TEXT_MAX);
	e->cls = cls;
	e->retriable = retriable;
	e->status = r->reply.status;
	n = snprintf(e->text, sizeof(e->text),
		"%s %s%.*s: ", s3_op_name(r->send.op), cut ? "..." : "",
		SPAN_ARG(key));
	va_start(ap, fmt);
	vsnprintf(e->text + n, sizeof(e->text) - (size_t)n, fmt, ap);
	va_end(ap);
	for (char *c = e->text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = ' ';
}

/* Codes of refusals that pass by themselves, whatever the status. */
static bool
passes(const char *code)
{
	static const char *const all[] = { "InternalError", "SlowDown",
		"ServiceUnavailable", "RequestTimeout", "RequestTimeTooSkewed",
		"OperationAborted", "ConditionalRequestConflict" };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(code, all[i]) == 0)
			return true;
	return false;
}

/* The service got other bytes than were signed: they broke on the way. */
static bool
broke_on_the_way(const char *code)
{
	return strcmp(code, "BadDigest") == 0 ||
	       strcmp(code, "XAmzContentSHA256Mismatch") == 0 ||
	       strcmp(code, "IncompleteBody") == 0;
}

/* How far this clock is ahead of the server's, and a line about it. */
static void
put_skew(struct s3_req *r, char *to, size_t to_n)
{
	int64_t ahead_s = clk_wall_us() / 1000000 - r->reply.date_s;
	uint64_t suppressed;

	if (r->reply.date_s <= 0)
		return;
	snprintf(to, to_n, "; this clock is %" PRId64 " s %s the server's",
		ahead_s < 0 ? -ahead_s : ahead_s,
		ahead_s < 0 ? "behind" : "ahead of");
	if (log_sample(&r->s->skew_log, loop_now_ms(r->s->loop), &suppressed))
		log_line(LOG_ERROR, "queen-s3",
			"the clock differs from the bucket's",
			"%sbucket=%s offset_s=%" PRId64 " suppressed=%" PRIu64,
			r->s->log_tenant, log_quote(r->s->bucket), ahead_s,
			suppressed);
}

static void
status_error(struct s3_req *r, const struct s3xml *x)
{
	struct s3_error *e = &r->error;
	int status = r->reply.status;
	const char *region = r->reply.region;
	char more[160] = "", message[MESSAGE_MAX + 1], asked[64];
	bool again;

	keep(e->code, sizeof(e->code), x->code);
	keep(message, sizeof(message), span_clip(x->message, MESSAGE_MAX));
	keep(asked, sizeof(asked), x->region);
	if (!*region)
		region = asked;
	again = status == 408 || status == 429 || status >= 500 ||
		passes(e->code);
	if (strcmp(e->code, "RequestTimeTooSkewed") == 0)
		put_skew(r, more, sizeof(more));
	else if (*region && strcmp(region, r->s->region) != 0)
		snprintf(more, sizeof(more), "; the bucket is in region %s",
			region);
	e->retry_after_ms = r->reply.retry_after_ms;
	set_error(r, broke_on_the_way(e->code) ? S3_INTEGRITY : S3_STATUS,
		again || broke_on_the_way(e->code), "status %d%s%s%s%s%s",
		status, *e->code ? " " : "", e->code, *message ? ": " : "",
		message, more);
}

static bool
transport_error(struct s3_req *r, CURLcode rc, const char *why)
{
	if (r->reply.too_large)
		set_error(r, S3_BODY, false,
			"the answer has more than %zu bytes",
			r->reply.body_max);
	else if (r->reply.too_many)
		set_error(r, S3_BODY, true,
			"all answers together have more than %zu bytes",
			s3_held_max);
	else if (rc == CURLE_SSL_CACERT_BADFILE)
		set_error(r, S3_CONFIG, false, "%s", why);
	else
		set_error(r, S3_TRANSPORT, true, "%s", why);
	return false;
}

/* ---- ETags ---- */

static bool
is_md5(struct span s)
{
	for (size_t i = 0; i < s.n; i++)
		if (span_hex(s.p[i]) < 0)
			return false;
	return s.n == 2 * OBJECT_MD5_BYTES;
}

/* Theirs are of the same shape, and a digest of something else. */
static bool
is_kms(const struct s3_req *r)
{
	return r->s->sse == S3_SSE_KMS ||
	       strncmp(r->reply.sse, "aws:kms", 7) == 0;
}

/* The number behind the last dash, 0 without one. */
static int64_t
parts_of(struct span etag)
{
	const char *dash = etag.n ? memrchr(etag.p, '-', etag.n) : NULL;
	int64_t n;

	if (!dash || !span_i64(span_make(dash + 1,
				       (size_t)(etag.p + etag.n - dash) - 1),
			     &n))
		return 0;
	return n;
}

bool
s3_etag_fits(const struct s3_req *r, struct span etag,
	const uint8_t md5[OBJECT_MD5_BYTES], size_t parts_n)
{
	int64_t parts = parts_of(etag);

	if (parts > 0 && parts_n > 0)
		return (uint64_t)parts == parts_n;
	if (is_md5(etag) && !is_kms(r)) {
		for (int i = 0; i < OBJECT_MD5_BYTES; i++)
			if ((span_hex(etag.p[2 * i]) << 4 |
				    span_hex(etag.p[2 * i + 1])) != md5[i])
				return false;
		return true;
	}
	log_line(LOG_DEBUG, "queen-s3", "an ETag says nothing",
		"%sop=%s etag=%.*s", r->s->log_tenant, s3_op_name(r->send.op),
		SPAN_ARG(etag));
	return true;
}

/* ---- what should be in it ---- */

static bool
lacks(struct s3_req *r, const char *what)
{
	set_error(r, S3_BODY, true, "status %d without %s", r->reply.status,
		what);
	return false;
}

static bool
is_whole(const struct s3xml *x, const char *root)
{
	return x->whole && span_is(x->root, root);
}

static bool
stored(struct s3_req *r)
{
	r->answer.etag = span_of(r->reply.etag);
	/* who says something else instead is no S3: a page of some gateway */
	if (!r->reply.etag[0] &&
		(r->send.op == S3_OP_PART || r->reply.body.len > 0))
		return lacks(r, "an ETag");
	if (!r->reply.etag[0] ||
		s3_etag_fits(r, r->answer.etag, r->send.md5_raw, 0))
		return true;
	set_error(r, S3_INTEGRITY, true,
		"the ETag %s is not the digest of what was sent",
		r->reply.etag);
	return false;
}

static bool
completed(struct s3_req *r, const struct s3xml *x)
{
	if (!is_whole(x, "CompleteMultipartUploadResult"))
		return lacks(r, "a whole result");
	r->answer.etag = unquoted(x->etag);
	/* no digest of ours would fit: the parts' number is what there is */
	if (parts_of(r->answer.etag) == 0 ||
		s3_etag_fits(r, r->answer.etag, NULL, s3_upload_parts_n(r)))
		return true;
	set_error(r, S3_INTEGRITY, true, "the ETag %.*s is not of %zu parts",
		SPAN_ARG(r->answer.etag), s3_upload_parts_n(r));
	return false;
}

/* Else the same page would be asked for again without an end. */
static bool
goes_on(const struct s3_req *r, const struct s3xml *x)
{
	struct span last = x->keys[x->keys_n - 1], after = buf_span(&r->after);
	size_t n = last.n < after.n ? last.n : after.n;
	int d = n ? memcmp(last.p, after.p, n) : 0;

	return d > 0 || (d == 0 && last.n > after.n);
}

static bool
listed(struct s3_req *r, const struct s3xml *x)
{
	if (!is_whole(x, "ListBucketResult"))
		return lacks(r, "a whole list");
	if (x->truncated && x->keys_n == 0)
		return lacks(r, "keys, and more of them");
	if (x->truncated && !goes_on(r, x))
		return lacks(r, "keys behind the one it was asked for");
	r->answer.keys = x->keys;
	r->answer.keys_n = x->keys_n;
	r->answer.truncated = x->truncated;
	return true;
}

static bool
take_answer(struct s3_req *r, const struct s3xml *x)
{
	switch (r->send.op) {
	case S3_OP_PUT:
	case S3_OP_PART:
		return stored(r);
	case S3_OP_CREATE:
		r->answer.body = x->upload_id;
		return x->upload_id.n > 0 || lacks(r, "an UploadId");
	case S3_OP_COMPLETE:
		return completed(r, x);
	case S3_OP_LIST:
		return listed(r, x);
	case S3_OP_HEAD:
		r->answer.size = r->reply.size;
		r->answer.etag = span_of(r->reply.etag);
		return true;
	case S3_OP_GET:
		r->answer.etag = span_of(r->reply.etag);
		r->answer.body = buf_span(&r->reply.body);
		return true;
	case S3_OP_ABORT:
		return true;
	}
	return true;
}

/* A bucket that is not there is not an object that is not there. */
static bool
is_absent(const struct s3_req *r, const struct s3xml *x)
{
	return r->reply.status == 404 &&
	       (r->send.op == S3_OP_HEAD || r->send.op == S3_OP_GET) &&
	       !span_is(x->code, "NoSuchBucket");
}

bool
s3_judge(struct s3_req *r, CURLcode rc, const char *why)
{
	int status = r->reply.status;
	curl_off_t size = 0;
	struct s3xml x;

	if (rc != CURLE_OK)
		return transport_error(r, rc, why);
	curl_easy_getinfo(
		r->call.easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &size);
	r->reply.size = size;
	memset(&x, 0, sizeof(x));
	if (status < 200 || status > 299 || r->send.op != S3_OP_GET)
		s3xml_read(&x, &r->mem, buf_span(&r->reply.body));
	if (is_absent(r, &x)) {
		r->answer.absent = true;
		return true;
	}
	if (status < 200 || status > 299 || span_is(x.root, "Error")) {
		status_error(r, &x);
		return false;
	}
	return take_answer(r, &x);
}
