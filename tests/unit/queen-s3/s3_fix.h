/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bucket whose answers are written down in advance, on the loop of the
 * client.  Every request is checked: its signature is the one of what came.
 */
#ifndef QUEEN_TEST_S3_FIX_H
#define QUEEN_TEST_S3_FIX_H

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <cmocka.h>

#include "buf.h"
#include "clk.h"
#include "err.h"
#include "hash.h"
#include "loop.h"
#include "metric.h"
#include "object.h"
#include "s3.h"
#include "sigv4.h"

#define SECRET "s3cret/of+Queen"
#define MAX_GET 4096

enum { SEEN_MAX = 64, HEADERS_MAX = 32, TEST_MS = 20000 };

struct answer {
	int status; /* 0: none comes */
	const char *header, *value; /* one, or NULL */
	const char *body;
};

struct seen {
	char method[8], uri[512], host[64], type[32], md5[32], sha[65];
	char sse[16], kms[32], names[256], body[1024];
	size_t body_n;
	int64_t at_ms;
};

struct bed {
	struct loop *loop;
	struct evhttp *http;
	struct s3 *s;
	struct s3conf sink;
	struct s3_conf conf;
	struct loop_timer deadline;
	char endpoint[64];
	int port;
	const struct answer *answers; /* the last one goes on for ever */
	size_t answers_n;
	struct seen seen[SEEN_MAX];
	size_t seen_n;
	struct object o;
	/* what the client said */
	int done, hooks[8], hooks_n;
	bool ok, absent, truncated;
	struct s3_error e;
	int64_t size;
	char etag[64], body[MAX_GET + 1], keys[8][32];
	size_t keys_n;
	struct s3_req *in_hook; /* cancelled there */
	bool free_in_callback, free_in_hook;
};

#define ANSWERS(b, ...)                                                        \
	do {                                                                   \
		static const struct answer all_[] = { __VA_ARGS__ };           \
		(b)->answers = all_;                                           \
		(b)->answers_n = sizeof(all_) / sizeof(all_[0]);               \
		(b)->seen_n = 0;                                               \
	} while (0)

static inline const char *
header_of(struct evhttp_request *r, const char *name)
{
	const char *v = evhttp_find_header(
		evhttp_request_get_input_headers(r), name);

	return v ? v : "";
}

static inline struct span
text_of(const char *s, size_t n)
{
	return (struct span){ s, n };
}

/* The signature over what came must be the one that came. */
static inline void
check_signature(struct evhttp_request *r, struct seen *at)
{
	static const struct sigv4_key key = { "AKID", SECRET, "eu-south-1" };
	const char *auth = header_of(r, "authorization"), *query;
	const char *names = strstr(auth, "SignedHeaders=");
	struct sigv4_pair headers[HEADERS_MAX];
	struct sigv4_request q = { .method = at->method,
		.headers = headers,
		.payload_sha256_hex = at->sha };
	struct buf want = BUF_ZERO;
	char each[256], *save, digest[65];
	struct tm tm = { .tm_sec = 0 };

	assert_non_null(names);
	names += strlen("SignedHeaders=");
	snprintf(at->names, sizeof(at->names), "%.*s",
		(int)strcspn(names, ","), names);
	snprintf(each, sizeof(each), "%s", at->names);
	for (char *n = strtok_r(each, ";", &save); n;
		n = strtok_r(NULL, ";", &save)) {
		headers[q.headers_n].name = span_of(n);
		headers[q.headers_n++].value = span_of(header_of(r, n));
	}
	query = strchr(at->uri, '?');
	q.path = text_of(at->uri, strcspn(at->uri, "?"));
	q.query = span_of(query ? query + 1 : "");
	assert_int_equal(strlen(header_of(r, "x-amz-date")), 16);
	assert_non_null(strptime(
		header_of(r, "x-amz-date"), "%Y%m%dT%H%M%SZ", &tm));
	q.at_us = (int64_t)timegm(&tm) * 1000000;
	assert_in_range(clk_wall_us() - q.at_us, 0, 5000000);
	sigv4_sign(&want, &key, &q);
	assert_true(span_is(buf_span(&want), auth));
	buf_fini(&want);
	if (at->body_n < sizeof(at->body)) {
		hash_sha256_hex(text_of(at->body, at->body_n), digest);
		assert_string_equal(digest, at->sha);
	}
}

static inline const char *
method_of(struct evhttp_request *r)
{
	switch (evhttp_request_get_command(r)) {
	case EVHTTP_REQ_GET:
		return "GET";
	case EVHTTP_REQ_PUT:
		return "PUT";
	case EVHTTP_REQ_POST:
		return "POST";
	case EVHTTP_REQ_DELETE:
		return "DELETE";
	case EVHTTP_REQ_HEAD:
		return "HEAD";
	default:
		return "?";
	}
}

static inline void
note(struct bed *b, struct evhttp_request *r)
{
	struct seen *at = &b->seen[b->seen_n++];
	struct evbuffer *in = evhttp_request_get_input_buffer(r);

	assert_true(b->seen_n <= SEEN_MAX);
	memset(at, 0, sizeof(*at));
	at->at_ms = clk_mono_ms();
	snprintf(at->method, sizeof(at->method), "%s", method_of(r));
	snprintf(at->uri, sizeof(at->uri), "%s", evhttp_request_get_uri(r));
	snprintf(at->host, sizeof(at->host), "%s", header_of(r, "host"));
	snprintf(at->type, sizeof(at->type), "%s",
		header_of(r, "content-type"));
	snprintf(at->md5, sizeof(at->md5), "%s", header_of(r, "content-md5"));
	snprintf(at->sha, sizeof(at->sha), "%s",
		header_of(r, "x-amz-content-sha256"));
	snprintf(at->sse, sizeof(at->sse), "%s",
		header_of(r, "x-amz-server-side-encryption"));
	snprintf(at->kms, sizeof(at->kms), "%s",
		header_of(r, "x-amz-server-side-encryption-aws-kms-key-id"));
	at->body_n = evbuffer_get_length(in);
	if (at->body_n < sizeof(at->body))
		evbuffer_copyout(in, at->body, at->body_n);
	check_signature(r, at);
}

static inline void
on_request(struct evhttp_request *r, void *arg)
{
	struct bed *b = arg;
	struct evkeyvalq *head = evhttp_request_get_output_headers(r);
	const struct answer *a;
	struct evbuffer *out;

	note(b, r);
	a = &b->answers[b->seen_n < b->answers_n ? b->seen_n - 1
						 : b->answers_n - 1];
	if (!a->status)
		return;
	out = evbuffer_new();
	if (a->header)
		evhttp_add_header(head, a->header, a->value);
	if (a->body)
		evbuffer_add(out, a->body, strlen(a->body));
	evhttp_send_reply(r, a->status, "x", out);
	evbuffer_free(out);
}

static inline void
on_deadline(void *arg)
{
	(void)arg;
	fprintf(stderr, "nothing happened in time\n");
	abort();
}

/* A client as conf says now. */
static inline void
bed_client(struct bed *b)
{
	struct err e = ERR_ZERO;

	s3_free(b->s);
	s3_counts_free(b->conf.counts);
	b->conf.counts = s3_counts_new();
	b->s = s3_new(b->loop, &b->conf, &e);
	assert_string_equal(e.text, "");
	assert_non_null(b->s);
}

static inline void
bed_up(struct bed *b)
{
	static char access[] = "AKID", secret[] = SECRET, bucket[] = "lake",
		    region[] = "eu-south-1";
	struct evhttp_bound_socket *s;
	struct sockaddr_in at;
	socklen_t n = sizeof(at);

	memset(b, 0, sizeof(*b));
	b->loop = loop_new();
	b->http = evhttp_new(loop_base(b->loop));
	s = evhttp_bind_socket_with_handle(b->http, "127.0.0.1", 0);
	assert_non_null(s);
	assert_int_equal(getsockname(evhttp_bound_socket_get_fd(s),
				 (struct sockaddr *)&at, &n),
		0);
	evhttp_set_gencb(b->http, on_request, b);
	b->port = ntohs(at.sin_port);
	snprintf(b->endpoint, sizeof(b->endpoint), "http://localhost:%d",
		b->port);
	b->sink = (struct s3conf){ .endpoint = b->endpoint,
		.region = region,
		.bucket = bucket,
		.access_key = access,
		.secret_key = secret,
		.path_style = true };
	b->conf = (struct s3_conf){ .sink = &b->sink,
		.multipart_bytes = 1000,
		.part_bytes = 1000,
		.retry_first_ms = 2 };
	object_init(&b->o);
	loop_timer_init(&b->deadline, b->loop, on_deadline, b);
	loop_timer_start(&b->deadline, TEST_MS);
	bed_client(b);
}

static inline void
bed_down(struct bed *b)
{
	s3_free(b->s);
	s3_counts_free(b->conf.counts);
	object_fini(&b->o);
	loop_timer_fini(&b->deadline);
	evhttp_free(b->http);
	loop_free(b->loop);
}

static inline void
on_answer(void *arg, const struct s3_answer *a, const struct s3_error *e)
{
	struct bed *b = arg;

	b->done++;
	b->ok = e == NULL;
	memset(&b->e, 0, sizeof(b->e));
	if (e) {
		assert_null(a);
		b->e = *e;
		assert_null(strstr(e->text, SECRET));
	} else {
		b->absent = a->absent;
		b->size = a->size;
		b->truncated = a->truncated;
		snprintf(b->etag, sizeof(b->etag), "%.*s", SPAN_ARG(a->etag));
		assert_true(a->body.n <= MAX_GET);
		snprintf(b->body, sizeof(b->body), "%.*s", SPAN_ARG(a->body));
		b->keys_n = a->keys_n;
		for (size_t i = 0; i < a->keys_n && i < 8; i++)
			snprintf(b->keys[i], sizeof(b->keys[i]), "%.*s",
				SPAN_ARG(a->keys[i]));
	}
	if (b->free_in_callback) {
		s3_free(b->s);
		b->s = NULL;
	}
}

static inline void
on_hook(void *arg, int n)
{
	struct bed *b = arg;

	b->hooks[b->hooks_n++] = n;
	if (b->in_hook)
		s3_cancel(b->in_hook);
	b->in_hook = NULL;
	if (b->free_in_hook) {
		s3_free(b->s);
		b->s = NULL;
	}
}

/* Until so many calls have been answered. */
static inline void
run(struct bed *b, int done)
{
	while (b->done < done)
		event_base_loop(loop_base(b->loop), EVLOOP_ONCE);
	assert_int_equal(b->done, done);
}

static inline void
run_seen(struct bed *b, size_t n)
{
	while (b->seen_n < n)
		event_base_loop(loop_base(b->loop), EVLOOP_ONCE);
}

/* An object of n bytes, sealed. */
static inline void
fill(struct bed *b, size_t n)
{
	object_fini(&b->o);
	object_init(&b->o);
	for (size_t i = 0; i < n; i++) {
		char c = (char)('a' + i % 23);

		object_put(&b->o, &c, 1);
	}
	object_seal(&b->o);
}

static inline struct s3_req *
put(struct bed *b, const char *key, size_t n)
{
	fill(b, n);
	b->hooks_n = 0;
	return s3_put(b->s, span_of(key), "application/zstd", &b->o, on_hook,
		on_answer, b);
}

static inline void
put_and_run(struct bed *b, const char *key, size_t n)
{
	b->done = 0;
	put(b, key, n);
	run(b, 1);
}

static inline void
get_and_run(struct bed *b, const char *key)
{
	b->done = 0;
	s3_get(b->s, span_of(key), MAX_GET, on_answer, b);
	run(b, 1);
}

static inline void
assert_seen(const struct bed *b, size_t i, const char *method, const char *uri)
{
	assert_true(i < b->seen_n);
	assert_string_equal(b->seen[i].method, method);
	assert_string_equal(b->seen[i].uri, uri);
}

/* want: rows of op, code and number, in order. */
static inline void
assert_counts(struct bed *b, const char *const want[][3], size_t want_n)
{
	struct metric_label tenant = { "tenant", SPAN_LIT("t") };
	struct buf got = BUF_ZERO, all = BUF_ZERO;

	for (size_t i = 0; i < want_n; i++)
		buf_printf(&all,
			"queen_s3_s3_requests_total{tenant=\"t\",op=\"%s\","
			"code=\"%s\"} %s\n",
			want[i][0], want[i][1], want[i][2]);
	buf_putc(&all, '\0');
	s3_counts_write(b->conf.counts, &got, &tenant, 1);
	buf_putc(&got, '\0');
	assert_string_equal(got.p, all.p);
	buf_fini(&got);
	buf_fini(&all);
}

#endif
