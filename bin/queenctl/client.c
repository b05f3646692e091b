/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"
#include "doc.h"
#include "why.h"

#ifndef QUEEN_VERSION
#error "QUEEN_VERSION comes from the Makefile"
#endif

enum {
	TIMEOUT_MS = 30000,
	CONNECT_MS = 10000,
	READ_TRIES = 3,
	READ_PAUSE_MS = 200,
	BUSY_TRIES = 10,
	BUSY_PAUSE_MS = 500,
	BUSY_PAUSE_MAX_MS = 30000,
	ANSWER_MAX_BYTES = 512 << 20,
};

struct client {
	CURL *h;
	struct curl_slist *headers;
	char error[CURL_ERROR_SIZE];
	struct buf *out; /* body of the request in flight */
	bool too_large;
	int64_t retry_after_s; /* of the last answer, -1 = none */
};

static volatile sig_atomic_t caught; /* written by the handler alone */

static void
on_signal(int signo)
{
	caught = signo;
}

bool
client_ignores(int signo)
{
	struct sigaction sa;

	return sigaction(signo, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN;
}

void
client_catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	if (!client_ignores(SIGINT))
		sigaction(SIGINT, &sa, NULL);
	if (!client_ignores(SIGTERM))
		sigaction(SIGTERM, &sa, NULL);
}

bool
client_interrupted(void)
{
	return caught != 0;
}

void
client_die_of_signal(void)
{
	if (!caught)
		return;
	fflush(stdout);
	signal(caught, SIG_DFL);
	raise(caught);
}

void
client_sleep_ms(int64_t ms)
{
	struct timespec t = { .tv_sec = ms / 1000,
		.tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

/* ---- paths ---- */

static void
put_encoded(struct buf *b, const char *s)
{
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
			(c >= 'A' && c <= 'Z') || strchr("-._~", c))
			buf_putc(b, *s);
		else
			buf_printf(b, "%%%02X", c);
	}
}

void
client_segment(struct buf *b, const char *text)
{
	buf_putc(b, '/');
	/* libcurl would take these two for steps in the path */
	if (strcmp(text, ".") == 0)
		buf_puts(b, "%2E");
	else if (strcmp(text, "..") == 0)
		buf_puts(b, "%2E%2E");
	else
		put_encoded(b, text);
}

void
client_query(struct buf *b, const char *name, const char *value)
{
	buf_putc(b, b->len && memchr(b->p, '?', b->len) ? '&' : '?');
	buf_puts(b, name);
	buf_putc(b, '=');
	put_encoded(b, value);
}

/* ---- one exchange ---- */

static size_t
on_body(char *p, size_t size, size_t n, void *arg)
{
	struct client *c = arg;

	if (c->out->len + size * n > ANSWER_MAX_BYTES) {
		c->too_large = true;
		return 0;
	}
	buf_put(c->out, p, size * n);
	return size * n;
}

static size_t
on_header(char *p, size_t size, size_t n, void *arg)
{
	static const char name[] = "retry-after:";
	struct client *c = arg;
	size_t len = size * n;

	if (len > sizeof(name) - 1 &&
		strncasecmp(p, name, sizeof(name) - 1) == 0) {
		char text[16];

		snprintf(text, sizeof(text), "%.*s",
			(int)(len - sizeof(name) + 1), p + sizeof(name) - 1);
		c->retry_after_s = strtol(text, NULL, 10);
	}
	return len;
}

/* Called at least once a second, and at once after a signal. */
static int
on_progress(void *arg, curl_off_t dlt, curl_off_t dln, curl_off_t ult,
	curl_off_t uln)
{
	(void)arg, (void)dlt, (void)dln, (void)ult, (void)uln;
	return caught != 0;
}

static bool
is_loopback(const char *url)
{
	const char *host = strstr(url, "://");

	if (!host)
		return false;
	host += 3;
	return strncmp(host, "127.", 4) == 0 ||
	       strncmp(host, "[::1]", 5) == 0 ||
	       (strncmp(host, "localhost", 9) == 0 && strchr(":/", host[9]));
}

static void
add_header(struct client *c, const char *line)
{
	struct curl_slist *l = curl_slist_append(c->headers, line);

	BUG(!l);
	c->headers = l;
}

static struct client *
make(const struct context_target *t)
{
	struct client *c = calloc(1, sizeof(*c));

	BUG(!c);
	BUG(curl_global_init(CURL_GLOBAL_DEFAULT) != 0);
	c->h = curl_easy_init();
	BUG(!c->h);
	add_header(c, "Content-Type: application/json");
	add_header(c, "Expect:");
	if (t->token) {
		struct buf b = BUF_ZERO;

		buf_printf(&b, "Authorization: Bearer %s", t->token);
		buf_putc(&b, '\0');
		add_header(c, b.p);
		explicit_bzero(b.p, b.len);
		buf_fini(&b);
	}
	if (t->tenant) {
		struct buf b = BUF_ZERO;

		buf_printf(&b, "x-queen-tenant: %s", t->tenant);
		buf_putc(&b, '\0');
		add_header(c, b.p);
		buf_fini(&b);
	}
	/* a proxy of the environment must not come between us and ourselves */
	if (is_loopback(t->url))
		curl_easy_setopt(c->h, CURLOPT_PROXY, "");
	curl_easy_setopt(c->h, CURLOPT_HTTPHEADER, c->headers);
	curl_easy_setopt(c->h, CURLOPT_USERAGENT, "queenctl/" QUEEN_VERSION);
	curl_easy_setopt(c->h, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c->h, CURLOPT_ERRORBUFFER, c->error);
	curl_easy_setopt(c->h, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c->h, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(c->h, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c->h, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(c->h, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c->h, CURLOPT_HEADERDATA, c);
	curl_easy_setopt(c->h, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(c->h, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(c->h, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	if (t->insecure) {
		curl_easy_setopt(c->h, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(c->h, CURLOPT_SSL_VERIFYHOST, 0L);
	}
	return c;
}

void
client_free(struct client *c)
{
	if (!c)
		return;
	curl_easy_cleanup(c->h);
	for (struct curl_slist *l = c->headers; l; l = l->next)
		explicit_bzero(l->data, strlen(l->data));
	curl_slist_free_all(c->headers);
	curl_global_cleanup();
	free(c);
}

static CURLcode
exchange(struct ctl *ctl, const struct client_req *q, struct client_reply *r)
{
	struct client *c = ctl->client;
	struct buf url = BUF_ZERO;
	CURLcode rc;

	buf_printf(&url, "%s%s", ctl->target.url, q->path);
	buf_putc(&url, '\0');
	buf_reset(&r->body);
	r->status = 0;
	c->out = &r->body;
	c->too_large = false;
	c->retry_after_s = -1;
	c->error[0] = '\0';
	curl_easy_setopt(c->h, CURLOPT_URL, url.p);
	curl_easy_setopt(c->h, CURLOPT_CUSTOMREQUEST, NULL);
	if (strcmp(q->method, "GET") == 0) {
		curl_easy_setopt(c->h, CURLOPT_HTTPGET, 1L);
	} else {
		curl_easy_setopt(c->h, CURLOPT_POST, 1L);
		curl_easy_setopt(
			c->h, CURLOPT_POSTFIELDS, q->body.n ? q->body.p : "");
		curl_easy_setopt(c->h, CURLOPT_POSTFIELDSIZE_LARGE,
			(curl_off_t)q->body.n);
		curl_easy_setopt(c->h, CURLOPT_CUSTOMREQUEST, q->method);
	}
	curl_easy_setopt(c->h, CURLOPT_TIMEOUT_MS,
		(long)(q->timeout_ms ? q->timeout_ms : TIMEOUT_MS));
	rc = curl_easy_perform(c->h);
	curl_easy_getinfo(c->h, CURLINFO_RESPONSE_CODE, &r->status);
	buf_fini(&url);
	return rc;
}

static int64_t
jittered(int64_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return ms * (80 + t.tv_nsec / 1000 % 41) / 100;
}

static int
unreachable(const struct ctl *ctl, CURLcode rc, struct err *e)
{
	const struct client *c = ctl->client;

	if (c->too_large)
		return err_set(e, ERR_LIMIT, "the answer is larger than %d MiB",
			ANSWER_MAX_BYTES >> 20);
	return err_set(e, ERR_IO, "cannot reach %s: %s", ctl->target.url,
		c->error[0] ? c->error : curl_easy_strerror(rc));
}

/* Busy is over in a moment; a queue that is full is so until it is read. */
static bool
is_busy(const struct client_reply *r)
{
	struct arena a = ARENA_ZERO;
	struct err e = ERR_ZERO;
	bool full;

	if (r->status != 429)
		return false;
	full = doc_check(buf_span(&r->body), &e) == 0 &&
	       strcmp(doc_str(buf_span(&r->body), "error.code", "", &a),
		       "queue_full") == 0;
	arena_fini(&a);
	return !full;
}

int
client_try(struct ctl *ctl, const struct client_req *q, struct client_reply *r,
	struct err *e)
{
	int64_t busy_ms = BUSY_PAUSE_MS;
	int tries = 1, busy = 0;

	if (!ctl->client)
		ctl->client = make(&ctl->target);
	client_catch_signals();
	for (;;) {
		CURLcode rc = exchange(ctl, q, r);

		if (caught)
			return err_set(e, ERR_IO, "interrupted");
		if (rc == CURLE_OK && q->kind != CLIENT_ONCE && is_busy(r) &&
			(q->kind == CLIENT_POP || busy++ < BUSY_TRIES)) {
			int64_t s = ctl->client->retry_after_s;

			client_sleep_ms(jittered(
				s >= 0 && s < 3600 ? s * 1000 : busy_ms));
			busy_ms = busy_ms * 2 > BUSY_PAUSE_MAX_MS
					  ? BUSY_PAUSE_MAX_MS
					  : busy_ms * 2;
			continue;
		}
		bool again = q->kind == CLIENT_READ && tries < READ_TRIES &&
			     !ctl->client->too_large &&
			     (rc != CURLE_OK || r->status >= 500);

		if (!again)
			return rc == CURLE_OK ? 0 : unreachable(ctl, rc, e);
		client_sleep_ms(jittered(READ_PAUSE_MS * tries++));
	}
}

int
client_send(struct ctl *ctl, const struct client_req *q, struct client_reply *r)
{
	struct err e = ERR_ZERO;
	int code = ctl_target(ctl);

	if (code != 0)
		return code;
	if (client_try(ctl, q, r, &e) == 0)
		return CTL_OK;
	/* who interrupts knows */
	return caught ? CTL_SERVER : ctl_fail(CTL_SERVER, "%s", e.text);
}

/* ---- what an answer means ---- */

static int
route_blocked(void)
{
	return ctl_fail(CTL_USER,
		"this surface is operator-only behind the proxy; run the "
		"command with --server set to the broker itself");
}

static int
check(const struct client_reply *r, const char *where)
{
	struct span body = buf_span(&r->body);
	struct arena a = ARENA_ZERO;
	struct err e = ERR_ZERO;
	const char *text = NULL, *code = "";
	int rc;

	if (r->status >= 200 && r->status < 300)
		return CTL_OK;
	if (doc_check(body, &e) == 0) {
		text = why_refused(body, &a);
		code = doc_str(body, "code", "", &a);
	}
	if (r->status == 404 && strcmp(code, "route_blocked") == 0)
		rc = route_blocked();
	else if (r->status == 404 && strcmp(code, "no_such_route") == 0)
		rc = ctl_fail(CTL_SERVER,
			"the server has no such path: an argument is empty, or "
			"the server is an older one (HTTP 404)");
	else
		rc = ctl_fail(r->status == 401 || r->status == 403 ? CTL_AUTH
								   : CTL_SERVER,
			"%s%s (HTTP %ld)", where,
			text ? text : "the server refused", r->status);
	arena_fini(&a);
	return rc;
}

int
client_check(const struct client_reply *r)
{
	return check(r, "");
}

/* Whose errors are objects of their own. */
static bool
is_ojs(const struct client_reply *r)
{
	struct arena a = ARENA_ZERO;
	struct err e = ERR_ZERO;
	bool yes = doc_check(buf_span(&r->body), &e) == 0 &&
		   doc_str(buf_span(&r->body), "error.code", NULL, &a);

	arena_fini(&a);
	return yes;
}

int
client_answer(struct ctl *ctl, const struct client_reply *r, const char *where)
{
	struct err e = ERR_ZERO;
	int code;

	if (ctl->target.ojs && r->status == 404 && !is_ojs(r))
		return ctl_fail(CTL_SERVER, "%s%s is no queen-ojs (HTTP 404)",
			where, ctl->target.url);
	code = check(r, where);
	if (code == 0 && r->body.len && doc_check(buf_span(&r->body), &e) != 0)
		code = ctl_fail(CTL_SERVER, "the answer of %s is %s",
			ctl->target.url, e.text);
	return code;
}

int
client_ask(struct ctl *ctl, const struct client_req *q, struct client_reply *r)
{
	int code = client_send(ctl, q, r);

	return code ? code : client_answer(ctl, r, "");
}
