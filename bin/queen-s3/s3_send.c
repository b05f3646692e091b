/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attempts of a request.  Each is dated and signed when it is sent, never
 * before it waits for anything.
 */
#include "s3_int.h"

#include <stdlib.h>
#include <string.h>

#include "backoff.h"
#include "err.h"

enum {
	/* a stale connection costs an attempt; most services close after 20 s */
	IDLE_S = 15,
	EXPECT_MS = 200,
	UPLOAD_CHUNK_BYTES = 256 * 1024
};

static void go(struct s3_req *r);

/* ---- the body, out of the chunks of the object ---- */

static size_t
on_read(char *p, size_t one, size_t n, void *arg)
{
	struct s3_send *send = &((struct s3_req *)arg)->send;
	size_t room = one * n, took = 0;

	while (took < room && send->sent < send->n) {
		struct span s = object_at(send->o, send->at + send->sent);
		size_t most = send->n - send->sent;

		if (most > room - took)
			most = room - took;
		if (s.n > most)
			s.n = most;
		memcpy(p + took, s.p, s.n);
		took += s.n;
		send->sent += s.n;
	}
	return took;
}

/* When a kept connection turns out to be closed, libcurl begins anew. */
static int
on_seek(void *arg, curl_off_t at, int from)
{
	struct s3_send *send = &((struct s3_req *)arg)->send;

	if (from != SEEK_SET || at < 0 || (size_t)at > send->n)
		return CURL_SEEKFUNC_FAIL;
	send->sent = (size_t)at;
	return CURL_SEEKFUNC_OK;
}

static void
set_method(struct s3_req *r, CURL *c)
{
	struct s3_send *send = &r->send;

	switch (send->op) {
	case S3_OP_PUT:
	case S3_OP_PART:
		curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(
			c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)send->n);
		curl_easy_setopt(c, CURLOPT_READFUNCTION, on_read);
		curl_easy_setopt(c, CURLOPT_READDATA, r);
		curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, on_seek);
		curl_easy_setopt(c, CURLOPT_SEEKDATA, r);
		curl_easy_setopt(
			c, CURLOPT_UPLOAD_BUFFERSIZE, (long)UPLOAD_CHUNK_BYTES);
		break;
	case S3_OP_CREATE:
	case S3_OP_COMPLETE:
		curl_easy_setopt(c, CURLOPT_POST, 1L);
		curl_easy_setopt(c, CURLOPT_POSTFIELDS,
			send->text.len ? send->text.p : "");
		curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE,
			(curl_off_t)send->text.len);
		break;
	case S3_OP_ABORT:
		curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, "DELETE");
		break;
	case S3_OP_HEAD:
		curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
		break;
	default:
		curl_easy_setopt(c, CURLOPT_HTTPGET, 1L);
	}
}

static void
set_limits(CURL *c)
{
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)S3_CONNECT_MS);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)S3_REQUEST_MS);
	curl_easy_setopt(c, CURLOPT_EXPECT_100_TIMEOUT_MS, (long)EXPECT_MS);
	curl_easy_setopt(c, CURLOPT_MAXAGE_CONN, (long)IDLE_S);
}

/* ---- the answers in memory ---- */

/* Who owns a bucket says how long its answers are. */
size_t s3_held_max = (size_t)512 << 20;
static size_t held;

bool
s3_hold(struct s3_req *r, size_t n)
{
	if (n > s3_held_max - held)
		return false;
	held += n;
	r->reply.held += n;
	return true;
}

void
s3_release(struct s3_req *r)
{
	held -= r->reply.held;
	r->reply.held = 0;
}

/* ---- attempts ---- */

static size_t
body_max(const struct s3_req *r)
{
	if (r->send.op == S3_OP_GET)
		return r->max_bytes;
	return r->send.op == S3_OP_LIST ? S3_LIST_MAX_BYTES : S3_TEXT_MAX_BYTES;
}

static void
reset_reply(struct s3_req *r)
{
	struct buf body = r->reply.body;

	s3_release(r);
	buf_fini(&body);
	r->reply = (struct s3_reply){ .body = body, .body_max = body_max(r) };
	arena_reset(&r->mem);
	memset(&r->answer, 0, sizeof(r->answer));
	memset(&r->error, 0, sizeof(r->error));
}

/* A probe asks who is there, and waits for none of them. */
static bool
takes_turn(const struct s3_req *r)
{
	return r->send.op != S3_OP_HEAD;
}

/* One that has its turn may be stopped before it takes it: then the next. */
static void
next_turn(struct s3 *s)
{
	struct s3_req *r = TAILQ_FIRST(&s->turns);

	if (!r || s->sending_n >= S3_PARALLEL_MAX)
		return;
	TAILQ_REMOVE(&s->turns, r, turn);
	r->has_turn = false;
	s3_later(r, 0, go);
}

static void
end_attempt(struct s3_req *r)
{
	if (!r->call.easy)
		return;
	hcli_end(&r->call);
	curl_slist_free_all(r->headers);
	r->headers = NULL;
	r->s->sending_n -= takes_turn(r);
}

static void
wait_and_retry(struct s3_req *r)
{
	int64_t ms;

	r->send.wait_ms = backoff_next_ms(
		r->send.wait_ms, r->s->first_ms, S3_WAIT_MAX_MS);
	ms = backoff_jitter_ms(r->send.wait_ms);
	if (ms < r->error.retry_after_ms)
		ms = r->error.retry_after_ms;
	if (ms > S3_WAIT_MAX_MS)
		ms = S3_WAIT_MAX_MS;
	if (r->s->hurried && ms > S3_HURRY_MAX_MS)
		ms = S3_HURRY_MAX_MS;
	r->waiting = true;
	s3_later(r, ms, go);
}

static void
on_done(void *arg, CURLcode rc, const char *why)
{
	struct s3_req *r = arg;
	bool answered = rc == CURLE_OK || r->reply.too_large;
	long status = 0;
	bool ok;

	if (answered)
		curl_easy_getinfo(
			r->call.easy, CURLINFO_RESPONSE_CODE, &status);
	r->reply.status = (int)status;
	s3_counts_add(r->s->counts, r->send.op, r->reply.status);
	ok = s3_judge(r, rc, why);
	end_attempt(r);
	next_turn(r->s);
	if (!ok && r->error.retriable &&
		r->send.attempts < r->send.attempts_max)
		wait_and_retry(r);
	else
		r->then(r, ok);
}

static void
send_attempt(struct s3_req *r)
{
	CURL *c = hcli_begin(r->s->hcli, &r->call, on_done, r);
	struct buf path = BUF_ZERO, url = BUF_ZERO;

	reset_reply(r);
	r->send.attempts++;
	r->send.sent = 0;
	s3_put_path(&path, r);
	s3_sign(r, buf_span(&path));
	buf_puts(&url, r->s->base);
	buf_put_span(&url, buf_span(&path));
	if (r->send.query.len) {
		buf_putc(&url, '?');
		buf_put_span(&url, buf_span(&r->send.query));
	}
	buf_putc(&url, '\0');
	curl_easy_setopt(c, CURLOPT_URL, url.p);
	curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, r->headers);
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, s3_on_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, r);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, s3_on_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, r);
	set_limits(c);
	set_method(r, c);
	buf_fini(&path);
	buf_fini(&url);
	r->s->sending_n += takes_turn(r);
	hcli_start(&r->call);
}

/* Now, or when it is its turn. */
static void
go(struct s3_req *r)
{
	if (takes_turn(r) && r->s->sending_n >= S3_PARALLEL_MAX) {
		TAILQ_INSERT_TAIL(&r->s->turns, r, turn);
		r->has_turn = true;
		return;
	}
	send_attempt(r);
}

void
s3_run(struct s3_req *r)
{
	s3_later(r, 0, go);
}

void
s3_stop(struct s3_req *r)
{
	if (r->has_turn)
		TAILQ_REMOVE(&r->s->turns, r, turn);
	r->has_turn = false;
	r->waiting = false;
	loop_timer_stop(&r->timer);
	end_attempt(r);
	next_turn(r->s);
}
