/* SPDX-License-Identifier: Apache-2.0 */
/* The error body has every member the binding names; hints are ours. */
#include "reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "buf.h"
#include "ctx.h"
#include "jspan.h"
#include "jwrite.h"
#include "qid.h"
#include "settings.h"

#define MEDIA_TYPE "application/openjobspec+json"
#define DOCS "https://openjobspec.org/errors/"

enum { REQUEST_ID_MAX = 200, REQUEST_ID_ROOM = 48 };

static const struct {
	const char *code, *hint;
	bool retryable;
} codes[] = {
	{ "invalid_payload", "Correct the body; see the message.", false },
	{ "invalid_request", "Correct the request; see the message.", false },
	{ "not_found", "Check the name or id; it may have been removed.",
		false },
	{ "conflict", "Look at its present state, then decide.", false },
	{ "duplicate", "It is there already; see the details.", false },
	{ "envelope_too_large", "Store large data elsewhere, send a reference.",
		false },
	{ "batch_too_large", "Use the limit in the details.", false },
	{ "unsupported", "Leave out what the message names.", false },
	{ "permission_denied", "Use a token with the role that this needs.",
		false },
	{ "rate_limited", "Fewer requests at a time.", true },
	{ "queue_full", "Wait until work was done, or raise the quota.", true },
	{ "backend_error", "Try again a little later.", true },
};

/* ---- problems ---- */

int
problem_set(struct problem *p, struct arena *a, int status, const char *code,
	const char *details, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	*p = (struct problem){ .status = status, .code = code };
	p->message = arena_cstr(a, span_clip(span_of(text), sizeof(text) - 4));
	if (details)
		p->details = arena_dup(a, span_of(details));
	return -1;
}

int
problem_field(struct problem *p, struct arena *a, const char *field,
	const char *fmt, ...)
{
	struct buf b = BUF_ZERO;
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	buf_puts(&b, "\"field\":");
	jwrite_quoted(&b, span_of(field));
	buf_putc(&b, '\0');
	problem_set(p, a, 400, "invalid_request", b.p, "%s", text);
	buf_fini(&b);
	return -1;
}

/* ---- replies ---- */

static bool
id_ok(struct span s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] < 0x20 || s.p[i] > 0x7e)
			return false;
	return s.n > 0 && s.n <= REQUEST_ID_MAX;
}

static const char *
request_id(struct hsrv_req *r)
{
	struct qid id;
	struct span s;
	char *text, *own;

	if (hsrv_header(r, "x-request-id", &s) && id_ok(s))
		return arena_cstr(hsrv_arena(r), s);
	own = arena_alloc(hsrv_arena(r), REQUEST_ID_ROOM);
	text = own;
	id = qid_new();
	memcpy(text, "req_", 4);
	qid_text(&id, text + 4);
	return own;
}

void
reply_begin(struct hsrv_req *r)
{
	hsrv_set_type(r, MEDIA_TYPE);
	hsrv_add_header(r, "OJS-Version", "1.0");
	hsrv_add_header(r, "X-Request-Id", request_id(r));
}

static const char *
request_id_again(const struct hsrv_req *r)
{
	const char *id = hsrv_added_header(r, "X-Request-Id");

	return id ? id : "";
}

static void
write_problem(struct hsrv_req *r, const struct problem *p)
{
	const char *hint = "See the message.";
	bool retryable = false;
	struct jwrite w;

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (strcmp(codes[i].code, p->code) == 0) {
			hint = codes[i].hint;
			retryable = codes[i].retryable;
		}
	buf_reset(hsrv_out(r));
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "error");
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "code", p->code);
	if (p->type)
		jwrite_kv_cstr(&w, "type", p->type);
	jwrite_kv_cstr(&w, "message", p->message);
	jwrite_kv_bool(&w, "retryable", retryable);
	if (p->details.n) {
		jwrite_key(&w, "details");
		buf_putc(hsrv_out(r), '{');
		buf_put(hsrv_out(r), p->details.p, p->details.n);
		jwrite_raw(&w, SPAN_LIT("}"));
	}
	jwrite_kv_cstr(&w, "hint", hint);
	jwrite_key(&w, "docs_url");
	jwrite_str(&w, arena_printf(hsrv_arena(r), DOCS "%s", p->code));
	jwrite_kv_cstr(&w, "request_id", request_id_again(r));
	jwrite_end(&w);
	jwrite_end(&w);
}

void
reply_problem(struct hsrv_req *r, const struct problem *p)
{
	write_problem(r, p);
	if (p->retry_after_s)
		hsrv_add_header(r, "Retry-After",
			arena_cstr(
				hsrv_arena(r), arena_printf(hsrv_arena(r), "%d",
						       p->retry_after_s)));
	hsrv_reply(r, p->status);
}

void
reply_no(struct hsrv_req *r, int status, const char *code, const char *details,
	const char *fmt, ...)
{
	struct problem p;
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	problem_set(&p, hsrv_arena(r), status, code, details, "%s", text);
	reply_problem(r, &p);
}

void
reply_missing(struct hsrv_req *r, const char *what, struct span name)
{
	struct buf b = BUF_ZERO;
	struct span shown = span_clip(name, 128);

	buf_printf(&b, "\"resource\":\"%s\",\"%s\":", what, what);
	jwrite_quoted(&b, name);
	buf_putc(&b, '\0');
	reply_no(r, 404, "not_found", b.p, "There is no %s %.*s.", what,
		SPAN_ARG(shown));
	buf_fini(&b);
}

bool
reply_object(struct hsrv_req *r, struct span *body)
{
	const char *what;
	size_t at;

	*body = span_trim(hsrv_body(r));
	if (!body->n) {
		reply_no(r, 400, "invalid_payload", NULL,
			"The request has no body; it takes one JSON object.");
		return false;
	}
	/* as it came: what is trimmed is more than the white space of JSON */
	if (!jspan_valid(hsrv_body(r), &what, &at)) {
		reply_no(r, 400, "invalid_payload", NULL,
			"The body is no JSON: %s at byte %zu.", what, at);
		return false;
	}
	if (body->p[0] != '{') {
		reply_no(r, 400, "invalid_payload", NULL,
			"The body is JSON, but not an object.");
		return false;
	}
	return true;
}

/* ---- errors of the server itself ---- */

static const char *
code_of(int status)
{
	switch (status) {
	case 401:
	case 403:
		return "permission_denied";
	case 404:
		return "not_found";
	case 413:
		return "envelope_too_large";
	case 429:
		return "rate_limited";
	default:
		/* 501 and 505 are what the client asked for */
		return status == 500 || status == 503 ? "backend_error"
						      : "invalid_request";
	}
}

/* No size where chunks go beyond the limit, or it is no number we know. */
static struct span
size_details(struct hsrv_req *r)
{
	long long limit = ctx_of(r)->conf->max_body_bytes;
	struct span s;
	int64_t size;

	if (!hsrv_header(r, "content-length", &s) || !span_i64(s, &size))
		return arena_printf(hsrv_arena(r), "\"limit\":%lld", limit);
	return arena_printf(hsrv_arena(r), "\"size\":%lld,\"limit\":%lld",
		(long long)size, limit);
}

void
reply_error(struct hsrv_req *r, int status, const char *text)
{
	struct problem p = {
		.status = status, .code = code_of(status), .message = text
	};

	if (status == 413)
		p.details = size_details(r);
	if (status == 429 || status == 503)
		hsrv_add_header(r, "Retry-After", "1");
	write_problem(r, &p);
}
