/* SPDX-License-Identifier: Apache-2.0 */
#include "lock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "ctl.h"
#include "doc.h"
#include "jwrite.h"
#include "why.h"

int64_t
lock_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void
lock_init(struct lock *l, struct ctl *c, const char *ns, const char *name,
	int64_t ttl_ms, const char *program)
{
	struct qid id = qid_new();

	*l = (struct lock){ .ctl = c,
		.ns = ns,
		.name = name,
		.ttl_ms = ttl_ms,
		.program = program };
	qid_text(&id, l->holder);
	buf_puts(&l->path, "/api/v1/kv");
	client_segment(&l->path, ns);
	client_segment(&l->path, name);
	buf_putc(&l->path, '\0');
}

void
lock_fini(struct lock *l)
{
	buf_fini(&l->path);
}

static enum lock_verdict
note(struct lock *l, enum lock_verdict v, const char *text)
{
	snprintf(l->note, sizeof(l->note), "%s", text);
	return v;
}

/*
 * One exchange; LOCK_MINE with a checked document in r, or what came instead.
 * Each is sent once: who waits for a lease counts the time himself.
 */
static enum lock_verdict
ask(struct lock *l, const char *method, struct span body, int64_t timeout_ms,
	struct client_reply *r)
{
	struct client_req q = { .method = method,
		.path = l->path.p,
		.body = body,
		.kind = CLIENT_ONCE,
		.timeout_ms = timeout_ms < 1 ? 1 : timeout_ms };
	struct err e = ERR_ZERO;
	const char *why;

	arena_reset(&l->ctl->arena); /* a lease may be held for months */
	l->status = 0;
	if (client_try(l->ctl, &q, r, &e) != 0)
		return note(l, LOCK_UNSURE, e.text);
	l->status = r->status;
	if (doc_check(buf_span(&r->body), &e) != 0)
		return note(l, LOCK_UNSURE, "the answer is not JSON");
	if (r->status == 200)
		return LOCK_MINE;
	why = why_refused(buf_span(&r->body), &l->ctl->arena);
	return note(l,
		r->status == 429 || r->status >= 500 ? LOCK_UNSURE
						     : LOCK_REFUSED,
		why ? why : "the server refused");
}

/* Takes the version of a row that is ours, whatever the answer says. */
static bool
is_ours(struct lock *l, struct span answer)
{
	const char *holder =
		doc_str(answer, "value.holder", "", &l->ctl->arena);
	int64_t version = doc_i64(answer, "version", 0, &l->ctl->arena);

	if (strcmp(holder, l->holder) != 0 || version <= 0)
		return false;
	l->version = version;
	return true;
}

static void
write_value(const struct lock *l, struct jwrite *w)
{
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	jwrite_key(w, "value");
	jwrite_object(w);
	jwrite_kv_cstr(w, "holder", l->holder);
	jwrite_kv_cstr(w, "host", host);
	jwrite_kv_i64(w, "pid", getpid());
	jwrite_kv_cstr(w, "command", l->program);
	jwrite_end(w);
}

/* Without one there is nothing to fence with, nor to renew. */
static enum lock_verdict
take_lease(struct lock *l, struct span answer, int64_t sent_ms)
{
	int64_t version = doc_i64(answer, "version", 0, &l->ctl->arena);

	if (version <= 0)
		return note(l, LOCK_REFUSED, "the answer has no version");
	l->version = version;
	l->ends_ms = sent_ms + l->ttl_ms;
	return note(l, LOCK_MINE, "");
}

static enum lock_verdict
put(struct lock *l, int64_t expect, int64_t timeout_ms)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO;
	int64_t sent_ms = lock_now_ms();
	enum lock_verdict v;
	struct jwrite w;

	jwrite_init(&w, &body);
	jwrite_object(&w);
	write_value(l, &w);
	jwrite_kv_i64(&w, "ttlSeconds", l->ttl_ms / 1000);
	jwrite_kv_i64(&w, "expect", expect);
	jwrite_end(&w);
	v = ask(l, "PUT", buf_span(&body), timeout_ms, &r);
	if (v == LOCK_MINE) {
		struct span s = buf_span(&r.body);

		if (doc_true(s, "applied", &l->ctl->arena)) {
			v = take_lease(l, s, sent_ms);
		} else if (is_ours(l, s)) {
			/* an earlier put whose answer was lost: put again */
			v = note(l, LOCK_UNSURE, "an answer was lost");
		} else {
			v = LOCK_HELD;
		}
	}
	buf_fini(&body);
	buf_fini(&r.body);
	return v;
}

enum lock_verdict
lock_take(struct lock *l, int64_t timeout_ms)
{
	/* a version is known when an answer was lost, and the row is ours */
	enum lock_verdict v = put(l, l->version, timeout_ms);

	if (v == LOCK_MINE)
		l->token = l->version;
	else if (v == LOCK_HELD)
		l->version = 0;
	return v;
}

enum lock_verdict
lock_renew(struct lock *l, int64_t timeout_ms)
{
	return put(l, l->version, timeout_ms);
}

enum lock_verdict
lock_give(struct lock *l, int64_t timeout_ms)
{
	struct client_reply r = { .body = BUF_ZERO };
	enum lock_verdict v;
	char body[48];

	snprintf(body, sizeof(body), "{\"expect\":%" PRId64 "}", l->version);
	v = ask(l, "DELETE", span_of(body), timeout_ms, &r);
	if (v == LOCK_MINE &&
		!doc_true(buf_span(&r.body), "applied", &l->ctl->arena))
		v = is_ours(l, buf_span(&r.body))
			    ? note(l, LOCK_UNSURE, "an answer was lost")
			    : LOCK_HELD;
	buf_fini(&r.body);
	return v;
}

enum lock_verdict
lock_look(struct lock *l, int64_t timeout_ms)
{
	struct client_reply r = { .body = BUF_ZERO };
	enum lock_verdict v =
		ask(l, "GET", (struct span)SPAN_ZERO, timeout_ms, &r);

	if (v == LOCK_MINE &&
		doc_true(buf_span(&r.body), "found", &l->ctl->arena) &&
		!is_ours(l, buf_span(&r.body)))
		v = LOCK_HELD;
	buf_fini(&r.body);
	return v;
}

int
lock_code(const struct lock *l)
{
	if (l->status == 401 || l->status == 403)
		return CTL_AUTH;
	return l->status == 400 || l->status == 413 ? CTL_USER : CTL_SERVER;
}
